"""Trained networks that are changed: a quantized MLP, LoRA with per-example gradients."""

from __future__ import annotations

import weft
import weft.numpy as jnp
from tests.models.layers import cross_entropy, dense, init_mlp
from tests.models.optimizers import adam, sgd
from tests.models.record import Model, Size, sizes
from weft import lax, nn, random

CLASSES = 4


def _batch(key, s):
    data_key, label_key = random.split(key)
    return {
        "x": random.normal(data_key, (s.batch, s.width)),
        "label": random.randint(label_key, (s.batch,), 0, CLASSES),
    }


# ---- quantized MLP: int8 products forward, straight-through gradients


def _quantize(x, axis):
    """Return int8 values and their scale along an axis."""
    scale = jnp.max(jnp.abs(x), axis=axis, keepdims=True) / 127.0
    return jnp.clip(jnp.round(x / scale), -127, 127).astype(jnp.int8), scale


@weft.custom_vjp
def _quantized_matmul(x, w):
    x8, x_scale = _quantize(x, 1)
    w8, w_scale = _quantize(w, 0)
    product = lax.dot_general(x8, w8, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
    return product.astype(jnp.float32) * x_scale * w_scale


def _quantized_forward(x, w):
    return _quantized_matmul(x, w), (x, w)


def _quantized_backward(saved, g):
    x, w = saved
    return g @ w.T, x.T @ g


_quantized_matmul.defvjp(_quantized_forward, _quantized_backward)


def _init_quantized(key, s):
    return init_mlp(key, [s.width, s.hidden, CLASSES])


def _quantized_loss(params, batch):
    first, second = params
    hidden = nn.relu(_quantized_matmul(batch["x"], first["w"]) + first["b"])
    logits = _quantized_matmul(hidden, second["w"]) + second["b"]
    return cross_entropy(logits, batch["label"]).mean()


# ---- LoRA: low-rank updates, whose gradients are clipped and blurred by example


def _init_lora(key, s):
    keys = random.split(key, 4)
    return {
        "base": init_mlp(keys[0], [s.width, s.hidden, CLASSES]),
        "a": [
            random.normal(keys[1], (s.width, s.rank)) / s.rank,
            random.normal(keys[2], (s.hidden, s.rank)) / s.rank,
        ],
        "b": [
            0.1 * random.normal(keys[3], (s.rank, s.hidden)),
            jnp.zeros((s.rank, CLASSES)),
        ],
    }


def _lora_loss_of_one(adapters, base, x, label):
    for i, (layer, a, b) in enumerate(zip(base, adapters["a"], adapters["b"])):
        x = dense(layer, x) + 2.0 * (x @ a) @ b
        x = nn.gelu(x) if i == 0 else x
    return cross_entropy(x, label)


def _lora_loss(params, batch):
    adapters = {"a": params["a"], "b": params["b"]}
    loss = weft.vmap(_lora_loss_of_one, in_axes=(None, None, 0, 0))
    return loss(adapters, params["base"], batch["x"], batch["label"]).mean()


_lora_adam = adam()


def _init_lora_state(params):
    return _lora_adam.init({"a": params["a"], "b": params["b"]})


def _lora_update(state, batch):
    """Clip the gradient of each example, average, add noise; the base network stays."""
    params, optimizer_state = state
    adapters = {"a": params["a"], "b": params["b"]}
    gradient = weft.vmap(weft.value_and_grad(_lora_loss_of_one), in_axes=(None, None, 0, 0))
    losses, grads = gradient(adapters, params["base"], batch["x"], batch["label"])
    squares = [jnp.sum(g.reshape(g.shape[0], -1) ** 2, axis=1) for g in weft.tree.leaves(grads)]
    factor = jnp.minimum(1.0, 0.5 / jnp.sqrt(sum(squares) + 1e-12))
    grads = weft.tree.map(lambda g: jnp.tensordot(factor, g, axes=1) / len(factor), grads)
    leaves, structure = weft.tree.flatten(grads)
    keys = random.split(random.key(7), len(leaves))
    noisy = [g + 0.01 * random.normal(k, g.shape) for k, g in zip(keys, leaves)]
    grads = weft.tree.unflatten(structure, noisy)
    adapters, optimizer_state = _lora_adam.update(grads, optimizer_state, adapters)
    return ({**params, **adapters}, optimizer_state), losses.mean()


_sizes = sizes(
    Size(batch=8, width=6, hidden=10, rank=2), Size(batch=64, width=128, hidden=256, rank=4)
)

MODELS = [
    Model("quantized_mlp", _init_quantized, _batch, _quantized_loss, _sizes, sgd(0.1)),
    Model(
        "lora",
        _init_lora,
        _batch,
        _lora_loss,
        _sizes,
        _lora_adam._replace(init=_init_lora_state),
        _lora_update,
    ),
]
