"""How many interior-padded values contribute to one result: the windows of gradients of pools and strided slices.

In:   a simplified jaxpr.
Out:  the window size of each value on the way. Nested padding multiplies, and counts twice where vector lanes go along the dim,
      because the code of an unrolled iteration grows likewise (`compiler.loops.unroll_by_residue`). A dim that is padded
      twice exceeds any limit.
"""

from __future__ import annotations

from weft._engine.core.primitive import ElementwiseOp, MovementOp
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var

# thresholds, measured on several machines
#: places of a window whose iterations are unrolled
WIDEST_WINDOW = 18


def windows(jaxpr: Jaxpr) -> dict[Var, int]:
    """The size of the window to which each value belongs, by value."""
    if not any(_dilated_dims(eqn) for eqn in jaxpr.eqns):
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
        operands = [atom for atom in eqn.invars if type(atom) is not Literal]
        padded = _dilated_dims(eqn)
        if not padded:
            for atom in operands:
                whole.setdefault(atom, end)
            continue
        counts[end] = counts.get(end, 0) + 1
        dims.setdefault(end, set()).update(padded)
        around.update({atom: end for atom in operands if whole.setdefault(atom, atom) is atom})
    first: dict[Var, Var] = {}
    made: dict[Var, int] = {}
    most: dict[Var, int] = {}
    for end, count in counts.items():
        outer = around.get(end)
        size, top = count * (2 if -1 in dims[end] else 1), end
        if outer is not None:
            size, top = size * made[outer], first[outer]
            if not dims[end].isdisjoint(dims[outer]):
                size += WIDEST_WINDOW
            dims[end] |= dims[outer]
        made[end], first[end] = size, top
        most[top] = max(most.get(top, 0), made[end])
    return {var: most[first[end]] for var, end in whole.items() if end in first}


def _dilated_dims(eqn: Eqn) -> list[int]:
    """Return the dims of the result, counted from its end, that are padded between elements."""
    if eqn.primitive.moves != "pad":
        return []
    ndim = eqn.outvars[0].aval.ndim
    configs = enumerate(eqn.params["padding_config"])
    return [d - ndim for d, (_, _, inner) in configs if inner]
