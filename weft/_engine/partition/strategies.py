"""Candidate strategies: the splits of the factors of one equation whose costs are compared.

In:   an equation, its factor rule, the placements of its operands, the target specs of its results, its split rule.
Out:  axes per factor; the local op is correct for each candidate, and the partitioner computes its cost.
How:  splits like the target specs of the results, like each operand, and mixtures; then the same with axes moved away from
      dims that cannot stay split or need rows of other devices; then with the factors of a group split together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.core.primitive import ProductOp
from weft._engine.ir.collective_spec import COMPLETED_BY, CollectiveSpec
from weft._engine.ir.factors import (
    FactorAxes,
    FactorRule,
    OperandFactors,
    axes_of_factors,
    joint_dims,
)
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ir.specs import Spec
from weft._engine.partition.padding import tolerates_padding, worth_splitting
from weft._engine.partition.reshard import Placement, is_even
from weft._engine.partition.rules.split_rule import split_rule_of
from weft._engine.partition.values import LocalValue
from weft._engine.util import dtypes
from weft._engine.util.record import record


@record(frozen=False)
class Strategy:
    """A way to compute an equation and all equal equations: axes per factor, placements of operands and results."""

    axes: FactorAxes
    ins: list[Placement]
    outs: list[Placement]
    params: dict[str, Any] | None = None  # parameters of the local equation, when computed


@record(frozen=False)
class StrategySet:
    """The strategies for equal equations, and the cheapest one by the existing forms of the operands (None: not cached)."""

    strategies: list[Strategy]
    cheapest_by_forms: dict[tuple[Any, ...], Strategy] | None = None


class Candidates:
    """The candidates for one equation, each once; the first follows the target specs."""

    def __init__(self, partitioner: Any, eqn: Eqn, rule: FactorRule, values: Sequence[Any]):
        self.eqn, self.rule, self.sizes = eqn, rule, partitioner.sizes
        self.context, self.split = partitioner.context, split_rule_of(eqn.primitive)

        def factors(fs: OperandFactors, dims: Spec) -> FactorAxes:
            return axes_of_factors(fs, dims, rule, self.sizes)[0]

        self.target_axes = [
            factors(fs, partitioner.target_specs.spec(v)) for v, fs in zip(eqn.outvars, rule.outs)
        ]
        self.operand_axes = [factors(fs, v.placement.dims) for v, fs in zip(values, rule.ins)]
        self.splittable = frozenset(f for f in range(len(rule.sizes)) if self.can_split(f))

    def __iter__(self) -> Iterator[FactorAxes]:
        targets, operands = self.target_axes, self.operand_axes
        orders = [
            [*targets, *operands],
            [*operands, *targets],
            *([axes, *targets, *operands] for axes in operands if axes),
            targets,
            [],
        ]
        if any(operands):
            orders.append([*targets, *reversed(operands)])
        seen: set[tuple[Any, ...]] = set()
        for order in orders:
            axes = self.even(consistent_axes(_merge(order, self.splittable), self.rule, self.sizes))
            for moved in (axes, *self.relocate(axes)):
                for option in self.split_groups(moved):
                    key = tuple(sorted(option.items()))
                    if key not in seen:
                        seen.add(key)
                        yield option

    def can_split(self, f: int) -> bool:
        """Return whether factor `f` may be split; an empty factor may not if the op has a split rule."""
        rule = self.rule
        if f not in rule.special and completes_reduction(rule.reduced.get(f, "add"), self.eqn):
            return True
        return (
            rule.sizes[f] > 0 and self.split is not None and self.split.can_split(f, rule, self.eqn)
        )

    def even(self, axes: FactorAxes) -> FactorAxes:
        """Return `axes` without axes that would split a factor unevenly if the op does not tolerate padding."""
        even_axes: FactorAxes = {}
        for f, mine in axes.items():
            while (
                mine
                and not is_even(self.rule.sizes[f], mine, self.sizes)
                and not tolerates_padding(self.eqn, self.rule, f)
            ):
                mine = mine[:-1]
            if mine:
                even_axes[f] = mine
        return even_axes

    def relocate(self, axes: FactorAxes) -> Iterator[FactorAxes]:
        """Yield `axes` with axes of dims that cannot stay split, or need rows of other devices, moved to a dim of the results."""
        rule = self.rule
        for stay in dict.fromkeys((self.splittable, self.splittable.difference(rule.special))):
            staying = {f: mine for f, mine in axes.items() if f in stay}
            lost = self.unused(staying, stay)
            if not lost or not rule.outs:
                continue
            n = self.count(lost)
            for f in sorted({f for dim in rule.outs[0] for f in dim} & stay):
                mine = staying.get(f, ())
                option = {**staying, f: (*mine, *lost)}
                even = f not in rule.special and rule.sizes[f] % (n * self.count(mine)) == 0
                if even and option == consistent_axes(option, rule, self.sizes):
                    yield option

    def unused(self, kept: FactorAxes, stay: frozenset[int]) -> tuple[Any, ...]:
        """Return the axes of the operands' factors outside `stay` that `kept` does not use."""
        used = {a for mine in kept.values() for a in mine}
        moving = [mine for axes in self.operand_axes for f, mine in axes.items() if f not in stay]
        return tuple(dict.fromkeys(a for mine in moving for a in mine if a not in used))

    def count(self, axes: Sequence[Any]) -> int:
        """Return the number of blocks into which `axes` split a dim."""
        return math.prod(self.sizes[a] for a in axes)

    def split_groups(self, axes: FactorAxes) -> Iterator[FactorAxes]:
        """Yield `axes`, and `axes` with the factors of a group split together; followers without a split leader are left whole."""
        rule, options = self.rule, [axes]
        for group in rule.groups:
            if self.splittable.issuperset(group):
                options += [
                    more for option in options for more in self.follow_leader(group, option)
                ]
        for option in map(self.with_one_leader, options):
            evenly_split = self.even(
                {
                    f: mine
                    for f, mine in option.items()
                    if not self.is_unled_follower(f, mine, option)
                }
            )
            if not rule.groups or self.context(self.eqn, rule, evenly_split).halos() is not None:
                yield evenly_split

    def follow_leader(self, group: Sequence[int], axes: FactorAxes) -> Iterator[FactorAxes]:
        """Yield `axes` with the leader of `group` split like itself or a follower, and with it the followers with split operands, or all."""
        leader, *followers = group
        present = {
            f: mine
            for operand in self.operand_axes
            for f, mine in operand.items()
            if f in followers
        }
        others = {f: mine for f, mine in axes.items() if f not in group}
        used = {a for mine in others.values() for a in mine}
        for mine in dict.fromkeys([*(axes[f] for f in group if f in axes), *present.values()]):
            if used.isdisjoint(mine) and worth_splitting(self.rule.sizes[leader], mine, self.sizes):
                for along in dict.fromkeys((tuple(present), tuple(followers))):
                    yield {**others, **dict.fromkeys((leader, *along), mine)}

    def with_one_leader(self, axes: FactorAxes) -> FactorAxes:
        """Return `axes` without the axes of leaders whose followers have another split leader."""
        led: set[int] = set()
        remaining = dict(axes)
        for leader, *followers in self.rule.groups:
            if leader in remaining and not led.isdisjoint(followers):
                del remaining[leader]
            elif leader in remaining:
                led.update(followers)
        return remaining

    def is_unled_follower(self, f: int, mine: tuple[Any, ...], axes: FactorAxes) -> bool:
        """Return whether `f` is a follower that cannot be split alone, and none of its leaders is split like it."""
        leaders = [group[0] for group in self.rule.groups if f in group[1:]]
        if not leaders or any(axes.get(leader) == mine for leader in leaders):
            return False
        splits_alone = self.split is not None and self.split.splits_alone(f, self.rule, self.eqn)
        return any(leader in axes for leader in leaders) or not splits_alone


def completes_reduction(combine: str, eqn: Eqn) -> bool:
    """Return whether shards reduced with `combine` can be combined across devices by one collective."""
    dtype = eqn.outvars[0].aval.dtype
    bitwise = combine in ("and", "or") and dtype != np.bool_
    by_parts = combine in ("max", "min") and dtypes.is_complex(dtype)
    return combine in COMPLETED_BY and not bitwise and not by_parts


def _merge(order: Sequence[FactorAxes], splittable: frozenset[int]) -> FactorAxes:
    """Merge axes per factor, the earlier entries of `order` first; each axis splits one factor."""
    used_axes: set[Any] = set()
    merged: FactorAxes = {}
    for axes in order:
        for f, mine in axes.items():
            have = merged.get(f, ())
            if f not in splittable or len(mine) <= len(have) or mine[: len(have)] != have:
                continue
            new_axes: list[Any] = []
            for a in mine[len(have) :]:
                if a in used_axes:
                    break
                new_axes.append(a)
            if new_axes:
                merged[f] = (*have, *new_axes)
                used_axes.update(new_axes)
    return merged


def consistent_axes(axes: FactorAxes, rule: FactorRule, sizes: Mapping[Any, int]) -> FactorAxes:
    """Return the part of `axes` that splits each dim into contiguous blocks.

    In a dim of several factors, a minor factor may be split only if its major factors are split completely; uneven axes are dropped.
    """
    consistent = dict(axes)
    for dim in joint_dims(rule):
        whole = True
        for f in dim:
            if not whole:
                consistent.pop(f, None)
            while f in consistent and not is_even(rule.sizes[f], consistent[f], sizes):
                consistent[f] = consistent[f][:-1]
            whole = whole and math.prod(sizes[a] for a in consistent.get(f, ())) == rule.sizes[f]
    consistent = {f: mine for f, mine in consistent.items() if mine}
    return consistent if consistent == axes else consistent_axes(consistent, rule, sizes)


def completed_by(rule: FactorRule, f: int) -> CollectiveSpec | None:
    """Return the collective that immediately completes the reduction of factor `f`; None for sums, which can be deferred."""
    combine = rule.reduced.get(f, "add")
    return None if combine == "add" else COMPLETED_BY.get(combine)


def makes_partial_sums(eqn: Eqn, rule: FactorRule, f: int, axes: FactorAxes) -> bool:
    """Return whether splitting factor `f` by `axes` makes the results partial sums."""
    if f in rule.special:
        split = split_rule_of(eqn.primitive)
        return split is not None and bool(split.makes_partial_sums(f, rule, axes))
    return rule.reduced.get(f) == "add"


def replicates_reduction(rule: FactorRule, values: Sequence[LocalValue], axes: FactorAxes) -> bool:
    """Return whether all devices would gather and compute a sum whose terms are on the same devices in all operands.

    The cost of this is increased, so that a gradient stays a partial sum over the devices of the batch and is reduced together with
    all others, even if gathering a small batch would send somewhat less.
    """
    for f, combine in rule.reduced.items():
        if combine != "add" or f in rule.special:
            continue
        axes_of_f = [
            _common(
                {a for dim, fs in zip(form.dims, dims) if fs == (f,) for a in dim}
                for form in v.forms
            )
            for v, dims in zip(values, rule.ins)
            if (f,) in dims
        ]
        if len(axes_of_f) > 1 and _common(axes_of_f) - set(axes.get(f, ())):
            return True
    return False


def _common(sets: Iterable[set[Any]]) -> set[Any]:
    first, *others = sets
    return first.intersection(*others)


def computes_nothing(eqn: Eqn) -> bool:
    """Return whether results have no elements, or are sums without terms because an operand is empty."""
    if eqn.effects or not eqn.outvars:
        return False
    is_product = isinstance(eqn.primitive, ProductOp)
    return not any(v.aval.size for v in eqn.outvars) or (
        is_product and not all(a.aval.size for a in eqn.invars)
    )
