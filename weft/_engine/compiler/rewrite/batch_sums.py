"""Merging of sums over batch dims of a matmul into the matmul, as contracted dims.

In, out: jaxprs. Partial sums of virtual devices are therefore never stored separately.
"""

from __future__ import annotations

import math

from weft._engine.compiler.fusion.classify import LoweringKind, is_sum, lowering_kind, moves
from weft._engine.core.primitive import registry
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import dce, use_counts
from weft._engine.ir.types import ShapedArray


def merge_batch_sums(jaxpr: Jaxpr) -> Jaxpr:
    """Replace each sum over batch dims of a matmul without other readers by a matmul that contracts those dims too.

    Reshapes and transposes may be between the matmul and the sum, as between two sums over mesh axes; they follow the matmul without
    the summed dims.
    """
    makers = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    uses = use_counts(jaxpr)
    eqns, changed = [], False
    for eqn in jaxpr.eqns:
        replacement = _rewrite_summed_dot(eqn, makers, uses) if is_sum(eqn) else None
        if replacement is not None:
            changed = True
            makers.update({v: new for new in replacement for v in new.outvars})
            uses.update({new.outvars[0]: 1 for new in replacement[:-1]})
        eqns += replacement or [eqn]
    return dce(jaxpr.replace(eqns=eqns)) if changed else jaxpr


def _rewrite_summed_dot(
    sum_: Eqn, makers: dict[Var, Eqn], uses: dict[Var, int]
) -> list[Eqn] | None:
    """Return equations that compute a sum over batch dims of a matmul without a sum; None if it is not such a sum."""
    axes, atom = tuple(sum_.params["axes"]), sum_.invars[0]
    # the layout equations between, last first, and the summed dims in their results and operands
    between: list[tuple[Eqn, tuple[int, ...], tuple[int, ...]]] = []
    while (
        axes
        and type(atom) is not Literal
        and uses[atom] == 1
        and (producer := makers.get(atom)) is not None
    ):
        if lowering_kind(producer) is LoweringKind.CONTRACT:
            break
        before = _before(producer, axes)
        if before is None or producer.outvars[0].aval.explicit is not None:
            return None
        between.append((producer, axes, before))
        axes, atom = before, producer.invars[0]
    else:
        return None
    (contract, batch) = producer.params["dimension_numbers"]
    if not all(a < len(batch[0]) for a in axes):
        return None
    sides = [tuple([dims[a] for a in axes]) for dims in batch]
    batch_dims = [tuple([d for i, d in enumerate(dims) if i not in axes]) for dims in batch]
    numbers = ((sides[0] + tuple(contract[0]), sides[1] + tuple(contract[1])), tuple(batch_dims))
    params = {**producer.params, "dimension_numbers": numbers}
    out = sum_.outvars[0] if not between else Var(_without(producer.outvars[0].aval, axes))
    eqns = [Eqn(registry["dot_general"], producer.invars, (out,), params, sum_.source)]
    for layout, dropped_dims, before in reversed(between):
        last = layout is between[0][0]
        after = sum_.outvars[0] if last else Var(_without(layout.outvars[0].aval, dropped_dims))
        eqns.append(
            layout.replace(
                invars=eqns[-1].outvars,
                outvars=(after,),
                params=_params_without(layout, dropped_dims, before, after.aval.shape),
            )
        )
    return eqns


def _before(eqn: Eqn, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the dims of the operand of a reshape, transpose or squeeze that become the dims `axes` of its result; None if there
    are none."""
    if moves(eqn) == "permute":
        return tuple([eqn.params["permutation"][a] for a in axes])
    if moves(eqn) != "reshape":
        return None
    x, out = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    places = {(math.prod(x[:d]), n): d for d, n in enumerate(x) if n > 1}
    dims = [places.get((math.prod(out[:a]), out[a])) for a in axes]
    known = [d for d in dims if d is not None]
    return tuple(known) if len(known) == len(dims) else None


def _params_without(
    eqn: Eqn, dropped_dims: tuple[int, ...], before: tuple[int, ...], shape: tuple[int, ...]
) -> dict:
    """Return the parameters of a layout op after the dims `dropped_dims` are removed from its result and the dims `before` from its operand;
    `shape` is the new shape of the result."""
    number = {
        d: i for i, d in enumerate([d for d in range(eqn.invars[0].aval.ndim) if d not in before])
    }
    if moves(eqn) == "permute":
        return {
            **eqn.params,
            "permutation": tuple(
                [
                    number[d]
                    for i, d in enumerate(eqn.params["permutation"])
                    if i not in dropped_dims
                ]
            ),
        }
    if "dimensions" in eqn.params:
        return {**eqn.params, "dimensions": tuple([number[d] for d in eqn.params["dimensions"]])}
    return {**eqn.params, "new_sizes": shape}


def _without(aval: ShapedArray, dims: tuple[int, ...]) -> ShapedArray:
    return aval.update(shape=tuple([n for d, n in enumerate(aval.shape) if d not in dims]))
