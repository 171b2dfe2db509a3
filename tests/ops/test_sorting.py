"""sort and top_k: the laws, the order of unordered values such as NaN, and the errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.harness.laws import Case, check_all, run
from weft._engine.core.stage import stage
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.sorting import sort, take_along, top_k
from weft._engine.util.errors import ShapeError

rng = np.random.default_rng(0)
X = rng.permutation(24).reshape(4, 6) / 7.0
TIES = rng.integers(0, 3, size=(4, 6)).astype(np.int32)

CASES = [
    Case("sort", sort, (X,), lambda x: np.sort(x, -1)),
    Case("sort first dim", lambda x: sort(x, 0), (X,), lambda x: np.sort(x, 0)),
    Case("sort integers", sort, (TIES,), lambda x: np.sort(x, -1)),
    Case(
        "sort complex", sort, (X[::-1] // 2 + 1j * X,), lambda x: np.sort(x, -1), diff=()
    ),  # differences cross ties
    Case(
        "sort with payload",
        lambda k, x: sort((k, x), 1),
        (TIES, X),
        lambda k, x: [np.sort(k, 1), np.take_along_axis(x, np.argsort(k, 1, kind="stable"), 1)],
    ),
    Case(
        "sort by two keys",
        lambda a, x: sort((a, x), 1, num_keys=2),
        (TIES, X),
        lambda a, x: [np.take_along_axis(v, np.lexsort((x, a), axis=1), 1) for v in (a, x)],
    ),
    Case(
        "top_k",
        lambda x: top_k(x, 2),
        (X,),
        lambda x: [-np.sort(-x, 1)[:, :2], np.argsort(-x, 1)[:, :2].astype(np.int32)],
    ),
    Case(
        "top_k first dim",
        lambda x: top_k(x, 3, axis=0),
        (X,),
        lambda x: [-np.sort(-x, 0)[:3], np.argsort(-x, 0)[:3].astype(np.int32)],
    ),
    Case(
        "take_along",
        lambda x: take_along(x, np.argsort(X, 1).astype(np.int32), 1),
        (X,),
        lambda x: np.sort(x, 1),
        linear=((0,),),
        batch=(0,),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_laws(case):
    check_all(case)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_nan_is_last_and_zeros_are_equal(dtype):
    x = np.array([np.nan, 0.0, -0.0, 1.0, -np.inf], dtype)
    (got,) = run(sort, [x])
    wide = got.astype(np.float32)
    assert (
        wide[0] == -np.inf
        and np.signbit(wide[1:3]).tolist() == [False, True]
        and wide[3] == 1
        and np.isnan(wide[4])
    )
    values, indices = run(lambda v: top_k(v, 3), [x])
    assert np.isnan(values.astype(np.float32)[0]) and indices.tolist() == [0, 3, 1]


def test_equals_keep_their_order():
    (_, order) = run(lambda k, i: sort((k, i)), [np.int32([1, 0, 1, 0]), np.int32([0, 1, 2, 3])])
    assert order.tolist() == [1, 3, 0, 2]
    assert run(lambda v: top_k(v, 3), [np.int32([1, 3, 3, 2])])[1].tolist() == [1, 2, 3]


def test_integers_beyond_the_range_of_floats_sort_exactly():
    x = np.uint32([2**32 - 1, 2**32 - 2, 0])
    assert run(sort, [x])[0].tolist() == sorted(x.tolist())


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0)])
def test_edge_shapes(shape):
    (got,) = run(sort, [np.zeros(shape, np.float32)])
    assert got.shape == shape


def test_errors():
    a, b = ShapedArray((3,), np.float32), ShapedArray((4,), np.float32)
    staged = lambda fn, *avals: stage(lambda *xs: list(fn(*xs)), avals)
    with pytest.raises(ShapeError, match="sort: operands differ in shape"):
        staged(lambda x, y: sort((x, y)), a, b)
    with pytest.raises(ValueError, match="num_keys must be from 1"):
        staged(lambda x: sort((x,), num_keys=2), a)
    with pytest.raises(ShapeError, match="k = 4 must be from 0"):
        staged(lambda x: top_k(x, 4), a)
    with pytest.raises(ShapeError, match="out of bounds"):
        staged(lambda x: [sort(x, 1)], a)
