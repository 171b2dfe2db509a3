"""Operations of all devices together: adjacent reductions become one."""

import weft
from tests.harness.golden import f32, program
from weft.sharding import NamedSharding, PartitionSpec as P

MESH = weft.make_mesh((8,), ("x",))
ROWS, WHOLE = NamedSharding(MESH, P("x")), NamedSharding(MESH, P())


@program(f32(16, 4, sharding=ROWS), out_shardings=WHOLE)
def sum_over_devices(x):
    # CHECK: a:f32[8,1,2,4]
    # CHECK-COUNT-1: reduce_sum
    # CHECK: reduce_sum[axes=(0, 1)]
    return x.sum(0)
