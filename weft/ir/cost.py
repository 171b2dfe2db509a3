"""What a program costs by its text alone: floating point operations and bytes, before fusion."""

from __future__ import annotations

import math

from weft.ir.jaxpr import Eqn, Jaxpr, Literal, subjaxprs
from weft.ir.registry import functions


def program_cost(jaxpr: Jaxpr) -> dict[str, float]:
    """`flops`, `transcendentals` and `bytes accessed` of one run; loops count their static length.

    >>> program_cost(weft.make_jaxpr(lambda x: x @ x)(wnp.ones((4, 4))))['flops']
    128.0
    """
    cost = {"flops": 0.0, "transcendentals": 0.0, "bytes accessed": 0.0}
    _add(jaxpr, cost, 1.0)
    return cost


def _add(jaxpr: Jaxpr, cost: dict[str, float], times: float) -> None:
    for eqn in jaxpr.eqns:
        inner = list(subjaxprs(eqn.params))
        if inner:
            for _, body in inner:
                _add(body, cost, times * eqn.params.get("length", 1))
            continue
        cost["flops"] += times * eqn_flops(eqn)
        function = functions.get(eqn.primitive.name)
        if function is not None and any(function.ulp):        # what is not exact
            cost["transcendentals"] += times * eqn.outvars[0].aval.size
        cost["bytes accessed"] += times * eqn_bytes(eqn)


def eqn_bytes(eqn: Eqn) -> int:
    """Bytes read and written by an equation."""
    ins = sum(a.aval.nbytes for a in eqn.invars if type(a) is not Literal)
    return ins + sum(v.aval.nbytes for v in eqn.outvars)


def eqn_flops(eqn: Eqn) -> float:
    """Floating point operations of an equation; moving data is free."""
    kind = eqn.primitive.kind
    if kind == "contract":
        (contract, _), _ = eqn.params["dimension_numbers"]
        lhs = eqn.invars[0].aval
        return 2.0 * eqn.outvars[0].aval.size * math.prod(lhs.shape[d] for d in contract)
    if kind == "conv":
        return 2.0 * eqn.outvars[0].aval.size * eqn.invars[1].aval.size / max(1, max(eqn.outvars[0].aval.shape, default=1))
    if kind in ("elementwise", "scan", "random"):
        return float(eqn.outvars[0].aval.size)
    if kind in ("reduce", "scatter", "sort"):
        return float(eqn.invars[0].aval.size)
    return 0.0
