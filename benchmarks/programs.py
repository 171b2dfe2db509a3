"""Programs shared by several files: a GPT-style transformer, the tutorial's MLP, a small ResNet and an LSTM, with Adam."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def arrays(shapes, scale=0.05):
    """A pytree of NumPy arrays with the given shapes, from fixed random numbers."""
    random = np.random.default_rng(0)
    return jax.tree_util.tree_map(
        lambda s: (scale * random.standard_normal(s)).astype(np.float32),
        shapes,
        is_leaf=lambda s: isinstance(s, tuple) and all(isinstance(n, int) for n in s),
    )


# ---- the tutorial's MLP


def mlp_params(sizes):
    return [
        (np.asarray(w) / np.float32(0.05 * a**0.5), b)
        for a, (w, b) in zip(sizes, arrays([[(a, b), (b,)] for a, b in itertools.pairwise(sizes)]))
    ]


def mlp(params, inputs):
    for w, b in params:
        outputs = jnp.dot(inputs, w) + b
        inputs = jnp.maximum(outputs, 0)
    return outputs


def mlp_loss(params, batch):
    inputs, targets = batch
    return jnp.mean(jnp.sum((mlp(params, inputs) - targets) ** 2, axis=-1))


def mlp_block(x, up, bias, down):
    """The two matrix products of a transformer's layer."""
    return jax.nn.gelu(x @ up + bias) @ down


# ---- a transformer


def gpt_layer_shapes(width):
    return {
        "qkv": (width, 3 * width),
        "out": (width, width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
        "bias_up": (4 * width,),
        "bias_down": (width,),
        "norm1": (width,),
        "norm2": (width,),
    }


def gpt_params(layers, width, vocabulary, length, scanned):
    layer = arrays(gpt_layer_shapes(width))
    body = (
        jax.tree_util.tree_map(lambda x: np.stack([x] * layers), layer)
        if scanned
        else [layer] * layers
    )
    return {
        **arrays({"embed": (vocabulary, width), "position": (length, width), "norm": (width,)}),
        "layers": body,
    }


def rms_norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * (1 + scale)


def attention(q, k, v):
    """On (batch, head, length, depth)."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)


def causal_attention(q, k, v):
    """On (batch, head, length, depth)."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    length = q.shape[2]
    mask = jnp.arange(length)[:, None] >= jnp.arange(length)[None, :]
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(mask, scores, -1e30), -1), v)


def gpt_layer(p, x, heads):
    batch, length, width = x.shape
    q, k, v = jnp.split(rms_norm(x, p["norm1"]) @ p["qkv"], 3, -1)
    q, k, v = (
        t.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3) for t in (q, k, v)
    )
    x = x + causal_attention(q, k, v).transpose(0, 2, 1, 3).reshape(batch, length, width) @ p["out"]
    return (
        x
        + jax.nn.gelu(rms_norm(x, p["norm2"]) @ p["up"] + p["bias_up"]) @ p["down"]
        + p["bias_down"]
    )


def gpt_loss(params, tokens, heads=4):
    x = params["embed"][tokens] + params["position"][: tokens.shape[1]]
    if isinstance(params["layers"], dict):
        x, _ = lax.scan(lambda x, p: (gpt_layer(p, x, heads), None), x, params["layers"])
    else:
        for p in params["layers"]:
            x = gpt_layer(p, x, heads)
    logits = rms_norm(x, params["norm"])[:, :-1] @ params["embed"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1)
    return -picked.mean()


def adam(loss):
    """A training step (state, batch) -> (state, loss); `adam_state` makes the state."""

    def step(state, batch):
        params, m, v, t = state
        value, g = jax.value_and_grad(loss)(params, batch)
        t = t + 1
        m = jax.tree_util.tree_map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree_util.tree_map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        params = jax.tree_util.tree_map(
            lambda p, m, v: p - 1e-3 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-8),
            params,
            m,
            v,
        )
        return (params, m, v, t), value

    return step


def adam_state(params):
    zeros = jax.tree_util.tree_map(np.zeros_like, params)
    return params, zeros, zeros, np.float32(0)


def in_bfloat16(loss):
    """The loss computed in bfloat16 of parameters and inputs that are stored in float32."""

    def cast(tree):
        return jax.tree_util.tree_map(
            lambda x: x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x, tree
        )

    return lambda params, batch: loss(cast(params), cast(batch)).astype(jnp.float32)


def gpt_step(layers, width, vocabulary, length, batch, scanned, loss=gpt_loss):
    """A transformer's training step and its arguments as NumPy arrays."""
    params = gpt_params(layers, width, vocabulary, length, scanned)
    tokens = np.random.default_rng(1).integers(0, vocabulary, (batch, length)).astype(np.int32)
    return adam(loss), (adam_state(params), tokens)


# ---- a small ResNet, channels last


def conv(x, w, stride=1):
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def group_norm(x):
    n, h, w, c = x.shape
    g = x.reshape(n, h, w, 8, c // 8)
    mean, var = g.mean((1, 2, 4), keepdims=True), g.var((1, 2, 4), keepdims=True)
    return ((g - mean) / jnp.sqrt(var + 1e-5)).reshape(n, h, w, c)


def resnet_params(widths=(16, 32, 64)):
    blocks, before = [], widths[0]
    for width in widths:
        blocks.append(
            {
                "first": (3, 3, before, width),
                "second": (3, 3, width, width),
                "skip": (1, 1, before, width),
            }
        )
        before = width
    return arrays({"stem": (3, 3, 3, widths[0]), "blocks": blocks, "head": (before, 10)}, 0.1)


def resnet_loss(params, batch):
    images, labels = batch
    x = conv(images, params["stem"])
    for i, p in enumerate(params["blocks"]):
        stride = 2 if i else 1
        y = conv(jax.nn.relu(group_norm(x)), p["first"], stride)
        x = conv(x, p["skip"], stride) + conv(jax.nn.relu(group_norm(y)), p["second"])
    logits = jax.nn.log_softmax(x.mean((1, 2)) @ params["head"])
    return -jnp.take_along_axis(logits, labels[:, None], 1).mean()


# ---- an RNN by scan


def rnn_params(width, inputs):
    return arrays(
        {
            "x": (inputs, 4 * width),
            "h": (width, 4 * width),
            "b": (4 * width,),
            "out": (width, inputs),
        }
    )


def lstm_loss(params, xs):
    """Predict the next of `xs`, which is (time, batch, inputs)."""
    width = params["h"].shape[0]

    def cell(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ params["x"] + h @ params["h"] + params["b"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h @ params["out"]

    zero = jnp.zeros((xs.shape[1], width))
    _, predicted = lax.scan(cell, (zero, zero), xs)
    return jnp.mean((predicted[:-1] - xs[1:]) ** 2)
