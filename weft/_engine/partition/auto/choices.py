"""Choices: the ways to lay out the operands and results of one node of the decision graph.

In:   a node; the axes that are free, and for each other axis how the node uses it.
Out:  `Choice`s: placements of what the node reads and makes, and the price of the computation.
Laws: every choice is one that the partitioner can realize. A choice is never omitted merely because its own price is high.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft._engine.core.primitive import ConstraintOp
from weft._engine.core.trace import current_trace, extend_axis_env, set_trace
from weft._engine.ir.collective_spec import COMPLETED_BY, collective_bytes
from weft._engine.ir.factors import FactorAxes, FactorRule, dims_of_factors
from weft._engine.ir.jaxpr import Eqn, Literal, Var
from weft._engine.ir.specs import DimSpec, Spec
from weft._engine.partition.auto.graph import DecisionNode, Kind, equation_key
from weft._engine.partition.auto.prices import MeshPrices
from weft._engine.partition.padding import tolerates_padding, worth_splitting
from weft._engine.partition.partitioner import Partitioner
from weft._engine.partition.propagation.propagate import Propagation
from weft._engine.partition.reshard import Placement, is_even, local_shape
from weft._engine.partition.rules.split_rule import split_rule_of
from weft._engine.partition.strategies import (
    Strategy,
    completes_reduction,
    consistent_axes,
    makes_partial_sums,
)
from weft._engine.partition.values import LocalTrace, NotSplittable
from weft._engine.util.record import record, replace

#: what an axis does in a choice: the dim or factor that it splits, and whether a sum over it passes through
AxisUse = tuple[Hashable, bool]
UNUSED: AxisUse = (None, False)


@record
class Choice:
    """One way to lay out a node: the price of its computation, and the placements of its operands and results.

    `work` is the price without collectives.
    """

    price: float
    work: float
    reads: tuple[Placement, ...]
    makes: tuple[Placement, ...]
    uses: tuple[tuple[Any, AxisUse], ...]  # of every axis

    def use(self, axis: Any) -> AxisUse:
        """Return how the choice uses `axis`."""
        return next(use for a, use in self.uses if a == axis)


@record
class HeldAxes:
    """The fixed uses of mesh axes by one node. Other axes are free; with `together`, all of them split one dim."""

    uses: Mapping[Any, AxisUse]
    together: bool = False

    def picks(self, sizes: Iterable[Any], options: Sequence[Hashable]) -> Iterator[tuple[Any, ...]]:
        """Yield each assignment of axes to dims or factors; a free axis splits one of `options`."""
        axes = list(sizes)
        if self.together:
            for option in options:
                yield tuple(self.uses[a][0] if a in self.uses else option for a in axes)
        else:
            yield from itertools.product(
                *([self.uses[a][0]] if a in self.uses else options for a in axes)
            )


#: a choice of one equation: price, price of the work in it, placements of operands and of results
_EquationChoice = tuple[float, float, tuple[Placement, ...], tuple[Placement, ...]]


class ChoiceLister:
    """Lists the choices of nodes.

    given_specs the prescribed layouts of arguments and results
    """

    def __init__(
        self,
        propagation: Propagation,
        prices: MeshPrices,
        constraint_spec: Any,
        given_specs: Mapping[DecisionNode, Spec],
    ):
        self.sizes, self.prices, self.given_specs = prices.sizes, prices, given_specs
        self.propagation, self.constraint_spec = propagation, constraint_spec
        trace = LocalTrace(current_trace(), "automatic sharding")
        self.partitioner = Partitioner(
            propagation, constraint_spec, trace, _no_special, cost=prices.model
        )
        self._priced: dict[Hashable, _EquationChoice | None] = {}
        self._listed: dict[Hashable, list[Choice]] = {}

    def choices(
        self,
        node: DecisionNode,
        held_axes: HeldAxes,
        partials: Mapping[Var, frozenset[frozenset[Any]]],
    ) -> list[Choice]:
        """Return the choices of `node` that use the axes as `held_axes` prescribes.

        `partials` has the sets of axes over which the variables that the node reads can be sums. Equal nodes share choices.
        """
        is_shared = node.kind is Kind.EQUATION or node.kind is Kind.PRODUCTS
        sums = tuple(partials.get(read.var) for read in node.reads)
        key = (node.key, held_axes.together, tuple(held_axes.uses.items()), sums)
        choices = self._listed.get(key) if is_shared else None
        if choices is None:
            choices = self._list(node, held_axes, partials)
            if is_shared:
                self._listed[key] = choices
        return choices

    def _list(
        self,
        node: DecisionNode,
        held_axes: HeldAxes,
        partials: Mapping[Var, frozenset[frozenset[Any]]],
    ) -> list[Choice]:
        """Return the choices of a node: for each set of placements the cheapest."""
        with extend_axis_env(list(self.sizes.items())), set_trace(self.partitioner.trace):
            match node.kind:
                case Kind.INPUT | Kind.OUTPUT:
                    choices = self._boundary(node, held_axes)
                case Kind.LINK:
                    choices = self._link(node, held_axes)
                case Kind.FIXED:
                    choices = [self._fixed_choice(node)]
                case Kind.MAP:
                    choices = self._map(node, held_axes)
                case Kind.PRODUCTS:
                    choices = self._products(node, held_axes)
                case Kind.EQUATION if isinstance(node.eqns[0].primitive, ConstraintOp):
                    choices = self._constraint(node, held_axes)
                case Kind.EQUATION:
                    choices = self._equation(node, held_axes, partials)
        return _cheapest_of_equal(choices)

    # --- values ---

    def _layouts(
        self, shape: Sequence[int], held_axes: HeldAxes, even: bool
    ) -> Iterator[tuple[Spec, tuple[tuple[Any, AxisUse], ...]]]:
        """Yield the layouts of a value, with the use of each axis. Axes split a dim in the order of the mesh."""
        for picked in held_axes.picks(self.sizes, [None, *range(len(shape))]):
            uses = tuple((a, (d, False)) for a, d in zip(self.sizes, picked))
            spec = tuple(tuple(a for a, (d, _) in uses if d == k) for k in range(len(shape)))
            fits = is_even if even else worth_splitting
            if all(fits(n, axes, self.sizes) for n, axes in zip(shape, spec)):
                yield spec, uses

    def _boundary(self, node: DecisionNode, held_axes: HeldAxes) -> list[Choice]:
        if node in self.given_specs:
            return [self._same_everywhere(node, self.given_specs[node])]
        return [
            self._replicated_choice(node, Placement(spec), uses)
            for spec, uses in self._layouts(node.shape, held_axes, even=True)
        ]

    def _replicated_choice(
        self, node: DecisionNode, place: Placement, uses: tuple[tuple[Any, AxisUse], ...]
    ) -> Choice:
        return Choice(0.0, 0.0, (place,) * len(node.reads), (place,) * len(node.makes), uses)

    def _same_everywhere(self, node: DecisionNode, spec: Spec) -> Choice:
        """Return the only choice of a node whose values have the layout `spec`."""
        return self._replicated_choice(node, Placement(spec), self._uses_of(spec))

    def _uses_of(self, spec: Spec) -> tuple[tuple[Any, AxisUse], ...]:
        return tuple(
            (a, next(((d, False) for d, axes in enumerate(spec) if a in axes), UNUSED))
            for a in self.sizes
        )

    def _link(self, node: DecisionNode, held_axes: HeldAxes) -> list[Choice]:
        choices: list[Choice] = []
        for spec, uses in self._layouts(node.shape, held_axes, even=True):
            places = {v: Placement(((),) * lead + spec) for v, lead in node.leads.items()}
            reads = tuple(places[read.var] for read in node.reads)
            choices.append(Choice(0.0, 0.0, reads, tuple(places[v] for v in node.makes), uses))
        return choices

    def _fixed_choice(self, node: DecisionNode) -> Choice:
        """Return the choice of an equation that is not split: a `shard_map`, a callback, an unknown operation."""
        none = tuple((a, UNUSED) for a in self.sizes)
        eqn = node.eqns[0] if node.eqns else None
        if eqn is None or "in_specs" not in eqn.params or "out_specs" not in eqn.params:
            reads = tuple(_whole(read.var) for read in node.reads)
            return Choice(0.0, 0.0, reads, tuple(map(_whole, node.makes)), none)
        specs = {
            a: Placement(spec.dims(a.aval.ndim))
            for a, spec in zip(eqn.invars, eqn.params["in_specs"])
            if type(a) is not Literal
        }
        makes = tuple(
            Placement(spec.dims(v.aval.ndim))
            for v, spec in zip(eqn.outvars, eqn.params["out_specs"])
        )
        return Choice(0.0, 0.0, tuple(specs[read.var] for read in node.reads), makes, none)

    def _constraint(self, node: DecisionNode, held_axes: HeldAxes) -> list[Choice]:
        """Return the layouts that agree with a constraint; dims that it leaves open are free."""
        constraint = self.constraint_spec(node.eqns[0])
        constrained_axes = {a for axes in constraint for a in axes or ()}
        choices: list[Choice] = []
        for spec, uses in self._layouts(node.shape, HeldAxes({}), even=False):
            agrees = all(
                required is None or required == axes for required, axes in zip(constraint, spec)
            )
            follows = all(
                a in constrained_axes or use == held_axes.uses.get(a, use) for a, use in uses
            )
            if agrees and follows:
                choices.append(self._replicated_choice(node, Placement(spec), uses))
        if choices:
            return choices
        return [self._same_everywhere(node, tuple(axes or () for axes in constraint))]

    def _map(self, node: DecisionNode, held_axes: HeldAxes) -> list[Choice]:
        """Return the layouts of elementwise equations of one shape."""
        nbytes = sum(a.aval.nbytes for eqn in node.eqns for a in (*eqn.invars, *eqn.outvars))
        rate = self.prices.model.local_bytes_per_byte
        choices: list[Choice] = []
        for spec, uses in self._layouts(node.shape, held_axes, even=False):
            share = math.prod(local_shape(node.shape, spec, self.sizes)) / math.prod(node.shape)
            price = nbytes * share / rate * node.count
            place, scalar = Placement(spec), Placement(())
            reads = tuple(place if read.var.aval.ndim else scalar for read in node.reads)
            makes = tuple(place if v.aval.ndim else scalar for v in node.makes)
            choices.append(Choice(price, price, reads, makes, uses))
        return choices

    # --- equations ---

    def _equation(
        self,
        node: DecisionNode,
        held_axes: HeldAxes,
        partials: Mapping[Var, frozenset[frozenset[Any]]],
    ) -> list[Choice]:
        (eqn,) = node.eqns
        rule = self.propagation.rule(eqn)
        choices: list[Choice] = []
        for axes, deferred in self._splits(eqn, rule, held_axes, partials):
            priced = self._price(eqn, rule, axes, deferred)
            if priced is not None:
                choices.append(_choice_of([priced], node.count, self._uses(axes, deferred)))
        return choices or [self._whole(node, rule)]

    def _whole(self, node: DecisionNode, rule: FactorRule | None) -> Choice:
        """Return the choice to compute the whole equation on every device."""
        priced = self._price(node.eqns[0], rule, {}, frozenset())
        if priced is None:
            priced = self._price(node.eqns[0], None, {}, frozenset())
        assert priced is not None  # nothing is split
        return _choice_of([priced], node.count, self._uses({}, frozenset()))

    def _uses(
        self, axes: Mapping[Any, DimSpec], deferred: frozenset[Any]
    ) -> tuple[tuple[Any, AxisUse], ...]:
        split = {a: f for f, mine in axes.items() for a in mine}
        return tuple((a, (split.get(a), a in deferred)) for a in self.sizes)

    def _splits(
        self,
        eqn: Eqn,
        rule: FactorRule | None,
        held_axes: HeldAxes,
        partials: Mapping[Var, frozenset[frozenset[Any]]],
    ) -> Iterator[tuple[FactorAxes, frozenset[Any]]]:
        """Yield the splits of the factors of an equation, with the axes over which sums pass through."""
        if rule is None:
            yield {}, frozenset()
            return
        deferrals = self._deferrals(eqn, rule, held_axes, partials)
        for picked in held_axes.picks(self.sizes, [None, *self._splittable(eqn, rule)]):
            axes = self._with_followers(_axes_by_factor(zip(self.sizes, picked)), rule)
            used = {a for mine in axes.values() for a in mine}
            if self._is_possible(eqn, rule, axes):
                yield from ((axes, s) for s in deferrals if used.isdisjoint(s))

    def _deferrals(
        self,
        eqn: Eqn,
        rule: FactorRule,
        held_axes: HeldAxes,
        partials: Mapping[Var, frozenset[frozenset[Any]]],
    ) -> list[frozenset[Any]]:
        """Return the sets of axes over which sums may pass through an equation, in an order that does not depend on hashes."""
        deferrals = {frozenset[Any]()}
        if rule.linear_ins:
            for a in eqn.invars:
                if isinstance(a, Var):
                    deferrals |= partials.get(a, frozenset())
        fits = [
            s
            for s in deferrals
            if all((a in s) == passes for a, (_, passes) in held_axes.uses.items())
        ]
        return sorted(fits, key=lambda axes: sorted(map(str, axes)))

    def _splittable(self, eqn: Eqn, rule: FactorRule) -> list[int]:
        """Return the factors that may be split; followers of a group are excluded, because they are split with their leader."""
        split = split_rule_of(eqn.primitive)
        followers = {f for group in rule.groups for f in group[1:]}
        return [
            f
            for f, size in enumerate(rule.sizes)
            if size > 1
            and f not in followers
            and (
                (f not in rule.special and completes_reduction(rule.reduced.get(f, "add"), eqn))
                or (split is not None and split.can_split(f, rule, eqn))
            )
        ]

    def _with_followers(self, axes: FactorAxes, rule: FactorRule) -> FactorAxes:
        led = {f: axes[g[0]] for g in rule.groups if g[0] in axes for f in g[1:]}
        return {**axes, **led} if led else axes

    def _is_possible(self, eqn: Eqn, rule: FactorRule, axes: FactorAxes) -> bool:
        for f, mine in axes.items():
            if is_even(rule.sizes[f], mine, self.sizes):
                continue
            if not worth_splitting(rule.sizes[f], mine, self.sizes):
                return False
            if not tolerates_padding(eqn, rule, f):
                return False
        return consistent_axes(axes, rule, self.sizes) == axes

    def _price(
        self, eqn: Eqn, rule: FactorRule | None, axes: FactorAxes, deferred: frozenset[Any]
    ) -> _EquationChoice | None:
        """Return the price and the placements of one split; None if the operation cannot run on its blocks."""
        key = (equation_key(eqn), tuple(sorted(axes.items())), deferred)
        if key not in self._priced:
            self._priced[key] = self._priced_once(eqn, rule, axes, deferred)
        return self._priced[key]

    def _priced_once(
        self, eqn: Eqn, rule: FactorRule | None, axes: FactorAxes, deferred: frozenset[Any]
    ) -> _EquationChoice | None:
        if rule is None:
            strategy, price = self.partitioner.replicate(eqn), 0.0
        else:
            strategy = self._strategy(eqn, rule, axes, deferred)
            sent = self._sent(eqn, rule, strategy) if axes else 0.0
            if sent is None:
                return None
            price = sent
        work = self.partitioner.computation_cost(eqn, rule, strategy)
        reads = tuple(p for a, p in zip(eqn.invars, strategy.ins) if type(a) is not Literal)
        return price + work, work, reads, tuple(strategy.outs)

    def _sent(self, eqn: Eqn, rule: FactorRule, strategy: Strategy) -> float | None:
        """Return the price of collectives that the operation itself needs; None if it cannot run on its blocks."""
        context = self.partitioner.context(eqn, rule, strategy.axes)
        if rule.groups and context.halos() is None:
            return None
        try:
            self.partitioner.local_params(eqn, rule, strategy, context.axes)
        except NotSplittable:
            return None
        slowdown = [self.prices.links[a].slowdown for mine in context.axes.values() for a in mine]
        price = context.bytes_sent(strategy.ins) * max(slowdown, default=1.0)
        for f, mine in strategy.axes.items():
            combine = rule.reduced.get(f, "add")
            spec = None if combine == "add" else COMPLETED_BY.get(combine)
            if spec is not None:
                n = math.prod(self.sizes[a] for a in mine)
                nbytes = sum(
                    collective_bytes(spec.name, self.partitioner.local_bytes(v.aval, p), n)
                    for v, p in zip(eqn.outvars, strategy.outs)
                )
                price += self.prices.collective(mine, nbytes)
        return price

    def _strategy(
        self, eqn: Eqn, rule: FactorRule, axes: FactorAxes, deferred: frozenset[Any]
    ) -> Strategy:
        passing = rule.linear_ins if rule.additive else rule.linear_ins[:1]
        ins = [
            Placement(
                dims_of_factors(factors, axes, rule, self.sizes),
                deferred if i in passing and isinstance(a, Var) else frozenset(),
            )
            for i, (a, factors) in enumerate(zip(eqn.invars, rule.ins))
        ]
        summed = frozenset(
            a for f, mine in axes.items() if makes_partial_sums(eqn, rule, f, axes) for a in mine
        )
        outs = [
            Placement(dims_of_factors(factors, axes, rule, self.sizes), summed | deferred)
            for factors in rule.outs
        ]
        return Strategy(axes, ins, outs)

    def _products(self, node: DecisionNode, held_axes: HeldAxes) -> list[Choice]:
        """Return the choices of products over the same dims, all split by the same axes along these dims."""
        splits = [
            self._splits_by_dims(eqn, shared, held_axes)
            for eqn, shared in zip(node.eqns, node.shared_factors)
        ]
        choices: list[Choice] = []
        for key, (_, uses) in splits[0].items():
            members = [split[key][0] for split in splits if key in split]
            if len(members) == len(splits):
                choices.append(_choice_of(members, node.count, uses))
        return choices

    def _splits_by_dims(
        self, eqn: Eqn, shared: Mapping[int, int], held_axes: HeldAxes
    ) -> dict[Hashable, tuple[_EquationChoice, tuple[tuple[Any, AxisUse], ...]]]:
        """Return the splits of a product by the axes of each dim that it shares with other products; `shared` numbers these dims."""
        rule = self.propagation.rule(eqn)
        factor_of: dict[Any, int] = {number: f for f, number in shared.items()}
        uses = {a: (factor_of.get(number), False) for a, (number, _) in held_axes.uses.items()}
        own = replace(held_axes, uses=uses)
        splits: dict[Hashable, tuple[_EquationChoice, tuple[tuple[Any, AxisUse], ...]]] = {}
        for axes, deferred in self._splits(eqn, rule, own, {}):
            priced = self._price(eqn, rule, axes, deferred)
            if priced is not None:
                numbered = {shared[f]: mine for f, mine in axes.items()}
                splits[tuple(sorted(numbered.items()))] = priced, self._uses(numbered, deferred)
        return splits


def _choice_of(
    members: Sequence[_EquationChoice], count: int, uses: tuple[tuple[Any, AxisUse], ...]
) -> Choice:
    """Return the choice of a node, joined from its equations' choices; each equation runs `count` times."""
    return Choice(
        sum(price for price, _, _, _ in members) * count,
        sum(work for _, work, _, _ in members) * count,
        tuple(p for _, _, reads, _ in members for p in reads),
        tuple(p for _, _, _, makes in members for p in makes),
        uses,
    )


def _axes_by_factor(picked: Iterable[tuple[Any, int | None]]) -> FactorAxes:
    """Return the axes of each factor, from pairs of an axis and the factor that it splits or None."""
    axes: FactorAxes = {}
    for a, f in picked:
        if f is not None:
            axes[f] = (*axes.get(f, ()), a)
    return axes


def _whole(var: Var) -> Placement:
    """Return the placement of a variable that is whole on every device."""
    return Placement(((),) * var.aval.ndim)


def _no_special(partitioner: Partitioner, eqn: Eqn) -> list[Any]:
    raise AssertionError(f"{eqn.primitive} is not computed here")


def _cheapest_of_equal(choices: Iterable[Choice]) -> list[Choice]:
    """Return the cheapest choice for each set of placements."""
    best: dict[Hashable, Choice] = {}
    for choice in choices:
        key = (choice.reads, choice.makes)
        known = best.get(key)
        if known is None or choice.price < known.price:
            best[key] = choice
    return list(best.values())


def partial_sets(
    nodes: Iterable[DecisionNode], choices: Mapping[DecisionNode, Sequence[Choice]]
) -> dict[Var, frozenset[frozenset[Any]]]:
    """Return for each variable the sets of axes over which some choice makes it a sum."""
    partial: dict[Var, set[frozenset[Any]]] = defaultdict(set)
    for node in nodes:
        for choice in choices[node]:
            for var, place in zip(node.makes, choice.makes):
                if place.partial:
                    partial[var].add(place.partial)
    return {var: frozenset(sets) for var, sets in partial.items()}
