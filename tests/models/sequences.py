"""Models of sequences: LSTM, GRU, CTC, conditional random field."""

from __future__ import annotations

import weft
import weft.numpy as jnp
from tests.models.layers import cross_entropy, dense, init_dense
from tests.models.optimizers import adam, clip_by_global_norm, sgd
from tests.models.record import Model, Size, sizes
from weft import lax, nn, random

TOKENS = 7
NEVER = -1e9  # log-probability of the impossible


def _tokens(key, s):
    """Return token sequences and their lengths."""
    token_key, length_key = random.split(key)
    return {
        "tokens": random.randint(token_key, (s.batch, s.length), 0, TOKENS),
        "length": random.randint(length_key, (s.batch,), s.length // 2, s.length + 1),
    }


# ---- LSTM: the next token, under the mask of the lengths


def _init_lstm(key, s):
    keys = random.split(key, 3)
    return {
        "embed": random.normal(keys[0], (TOKENS, s.width)),
        "gates": init_dense(keys[1], 2 * s.width, 4 * s.width),
        "head": init_dense(keys[2], s.width, TOKENS),
    }


def _lstm_outputs(params, x):
    """Return the hidden states of (length, batch, width)."""

    def cell(carry, x_t):
        h, c = carry
        gates = dense(params["gates"], jnp.concatenate([x_t, h], axis=-1))
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = nn.sigmoid(f + 1.0) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros(x.shape[1:])
    return lax.scan(cell, (zeros, zeros), x)[1]


def _lstm_loss(params, batch):
    tokens = batch["tokens"]
    x = params["embed"][tokens].transpose(1, 0, 2)
    outputs = _lstm_outputs(params, x)
    smoothness = jnp.mean((outputs[1:] - outputs[:-1]) ** 2)
    prediction = jnp.mean((outputs[:-1] - x[1:]) ** 2)  # of the next embedding
    logits = dense(params["head"], outputs)[:-1].transpose(1, 0, 2)
    mask = jnp.arange(1, tokens.shape[1]) < batch["length"][:, None]
    losses = cross_entropy(logits, tokens[:, 1:])
    return jnp.sum(losses * mask, axis=1).mean() / tokens.shape[1] + 0.1 * (smoothness + prediction)


def _lstm_update(state, batch):
    """Clip the gradients before Adam."""
    params, optimizer_state = state
    loss, grads = weft.value_and_grad(_lstm_loss)(params, batch)
    grads = clip_by_global_norm(grads, 0.5)
    return _lstm_adam.update(grads, optimizer_state, params), loss


_lstm_adam = adam()


# ---- GRU: one example at a time under vmap, in both directions


def _init_gru(key, s):
    keys = random.split(key, 6)
    directions = [
        {
            "gates": init_dense(a, 2 * s.width, 2 * s.width),
            "new": init_dense(b, 2 * s.width, s.width),
        }
        for a, b in zip(keys[:2], keys[2:4])
    ]
    return {
        "embed": random.normal(keys[4], (TOKENS, s.width)),
        "directions": directions,
        "head": init_dense(keys[5], 2 * s.width, 3),
    }


def _gru_state(params, x, length, reverse):
    """Return the last hidden state of one example; steps past its length keep the state."""

    def cell(h, step):
        x_t, t = step
        gates = nn.sigmoid(dense(params["gates"], jnp.concatenate([x_t, h])))
        update, reset = jnp.split(gates, 2)
        new = jnp.tanh(dense(params["new"], jnp.concatenate([x_t, reset * h])))
        h = jnp.where(t < length, (1 - update) * new + update * h, h)
        return h, None

    steps = x, jnp.arange(x.shape[0])
    return lax.scan(cell, jnp.zeros(x.shape[1]), steps, reverse=reverse)[0]


def _gru_loss(params, batch):
    def loss_of_one(tokens, length, label):
        x = params["embed"][tokens]
        forward, backward = params["directions"]
        state = jnp.concatenate(
            [_gru_state(forward, x, length, False), _gru_state(backward, x, length, True)]
        )
        return cross_entropy(dense(params["head"], state), label)

    return weft.vmap(loss_of_one)(batch["tokens"], batch["length"], batch["label"]).mean()


def _gru_batch(key, s):
    token_key, label_key = random.split(key)
    label = random.randint(label_key, (s.batch,), 0, 3)
    return {**_tokens(token_key, s), "label": label}


# ---- connectionist temporal classification


def _ctc_batch(key, s):
    keys = random.split(key, 3)
    labels = s.length // 4
    return {
        "frames": random.normal(keys[0], (s.batch, s.length, s.width)),
        "label": random.randint(keys[1], (s.batch, labels), 1, TOKENS),
        "label_length": random.randint(keys[2], (s.batch,), 1, labels + 1),
    }


def _init_ctc(key, s):
    k1, k2 = random.split(key)
    return {"filter": init_dense(k1, 3 * s.width, s.width), "head": init_dense(k2, s.width, TOKENS)}


def _ctc_loss_of_one(log_probs, label, label_length):
    """Return the negative log-likelihood of a label; token 0 is the blank."""
    states = 2 * label.shape[0] + 1
    extended = jnp.zeros(states, jnp.int32).at[1::2].set(label)
    can_skip = jnp.zeros(states, bool).at[3::2].set(label[1:] != label[:-1])
    log_alpha = jnp.full(states, NEVER).at[:2].set(log_probs[0, extended[:2]])

    def step(log_alpha, frame):
        one = jnp.pad(log_alpha, (1, 0), constant_values=NEVER)[:-1]
        two = jnp.where(can_skip, jnp.pad(log_alpha, (2, 0), constant_values=NEVER)[:-2], NEVER)
        reached = jnp.logaddexp(jnp.logaddexp(log_alpha, one), two)
        return reached + frame[extended], None

    log_alpha, _ = lax.scan(step, log_alpha, log_probs[1:])
    last = 2 * label_length
    return -jnp.logaddexp(log_alpha[last], log_alpha[last - 1])


def _ctc_loss(params, batch):
    padded = jnp.pad(batch["frames"], ((0, 0), (1, 1), (0, 0)))
    windows = jnp.concatenate([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], axis=-1)
    logits = dense(params["head"], nn.relu(dense(params["filter"], windows)))
    losses = weft.vmap(_ctc_loss_of_one)(
        nn.log_softmax(logits), batch["label"], batch["label_length"]
    )
    return losses.mean() / padded.shape[1]


# ---- conditional random field


def _init_crf(key, s):
    keys = random.split(key, 3)
    return {
        "emit": init_dense(keys[0], s.width, s.tags),
        "transition": random.normal(keys[1], (s.tags, s.tags)),
        "start": random.normal(keys[2], (s.tags,)),
    }


def _crf_batch(key, s):
    keys = random.split(key, 3)
    return {
        "frames": random.normal(keys[0], (s.batch, s.length, s.width)),
        "tags": jnp.cumsum(random.randint(keys[1], (s.batch, s.length), 0, 2), 1) % s.tags,
        "length": random.randint(keys[2], (s.batch,), s.length // 2, s.length + 1),
    }


def _allowed(transition):
    """Forbid the moves from a tag to the one before it."""
    tags = jnp.arange(transition.shape[0])
    return jnp.where(tags[:, None] == tags + 1, -1e4, transition)


def _crf_log_normalizer(params, scores, length):
    """Return the log of the sum over all tag sequences of a batch, by the forward algorithm."""
    transition = _allowed(params["transition"])

    def step(log_alpha, inputs):
        score, t = inputs
        paths = log_alpha[:, :, None] + transition
        reached = nn.logsumexp(paths, axis=1) + score
        return jnp.where((t < length)[:, None], reached, log_alpha), None

    first = params["start"] + scores[:, 0]
    steps = scores[:, 1:].transpose(1, 0, 2), jnp.arange(1, scores.shape[1])
    log_alpha, _ = lax.scan(step, first, steps)
    return nn.logsumexp(log_alpha, axis=-1)


def _crf_loss(params, batch):
    tags, length = batch["tags"], batch["length"]
    scores = dense(params["emit"], batch["frames"])
    mask = jnp.arange(tags.shape[1]) < length[:, None]
    emitted = jnp.take_along_axis(scores, tags[..., None], axis=-1)[..., 0]
    moves = _allowed(params["transition"])[tags[:, :-1], tags[:, 1:]]
    score = jnp.sum(emitted * mask, axis=1) + jnp.sum(moves * mask[:, 1:], axis=1)
    score = score + params["start"][tags[:, 0]]
    return jnp.mean(_crf_log_normalizer(params, scores, length) - score) / tags.shape[1]


_sizes = sizes(Size(batch=8, length=8, width=6), Size(batch=16, length=64, width=32))
_crf_sizes = sizes(
    Size(batch=8, length=6, width=5, tags=4), Size(batch=32, length=64, width=16, tags=19)
)

MODELS = [
    Model("lstm", _init_lstm, _tokens, _lstm_loss, _sizes, _lstm_adam, _lstm_update),
    Model("gru", _init_gru, _gru_batch, _gru_loss, _sizes, sgd(0.1, momentum=0.9)),
    Model("ctc", _init_ctc, _ctc_batch, _ctc_loss, _sizes, sgd(0.1)),
    Model("crf", _init_crf, _crf_batch, _crf_loss, _crf_sizes, adam()),
]
