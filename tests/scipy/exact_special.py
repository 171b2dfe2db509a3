"""The table of functions to measure, and exact forms of `weft.scipy.special`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mpmath import mp, mpf

from tests.scipy.exact_functions import (
    betainc,
    box,
    dawson,
    exponential_integral,
    gammainc,
    log1m,
    log_beta,
    log_gamma,
    log_normal_cdf,
    normal_cdf,
    normal_quantile,
    rel_entr,
    scaled_bessel,
    scaled_erfc,
    x_log,
    zeta,
)


class Case(NamedTuple):
    """The kinds of a function's arguments (see `exact._draw`), its exact form, the arguments to differentiate by, and
    trailing arguments."""

    kinds: tuple[str, ...]
    exact: Callable
    by: tuple[int, ...]
    fixed: tuple = ()


CASES: dict[str, Case] = {}


def add_case(
    name: str, kinds: str, exact: Callable, by: Sequence[int] | None = None, fixed: tuple = ()
) -> None:
    parts = tuple(kinds.split())
    CASES[name] = Case(parts, exact, tuple(range(len(parts))) if by is None else tuple(by), fixed)


add_case("special.erf", "real", mp.erf)
add_case("special.erfc", "real", mp.erfc)
add_case(
    "special.erfinv",
    "sides",
    lambda x: normal_quantile((1 + x) / 2) / mp.sqrt(2) if abs(x) > 1e-5 else mp.erfinv(x),
)
add_case(
    "special.expit",
    "real",
    lambda x: 1 / (1 + mp.exp(-x)) if x > 0 else mp.exp(x) / (1 + mp.exp(x)),
)
add_case("special.logit", "unit", lambda x: mp.log(x) - log1m(x))
add_case("special.gammaln", "positive", log_gamma)
add_case("special.digamma", "positive", mp.digamma)
add_case("special.i0", "real", lambda x: scaled_bessel(0, x) * mp.exp(abs(x)))
add_case("special.i1", "real", lambda x: scaled_bessel(1, x) * mp.exp(abs(x)))
add_case("special.i0e", "real", lambda x: scaled_bessel(0, x))
add_case("special.i1e", "real", lambda x: scaled_bessel(1, x))
add_case(
    "special.gamma", "real", lambda x: mp.gamma(x) if abs(x) < 3000 else mp.inf if x > 0 else mp.nan
)
add_case(
    "special.gammasgn",
    "real",
    lambda x: mpf(1) if x > 0 or int(mp.floor(x)) % 2 == 0 else mpf(-1),
    by=(),
)
add_case("special.factorial", "positive", lambda x: mp.gamma(x + 1) if x < 3000 else mp.inf)
add_case("special.ndtr", "real", normal_cdf)
add_case("special.log_ndtr", "real", log_normal_cdf)
add_case("special.ndtri", "unit", normal_quantile)
add_case("special.entr", "positive", lambda x: -x * mp.log(x))
add_case(
    "special.multigammaln",
    "above",
    lambda x: mp.loggamma(x) + mp.loggamma(x - 0.5) + mp.log(mp.pi) / 2,
    fixed=(2,),
)
add_case("special.beta", "positive positive", lambda a, b: mp.exp(log_beta(a, b)))
add_case("special.betaln", "positive positive", log_beta)
add_case("special.poch", "few few", lambda z, m: mp.exp(mp.loggamma(z + m) - mp.loggamma(z)))
add_case("special.boxcox", "positive real", box(mp.log))
add_case("special.boxcox1p", "minus real", box(mp.log1p))
add_case("special.xlogy", "real positive", lambda x, y: x_log(x, mp.log(y)))
add_case("special.xlog1py", "real minus", lambda x, y: x_log(x, mp.log1p(y)))
add_case("special.rel_entr", "positive positive", rel_entr)
add_case("special.kl_div", "positive positive", lambda p, q: rel_entr(p, q) - p + q)
add_case("special.polygamma", "order positive", lambda n, x: mp.psi(int(mp.nint(n)), x), by=[1])
add_case("special.zeta", "above positive", zeta, by=[1])
add_case("special.gammainc", "shape positive:near", lambda a, x: gammainc(a, x, False))
add_case("special.gammaincc", "shape positive:near", lambda a, x: gammainc(a, x, True))
add_case("special.loggamma", "positive", mp.loggamma)
add_case("special.erfcx", "real", scaled_erfc)
add_case("special.dawsn", "real", dawson)
add_case("special.exp1", "positive", lambda x: mp.e1(x) if x < 10**4 else mpf(0))
add_case("special.expi", "real", exponential_integral)
add_case("special.betainc", "shape shape unit", betainc, by=[2])
