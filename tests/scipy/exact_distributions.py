"""Exact forms of `weft.scipy.stats`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from mpmath import mp, mpf

from tests.scipy.exact_functions import (
    betainc,
    bounded_exp,
    exp,
    gammainc,
    log1m,
    log_beta,
    log_normal_cdf,
    log_of_rest,
    normal_cdf,
    normal_quantile,
    require,
    scaled_bessel,
    x_log,
)
from tests.scipy.exact_special import CASES, add_case


def _log_of(part: mpf, rest: mpf | None) -> mpf:
    """Return log(part), where part + rest = 1, computed from the smaller one."""
    return mp.log(part) if rest is None or part < 0.5 else log1m(rest)


def _family(
    name: str,
    kinds: str,
    by: Sequence[int] | None = None,
    quantiles: str = "unit",
    **functions: Callable,
) -> None:
    """Add the functions of a standard distribution; missing ones are derived from the others."""
    parameters = kinds.split()[1:]
    for log_name, plain in (
        ("logpdf", "pdf"),
        ("logpmf", "pmf"),
        ("logcdf", "cdf"),
        ("logsf", "sf"),
    ):
        if log_name in functions and plain not in functions:
            functions[plain] = lambda *args, f=functions[log_name]: exp(f(*args))
        if plain in functions and log_name not in functions:
            rest_of = functions.get({"cdf": "sf", "sf": "cdf"}.get(plain, ""))
            functions[log_name] = lambda *args, f=functions[plain], rest_of=rest_of: _log_of(
                f(*args), rest_of and rest_of(*args)
            )
    module = importlib.import_module(f"weft.scipy.stats.{name}")
    for function, exact_ in functions.items():
        if hasattr(module, function):
            quantile = function in ("ppf", "isf")
            add_case(
                f"stats.{name}.{function}",
                " ".join([quantiles, *parameters]) if quantile else kinds,
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
    """Return the normal probability of the interval from a to b, computed in the tail that holds both."""
    if a > 0:
        a, b = -b, -a
    return normal_cdf(b) - normal_cdf(a) if b - a > 1e-20 else (b - a) * mp.npdf(a)


def _log_part(part, rest, whole):
    """Return log(part / whole), computed from the smaller of the part and the rest."""
    return mp.log(part / whole) if part < rest else log1m(rest / whole)


def _truncated(function: Callable) -> Callable:
    def checked(z, a, b):
        require(a < z < b)
        return function(z, a, b)

    return checked


def _beyond_one(function: Callable) -> Callable:
    """Return the function restricted to z > 1; at 1, the end of the support, central differences have no meaning."""

    def checked(z, b):
        require(z > 1)
        return function(z, b)

    return checked


def _log_choice(n: mpf, k: mpf) -> mpf:
    return -mp.log1p(n) - log_beta(n - k + 1, k + 1)


def _binomial(k: mpf, n: mpf, p: mpf) -> mpf:
    return _log_choice(n, k) + x_log(k, mp.log(p)) + x_log(n - k, log1m(p))


def _geometric(k: mpf, p: mpf) -> mpf:
    require(k >= 1)
    return x_log(k - 1, log1m(p)) + mp.log(p)


def _beta_binomial(k: mpf, n: mpf, a: mpf, b: mpf) -> mpf:
    with mp.workdps(mp.dps + int(mp.log10(max(a, b, 1)))):
        return _log_choice(n, k) + log_beta(k + a, n - k + b) - log_beta(a, b)


def _negative_binomial(k: mpf, n: mpf, p: mpf) -> mpf:
    return (
        mp.loggamma(k + n)
        - mp.loggamma(k + 1)
        - mp.loggamma(n)
        + n * mp.log(p)
        + x_log(k, log1m(p))
    )


_family(
    "norm",
    "real",
    logpdf=lambda z: -z * z / 2 - mp.log(2 * mp.pi) / 2,
    cdf=normal_cdf,
    logcdf=log_normal_cdf,
    sf=lambda z: normal_cdf(-z),
    logsf=lambda z: log_normal_cdf(-z),
    ppf=normal_quantile,
    isf=lambda q: -normal_quantile(q),
)
_family("uniform", "unit", logpdf=lambda z: mpf(0) * z, cdf=lambda z: z, ppf=lambda q: q)
_family(
    "expon",
    "positive",
    logpdf=lambda z: -z,
    cdf=lambda z: -mp.expm1(-z),
    sf=lambda z: mp.exp(-z),
    logsf=lambda z: -z,
    logcdf=log_of_rest,
    ppf=lambda q: -log1m(q),
)
_family(
    "gamma",
    "positive shape:around",
    logpdf=_gamma_log_density,
    cdf=lambda z, a: gammainc(a, z, False),
    sf=lambda z, a: gammainc(a, z, True),
)
_family(
    "chi2",
    "positive shape:around",
    logpdf=lambda z, df: _gamma_log_density(z / 2, df / 2) - mp.log(2),
    cdf=lambda z, df: gammainc(df / 2, z / 2, False),
    sf=lambda z, df: gammainc(df / 2, z / 2, True),
)
_family(
    "beta",
    "unit shape shape",
    by=[0],
    cdf=lambda z, a, b: betainc(a, b, z),
    sf=lambda z, a, b: betainc(b, a, 1 - z, z),
    logpdf=lambda z, a, b: (a - 1) * mp.log(z) + (b - 1) * log1m(z) - log_beta(a, b),
)
_family(
    "cauchy",
    "real",
    logpdf=lambda z: -mp.log(mp.pi) - mp.log1p(z * z),
    cdf=lambda z: mp.atan2(1, -z) / mp.pi,
    sf=lambda z: mp.atan2(1, z) / mp.pi,
    logcdf=lambda z: mp.log(mp.atan2(1, -z) / mp.pi) if z < 0 else log1m(mp.atan2(1, z) / mp.pi),
    logsf=lambda z: mp.log(mp.atan2(1, z) / mp.pi) if z > 0 else log1m(mp.atan2(1, -z) / mp.pi),
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
    sf=lambda z: -mp.expm1(-bounded_exp(-z)),
    logsf=lambda z: log_of_rest(bounded_exp(-z)),
    ppf=lambda q: -mp.log(-mp.log(q)),
)
_family(
    "gumbel_l",
    "real",
    logpdf=lambda z: z - mp.exp(z),
    logsf=lambda z: -mp.exp(z),
    cdf=lambda z: -mp.expm1(-bounded_exp(z)),
    logcdf=lambda z: log_of_rest(bounded_exp(z)),
    ppf=lambda q: mp.log(-log1m(q)),
)
_family(
    "pareto",
    "above positive",
    logpdf=_beyond_one(lambda z, b: mp.log(b) - (b + 1) * mp.log(z)),
    logsf=_beyond_one(lambda z, b: -b * mp.log(z)),
    cdf=_beyond_one(lambda z, b: -mp.expm1(-b * mp.log(z))),
    logcdf=_beyond_one(lambda z, b: log_of_rest(b * mp.log(z))),
    ppf=lambda q, b: mp.exp(-log1m(q) / b),
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
        gammainc(1 / b, abs(z) ** b, True) / 2
        if z < 0
        else 1 - gammainc(1 / b, abs(z) ** b, True) / 2
    ),
)
_family(
    "vonmises",
    "angle positive",
    logpdf=lambda x, k: (
        -2 * k * mp.sin(x / 2) ** 2 - mp.log(2 * mp.pi) - mp.log(scaled_bessel(0, k))
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
_family("bernoulli", "bit unit", by=[1], logpmf=lambda k, p: mp.log(p) * k + log1m(p) * (1 - k))
_family("binom", "count count:least unit", by=[2], logpmf=_binomial)
_family("nbinom", "count positive unit", by=[1, 2], logpmf=_negative_binomial)
_family("geom", "count unit", by=[1], logpmf=_geometric)
_family("betabinom", "count count:least positive positive", by=[2, 3], logpmf=_beta_binomial)
_family(
    "poisson",
    "count shape",
    by=[1],
    logpmf=lambda k, mu: x_log(k, mp.log(mu)) - mp.loggamma(k + 1) - mu,
    cdf=lambda k, mu: gammainc(mp.floor(k) + 1, mu, True),
)
