"""Arithmetic of native kernels against the evaluator: operations of every type, casts, remainders, sizes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import check
from tests.codegen.kernel_cases import REAL, TYPES, add, arrays, elementwise, i, ix, mul
from weft._engine.ir.loops import (
    ARITHMETIC,
    COMPARISONS,
    COMPLEX,
    FLOATS,
    INTEGERS,
    ITEMSIZE,
    Buf,
    For,
    Let,
    Load,
    LoopKind,
    LoopsKernel,
    ScalarOp,
    ScalarRef,
    StoreElement,
)

_INT_ONLY = {"and", "or", "xor", "not", "shl", "shr_logical", "shr_arithmetic", "popcount", "clz"}
_ARITY = {"neg": 1, "abs": 1, "sign": 1, "not": 1, "popcount": 1, "clz": 1, "fma": 3}


@pytest.mark.parametrize(
    "op,type_",
    [
        (op, type_)
        for op in sorted(ARITHMETIC)
        for type_ in REAL
        if op not in _INT_ONLY or type_ in INTEGERS
    ],
)
def test_arithmetic(op, type_):
    kernel = elementwise(op, [type_] * _ARITY.get(op, 2), type_, 70)
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("op", ["and", "or", "xor", "not", "add", "mul", "min", "max"])
def test_bool_arithmetic(op):
    kernel = elementwise(op, ["bool"] * _ARITY.get(op, 2), "bool", 70)
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("type_", [*REAL, "bool"])
@pytest.mark.parametrize("op", sorted(COMPARISONS))
def test_comparisons(op, type_):
    kernel = elementwise(op, [type_, type_], "bool", 70)
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize(
    "source,target",
    [
        (source, target)
        for source in TYPES
        for target in TYPES
        if source not in COMPLEX or target in COMPLEX
    ],
)
def test_casts(source, target):
    kernel = elementwise("cast", [source], target, 37)
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("source", REAL)
def test_bitcasts(source):
    for target in REAL:
        if ITEMSIZE[source] == ITEMSIZE[target] and not (target in FLOATS and source not in FLOATS):
            kernel = elementwise("bitcast", [source], target, 37)
            data = arrays(kernel)
            if source in FLOATS:
                data[0] = np.nan_to_num(data[0].astype(np.float64), posinf=2, neginf=-2).astype(
                    data[0].dtype
                )
            check(kernel, *data)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "neg", "eq", "ne", "sign", "conj"])
@pytest.mark.parametrize("type_", sorted(COMPLEX))
def test_complex_arithmetic(op, type_):
    result = "bool" if op in COMPARISONS else type_
    kernel = elementwise(op, [type_] * (1 if op in ("neg", "sign", "conj") else 2), result, 37)
    check(
        kernel, *arrays(kernel), rtol=0 if op in COMPARISONS else 1e-5 if type_ == "c64" else 1e-14
    )


@pytest.mark.parametrize(
    "type_,size",
    [
        (type_, size)
        for type_ in TYPES
        for size in (*range(19), 31, 32, 33, 63, 64, 65, 70, 127, 200, 259)
        if size % 3 == 0 or type_ in ("f32", "f64", "bool", "i8")
    ],
)
def test_every_size(type_, size):
    kernel = elementwise("add", [type_, type_], type_, size)
    check(kernel, *arrays(kernel))


def test_iota_values():
    kernel = LoopsKernel(
        (Buf("y", "i32", 77, "out"), Buf("z", "f32", 77, "out"), Buf("w", "u8", 77, "out")),
        (
            For(
                "i",
                77,
                (
                    Let("v", add(mul(i, ix(3)), ix(-7))),
                    StoreElement("y", i, ScalarOp("cast", (ScalarRef("v", "i64"),), "i32")),
                    StoreElement("z", i, ScalarOp("cast", (ScalarRef("v", "i64"),), "f32")),
                    StoreElement("w", i, ScalarOp("cast", (ScalarRef("v", "i64"),), "u8")),
                ),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


def test_division_and_remainder_of_indices():
    n = 90
    quotient, remainder = ScalarOp("div", (i, ix(7)), "i64"), ScalarOp("rem", (i, ix(7)), "i64")
    kernel = LoopsKernel(
        (Buf("x", "f32", n), Buf("y", "f32", n, "out")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, Load("x", add(mul(remainder, ix(12)), quotient), "f32")),),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize(
    "divisor", [1, 2, 3, 7, 10, 255, 1000, 4096, 1000003, (1 << 31) - 1, 1 << 40, -3]
)
@pytest.mark.parametrize("op", ["div", "rem"])
def test_division_by_a_constant(op, divisor):
    n = 80
    kernel = LoopsKernel(
        (Buf("x", "i64", n), Buf("y", "i64", n, "out")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, ScalarOp(op, (Load("x", i, "i64"), ix(divisor)), "i64")),),
                LoopKind.VECTOR,
            ),
        ),
    )
    rng = np.random.default_rng(5)
    x = rng.integers(-(1 << 63), (1 << 63) - 1, n)
    x[:40] >>= rng.integers(0, 63, 40)
    x[40:52] = np.array(
        [
            0,
            1,
            -1,
            divisor,
            -divisor,
            divisor - 1,
            1 - divisor,
            7 * divisor,
            7 * divisor - 1,
            -(1 << 63),
            (1 << 63) - 1,
            (1 << 53) + 1,
        ]
    )
    check(kernel, x, np.zeros(n, np.int64))


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("target", sorted(INTEGERS))
def test_casts_at_the_edges(source, target):
    edges = [0.0, -0.0, 0.5, -0.5, 0.999, -0.999, np.nan, np.inf, -np.inf, 1e30, -1e30]
    edges += [
        sign * (2.0**k + step)
        for k in (7, 8, 15, 16, 31, 32, 63, 64)
        for sign in (1, -1)
        for step in (-1, 0, 1)
    ]
    x = np.array(edges).astype(np.float32 if source == "f32" else np.float64)
    x = np.concatenate([x, np.nextafter(x, x.dtype.type(0)), np.nextafter(x, x.dtype.type(np.inf))])
    kernel = elementwise("cast", [source], target, x.size)
    check(kernel, x, arrays(kernel)[1])
