"""How far the vector math library is from the exact values: references, where they are sampled, and the error in ulp.

The references compute in `np.longdouble`, which has eleven bits more than f64 on x86-64 (sixty more on aarch64): an error
of theirs is below a hundredth of an ulp of ours, so no library of arbitrary precision is needed. Where it has no more bits
than f64, `WIDE_ENOUGH` is false and f64 is not measured. Half types are measured on all their 65536 values.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import scipy.special as special

from tests.codegen import incomplete
from tests.codegen.harness import run_native
from weft.ir.loops import Buf, For, Index, Kernel, Load, Op, Store
from weft.ir.loops_eval import DTYPES

WIDE = np.longdouble
WIDE_ENOUGH = np.finfo(WIDE).nmant >= 63
HALVES = ("f16", "bf16")
TYPES = ("f32", "f64", *HALVES)
PI = WIDE("3.14159265358979323846264338327950288")
INF = float("inf")

Range = tuple[float, float]


@dataclass(frozen=True)
class Function:
    """A function and how well we compute it.

    `exact` maps wide arrays to wide arrays; `f32` and `f64` bound the error in ulp. `ranges` are sampled evenly and
    `points` with their neighbours, beside floats of every size. An ulp is never less than that of `least(x)`: the size of the
    terms of sums whose zeros nobody resolves.
    """
    exact: Callable
    f32: float
    f64: float
    ranges: tuple[Range, ...] = ((-4, 4),)
    points: tuple[float, ...] = ()
    least: Callable | None = None
    own_type: bool = False        # `exact` takes arrays of the type itself

    def bound(self, type_: str) -> float:
        """The worst error allowed: half types are f32 rounded, so half an ulp and what f32 adds."""
        return {"f32": self.f32, "f64": self.f64}.get(type_, 0.5 + self.f32 / 128)


class _LongDouble(ctypes.c_longdouble):
    """One that ctypes gives back as it is, all bits kept."""


def _libm(name: str) -> Callable:
    """A long double function of the C library, on arrays."""
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    function.restype, function.argtypes = _LongDouble, [_LongDouble]

    def apply(x: np.ndarray) -> np.ndarray:
        size, data = x.itemsize, np.ascontiguousarray(x, WIDE).tobytes()
        made = [bytes(function(_LongDouble.from_buffer_copy(data[k:k + size]))) for k in range(0, len(data), size)]
        return np.frombuffer(b"".join(made), WIDE)
    return apply


_erf, _erfc = _libm("erfl"), _libm("erfcl")


def _erf_inv(x: np.ndarray) -> np.ndarray:
    """Newton's steps from SciPy's value, on the side where no digits cancel."""
    size = np.abs(x)
    inside = (size < 1) & (size > 0)
    s = np.where(inside, size, WIDE(0.5))
    y = special.erfinv(s.astype(np.float64))
    y = np.where(np.isfinite(y), y, 5.8).astype(WIDE)
    for _ in range(3):
        miss = np.where(s > 0.5, (1 - s) - _erfc(y), _erf(y) - s)
        step = miss * np.sqrt(PI) / 2 * np.exp(y * y)
        y = y - step / (1 + y * step)
    edge = np.where(size == 0, size, np.where(size == 1, WIDE(INF), WIDE(np.nan)))
    return np.copysign(np.where(inside, y, edge), x)


def _digamma(x: np.ndarray) -> np.ndarray:
    low = x < 0.5
    z, total = np.where(low, 1 - x, x), np.zeros_like(x)
    for _ in range(24):
        small = z < 24
        total = np.where(small, total - 1 / z, total)
        z = np.where(small, z + 1, z)
    w = 1 / (z * z)
    series = sum(WIDE(p) / q * w**k for k, (p, q) in enumerate(
        [(-1, 12), (1, 120), (-1, 252), (1, 240), (-1, 132), (691, 32760), (-1, 12), (3617, 8160)], 1))
    y = total + np.log(z) - 1 / (2 * z) + series
    fraction = x - np.rint(x)
    reflected = y - np.where(np.abs(fraction) == 0.5, 0, PI / np.tan(PI * fraction))
    y = np.where(low, np.where(fraction == 0, np.nan, reflected), y)
    y = np.where(x == 0, np.copysign(WIDE(INF), -x), y)
    return np.where(np.isinf(x), np.where(x > 0, x, np.nan), y)


def _bessel(x: np.ndarray, order: int) -> np.ndarray:
    """Both series: all terms of the first are positive; the second ends long before it diverges."""
    size = np.abs(x)
    near = np.where(size < 40, size, 0)
    term, total = (near / 2)**order, WIDE(0)
    for k in range(1, 90):
        total, term = total + term, term * (near / 2)**2 / (k * (k + order))
    total = total * np.exp(-near)
    far = np.where(size < 40, WIDE(40), size)
    term, series = WIDE(1), WIDE(0)
    for k in range(1, 40):
        series, term = series + term, -term * (4 * order**2 - (2 * k - 1)**2) / (8 * k * far)
    y = np.where(size < 40, total, series / np.sqrt(2 * PI * far))
    y = np.where(np.isinf(x), 0, np.where(np.isnan(x), x, y))
    return np.copysign(y, x) if order else y


def _logistic(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _terms_of_logaddexp(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the greater argument and what is added to it, which errs by what the difference of the arguments does."""
    gap = np.abs(x - y)
    return np.fmax(np.abs(np.maximum(x, y)), (1 + gap) * np.log1p(np.exp(-gap)))


TURNS: tuple[Range, ...] = ((-4, 4), (-100, 100), (-1e4, 1e4), (-1e7, 1e7))
QUARTERS = tuple(k * 0.7853981633974483 for k in range(-8, 9)) + (65536.0, 2.0**24)
EXPONENTS: tuple[Range, ...] = ((-110, 95), (-1, 1), (-750, 715))
OVERFLOWS = (88.722839, 709.782712893384, -87.33655, -103.972, -708.396418532264, -745.1332191)

UNARY: dict[str, Function] = {
    "exp": Function(np.exp, 1.5, 1.5, EXPONENTS, OVERFLOWS),
    "exp2": Function(np.exp2, 1.5, 1.5, ((-155, 130), (-1, 1), (-1080, 1030)), (128.0, 1024.0, -126.0, -150.0, -1022.0, -1075.0)),
    "expm1": Function(np.expm1, 2, 2, (*EXPONENTS, (-1e-5, 1e-5)), OVERFLOWS),
    "log": Function(np.log, 1.5, 1.5, ((0, 4), (0.9, 1.1)), (1.0,)),
    "log1p": Function(np.log1p, 2, 2, ((-1, 4), (-0.01, 0.01)), (-1.0, 0.0)),
    "log2": Function(np.log2, 2, 2, ((0, 4), (0.9, 1.1)), (1.0, 2.0, 8.0)),
    "sqrt": Function(np.sqrt, 0.5, 0.5, ((0, 10),)),
    "rsqrt": Function(lambda x: 1 / np.sqrt(x), 2, 2, ((0, 10),)),
    "cbrt": Function(np.cbrt, 1, 1.5, ((-10, 10),), (1.0, 8.0, 27.0)),
    "sin": Function(np.sin, 2, 2, TURNS, QUARTERS),
    "cos": Function(np.cos, 2, 2, TURNS, QUARTERS),
    "tan": Function(np.tan, 2.5, 2.5, TURNS, QUARTERS),
    "asin": Function(np.arcsin, 2.5, 2.5, ((-1, 1),), (0.5, -0.5)),
    "acos": Function(np.arccos, 2, 2, ((-1, 1), (0.99, 1)), (0.5, -0.5)),
    "atan": Function(np.arctan, 2.5, 2.5, ((-4, 4), (0.4, 0.5)), (0.4142135623730951, 2.414213562373095)),
    "sinh": Function(np.sinh, 2.5, 2.5, EXPONENTS, (*OVERFLOWS, 30.0, 89.415986, 710.475860073944)),
    "cosh": Function(np.cosh, 2, 2, EXPONENTS, (*OVERFLOWS, 89.415986, 710.475860073944)),
    "tanh": Function(np.tanh, 2.5, 2.5, ((-12, 12), (-1, 1), (-25, 25))),
    "asinh": Function(np.arcsinh, 2, 2, ((-10, 10), (-1e6, 1e6)), (0.6, 1.15, 2.0**60, 2.0**500)),
    "acosh": Function(np.arccosh, 2, 2.5, ((1, 10), (1, 1.001), (1, 1e6)), (1.0, 1.166, 2.0**60, 2.0**500)),
    "atanh": Function(np.arctanh, 3, 3, ((-1, 1), (0.99, 1)), (1.0,)),
    "logistic": Function(_logistic, 2.5, 2.5, ((-4, 4), (-85, 20), (-750, 40)), OVERFLOWS),
    "erf": Function(_erf, 1.5, 2.5, ((-6, 6), (-1, 1))),
    "erfc": Function(_erfc, 4, 4.5, ((-6, 10), (-1, 1), (0, 27)), (0.5, 10.0545, 26.543)),
    "erf_inv": Function(_erf_inv, 2.5, 4, ((-1, 1), (0.999, 1), (1 - 1e-11, 1))),
    "digamma": Function(_digamma, 2.5, 8, ((0, 100), (0.01, 1), (-10, 0)), (1.4616321449683623,),
                        lambda x: np.maximum(1, np.log(1 + np.abs(x)))),
    "lgamma": Function(_libm("lgammal"), 2, 4, ((0, 100), (0, 0.5), (-10, 0), (4e36, 4.09e36)), (1.0, 2.0, 4.0850e36), np.ones_like),
    "bessel_i0e": Function(lambda x: _bessel(x, 0), 2.5, 4, ((-8, 8), (-100, 100)), (8.0, 16.0)),
    "bessel_i1e": Function(lambda x: _bessel(x, 1), 2.5, 6, ((-8, 8), (-100, 100)), (8.0, 16.0)),
    "floor": Function(np.floor, 0, 0, ((-5, 5),)),
    "ceil": Function(np.ceil, 0, 0, ((-5, 5),)),
    "trunc": Function(np.trunc, 0, 0, ((-5, 5),)),
    "round_even": Function(np.rint, 0, 0, ((-5, 5),), (0.5, 1.5, 2.5, 2.0**23, 2.0**52)),
    "round_away": Function(lambda x: np.copysign(np.floor(np.abs(x) + WIDE(0.5)), x), 0, 0, ((-5, 5),),
                           (0.5, 1.5, 2.5, 2.0**23, 2.0**52)),
}
_GAMMAS = incomplete.functions(_libm("lgammal"), _digamma, _erfc)
ORDERS: tuple[Range, ...] = ((0, 3), (0, 150), (150, 250))

BINARY: dict[str, Function] = {
    "pow": Function(np.power, 1, 1, ((0, 10), (-10, 10), (0, 2))),
    "atan2": Function(np.arctan2, 2.5, 2.5, ((-10, 10), (-1e-3, 1e3), (-3.3e38, 3.3e38))),
    "logaddexp": Function(np.logaddexp, 2, 2, ((-10, 10), (-100, 100), (-1, 0)), least=_terms_of_logaddexp),
    "igamma": Function(_GAMMAS["igamma"], 0.55, 1200, ORDERS),
    "igammac": Function(_GAMMAS["igammac"], 0.55, 600, ORDERS),
    "igamma_grad_a": Function(_GAMMAS["igamma_grad_a"], 0.55, 1200, ORDERS),
    "igamma_grad_x": Function(_GAMMAS["igamma_grad_x"], 0.55, 1200, ORDERS),
    "random_gamma_grad": Function(_GAMMAS["random_gamma_grad"], 0.55, 1200, ORDERS),
    "rem": Function(np.fmod, 0, 0, ((-10, 10), (-1e3, 1e3))),
    "copysign": Function(np.copysign, 0, 0, ((-10, 10),)),
    # NumPy's for float16 keeps the sign of equal zeros
    "nextafter": Function(lambda x, y: np.where(x == y, y, np.nextafter(x, y)), 0, 0, ((-10, 10),), own_type=True),
}
#: where libraries go wrong: zeros, infinities, the least and the greatest floats, and small whole numbers
SPECIAL = (0.0, INF, np.nan, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 1e-40, 1e-42, 1e-310, 5e-324, 1e-45, 1.17549435e-38,
           2.2250738585072014e-308, 3.4028235e38, 1.7976931348623157e308, 65504.0, 1e30, 1e300, 1.3e38, 1.8e38, 2.4e38, 1e308)


@functools.cache
def specials(type_: str) -> np.ndarray:
    """Both signs of the special values, as far as the type tells them apart."""
    with np.errstate(all="ignore"):
        x = np.array([*SPECIAL, *[-x for x in SPECIAL]]).astype(DTYPES[type_])
    kept = np.unique(x.view(f"u{x.itemsize}"))
    return kept.view(x.dtype)


def _every_size(type_: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Floats with random bits: as many subnormal ones as ones between 1 and 2, NaNs and infinities among them."""
    dtype = np.dtype(DTYPES[type_])
    return rng.integers(0, 1 << 8 * dtype.itemsize, count, f"u{dtype.itemsize}").view(dtype)


def samples(function: Function, type_: str, count: int) -> np.ndarray:
    """Arguments for a function of one argument."""
    dtype = np.dtype(DTYPES[type_])
    if type_ in HALVES:
        return np.arange(1 << 16).astype(np.uint16).view(dtype)
    rng = np.random.default_rng(7)
    with np.errstate(all="ignore"):
        parts = [rng.uniform(low, high, count).astype(dtype) for low, high in function.ranges]
        points = np.array(function.points).astype(dtype)
    bits = points.view(f"i{dtype.itemsize}")
    parts += [(bits + k).view(dtype) for k in range(-6, 7)]
    return np.concatenate([*parts, specials(type_), _every_size(type_, count, rng)])


def pairs(function: Function, type_: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Arguments for a function of two: all pairs of special values, and random ones."""
    rng = np.random.default_rng(7)
    dtype = DTYPES[type_]
    x, y = (grid.ravel() for grid in np.meshgrid(specials(type_), specials(type_)))
    parts = [(x, y), (_every_size(type_, count, rng), _every_size(type_, count, rng))]
    for low, high in function.ranges:
        x, y = (rng.uniform(low, high, count) for _ in range(2))
        with np.errstate(all="ignore"):
            parts.append((x.astype(dtype), np.where(rng.random(count) < 0.5, np.round(y), y).astype(dtype)))
    first, second = zip(*parts)
    return np.concatenate(first), np.concatenate(second)


def native(op: str, type_: str, *args: np.ndarray, result: str | None = None) -> np.ndarray:
    """One function on arrays, by a kernel of its own."""
    n, i = args[0].size, Index("i")
    bufs = [Buf(f"x{k}", type_, n) for k in range(len(args))]
    value = Op(op, tuple(Load(buf.name, i, type_) for buf in bufs), result or type_)
    kernel = Kernel((*bufs, Buf("y", result or type_, n, "out")), (For("i", n, (Store("y", i, value),), "vector"),))
    y = np.zeros(n, DTYPES[result or type_])
    run_native(kernel, *args, y)
    return y


def error_in_ulp(got: np.ndarray, exact: np.ndarray, least: np.ndarray | float = 0.0) -> np.ndarray:
    """Distance to the exact value in ulps; infinite where one is NaN and the other not, or where a zero has the wrong sign.

    Results beyond the largest float count as the next power of two. An ulp is never less than that of `least`.
    """
    info = ml_dtypes.finfo(got.dtype)
    limit = WIDE(2.0)**int(info.maxexp)
    with np.errstate(all="ignore"):
        y, want = (np.clip(v, -limit, limit) for v in (got.astype(WIDE), exact.astype(WIDE)))
        _, exponent = np.frexp(np.fmax(np.abs(want), least))
        exponent = np.clip(exponent, int(info.minexp) + 1, int(info.maxexp))
        error = np.abs(y - want) / np.ldexp(WIDE(1), exponent - int(info.nmant) - 1)
    nans = np.isnan(y), np.isnan(want)
    error[nans[0] & nans[1]] = 0
    error[nans[0] != nans[1]] = INF
    resolved = (want == 0) | (np.abs(want) >= least)
    error[(y == 0) & (np.signbit(y) != np.signbit(want)) & ~nans[1] & resolved] = INF
    return error


def measure(op: str, type_: str, count: int = 2500) -> tuple[float, Sequence]:
    """The worst error of a function in ulp, and the arguments of it."""
    function = UNARY.get(op) or BINARY[op]
    args = (samples(function, type_, count),) if op in UNARY else pairs(function, type_, count)
    with np.errstate(all="ignore"):
        wide = [arg.astype(WIDE) for arg in args]
        least = function.least(*wide) if function.least else 0.0
        exact = function.exact(*(args if function.own_type else wide)).astype(WIDE)
        error = error_in_ulp(native(op, type_, *args), exact, least)
    worst = int(np.argmax(error))
    return float(error[worst]), tuple(arg[worst] for arg in args)


def page() -> str:
    """The table of docs/accuracy.md."""
    rows = ["| function | float32 | float64 | float16 | bfloat16 |", "|---|---|---|---|---|"]
    for op in (*UNARY, *BINARY):
        rows.append(f"| `{op}` | {' | '.join(f'{measure(op, type_, 100_000)[0]:.2f}' for type_ in TYPES)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(page())
