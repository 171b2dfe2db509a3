"""Reductions, argmax and argmin, running reductions: the laws, corner cases and errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.harness.laws import Case, assert_close, check_all, run
from weft import lax as r
from weft._engine.core.stage import stage
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.reduce import highest, lowest
from weft._engine.util.errors import ShapeError

rng = np.random.default_rng(0)
X = rng.normal(size=(4, 6, 3))
INTS = rng.integers(-9, 9, size=(4, 6, 3)).astype(np.int32)
FLAGS = rng.integers(0, 2, size=(4, 6, 3)).astype(bool)
WITH_ZEROS = np.where(rng.random((4, 6)) < 0.2, 0.0, rng.normal(size=(4, 6)))

REDUCTIONS = [
    ("reduce_sum", np.sum),
    ("reduce_prod", np.prod),
    ("reduce_max", np.max),
    ("reduce_min", np.min),
]
BITWISE = [
    ("reduce_and", np.bitwise_and),
    ("reduce_or", np.bitwise_or),
    ("reduce_xor", np.bitwise_xor),
]
RUNNING = [
    ("cumsum", np.cumsum),
    ("cumprod", np.cumprod),
    ("cummax", np.maximum.accumulate),
    ("cummin", np.minimum.accumulate),
    ("cumlogsumexp", np.logaddexp.accumulate),
]


def reverse_of(fn):
    return lambda x, axis: np.flip(fn(np.flip(x, axis), axis=axis), axis)


CASES = [
    *[
        Case(
            f"{n} over {axes}",
            lambda x, n=n, axes=axes: getattr(r, n)(x, axes),
            (X,),
            lambda x, f=f, axes=axes: f(x, axis=axes),
            linear=((0,),) if n == "reduce_sum" else (),
        )
        for n, f in REDUCTIONS
        for axes in [(1,), (0, 2), (0, 1, 2), ()]
    ],
    *[
        Case(
            f"{n} integers",
            lambda x, n=n: getattr(r, n)(x, (0, 2)),
            (INTS,),
            lambda x, f=f: f(
                x, axis=(0, 2), **({} if f in (np.max, np.min) else {"dtype": np.int32})
            ),
        )
        for n, f in REDUCTIONS
    ],
    *[
        Case(
            f"{n} of {x.dtype}",
            lambda x, n=n: getattr(r, n)(x, (1,)),
            (x,),
            lambda x, f=f: f.reduce(x, axis=1),
        )
        for n, f in BITWISE
        for x in (INTS, FLAGS)
    ],
    Case(
        "reduce_prod with zeros",
        lambda x: r.reduce_prod(x, (1,)),
        (WITH_ZEROS,),
        lambda x: np.prod(x, axis=1),
    ),
    Case(
        "reduce_max of bools",
        lambda x: r.reduce_max(x, (1,)),
        (FLAGS,),
        lambda x: np.max(x, axis=1),
    ),
    Case(
        "argmax",
        lambda x: r.argmax(x, 1, np.int32),
        (X,),
        lambda x: np.argmax(x, 1).astype(np.int32),
    ),
    Case("argmin", lambda x: r.argmin(x, 2, np.int64), (X,), lambda x: np.argmin(x, 2)),
    *[
        Case(
            f"{n} along {axis}",
            lambda x, n=n, axis=axis: getattr(r, n)(x, axis),
            (X,),
            lambda x, f=f, axis=axis: f(x, axis=axis),
            linear=((0,),) if n == "cumsum" else (),
        )
        for n, f in RUNNING
        for axis in (0, 1)
    ],
    *[
        Case(
            f"{n} reversed",
            lambda x, n=n: getattr(r, n)(x, 1, reverse=True),
            (X,),
            lambda x, f=f: reverse_of(f)(x, 1),
            linear=((0,),) if n == "cumsum" else (),
        )
        for n, f in RUNNING
    ],
    Case(
        "cumprod with zeros",
        lambda x: r.cumprod(x, 1),
        (WITH_ZEROS,),
        lambda x: np.cumprod(x, axis=1),
    ),
    Case(
        "cumsum of integers",
        lambda x: r.cumsum(x, 1),
        (INTS,),
        lambda x: np.cumsum(x, axis=1, dtype=np.int32),
    ),
    Case(
        "cummax of bools",
        lambda x: r.cummax(x, 1),
        (FLAGS,),
        lambda x: np.maximum.accumulate(x, axis=1),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_laws(case):
    check_all(case)


def one(fn, *args):
    (out,) = run(fn, args)
    return out


def test_nan_wins_and_the_first_of_equals_is_taken():
    x = np.float32([1, np.nan, 3, np.nan])
    assert np.isnan(one(lambda v: r.reduce_max(v, (0,)), x)) and np.isnan(
        one(lambda v: r.reduce_min(v, (0,)), x)
    )
    assert (
        one(lambda v: r.argmax(v, 0, np.int32), x) == 1
        and one(lambda v: r.argmin(v, 0, np.int32), x) == 1
    )
    ties = np.float32([2, 5, 5, 2])
    assert (
        one(lambda v: r.argmax(v, 0, np.int32), ties) == 1
        and one(lambda v: r.argmin(v, 0, np.int32), ties) == 0
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_small_floats_accumulate_in_float32(dtype):
    x = np.full(4096, 1.0, dtype)
    assert one(lambda v: r.reduce_sum(v, (0,)), x) == dtype(4096)
    assert one(lambda v: r.cumsum(v), x)[-1] == dtype(4096)


def test_nothing_reduces_to_the_neutral_element():
    empty = np.zeros((0, 2), np.float32)
    assert one(lambda v: r.reduce_max(v, (0,)), empty).tolist() == [-np.inf] * 2
    assert one(lambda v: r.reduce_min(v, (0,)), empty).tolist() == [np.inf] * 2
    assert one(lambda v: r.reduce_sum(v, (0,)), empty).tolist() == [0, 0]
    assert one(lambda v: r.reduce_prod(v, (0,)), empty).tolist() == [1, 1]
    assert one(lambda v: r.reduce_max(v, (0,)), np.zeros((0,), np.int8)) == -128
    assert one(lambda v: r.cumsum(v, 0), empty).shape == (0, 2)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint32", "float32", "bfloat16", "float8_e4m3fn"]
)
def test_neutral_elements_are_below_and_above_all(dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    low, high = (np.asarray(f(dtype)).astype(dtype) for f in (lowest, highest))
    some = np.asarray([0, 1]).astype(dtype)
    assert (low <= some).all() and (high >= some).all()


def test_ties_share_the_tangent():
    from weft._engine.transforms.jvp import jvp_flat

    x = np.float32([1, 2, 2])
    _, (t,) = jvp_flat(lambda v: [r.reduce_max(v, (0,))], [x], [np.float32([5, 1, 3])])
    assert_close(t, np.float32(2))


@pytest.mark.parametrize(
    "fn, message",
    [
        (lambda x: r.reduce_sum(x, (2,)), "out of bounds"),
        (lambda x: r.reduce_sum(x, (0, 0)), "duplicate"),
        (lambda x: r.cumsum(x, 3), "out of bounds"),
    ],
)
def test_shape_errors(fn, message):
    with pytest.raises(ShapeError, match=message):
        stage(lambda x: [fn(x)], [ShapedArray((2, 3), np.float32)])


def test_other_errors():
    for axis in (-1, 2):
        with pytest.raises(ValueError, match=f"Invalid axis {axis} for operand of argmin"):
            stage(
                lambda x, axis=axis: [r.argmin(x, axis, np.int32)],
                [ShapedArray((2, 3), np.float32)],
            )
    with pytest.raises(ShapeError, match="no elements to choose from"):
        stage(lambda x: [r.argmax(x, 0, np.int32)], [ShapedArray((0,), np.float32)])
    with pytest.raises(TypeError, match="does not accept dtype bool"):
        stage(lambda x: [r.reduce_sum(x, (0,))], [ShapedArray((2,), np.bool_)])
    with pytest.raises(TypeError, match="index_dtype must be an integer"):
        stage(lambda x: [r.argmax(x, 0, np.float32)], [ShapedArray((2,), np.float32)])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: weft.lax.iota("float32", 5).sum() * x,
        lambda x: weft.lax.broadcasted_iota("int32", (3, 4), 1).sum(0) + x,
        lambda x: weft.lax.rev(weft.lax.iota("float32", 5), (0,)).sum() * x,
        lambda x: weft.lax.iota("float32", 6).reshape(2, 3).sum(1) * x,
    ],
)
def test_sums_of_what_has_no_operand(make):
    np.testing.assert_array_equal(weft.jit(make)(2.0), make(2.0))
