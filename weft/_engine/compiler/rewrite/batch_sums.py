"""Sums over batch dims of a matmul become contracted dims of that matmul.

In, out: jaxprs. Hence partial sums of devices that share memory are never stored separately.
"""

from __future__ import annotations

import math

from weft._engine.compiler.fusion.classify import LoweringKind, is_sum, lowering_kind, moves
from weft._engine.core.primitive import registry
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import dce, use_counts
from weft._engine.ir.types import ShapedArray


def merge_batch_sums(jaxpr: Jaxpr) -> Jaxpr:
    """A sum over batch dims of a matmul that nothing else reads is a matmul that contracts those dims too.

    Reshapes and transpositions may be between them, as between two sums over axes of a mesh: they follow without those dims.
    """
    makers = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    uses = use_counts(jaxpr)
    eqns, changed = [], False
    for eqn in jaxpr.eqns:
        found = _summed_dot(eqn, makers, uses) if is_sum(eqn) else None
        if found is not None:
            changed = True
            makers.update({v: new for new in found for v in new.outvars})
            uses.update({new.outvars[0]: 1 for new in found[:-1]})
        eqns += found or [eqn]
    return dce(jaxpr.replace(eqns=eqns)) if changed else jaxpr


def _summed_dot(sum_: Eqn, makers: dict[Var, Eqn], uses: dict[Var, int]) -> list[Eqn] | None:
    """The equations that compute a sum over batch dims of a matmul, and need no sum; None where it is none."""
    axes, atom = tuple(sum_.params["axes"]), sum_.invars[0]
    # what changes the layout, last first, and the summed dims after and before it
    between: list[tuple[Eqn, tuple[int, ...], tuple[int, ...]]] = []
    while (
        axes
        and type(atom) is not Literal
        and uses[atom] == 1
        and (made := makers.get(atom)) is not None
    ):
        if lowering_kind(made) is LoweringKind.CONTRACT:
            break
        before = _before(made, axes)
        if before is None or made.outvars[0].aval.explicit is not None:
            return None
        between.append((made, axes, before))
        axes, atom = before, made.invars[0]
    else:
        return None
    (contract, batch) = made.params["dimension_numbers"]
    if not all(a < len(batch[0]) for a in axes):
        return None
    sides = [tuple([dims[a] for a in axes]) for dims in batch]
    kept = [tuple([d for i, d in enumerate(dims) if i not in axes]) for dims in batch]
    numbers = ((sides[0] + tuple(contract[0]), sides[1] + tuple(contract[1])), tuple(kept))
    params = {**made.params, "dimension_numbers": numbers}
    out = sum_.outvars[0] if not between else Var(_without(made.outvars[0].aval, axes))
    eqns = [Eqn(registry["dot_general"], made.invars, (out,), params, sum_.source)]
    for layout, gone, before in reversed(between):
        last = layout is between[0][0]
        after = sum_.outvars[0] if last else Var(_without(layout.outvars[0].aval, gone))
        eqns.append(
            layout.replace(
                invars=eqns[-1].outvars,
                outvars=(after,),
                params=_params_without(layout, gone, before, after.aval.shape),
            )
        )
    return eqns


def _before(eqn: Eqn, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Which dims of its operand become the dims `axes` of a reshape, a transpose or a squeeze; None where no dims do."""
    if moves(eqn) == "permute":
        return tuple([eqn.params["permutation"][a] for a in axes])
    if moves(eqn) != "reshape":
        return None
    x, out = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    places = {(math.prod(x[:d]), n): d for d, n in enumerate(x) if n > 1}
    found = [places.get((math.prod(out[:a]), out[a])) for a in axes]
    known = [d for d in found if d is not None]
    return tuple(known) if len(known) == len(found) else None


def _params_without(
    eqn: Eqn, gone: tuple[int, ...], before: tuple[int, ...], shape: tuple[int, ...]
) -> dict:
    """Return the parameters of a layout operation whose result loses the dims `gone`, its operand those `before`; the result has `shape`."""
    number = {
        d: i for i, d in enumerate([d for d in range(eqn.invars[0].aval.ndim) if d not in before])
    }
    if moves(eqn) == "permute":
        return {
            **eqn.params,
            "permutation": tuple(
                [number[d] for i, d in enumerate(eqn.params["permutation"]) if i not in gone]
            ),
        }
    if "dimensions" in eqn.params:
        return {**eqn.params, "dimensions": tuple([number[d] for d in eqn.params["dimensions"]])}
    return {**eqn.params, "new_sizes": shape}


def _without(aval: ShapedArray, dims: tuple[int, ...]) -> ShapedArray:
    return aval.update(shape=tuple([n for d, n in enumerate(aval.shape) if d not in dims]))
