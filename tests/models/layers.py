"""Layers that several models share: dense, layer norm, attention, cross entropy."""

from __future__ import annotations

import weft.numpy as jnp
from weft import nn, random


def init_dense(key, n_in: int, n_out: int) -> dict:
    weights = random.normal(key, (n_in, n_out)) / jnp.sqrt(n_in)
    return {"w": weights, "b": jnp.zeros(n_out)}


def dense(params, x):
    return x @ params["w"] + params["b"]


def init_mlp(key, widths) -> list[dict]:
    keys = random.split(key, len(widths) - 1)
    return [init_dense(k, n, m) for k, n, m in zip(keys, widths[:-1], widths[1:])]


def mlp(layers, x, activation=jnp.tanh):
    for layer in layers[:-1]:
        x = activation(dense(layer, x))
    return dense(layers[-1], x)


def init_norm(width: int) -> dict:
    return {"scale": jnp.ones(width), "shift": jnp.zeros(width)}


def layer_norm(params, x):
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * params["scale"] + params["shift"]


def cross_entropy(logits, labels):
    """Return the negative log-likelihood of each label."""
    log_probs = nn.log_softmax(logits)
    return -jnp.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]


def init_block(key, width: int, hidden: int) -> dict:
    """Return the parameters of a transformer block."""
    keys = random.split(key, 4)
    return {
        "norm1": init_norm(width),
        "qkv": init_dense(keys[0], width, 3 * width),
        "out": init_dense(keys[1], width, width),
        "norm2": init_norm(width),
        "up": init_dense(keys[2], width, hidden),
        "down": init_dense(keys[3], hidden, width),
    }


def split_heads(x, heads: int):
    """Return (batch, heads, length, head width) of (batch, length, width)."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def merge_heads(x):
    batch, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)


def attend(q, k, v, mask=None):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", nn.softmax(scores, axis=-1), v)


def block(params, x, heads: int, mask=None):
    """Apply a transformer block with layer norms before attention and MLP."""
    q, k, v = jnp.split(dense(params["qkv"], layer_norm(params["norm1"], x)), 3, axis=-1)
    attended = attend(split_heads(q, heads), split_heads(k, heads), split_heads(v, heads), mask)
    x = x + dense(params["out"], merge_heads(attended))
    hidden = nn.gelu(dense(params["up"], layer_norm(params["norm2"], x)))
    return x + dense(params["down"], hidden)
