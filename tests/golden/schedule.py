"""Buffers, steps and kernels: elementwise operations and reductions of one row share a kernel."""

import weft
import weft.numpy as wnp
from tests.harness.golden import f32, program


@program(f32(8, 16))
def softmax_of_rows(x):
    # CHECK: arena 0 B
    # CHECK-NEXT: s0 in 512 B
    # CHECK-NEXT: s1 out 512 B
    # CHECK: launch k0(s0, s1)
    # CHECK-COUNT-1: launch
    # CHECK: a0 max=
    # CHECK: a1 add=
    return weft.nn.softmax(x, -1)


@program(f32(64), f32(64))
def elementwise_chain(x, y):
    # CHECK-COUNT-1: launch
    # CHECK: sin.f32
    return wnp.sin(x * y) + x


@program(f32(256, 256), f32(256, 256))
def product_with_epilogue(x, w):
    # CHECK: gemm f32 256x256x256
    # CHECK-NOT: launch
    # CHECK: max.f32
    return wnp.maximum(x @ w, 0)
