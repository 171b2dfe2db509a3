"""The NumPy references of vector functions are fully accurate at subnormal, tiny and huge
arguments, as the compiled functions are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
from tests.codegen.accuracy import DTYPES, EXACT, FUNCTIONS, LEAST, WIDE, error_in_ulp
from weft.scipy import special

TINY = {
    "f32": (1e-45, 1e-42, 1e-39, 1.2e-38, 1e-30),
    "f64": (5e-324, 1e-320, 1e-310, 2.3e-308, 1e-200),
}
#: well inside the bounds of overflow; beyond, references have an error of a few thousand ulp
ULPS = 4000
UNARY = [
    "lgamma",
    "digamma",
    "erf",
    "erfc",
    "erf_inv",
    "expm1",
    "log1p",
    "log",
    "sqrt",
    "rsqrt",
    "cbrt",
    "asinh",
    "atanh",
    "sinh",
    "tanh",
    "bessel_i0e",
    "bessel_i1e",
    "log_ndtr",
    "normal_hazard",
    "ndtri",
]


def _errors(name: str, type_: str, *args: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        wide = [x.astype(WIDE) for x in args]
        least = LEAST[name](*wide) if name in LEAST else 0.0
        exact = EXACT.get(name, FUNCTIONS[name].reference)(*wide).astype(WIDE)
        return error_in_ulp(np.asarray(FUNCTIONS[name].reference(*args)), exact, least)


@pytest.mark.parametrize("type_", TINY)
@pytest.mark.parametrize("name", UNARY)
def test_references_near_zero(name, type_):
    sizes = np.array(TINY[type_])
    x = np.concatenate([sizes, -sizes, [0.0, -0.0]]).astype(DTYPES[type_])
    errors = _errors(name, type_, x)
    assert errors.max() < ULPS, dict(zip(x.tolist(), errors.tolist()))


@pytest.mark.parametrize("type_", TINY)
@pytest.mark.parametrize(
    "name", ["igamma", "igammac", "zeta", "polygamma", "pow", "atan2", "logaddexp"]
)
def test_references_of_pairs_near_zero(name, type_):
    other = (
        (2.0, 3.0, 200.0) if name in ("zeta", "polygamma") else (*TINY[type_], 0.5, 1.0, 3.0, 40.0)
    )
    a, x = np.array(list(itertools.product(other, (*TINY[type_], 1.5)))).astype(DTYPES[type_]).T
    errors = _errors(name, type_, a, x)
    assert errors.max() < ULPS, sorted(zip(errors, a.tolist(), x.tolist()))[-3:]


def test_the_reference_backend_has_lgamma_of_subnormal_numbers():
    x = np.array([5e-324, 1e-310, -1e-310, 2e-308, -np.inf])
    with weft.enable_x64(True):
        got = weft.jit(special.gammaln, backend="reference")(x)
    np.testing.assert_allclose(got, np.where(np.isinf(x), np.inf, -np.log(np.abs(x))), 1e-15)


@pytest.mark.parametrize(
    "order, x", [(200.0, 1.5), (65504.0, 1.5), (170.0, 1e300), (1e6, 400000.0)]
)
def test_polygamma_where_the_factorial_overflows(order, x):
    args = np.array([order]), np.array([x])
    assert _errors("polygamma", "f64", *args).max() < 1e6
    with np.errstate(all="ignore"):
        assert not np.isnan(FUNCTIONS["polygamma"].reference(*args)).any()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_poles_have_no_limit(dtype, backend):
    at = np.array([-np.inf], dtype)
    for fun in (special.digamma, lambda x: special.polygamma(1, x), lambda x: special.zeta(2, x)):
        assert np.isnan(weft.jit(fun, backend=backend)(at)).all()
