"""A mesh, shardings, device_put and shard_map with a collective."""

import functools

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh: Mesh = weft.make_mesh((len(weft.devices()),), ("data",))
rows = NamedSharding(mesh, P("data"))


@functools.partial(weft.shard_map, mesh=mesh, in_specs=(P("data"), P()), out_specs=P())
def total(block: weft.Array, scale: weft.Array) -> weft.Array:
    return lax.psum(wnp.sum(block) * scale, "data")


def shift(block: weft.Array) -> weft.Array:
    size = lax.axis_size("data")
    moved = lax.ppermute(block, "data", [(i, (i + 1) % size) for i in range(size)])
    return moved + lax.axis_index("data")


@weft.jit
def constrained(x: weft.Array) -> weft.Array:
    return lax.with_sharding_constraint(x * 2, rows)


x = weft.device_put(wnp.arange(16.0), rows)
shifted = weft.shard_map(shift, mesh=mesh, in_specs=P("data"), out_specs=P("data"))(x)
compiled = weft.jit(lambda x: x + 1, in_shardings=rows, out_shardings=rows)
print(float(total(x, wnp.ones(()))), shifted.shape, constrained(x).sharding == rows)
shapes = [shard.data.shape for shard in x.addressable_shards if shard.data is not None]
print(compiled(x).sharding.is_fully_replicated, shapes[0])
