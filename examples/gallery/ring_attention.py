"""Ring attention.

Attention over a sequence that is sharded over eight devices: keys and values travel around
the ring, and no device ever holds the whole sequence.

python examples/gallery/ring_attention.py
"""

# %%
# Eight virtual devices in a ring, each with 32 positions of the sequence.
import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P

weft.config.update("num_cpu_devices", 8)
DEVICES, LENGTH, HEADS, DEPTH = 8, 256, 4, 16
BLOCK = LENGTH // DEVICES
RING = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]
mesh = weft.make_mesh((DEVICES,), ("sequence",))


# %%
# Causal attention on one device, to compare with.
def attention(query, key, value):
    scores = wnp.einsum("thk,shk->hts", query, key) * DEPTH**-0.5
    visible = wnp.tril(wnp.ones((LENGTH, LENGTH), bool))
    weights = weft.nn.softmax(wnp.where(visible, scores, -1e30))
    return wnp.einsum("hts,shk->thk", weights, value)


# %%
# An online softmax keeps the largest score, the sum of exponentials and the weighted values
# so far, so that blocks of keys can be added in any order.
@weft.checkpoint
def add_block(state, query, key, value, query_start, key_start):
    largest, total, weighted = state
    scores = wnp.einsum("thk,shk->hts", query, key) * DEPTH**-0.5
    rows = query_start + wnp.arange(BLOCK)[:, None]
    scores = wnp.where(rows >= key_start + wnp.arange(BLOCK), scores, -1e30)
    new = wnp.maximum(largest, lax.stop_gradient(scores).max(-1, keepdims=True))
    weights, scale = wnp.exp(scores - new), wnp.exp(largest - new)
    total = scale * total + weights.sum(-1, keepdims=True)
    return new, total, scale * weighted + wnp.einsum("hts,shk->htk", weights, value)


# %%
# The program of one device: its own block first, then seven hops around the ring.
def ring_attention(query, key, value):
    me = lax.axis_index("sequence")
    empty = (
        wnp.full((HEADS, BLOCK, 1), -1e30),
        wnp.zeros((HEADS, BLOCK, 1)),
        wnp.zeros((HEADS, BLOCK, DEPTH)),
    )
    state = lax.pcast(empty, "sequence", to="varying")
    state = add_block(state, query, key, value, me * BLOCK, me * BLOCK)

    def hop(carry, distance):
        state, key, value = carry
        key, value = lax.ppermute((key, value), "sequence", RING)
        start = (me - distance) % DEVICES * BLOCK
        return (
            add_block(state, query, key, value, me * BLOCK, start),
            key,
            value,
        ), None

    hops = wnp.arange(1, DEVICES)
    ((_, total, weighted), _, _), _ = lax.scan(hop, (state, key, value), hops)
    return (weighted / total).transpose(1, 0, 2)


# %%
# Queries, keys and values are sharded along the sequence; so is the result.
blocks = P("sequence")
sharded = weft.jit(
    weft.shard_map(ring_attention, mesh=mesh, in_specs=blocks, out_specs=blocks)
)
arrays = weft.random.normal(weft.random.key(0), (3, LENGTH, HEADS, DEPTH))
query, key, value = (weft.device_put(a, NamedSharding(mesh, blocks)) for a in arrays)
result = sharded(query, key, value)
print("result", result.shape, result.sharding.spec)
print(
    "agrees with one device:", bool(wnp.allclose(result, attention(*arrays), atol=1e-5))
)

# %%
# Gradients travel around the ring in the opposite direction. Only hops are sent.
loss = lambda *arrays: wnp.mean(sharded(*arrays) ** 2)
single = weft.grad(lambda *arrays: wnp.mean(attention(*arrays) ** 2))(*arrays)
gradient = weft.jit(weft.grad(loss))(query, key, value)
print("gradients agree:", bool(wnp.allclose(gradient, single, atol=1e-6)))
explained = weft.explain(sharded, query, key, value)
print("collectives", explained.counts, f"{explained.bytes:,} bytes per device")
