"""Sequence parallel: attention over a sequence that is sharded over all devices.

Queries stay in place. Keys and values pass round the ring of devices, one hop at a time, and every device updates an online softmax:
the largest score so far, the sum of exponentials, and the weighted sum of values. A device holds at most one block of keys and values
and one block of scores, forward and backward (`jax.checkpoint`).
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from strategy import DEVICES, Case, mesh_of, normal, run

BATCH, LENGTH, HEADS, DEPTH = 2, 128, 4, 16
BLOCK = LENGTH // DEVICES
RING = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]


def attention(query, key, value):
    """Causal attention on one device."""
    scores = jnp.einsum("bthk,bshk->bhts", query, key) * DEPTH**-0.5
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -jnp.inf)
    return jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores), value)


@jax.checkpoint
def add_block(state, query, key, value, query_start, key_start):
    """Update an online softmax with one block of keys and values."""
    largest, total, weighted = state
    scores = jnp.einsum("bthk,bshk->bhts", query, key) * DEPTH**-0.5
    positions = query_start + jnp.arange(BLOCK)[:, None], key_start + jnp.arange(BLOCK)[None, :]
    scores = jnp.where(positions[0] >= positions[1], scores, -1e30)
    new_largest = jnp.maximum(largest, lax.stop_gradient(scores).max(-1, keepdims=True))
    weights, faded = jnp.exp(scores - new_largest), jnp.exp(largest - new_largest)
    total = faded * total + weights.sum(-1, keepdims=True)
    return new_largest, total, faded * weighted + jnp.einsum("bhts,bshk->bhtk", weights, value)


def ring_attention(query, key, value):
    """The same for one device with its block of the sequence: seven hops, each overlapping with the work on a block."""
    me = lax.axis_index("sequence")
    empty = (
        jnp.full((BATCH, HEADS, BLOCK, 1), -1e30),
        jnp.zeros((BATCH, HEADS, BLOCK, 1)),
        jnp.zeros((BATCH, HEADS, BLOCK, DEPTH)),
    )
    state = add_block(
        lax.pcast(empty, "sequence", to="varying"), query, key, value, me * BLOCK, me * BLOCK
    )

    def hop(carry, distance):
        state, key, value = carry
        key, value = lax.ppermute((key, value), "sequence", RING)
        state = add_block(state, query, key, value, me * BLOCK, (me - distance) % DEVICES * BLOCK)
        return (state, key, value), None

    ((_, total, weighted), _, _), _ = lax.scan(hop, (state, key, value), jnp.arange(1, DEVICES))
    return (weighted / total).transpose(0, 2, 1, 3)


def value_and_grads(attend):
    """A loss of attention and its gradients with respect to queries, keys and values."""
    return jax.value_and_grad(
        lambda q, k, v, target: jnp.mean((attend(q, k, v) - target) ** 2), argnums=(0, 1, 2)
    )


def cases():
    mesh = mesh_of(sequence=DEVICES)
    blocks = P(None, "sequence")
    mapped = jax.shard_map(ring_attention, mesh=mesh, in_specs=(blocks,) * 3, out_specs=blocks)
    arrays = [
        jax.device_put(normal(i, BATCH, LENGTH, HEADS, DEPTH), NamedSharding(mesh, blocks))
        for i in range(4)
    ]
    return [
        Case(
            "ring_attention",
            jax.jit(value_and_grads(mapped)),
            tuple(arrays),
            value_and_grads(attention),
        )
    ]


if __name__ == "__main__":
    run(cases)
