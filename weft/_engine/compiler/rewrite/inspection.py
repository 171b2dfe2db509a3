"""Removes `inspect_sharding` from programs for one device, where every sharding is known.

In:   a simplified jaxpr.
Out:  the same without `inspect_sharding`, and its callbacks, once for each place in the program.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._engine.core.primitive import CallbackOp
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.rewrite import map_jaxprs


def without_inspections(jaxpr: Jaxpr) -> tuple[Jaxpr, list[Callable]]:
    """`jaxpr` without the equations that ask for shardings, and the callbacks that would get them."""
    if "inspect" not in jaxpr.effects:
        return jaxpr, []
    eqns, callbacks = [], []

    def inner(program: Jaxpr) -> Jaxpr:
        program, found = without_inspections(program)
        callbacks.extend(found)
        return program

    for eqn in jaxpr.eqns:
        if "inspect" in eqn.effects:
            if isinstance(eqn.primitive, CallbackOp):
                callbacks.append(eqn.params["callback"])
                continue
            eqn = eqn.replace(
                params=map_jaxprs(eqn.params, inner), effects=eqn.effects - {"inspect"}
            )
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns), callbacks
