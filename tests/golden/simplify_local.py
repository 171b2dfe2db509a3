"""The program of one device after partitioning, in the form that later stages read."""

import weft
from tests.harness.golden import f32, program
from weft.sharding import NamedSharding, PartitionSpec as P

MESH = weft.make_mesh((8,), ("x",))


@program(f32(16, 4, sharding=NamedSharding(MESH, P("x"))), out_shardings=NamedSharding(MESH, P()))
def mean_of_rows(x):
    # CHECK: a:f32[2,4]
    # CHECK: reduce_sum[axes=(0,)]
    # CHECK: psum[axes=(x,)
    # CHECK-COUNT-1: psum[
    return x.mean(0)
