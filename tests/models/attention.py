"""Transformers: an encoder, a decoder with a KV cache, a mixture of experts."""

from __future__ import annotations

import weft
import weft.numpy as jnp
from tests.models.layers import (
    attend,
    block,
    cross_entropy,
    dense,
    init_block,
    init_dense,
    init_norm,
    layer_norm,
    merge_heads,
    split_heads,
)
from tests.models.optimizers import adam
from tests.models.record import Model, Size, sizes
from weft import lax, nn, random

TOKENS = 11
HEADS = 2


def _init_transformer(key, s):
    keys = random.split(key, 3 + s.layers)
    return {
        "embed": random.normal(keys[0], (TOKENS, s.width)) * 0.3,
        "position": random.normal(keys[1], (s.length, s.width)) * 0.1,
        "blocks": [init_block(k, s.width, 4 * s.width) for k in keys[3:]],
        "norm": init_norm(s.width),
        "head": init_dense(keys[2], s.width, TOKENS),
    }


# ---- encoder: masked tokens of padded sequences


def _encoder_batch(key, s):
    keys = random.split(key, 3)
    return {
        "tokens": random.randint(keys[0], (s.batch, s.length), 1, TOKENS),
        "hidden": random.bernoulli(keys[1], 0.3, (s.batch, s.length)),
        "length": random.randint(keys[2], (s.batch,), s.length // 2, s.length + 1),
    }


def _encoder_loss(params, batch):
    tokens = batch["tokens"]
    valid = jnp.arange(tokens.shape[1]) < batch["length"][:, None]
    shown = jnp.where(batch["hidden"], 0, tokens)
    x = params["embed"][shown] + params["position"]
    for layer in params["blocks"]:
        x = weft.checkpoint(lambda p, x: block(p, x, HEADS, valid[:, None, None, :]))(layer, x)
    logits = dense(params["head"], layer_norm(params["norm"], x))
    weight = (batch["hidden"] & valid).astype(logits.dtype)
    per_example = (cross_entropy(logits, tokens) * weight).sum(1) / (weight.sum(1) + 1.0)
    return per_example.mean()


# ---- decoder: the prompt fills the cache, the other tokens come one by one


def _decoder_batch(key, s):
    return {"tokens": random.randint(key, (s.batch, s.length), 0, TOKENS)}


def _rotate(x, positions):
    """Return queries or keys with rotary position embeddings."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def _decoder_block(params, x, cache, start):
    """Return the block's values for positions from `start`, and the new cache."""
    qkv = dense(params["qkv"], layer_norm(params["norm1"], x))
    q, k, v = (split_heads(y, HEADS) for y in jnp.split(qkv, 3, axis=-1))
    positions = start + jnp.arange(x.shape[1])
    q, k = _rotate(q, positions), _rotate(k, positions)
    keys = lax.dynamic_update_slice(cache["k"], k, (0, 0, start, 0))
    values = lax.dynamic_update_slice(cache["v"], v, (0, 0, start, 0))
    mask = jnp.arange(keys.shape[2]) <= positions[:, None]
    x = x + dense(params["out"], merge_heads(attend(q, keys, values, mask)))
    hidden = nn.gelu(dense(params["up"], layer_norm(params["norm2"], x)))
    return x + dense(params["down"], hidden), {"k": keys, "v": values}


def _decode(params, tokens, caches, start):
    """Return the logits of the tokens at positions from `start`, and the new caches."""
    x = params["embed"][tokens]
    new = []
    for layer, cache in zip(params["blocks"], caches):
        x, cache = _decoder_block(layer, x, cache, start)
        new.append(cache)
    return layer_norm(params["norm"], x) @ params["embed"].T, new


def _decoder_loss(params, batch):
    tokens = batch["tokens"]
    count, length = tokens.shape
    width = params["embed"].shape[1]
    empty = jnp.zeros((count, HEADS, length, width // HEADS))
    caches = [{"k": empty, "v": empty} for _ in params["blocks"]]
    prompt = length // 2
    first, caches = _decode(params, tokens[:, :prompt], caches, 0)

    def step(carry, token):
        caches, position = carry
        logits, caches = _decode(params, token[:, None], caches, position)
        return (caches, position + 1), logits[:, 0]

    targets = tokens[:, prompt:-1].T
    _, later = lax.scan(step, (caches, jnp.int32(prompt)), targets)
    logits = jnp.concatenate([first, later.transpose(1, 0, 2)], axis=1)
    return cross_entropy(logits, tokens[:, 1:]).mean()


# ---- mixture of experts: two experts for each token, with limited capacity

EXPERTS = 4


def _init_experts(key, s):
    keys = random.split(key, 4)
    scale = 1 / jnp.sqrt(s.width)
    return {
        "embed": random.normal(keys[0], (TOKENS, s.width)),
        "route": random.normal(keys[1], (s.width, EXPERTS)) * scale,
        "up": random.normal(keys[2], (EXPERTS, s.width, 2 * s.width)) * scale,
        "down": random.normal(keys[3], (EXPERTS, 2 * s.width, s.width)) * scale,
    }


def _experts(params, x):
    """Return the combined experts of (tokens, width), and the loss that balances their load."""
    count = x.shape[0]
    capacity = count // 2 + 1
    probs = nn.softmax(x @ params["route"])
    weights, chosen = lax.top_k(probs, 2)
    weights = weights / weights.sum(-1, keepdims=True)
    picks = nn.one_hot(chosen.T.reshape(-1), EXPERTS, dtype=jnp.int32)
    place = jnp.sum((jnp.cumsum(picks, axis=0) - 1) * picks, axis=-1)
    slots = picks[:, :, None] * nn.one_hot(place, capacity)[:, None, :]
    slots = slots.reshape(2, count, EXPERTS, capacity)
    inputs = jnp.einsum("ktec,td->ecd", slots, x)
    hidden = nn.silu(jnp.einsum("ecd,edh->ech", inputs, params["up"]))
    outputs = jnp.einsum("ech,ehd->ecd", hidden, params["down"])
    combined = jnp.einsum("ktec,tk,ecd->td", slots, weights, outputs)
    share = picks.reshape(2, count, EXPERTS)[0].mean(0)
    return combined, EXPERTS * jnp.sum(share * probs.mean(0))


def _experts_loss(params, batch):
    tokens = batch["tokens"]
    x = params["embed"][tokens[:, :-1]]
    combined, balance = weft.vmap(lambda x: _experts(params, x))(x)
    logits = (x + combined) @ params["embed"].T
    return cross_entropy(logits, tokens[:, 1:]).mean() + 0.01 * balance.mean()


_sizes = sizes(
    Size(batch=8, length=6, width=8, layers=1), Size(batch=8, length=64, width=32, layers=2)
)

MODELS = [
    Model(
        "transformer_encoder",
        _init_transformer,
        _encoder_batch,
        _encoder_loss,
        _sizes,
        adam(decay=0.01),
    ),
    Model("transformer_decoder", _init_transformer, _decoder_batch, _decoder_loss, _sizes, adam()),
    Model("mixture_of_experts", _init_experts, _decoder_batch, _experts_loss, _sizes, adam()),
]
