"""Shared code of distributions: conversion and standardization of arguments, and functions derived from others.

In:  the functions of a standard distribution of `z` and its shape parameters, on arrays of one floating dtype.
Out: the public functions of the family with location and scale, in the requested order.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.numpy.promote import all_inexact, broadcast, concrete
from weft._engine.scipy.special.basic import in_single

_WHAT = {
    "logpdf": "The logarithm of the density", "pdf": "The density", "cdf": "The distribution function",
    "logcdf": "The logarithm of the distribution function", "sf": "The survival function, 1 - cdf",
    "logsf": "The logarithm of the survival function", "ppf": "The quantile function, the inverse of cdf",
    "isf": "The inverse of the survival function", "logpmf": "The logarithm of the probability", "pmf": "The probability",
    "entropy": "The entropy in nats",
}  # fmt: skip


def public(family: str, name: str, parameters: str, fun: Callable) -> Callable:
    """Return `fun` with promoted and broadcast arguments, by position or name; `parameters` is such as `"x df loc=0 scale=1"`."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    pairs = [word.partition("=") for word in parameters.split()]
    signature = inspect.Signature(
        [
            inspect.Parameter(
                word, kind, default=int(default) if default else inspect.Parameter.empty
            )
            for word, _, default in pairs
        ]
    )

    def call(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        api = f"{family}.{name}"
        return in_single(fun)(
            *map(concrete, broadcast(api, *all_inexact(api, *bound.arguments.values())))
        )

    call.__name__ = call.__qualname__ = name
    call.__module__ = f"weft.scipy.stats.{family}"
    call.__doc__ = f"{_WHAT[name]} of the {family} distribution."
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


@custom_jvp
def log_bell(z):
    """-z^2 / 2, whose derivative does not halve numbers that may be subnormal."""
    return -0.5 * z * z


log_bell.defjvps(lambda t, out, z: -t * z)


def one_less_exp(y):
    """1 - exp(-y) for y >= 0, by the formula whose derivative does not cancel."""
    small = y < 1
    return wnp.where(
        small, -wnp.expm1(-wnp.where(small, y, 0)), 1 - wnp.exp(-wnp.where(small, 1, y))
    )


def log_one_less_exp(y):
    """log(1 - exp(-y)) for y >= 0, by the formula without cancellation."""
    near = y < math.log(2)
    close, far = wnp.where(near, y, 1.0), wnp.where(near, 1.0, y)
    return wnp.where(near, wnp.log(-wnp.expm1(-close)), wnp.log1p(-wnp.exp(-far)))


def log_of_part(part, rest):
    """log(part) where part + rest is 1, computed from the smaller of them."""
    small = part < 0.5
    return wnp.where(
        small, wnp.log(wnp.where(small, part, 1)), wnp.log1p(-wnp.where(small, 0, rest))
    )


_DERIVED: dict[str, tuple[tuple[str, ...], Callable]] = {
    "pdf": (("logpdf",), wnp.exp),
    "pmf": (("logpmf",), wnp.exp),
    "logcdf": (("cdf", "sf"), log_of_part),
    "logsf": (("sf", "cdf"), log_of_part),
}


def _derive_functions(functions: dict[str, Callable], names: list[str]) -> dict[str, Callable]:
    """Return the requested functions; missing ones are derived from the others."""
    out = dict(functions)
    for name in names:
        if name not in out and name in _DERIVED:
            sources, outer = _DERIVED[name]
            out[name] = lambda *args, inner=[out[s] for s in sources], outer=outer: outer(
                *[f(*args) for f in inner]
            )
    return out


def continuous(
    family: str, names: str, shapes: str = "", quantile: str = "q", **functions: Callable
) -> list[Callable]:
    """Return the functions `names` of a family with location and scale.

    They are derived from the functions of the standard distribution; `quantile` names the argument of `ppf` and `isf`.
    """
    requested = names.split()
    standard = _derive_functions(functions, requested)

    def located(name: str) -> Callable:
        fun = standard[name]
        if name in ("ppf", "isf"):
            return lambda q, *rest: rest[-2] + rest[-1] * fun(q, *rest[:-2])
        if name == "logpdf":
            return lambda x, *rest: fun((x - rest[-2]) / rest[-1], *rest[:-2]) - wnp.log(rest[-1])
        if name == "pdf":
            return lambda x, *rest: (
                fun((x - rest[-2]) / rest[-1], *rest[:-2])
                / wnp.where(rest[-1] < 0, wnp.nan, rest[-1])
            )
        return lambda x, *rest: fun((x - rest[-2]) / rest[-1], *rest[:-2])

    return [
        public(
            family,
            name,
            f"{quantile if name in ('ppf', 'isf') else 'x'} {shapes} loc=0 scale=1",
            located(name),
        )
        for name in requested
    ]


def discrete(family: str, names: str, shapes: str, **functions: Callable) -> list[Callable]:
    """Return the functions `names` of a family of counts, shifted by `loc`."""
    requested = names.split()
    standard = _derive_functions(functions, requested)

    def shifted(name: str) -> Callable:
        fun = standard[name]
        return lambda k, *rest: fun(k - rest[-1], *rest[:-1])

    return [public(family, name, f"k {shapes} loc=0", shifted(name)) for name in requested]


def evaluate_where(inside, z, safe: float, fun: Callable, outside: Any = -wnp.inf):
    """Return `fun(z)` where `inside`, else `outside`; `fun` receives `safe` there, so that derivatives stay finite."""
    return wnp.where(inside, fun(wnp.where(inside, z, safe)), outside)


def valid(right: Callable, functions: dict[str, Callable]) -> dict[str, Callable]:
    """Return the functions of a family with NaN where the shape parameters violate `right`."""
    return {
        name: lambda z, *shapes, fun=fun: wnp.where(right(*shapes), fun(z, *shapes), wnp.nan)
        for name, fun in functions.items()
    }


def is_count(k):
    """True where counts are nonnegative integers."""
    return (k >= 0) & (wnp.floor(k) == k)


def log1p_square(z, scale):
    """log(1 + (z / scale)^2), even if the square overflows."""
    size = wnp.abs(z)
    large = size > scale
    far, near = wnp.where(large, size, 1), wnp.where(large, 0, z)
    return wnp.where(
        large,
        2 * (wnp.log(far) - wnp.log(scale))
        + wnp.log1p(wnp.square(scale / wnp.where(large, size, scale))),
        wnp.log1p(wnp.square(near / scale)),
    )
