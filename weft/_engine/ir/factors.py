"""Sharding rules as einsums over factors.

A rule names the independent index variables (factors) of an operation and says, per operand and result dim, which factors
it is made of, from major to minor. `dot_general` is  b m k, b n k -> b m n  with k reduced. A factor that is present in the
inputs but in no output is reduced with `combine`; one that is marked in `special` cannot simply be split:

    replicate     every device needs all of it (sort, cumulative ops without a prefix rule, LAPACK dims)
    scan          a prefix combine along it (cumsum): local result, then a combine of what came before
    halo          neighbours' edges are needed (conv, pad, roll)
    index         positions are looked up along it (gather, scatter, dynamic_slice): an index translation or a replica
    offset        of a result alone: elements know their global position along it (iota), so a shard adds where it starts
Propagation, partitioning, explicit checks and cost all read this and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from weft._engine.ir.specs import DimSpec, Spec
from weft._engine.util.record import field, record

DimFactors = tuple[
    int, ...
]  # factors of one dim, major to minor; () for a dim of size 1 that is not split
OperandFactors = tuple[DimFactors, ...]
FactorAxes = dict[int, DimSpec]  # mesh axes that split a factor


@record
class FactorRule:
    """`sizes[f]` is the extent of factor f; `ins[i][d]` / `outs[o][d]` list the factors of dim d of operand i / result o."""

    sizes: tuple[int, ...]
    ins: tuple[OperandFactors, ...]
    outs: tuple[OperandFactors, ...]
    reduced: dict[int, str] = field(
        default_factory=dict
    )  # factor -> combine: add mul max min and or xor; argmax and argmin
    # (of pairs of value and position) are `replicate` as well
    special: dict[int, str] = field(
        default_factory=dict
    )  # factor -> replicate | scan | halo | index | offset
    linear_ins: tuple[
        int, ...
    ] = ()  # operands in which the op is linear: partial sums may pass through these (one at a time
    # unless `additive`)
    additive: bool = (
        False  # linear jointly (add, sub, select-free sums): all linear operands partial together
    )
    groups: tuple[
        tuple[int, ...], ...
    ] = ()  # halo factors that are split together, by the same axes: the leader (whose
    # blocks the devices compute), then those of operands that run along with it


class _Shaped(Protocol):
    """A type with a shape; that of arrays stands above this module."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...


class RuleBuilder:
    """Small helper: `new(size)` gives a factor; operands are lists of dims."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def new(self, size: int) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1

    def news(self, shape: Sequence[int]) -> list[int]:
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
    """All operands of the result's shape share its factors; rank-0 operands have none."""
    b = RuleBuilder()
    fs = b.news(out_avals[0].shape)
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
    """Read the axes of each factor off the dims of one value; also the (axis, size) splits of axes that would say more.

    A dim of several factors distributes its axes major to minor; an axis belongs to a factor if its size divides it,
    and the next factor is reached only when one is split completely. A dim of one factor may be split unevenly.
    """
    found: FactorAxes = {}
    cuts: set[tuple[Any, int]] = set()
    for dim_factors, axes in zip(factors, dims):
        if not axes:
            continue
        solid = [f for f in dim_factors if rule.sizes[f] != 1]
        if len(solid) == 1:
            found[solid[0]] = tuple(axes)
            continue
        if not solid and dim_factors and (whole := tuple(a for a in axes if sizes[a] == 1)):
            found[dim_factors[0]] = (
                whole  # these axes split nothing, and are part of what the value's type says
            )
            continue
        rest = list(axes)
        for f in solid:
            left = rule.sizes[f]
            mine: list[Any] = []
            while rest and left % sizes[rest[0]] == 0 and left > 1:
                left //= sizes[rest[0]]
                mine.append(rest.pop(0))
            if mine:
                found[f] = tuple(mine)
            if left > 1:
                if rest and 1 < math.gcd(left, sizes[rest[0]]) < sizes[rest[0]]:
                    cuts.add((rest[0], math.gcd(left, sizes[rest[0]])))
                break
    return found, cuts


def joint_dims(rule: FactorRule) -> set[tuple[int, ...]]:
    """The dims that several factors make up, size 1 not counted."""
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
    """Axes per dim of a value whose factors are split by `axes`; a minor factor counts only under whole major ones."""
    dims: list[DimSpec] = []
    for dim_factors in factors:
        mine: DimSpec = ()
        for f in dim_factors:
            more = axes.get(f, ())
            mine = (*mine, *more) if mine else more
            if math.prod([sizes[a] for a in more]) != rule.sizes[f]:
                break
        dims.append(mine)
    return tuple(dims)
