"""Removes `inspect_sharding` from programs for one device, where every sharding is known.

In:   a simplified jaxpr.
Out:  the same without `inspect_sharding`, and its callbacks, once for each place in the program.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.jaxpr import Jaxpr


def without_looks(jaxpr: Jaxpr) -> tuple[Jaxpr, list[Callable]]:
    """`jaxpr` without the equations that ask for shardings, and whom they would tell."""
    if "inspect" not in jaxpr.effects:
        return jaxpr, []
    eqns, looks = [], []
    for eqn in jaxpr.eqns:
        if "inspect" in eqn.effects:
            if eqn.primitive.kind == "callback":
                looks.append(eqn.params["callback"])
                continue
            params = {}
            for key, value in eqn.params.items():
                params[key], found = _without(value)
                looks += found
            eqn = eqn.replace(params=params, effects=eqn.effects - {"inspect"})
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns), looks


def _without(value: object) -> tuple[object, list[Callable]]:
    """A parameter without questions in the programs it holds."""
    if isinstance(value, Jaxpr):
        return without_looks(value)
    if isinstance(value, tuple) and any(isinstance(v, Jaxpr) for v in value):
        parts = [_without(v) for v in value]
        return tuple(p for p, _ in parts), [look for _, found in parts for look in found]
    return value, []
