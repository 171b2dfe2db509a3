"""The program of one device: split shapes, and each collective with its cause."""

import numpy as np

import weft
import weft.numpy as wnp
from tests.harness.golden import f32, program
from weft.sharding import NamedSharding, PartitionSpec as P

MESH = weft.make_mesh((4, 2), ("x", "y"))
ROWS, COLUMNS = NamedSharding(MESH, P("x")), NamedSharding(MESH, P(None, "y"))
WHOLE = NamedSharding(MESH, P())


@program(f32(16, 4, sharding=ROWS), out_shardings=WHOLE)
def sum_over_a_split_dim(x):
    # CHECK: mesh x=4, y=2
    # CHECK-NEXT: inputs ('x', '-')
    # CHECK-NEXT: outputs ('-',)
    # CHECK-NEXT: psum over x of float32[4]
    # CHECK: a:f32[4,4]
    # CHECK: reduce_sum
    # CHECK-NEXT: psum[axes=('x',)
    # CHECK-COUNT-1: psum[
    return x.sum(0)


@program(f32(16, 8, sharding=ROWS), f32(8, 6, sharding=COLUMNS))
def product_without_communication(x, w):
    # CHECK: outputs ('x', 'y')
    # CHECK: a:f32[4,8] b:f32[8,3]
    # CHECK-NOT: all_gather
    # CHECK-NOT: psum
    return x @ w


@program(f32(16, 8, sharding=ROWS), out_shardings=WHOLE)
def gather_of_a_result(x):
    # CHECK: all_gather over x
    # CHECK: tan
    # CHECK: all_gather[
    # CHECK-NOT: psum
    return wnp.tan(x)


@program(f32(16, 8, sharding=ROWS), out_shardings=NamedSharding(MESH, P(None, "x")))
def move_between_dims(x):
    # CHECK: all_to_all over x
    # CHECK-COUNT-1: all_to_all[
    # CHECK-NOT: all_gather
    return x + np.float32(1)
