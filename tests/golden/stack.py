"""The program for all devices of one machine: mesh axes are leading dims, collectives are operations on them."""

import weft
from tests.harness.golden import f32, program
from weft.sharding import NamedSharding, PartitionSpec as P

MESH = weft.make_mesh((8,), ("x",))
ROWS, WHOLE = NamedSharding(MESH, P("x")), NamedSharding(MESH, P())


@program(f32(16, 4, sharding=ROWS), out_shardings=WHOLE)
def sum_over_devices(x):
    # CHECK: a:f32[8,1,2,4]
    # CHECK: reduce_sum[axes=(1,)]
    # CHECK: reduce_sum[axes=(0,)]
    # CHECK-NOT: psum
    return x.sum(0)
