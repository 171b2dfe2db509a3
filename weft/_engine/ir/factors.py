"""Sharding rules as einsums over factors.

A rule names the independent index variables (factors) of an operation, and for each dim of the operands and results the factors of
the dim, major to minor. `dot_general` is  b m k, b n k -> b m n  with k reduced. A factor that occurs in operands and in no result
is reduced by the operation in `reduced`. A factor that is marked in `special` needs more than local computation if it is sharded:

    replicate     every device needs the whole factor (sort, cumulative ops without a prefix rule, LAPACK dims)
    scan          a prefix combine along the factor (cumsum): a local result, combined with the total of the preceding shards
    halo          the edges of neighboring shards are needed (conv, pad, roll)
    index         positions are looked up along the factor (gather, scatter, dynamic_slice): translated indices or a replica
    offset        of a result alone: elements depend on their global position (iota), so each shard adds its start position
Propagation, the partitioner, explicit types and the cost model read factor rules and no other description of an op.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from weft._engine.ir.specs import DimSpec, Spec
from weft._engine.util.record import field, record

#: factors of one dim, major to minor; () for a dim of size 1 that is not sharded
DimFactors = tuple[int, ...]
OperandFactors = tuple[DimFactors, ...]
#: factor -> the mesh axes that shard it
FactorAxes = dict[int, DimSpec]


@record
class FactorRule:
    """The sharding rule of one op application.

    `sizes[f]` is the size of factor f; `ins[i][d]` and `outs[o][d]` are the factors of dim d of operand i and result o.
    """

    sizes: tuple[int, ...]
    ins: tuple[OperandFactors, ...]
    outs: tuple[OperandFactors, ...]
    #: factor -> its reduction: add, mul, max, min, and, or, xor; argmax and argmin (of pairs of value and position), which are
    #: marked `replicate` as well
    reduced: dict[int, str] = field(default_factory=dict)
    #: factor -> replicate | scan | halo | index | offset
    special: dict[int, str] = field(default_factory=dict)
    #: linear operands: partial sums may pass through them, one operand at a time unless `additive`
    linear_ins: tuple[int, ...] = ()
    #: the op is jointly linear in these operands (add, sub): all of them are partial sums or none
    additive: bool = False
    #: halo factors that are sharded together over the same axes: the leader, whose blocks the devices compute, then the factors
    #: of operands that follow it
    groups: tuple[tuple[int, ...], ...] = ()


class _Shaped(Protocol):
    """A type with a shape. (`ShapedArray` imports this module.)"""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...


class RuleBuilder:
    """A builder of factor rules: `new(size)` creates a factor, `rule` takes a list of dims per operand and result."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def new(self, size: int) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1

    def add_factors(self, shape: Sequence[int]) -> list[int]:
        return [self.new(s) for s in shape]

    def rule(
        self,
        ins: Sequence[Sequence[DimFactors | int]],
        outs: Sequence[Sequence[DimFactors | int]],
        **kw: Any,
    ) -> FactorRule:
        return FactorRule(tuple(self.sizes), _as_factors(ins), _as_factors(outs), **kw)


def _as_factors(operands: Sequence[Sequence[DimFactors | int]]) -> tuple[OperandFactors, ...]:
    return tuple(
        tuple(d if isinstance(d, tuple) else (d,) for d in operand) for operand in operands
    )


def elementwise_rule(
    in_avals: Sequence[_Shaped],
    out_avals: Sequence[_Shaped],
    *,
    linear_ins: tuple[int, ...] = (),
    additive: bool = False,
) -> FactorRule:
    """Return the rule of an elementwise op. Operands with the result's shape have its factors; rank-0 operands have none."""
    b = RuleBuilder()
    fs = b.add_factors(out_avals[0].shape)
    return b.rule(
        [fs if a.ndim else [] for a in in_avals],
        [fs for _ in out_avals],
        linear_ins=linear_ins,
        additive=additive,
    )


def axes_of_factors(
    factors: Sequence[Sequence[int]],
    dims: Sequence[DimSpec],
    rule: FactorRule,
    sizes: Mapping[Any, int],
) -> tuple[FactorAxes, set[tuple[Any, int]]]:
    """Return the mesh axes of each factor, given the axes of the dims of one value.

    The axes of a dim with several factors are assigned to them from major to minor. An axis is assigned to a factor if its size divides
    the remaining size of the factor; axes are assigned to the next factor only if the one before is sharded completely. A dim with one
    factor may be sharded unevenly. The second result are pairs (axis, size): splitting the axis into a part of this size and
    a rest would assign more.
    """
    axes_of: FactorAxes = {}
    cuts: set[tuple[Any, int]] = set()
    for dim_factors, axes in zip(factors, dims):
        if not axes:
            continue
        solid = [f for f in dim_factors if rule.sizes[f] != 1]
        if len(solid) == 1:
            axes_of[solid[0]] = tuple(axes)
            continue
        if not solid and dim_factors and (unit_axes := tuple(a for a in axes if sizes[a] == 1)):
            # axes of size 1 split nothing, but they are a part of the value's type
            axes_of[dim_factors[0]] = unit_axes
            continue
        pending = list(axes)
        for f in solid:
            size = rule.sizes[f]
            assigned: list[Any] = []
            while pending and size % sizes[pending[0]] == 0 and size > 1:
                size //= sizes[pending[0]]
                assigned.append(pending.pop(0))
            if assigned:
                axes_of[f] = tuple(assigned)
            if size > 1:
                if pending and 1 < math.gcd(size, sizes[pending[0]]) < sizes[pending[0]]:
                    cuts.add((pending[0], math.gcd(size, sizes[pending[0]])))
                break
    return axes_of, cuts


def joint_dims(rule: FactorRule) -> set[tuple[int, ...]]:
    """Return the dims of operands and results that consist of several factors of a size other than 1."""
    dims = {
        tuple(f for f in dim if rule.sizes[f] != 1)
        for value in (*rule.ins, *rule.outs)
        for dim in value
        if len(dim) > 1
    }
    return {dim for dim in dims if len(dim) > 1}


def dims_of_factors(
    factors: Sequence[Sequence[int]],
    axes: Mapping[int, DimSpec],
    rule: FactorRule,
    sizes: Mapping[Any, int],
) -> Spec:
    """Return the axes of each dim of a value, given the axes of its factors.

    The axes of a minor factor are used only if all major factors of the dim are sharded completely.
    """
    dims: list[DimSpec] = []
    for dim_factors in factors:
        dim_axes: DimSpec = ()
        for f in dim_factors:
            factor_axes = axes.get(f, ())
            dim_axes = (*dim_axes, *factor_axes) if dim_axes else factor_axes
            if math.prod([sizes[a] for a in factor_axes]) != rule.sizes[f]:
                break
        dims.append(dim_axes)
    return tuple(dims)
