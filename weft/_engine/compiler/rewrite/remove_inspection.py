"""Removal of `inspect_sharding` from programs for one device, where all shardings are known in advance.

In:   a simplified jaxpr.
Out:  the jaxpr without `inspect_sharding`, and its callbacks, one per occurrence in the program.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._engine.core.primitive import CallbackOp
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.rewrite import map_jaxprs


def without_inspections(jaxpr: Jaxpr) -> tuple[Jaxpr, list[Callable]]:
    """Return `jaxpr` without `inspect_sharding` equations, and the callbacks of these equations."""
    if "inspect" not in jaxpr.effects:
        return jaxpr, []
    eqns, callbacks = [], []

    def inner(program: Jaxpr) -> Jaxpr:
        program, nested = without_inspections(program)
        callbacks.extend(nested)
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
