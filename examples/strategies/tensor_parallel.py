"""Tensor parallel: a transformer layer split over one mesh axis, the batch over another.

Attention is split by heads. In each pair of products the first weight is split by columns and the second by rows, so that the values
between them stay on their device; attention and the MLP each end with one sum over 'model'. Only the weights and the batch are sharded
here. The compiler finds the rest, forward and backward.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from strategy import Case, mesh_of, normal, run

BATCH, LENGTH, WIDTH, HEADS, HIDDEN = 8, 16, 64, 8, 256

LAYOUT = {
    "query": P(None, "model"), "key": P(None, "model"), "value": P(None, "model"), "out": P("model"),
    "up": P(None, "model"), "down": P("model"),
}  # fmt: skip


def init():
    """The weights of the layer; heads are a dim of their own."""
    head = WIDTH // HEADS
    shapes = {"query": (WIDTH, HEADS, head), "key": (WIDTH, HEADS, head), "value": (WIDTH, HEADS, head),
              "out": (HEADS, head, WIDTH), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}  # fmt: skip
    return {
        name: normal(i, *shape, scale=WIDTH**-0.5) for i, (name, shape) in enumerate(shapes.items())
    }


def layer(params, x):
    """Attention, then an MLP, each with a residual connection."""
    query, key, value = (
        jnp.einsum("btd,dhk->bthk", x, params[name]) for name in ("query", "key", "value")
    )
    scores = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", query, key) * key.shape[-1] ** -0.5)
    x = x + jnp.einsum("bthk,hkd->btd", jnp.einsum("bhts,bshk->bthk", scores, value), params["out"])
    return x + jax.nn.gelu(x @ params["up"]) @ params["down"]


def loss(params, inputs, targets):
    """Mean squared error of the layer's outputs."""
    return jnp.mean((layer(params, inputs) - targets) ** 2)


step = jax.value_and_grad(loss)


def cases():
    mesh = mesh_of(data=2, model=4)
    params = jax.device_put(
        init(), {name: NamedSharding(mesh, spec) for name, spec in LAYOUT.items()}
    )
    batch = jax.device_put(
        (normal(7, BATCH, LENGTH, WIDTH), normal(8, BATCH, LENGTH, WIDTH)),
        NamedSharding(mesh, P("data")),
    )
    return [Case("tensor_parallel", jax.jit(step), (params, *batch), step)]


if __name__ == "__main__":
    run(cases)
