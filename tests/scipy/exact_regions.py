"""Values, first and second derivatives of `weft.scipy.special` in named regions, against mpmath.

In:  `REGIONS`: each function with its exact form, the domain of its arguments and its zeros and poles.
Out: errors as shares of what is allowed, as in `tests.scipy.exact`: `ULPS` ulp of the result times 1 + its condition number. Of
     second derivatives `BEND_ULPS` ulp are allowed: automatic differentiation adds roundings.
Use: `python -m tests.scipy.exact_regions [NAME...]` measures and writes the rows of the functions into docs/accuracy.md.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import mpmath
import numpy as np
from mpmath import mp, mpf

from tests.scipy.exact import CASES, PAGE, TYPES, ULPS, share_of_allowed
from tests.scipy.exact_functions import require

BEND_ULPS = 32
STEP = mpf(10) ** -26
DIGITS = (130, 350, 1150)
NAMES = ("zeros", "poles", "integers", "subnormal", "small", "large")
MEASURED = ("f32", "f64")


class RegionCase(NamedTuple):
    """A function of weft, its exact form, a domain per argument, its zeros and poles by the first argument, and trailing arguments.

    `ours` calls functions that take other arguments. Of complex functions, which are real ones with two arguments or results, `part_of`
    is the part that is compared: its errors are relative to the modulus of the whole.
    """

    exact: Callable
    domains: tuple[str, ...]
    by: tuple[int, ...]
    zeros: tuple[float, ...]
    poles: tuple[float, ...]
    fixed: tuple
    part: int | None
    largest: float
    smallest: float
    ours: Callable | None = None
    part_of: Callable | None = None


REGIONS: dict[str, RegionCase] = {}


def _region(
    name: str,
    domains: str,
    exact: Callable | None = None,
    *,
    by: Sequence[int] | None = None,
    zeros: Sequence[float] = (),
    poles: Sequence[float] = (),
    part: int | str | None = None,
    largest: float = np.inf,
    smallest: float = 0.0,
    ours: Callable | None = None,
    part_of: Callable | None = None,
) -> None:
    """Register a function; without `exact`, one of `CASES`. `part` picks one of several results.

    Arguments beyond `largest` and, other than zero, below `smallest` are left out: mpmath takes long there.
    """
    case = CASES.get(name)
    parts = tuple(domains.split())
    by = tuple(by if by is not None else case.by if case and exact is None else range(len(parts)))
    fixed = case.fixed if case else ()
    REGIONS[name if part is None else f"{name}[{part}]"] = RegionCase(
        exact or case.exact,
        parts,
        by,
        tuple(zeros),
        tuple(poles),
        fixed,
        part,
        largest,
        smallest,
        ours,
        part_of,
    )


# --- arguments


class Domain(NamedTuple):
    """An open interval, and points for an argument while another one is in a region."""

    low: float
    high: float
    ordinary: tuple[float, ...]


DOMAINS = {
    "real": Domain(-np.inf, np.inf, (-1.75, 0.4, 3.2)),
    "positive": Domain(0, np.inf, (0.4, 3.2)),
    "unit": Domain(0, 1, (0.3, 0.8)),
    "sides": Domain(-1, 1, (-0.6, 0.3)),
    "above": Domain(1, np.inf, (1.3, 4.5)),
    "minus": Domain(-1, np.inf, (-0.5, 2.5)),
    "order": Domain(-1, 13, (1.0, 3.0)),
    "turn": Domain(-1e-300, 3.14159, (0.4, 2.5)),
}


def _neighbors(points: Sequence[float], dtype: Any) -> list[float]:
    """Return the points, the floats next to them and some a little further away."""
    out = []
    for point in points:
        x = dtype(point)
        up, down = np.nextafter(x, dtype(np.inf)), np.nextafter(x, dtype(-np.inf))
        out += [x, up, down, np.nextafter(np.nextafter(up, dtype(np.inf)), dtype(np.inf))]
        width = max(abs(point), 1) * float(ml_dtypes.finfo(dtype).eps) ** 0.5
        out += [dtype(point + s * width * k) for s in (1, -1) for k in (1, 17)]
    return [float(x) for x in out]


def _points(region: str, case: RegionCase, i: int, dtype: Any) -> list[float]:
    info = ml_dtypes.finfo(dtype)
    tiny, least, top, eps = (
        float(v) for v in (info.smallest_normal, info.smallest_subnormal, info.max, info.eps)
    )
    domain = case.domains[i]
    match region:
        case "zeros":
            x = _neighbors(case.zeros, dtype) if i == 0 else []
        case "poles":
            x = _neighbors(case.poles, dtype) if i == 0 else []
        case "integers":
            x = _neighbors((1, 2, 3, 10, 0.5, 1.5, -1, -2, -3, -0.5, -1.5), dtype)
        case "subnormal":
            x = [
                s * v
                for v in (least, 3 * least, tiny / 8, tiny / 2, tiny, 3 * tiny)
                for s in (1, -1)
            ]
        case "small":
            x = [
                s * v
                for v in (tiny**0.75, tiny**0.5, tiny**0.25, eps, eps**0.5, 3e-3, 0.11)
                for s in (1, -1)
            ]
        case "large":
            x = [
                s * v
                for v in (7.3, 31.7, 171.25, 1e3, 1e5, 1 / eps, top**0.5, top / 4)
                for s in (1, -1)
            ]
    if domain == "unit" and region in ("subnormal", "small"):
        x = x + [1 - v for v in x]
    if domain == "above" and region in ("subnormal", "small"):
        x = [1 + v for v in x]
    if domain == "order":
        x = [v for v in x if v == int(v)] if region == "integers" else []
    x = [float(dtype(v)) for v in x]
    low, high, _ = DOMAINS[domain]
    return [
        v
        for v in x
        if low < v < high and abs(v) <= case.largest and (v == 0 or abs(v) >= case.smallest)
    ]


def arguments(name: str, type_: str) -> tuple[list[str], list[np.ndarray]]:
    """Return the region of each point, and the points of all regions."""
    case, dtype = REGIONS[name], TYPES[type_]
    regions, points = [], []
    for region in NAMES:
        for i in range(len(case.domains)):
            others = [DOMAINS[d].ordinary if j != i else None for j, d in enumerate(case.domains)]
            chosen = list(dict.fromkeys(_points(region, case, i, dtype)))
            for k, v in enumerate(chosen):
                mixed = [
                    v if choice is None else float(dtype(choice[(k + j) % len(choice)]))
                    for j, choice in enumerate(others)
                ]
                regions.append(region)
                points.append(mixed)
    return regions, [np.array(column, dtype) for column in zip(*points)]


# --- exact derivatives


def _parts(case: RegionCase) -> list[tuple[int, ...]]:
    """Return the derivatives measured, by the arguments of each: the value, slopes, bends."""
    return [(), *((i,) for i in case.by), *itertools.combinations_with_replacement(case.by, 2)]


def _exact_at(case: RegionCase, args: Sequence[float]) -> list[tuple[mpf, mpf] | None]:
    """Return each derivative and the sum of its changes by relative changes of the arguments; None if it is not finite."""

    def attempt() -> tuple[list, bool]:
        x = [mpf(v) for v in args]
        steps = [abs(v) * STEP if v else mpf(10) ** -360 for v in x]

        @functools.cache
        def f(moves: tuple[int, ...]) -> Any:
            value = mpmath.mpmathify(
                case.exact(*[v + m * h / 2 for v, m, h in zip(x, moves, steps)])
            )
            if not mp.isfinite(value) or (
                isinstance(value, mpmath.mpc) and value.imag != 0 and case.part_of is None
            ):
                raise ValueError
            return value.real if case.part_of is None else value

        def derivative(by: tuple[int, ...], moves: tuple[int, ...]) -> Any:
            if not by:
                return f(moves)
            up, down = (
                tuple(m + side * (j == by[0]) for j, m in enumerate(moves)) for side in (1, -1)
            )
            return (derivative(by[1:], up) - derivative(by[1:], down)) / steps[by[0]]

        origin, resolved, out = (0,) * len(x), True, []
        scale = abs(f(origin))
        for by in _parts(case):
            value = derivative(by, origin)
            changes = [abs(x[j] * derivative((*by, j), origin)) for j in range(len(x))]
            noise = scale * mpf(10) ** (5 - mp.dps)
            for i in by:
                noise /= steps[i]
            resolved &= bool(
                noise < abs(value) * mpf(10) ** -20
                and noise / STEP < (abs(value) + sum(changes)) / 1000
            )
            if case.part_of is None:
                out.append((value, sum(changes)))
            else:
                out.append((case.part_of(value), sum(changes) + abs(value)))
        return out, resolved

    points: list = [None] * len(_parts(case))
    for digits in DIGITS:
        with mp.workdps(digits):
            try:
                points, resolved = attempt()
            except (
                ValueError,
                ZeroDivisionError,
                OverflowError,
                TypeError,
                mpmath.libmp.NoConvergence,
                NotImplementedError,
            ):
                return [None] * len(_parts(case))
            if resolved:
                break
    return points


@functools.cache
def exact(name: str, type_: str) -> list[list[tuple[mpf, mpf] | None]]:
    return [
        _exact_at(REGIONS[name], [float(v) for v in point])
        for point in zip(*arguments(name, type_)[1])
    ]


# --- ours


def _function(name: str) -> Callable:
    case, bare = REGIONS[name], name.partition("[")[0]
    if case.ours is not None:
        return case.ours
    *path, last = bare.split(".")
    module = importlib.import_module(
        ".".join(["weft", *path] if path[0] in ("numpy", "nn") else ["weft.scipy", *path])
    )

    def call(*args):
        out = getattr(module, last)(*args, *case.fixed)
        return out if case.part is None else out[case.part]

    return call


def computed(name: str, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the value and the derivatives of `_parts`, elementwise."""
    import weft
    from weft import numpy as wnp

    def derivative(fun: Callable, i: int) -> Callable:
        def slope(*args):
            moved = lambda x: fun(*args[:i], x, *args[i + 1 :])
            return weft.jvp(moved, (args[i],), (wnp.ones_like(args[i]),))[1]

        return slope

    def all_parts(*args):
        out = []
        for by in _parts(REGIONS[name]):
            fun = _function(name)
            for i in by:
                fun = derivative(fun, i)
            out.append(fun(*args))
        return out

    with weft.enable_x64(True):
        return [np.asarray(out).astype(np.float64) for out in weft.jit(all_parts)(*args)]


class Worst(NamedTuple):
    """The worst share of the allowed error, the order of the derivative and its arguments, the point, the result and the exact one."""

    share: float
    by: tuple[int, ...]
    args: tuple[float, ...]
    got: float
    exact: float


def every_share(name: str, type_: str) -> list[tuple[str, Worst]]:
    """Return the region and the error of every derivative at every point where it is finite."""
    regions, args = arguments(name, type_)
    known, parts, out = exact(name, type_), _parts(REGIONS[name]), []
    with mp.workdps(60):
        for k, (by, got) in enumerate(zip(parts, computed(name, args))):
            for j, region in enumerate(regions):
                if (at := known[j][k]) is None:
                    continue
                share = share_of_allowed(float(got[j]), at[0], at[1], type_) * (
                    ULPS / BEND_ULPS if len(by) == 2 else 1
                )
                out.append(
                    (
                        region,
                        Worst(
                            share, by, tuple(float(a[j]) for a in args), float(got[j]), float(at[0])
                        ),
                    )
                )
    return out


def worst(name: str, type_: str) -> dict[tuple[str, int], Worst]:
    """Return the worst error for each region and order of derivative."""
    found: dict[tuple[str, int], Worst] = {}
    for region, error in every_share(name, type_):
        key = region, len(error.by)
        if key not in found or error.share > found[key].share:
            found[key] = error
    return found


# --- the functions


def _signed_log_beta(a: mpf, b: mpf) -> mpf:
    return mp.log(abs(mp.beta(a, b)))


def _far_gamma(x: mpf) -> mpf:
    require(abs(x) < 400)
    return mp.gamma(x)


def _owens(h: mpf, a: mpf) -> mpf:
    """Return Owen's function: by a series of incomplete gamma functions for `a` up to 1, else from its value at (a h, 1 / a)."""
    h, sign, a = abs(h), -1 if a < 0 else 1, abs(a)
    require(h * max(a, 1) < 60 and a < 20)
    if a > 1:
        upper, rest_of_product = mp.erfc(h / mp.sqrt(2)) / 2, mp.erfc(a * h / mp.sqrt(2)) / 2
        return sign * (
            (upper + rest_of_product) / 2 - upper * rest_of_product - _owens(a * h, 1 / a)
        )
    half = h * h / 2
    with mp.workdps(mp.dps + int(half / 2) + 10):  # the terms cancel
        term, left, odd, total, k = mp.exp(-half), -mp.expm1(-half), a, mpf(0), 0
        while left and abs(odd * left) > abs(total) * mpf(10) ** -mp.dps:
            total += (-1) ** k * odd / (2 * k + 1) * left
            k += 1
            term *= half / k
            left -= term
            odd *= a * a
        return sign * (mp.atan(a) - total) / (2 * mp.pi)


def _spence(x: mpf) -> mpf:
    require(x < 10**6)
    return mp.re(mp.polylog(2, 1 - x))


def _log_gamma_of_real(x: mpf) -> mpf:
    require(x > -400)
    return mp.log(abs(mp.gamma(x))) if x < 10**3 else mp.loggamma(x)


def _hypergeometric(a: mpf, b: mpf, x: mpf) -> mpf:
    require(abs(x) < 60)
    return mp.hyp1f1(a, b, x)


def _legendre(degree: int, order: int, normalized: bool, z: mpf, root: mpf | None = None) -> mpf:
    """Return P_n^m at z, where `root` is (1 - z^2)^(1/2), by the powers of z."""
    require(root is not None or abs(z) < 1)
    powers = [
        (k, degree - 2 * k - order) for k in range(degree // 2 + 1) if degree - 2 * k >= order
    ]
    total = (
        sum(
            (-1) ** k
            * mp.binomial(degree, k)
            * mp.binomial(2 * degree - 2 * k, degree)
            * mp.ff(degree - 2 * k, order)
            * z**power
            for k, power in powers
        )
        / mpf(2) ** degree
    )
    value = (-1) ** order * (mp.sqrt((1 - z) * (1 + z)) if root is None else root) ** order * total
    if not normalized:
        return value
    return value * mp.sqrt(
        mpf(2 * degree + 1)
        / (4 * mp.pi)
        * mp.factorial(degree - order)
        / mp.factorial(degree + order)
    )


def _legendre_slope(degree: int, order: int, z: mpf) -> mpf:
    h = STEP * (1 - abs(z))
    return (_legendre(degree, order, False, z + h) - _legendre(degree, order, False, z - h)) / (
        2 * h
    )


def _spherical(degree: int, order: int, theta: mpf, phi: mpf) -> mpmath.mpc:
    require(0 <= theta < mp.pi)
    size = abs(order)
    value = _legendre(degree, size, True, mp.cos(theta), mp.sin(theta)) * (
        -1 if order < 0 and size % 2 else 1
    )
    return value * mp.expj(order * phi)


def _faddeeva(x: mpf, y: mpf) -> mpmath.mpc:
    require(abs(x) < 26 or y >= 0)
    z = mpmath.mpc(x, y)
    return mp.exp(-z * z) * mp.erfc(-1j * z)


def _bessel_of_order(order: int, x: Any) -> Any:
    from weft.scipy.special import bessel_jn

    return bessel_jn(x, v=order)[order]


def _legendre_values(degree: int, order: int, normalized: bool, z: Any) -> Any:
    from weft.scipy.special import lpmn_values

    return lpmn_values(degree, degree, z, normalized)[order, degree]


def _legendre_slopes(degree: int, order: int, z: Any) -> Any:
    from weft.scipy.special import lpmn

    return lpmn(degree, degree, z)[1][order, degree]


def _spherical_real(degree: int, order: int, theta: Any, phi: Any) -> Any:
    from weft import numpy as wnp
    from weft.scipy.special import sph_harm_y

    n, m = (wnp.full(theta.shape, k) for k in (degree, order))
    return sph_harm_y(n, m, theta, phi, n_max=degree).real


def _wofz_part(part: str, x: Any, y: Any) -> Any:
    from weft import lax
    from weft.scipy.special import wofz

    return getattr(wofz(lax.complex(x, y)), part)


ZEROS_OF_DIGAMMA = (1.4616321449683622, -0.504083008264455, -1.5734984731623904)
NEGATIVE = (-1, -2, -3, -10)

_region("numpy.sinc", "real", lambda x: mp.sinc(mp.pi * x), zeros=(1, -2, 7), largest=1e4)
_region("special.erf", "real", zeros=(0,))
_region("special.erfc", "real")
_region("special.erfinv", "sides", zeros=(0,), poles=(1, -1))
_region("special.expit", "real")
_region("special.logit", "unit", zeros=(0.5,), poles=(0, 1))
_region(
    "special.gammaln",
    "real",
    _log_gamma_of_real,
    zeros=(1, 2, -2.4570247382208006),
    poles=(0, *NEGATIVE),
)
_region("special.loggamma", "positive", zeros=(1, 2), poles=(0,))
_region(
    "special.digamma",
    "real",
    lambda x: mp.digamma(x) if x > -1000 else mp.nan,
    zeros=ZEROS_OF_DIGAMMA,
    poles=(0, *NEGATIVE),
)
_region("special.gamma", "real", _far_gamma, poles=(0, *NEGATIVE))
_region("special.factorial", "positive", lambda x: _far_gamma(x + 1))
_region("special.i0", "real", largest=600)
_region("special.i1", "real", zeros=(0,), largest=600)
_region("special.i0e", "real")
_region("special.i1e", "real", zeros=(0,))
_region("special.ndtr", "real")
_region("special.log_ndtr", "real")
_region("special.ndtri", "unit", zeros=(0.5,), poles=(0, 1))
_region("special.entr", "positive", zeros=(1,))
_region("special.multigammaln", "above", zeros=(1.4,), poles=(1,))
_region("special.beta", "real real", lambda a, b: mp.beta(a, b), poles=(0, *NEGATIVE), largest=1e3)
_region("special.betaln", "real real", _signed_log_beta, poles=(0, *NEGATIVE), largest=1e3)
_region("special.poch", "positive positive", largest=100, smallest=1e-8)
_region("special.boxcox", "positive real", zeros=(1,), largest=1e3)
_region("special.boxcox1p", "minus real", zeros=(0,), poles=(-1,), largest=1e3)
_region("special.xlogy", "real positive", zeros=(0,))
_region("special.xlog1py", "real minus", zeros=(0,))
_region("special.rel_entr", "positive positive")
_region("special.kl_div", "positive positive", zeros=(3.2,))
_region("special.polygamma", "order positive", largest=1e4, smallest=1e-8)
_region("special.zeta", "above positive", by=[0, 1], poles=(1,), largest=1e3, smallest=1e-8)
_region("special.gammainc", "positive positive", by=[1], largest=30, smallest=1e-4)
_region("special.gammaincc", "positive positive", by=[1], largest=30, smallest=1e-4)
_region("special.betainc", "positive positive unit", by=[2], largest=20, smallest=1e-4)
_region("special.erfcx", "real")
_region("special.dawsn", "real", zeros=(0,))
_region("special.exp1", "positive", poles=(0,))
_region("special.expi", "real", zeros=(0.37250741078136663,), poles=(0,))
_region(
    "special.expn",
    "order positive",
    lambda n, x: mp.expint(int(mp.nint(n)), x),
    by=[1],
    largest=600,
    smallest=1e-8,
)
_region("special.spence", "positive", _spence, zeros=(1,))
_region("special.owens_t", "real real", _owens, zeros=(0,), largest=10, smallest=1e-8)
_region("special.sici", "positive", mp.si, part=0, largest=1e5, smallest=1e-8)
_region(
    "special.sici",
    "positive",
    mp.ci,
    part=1,
    zeros=(0.6165054856207162,),
    poles=(0,),
    largest=1e5,
    smallest=1e-8,
)
_region("special.fresnel", "real", mp.fresnels, part=0, zeros=(0,), largest=1e3, smallest=1e-8)
_region("special.fresnel", "real", mp.fresnelc, part=1, zeros=(0,), largest=1e3, smallest=1e-8)
_region(
    "special.hyp1f1", "positive positive real", _hypergeometric, by=[2], largest=50, smallest=1e-8
)
_region(
    "special.hyp2f1",
    "positive positive positive sides",
    mp.hyp2f1,
    by=[3],
    largest=20,
    smallest=1e-8,
)
_region(
    "special.comb",
    "positive positive",
    lambda n, k: mp.binomial(n, k) if k < n else mp.nan,
    largest=200,
    smallest=1e-8,
)
_region("nn.softplus", "real", lambda x: mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x)))
_region("numpy.logaddexp", "real real", lambda a, b: max(a, b) + mp.log1p(mp.exp(-abs(a - b))))


def _register_functions_of_degrees() -> None:
    """Register Bessel and Legendre functions, by orders and degrees, and the parts of complex functions."""
    for order, zeros in ((0, (2.404825557695773,)), (1, (0, 3.831705970207512)), (4, (0,))):
        _region(
            "special.bessel_jn",
            "real",
            functools.partial(mp.besselj, order),
            part=order,
            zeros=zeros,
            largest=20,
            ours=functools.partial(_bessel_of_order, order),
        )
    for degree, order in ((2, 0), (3, 1), (4, 2), (5, 3)):
        label = f"{degree}, {order}"
        for normalized in (False, True):
            exact, ours = (
                functools.partial(f, degree, order, normalized)
                for f in (_legendre, _legendre_values)
            )
            _region(
                "special.lpmn_values",
                "sides",
                exact,
                zeros=(0,),
                poles=(1, -1),
                ours=ours,
                part=f"{label}, normalized" if normalized else label,
            )
        _region(
            "special.lpmn[1]",
            "sides",
            functools.partial(_legendre_slope, degree, order),
            zeros=(0,),
            poles=(1, -1),
            part=label,
            by=[],
            ours=functools.partial(_legendre_slopes, degree, order),
        )
    for degree, order in ((3, 0), (3, 1), (4, -3)):
        _region(
            "special.sph_harm_y",
            "turn real",
            functools.partial(_spherical, degree, order),
            zeros=(0, 1.5707963267948966),
            part=f"{degree}, {order}",
            largest=1e3,
            ours=functools.partial(_spherical_real, degree, order),
            part_of=mp.re,
        )
    for part, part_of in (("real", mp.re), ("imag", mp.im)):
        _region(
            "special.wofz",
            "real real",
            _faddeeva,
            zeros=(0,),
            part=part,
            by=[],
            largest=1e6,
            ours=functools.partial(_wofz_part, part),
            part_of=part_of,
        )


_register_functions_of_degrees()


# --- the table

HEAD = "| function | region | float32 | float64 |"


def rows(name: str) -> list[str]:
    """Return the worst shares of the value, the first and the second derivatives, a row for each region."""
    measured = [worst(name, type_) for type_ in MEASURED]
    out = []
    for region in NAMES:
        if not any((region, 0) in found for found in measured):
            continue
        cells = [
            ", ".join(
                f"{found[region, order].share:.2g}"
                for order in (0, 1, 2)
                if (region, order) in found
            )
            for found in measured
        ]
        out.append(f"| `{name}` | {region} | {' | '.join(cells)} |")
    return out


def write_page(page: Path, names: Sequence[str]) -> None:
    """Measure functions, and put their rows into the table of the page; the others stay."""
    for name in names:
        measured = rows(name)
        head, tail = page.read_text().split(HEAD)
        table, tail = tail.split("\n\n", 1)
        columns: dict[str, list[str]] = {name: measured}
        for line in table.splitlines():
            if line.startswith("| `") and (other := line.split("`")[1]) != name:
                columns.setdefault(other, []).append(line)
        lines = [
            HEAD,
            "|---|---|---|---|",
            *itertools.chain.from_iterable(columns[name] for name in REGIONS if name in columns),
        ]
        page.write_text(head + "\n".join(lines) + "\n\n" + tail)


if __name__ == "__main__":
    write_page(PAGE, sys.argv[1:] or list(REGIONS))
