"""Loops of native kernels against the evaluator: extents, reductions, scans, branches, long bodies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import check
from tests.codegen.kernel_cases import add, arrays, i, ix, j, k, mul
from weft._engine.ir.loops import (
    FLOATS,
    Accum,
    Buf,
    Const,
    For,
    If,
    Init,
    Let,
    Load,
    LoopKind,
    LoopsKernel,
    ScalarOp,
    ScalarRef,
    StoreElement,
    While,
)


@pytest.mark.parametrize("size", [0, 1, 5, 16, 63, 64, 65, 200, 259])
@pytest.mark.parametrize("type_", ["f32", "bool", "f64", "u8"])
def test_computed_extent(type_, size):
    n = Load("n", ix(0), "i64")
    body = For(
        "i",
        n,
        (StoreElement("y", i, add(Load("x", i, type_), Load("x", i, type_))),),
        LoopKind.VECTOR,
    )
    kernel = LoopsKernel(
        (Buf("n", "i64", 1), Buf("x", type_, 300), Buf("y", type_, 300, "inout")), (body,)
    )
    data = arrays(kernel)
    data[0][:] = size
    check(kernel, *data)
    data[0][:] = -size
    check(kernel, *data)


_REDUCED = {
    "f32": "add mul min max",
    "f64": "add mul min max",
    "i32": "add mul min max and or xor",
    "u8": "add mul min max and or xor",
    "i64": "add mul min max and or xor",
    "bool": "add min max and or",
}


@pytest.mark.parametrize(
    "op,type_", [(op, type_) for type_, ops in _REDUCED.items() for op in ops.split()]
)
@pytest.mark.parametrize("size", [0, 3, 16, 70, 259])
def test_reductions(op, type_, size):
    first = Const(
        {"and": True if type_ == "bool" else -1, "mul": 1}.get(op, type_ == "bool" and op == "min"),
        type_,
    )
    kernel = LoopsKernel(
        (Buf("x", type_, size), Buf("y", type_, 2, "out")),
        (
            Init("s", first),
            For("i", size, (Accum("s", op, Load("x", i, type_)),), LoopKind.VECTOR),
            Init("t", first),
            For(
                "j",
                size,
                (Accum("t", op, Load("x", j, type_), ScalarOp("lt", (j, ix(11)), "bool")),),
                LoopKind.VECTOR,
            ),
            StoreElement("y", ix(0), ScalarRef("s", type_)),
            StoreElement("y", ix(1), ScalarRef("t", type_)),
        ),
    )
    data = arrays(kernel)
    if op in ("add", "mul") and type_ in FLOATS:
        data[0] = np.abs(np.nan_to_num(data[0], posinf=1, neginf=1)).astype(data[0].dtype) / 8 + 0.5
        check(kernel, *data, rtol=1e-5)
    else:
        check(kernel, *data)


def test_complex_sum():
    kernel = LoopsKernel(
        (Buf("x", "c64", 83), Buf("y", "c64", 1, "out")),
        (
            Init("s", Const(0j, "c64")),
            For("i", 83, (Accum("s", "add", Load("x", i, "c64")),), LoopKind.VECTOR),
            StoreElement("y", ix(0), ScalarRef("s", "c64")),
        ),
    )
    check(kernel, *arrays(kernel), rtol=1e-5)


def test_rows_and_columns():
    """A nest as of softmax: two row reductions, then a write, in a parallel loop, with scratch."""
    rows, cols = 6, 45
    at = add(mul(i, ix(cols)), j)
    x = Load("x", at, "f32")
    body = (
        Init("m", Const(float("-inf"), "f32")),
        For("j", cols, (Accum("m", "max", x),), LoopKind.VECTOR),
        Init("s", Const(0.0, "f32")),
        For(
            "j",
            cols,
            (
                Let(
                    "e",
                    mul(ScalarOp("sub", (x, ScalarRef("m", "f32")), "f32"), Const(0.125, "f32")),
                ),
                StoreElement("tmp", j, ScalarRef("e", "f32")),
                Accum("s", "add", ScalarRef("e", "f32")),
            ),
            LoopKind.VECTOR,
        ),
        For(
            "j",
            cols,
            (
                StoreElement(
                    "y", at, ScalarOp("div", (Load("tmp", j, "f32"), ScalarRef("s", "f32")), "f32")
                ),
            ),
            LoopKind.VECTOR,
        ),
    )
    kernel = LoopsKernel(
        (Buf("x", "f32", rows * cols), Buf("y", "f32", rows * cols, "out")),
        (For("i", rows, body, LoopKind.PARALLEL),),
        (Buf("tmp", "f32", cols),),
    )
    data = [
        np.random.default_rng(3).normal(size=rows * cols).astype(np.float32),
        np.zeros(rows * cols, np.float32),
    ]
    check(kernel, *data, rtol=2e-5)


def test_large_scratch():
    n = 1 << 15
    kernel = LoopsKernel(
        (Buf("x", "f32", 40), Buf("y", "f32", 40, "out")),
        (
            For(
                "i",
                40,
                (StoreElement("t", add(i, ix(n - 40)), Load("x", i, "f32")),),
                LoopKind.VECTOR,
            ),
            For(
                "j",
                40,
                (StoreElement("y", j, Load("t", ScalarOp("sub", (ix(n - 1), j), "i64"), "f32")),),
                LoopKind.VECTOR,
            ),
        ),
        (Buf("t", "f32", n),),
    )
    check(kernel, *arrays(kernel))


def test_serial_reduction_inside_a_vector_loop():
    """Column sums: per-lane accumulators through an inner serial loop."""
    rows, cols = 9, 45
    kernel = LoopsKernel(
        (Buf("x", "f64", rows * cols), Buf("y", "f64", cols, "out")),
        (
            For(
                "j",
                cols,
                (
                    Init("s", Const(0.0, "f64")),
                    For(
                        "i", rows, (Accum("s", "add", Load("x", add(mul(i, ix(cols)), j), "f64")),)
                    ),
                    StoreElement("y", j, ScalarRef("s", "f64")),
                ),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


def test_reduction_over_a_serial_loop_in_a_vector_loop():
    rows, cols = 9, 45
    kernel = LoopsKernel(
        (Buf("x", "i32", rows * cols), Buf("y", "i32", 1, "out")),
        (
            Init("s", Const(0, "i32")),
            For(
                "j",
                cols,
                (For("i", rows, (Accum("s", "add", Load("x", add(mul(i, ix(cols)), j), "i32")),)),),
                LoopKind.VECTOR,
            ),
            StoreElement("y", ix(0), ScalarRef("s", "i32")),
        ),
    )
    check(kernel, *arrays(kernel))


def test_scan_in_a_vector_loop():
    rows, cols = 5, 37
    at = add(mul(i, ix(cols)), j)
    kernel = LoopsKernel(
        (Buf("x", "f32", rows * cols), Buf("y", "f32", rows * cols, "out")),
        (
            For(
                "j",
                cols,
                (
                    Init("s", Const(0.0, "f32")),
                    For(
                        "i",
                        rows,
                        (
                            Accum("s", "add", Load("x", at, "f32")),
                            StoreElement("y", at, ScalarRef("s", "f32")),
                        ),
                    ),
                ),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


def test_accumulating_stores():
    n = 37
    kernel = LoopsKernel(
        (Buf("x", "f32", n), Buf("w", "i64", n), Buf("y", "f32", n, "inout")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, Load("x", i, "f32"), accumulate="max"),),
                LoopKind.VECTOR,
            ),
            For(
                "k",
                n,
                (StoreElement("y", Load("w", k, "i64"), Load("x", k, "f32"), accumulate="add"),),
            ),
        ),
    )
    data = arrays(kernel)
    data[1] = np.random.default_rng(4).integers(0, n, n)
    check(kernel, *data)


def test_while_and_if():
    """Integer square roots by counting, with branches that change accumulators."""
    body = (
        Init("r", Const(0, "i32")),
        Init("even", Const(0, "i32")),
        While(
            ScalarOp(
                "le",
                (mul(ScalarRef("r", "i32"), ScalarRef("r", "i32")), Load("x", i, "i32")),
                "bool",
            ),
            (
                Accum("r", "set", add(ScalarRef("r", "i32"), Const(1, "i32"))),
                If(
                    ScalarOp(
                        "eq",
                        (
                            ScalarOp("and", (ScalarRef("r", "i32"), Const(1, "i32")), "i32"),
                            Const(0, "i32"),
                        ),
                        "bool",
                    ),
                    (Accum("even", "add", Const(1, "i32")),),
                    (Accum("even", "add", Const(-1, "i32")),),
                ),
            ),
        ),
        StoreElement("y", i, ScalarRef("r", "i32")),
        StoreElement("z", i, ScalarRef("even", "i32")),
    )
    bufs = (Buf("x", "i32", 20), Buf("y", "i32", 20, "out"), Buf("z", "i32", 20, "out"))
    nothing = np.zeros(20, np.int32)
    check(
        LoopsKernel(bufs, (For("i", 20, body),)),
        np.arange(20, dtype=np.int32) * 7,
        nothing,
        nothing,
    )


def test_uniform_if_in_a_vector_loop():
    cond = ScalarOp("lt", (i, ix(2)), "bool")
    kernel = LoopsKernel(
        (Buf("x", "f32", 4 * 21), Buf("y", "f32", 4 * 21, "out")),
        (
            For(
                "i",
                4,
                (
                    For(
                        "j",
                        21,
                        (
                            Init("a", Const(1.0, "f32")),
                            If(
                                cond,
                                (Accum("a", "add", Load("x", add(mul(i, ix(21)), j), "f32")),),
                                (Accum("a", "set", Const(5.0, "f32")),),
                            ),
                            StoreElement("y", add(mul(i, ix(21)), j), ScalarRef("a", "f32")),
                        ),
                        LoopKind.VECTOR,
                    ),
                ),
            ),
        ),
    )
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("most", [3, 33, 48, 80, 97])
def test_what_a_computed_extent_counts_is_counted_once(most):
    extent = ScalarOp("min", (add(j, ix(most - 2)), ix(most)), "i64")
    body = (
        Init("n", ix(0)),
        For("i", extent, (Accum("n", "add", Load("x", i, "i64")),), LoopKind.VECTOR),
        StoreElement("y", j, ScalarRef("n", "i64")),
    )
    kernel = LoopsKernel((Buf("x", "i64", most), Buf("y", "i64", 4, "out")), (For("j", 4, body),))
    check(kernel, *arrays(kernel))
    narrow = (
        Init("s", Const(0, "i32")),
        For("i", extent, (Accum("s", "add", Load("x", i, "i32")),), LoopKind.VECTOR),
        StoreElement("y", j, ScalarRef("s", "i32")),
    )
    kernel = LoopsKernel((Buf("x", "i32", most), Buf("y", "i32", 4, "out")), (For("j", 4, narrow),))
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("most", [1, 5, 16, 40, 64, 200])
def test_extent_with_a_known_bound(most):
    n = 130
    chunks = -(-n // most)
    start = mul(k, ix(most))
    at = add(start, i)
    extent = ScalarOp("min", (ScalarOp("sub", (ix(n), start), "i64"), ix(most)), "i64")
    kernel = LoopsKernel(
        (Buf("x", "f32", n), Buf("y", "f32", n, "out"), Buf("z", "f32", chunks, "out")),
        (
            For(
                "k",
                chunks,
                (
                    Init("s", Const(float("-inf"), "f32")),
                    For(
                        "i",
                        extent,
                        (
                            StoreElement("y", at, Load("x", at, "f32")),
                            Accum("s", "max", Load("x", at, "f32")),
                        ),
                        LoopKind.VECTOR,
                    ),
                    StoreElement("z", k, ScalarRef("s", "f32")),
                ),
                LoopKind.PARALLEL,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("size", [1, 15, 16, 17, 31, 33, 64, 75, 130])
@pytest.mark.parametrize("computed", [False, True])
def test_long_bodies(size, computed):
    """Costly bodies run as one masked loop; their reductions, guards and gathers must ignore the
    lanes beyond the end."""
    x, at = Load("x", i, "f32"), Load("w", i, "i64")
    extent = Load("n", ix(0), "i64") if computed else size
    heavy = ScalarOp("tanh", (ScalarOp("exp", (ScalarOp("sin", (x,), "f32"),), "f32"),), "f32")
    kernel = LoopsKernel(
        (
            Buf("n", "i64", 1),
            Buf("x", "f32", size),
            Buf("w", "i64", size),
            Buf("y", "f32", size, "inout"),
            Buf("z", "f32", 2, "out"),
            Buf("c", "i32", 1, "out"),
        ),
        (
            Init("low", Const(float("inf"), "f32")),
            Init("high", Const(-7.0, "f32")),
            Init("count", Const(0, "i32")),
            For(
                "i",
                extent,
                (
                    Let("h", heavy),
                    StoreElement(
                        "y",
                        at,
                        ScalarRef("h", "f32"),
                        ScalarOp("gt", (x, Const(-0.5, "f32")), "bool"),
                    ),
                    Accum("low", "min", ScalarRef("h", "f32")),
                    Accum(
                        "high",
                        "max",
                        Load("x", at, "f32"),
                        ScalarOp("lt", (ScalarRef("h", "f32"), Const(0.9, "f32")), "bool"),
                    ),
                    Accum("count", "add", Const(1, "i32")),
                ),
                LoopKind.VECTOR,
            ),
            StoreElement("z", ix(0), ScalarRef("low", "f32")),
            StoreElement("z", ix(1), ScalarRef("high", "f32")),
            StoreElement("c", ix(0), ScalarRef("count", "i32")),
        ),
    )
    rng = np.random.default_rng(8)
    check(
        kernel,
        np.array([size]),
        rng.uniform(-3, 3, size).astype(np.float32),
        rng.permutation(size),
        np.zeros(size, np.float32),
        np.zeros(2, np.float32),
        np.zeros(1, np.int32),
        max_ulp=4,
    )
