"""Values at limits: branch cuts, division by zero, overflow, neighbors, infinities."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp

PARTS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 50.0, -50.0, 1e-3]
BRANCHES = "arcsin arccos arctan arcsinh arccosh arctanh sqrt log log1p log2 log10 exp expm1 sin cos tan sinh cosh tanh"


@pytest.mark.parametrize("name", BRANCHES.split())
def test_the_sign_of_zero_chooses_the_side_of_a_branch_cut(name):
    z = np.array([complex(a, b) for a in PARTS for b in PARTS], np.complex64)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(z.astype(np.complex128)).astype(np.complex64)
    result = np.asarray(getattr(wnp, name)(z))
    np.testing.assert_allclose(result.real, want.real, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.imag, want.imag, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_remainders_of_integers_by_zero_are_zero(dtype):
    x, y = np.array([5, 0, 7], dtype), np.array([0, 0, 2], dtype)
    for name in ("remainder", "fmod"):
        assert np.asarray(getattr(wnp, name)(x, y)).tolist() == [0, 0, 1]
    assert np.asarray(wnp.divmod(x, y)[1]).tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_step_to_their_own_neighbours(dtype):
    x, y = (
        wnp.array([0, 1, -2, 5, 3, wnp.nan, wnp.inf, -0.0], dtype),
        wnp.array([3, -2, 2, 0, 3, 1, 0, -1], dtype),
    )
    result, want = np.asarray(wnp.nextafter(x, y)), np.nextafter(np.asarray(x), np.asarray(y))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.astype(np.float32), want.astype(np.float32))
    assert (np.asarray(wnp.spacing(x[:5])).astype(np.float32) != 0).all()


@pytest.mark.parametrize("jit", [weft.jit, lambda f: f])
def test_python_integers_beyond_a_narrow_type_wrap(jit):
    x = wnp.array([1, 44, 255], np.uint8)
    for f, want in [
        (lambda x: x == 300, [0, 1, 0]),
        (lambda x: x + -1, [0, 43, 254]),
        (lambda x: wnp.where(x > 1, -1, x), [1, 255, 255]),
        (lambda x: wnp.clip(x, 0, 300), [1, 44, 44]),
        (lambda x: 300 - x, [43, 0, 45]),
    ]:
        np.testing.assert_array_equal(jit(f)(x), want)
    with pytest.raises(OverflowError):
        jit(lambda x: x + 2**40)(x)


@pytest.mark.parametrize("name", ["arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"])
@pytest.mark.parametrize("jit", [False, True])
def test_inverse_functions_at_complex_infinities(name, jit):
    """Annex G of the C standard, which NumPy follows, including the signs of zeros."""
    parts = [np.inf, -np.inf, np.nan, 0.0, -0.0, 3.0, -3.0]
    z = np.array(
        [complex(a, b) for a in parts for b in parts if np.isinf(a) or np.isinf(b)], np.complex64
    )
    f = getattr(wnp, name)
    with np.errstate(invalid="ignore"):
        got, want = np.asarray(weft.jit(f)(z) if jit else f(z)), getattr(np, name)(z)
    for mine, theirs in ((got.real, want.real), (got.imag, want.imag)):
        comparable = ~(
            np.isnan(z.real) | np.isnan(z.imag)
        )  # where a part is NaN signs are anyone's
        np.testing.assert_allclose(np.abs(mine), np.abs(theirs), rtol=1e-6)
        np.testing.assert_array_equal(np.signbit(mine[comparable]), np.signbit(theirs[comparable]))
