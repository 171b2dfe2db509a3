"""Arguments and functions for tests of `shard_map`."""

import numpy as np

import weft
from weft.sharding import PartitionSpec as P

X = np.arange(8, dtype=np.float32)


def collectives(f, *args):
    """Return (kind, axes, bytes, count) of every collective of the compiled program."""
    stages = weft.jit(f).lower(*args).compile().runtime_executable().stages
    return [(r.kind, r.axes, r.bytes_per_device, r.count) for r in stages.collectives]


def in_map(mesh, f, *specs):
    return weft.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P("i"))


def identity(x):
    return x


def mapped_by(mesh, in_specs, out_specs, f=identity, **options):
    return weft.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)


def under(mesh, f):
    with weft.set_mesh(mesh):
        return f()
