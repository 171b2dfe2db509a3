"""Calls are inlined; dead and repeated equations are removed."""

import weft
import weft.numpy as wnp
from tests.harness.golden import f32, program


@program(f32(4))
def repeated_call(x):
    # CHECK: b:f32[4] = sin a; c:f32[4] = mul b b
    # CHECK-COUNT-1: sin
    # CHECK-NOT: jit
    return weft.jit(wnp.sin)(x) * wnp.sin(x)


@program(f32(4))
def unused_value(x):
    # CHECK: neg a
    # CHECK-NOT: exp
    wnp.exp(x)
    return -x


@program(f32(4, 3))
def neutral_elements(x):
    # CHECK: { lambda ; a:f32[4,3]. let in (a,) }
    return (x * 1.0).T.T
