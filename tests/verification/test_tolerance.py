"""The tolerance model: what counts as rounding and what as an error."""

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.verification.tolerance import (
    COARSE_UNITS,
    ResultPrecision,
    ResultTolerance,
    difference,
    epsilon_of,
    precisions,
)

F32 = ResultPrecision(2.0**-23)


def precision_of(fun, *args):
    return precisions(weft.make_jaxpr(fun)(*args))


def test_precision_is_that_of_the_coarsest_dtype_on_the_way():
    def fun(x, n):
        return (
            x.astype(wnp.bfloat16).astype(wnp.float32),
            x + 1,
            n * 2,
            wnp.argmax(x),
            wnp.sum(x.astype(wnp.float16)),
        )

    precisions = precision_of(fun, wnp.ones(5), wnp.arange(3))
    assert [p.epsilon for p in precisions] == [2.0**-7, 2.0**-23, 0.0, 2.0**-23, 2.0**-10]
    assert [p.overflows for p in precisions] == [False, False, False, False, True]


LENGTHS = [
    (lambda x: x.sum(), 6 * 700), (lambda x: x.sum(0), 6), (lambda x: x @ x.T, 700), (lambda x: wnp.cumsum(x, 1), 700),
    (lambda x: x * 2, 1), (lambda x: weft.lax.scan(lambda c, r: (c + r, None), x[0], x)[0], 6), (lambda x: weft.jit(wnp.sum)(x), 4200),
]  # fmt: skip


@pytest.mark.parametrize("fun, length", LENGTHS)
def test_precision_has_the_length_of_the_longest_reduction(fun, length):
    (precision,) = precision_of(fun, wnp.ones((6, 700)))
    assert precision.length >= length and precision.length <= max(length, 1) * 10


def test_long_reductions_may_differ_by_more():
    want, got = np.float32([1e6]), np.float32([1e6 * (1 + 1e-3)])
    assert difference([got], [want], ResultTolerance([want], [F32])) is not None
    assert (
        difference([got], [want], ResultTolerance([want], [ResultPrecision(2.0**-23, 10**8)]))
        is None
    )


def test_units_are_relative_to_the_result():
    want, got = np.float32([1e-9, 2e-9]), np.float32([1e-9, 2.2e-9])
    difference_found = difference([got], [want], ResultTolerance([want], [F32]))
    assert (
        difference_found.result,
        difference_found.index,
        difference_found.got,
        difference_found.want,
        difference_found.count,
    ) == (
        0,
        (1,),
        got[1],
        want[1],
        1,
    )
    assert difference([got], [want], ResultTolerance([want], [F32], min_magnitude=1.0)) is None


@pytest.mark.parametrize(
    "dtype",
    [np.float16, np.float32, np.float64, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2],
)
def test_subnormal_numbers_have_the_unit_of_the_least_normal_one(dtype):
    least = ml_dtypes.finfo(dtype).smallest_subnormal
    want, far = (
        np.asarray([least]).astype(dtype),
        np.asarray([ml_dtypes.finfo(dtype).smallest_normal * 16]).astype(dtype),
    )
    tolerance = ResultTolerance([want], [ResultPrecision(epsilon_of(dtype))])
    assert difference([(2 * want).astype(dtype)], [want], tolerance) is None
    assert difference([far], [want], tolerance) is not None


def test_noise_widens_what_may_differ():
    want, got = np.float32([1.0, 0.0]), np.float32([1.0, 0.01])
    runs = []

    def repeat(k):
        runs.append(k)
        return [want + np.float32(0.002 * (-1) ** k)]

    assert difference([got], [want], ResultTolerance([want], [F32], repeat)) is None and runs == [
        0,
        1,
        2,
        3,
    ]
    assert (
        difference(
            [got], [want], ResultTolerance([want], [F32], lambda k: repeat(k) if k > 9 else [want])
        )
        is None
        and runs[-1] == 15
    )
    assert difference([got + 1], [want], ResultTolerance([want], [F32], repeat)) is not None
    assert (
        difference(
            [want], [want], ResultTolerance([want], [F32], lambda k: pytest.fail("not needed"))
        )
        is None
    )


def test_nan_and_infinities_are_errors_unless_noise_makes_them():
    want = np.float32([1.0, np.inf, np.nan])
    for got in ([np.nan, np.inf, np.nan], [1.0, -np.inf, np.nan], [1.0, np.inf, 0.0]):
        got = np.float32(got)
        assert difference([got], [want], ResultTolerance([want], [F32])) is not None
        assert (
            difference([got], [want], ResultTolerance([want], [F32], lambda k, got=got: [got]))
            is None
        )


def test_integers_differ_only_where_noise_changes_them():
    want, got = np.int32([3, 7]), np.int32([3, 8])
    sometimes = lambda k: [np.int32([3, 9]) if k == 11 else want]
    assert difference([got], [want], ResultTolerance([want], [F32], sometimes)) is None
    assert difference(
        [got], [want], ResultTolerance([want], [F32], lambda k: [np.int32([4, 7])])
    ).index == (1,)
    assert difference(
        [got], [want], ResultTolerance([want], [ResultPrecision()], sometimes)
    ).is_exact


def test_exact_results_keep_their_bits():
    want = np.float32([0.0, np.nan, 1.0])
    close = np.float32([0.0, np.nan, np.nextafter(np.float32(1), np.float32(2))])
    assert difference([close], [want], ResultTolerance([want], [F32]), [True]).index == (2,)
    assert difference([-want], [want], None).index == (0,)
    assert difference([want], [want], None) is None


def test_coarse_dtypes_have_fewer_units():
    want = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    rounded = ResultPrecision(epsilon_of(want.dtype))
    assert rounded.epsilon == 2.0**-7 and COARSE_UNITS * rounded.epsilon < 0.2
    assert (
        difference([want + np.array(0.125, want.dtype)], [want], ResultTolerance([want], [rounded]))
        is None
    )
    assert (
        difference([want + np.array(1, want.dtype)], [want], ResultTolerance([want], [rounded]))
        is not None
    )
