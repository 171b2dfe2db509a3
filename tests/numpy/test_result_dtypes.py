"""Dtypes of results: exponents, quantiles, sums, positions, weak bools, narrow floats."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.util.config import Override


def test_numpy_integers_are_constant_exponents():
    """As with Python integers, the result has the type of the base."""
    x = wnp.array([1, 2, 3], np.uint8)
    for y in (2, np.int64(2), np.int32(2), np.array(2), wnp.array(2), wnp.int32(2), wnp.uint8(2)):
        assert (x**y).dtype == np.uint8 and (x**y).tolist() == [1, 4, 9]
        assert [e.primitive.name for e in weft.make_jaxpr(lambda x, y=y: x**y)(x).eqns] == [
            "integer_pow"
        ]
        assert weft.jit(lambda x, y: x**y)(np.float32(3), y) == 9
    for y in (-2, np.int8(-2), wnp.array(-2)):
        assert float(2.0 ** wnp.asarray(y)) == float(wnp.power(2.0, y)) == 0.25
        for base in (x, wnp.array([True])):
            with pytest.raises(TypeError, match="negative powers"):
                base**y
    assert (x ** wnp.array([2])).dtype == wnp.result_type(np.uint8, np.int32) and (
        wnp.array(2j) ** True
    ).item() == 2j
    assert (
        float(wnp.power(2.5, np.int64(2)))
        == float(weft.jit(lambda: wnp.power(2.5, True))()) * 2.5
        == 6.25
    )


def test_quantiles_have_the_type_of_the_array():
    x = wnp.array([1.5, 2.5, -3, 4], "bfloat16")
    for method in ("linear", "lower", "higher", "nearest", "midpoint"):
        out = wnp.quantile(x, wnp.array([0.0, 0.5, 1.0]), method=method)
        assert out.dtype == x.dtype and out.astype(float).tolist()[::2] == [-3.0, 4.0]
    assert wnp.quantile(wnp.array([1, 2]), wnp.array(0.5, np.float16)).dtype == np.float32
    assert wnp.quantile(wnp.array([0.0, 1, 2, 3]), 0.5, method="nearest") == 1.0


def test_cumulative_sums_of_narrow_integers_are_wide():
    assert wnp.cumulative_sum(wnp.array([100, 100], np.int8)).tolist() == [100, 200]
    assert (
        wnp.cumulative_sum(wnp.array([200, 100], np.uint8), include_initial=True).dtype == np.uint32
    )


def test_places_that_are_always_narrow():
    with Override(enable_x64=True):
        x = wnp.arange(5.0)
        assert {
            wnp.searchsorted(x, x).dtype,
            wnp.digitize(x, x).dtype,
            wnp.argpartition(x, 2).dtype,
        } == {np.dtype("i4")}
        assert wnp.argsort(x).dtype == np.int64


def test_dtypes_that_do_not_widen():
    bools = np.array([True, False])
    for x64 in (False, True):
        with Override(enable_x64=x64):
            assert wnp.tri(3).dtype == np.float32
            assert [
                str(wnp.angle(wnp.ones(2, name), deg).dtype)
                for name in ("bfloat16", "float16")
                for deg in (False, True)
            ] == ["bfloat16", "bfloat16", "float16", "float16"]
            results = [
                *wnp.divmod(bools, bools),
                wnp.fmod(bools, bools),
                wnp.square(bools),
                wnp.left_shift(bools, bools),
                wnp.power(bools, bools),
                wnp.power(bools, 3),
                wnp.power(True, bools),
            ]
            assert {x.dtype for x in results} == {np.dtype("i4")}
            widest = wnp.power(2.0, bools)
            assert widest.weak_type and widest.dtype == (np.float64 if x64 else np.float32)
            assert not wnp.power(2, bools).weak_type


def test_logarithms_of_numbers_have_a_type_of_their_own():
    half = wnp.ones(2, "bfloat16")
    assert (wnp.log2(8.0) * half).dtype == (wnp.log10(8) * half).dtype == np.float32 and (
        wnp.log(8.0) * half
    ).dtype == half.dtype


def test_differences_between_ends_keep_their_dtype():
    got = wnp.ediff1d(wnp.array([1, 4, 2]), to_end=0.5, to_begin=wnp.array([7.9, 2]))
    assert got.tolist() == [7, 2, 3, -2, 0] and got.dtype == np.int32


@pytest.mark.parametrize(
    "f, weak",
    [
        (lambda: wnp.equal(1, 1), True),
        (lambda: wnp.less(wnp.asarray(1.0), 2), True),
        (lambda: wnp.less(np.float32(1), 2), False),
        (lambda: wnp.isnan(1.0), True),
        (lambda: wnp.isfinite(1.0), True),
        (lambda: wnp.logical_not(2), True),
        (lambda: wnp.iscomplex(2j), True),
        (lambda: weft.lax.lt(1, 2), True),
        (lambda: wnp.isinf(1.0), False),
        (lambda: wnp.isclose(1, 1), False),
        (lambda: wnp.all(1), False),
        (lambda: wnp.isin(1, 1), False),
        (lambda: wnp.array_equal(1, 1), False),
        (lambda: wnp.sinc(0.5), True),
    ],
)
def test_comparisons_of_numbers_give_weak_bools(f, weak):
    assert f().weak_type is weft.eval_shape(f).weak_type is weak


def test_weak_bools_mean_what_bools_do():
    yes = wnp.equal(1, 1)
    assert (
        (yes + yes).dtype == bool
        and (yes * np.int8(3)).dtype == np.int8
        and wnp.where(yes, 1, 2) == 1
    )
    assert weft.lax.while_loop(lambda c: ~c, lambda c: wnp.equal(1, 1), False) and weft.lax.cond(
        yes, lambda: True, lambda: False
    )


@pytest.mark.parametrize("dtype", [wnp.bfloat16, np.float16, wnp.float8_e4m3fn])
@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "exp2",
        "expm1",
        "sqrt",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "arctan",
        "arcsinh",
        "deg2rad",
        "rad2deg",
        "cbrt",
        "fabs",
        "sinc",
        "i0",
        "nan_to_num",
    ],
)
def test_functions_of_narrow_floats(name, dtype):
    x = (
        wnp.linspace(-1, 1, 9).astype(dtype)
        if name != "sqrt"
        else wnp.linspace(0, 1, 9).astype(dtype)
    )
    got, want = getattr(wnp, name)(x), getattr(wnp, name)(x.astype(np.float32))
    assert got.dtype == dtype
    eps = float(wnp.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(got, np.float32), want, rtol=4 * eps, atol=4 * eps)
