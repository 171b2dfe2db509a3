"""A GPT in plain jax with optax: layers in a scan with rematerialization, bfloat16 compute, clipping and a warmup schedule.

python examples/ecosystem/training/optax_gpt.py [STEPS]
"""

import dataclasses
import functools
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from einops import rearrange


@dataclasses.dataclass(frozen=True)
class Config:
    vocabulary: int = 2048
    length: int = 128
    width: int = 256
    heads: int = 8
    layers: int = 4


class State(NamedTuple):
    params: Any
    opt_state: Any
    step: Any


def init_params(config, key):
    def matrix(key, *shape):
        return 0.02 * jax.random.normal(key, shape)

    keys = jax.random.split(key, 6)
    n, d = config.layers, config.width
    return {
        "embed": matrix(keys[0], config.vocabulary, d),
        "position": matrix(keys[1], config.length, d),
        "blocks": {
            "norm1": jnp.ones((n, d)),
            "qkv": matrix(keys[2], n, d, 3 * d),
            "proj": matrix(keys[3], n, d, d),
            "norm2": jnp.ones((n, d)),
            "up": matrix(keys[4], n, d, 4 * d),
            "down": matrix(keys[5], n, 4 * d, d),
        },
        "norm": jnp.ones(d),
    }


def rms_norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * scale


def block(config, x, w):
    w = jax.tree.map(lambda p: p.astype(x.dtype), w)
    qkv = rms_norm(x, w["norm1"]) @ w["qkv"]
    q, k, v = rearrange(qkv, "b t (c h d) -> c b h t d", c=3, h=config.heads)
    scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / q.shape[-1] ** 0.5
    causal = jnp.tril(jnp.ones((config.length, config.length), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9).astype(jnp.float32), axis=-1)
    mixed = jnp.einsum("bhts,bhsd->bhtd", weights.astype(x.dtype), v)
    x = x + rearrange(mixed, "b h t d -> b t (h d)") @ w["proj"]
    return x + jax.nn.gelu(rms_norm(x, w["norm2"]) @ w["up"]) @ w["down"]


def loss_fn(params, config, tokens):
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = (params["embed"][inputs] + params["position"]).astype(jnp.bfloat16)

    @jax.checkpoint
    def body(x, w):
        return block(config, x, w), None

    x, _ = jax.lax.scan(body, x, params["blocks"])
    x = rms_norm(x.astype(jnp.float32), params["norm"])
    logits = x @ params["embed"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def make_optimizer():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-4, 10, 100)
    mask = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)  # noqa: E731
    return optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1, mask=mask)
    )


@functools.partial(jax.jit, static_argnames="config", donate_argnames="state")
def train_step(state, tokens, *, config):
    loss, grads = jax.value_and_grad(loss_fn)(state.params, config, tokens)
    updates, opt_state = make_optimizer().update(grads, state.opt_state, state.params)
    metrics = {"loss": loss, "norm": optax.global_norm(grads)}
    return State(optax.apply_updates(state.params, updates), opt_state, state.step + 1), metrics


def main(steps):
    config = Config()
    params = init_params(config, jax.random.key(0))
    state = State(params, make_optimizer().init(params), 0)
    key = jax.random.key(1)
    for step in range(steps):
        tokens = jax.random.randint(
            jax.random.fold_in(key, step), (16, config.length + 1), 0, config.vocabulary
        )
        state, metrics = train_step(state, tokens, config=config)
        print(f"step {state.step - 1} loss {metrics['loss']:.4f} norm {metrics['norm']:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
