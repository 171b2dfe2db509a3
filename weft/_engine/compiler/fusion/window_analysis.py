"""How many interior-padded values contribute to one result: the windows of gradients of pools and strided slices.

In:   a simplified jaxpr.
Out:  the window size of each value on the way. Nested padding multiplies, and counts twice where vector lanes go along the dim,
      because the code of an unrolled iteration grows likewise (`compiler.loops.unroll_by_residue`). A dim that is padded
      twice exceeds any limit.
"""

from __future__ import annotations

from weft._engine.compiler.fusion.classify import moves
from weft._engine.core.primitive import ElementwiseOp, MovementOp, SliceOp
from weft._engine.ir.jaxpr import Jaxpr, Literal, Var
from weft._engine.util.machine_model import MODEL


def windows(jaxpr: Jaxpr) -> dict[Var, int]:
    """The size of the window to which each value belongs, by value."""
    pads = [eqn for eqn in jaxpr.eqns if isinstance(eqn.primitive, SliceOp) and moves(eqn) == "pad"]
    if not any(inner for eqn in pads for _, _, inner in eqn.params["padding_config"]):
        return {}
    whole: dict[Var, Var] = {}  # what is made of a value, up to where that is padded,
    around: dict[Var, Var] = {}  # and of which that becomes a part
    counts: dict[Var, int] = {}
    dims: dict[Var, set[int]] = {}  # that are padded, counted from the last one, -1
    for eqn in reversed(jaxpr.eqns):
        if not isinstance(eqn.primitive, (ElementwiseOp, MovementOp)):
            continue
        out = eqn.outvars[0]
        end = whole.setdefault(out, out)
        padded = (
            [
                d - out.aval.ndim
                for d, (_, _, inner) in enumerate(eqn.params["padding_config"])
                if inner
            ]
            if moves(eqn) == "pad"
            else []
        )
        if padded:
            counts[end] = counts.get(end, 0) + 1
            dims.setdefault(end, set()).update(padded)
        for atom in eqn.invars:
            if (
                type(atom) is not Literal
                and whole.setdefault(atom, atom if padded else end) is atom
                and padded
            ):
                around[atom] = end
    first: dict[Var, Var] = {}
    made: dict[Var, int] = {}
    most: dict[Var, int] = {}
    for end, count in counts.items():
        outer = around.get(end)
        again = not dims[end].isdisjoint(dims.get(outer, ()))
        made[end] = count * made.get(outer, 1) * (2 if -1 in dims[end] else 1) + (
            MODEL.widest_window if again else 0
        )
        dims[end] |= dims.get(outer, set())
        top = first[end] = first.get(outer, end)
        most[top] = max(most.get(top, 0), made[end])
    return {var: most[first[end]] for var, end in whole.items() if end in first}
