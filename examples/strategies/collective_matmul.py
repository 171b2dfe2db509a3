"""Collective matmul: products whose communication overlaps with computation, because a collective is split into hops.

`gathered` gathers the rows of `a` before the product; `scattered` sums and scatters the product's rows after it. Each has three
variants with the same results: with the collective; as a ring, where each `ppermute` overlaps with the product of the previous
block; and as two rings in opposite directions, each with half of the blocks, which use the links both ways.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from strategy import DEVICES, Case, mesh_of, normal, run

M, K, N = 64, 128, 96
RIGHT = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]
LEFT = [(target, source) for source, target in RIGHT]


def position(distance):
    """The index of the device that is `distance` hops to the right."""
    return (lax.axis_index("i") + distance) % DEVICES


# --- rows of a are gathered: (m/8, k) @ (k, n/8) -> (m, n/8)


def gathered(a, b):
    return lax.all_gather(a, "i", tiled=True) @ b


def rows_from_all(block, b, hops):
    """All rows of a product, computed block by block as the blocks pass round the ring."""
    size = block.shape[0]
    out = jnp.zeros((DEVICES * size, b.shape[1]))
    out = lax.pcast(out, "i", to="varying")
    step = 1 if hops is LEFT else -1  # a block that moves left comes from the right
    for distance in range(DEVICES):
        moved = lax.ppermute(block, "i", hops) if distance < DEVICES - 1 else None
        out = lax.dynamic_update_slice(out, block @ b, (position(step * distance) * size, 0))
        block = moved
    return out


def gathered_ring(a, b):
    return rows_from_all(a, b, RIGHT)


def gathered_two_rings(a, b):
    upper, lower = jnp.split(a, 2)
    halves = rows_from_all(upper, b, RIGHT), rows_from_all(lower, b, LEFT)
    both = jnp.stack([half.reshape(DEVICES, -1, half.shape[1]) for half in halves], axis=1)
    return both.reshape(-1, b.shape[1])


# --- rows of a sum are scattered: (m, k/8) @ (k/8, n) -> (m/8, n)


def scattered(a, b):
    return lax.psum_scatter(a @ b, "i", tiled=True)


def rows_to_all(a, b, hops):
    """This device's rows of a sum. Partial sums pass round the ring, and each device adds its term for the rows of their destination."""
    blocks = a.reshape(DEVICES, -1, a.shape[1])
    step = 1 if hops is LEFT else -1
    part = lambda distance: (
        lax.dynamic_index_in_dim(blocks, position(step * distance), keepdims=False) @ b
    )
    total = part(1)
    for distance in range(2, DEVICES + 1):
        total = lax.ppermute(total, "i", hops) + part(distance)
    return total


def scattered_ring(a, b):
    return rows_to_all(a, b, RIGHT)


def scattered_two_rings(a, b):
    upper, lower = jnp.split(a.reshape(DEVICES, -1, a.shape[1]), 2, axis=1)
    halves = [
        rows_to_all(half.reshape(-1, a.shape[1]), b, hops)
        for half, hops in ((upper, RIGHT), (lower, LEFT))
    ]
    return jnp.concatenate(halves)


VARIANTS = {
    gathered: ((P("i"), P(None, "i")), P(None, "i")),
    gathered_ring: ((P("i"), P(None, "i")), P(None, "i")),
    gathered_two_rings: ((P("i"), P(None, "i")), P(None, "i")),
    scattered: ((P(None, "i"), P("i")), P("i")),
    scattered_ring: ((P(None, "i"), P("i")), P("i")),
    scattered_two_rings: ((P(None, "i"), P("i")), P("i")),
}


def cases():
    mesh = mesh_of(i=DEVICES)
    for variant, (in_specs, out_specs) in VARIANTS.items():
        product = jax.jit(jax.shard_map(variant, mesh=mesh, in_specs=in_specs, out_specs=out_specs))
        arrays = [
            jax.device_put(x, NamedSharding(mesh, s))
            for x, s in zip((normal(0, M, K), normal(1, K, N)), in_specs)
        ]
        yield Case(variant.__name__, product, tuple(arrays), jnp.matmul)


if __name__ == "__main__":
    run(cases)
