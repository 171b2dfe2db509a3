"""Errors of the vector math library in ulp: reference functions, sample points and measurement.

The references compute in `np.longdouble`, which has eleven bits more than f64 on x86-64 (sixty more
on aarch64): their error is below a hundredth of an ulp of the measured function, so no
arbitrary-precision library is needed. On machines without a wider type, `WIDE_ENOUGH` is false
and f64 is not measured. Half types are measured on all their 65536 values.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import scipy.special as special

from tests.codegen import incomplete
from tests.codegen.harness import run_native
from weft._engine.ir.loops import (
    Buf,
    For,
    Index,
    Load,
    LoopKind,
    LoopsKernel,
    ScalarOp,
    StoreElement,
)
from weft._engine.ir.loops_eval import DTYPES
from weft._engine.ir.registry import ScalarFunction
from weft._engine.ops import functions

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
FIRST = "| function | float32 | float64 | float16 | bfloat16 |"
WIDE = np.longdouble
WIDE_ENOUGH = np.finfo(WIDE).nmant >= 63
HALVES = ("f16", "bf16")
TYPES = ("f32", "f64", *HALVES)
PI = WIDE("3.14159265358979323846264338327950288")
INF = float("inf")


def bound(op: str, type_: str) -> float:
    """Return the largest allowed error: half types are rounded from f32, so half an ulp and the
    error of f32."""
    f32, f64 = FUNCTIONS[op].ulp
    return {"f32": f32, "f64": f64}.get(type_, 0.5 + f32 / 128)


class _LongDouble(ctypes.c_longdouble):
    """A long double that ctypes returns unchanged, with all bits."""


def _libm(name: str) -> Callable:
    """Return a long double function of the C library that maps over arrays."""
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    function.restype, function.argtypes = _LongDouble, [_LongDouble]

    def apply(x: np.ndarray) -> np.ndarray:
        size, data = x.itemsize, np.ascontiguousarray(x, WIDE).tobytes()
        chunks = [
            bytes(function(_LongDouble.from_buffer_copy(data[k : k + size])))
            for k in range(0, len(data), size)
        ]
        return np.frombuffer(b"".join(chunks), WIDE)

    return apply


_erf, _erfc = _libm("erfl"), _libm("erfcl")


def _erf_inv(x: np.ndarray) -> np.ndarray:
    """Refine SciPy's value by Newton's method, on the side without cancellation."""
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


def _normal_series(x: np.ndarray) -> np.ndarray:
    """Return the upper tail of the normal distribution over density
    x, for large x.
    """
    term = total = np.ones_like(x)
    for k in range(1, 60, 2):
        term = np.where(k < x * x, -term * k / (x * x), 0)
        total = total + term
    return total


def _normal_hazard(x: np.ndarray) -> np.ndarray:
    bell = np.exp(-x * x / 2) / np.sqrt(2 * PI)
    return np.where(
        x > 20,
        x / _normal_series(np.maximum(x, 20)),
        bell * 2 / _erfc(np.minimum(x, 20) / np.sqrt(WIDE(2))),
    )


def _log_ndtr(x: np.ndarray) -> np.ndarray:
    far = (
        -x * x / 2
        + np.log(_normal_series(np.maximum(-x, 20)) / np.maximum(-x, 20))
        - np.log(2 * PI) / 2
    )
    tail = _erfc(np.minimum(np.abs(x), 20) / np.sqrt(WIDE(2))) / 2
    tail = np.where(x > 20, _erfc(np.maximum(x, 0) / np.sqrt(WIDE(2))) / 2, tail)
    return np.where(x < -20, far, np.where(x < 0, np.log(tail), np.log1p(-tail)))


def _ndtri(p: np.ndarray) -> np.ndarray:
    """Refine the logarithm of SciPy's value by Newton's method, on the side without cancellation."""
    q = np.where(p > 0.5, 1 - p, p)
    inside = (q > 0) & (q < 0.5)
    q = np.where(inside, q, WIDE(0.25))
    y = special.ndtri(np.maximum(q, 1e-300).astype(np.float64)).astype(WIDE)
    near = np.copysign(_erf_inv(np.abs(2 * q - 1)), -q) * np.sqrt(WIDE(2))
    for _ in range(6):
        y = y - (_log_ndtr(y) - np.log(q)) / _normal_hazard(-y)
    y = np.where(q > 0.2, np.where(p > 0.5, 1, -1) * np.abs(near), np.where(p > 0.5, -y, y))
    edge = np.where(
        p == 0.5, 0, np.where(p == 0, -WIDE(INF), np.where(p == 1, WIDE(INF), WIDE(np.nan)))
    )
    return np.where(inside, y, edge)


def _digamma(x: np.ndarray) -> np.ndarray:
    low = x < 0.5
    z, total = np.where(low, 1 - x, x), np.zeros_like(x)
    for _ in range(24):
        small = z < 24
        total = np.where(small, total - 1 / z, total)
        z = np.where(small, z + 1, z)
    w = 1 / (z * z)
    series = sum(
        WIDE(p) / q * w**k
        for k, (p, q) in enumerate(
            [
                (-1, 12),
                (1, 120),
                (-1, 252),
                (1, 240),
                (-1, 132),
                (691, 32760),
                (-1, 12),
                (3617, 8160),
            ],
            1,
        )
    )
    y = total + np.log(z) - 1 / (2 * z) + series
    fraction = x - np.rint(x)
    reflected = y - np.where(np.abs(fraction) == 0.5, 0, PI / np.tan(PI * fraction))
    y = np.where(low, np.where(fraction == 0, np.nan, reflected), y)
    y = np.where(x == 0, np.copysign(WIDE(INF), -x), y)
    return np.where(np.isinf(x), np.where(x > 0, x, np.nan), y)


def _bessel(x: np.ndarray, order: int) -> np.ndarray:
    """Sum both series: all terms of the first are positive; the second ends long before it
    diverges."""
    size = np.abs(x)
    near = np.where(size < 40, size, 0)
    term, total = (near / 2) ** order, WIDE(0)
    for k in range(1, 90):
        total, term = total + term, term * (near / 2) ** 2 / (k * (k + order))
    total = total * np.exp(-near)
    far = np.where(size < 40, WIDE(40), size)
    term, series = WIDE(1), WIDE(0)
    for k in range(1, 40):
        series, term = series + term, -term * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * far)
    y = np.where(size < 40, total, series / np.sqrt(2 * PI * far))
    y = np.where(np.isinf(x), 0, np.where(np.isnan(x), x, y))
    return np.copysign(y, x) if order else y


def _zeta_above_zero(s: np.ndarray, q: np.ndarray, less: np.ndarray | None = None) -> np.ndarray:
    """Return zeta for s > 1 and q > 0: a sum from the smallest term on, an integral and
    corrections. `less` is s - 1."""
    a, less = q + 24, s - 1 if less is None else less
    bounded = np.minimum(s, 40 * a)
    factor, total = bounded / a, np.full_like(a, 0.5)
    for k, (p, r) in enumerate(
        [
            (1, 6),
            (-1, 30),
            (1, 42),
            (-1, 30),
            (5, 66),
            (-691, 2730),
            (7, 6),
            (-3617, 510),
            (43867, 798),
        ],
        1,
    ):
        total = total + factor * (WIDE(p) / r) / math.factorial(2 * k)
        factor = factor * (bounded + 2 * k - 1) * (bounded + 2 * k) / (a * a)
    total = a**-s * total + a**-less / less
    for k in range(23, -1, -1):
        total = total + (q + k) ** -s
    return total


def _zeta_parts(s: np.ndarray, q: np.ndarray) -> list[np.ndarray]:
    """Return the terms above zero, and the terms below zero for integer s, without their sign."""
    inside = (q < 0) & (q > -INF) & (s > 1) & (np.floor(q) < q) & (np.floor(s) == s)
    x = np.where(inside, q, WIDE(-0.5))
    s, above = (
        np.where(s > 1, s, 2),
        np.where(inside, x - np.floor(x), np.where((q > 0) & (q < INF), q, 1)),
    )
    under = _zeta_above_zero(s, -np.floor(-x) - x) - _zeta_above_zero(s, 1 - x)
    return [_zeta_above_zero(s, above), np.where(inside & (under > 0), under, 0)]


def _zeta(s: np.ndarray, q: np.ndarray, odd: np.ndarray | None = None) -> np.ndarray:
    above, under = _zeta_parts(s, q)
    odd = s % 2 == 1 if odd is None else odd
    overflow = np.where(q - np.floor(q) < 0.5, WIDE(INF), -WIDE(INF))
    total = above + np.where(odd, -under, under)
    total = np.where(odd & (above == INF) & (under == INF), overflow, total)
    total = np.where((q < 0) & (np.floor(s) != s), WIDE(np.nan), np.where(q == INF, 0, total))
    at_infinity = np.where(q > 1, 0, np.where(q == 1, 1, WIDE(INF)))
    total = np.where(
        s == INF, at_infinity, np.where(np.isnan(q) | (q == -INF), WIDE(np.nan), total)
    )
    total = np.where((q <= 0) & (np.floor(q) == q) & (q > -INF), WIDE(INF), total)
    total = np.where(np.isnan(q), WIDE(np.nan), total)
    return np.where(s > 1, total, np.where(s == 1, WIDE(INF), WIDE(np.nan)))


def _polygamma(m: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Where the factorial or zeta may overflow long doubles, use ratios of terms and the logarithm
    of their product."""
    at_center = (
        (x < 0) & (m % 2 == 0) & (m > 0) & (x - np.floor(x) == 0.5)
    )  # terms of both signs cancel
    x = np.where(at_center, 1 - x, x)
    order = np.where((m >= 0) & (np.floor(m) == m), m, np.nan)
    few, inside = m < 1000, (x > 0) & (x < INF) & (m > 0) & (m < INF)
    gamma = _libm("tgammal")(np.where(m > 0, m, 1) + 1)
    many, at = np.where(inside & ~few, m, 1000), np.where(inside, x, 1)
    ratios = 1 + sum(np.exp(-(many + 1) * np.log1p(k / at)) for k in range(1, 24))
    tail = np.exp(-(many + 1) * np.log1p(24 / at)) * ((at + 24) / many + 0.5)
    log = np.where(
        many > 1e18,
        many * (np.log(many / at) - 1),
        _libm("lgammal")(many + 1) - (many + 1) * np.log(at),
    )
    factor = np.where((m > 0) & (m < INF), np.where(x == INF, 1, gamma), np.nan)
    zeta = _zeta_above_zero(np.where(inside, m, 1) + 1, at, np.where(inside, m, 1))
    zeta = np.where(inside, zeta, _zeta(m + 1, x, m % 2 == 0))
    size = np.where(inside & ~few, np.exp(log) * (ratios + tail), factor * zeta)
    return np.where(
        m == 0, _digamma(x), np.where(order % 2 == 0, -size, np.where(order % 2 == 1, size, np.nan))
    )


def _terms_of_logaddexp(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the larger argument and the term added to it. The term's error is the error of the
    difference of the arguments."""
    gap = np.abs(x - y)
    return np.fmax(np.abs(np.maximum(x, y)), (1 + gap) * np.log1p(np.exp(-gap)))


#: exact values on wide arrays, for functions whose NumPy reference is no more accurate than weft
EXACT: dict[str, Callable] = {
    "erf": _erf,
    "erfc": _erfc,
    "erf_inv": _erf_inv,
    "digamma": _digamma,
    "lgamma": _libm("lgammal"),
    "zeta": _zeta,
    "polygamma": _polygamma,
    "log_ndtr": _log_ndtr,
    "normal_hazard": _normal_hazard,
    "ndtri": _ndtri,
    "bessel_i0e": lambda x: _bessel(x, 0),
    "bessel_i1e": lambda x: _bessel(x, 1),
    # NumPy's float16 version keeps the sign of equal zeros
    "nextafter": lambda x, y: np.where(x == y, y, np.nextafter(x, y)),
    **incomplete.functions(_libm("lgammal"), _digamma, _erfc),
}
#: the magnitude of the terms of sums whose zeros are not resolved: the ulp of that magnitude is
#: the smallest unit of error
LEAST: dict[str, Callable] = {
    "digamma": lambda x: np.maximum(1, np.log(1 + np.abs(x))),
    "lgamma": np.ones_like,
    "logaddexp": _terms_of_logaddexp,
    "zeta": lambda s, q: sum(_zeta_parts(s, q)),
    "polygamma": lambda m, x: np.where(m == 0, LEAST["digamma"](x), 0),
}
#: all functions that kernels compute, by their names in Loops, where the float remainder is `rem`
FUNCTIONS = {
    "rem" if function.name == "fmod" else function.name: function
    for function in functions.every()
    if not function.test and function.arity < 3
}
UNARY = {op: function for op, function in FUNCTIONS.items() if function.arity == 1}
BINARY = {op: function for op, function in FUNCTIONS.items() if function.arity == 2}
#: values at which libraries fail: zeros, infinities, the smallest and largest floats, and small
#: integers
SPECIAL = (
    0.0,
    INF,
    np.nan,
    0.5,
    1.0,
    1.5,
    2.0,
    2.5,
    3.0,
    1e-40,
    1e-42,
    1e-310,
    5e-324,
    1e-45,
    1.17549435e-38,
    2.2250738585072014e-308,
    3.4028235e38,
    1.7976931348623157e308,
    65504.0,
    1e30,
    1e300,
    1.3e38,
    1.8e38,
    2.4e38,
    1e308,
)


@functools.cache
def specials(type_: str) -> np.ndarray:
    """Return both signs of the special values that the type can distinguish."""
    with np.errstate(all="ignore"):
        x = np.array([*SPECIAL, *[-x for x in SPECIAL]]).astype(DTYPES[type_])
    distinct = np.unique(x.view(f"u{x.itemsize}"))
    return distinct.view(x.dtype)


def _every_size(type_: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return floats with random bits: as many subnormal as between 1 and 2, with NaNs and
    infinities."""
    dtype = np.dtype(DTYPES[type_])
    return rng.integers(0, 1 << 8 * dtype.itemsize, count, f"u{dtype.itemsize}").view(dtype)


def samples(function: ScalarFunction, type_: str, count: int) -> np.ndarray:
    """Return arguments for a function of one argument."""
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


def pairs(function: ScalarFunction, type_: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return arguments for a function of two arguments: all pairs of special values, and random
    pairs."""
    rng = np.random.default_rng(7)
    dtype = DTYPES[type_]
    x, y = (grid.ravel() for grid in np.meshgrid(specials(type_), specials(type_)))
    parts = [(x, y), (_every_size(type_, count, rng), _every_size(type_, count, rng))]
    for low, high in function.ranges:
        x, y = (rng.uniform(low, high, count) for _ in range(2))
        with np.errstate(all="ignore"):
            parts.append(
                (x.astype(dtype), np.where(rng.random(count) < 0.5, np.round(y), y).astype(dtype))
            )
    first, second = zip(*parts)
    return np.concatenate(first), np.concatenate(second)


def native(op: str, type_: str, *args: np.ndarray, result: str | None = None) -> np.ndarray:
    """Apply one function to arrays by a separate kernel."""
    n, i = args[0].size, Index("i")
    bufs = [Buf(f"x{k}", type_, n) for k in range(len(args))]
    value = ScalarOp(op, tuple(Load(buf.name, i, type_) for buf in bufs), result or type_)
    kernel = LoopsKernel(
        (*bufs, Buf("y", result or type_, n, "out")),
        (For("i", n, (StoreElement("y", i, value),), LoopKind.VECTOR),),
    )
    y = np.zeros(n, DTYPES[result or type_])
    run_native(kernel, *args, y)
    return y


def error_in_ulp(got: np.ndarray, exact: np.ndarray, least: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the distance to the exact value in ulps; infinite where exactly one is NaN, or where a
    zero has the wrong sign.
    Results beyond the largest float count as the next power of two. An ulp is at least the ulp
    of `least`.
    """
    info = ml_dtypes.finfo(got.dtype)
    limit = WIDE(2.0) ** int(info.maxexp)
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
    """Return the largest error of a function in ulp, and the arguments at which it occurs."""
    function = FUNCTIONS[op]
    args = (samples(function, type_, count),) if op in UNARY else pairs(function, type_, count)
    with np.errstate(all="ignore"):
        wide = [arg.astype(WIDE) for arg in args]
        least = LEAST[op](*wide) if op in LEAST else 0.0
        exact = EXACT.get(op, function.reference)(*(wide if function.widen else args)).astype(WIDE)
        error = error_in_ulp(native(op, type_, *args), exact, least)
    worst = int(np.argmax(error))
    return float(error[worst]), tuple(arg[worst] for arg in args)


def row(op: str, count: int = 100_000) -> str:
    """Return a row of the table of docs/accuracy.md."""
    return f"| `{op}` | {' | '.join(f'{measure(op, type_, count)[0]:.2f}' for type_ in TYPES)} |"


def write_page(page: Path, ops: Sequence[str]) -> None:
    """Measure functions, and replace their rows in the table of the page."""
    text = page.read_text()
    head, rows = text[: text.index(FIRST)], text[text.index(FIRST) :].splitlines()
    table = {line.split("`")[1]: line for line in rows if line.startswith("| `")} | {
        op: row(op) for op in ops
    }
    page.write_text(
        "\n".join(
            [
                f"{head}{FIRST}",
                "|---|---|---|---|---|",
                *[line for op, line in table.items() if op in FUNCTIONS],
                "",
            ]
        )
    )


if __name__ == "__main__":
    write_page(PAGE, sys.argv[1:] or sorted(FUNCTIONS))
