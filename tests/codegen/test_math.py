"""The vector math library against references of higher precision: worst error in ulp, special values, every width."""

from __future__ import annotations

import ctypes
import ctypes.util

import numpy as np
import pytest
import scipy.special as special

from tests.codegen.harness import run_native, ulps
from weft.codegen import target
from weft.ir.loops import BINARY_MATH, UNARY_MATH, Buf, For, Index, Kernel, Load, Op, Store
from weft.ir.loops_eval import DTYPES

WIDE = np.longdouble


def _unary(fn):
    return lambda x: fn(x.astype(WIDE))


def _libm(name):
    """A long double function of the C library, on arrays."""
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    function.restype, function.argtypes = ctypes.c_longdouble, [ctypes.c_longdouble]
    return lambda x: np.array([function(float(v)) for v in x], np.float64)


#: op -> (reference on arrays, ranges to sample, worst ulp in f32, in f64)
UNARY = {
    "exp": (_unary(np.exp), [(-110, 95), (-1, 1), (-750, 715)], 1.5, 1.5),
    "exp2": (_unary(np.exp2), [(-155, 130), (-1, 1), (-1080, 1030)], 1.5, 1.5),
    "expm1": (_unary(np.expm1), [(-110, 95), (-1, 1), (-1e-5, 1e-5), (-60, 715)], 2, 2),
    "log": (_unary(np.log), [(0, 4), (0, 1e30), (0.9, 1.1), (0, 1e-37)], 1.5, 1.5),
    "log1p": (_unary(np.log1p), [(-1, 4), (0, 1e30), (-0.01, 0.01), (-1e-7, 1e-7)], 2, 2),
    "log2": (_unary(np.log2), [(0, 4), (0, 1e30), (0.9, 1.1), (0, 1e-37)], 2, 2),
    "sqrt": (_unary(np.sqrt), [(0, 10), (0, 1e30)], 0.51, 0.51),
    "rsqrt": (lambda x: 1 / np.sqrt(x.astype(WIDE)), [(0, 10), (0, 1e30)], 2, 2),
    "cbrt": (_unary(np.cbrt), [(-10, 10), (-1e30, 1e30), (-1e-38, 1e-38)], 1, 1.5),
    "sin": (_unary(np.sin), [(-4, 4), (-100, 100), (-1e4, 1e4), (-1e7, 1e7), (-1e30, 1e30)], 2, 2),
    "cos": (_unary(np.cos), [(-4, 4), (-100, 100), (-1e4, 1e4), (-1e7, 1e7), (-1e30, 1e30)], 2, 2),
    "tan": (_unary(np.tan), [(-4, 4), (-100, 100), (-1e4, 1e4), (-1e7, 1e7), (-1e30, 1e30)], 2.25, 2.25),
    "asin": (_unary(np.arcsin), [(-1, 1), (-1e-3, 1e-3)], 2, 2),
    "acos": (_unary(np.arccos), [(-1, 1), (0.99, 1)], 2, 2),
    "atan": (_unary(np.arctan), [(-4, 4), (-1e6, 1e6), (-1e-3, 1e-3)], 2, 2),
    "sinh": (_unary(np.sinh), [(-95, 95), (-1, 1), (-715, 715)], 2.5, 2.5),
    "cosh": (_unary(np.cosh), [(-95, 95), (-1, 1), (-715, 715)], 2, 2),
    "tanh": (_unary(np.tanh), [(-12, 12), (-1, 1), (-1e-3, 1e-3), (-25, 25)], 2.5, 2.5),
    "asinh": (_unary(np.arcsinh), [(-10, 10), (-1e6, 1e6), (-1e-3, 1e-3)], 3, 3),
    "acosh": (_unary(np.arccosh), [(1, 10), (1, 1e6), (1, 1.001)], 3, 3),
    "atanh": (_unary(np.arctanh), [(-1, 1), (-1e-3, 1e-3)], 3, 3),
    "logistic": (lambda x: 1 / (1 + np.exp(-x.astype(WIDE))), [(-85, 20), (-4, 4)], 2.5, 2.5),
    "erf": (_libm("erfl"), [(-6, 6), (-1, 1)], 1.5, 2.5),
    "erfc": (_libm("erfcl"), [(-6, 9), (-1, 1), (0, 26)], 3.25, 4),
    "erf_inv": (lambda x: special.erfinv(x.astype(np.float64)),
                [(-1, 1), (0.999, 1), (-0.01, 0.01), (1 - 1e-11, 1)], 4, 4),
    "digamma": (lambda x: special.digamma(x.astype(np.float64)), [(2, 100), (0.01, 1), (1e3, 1e6)], 1, 4),
    "lgamma": (_libm("lgammal"), [(3, 100), (0.01, 0.5), (1e3, 1e6)], 1, 4),
    "bessel_i0e": (lambda x: special.i0e(x.astype(np.float64)), [(-8, 8), (-100, 100), (0, 1e6)], 1, 4),
    # SciPy itself is up to 10 ulp off
    "bessel_i1e": (lambda x: special.i1e(x.astype(np.float64)), [(-8, 8), (-100, 100), (0, 1e6)], 1, 12),
    "floor": (_unary(np.floor), [(-5, 5), (-1e10, 1e10)], 0, 0),
    "ceil": (_unary(np.ceil), [(-5, 5), (-1e10, 1e10)], 0, 0),
    "trunc": (_unary(np.trunc), [(-5, 5), (-1e10, 1e10)], 0, 0),
    "round_even": (_unary(np.rint), [(-5, 5), (-1e10, 1e10)], 0, 0),
    "round_away": (lambda x: np.copysign(np.floor(np.abs(x.astype(WIDE)) + WIDE(0.5)), x),
                   [(-5, 5), (-1e10, 1e10)], 0, 0),
}
BINARY = {
    "pow": (np.power, [(0, 10), (-10, 10), (0, 2)], 1, 1),
    "atan2": (np.arctan2, [(-10, 10), (-1e-3, 1e3), (-1e20, 1e20)], 2, 2.5),
    "copysign": (np.copysign, [(-10, 10)], 0, 0),
}
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0,
                    1e-40, -1e-40, 2.5, 1.5, -1.5])


def native(op: str, type_: str, *args: np.ndarray, result: str | None = None) -> np.ndarray:
    n, i = args[0].size, Index("i")
    bufs = [Buf(f"x{k}", type_, n) for k in range(len(args))]
    value = Op(op, tuple(Load(buf.name, i, type_) for buf in bufs), result or type_)
    kernel = Kernel((*bufs, Buf("y", result or type_, n, "out")), (For("i", n, (Store("y", i, value),), "vector"),))
    y = np.zeros(n, DTYPES[result or type_])
    run_native(kernel, *args, y)
    return y


def error_in_ulp(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance to the exact value in ulps of its rounding; 0 where both are equal or NaN."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        step = np.spacing(np.abs(rounded)).astype(WIDE)
        error = np.abs(got.astype(WIDE) - exact) / step
    return np.where(same, np.minimum(np.nan_to_num(error, nan=0.0, posinf=0.0), 0.5), error)


@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize("op", sorted(UNARY))
def test_unary_accuracy(op, type_):
    reference, ranges, limit32, limit64 = UNARY[op]
    rng = np.random.default_rng(7)
    parts = [rng.uniform(low, high, 4001) for low, high in ranges]
    with np.errstate(all="ignore"):
        x = np.concatenate(parts).astype(DTYPES[type_])
        exact = reference(x).astype(WIDE)
    error = error_in_ulp(native(op, type_, x), exact)
    if op in ("digamma", "lgamma"):
        error *= np.minimum(1, np.abs(exact))  # absolute near their zeros
    worst = np.argmax(error)
    limit = limit32 if type_ == "f32" else limit64
    assert error[worst] <= limit, f"{op} {type_}: {error[worst]} ulp at {x[worst]!r}"


@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize("op", sorted(BINARY))
def test_binary_accuracy(op, type_):
    reference, ranges, limit32, limit64 = BINARY[op]
    rng = np.random.default_rng(7)
    pairs = [(rng.uniform(low, high, 4001), rng.uniform(low, high, 4001)) for low, high in ranges]
    x, y = (np.concatenate(parts).astype(DTYPES[type_]) for parts in zip(*pairs))
    if op == "pow":
        y = np.where(rng.random(y.size) < 0.5, np.round(y), y).astype(y.dtype)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(WIDE), y.astype(WIDE))
    error = error_in_ulp(native(op, type_, x, y), exact)
    worst = np.argmax(error)
    assert error[worst] <= (limit32 if type_ == "f32" else limit64), f"{error[worst]} ulp at {x[worst]!r}, {y[worst]!r}"


@pytest.mark.parametrize("type_", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("op", sorted(UNARY))
def test_special_values(op, type_):
    dtype = DTYPES[type_]
    with np.errstate(all="ignore"):
        x = SPECIAL.astype(dtype)
        expected = UNARY[op][0](x.astype(np.float64)).astype(np.float64)
        expected = expected.astype(dtype).astype(np.float64)
        got = native(op, type_, x).astype(np.float64)
    if op in ("digamma", "lgamma"):
        keep = ~(x.astype(np.float64) <= 0)  # libraries differ at the poles
        x, expected, got = x[keep], expected[keep], got[keep]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    if type_ in ("f32", "f64"):
        tolerance = 1e-6 if type_ == "f32" else 1e-14
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=1e-15 if op == "digamma" else 1e-44)
        # SciPy loses the sign of zero in two odd functions
        zero = (expected == 0) & (got == 0) & (op not in ("bessel_i1e", "erf_inv"))
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize("op", ["pow", "atan2", "copysign", "nextafter"])
def test_binary_special_values(op, type_):
    dtype = DTYPES[type_]
    with np.errstate(all="ignore"):
        x, y = (grid.ravel().copy() for grid in np.meshgrid(SPECIAL.astype(dtype), SPECIAL.astype(dtype)))
        fn = {"pow": np.power, "atan2": np.arctan2, "copysign": np.copysign, "nextafter": np.nextafter}[op]
        expected, got = fn(x, y), native(op, type_, x, y)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_allclose(got, expected, rtol=1e-6 if type_ == "f32" else 1e-14)
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


def test_is_finite():
    for type_ in ("f32", "f64", "bf16", "f16"):
        x = SPECIAL.astype(DTYPES[type_])
        np.testing.assert_array_equal(native("is_finite", type_, x, result="bool"), np.isfinite(x.astype(np.float64)))


@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize("op", sorted(set(UNARY) - {"lgamma"}))
def test_bits_do_not_depend_on_position(op, type_):
    """One element alone (scalar code) and the same one inside vectors and tails."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-3, 3, 30), rng.uniform(0, 1, 30), [1e6, 1e9, -1e7]]).astype(DTYPES[type_])
    whole = native(op, type_, x)
    for k in (0, 17, 44, 60, 62):
        alone = native(op, type_, x[k : k + 1].copy())
        assert ulps(alone, whole[k : k + 1])[0] == 0


def test_the_tables_cover_every_function():
    others = {"is_finite", "nextafter"}
    assert set(UNARY) | set(BINARY) | others == UNARY_MATH | BINARY_MATH
    assert target.current().level in ("avx512", "avx2", "neon", "generic")
