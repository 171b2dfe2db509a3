"""Every number type through elementwise kernels, reductions of all nests, running sums and matmuls."""

import ml_dtypes
import numpy as np
import pytest

import weft._engine.ops.elementwise as E
import weft._engine.ops.layout as L
import weft._engine.ops.reduce as R
from tests.compiler.machine import check
from tests.compiler.test_fusion import dot, staged

TYPES = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    ml_dtypes.bfloat16,
]
SHAPES = [(6, 20), (40, 33), (70, 1100)]


def numbers(shape, dtype):
    rng = np.random.default_rng(0)
    return rng.integers(0, 4, shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_all_kinds_of_kernels(dtype, shape):
    dtype = np.dtype(dtype)

    def fn(x, y):
        return [
            E.add(E.mul(x, y), x),
            R.reduce_sum(x, axes=(1,)),
            R.reduce_max(x, axes=(0,)),
            R.reduce_sum(y, axes=(0,)),
            R.reduce_min(E.add(x, y), axes=(0, 1)),
            R.argmax(x, 0, np.int32),
            R.cumsum(x, axis=1, reverse=False),
            E.select_n(E.lt(x, y), x, y),
            L.transpose(E.max(x, y), permutation=(1, 0)),
        ]

    args = [numbers(shape, dtype), numbers(shape, dtype)]
    check(staged(fn, [shape, shape], dtype), *args, rtol=1e-5)
    check(
        staged(lambda x, y: [dot(x, L.transpose(y, permutation=(1, 0)))], [shape, shape], dtype),
        *args,
        rtol=1e-5,
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_nan_infinity_and_signed_zero_in_reductions(axes, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype("f4")
    x[3, 5], x[2, 7], x[4, 9] = np.nan, np.inf, -np.inf
    check(
        staged(
            lambda x: [
                R.reduce_max(x, axes=axes),
                R.reduce_min(x, axes=axes),
                R.reduce_sum(E.abs(x), axes=axes),
            ],
            [shape],
        ),
        x,
        rtol=1e-5,
    )


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)], ids=str)
def test_reductions_of_nothing(shape):
    fn = lambda x: [
        R.reduce_sum(x, axes=(0,)),
        R.reduce_max(x, axes=(1,)),
        R.reduce_prod(x, axes=(0, 1)),
        R.cumsum(x, axis=0, reverse=False),
        dot(x, L.transpose(x, permutation=(1, 0))),
    ]
    check(staged(fn, [shape]), np.zeros(shape, "f4"))
