"""How far `weft.scipy.special` and `weft.scipy.stats` are from the exact values and slopes, which mpmath gives.

In:  `CASES`: each function with the kinds of its arguments, the exact function, and the arguments to differentiate by.
Out: errors as shares of what is allowed: 8 ulp of the result times 1 + its condition number, the sum over the arguments of
     |x df/dx / f|. Infinite where a finite result is not finite. Slopes are judged by the same rule.
Use: `python -m tests.scipy.exact [NAME...]` measures on a dense grid and writes the rows of the functions into docs/accuracy.md.
"""

from __future__ import annotations

import functools
import importlib
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import mpmath
import numpy as np
from mpmath import mp, mpf

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
ULPS = 8
STEP = mpf(10) ** -20  # relative
DIGITS = (80, 200, 500, 900)  # as many as differences of differences need


class Case(NamedTuple):
    """A function of weft, the kinds of its arguments (see `_draw`), what it is exactly, by which arguments it is differentiated,
    and the arguments that follow."""

    kinds: tuple[str, ...]
    exact: Callable
    by: tuple[int, ...]
    fixed: tuple = ()


CASES: dict[str, Case] = {}


def _case(
    name: str, kinds: str, exact: Callable, by: Sequence[int] | None = None, fixed: tuple = ()
) -> None:
    parts = tuple(kinds.split())
    CASES[name] = Case(parts, exact, tuple(range(len(parts))) if by is None else tuple(by), fixed)


# --- arguments


def _draw(kind: str, count: int, dtype: Any, rng: np.random.Generator) -> np.ndarray:
    """Arguments of a kind: half of them of all magnitudes that the type and the kind have, its ends included."""
    info = ml_dtypes.finfo(dtype)
    least, greatest, eps = (np.log(float(v)) for v in (info.smallest_subnormal, info.max, info.eps))
    half = count // 2
    sizes = np.concatenate(
        [
            np.exp(rng.uniform(least, greatest, half - 2)),
            [np.exp(least) * 1.01, np.exp(greatest) * 0.99],
        ]
    )
    signs, near = rng.choice([-1.0, 1.0], half), count - half
    little = np.exp(rng.uniform(least, 0, half))
    match kind.partition(":")[0]:
        case "real":
            x = np.concatenate([signs * sizes, rng.normal(0, 4, near)])
        case "positive":
            x = np.concatenate([sizes, np.exp(rng.normal(0, 2, near))])
        case "unit":  # a probability: tails at both ends
            x = np.concatenate(
                [
                    little,
                    rng.uniform(0, 1, near - near // 2),
                    1 - np.exp(rng.uniform(eps, 0, near // 2)),
                ]
            )
        case "sides":  # as much on both sides of zero
            x = np.concatenate(
                [
                    signs * little,
                    rng.uniform(-1, 1, near - near // 2),
                    rng.choice([-1, 1], near // 2) * (1 - np.exp(rng.uniform(eps, 0, near // 2))),
                ]
            )
        case "angle":
            x = np.concatenate([signs * np.minimum(sizes, 1e3), rng.uniform(-7, 7, near)])
        case "turn":
            x = np.concatenate([little, rng.uniform(0, 6.28, near)])
        case "above":  # one: `1 + t`
            x = 1 + np.concatenate([sizes, np.exp(rng.normal(0, 2, near))])
        case "minus":  # more than minus one
            x = np.concatenate([sizes, np.exp(rng.uniform(eps, 0, near)) - 1])
        case "shape":  # a parameter that mpmath can take everywhere
            x = np.exp(rng.uniform(np.log(1e-3), np.log(min(1e4, float(info.max) / 4)), count))
        case "few":
            x = np.exp(rng.uniform(np.log(0.02), np.log(60), count))
        case "count":
            x = np.floor(
                np.exp(rng.uniform(0, np.log(min(1e6, 2 / float(info.eps))), count))
            ) - rng.choice([0, 1], count)
        case "bit":
            x = rng.integers(0, 2, count).astype(float)
        case "order":
            x = rng.integers(0, 9, count).astype(float)
        case _:
            raise ValueError(kind)
    return rng.permutation(x)


def arguments(name: str, type_: str, count: int) -> list[np.ndarray]:
    """The arguments of a case, rounded to the type; those of a kind with `:` depend on the ones before."""
    dtype, case = TYPES[type_], CASES[name]
    rng = np.random.default_rng(zlib.crc32(f"{name.split('.')[-2:]}".encode()))
    out: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for kind in case.kinds:
            x = _draw(kind, count, dtype, rng).astype(dtype).astype(np.float64)
            match kind.partition(":")[2]:
                case "least":  # at most the first argument, as counts are
                    out[0], x = np.minimum(out[0], x), np.maximum(out[0], x)
                case "below":  # at most the first one
                    x = out[0] - np.abs(x)
                case "over":
                    x = out[0] + np.abs(x)
                case "around":  # half of the first arguments are where the distribution is
                    out[0] = np.where(
                        rng.random(count) < 0.5,
                        x * np.exp(rng.normal(0, 1, count) / np.sqrt(1 + x)),
                        out[0],
                    )
                case "near":  # the same of this one and the first
                    x = np.where(
                        rng.random(count) < 0.5,
                        out[0] * np.exp(rng.normal(0, 1, count) / np.sqrt(1 + out[0])),
                        x,
                    )
            out.append(x.astype(dtype).astype(np.float64))
        return [x.astype(dtype) for x in out]


# --- exact values


class Exact(NamedTuple):
    """What a function is at a point: value and slopes, and of each the sum of its absolute changes with its arguments."""

    values: tuple[mpf, ...]
    changes: tuple[mpf, ...]


def _at(case: Case, args: Sequence[float]) -> Exact | None:
    """None where the function is not finite, or mpmath has no value."""
    x = [mpf(float(v)) for v in args]
    steps = [abs(v) * STEP if v else mpf(10) ** -340 for v in x]

    def attempt() -> tuple[Exact, bool]:
        @functools.cache
        def f(moves: tuple[int, ...] = (0,) * len(x)) -> mpf:
            value = mpmath.mpmathify(case.exact(*[v + m * h for v, m, h in zip(x, moves, steps)]))
            if not mp.isfinite(value) or (isinstance(value, mpmath.mpc) and value.imag != 0):
                raise ValueError
            return value.real

        def slope(i: int, j: int = 0, by: int = 0) -> mpf:
            up, down = (
                [by * (k == j) + side * (k == i) for k in range(len(x))] for side in (1, -1)
            )
            return (f(tuple(up)) - f(tuple(down))) / (2 * steps[i])

        values, changes, resolved = [f()], [sum(abs(x[j] * slope(j)) for j in range(len(x)))], True
        noise = abs(values[0]) * mpf(10) ** -mp.dps
        for i in case.by:
            values.append(slope(i))
            changes.append(
                sum(
                    abs(x[j] * (slope(i, j, 1) - slope(i, j, -1)) / (2 * steps[j]))
                    for j in range(len(x))
                )
            )
            resolved &= not any(values) or bool(noise < abs(values[-1]) * steps[i] * STEP / 1000)
        return Exact(tuple(values), tuple(changes)), resolved

    for digits in DIGITS:
        with mp.workdps(digits):
            try:
                found, resolved = attempt()
            except (
                ValueError,
                ZeroDivisionError,
                OverflowError,
                TypeError,
                mpmath.libmp.NoConvergence,
                NotImplementedError,
            ):
                return None
            if resolved:
                break
    return found


@functools.cache
def exact(name: str, type_: str, count: int) -> list[Exact | None]:
    return [_at(CASES[name], point) for point in zip(*arguments(name, type_, count))]


def share_of_allowed(got: float, value: mpf, change: mpf, type_: str) -> float:
    """The error as a share of `ULPS` ulp times 1 + the condition number; what is beyond all floats counts as the next power of 2."""
    info = ml_dtypes.finfo(TYPES[type_])
    limit = mpf(2) ** int(info.maxexp)
    want = max(-limit, min(limit, value))
    if abs(value) >= limit and not np.isfinite(got):
        return 0.0
    if np.isnan(got) or (
        np.isinf(got)
        and abs(value) < limit * (1 - mpf(float(info.eps)) * (1 + min(change / limit, 1e6)) * ULPS)
    ):
        return float("inf")
    have = max(-limit, min(limit, mpf(got) if np.isfinite(got) else limit * int(np.sign(got))))
    exponent = max(mpmath.frexp(want)[1] if want else -(10**9), int(info.minexp) + 1)
    ulp = mpf(2) ** (exponent - int(info.nmant) - 1)
    return float(abs(have - want) / (ULPS * (ulp + min(change, limit) * float(info.eps))))


# --- ours


def computed(name: str, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The values, and the slopes by each argument that has any."""
    import weft
    from weft import numpy as wnp

    *path, last = name.split(".")
    case, module = CASES[name], importlib.import_module(".".join(["weft.scipy", *path]))

    def fun(*args):
        return getattr(module, last)(*args, *case.fixed)

    def both(*args):
        return fun(*args), *[
            weft.grad(lambda *args: wnp.sum(fun(*args)), i)(*args) for i in case.by
        ]

    with weft.enable_x64(True):
        return [np.asarray(out).astype(np.float64) for out in weft.jit(both)(*args)]


class Found(NamedTuple):
    """The worst share of the allowed error, its arguments, the result and the exact one."""

    share: float
    args: tuple
    got: float
    exact: float


def shares(name: str, type_: str, count: int) -> list[Found]:
    """How far the value and each slope are off."""
    args = arguments(name, type_, count)
    out = []
    with mp.workdps(DIGITS[0]):
        known = [(k, at) for k, at in enumerate(exact(name, type_, count)) if at is not None]
        for part, got in enumerate(computed(name, args) if known else ()):
            share, k, at = max(
                (
                    (
                        share_of_allowed(float(got[k]), at.values[part], at.changes[part], type_),
                        k,
                        at,
                    )
                    for k, at in known
                ),
                key=lambda found: found[:2],
            )
            out.append(
                Found(
                    share,
                    tuple(float(arg[k]) for arg in args),
                    float(got[k]),
                    float(at.values[part]),
                )
            )
    return out


# --- the exact functions


def _log_normal_cdf(x: mpf) -> mpf:
    tail = mp.erfc(abs(x) / mp.sqrt(2)) / 2
    return mp.log(tail) if x < 0 else mp.log1p(-tail)


def _normal_cdf(x: mpf) -> mpf:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _normal_quantile(p: mpf) -> mpf:
    if not 0 < p < 1:
        raise ValueError
    if p > 0.5:
        return -_normal_quantile(1 - p)
    log_p = mp.log(p)
    x = -mp.sqrt(max(-2 * log_p - mp.log(max(-4 * mp.pi * log_p, 1)), 0))
    for _ in range(90):
        log_density = -x * x / 2 - mp.log(2 * mp.pi) / 2
        log_cdf = _log_normal_cdf(x)
        step = (log_cdf - log_p) * mp.exp(log_cdf - log_density)
        x -= step
        if abs(step) < abs(x) * mpf(10) ** (10 - mp.dps):
            break
    return x


def _log_gamma(x: mpf) -> mpf:
    return mp.loggamma(x) if x > 0 else mp.log(abs(mp.gamma(x)))


def _log_beta(a: mpf, b: mpf) -> mpf:
    """Of great arguments by more digits, so that gammas may cancel."""
    with mp.workdps(mp.dps + max(0, int(mp.log10(max(a, b, 1)))) + 10):
        return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


def _bessel(order: int, x: mpf) -> mpf:
    return mp.besseli(order, x)


def _scaled_bessel(order: int, x: mpf) -> mpf:
    size = abs(x)
    if size < 1000:
        y = mp.besseli(order, size) * mp.exp(-size)
    else:
        term = total = mpf(1)
        for k in range(1, 60):
            term *= -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * size)
            total += term
        y = total / mp.sqrt(2 * mp.pi * size)
    return -y if order and x < 0 else y


def _box(log_of: Callable) -> Callable:
    return lambda x, y: mp.expm1(y * log_of(x)) / y if y else log_of(x)


def _x_log(x: mpf, log_y: mpf) -> mpf:
    return x * log_y if x else mpf(0)


def _log1m(x: mpf) -> mpf:
    return mp.log1p(-x)


def _converged(fraction: Callable[[int], mpf]) -> mpf:
    """A continued fraction of as many terms as it needs."""
    last, terms = fraction(15), 30
    while abs((total := fraction(terms)) - last) > abs(total) * mpf(10) ** (10 - mp.dps):
        last, terms = total, 2 * terms
    return total


def _gammainc(a: mpf, x: mpf, upper: bool) -> mpf:
    if a <= 0 or x < 0:
        raise ValueError
    if x == 0:
        return mpf(upper)
    log_tail = a * mp.log(x) - x - mp.loggamma(a)
    lost = int((x - a - a * mp.log(x / a)) / 2.3) if x > a else 0
    if lost > 40:  # far out Legendre's fraction converges soon

        def fraction(terms: int) -> mpf:
            total = mpf(0)
            for n in range(terms, 0, -1):
                total = n * (a - n) / (x + 2 * n + 1 - a + total)
            return 1 / (x + 1 - a + total)

        tail = mp.exp(log_tail) * _converged(fraction)
        return tail if upper else 1 - tail
    with mp.workdps(mp.dps + lost + 5):
        term = total = mpf(1)
        n = 0
        while term > total * mpf(10) ** -mp.dps:
            n += 1
            term *= x / (a + n)
            total += term
        lower = total * mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1))
        return 1 - lower if upper else lower


def _betainc(a: mpf, b: mpf, x: mpf, rest: mpf | None = None) -> mpf:
    """By its fraction, from the side where it converges; `rest` is 1 - x."""
    rest = 1 - x if rest is None else rest
    if not (a > 0 and b > 0):
        raise ValueError
    if x <= 0:
        return mpf(0)
    if rest <= 0:
        return mpf(1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _betainc(b, a, rest, x)

    def fraction(terms: int) -> mpf:
        total = mpf(0)
        for m in range(terms, 0, -1):
            even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
            odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
            total = even / (1 + odd / (1 + total))
        return 1 / (1 - (a + b) * x / (a + 1) / (1 + total))

    return _converged(fraction) * mp.exp(a * mp.log(x) + b * mp.log(rest) - _log_beta(a, b)) / a


def _zeta(s: mpf, q: mpf) -> mpf:
    if s <= 1 or q <= 0:
        raise ValueError
    if s > 1000:
        _support(q < s / 100)
        return q**-s * (1 + mp.exp(-s * mp.log1p(1 / q)))
    terms = 40 + int(min(s, 200))
    a = q + terms
    total = sum((q + k) ** -s for k in range(terms)) + a ** (1 - s) / (s - 1) + a**-s / 2
    factor = s / a
    for j in range(1, 40):
        total += mp.bernoulli(2 * j) / mp.factorial(2 * j) * factor * a**-s
        factor *= (s + 2 * j - 1) * (s + 2 * j) / a**2
    return total


def _support(inside: bool) -> None:
    if not inside:
        raise ValueError


def _bounded_exp(z: mpf) -> mpf:
    """Of which another exponential can be taken."""
    return mp.exp(min(z, 30))


def _exp(y: mpf) -> mpf:
    """Zero where that is far below all floats."""
    return mp.exp(y) if y > -(10**5) else mpf(0)


def _log_of_rest(z: mpf) -> mpf:
    """log(1 - exp(-z))."""
    return mp.log(-mp.expm1(-z)) if z < 1 else mp.log1p(-mp.exp(-z))


def _rel_entr(p: mpf, q: mpf) -> mpf:
    return p * mp.log(p / q)


def _whole(k: mpf, n: mpf | None = None) -> None:
    if k < 0 or (n is not None and k > n):
        raise ValueError


def _far_series(x: mpf, sign: int) -> mpf:
    """1 - 1 / (2 x^2) + 3 / (2 x^2)^2 - ..., or all of it positive."""
    term = total = mpf(1)
    for k in range(1, 40):
        term *= sign * (2 * k - 1) / (2 * x * x)
        total += term
    return total


def _scaled_erfc(x: mpf) -> mpf:
    _support(x > -100)
    return mp.exp(x * x) * mp.erfc(x) if x < 10**3 else _far_series(x, -1) / (x * mp.sqrt(mp.pi))


def _dawson(x: mpf) -> mpf:
    return (
        mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)
        if abs(x) < 50
        else _far_series(x, 1) / (2 * x)
    )


def _exponential_integral(x: mpf) -> mpf:
    _support(x < 10**4)
    return mp.ei(x) if x > -(10**4) else mpf(0)


_case("special.erf", "real", mp.erf)
_case("special.erfc", "real", mp.erfc)
_case(
    "special.erfinv",
    "sides",
    lambda x: _normal_quantile((1 + x) / 2) / mp.sqrt(2) if abs(x) > 1e-5 else mp.erfinv(x),
)
_case(
    "special.expit",
    "real",
    lambda x: 1 / (1 + mp.exp(-x)) if x > 0 else mp.exp(x) / (1 + mp.exp(x)),
)
_case("special.logit", "unit", lambda x: mp.log(x) - _log1m(x))
_case("special.gammaln", "positive", _log_gamma)
_case("special.digamma", "positive", mp.digamma)
_case("special.i0", "real", lambda x: _scaled_bessel(0, x) * mp.exp(abs(x)))
_case("special.i1", "real", lambda x: _scaled_bessel(1, x) * mp.exp(abs(x)))
_case("special.i0e", "real", lambda x: _scaled_bessel(0, x))
_case("special.i1e", "real", lambda x: _scaled_bessel(1, x))
_case(
    "special.gamma", "real", lambda x: mp.gamma(x) if abs(x) < 3000 else mp.inf if x > 0 else mp.nan
)
_case(
    "special.gammasgn",
    "real",
    lambda x: mpf(1) if x > 0 or int(mp.floor(x)) % 2 == 0 else mpf(-1),
    by=(),
)
_case("special.factorial", "positive", lambda x: mp.gamma(x + 1) if x < 3000 else mp.inf)
_case("special.ndtr", "real", _normal_cdf)
_case("special.log_ndtr", "real", _log_normal_cdf)
_case("special.ndtri", "unit", _normal_quantile)
_case("special.entr", "positive", lambda x: -x * mp.log(x))
_case(
    "special.multigammaln",
    "above",
    lambda x: mp.loggamma(x) + mp.loggamma(x - 0.5) + mp.log(mp.pi) / 2,
    fixed=(2,),
)
_case("special.beta", "positive positive", lambda a, b: mp.exp(_log_beta(a, b)))
_case("special.betaln", "positive positive", _log_beta)
_case("special.poch", "few few", lambda z, m: mp.exp(mp.loggamma(z + m) - mp.loggamma(z)))
_case("special.boxcox", "positive real", _box(mp.log))
_case("special.boxcox1p", "minus real", _box(mp.log1p))
_case("special.xlogy", "real positive", lambda x, y: _x_log(x, mp.log(y)))
_case("special.xlog1py", "real minus", lambda x, y: _x_log(x, mp.log1p(y)))
_case("special.rel_entr", "positive positive", _rel_entr)
_case("special.kl_div", "positive positive", lambda p, q: _rel_entr(p, q) - p + q)
_case("special.polygamma", "order positive", lambda n, x: mp.psi(int(mp.nint(n)), x), by=[1])
_case("special.zeta", "above positive", _zeta, by=[1])
_case("special.gammainc", "shape positive:near", lambda a, x: _gammainc(a, x, False))
_case("special.gammaincc", "shape positive:near", lambda a, x: _gammainc(a, x, True))
_case("special.loggamma", "positive", mp.loggamma)
_case("special.erfcx", "real", _scaled_erfc)
_case("special.dawsn", "real", _dawson)
_case("special.exp1", "positive", lambda x: mp.e1(x) if x < 10**4 else mpf(0))
_case("special.expi", "real", _exponential_integral)
_case("special.betainc", "shape shape unit", _betainc, by=[2])


def _log_of(part: mpf, rest: mpf | None) -> mpf:
    """Of what is one together with the rest, by the smaller of them."""
    return mp.log(part) if rest is None or part < 0.5 else _log1m(rest)


def _family(
    name: str,
    kinds: str,
    by: Sequence[int] | None = None,
    quantiles: str = "unit",
    **functions: Callable,
) -> None:
    """Functions of a standard distribution; those derived from one another are made here."""
    rest = kinds.split()[1:]
    for log_name, plain in (
        ("logpdf", "pdf"),
        ("logpmf", "pmf"),
        ("logcdf", "cdf"),
        ("logsf", "sf"),
    ):
        if log_name in functions and plain not in functions:
            functions[plain] = lambda *args, f=functions[log_name]: _exp(f(*args))
        if plain in functions and log_name not in functions:
            rest_of = functions.get({"cdf": "sf", "sf": "cdf"}.get(plain, ""))
            functions[log_name] = lambda *args, f=functions[plain], rest_of=rest_of: _log_of(
                f(*args), rest_of and rest_of(*args)
            )
    module = importlib.import_module(f"weft.scipy.stats.{name}")
    for function, exact_ in functions.items():
        if hasattr(module, function):
            quantile = function in ("ppf", "isf")
            _case(
                f"stats.{name}.{function}",
                " ".join([quantiles, *rest]) if quantile else kinds,
                exact_,
                by,
            )


def _gamma_log_density(z: mpf, a: mpf) -> mpf:
    return (a - 1) * mp.log(z) - z - mp.loggamma(a)


def _student(z: mpf, df: mpf) -> mpf:
    with mp.workdps(mp.dps + 2 * int(mp.log10(df + 10))):  # of great df the gammas cancel
        scale = (
            mp.loggamma((df + 1) / 2) - mp.loggamma(df / 2)
            if df < 1e30
            else mp.log(df / 2) / 2 - 1 / (4 * df)
        )
        return scale - mp.log(df * mp.pi) / 2 - (df + 1) / 2 * mp.log1p(z * z / df)


def _mass(a: mpf, b: mpf) -> mpf:
    """Of the normal distribution, from the tail in which both are."""
    if a > 0:
        a, b = -b, -a
    return _normal_cdf(b) - _normal_cdf(a) if b - a > 1e-20 else (b - a) * mp.npdf(a)


def _log_part(part, rest, whole):
    """log(part / whole), from the smaller of the part and the rest."""
    return mp.log(part / whole) if part < rest else _log1m(rest / whole)


def _truncated(function: Callable) -> Callable:
    def checked(z, a, b):
        _support(a < z < b)
        return function(z, a, b)

    return checked


def _beyond_one(function: Callable) -> Callable:
    """At the end of the support there is no difference on both sides."""

    def checked(z, b):
        _support(z > 1)
        return function(z, b)

    return checked


def _log_choice(n: mpf, k: mpf) -> mpf:
    return -mp.log1p(n) - _log_beta(n - k + 1, k + 1)


def _binomial(k: mpf, n: mpf, p: mpf) -> mpf:
    return _log_choice(n, k) + _x_log(k, mp.log(p)) + _x_log(n - k, _log1m(p))


def _geometric(k: mpf, p: mpf) -> mpf:
    _support(k >= 1)
    return _x_log(k - 1, _log1m(p)) + mp.log(p)


def _beta_binomial(k: mpf, n: mpf, a: mpf, b: mpf) -> mpf:
    with mp.workdps(mp.dps + int(mp.log10(max(a, b, 1)))):
        return _log_choice(n, k) + _log_beta(k + a, n - k + b) - _log_beta(a, b)


def _negative_binomial(k: mpf, n: mpf, p: mpf) -> mpf:
    return (
        mp.loggamma(k + n)
        - mp.loggamma(k + 1)
        - mp.loggamma(n)
        + n * mp.log(p)
        + _x_log(k, _log1m(p))
    )


_family(
    "norm",
    "real",
    logpdf=lambda z: -z * z / 2 - mp.log(2 * mp.pi) / 2,
    cdf=_normal_cdf,
    logcdf=_log_normal_cdf,
    sf=lambda z: _normal_cdf(-z),
    logsf=lambda z: _log_normal_cdf(-z),
    ppf=_normal_quantile,
    isf=lambda q: -_normal_quantile(q),
)
_family("uniform", "unit", logpdf=lambda z: mpf(0) * z, cdf=lambda z: z, ppf=lambda q: q)
_family(
    "expon",
    "positive",
    logpdf=lambda z: -z,
    cdf=lambda z: -mp.expm1(-z),
    sf=lambda z: mp.exp(-z),
    logsf=lambda z: -z,
    logcdf=_log_of_rest,
    ppf=lambda q: -_log1m(q),
)
_family(
    "gamma",
    "positive shape:around",
    logpdf=_gamma_log_density,
    cdf=lambda z, a: _gammainc(a, z, False),
    sf=lambda z, a: _gammainc(a, z, True),
)
_family(
    "chi2",
    "positive shape:around",
    logpdf=lambda z, df: _gamma_log_density(z / 2, df / 2) - mp.log(2),
    cdf=lambda z, df: _gammainc(df / 2, z / 2, False),
    sf=lambda z, df: _gammainc(df / 2, z / 2, True),
)
_family(
    "beta",
    "unit shape shape",
    by=[0],
    cdf=lambda z, a, b: _betainc(a, b, z),
    sf=lambda z, a, b: _betainc(b, a, 1 - z, z),
    logpdf=lambda z, a, b: (a - 1) * mp.log(z) + (b - 1) * _log1m(z) - _log_beta(a, b),
)
_family(
    "cauchy",
    "real",
    logpdf=lambda z: -mp.log(mp.pi) - mp.log1p(z * z),
    cdf=lambda z: mp.atan2(1, -z) / mp.pi,
    sf=lambda z: mp.atan2(1, z) / mp.pi,
    logcdf=lambda z: mp.log(mp.atan2(1, -z) / mp.pi) if z < 0 else _log1m(mp.atan2(1, z) / mp.pi),
    logsf=lambda z: mp.log(mp.atan2(1, z) / mp.pi) if z > 0 else _log1m(mp.atan2(1, -z) / mp.pi),
    ppf=lambda q: -mp.cot(mp.pi * q),
    isf=lambda q: mp.cot(mp.pi * q),
)
_family(
    "laplace",
    "real",
    logpdf=lambda z: -abs(z) - mp.log(2),
    cdf=lambda z: mp.exp(z) / 2 if z < 0 else 1 - mp.exp(-z) / 2,
)
_family(
    "logistic",
    "real",
    logpdf=lambda z: -abs(z) - 2 * mp.log1p(mp.exp(-abs(z))),
    cdf=CASES["special.expit"].exact,
    sf=lambda z: CASES["special.expit"].exact(-z),
    ppf=CASES["special.logit"].exact,
    isf=lambda q: -CASES["special.logit"].exact(q),
)
_family("t", "real positive", logpdf=_student)
_family(
    "gumbel_r",
    "real",
    logpdf=lambda z: -z - mp.exp(-z),
    logcdf=lambda z: -mp.exp(-z),
    sf=lambda z: -mp.expm1(-_bounded_exp(-z)),
    logsf=lambda z: _log_of_rest(_bounded_exp(-z)),
    ppf=lambda q: -mp.log(-mp.log(q)),
)
_family(
    "gumbel_l",
    "real",
    logpdf=lambda z: z - mp.exp(z),
    logsf=lambda z: -mp.exp(z),
    cdf=lambda z: -mp.expm1(-_bounded_exp(z)),
    logcdf=lambda z: _log_of_rest(_bounded_exp(z)),
    ppf=lambda q: mp.log(-_log1m(q)),
)
_family(
    "pareto",
    "above positive",
    logpdf=_beyond_one(lambda z, b: mp.log(b) - (b + 1) * mp.log(z)),
    logsf=_beyond_one(lambda z, b: -b * mp.log(z)),
    cdf=_beyond_one(lambda z, b: -mp.expm1(-b * mp.log(z))),
    logcdf=_beyond_one(lambda z, b: _log_of_rest(b * mp.log(z))),
    ppf=lambda q, b: mp.exp(-_log1m(q) / b),
)
_family(
    "truncnorm",
    "real real:below real:over",
    logpdf=_truncated(lambda z, a, b: -z * z / 2 - mp.log(2 * mp.pi) / 2 - mp.log(_mass(a, b))),
    cdf=_truncated(lambda z, a, b: _mass(a, z) / _mass(a, b)),
    sf=_truncated(lambda z, a, b: _mass(z, b) / _mass(a, b)),
    logcdf=_truncated(lambda z, a, b: _log_part(_mass(a, z), _mass(z, b), _mass(a, b))),
    logsf=_truncated(lambda z, a, b: _log_part(_mass(z, b), _mass(a, z), _mass(a, b))),
)
_family(
    "gennorm",
    "real few",
    logpdf=lambda z, b: mp.log(b / 2) - mp.loggamma(1 / b) - abs(z) ** b,
    cdf=lambda z, b: (
        _gammainc(1 / b, abs(z) ** b, True) / 2
        if z < 0
        else 1 - _gammainc(1 / b, abs(z) ** b, True) / 2
    ),
)
_family(
    "vonmises",
    "angle positive",
    logpdf=lambda x, k: (
        -2 * k * mp.sin(x / 2) ** 2 - mp.log(2 * mp.pi) - mp.log(_scaled_bessel(0, k))
    ),
)
_family(
    "wrapcauchy",
    "turn unit",
    logpdf=lambda x, c: (
        mp.log((1 - c) * (1 + c))
        - mp.log(2 * mp.pi)
        - mp.log((1 - c) ** 2 + 4 * c * mp.sin(x / 2) ** 2)
    ),
)
_family("bernoulli", "bit unit", by=[1], logpmf=lambda k, p: mp.log(p) * k + _log1m(p) * (1 - k))
_family("binom", "count count:least unit", by=[2], logpmf=_binomial)
_family("nbinom", "count positive unit", by=[1, 2], logpmf=_negative_binomial)
_family("geom", "count unit", by=[1], logpmf=_geometric)
_family("betabinom", "count count:least positive positive", by=[2, 3], logpmf=_beta_binomial)
_family(
    "poisson",
    "count shape",
    by=[1],
    logpmf=lambda k, mu: _x_log(k, mp.log(mu)) - mp.loggamma(k + 1) - mu,
    cdf=lambda k, mu: _gammainc(mp.floor(k) + 1, mu, True),
)


# --- the table

HEAD = "| of `weft.scipy` | float32 | float64 | float16 | bfloat16 |"


def row(name: str, count: int) -> str:
    """A row of the table: the worst shares of the value and of the slopes."""
    cells = []
    for type_ in TYPES:
        value, *slopes = [found[0] for found in shares(name, type_, count)] or [0.0]
        cells.append(f"{value:.2g}" + (f", {max(slopes):.2g}" if slopes else ""))
    return f"| `{name}` | {' | '.join(cells)} |"


def write_page(page: Path, names: Sequence[str], count: int = 24) -> None:
    """Measure functions, and put their rows into the table of the page; the others stay."""
    text = page.read_text()
    head, rest = text.split(HEAD)
    table, rest = rest.split("\n\n", 1)
    told = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")} | {
        name: row(name, count) for name in names
    }
    lines = [HEAD, "|---|---|---|---|---|", *[told[name] for name in CASES if name in told]]
    page.write_text("\n".join([*head.rstrip("\n").splitlines(), "", *lines]) + "\n\n" + rest)


if __name__ == "__main__":
    write_page(PAGE, sys.argv[1:] or list(CASES))
