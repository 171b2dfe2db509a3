"""Vector loops that read every n-th element or write interleaved rows; transposes by tiles. Against
the evaluator and NumPy."""

from __future__ import annotations

import functools
import itertools
import re
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.codegen.harness import Fenced, check, random_array, run_native
from weft._engine.codegen.kernel import kernel_emitter
from weft._engine.codegen.toolchain import target
from weft._engine.ir.loops import (
    Buf,
    Const,
    For,
    Index,
    Interleave,
    Load,
    LoopKind,
    LoopsKernel,
    ScalarOp,
    StoreElement,
)

DTYPES = ["bool", "int8", "int16", "int32", "float32", "float64", "float16", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_loads(dtype):
    cut = weft.jit(
        lambda x, start, step: x[:, start::step] + x[:, start::step], static_argnums=(1, 2)
    )
    for step, start, n in [
        (2, 0, 64),
        (2, 1, 65),
        (3, 2, 200),
        (4, 3, 131),
        (5, 0, 81),
        (7, 6, 450),
        (8, 0, 1025),
        (9, 1, 300),
    ]:
        x = np.arange(3 * n).reshape(3, n).astype(dtype)
        want = x[:, start::step] + x[:, start::step]
        np.testing.assert_array_equal(
            np.asarray(cut(x, start, step)), want, err_msg=f"{step} {start} {n}"
        )


def windows_kernel(
    type_: str, stride: int, taps: list[int], n: int, told: bool = True, roots: int = 0
) -> LoopsKernel:
    """Return a kernel with the maximum of x[stride * i + t] over taps t, in the given order, and
    roots of it; the number of elements is known when the code is generated, or only when it runs.
    """
    at = [
        ScalarOp(
            "add",
            (ScalarOp("mul", (Index("i"), Const(stride, "i64")), "i64"), Const(t, "i64")),
            "i64",
        )
        for t in taps
    ]
    value = Load("x", at[0], type_)
    for place in at[1:]:
        value = ScalarOp("max", (value, Load("x", place, type_)), type_)
    for _ in range(roots):
        value = ScalarOp(
            "add", (ScalarOp("sqrt", (ScalarOp("abs", (value,), type_),), type_), value), type_
        )
    bufs = (
        Buf("x", type_, stride * (n - 1) + max(taps) + 1),
        Buf("n", "i64", 1),
        Buf("y", type_, n, "out"),
    )
    extent = (
        n if told else ScalarOp("min", (Load("n", Const(0, "i64"), "i64"), Const(n, "i64")), "i64")
    )
    return LoopsKernel(
        bufs, (For("i", extent, (StoreElement("y", Index("i"), value),), LoopKind.VECTOR),)
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("type_", ["i8", "f32", "f64", "bf16"])
@pytest.mark.parametrize(
    "taps",
    [[0, 1], [1, 0], [0, 1, 2, 3, 4], [4, 1, 3, 0], [2, 9, 5, 40], [3], [7, 6, 5], list(range(17))],
    ids=str,
)
def test_windows_that_go_by_steps(taps, type_):
    rng = np.random.default_rng(len(taps))
    for stride in (2, 3, 5, 8):
        for n in (15, 70, 131):
            for static in (True, False):
                kernel = windows_kernel(type_, stride, taps, n, static)
                x, count, y = [random_array(rng, buf.type, buf.size) for buf in kernel.bufs]
                count[:] = n
                check(kernel, x, count, y)


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by Linux' mprotect")
@pytest.mark.parametrize("at_end", [False, True])
def test_windows_read_nothing_beside_them(at_end):
    rng = np.random.default_rng(3)
    for stride, taps in [
        (2, [0]),
        (2, [0, 1, 2, 3, 4]),
        (2, [1, 0]),
        (3, [0, 2, 1, 3]),
        (5, [0, 1]),
        (8, list(range(8))),
    ]:
        for n, static, roots in itertools.product(
            (1, 11, 27, 64, 70, 128, 300), (True, False), (0, 9)
        ):
            kernel = windows_kernel("f32", stride, taps, n, static, roots)
            values, y = random_array(rng, "f32", kernel.bufs[0].size), np.zeros(n, np.float32)
            fenced = Fenced(values.nbytes, at_end)
            x = fenced.view(np.float32)
            x[:] = values
            run_native(kernel, x, np.array([n]), y)
            want = np.max([x[t:][: (n - 1) * stride + 1 : stride] for t in taps], 0)
            with np.errstate(invalid="ignore"):
                for _ in range(roots):
                    want = np.sqrt(np.abs(want)) + want
            np.testing.assert_array_equal(y, want)


@pytest.mark.skipif(not target.current().has_masks, reason="what is left of a loop has masks")
@pytest.mark.parametrize(("told", "roots"), [(True, 0), (False, 0), (True, 9), (False, 9)])
def test_windows_are_not_gathered_where_loops_end(told, roots):
    kernel = windows_kernel("f32", 2, [0, 1, 2], 91, told, roots)
    code = kernel_emitter.module_ir([(kernel, "k")], target.current())
    assert "masked.load" in code and "gather" not in code


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_halves_of_windows_where_functions_are_called(type_):
    """In code that consists mostly of calls, eight 16-bit lanes form a vector that LLVM must not
    receive in that form."""
    at = [
        ScalarOp(
            "add", (ScalarOp("mul", (Index("i"), Const(3, "i64")), "i64"), Const(t, "i64")), "i64"
        )
        for t in range(5)
    ]
    x, *others = [
        ScalarOp(f, (ScalarOp("cast", (Load("x", place, type_),), "f32"),), "f32")
        for place in at
        for f in ("sin", "cos")
    ]
    value = functools.reduce(lambda value, other: ScalarOp("add", (value, other), "f32"), others, x)
    for n in (6, 7, 14):
        kernel = LoopsKernel(
            (Buf("x", type_, 3 * n + 2), Buf("y", "f32", n, "out")),
            (For("i", n, (StoreElement("y", Index("i"), value),), LoopKind.VECTOR),),
        )
        x = np.linspace(-3, 3, 3 * n + 2).astype(
            random_array(np.random.default_rng(0), type_, 1).dtype
        )
        check(kernel, x, np.zeros(n, np.float32), rtol=1e-5)


@pytest.mark.skipif(target.current().vector_bytes != 64, reason="counts loads of 16 lanes")
def test_windows_share_what_they_load():
    """Four vectors of x[2 * i], x[2 * i + 1] and x[2 * i + 2] share their loads; only the last one
    ends at its last element."""
    kernel = windows_kernel("f32", 2, [0, 1, 2], 64)
    assert (
        len(
            re.findall(
                r"load <\d+ x float>", kernel_emitter.module_ir([(kernel, "k")], target.current())
            )
        )
        == 2 * 3 + 5
    )


@pytest.mark.parametrize("width", [1, 2, 3, 8, 16, 33])
def test_gather_of_short_rows(width):
    x = np.arange(50 * width, dtype=np.float32).reshape(50, width)
    rows = np.arange(700) * 7 % 50
    np.testing.assert_array_equal(
        np.asarray(weft.jit(lambda x, i: x[i])(x, rows.astype(np.int32))), x[rows]
    )


def rows_kernel(type_: str, count: int, gap: int, size: int, extent) -> LoopsKernel:
    """Return a kernel with `count` values per row, rows `count + gap` apart."""
    i = Index("i")
    at = ScalarOp("mul", (i, Const(count + gap, "i64")), "i64")
    values = tuple(Load(f"x{k % 3}", i, type_) for k in range(count))
    bufs = [
        *(Buf(f"x{k}", type_, size) for k in range(3)),
        Buf("n", "i64", 1),
        Buf("y", type_, size * (count + gap), "inout"),
    ]
    return LoopsKernel(
        tuple(bufs), (For("i", extent, (Interleave("y", at, values),), LoopKind.VECTOR),)
    )


@pytest.mark.parametrize("type_", ["bool", "i8", "i16", "i32", "f32", "f64", "bf16", "f16", "c64"])
@pytest.mark.parametrize(
    ("count", "gap"), [(1, 0), (2, 0), (3, 0), (6, 0), (16, 0), (16, 4), (2, 1), (3, 2)]
)
def test_rows_of_values(type_, count, gap):
    rng = np.random.default_rng(count)
    for size, extent in (
        (37, 37),
        (70, ScalarOp("min", (Load("n", Const(0, "i64"), "i64"), Const(70, "i64")), "i64")),
    ):
        kernel = rows_kernel(type_, count, gap, size, extent)
        arrays = [random_array(rng, buf.type, buf.size) for buf in kernel.bufs]
        arrays[3][:] = size - 3
        check(kernel, *arrays)


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_transposes(dtype):
    rng = np.random.default_rng(3)
    for shape, order in [
        ((16, 16), (1, 0)),
        ((17, 33), (1, 0)),
        ((70, 64), (1, 0)),
        ((300, 19), (1, 0)),
        ((130, 290), (1, 0)),
        ((5, 33, 41), (2, 1, 0)),
        ((3, 34, 5, 18), (3, 2, 1, 0)),
        ((40, 3, 36), (2, 0, 1)),
    ]:
        x = rng.integers(0, 100, shape).astype(wnp.dtype(dtype))
        y = rng.integers(0, 9, [shape[d] for d in order]).astype(x.dtype)
        got = weft.jit(
            lambda x, y, order=order: (wnp.copy(x.transpose(order)), x.transpose(order) + y)
        )(x, y)
        np.testing.assert_array_equal(np.asarray(got[0]), x.transpose(order))
        np.testing.assert_array_equal(np.asarray(got[1]), x.transpose(order) + y)


def test_updates_that_are_views():
    rng = np.random.default_rng(5)
    a, i = np.zeros((5, 7), np.float32), np.array([1, 1, 3], np.int32)
    tall, long = rng.random((7, 3), np.float32), rng.random((6, 7), np.float32)
    for add, value in [
        (lambda a, i: a.at[i].add(2.0), 2.0),
        (lambda a, i: a.at[i].add(tall.T), tall.T),
        (lambda a, i: a.at[i].add(wnp.asarray(long)[1::2]), long[1::2]),
    ]:
        want = a.copy()
        np.add.at(want, i, value)
        np.testing.assert_allclose(np.asarray(weft.jit(add)(a, i)), want, rtol=1e-6)


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_short_inner_dims(dtype):
    rng = np.random.default_rng(7)
    for n in (16, 37, 1000):
        x, y = (rng.integers(0, 100, (3, n)).astype(wnp.dtype(dtype)) for _ in range(2))
        for times in (2, 3, 8):
            np.testing.assert_array_equal(
                np.asarray(weft.jit(lambda x, times=times: wnp.repeat(x, times, 1))(x)),
                x.repeat(times, 1),
            )
        both, three = weft.jit(lambda x, y: (wnp.stack([x, y], -1), wnp.stack([x, y, x + y], -1)))(
            x, y
        )
        np.testing.assert_array_equal(np.asarray(both), np.stack([x, y], -1))
        np.testing.assert_array_equal(np.asarray(three), np.stack([x, y, x + y], -1))


def test_short_inner_dims_past_the_caches():
    x = np.arange((1 << 23) + 40, dtype=np.float32)
    np.testing.assert_array_equal(
        np.asarray(weft.jit(lambda x: wnp.stack([x, -x], -1))(x)), np.stack([x, -x], -1)
    )
