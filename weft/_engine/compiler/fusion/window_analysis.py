"""Window analysis: the number of interior-padded values that contribute to one result, as in gradients of pools and strided slices.

In:   a simplified jaxpr.
Out:  the window size of each contributing value. The sizes of nested paddings are multiplied, and a padding of the last dim counts
      twice, because the code of an unrolled iteration grows likewise (`compiler.loops.unroll_by_residue`). A dim that is padded
      twice exceeds any limit.
"""

from __future__ import annotations

from weft._engine.core.primitive import ElementwiseOp, MovementOp
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var

# thresholds, measured on several machines
#: maximal size of a window whose iterations are unrolled
WIDEST_WINDOW = 18


def windows(jaxpr: Jaxpr) -> dict[Var, int]:
    """Return the size of the window to which each value contributes, by value."""
    if not any(_find_dilated_dims(eqn) for eqn in jaxpr.eqns):
        return {}
    whole: dict[Var, Var] = {}  # the last value computed from a value before the next padding
    around: dict[Var, Var] = {}  # maps a padded value to the `whole` value around it
    counts: dict[Var, int] = {}
    dims: dict[Var, set[int]] = {}  # the padded dims, counted from the end (-1 is the last dim)
    for eqn in reversed(jaxpr.eqns):
        if not isinstance(eqn.primitive, (ElementwiseOp, MovementOp)):
            continue
        out = eqn.outvars[0]
        end = whole.setdefault(out, out)
        operands = [atom for atom in eqn.invars if type(atom) is not Literal]
        padded = _find_dilated_dims(eqn)
        if not padded:
            for atom in operands:
                whole.setdefault(atom, end)
            continue
        counts[end] = counts.get(end, 0) + 1
        dims.setdefault(end, set()).update(padded)
        around.update({atom: end for atom in operands if whole.setdefault(atom, atom) is atom})
    first: dict[Var, Var] = {}
    sizes: dict[Var, int] = {}
    most: dict[Var, int] = {}
    for end, count in counts.items():
        outer = around.get(end)
        size, top = count * (2 if -1 in dims[end] else 1), end
        if outer is not None:
            size, top = size * sizes[outer], first[outer]
            if not dims[end].isdisjoint(dims[outer]):
                size += WIDEST_WINDOW
            dims[end] |= dims[outer]
        sizes[end], first[end] = size, top
        most[top] = max(most.get(top, 0), sizes[end])
    return {var: most[first[end]] for var, end in whole.items() if end in first}


def _find_dilated_dims(eqn: Eqn) -> list[int]:
    """Return the dims of the result with interior padding, counted from the end (-1 is the last dim)."""
    if eqn.primitive.moves != "pad":
        return []
    ndim = eqn.outvars[0].aval.ndim
    configs = enumerate(eqn.params["padding_config"])
    return [d - ndim for d, (_, _, inner) in configs if inner]
