"""Memory accesses of native kernels against the evaluator: strides, gathers, guards, streaming, packing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import check, run_native
from tests.codegen.kernel_cases import REAL, add, arrays, i, ix, j, mul, packed
from weft._engine.codegen.kernel.kernel_emitter import module_ir
from weft._engine.codegen.toolchain.target import current
from weft._engine.ir.loops import (
    ITEMSIZE,
    Buf,
    Const,
    For,
    Load,
    LoopKind,
    LoopsKernel,
    Prefetch,
    ScalarOp,
    StoreElement,
)


@pytest.mark.parametrize("stride", [-3, -2, -1, 1, 2, 3, 7])
@pytest.mark.parametrize("type_", ["f32", "f64", "i8", "bool", "bf16", "c64"])
def test_strided_access(stride, type_):
    n = 37
    start = 0 if stride > 0 else -stride * (n - 1)
    at = add(mul(i, ix(stride)), ix(start))
    size = abs(stride) * (n - 1) + 1
    read = LoopsKernel(
        (Buf("x", type_, size), Buf("y", type_, n, "out")),
        (For("i", n, (StoreElement("y", i, Load("x", at, type_)),), LoopKind.VECTOR),),
    )
    check(read, *arrays(read))
    write = LoopsKernel(
        (Buf("x", type_, n), Buf("y", type_, size, "inout")),
        (For("i", n, (StoreElement("y", at, Load("x", i, type_)),), LoopKind.VECTOR),),
    )
    check(write, *arrays(write))


@pytest.mark.parametrize("type_", ["f32", "f64", "i16", "bool", "f16", "c128"])
@pytest.mark.parametrize("n", [7, 37, 130])
def test_gather_and_scatter(type_, n):
    rng = np.random.default_rng(1)
    where = rng.permutation(n).astype(np.int64)
    at = Load("w", i, "i64")
    gather = LoopsKernel(
        (Buf("x", type_, n), Buf("w", "i64", n), Buf("y", type_, n, "out")),
        (For("i", n, (StoreElement("y", i, Load("x", at, type_)),), LoopKind.VECTOR),),
    )
    data = arrays(gather)
    data[1] = where
    check(gather, *data)
    scatter = LoopsKernel(
        gather.bufs, (For("i", n, (StoreElement("y", at, Load("x", i, type_)),), LoopKind.VECTOR),)
    )
    check(scatter, *data)


def test_gather_through_i32():
    n = 53
    at = ScalarOp("cast", (Load("w", i, "i32"),), "i64")
    kernel = LoopsKernel(
        (Buf("x", "f32", n), Buf("w", "i32", n), Buf("y", "f32", n, "out")),
        (For("i", n, (StoreElement("y", i, Load("x", at, "f32")),), LoopKind.VECTOR),),
    )
    data = arrays(kernel)
    data[1] = np.random.default_rng(2).integers(0, n, n).astype(np.int32)
    check(kernel, *data)


@pytest.mark.parametrize("type_", ["f32", "i8", "f64", "c64"])
@pytest.mark.parametrize("n", [5, 48, 75])
def test_guarded_access(type_, n):
    low, high = 3, n - 1
    inside = ScalarOp(
        "and", (ScalarOp("ge", (i, ix(low)), "bool"), ScalarOp("lt", (i, ix(high)), "bool")), "bool"
    )
    shifted = ScalarOp("sub", (i, ix(low)), "i64")
    padded = Load("x", shifted, type_, inside, Const(2, type_))
    kernel = LoopsKernel(
        (Buf("x", type_, max(n - 4, 0)), Buf("y", type_, n, "inout")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, padded, ScalarOp("ne", (i, ix(4)), "bool")),),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


def test_guards_that_never_hold():
    never = ScalarOp("lt", (Load("n", ix(0), "i64"), ix(0)), "bool")
    for size in (0, 3):
        kernel = LoopsKernel(
            (Buf("n", "i64", 1), Buf("x", "f32", size), Buf("y", "f32", 20, "inout")),
            (
                For(
                    "i",
                    20,
                    (
                        StoreElement(
                            "y", i, Load("x", ix(1 << 20), "f32", never, Const(3.0, "f32"))
                        ),
                    ),
                    LoopKind.VECTOR,
                ),
                StoreElement("y", ix(1 << 20), Load("x", ix(1 << 30), "f32", never), never),
            ),
        )
        check(kernel, np.ones(1, np.int64), *arrays(kernel)[1:])


@pytest.mark.parametrize("type_", ["f32", "i8", "c64"])
@pytest.mark.parametrize("step", [1, -1])
def test_one_guard_for_all_lanes_leads_the_address_inside(type_, step):
    """Masked loads far outside a buffer would be correct but very slow."""
    n = 75
    holds = ScalarOp("lt", (Load("n", ix(0), "i64"), ix(5)), "bool")
    offset = ScalarOp("mul", (Load("n", ix(0), "i64"), ix(1 << 30)), "i64")
    at = add(offset, i) if step == 1 else add(offset, ScalarOp("sub", (ix(n - 1), i), "i64"))
    kernel = LoopsKernel(
        (Buf("n", "i64", 1), Buf("x", type_, n), Buf("y", type_, n, "out")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, Load("x", at, type_, holds, Const(2, type_))),),
                LoopKind.VECTOR,
            ),
        ),
    )
    for number in (0, 9):
        check(kernel, np.full(1, number, np.int64), *arrays(kernel)[1:])
    assert "select i1" in module_ir([(kernel, "inside")], current())


def test_alias_in_place():
    n = 77
    kernel = LoopsKernel(
        (Buf("x", "f32", n), Buf("y", "f32", n, "out", alias="x")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, add(Load("x", i, "f32"), Const(1.0, "f32"))),),
                LoopKind.VECTOR,
            ),
        ),
    )
    x = np.arange(n, dtype=np.float32)
    run_native(kernel, x, x)
    np.testing.assert_array_equal(x, np.arange(n, dtype=np.float32) + 1)


@pytest.mark.parametrize("type_", ["f32", "bf16", "u8", "f64"])
@pytest.mark.parametrize("offset", [0, 4, 16])
def test_streaming_stores(type_, offset):
    """Nontemporal stores where aligned, normal stores elsewhere: `offset` shifts the buffer."""
    n = 300
    at = add(i, ix(offset))
    kernel = LoopsKernel(
        (Buf("x", type_, n), Buf("y", type_, n + offset, "inout")),
        (
            For(
                "i",
                n,
                (StoreElement("y", at, Load("x", i, type_), streaming=True),),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))
    room = np.zeros((n + offset) * ITEMSIZE[type_] + 64, np.uint8)
    start = -room.ctypes.data % 64
    x, y = arrays(kernel)
    aligned = room[start : start + y.nbytes].view(y.dtype)
    run_native(kernel, x, aligned)
    np.testing.assert_array_equal(aligned[offset:].view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("type_", ["bf16", "f32", "c64"])
@pytest.mark.parametrize("kind", [LoopKind.VECTOR, LoopKind.SERIAL])
@pytest.mark.parametrize("step", [-1, 0, 1, 3, 1000])
def test_prefetches_change_nothing(type_, kind, step):
    n = 77
    kernel = LoopsKernel(
        (Buf("x", type_, n), Buf("y", type_, n, "out")),
        (
            For(
                "i",
                n,
                (
                    Prefetch("x", add(mul(i, ix(step)), ix(n))),
                    StoreElement("y", i, Load("x", i, type_)),
                ),
                kind,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("size", range(1, 71))
def test_packing_with_tails(size):
    kernel = packed("f32", size, size, LoopKind.VECTOR)
    check(kernel, *arrays(kernel))
    kernel = packed(
        "i32", ScalarOp("min", (add(j, ix(size - 1)), ix(size)), "i64"), size, LoopKind.VECTOR
    )
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("type_", [*REAL, "bool"])
@pytest.mark.parametrize("kind", [LoopKind.VECTOR, LoopKind.SERIAL])
def test_packing(type_, kind):
    kernel = packed(type_, 200, 200, kind)
    check(kernel, *arrays(kernel))
