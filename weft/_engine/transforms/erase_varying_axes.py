"""Removal of varying axes from types, after the user's program has been checked and differentiated.

In, out: jaxprs that compute the same values. In the result no type has varying axes, there are no casts between such types, and
`check_vma` of inner programs is False, so later transformations of them track no varying axes.
"""

from __future__ import annotations

from typing import Any

from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ir.types import ShapedArray
from weft._engine.util.trees.narrowing import is_tuple

NO_AXES: frozenset[Any] = frozenset()
#: the parameter that is true if the types of an op's inner program have varying axes
TRACKS = "check_vma"


def erase(jaxpr: Jaxpr) -> Jaxpr:
    """Remove varying axes from `jaxpr` and its nested programs; return `jaxpr` itself if there are none."""
    return jaxpr.memo("erased", lambda: _erase(jaxpr) if _has_axes(jaxpr) else jaxpr)


def erase_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of an operation without varying axes in programs and types."""
    return {name: name != TRACKS and _erased_value(value) for name, value in params.items()}


def without_varying_axes(aval: ShapedArray) -> ShapedArray:
    """Return the type without varying axes."""
    return aval.update(vma=NO_AXES) if aval.vma else aval


def _erased_value(value: Any) -> Any:
    if isinstance(value, Jaxpr):
        return erase(value)
    if is_tuple(value) and any(isinstance(v, (Jaxpr, ShapedArray)) for v in value):
        return tuple(_erased_value(v) for v in value)
    return without_varying_axes(value) if isinstance(value, ShapedArray) else value


def _has_axes(jaxpr: Jaxpr) -> bool:
    """Return whether the program has a type with varying axes, a cast between such types, or an op that tracks them."""
    if any(v.aval.vma for v in (*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars)):
        return True
    return any(
        eqn.primitive.casts
        or eqn.params.get(TRACKS)
        or any(v.aval.vma for v in eqn.outvars)
        or any(erase(inner) is not inner for _, inner in subjaxprs(eqn.params))
        for eqn in jaxpr.eqns
    )


def _erase(jaxpr: Jaxpr) -> Jaxpr:
    env: dict[Var, Atom] = {}

    def fresh(var: Var) -> Var:
        out = env[var] = type(var)(without_varying_axes(var.aval))
        return out

    def read(atom: Atom) -> Atom:
        return atom if type(atom) is Literal else env[atom]

    constvars, invars = [fresh(v) for v in jaxpr.constvars], [fresh(v) for v in jaxpr.invars]
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        ins = [read(a) for a in eqn.invars]
        if eqn.primitive.casts:
            env[eqn.outvars[0]] = ins[0]
            continue
        outs = [
            DropVar(without_varying_axes(v.aval)) if type(v) is DropVar else fresh(v)
            for v in eqn.outvars
        ]
        eqns.append(eqn.replace(invars=ins, outvars=outs, params=erase_params(eqn.params)))
    return Jaxpr(
        constvars,
        jaxpr.consts,
        invars,
        [read(a) for a in jaxpr.outvars],
        eqns,
        jaxpr.effects,
        jaxpr.name,
    )
