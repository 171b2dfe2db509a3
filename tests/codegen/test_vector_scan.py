"""Scans in vector loops: native code against the evaluator, at every remainder and in every type."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import check, run_native
from weft._engine.ir.loops import (
    Buf,
    Const,
    Expr,
    For,
    Index,
    Init,
    Load,
    LoopsKernel,
    PrefixCombine,
    ScalarOp,
    ScalarRef,
    StoreElement,
    check as verify,
)
from weft._engine.ir.loops_eval import DTYPES

SIZES = [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 70, 300]


def op(name: str, *args: Expr) -> Expr:
    return ScalarOp(name, args, args[0].type)


def running(type_: str, size: int, how: str, backward: bool = False) -> LoopsKernel:
    """Return a kernel with y = the prefixes of x and t = the total, whose initial value is the
    second element of t."""
    k = Index("k")
    at = op("sub", Const(size - 1, "i64"), k) if backward else k
    total, value = ScalarRef("a", type_), ScalarRef("v", type_)
    scan = PrefixCombine(("v",), ("a",), (Load("x", at, type_),), (op(how, total, value),))
    bufs = (Buf("x", type_, size), Buf("y", type_, size, "out"), Buf("t", type_, 2, "inout"))
    body = (
        Init("a", Load("t", Const(1, "i64"), type_)),
        For("k", size, (scan, StoreElement("y", at, value)), "vector"),
        StoreElement("t", Const(0, "i64"), total),
    )
    return LoopsKernel(bufs, body)


def numbers(type_: str, size: int) -> np.ndarray:
    rng = np.random.default_rng(size)
    if type_ == "bool":
        return rng.random(size) < 0.1
    if type_ in ("c64", "c128"):
        return (rng.integers(-9, 9, size) + 1j * rng.integers(-9, 9, size)).astype(DTYPES[type_])
    return rng.integers(0 if type_[0] == "u" else -99, 100, size).astype(DTYPES[type_])


# integers, so sums are exact in any order
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "type_, how",
    [
        ("f32", "add"),
        ("f32", "max"),
        ("f64", "add"),
        ("i8", "add"),
        ("u16", "max"),
        ("i32", "mul"),
        ("i64", "min"),
        ("bool", "or"),
        ("bool", "xor"),
        ("c64", "add"),
    ],
)
def test_prefixes(type_, how, size):
    x = numbers(type_, size)
    for backward in (False, True) if type_ in ("f32", "i8") else (size % 2 == 0,):
        check(running(type_, size, how, backward), x, np.zeros_like(x), numbers(type_, 2))


def test_nan_stays():
    x = numbers("f32", 90)
    x[41] = np.nan
    y = np.zeros_like(x)
    run_native(running("f32", 90, "max"), x, y, np.float32([0, -np.inf]))
    np.testing.assert_array_equal(y, np.maximum.accumulate(x))


@pytest.mark.parametrize("size", SIZES)
def test_pairs_in_order(size):
    """Compositions of s -> m * s + c: two arrays at once, and the order of operands matters."""
    k, types = Index("k"), ("i32", "i32")
    (m, c), (n, d) = ([ScalarRef(f"{letter}{i}", "i32") for i in (0, 1)] for letter in "av")
    scan = PrefixCombine(
        ("v0", "v1"),
        ("a0", "a1"),
        (Load("x0", k, "i32"), Load("x1", k, "i32")),
        (op("mul", m, n), op("add", op("mul", n, c), d)),
    )
    bufs = [
        Buf(f"{name}{i}", types[i], size, mode)
        for name, mode in (("x", "in"), ("y", "out"))
        for i in (0, 1)
    ]
    body = (
        Init("a0", Const(1, "i32")),
        Init("a1", Const(5, "i32")),
        For("k", size, (scan, StoreElement("y0", k, n), StoreElement("y1", k, d)), "vector"),
    )
    check(
        LoopsKernel(tuple(bufs), body),
        *(numbers("i32", size + i)[:size] for i in (0, 1)),
        *(np.zeros(size, np.int32) for _ in types),
    )


@pytest.mark.parametrize("lanes", [1, 3, 16, 21])
def test_one_row_per_lane(lanes):
    """Accumulators inside the vector loop: every lane processes its own column."""
    j, k = Index("j"), Index("k")
    at = op("add", op("mul", k, Const(lanes, "i64")), j)
    total, value = ScalarRef("a", "f32"), ScalarRef("v", "f32")
    scan = PrefixCombine(("v",), ("a",), (Load("x", at, "f32"),), (op("add", total, value),))
    body = (
        For(
            "j",
            lanes,
            (Init("a", Const(0.0, "f32")), For("k", 5, (scan, StoreElement("y", at, value)))),
            "vector",
        ),
    )
    x = numbers("f32", 5 * lanes)
    check(
        LoopsKernel((Buf("x", "f32", x.size), Buf("y", "f32", x.size, "out")), body),
        x,
        np.zeros_like(x),
    )


@pytest.mark.parametrize(
    "fault, scan",
    [
        (
            "not declared",
            PrefixCombine(("v",), ("b",), (Const(1.0, "f32"),), (ScalarRef("v", "f32"),)),
        ),
        (
            "has type i32",
            PrefixCombine(("v",), ("a",), (Const(1, "i32"),), (ScalarRef("v", "f32"),)),
        ),
        (
            "reads other values",
            PrefixCombine(
                ("v",), ("a",), (Const(1.0, "f32"),), (Load("x", Const(0, "i64"), "f32"),)
            ),
        ),
        (
            "2 names",
            PrefixCombine(("v", "w"), ("a",), (Const(1.0, "f32"),), (ScalarRef("v", "f32"),)),
        ),
    ],
)
def test_faulty_scans_are_told(fault, scan):
    with pytest.raises(ValueError, match=fault):
        verify(
            LoopsKernel(
                (Buf("x", "f32", 1),),
                (Init("a", Const(0.0, "f32")), For("k", 4, (scan,), "vector")),
            )
        )
