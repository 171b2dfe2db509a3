"""Complex functions: error in units of the last place of the modulus, and the values of C99 and
NumPy at zeros and infinities."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.accuracy import WIDE_ENOUGH, native
from weft._engine.ir.loops import REAL_OF
from weft._engine.ir.loops_eval import DTYPES

WIDE = np.clongdouble


def _log1p(z):
    near = np.log1p(z.real * (2 + z.real) + z.imag**2) / 2
    return np.where(np.abs(z) < 0.5, near, np.log(np.abs(1 + z))) + 1j * np.arctan2(
        z.imag, 1 + z.real
    )


def _expm1(z):
    return (
        np.expm1(z.real) * np.cos(z.imag)
        - 2 * np.sin(z.imag / 2) ** 2
        + 1j * np.exp(z.real) * np.sin(z.imag)
    )


#: op -> (reference, largest error, largest real parts tested in c64 and c128)
FUNCTIONS = {
    "exp": (np.exp, 2.5, (88.5, 709.5)),
    "log": (np.log, 2, None),
    "sqrt": (np.sqrt, 1.5, None),
    "sin": (np.sin, 2.5, None),
    "cos": (np.cos, 2.5, None),
    "tan": (np.tan, 3, None),
    "sinh": (np.sinh, 2.5, (89, 710)),
    "cosh": (np.cosh, 2.5, (89, 710)),
    "tanh": (np.tanh, 3, (80, 340)),
    "rsqrt": (lambda z: 1 / np.sqrt(z), 2, None),
    "abs": (np.abs, 1.5, None),
    "log1p": (_log1p, 2.5, None),
    "expm1": (_expm1, 3.5, None),
    "logistic": (lambda z: 1 / (1 + np.exp(-z)), 3, (80, 700)),
    "sign": (lambda z: z / np.abs(z), 1.5, None),
}
TYPES = ("c64", "c128")


def run(op: str, type_: str, z: np.ndarray) -> np.ndarray:
    return native(op, type_, z, result=REAL_OF[type_] if op == "abs" else None)


def made(type_: str, real, imag) -> np.ndarray:
    z = np.empty(np.shape(real), DTYPES[type_])
    z.real, z.imag = real, imag
    return z


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_error_of_the_modulus(op, type_):
    if type_ == "c128" and not WIDE_ENOUGH:
        pytest.skip("long double has no more bits than f64 here")
    exact, bound, reach = FUNCTIONS[op]
    rng = np.random.default_rng(3)
    real, imag = rng.normal(size=(2, 4000)) * 3
    real[2000:] *= 10.0 ** rng.uniform(-6, 0.5, 2000)
    real[3000:3500], imag[3000:3500] = (
        np.cos(imag[3000:3500]),
        np.sin(imag[3000:3500]),
    )  # near the unit circle
    if reach is not None:
        real[3500:] = rng.uniform(-1, 1, 500) * reach[TYPES.index(type_)]
    z = made(type_, real, imag)
    with np.errstate(all="ignore"):
        want = exact(z.astype(WIDE))
        error = (
            np.abs(run(op, type_, z).astype(WIDE) - want)
            / np.abs(want)
            / np.finfo(DTYPES[type_]).eps
        )
    assert error.max() <= bound, (op, error.max(), z[error.argmax()])


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize(
    "op", ["exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "abs"]
)
@np.errstate(all="ignore")
def test_special_values(op, type_):
    """Signs of zeros are checked where the argument is finite, and signs of infinities where the
    other part is a number."""
    great = 1e30 if type_ == "c64" else 1e200
    parts = [0.0, -0.0, 1.0, -1.0, 0.5, -3.0, np.inf, -np.inf, np.nan, 1e-30, great]
    real, imag = (grid.ravel() for grid in np.meshgrid(parts, parts))
    z = made(type_, real, imag)
    got, want = run(op, type_, z), FUNCTIONS[op][0](z)
    for x, y in ((got.real, want.real), (got.imag, want.imag)):
        np.testing.assert_array_equal(
            np.isnan(x), np.isnan(y), err_msg=str(z[np.isnan(x) != np.isnan(y)])
        )
        x, y = (np.where(np.isnan(want) & np.isinf(v), np.inf, v) for v in (x, y))
        scale = (
            np.where(np.isfinite(want), np.abs(want), np.abs(y)) * np.finfo(DTYPES[type_]).eps * 4
        )
        far = ~np.isnan(y) & (x != y) & ~(np.abs(x - y) <= scale)
        assert not far.any(), (z[far], got[far], want[far])
        zero = np.isfinite(z) & (x == 0) & (y == 0)
        np.testing.assert_array_equal(
            np.signbit(x[zero]), np.signbit(y[zero]), err_msg=str(z[zero])
        )


@np.errstate(all="ignore")
def test_products_that_exist_do_not_overflow_on_the_way():
    z = made("c64", [89.0, 95.0, 90.0, -80.0], [1.5707963, 1.5707964, 0.0, 1.0])
    for op in ("exp", "sinh", "cosh"):
        want, got = (
            FUNCTIONS[op][0](z.astype(np.complex128)).astype(np.complex64),
            run(op, "c64", z),
        )
        np.testing.assert_allclose(got.real, want.real, rtol=1e-5)
        np.testing.assert_allclose(got.imag, want.imag, rtol=1e-5)
