"""Models of sequences."""

import numpy as np

import weft.numpy as wnp
from tests.models.layers import (
    Draws,
    Model,
    adam_state,
    cross_entropy,
    dense,
    layer_norm,
    mlp,
    sgd,
    train_step,
    transformer_block,
    zeros_like,
)
from weft import lax, nn

# ---- recurrent networks


def recurrent_example(gates):
    def example(size, seed):
        d = Draws(size, seed)
        length, n, batch = d.pick(6, 64), d.pick(8, 24), d.pick(3, 16)
        params = {
            "input": d.dense(5, gates * n), "hidden": d.dense(n, gates * n), "head": d.dense(n, 5),
        }
        return params, adam_state(params), d.normal(batch, length, 5)

    return example


def lstm_loss(params, x):
    n = params["head"]["w"].shape[0]

    def cell(carry, x):
        h, c = carry
        i, f, g, o = wnp.split(dense(params["input"], x) + dense(params["hidden"], h), 4, axis=-1)
        c = nn.sigmoid(f + 1) * c + nn.sigmoid(i) * wnp.tanh(g)
        h = nn.sigmoid(o) * wnp.tanh(c)
        return (h, c), h

    start = wnp.zeros((x.shape[0], n), x.dtype)
    _, h = lax.scan(cell, (start, start), x.transpose(1, 0, 2))
    predicted = dense(params["head"], h)[:-1]
    return ((predicted - x.transpose(1, 0, 2)[1:]) ** 2).mean()


def gru_loss(params, x):
    n = params["head"]["w"].shape[0]

    def cell(h, x):
        from_x, from_h = dense(params["input"], x), dense(params["hidden"], h)
        reset = nn.sigmoid(from_x[:, :n] + from_h[:, :n])
        update = nn.sigmoid(from_x[:, n:2 * n] + from_h[:, n:2 * n])
        new = wnp.tanh(from_x[:, 2 * n:] + reset * from_h[:, 2 * n:])
        h = (1 - update) * new + update * h
        return h, dense(params["head"], h)

    start = wnp.zeros((x.shape[0], n), x.dtype)
    _, predicted = lax.scan(cell, start, wnp.swapaxes(x, 0, 1))
    return wnp.abs(wnp.swapaxes(predicted, 0, 1)[:, :-1] - x[:, 1:]).mean()


# ---- transformers


def encoder_example(size, seed):
    d = Draws(size, seed)
    length, n = d.pick(6, 64), d.pick(8, 32)
    params = {
        "embedding": d.normal(11, n), "position": d.normal(length, n, scale=0.1),
        "blocks": [d.block(n) for _ in range(2)], "norm": d.norm(n),
    }
    tokens, is_masked = d.integers(11, 3, length), d.uniform(3, length) < 0.3
    lengths = np.int32([length, length - 1, length // 2])
    return params, adam_state(params), tokens, is_masked, lengths


def encoder_loss(params, tokens, is_masked, lengths):
    """Masked language modeling with tied embeddings and sequences of several lengths."""
    is_valid = wnp.arange(tokens.shape[1]) < lengths[:, None]
    x = params["embedding"][wnp.where(is_masked, 0, tokens)] + params["position"]
    for block in params["blocks"]:
        x = transformer_block(block, x, 2, is_valid[:, None, None, :])
    logits = layer_norm(params["norm"], x) @ params["embedding"].T
    logp = nn.log_softmax(logits)
    picked = (nn.one_hot(tokens, logits.shape[-1], dtype=logp.dtype) * logp).sum(-1)
    weights = wnp.where(is_masked & is_valid, 1.0, 0.1)
    return -(picked * weights).sum() / weights.sum()


def decoder_example(size, seed):
    d = Draws(size, seed)
    length, n = d.pick(5, 64), d.pick(8, 16)
    params = {
        "embedding": d.normal(9, n), "position": d.normal(length, n, scale=0.1),
        "block": d.block(n), "head": d.dense(n, 9),
    }
    return params, zeros_like(params), d.integers(9, 2, length + 1)


def decoder_loss(params, tokens):
    """Decode token by token with a cache of keys and values of 2 heads."""
    p, (batch, length) = params["block"], (tokens.shape[0], tokens.shape[1] - 1)
    n = params["position"].shape[1]
    cache = wnp.zeros((batch, length, 2, n // 2), params["position"].dtype)

    def decode(caches, inputs):
        token, at = inputs
        x = params["embedding"][token] + params["position"][at]
        qkv = dense(p["qkv"], layer_norm(p["norm1"], x)).reshape(batch, 1, 3, 2, n // 2)
        keys = lax.dynamic_update_slice_in_dim(caches[0], qkv[:, :, 1], at, axis=1)
        values = lax.dynamic_update_slice_in_dim(caches[1], qkv[:, :, 2], at, axis=1)
        scores = wnp.einsum("bqhd,bkhd->bhqk", qkv[:, :, 0], keys) / (n // 2) ** 0.5
        weights = nn.softmax(wnp.where(wnp.arange(length) <= at, scores, -wnp.inf))
        mixed = wnp.einsum("bhqk,bkhd->bqhd", weights, values).reshape(batch, n)
        x = x + dense(p["out"], mixed)
        x = x + mlp(p["mlp"], layer_norm(p["norm2"], x), nn.gelu)
        return (keys, values), dense(params["head"], x)

    _, logits = lax.scan(decode, (cache, cache), (tokens[:, :-1].T, wnp.arange(length)))
    return cross_entropy(logits, tokens[:, 1:].T)


# ---- mixture of experts


def moe_example(size, seed):
    d = Draws(size, seed)
    count, n, experts = d.pick(12, 128), d.pick(6, 32), 4
    params = {
        "gate": d.dense(n, experts), "head": d.dense(n, 3),
        "up": d.normal(experts, n, 2 * n, scale=n**-0.5),
        "down": d.normal(experts, 2 * n, n, scale=(2 * n) ** -0.5),
    }
    return params, adam_state(params), d.normal(count, n), d.integers(3, count)


def moe_loss(params, x, labels):
    """Send each token to 2 of 4 experts of limited capacity; balance their load."""
    count, experts = x.shape[0], params["up"].shape[0]
    capacity = count * 2 // experts
    gates = nn.softmax(dense(params["gate"], x))
    weights, chosen = lax.top_k(gates, 2)
    weights = weights / weights.sum(-1, keepdims=True)
    hot = nn.one_hot(chosen.T.reshape(-1), experts, dtype=x.dtype)
    place = (wnp.cumsum(hot, axis=0) - 1) * hot
    slots = nn.one_hot(place.sum(-1).astype(wnp.int32), capacity, dtype=x.dtype)
    sent = (hot[:, :, None] * slots[:, None, :]).reshape(2, count, experts, capacity)
    hidden = wnp.einsum("ktec,tn->ecn", sent, x)
    hidden = nn.gelu(wnp.einsum("ecn,enm->ecm", hidden, params["up"]))
    hidden = wnp.einsum("ecm,emn->ecn", hidden, params["down"])
    y = x + wnp.einsum("ktec,tk,ecn->tn", sent, weights, hidden)
    balance = experts * (gates.mean(0) * hot.mean(0)).sum()
    return cross_entropy(dense(params["head"], y), labels) + 0.1 * balance


# ---- connectionist temporal classification and conditional random field


def ctc_example(size, seed):
    d = Draws(size, seed)
    length, count = d.pick(10, 64), d.pick(3, 12)
    params = d.mlp(6, d.pick(8, 32), 7)
    return params, adam_state(params), d.normal(4, length, 6), d.integers(6, 4, count) + 1


def ctc_loss(params, x, labels):
    logp = nn.log_softmax(mlp(params, x))
    batch, count = labels.shape
    extended = wnp.zeros((batch, 2 * count + 1), wnp.int32).at[:, 1::2].set(labels)
    repeated = wnp.pad(extended[:, 2:] == extended[:, :-2], ((0, 0), (2, 0)), constant_values=True)
    emitted = wnp.take_along_axis(logp, extended[:, None, :], axis=2)
    start = wnp.where(wnp.arange(2 * count + 1) < 2, emitted[:, 0], -1e9)

    def advance(alpha, emitted):
        before = wnp.pad(alpha, ((0, 0), (1, 0)), constant_values=-1e9)[:, :-1]
        jumped = wnp.pad(alpha, ((0, 0), (2, 0)), constant_values=-1e9)[:, :-2]
        jumped = wnp.where(repeated, -1e9, jumped)
        merged = nn.logsumexp(wnp.stack([alpha, before, jumped]), axis=0)
        return merged + emitted, None

    alpha, _ = lax.scan(advance, start, emitted[:, 1:].transpose(1, 0, 2))
    return -wnp.logaddexp(alpha[:, -1], alpha[:, -2]).mean()


def crf_example(size, seed):
    d = Draws(size, seed)
    length, tags = d.pick(6, 64), d.pick(4, 12)
    params = {"emit": d.dense(5, tags), "transition": d.normal(tags, tags)}
    batch = d.pick(3, 16)
    x, labels = d.normal(batch, length, 5, scale=3), d.integers(tags, batch, length)
    return params, zeros_like(params), x, labels


def crf_loss(params, x, tags):
    emitted, transition = dense(params["emit"], x), params["transition"]

    def advance(alpha, emitted):
        return nn.logsumexp(alpha[:, :, None] + transition, axis=1) + emitted, None

    alpha, _ = lax.scan(advance, emitted[:, 0], emitted[:, 1:].transpose(1, 0, 2))
    path = wnp.take_along_axis(emitted, tags[..., None], axis=2)[..., 0].sum(1)
    path = path + transition[tags[:, :-1], tags[:, 1:]].sum(1)
    return (nn.logsumexp(alpha, axis=-1) - path).mean()


MODELS = [
    Model("lstm", recurrent_example(4), train_step(lstm_loss)),
    Model("gru", recurrent_example(3), train_step(gru_loss)),
    Model("transformer_encoder", encoder_example, train_step(encoder_loss)),
    Model("transformer_decoder", decoder_example, train_step(decoder_loss, sgd)),
    Model("mixture_of_experts", moe_example, train_step(moe_loss)),
    Model("ctc", ctc_example, train_step(ctc_loss)),
    Model("crf", crf_example, train_step(crf_loss, sgd)),
]
