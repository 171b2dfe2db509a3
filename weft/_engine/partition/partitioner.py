"""The partitioner of single equations: an equation of the global program becomes local equations that one device runs.

In:   equations in order, the values of their operands (`partition.values`), the target specs of their results.
Out:  values of their results, and a record of each collective that was added.
Laws: the assembled results of the local equations on all devices equal the results of the global equation.
How:  the cheapest strategy to split the factors of an equation is used; its cost has the moves of operands and results and the
      work itself. A contraction over a split dim leaves a partial sum; the reduction over devices is deferred until a reader
      needs the whole value, so linear equations share one reduction.
Next: `partition.spmd` partitions whole programs; `strategies` lists the ways to split, `partial_sums` decides how long a
      reduction is deferred, `regions` handles programs inside programs, `local_equations` binds the collectives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.core.primitive import (
    BarrierOp,
    CallbackOp,
    CollectiveOp,
    ConstraintOp,
    CustomOp,
    LayoutOp,
    LibraryOp,
    PartialTermsOp,
    ProductOp,
    RegionOp,
)
from weft._engine.core.trace import typeof
from weft._engine.ir.collective_spec import COLLECTIVES, COMPLETED_BY, collective_bytes
from weft._engine.ir.factors import FactorRule, OperandFactors
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.registry import registry
from weft._engine.ir.specs import NO_AXES, Spec, join_axis_parts
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import layout
from weft._engine.partition import local_equations
from weft._engine.partition.combine import combine_reductions
from weft._engine.partition.cost import DEFAULT, CollectiveRecord, CostModel, Why
from weft._engine.partition.padding import evenly_split, neutral_element
from weft._engine.partition.partial_sums import PartialSums, live_eqns
from weft._engine.partition.propagation.propagate import FactorAxes, Propagation, dims_of_factors
from weft._engine.partition.reshard import (
    Placement,
    ReshardStep,
    finer_axes,
    is_even,
    local_shape,
    plan,
    plan_cost,
)
from weft._engine.partition.rules.split_rule import SPLIT_RULES, split_rule_of
from weft._engine.partition.shard_check import PartitionedProgram
from weft._engine.partition.split_context import SplitContext
from weft._engine.partition.strategies import (
    Candidates,
    Strategy,
    StrategySet,
    completed_by,
    computes_nothing,
    makes_partial_sums,
    replicates_reduction,
)
from weft._engine.partition.values import (
    FormSchedule,
    LocalTrace,
    LocalValue,
    NotPartial,
    NotSplittable,
    Origin,
    PlacedEqn,
    read_reason,
    run_count,
)
from weft._engine.util.record import field, record

#: kinds of equations that contain programs, call Python or are already collectives; `partition.regions` computes them
SPECIAL = (RegionOp, CollectiveOp, CallbackOp, CustomOp)


@record(frozen=False)
class Partitioner:
    """The state of one partitioning; inner programs share all state except the trace and the environment."""

    target_specs: Propagation
    constraint_spec: Callable[..., Any]
    trace: LocalTrace
    #: computes equations of the classes in `SPECIAL`
    special: Callable[[Partitioner, Eqn], list[LocalValue]]
    records: list[CollectiveRecord | None] = field(default_factory=list)
    count: int = 1  # number of runs of this program
    env: dict[Var, LocalValue] = field(default_factory=dict)
    #: results that must end with their target specs
    fixed_results: set[Any] = field(default_factory=set)
    #: rows of neighbors
    fetched_rows: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)
    record_index: dict[Eqn, int] = field(default_factory=dict)  # local equation -> its record
    manual: frozenset[Any] = frozenset()  # manual axes of this program
    #: axes whose refinement would reduce communication, and the sizes of their major parts
    finer_axes: dict[Any, int] = field(default_factory=dict)
    repeatable: list[Eqn] = field(default_factory=list)  # sums kept by `repeated_latency`
    work: list[float] = field(default_factory=list)  # times of local computations, in bytes sent
    #: functions to call with the layout of a value
    layout_callbacks: list[tuple[Callable[..., Any], Spec]] = field(default_factory=list)
    placed_eqns: list[PlacedEqn] = field(default_factory=list)
    #: closed programs: this one and its inner ones
    programs: list[PartitionedProgram] = field(default_factory=list)
    #: strategies of this attempt, with the cheapest per form of the operands
    strategy_sets: dict[tuple[Any, ...], StrategySet] = field(default_factory=dict)
    #: strategies shared by all attempts at a program
    strategy_lists: dict[tuple[Any, ...], list[Strategy]] = field(default_factory=dict)
    depth: int = 0
    open_ended: bool = False  # True if this program is inside a while loop
    eqn: Eqn | None = None  # the current equation
    cost: CostModel = DEFAULT
    #: weight of the cost of moving results to target specs that were not requested
    target_weight: float = 1.0
    #: the times at which forms of values are created and dropped
    schedule: FormSchedule = field(default_factory=FormSchedule)
    partial_sums: Any = None  # deferred reductions, and the readers of values

    def __post_init__(self) -> None:
        self.partial_sums = PartialSums(self.target_specs, self.env)

    @property
    def sizes(self) -> Mapping[Any, int]:
        return self.target_specs.sizes

    # --- values ---

    def read(self, atom: Any) -> LocalValue:
        if type(atom) is Literal:
            val = atom.val if atom.aval.weak_type else np.asarray(atom.val, atom.aval.dtype)[()]
            return LocalValue(atom.aval, Placement(()), val)
        return self.env[atom]

    def target_placement(self, atom: Any) -> Placement:
        return Placement(self.target_specs.spec(atom))

    def result_placement(self, atom: Any, placement: Placement) -> Placement:
        """Return the placement to which a result computed as `placement` moves: its target spec, or `placement` if propagation found none."""
        target = self.target_placement(atom)
        known = target.axes or self.is_fixed(atom)
        if known or atom not in self.target_specs.boundary:
            return target if known else Placement(placement.dims)
        return Placement(evenly_split(atom.aval.shape, placement.dims, self.sizes))

    def is_fixed(self, atom: Any) -> bool:
        """Return whether the final layout of a result is prescribed."""
        return atom in self.target_specs.fixed or atom in self.fixed_results

    def cheapest_source(self, value: LocalValue, target: Placement) -> tuple[Placement, float]:
        """Return the form of `value` from which `target` is reached most cheaply, and the cost."""
        item = value.aval.dtype.itemsize
        costs = [
            (plan_cost(p, target, value.aval.shape, item, self.sizes, self.cost.latency), i, p)
            for i, p in enumerate(value.forms)
            if target.partial <= p.partial
        ]
        if not costs:
            raise NotPartial
        cost, _, source = min(costs)
        return source, cost * value.runs / max(self.count, 1) if value.runs else cost

    def materialize(self, value: LocalValue, target: Placement, cause: str, reason: str) -> Any:
        """Return the local form of `value` under `target`, created by collectives with the given `cause` if there is none yet."""
        if target in value.forms:
            return value.forms[target]
        source, _ = self.cheapest_source(value, target)
        local = value.forms[source]
        steps = plan(
            source,
            target,
            value.aval.shape,
            value.aval.dtype.itemsize,
            self.sizes,
            self.cost.latency,
        )
        if sum(step.nbytes > 0 for step, _ in steps) > 1 or any(
            step.kind == "all_gather" for step, _ in steps
        ):
            self.finer_axes.update(
                finer_axes(
                    source,
                    target,
                    value.aval.shape,
                    value.aval.dtype.itemsize,
                    tuple(self.sizes.items()),
                    self.cost.latency,
                )
            )
        for step, after in steps:
            if after in value.forms:
                local = value.forms[after]
                continue
            consumer = self.trace.source
            if COLLECTIVES[step.kind].reduces and value.origin is not None:
                self.trace.source, why = value.origin.source, value.origin.why
            else:
                why = Why(cause, reason, self.eqn)
            shape = local_shape(value.aval.shape, after.dims, self.sizes)
            selects = value.origin is not None and value.origin.selects
            begin, n = len(self.trace.eqns), math.prod(self.sizes[a] for a in step.axes)
            moved = value.forms[after] = local_equations.emit_step(step, local, n, shape, selects)
            last = next(
                (
                    eqn
                    for eqn in reversed(self.trace.eqns[begin:])
                    if isinstance(eqn.primitive, CollectiveOp)
                ),
                self.trace.eqns[-1],
            )
            self.record_collective(
                step,
                local,
                why,
                last,
                value.runs,
                before=source,
                after=target,
                argument=value.argument,
                value=None if self.manual else value.var,
            )
            local = moved
            self.trace.source = consumer
        return local

    def record_collective(
        self,
        step: ReshardStep,
        local: Any,
        why: Why,
        eqn: Eqn | None = None,
        runs: int = 0,
        **move: Any,
    ) -> None:
        """Record a collective on `local`: combinable ones by their equation `eqn`, those hoisted out of the loop with their `runs`."""
        if step.nbytes:
            aval = typeof(local)
            if eqn is not None and not runs:
                self.record_index[eqn] = len(self.records)
            self.records.append(
                CollectiveRecord(
                    step.kind,
                    step.axes,
                    step.nbytes,
                    aval.shape,
                    aval.dtype,
                    self.trace.source,
                    why.text,
                    runs or self.count,
                    cause=why.cause,
                    eqn=why.eqn,
                    open_ended=self.open_ended and not runs,
                    **move,
                )
            )

    # --- programs ---

    def run(self, jaxpr: Jaxpr, args: Sequence[LocalValue]) -> list[LocalValue]:
        """Compute all equations of `jaxpr` on `args`; return its results, in any placement."""
        for var, const in zip(jaxpr.constvars, jaxpr.consts):
            self.env[var] = LocalValue(var.aval, Placement(((),) * var.aval.ndim), const)
        self.set_values(jaxpr.invars, args)
        eqns = live_eqns(jaxpr)
        self.partial_sums.note(jaxpr, eqns)
        for eqn in eqns:
            self.trace.source, self.eqn = eqn.source, eqn
            index = len(self.placed_eqns)
            with np.errstate(all="ignore"):
                self.compute(eqn)
                for var, spec in self.schedule.dropped.get(eqn, ()):
                    self.env[var].drop(Placement(spec))
            placements = tuple(self.env[v].placement for v in eqn.outvars)
            self.placed_eqns.insert(
                index, PlacedEqn(eqn, placements, self.count, self.depth, self.manual)
            )
        return [self.read(a) for a in jaxpr.outvars]

    def close(
        self, args: Sequence[Any], results: Sequence[Any], jaxpr: Jaxpr, places: Sequence[Placement]
    ) -> Jaxpr:
        """Return the local program of `jaxpr`, its reductions combined. Its `results` are placed as `places`."""
        self.trace.eqns = combine_reductions(self.trace.eqns, self.records, self.record_index)
        local = self.trace.to_jaxpr(args, results)
        self.programs.append(
            PartitionedProgram(jaxpr, local, tuple(places), self.env, self.partial_sums.makers)
        )
        return local

    def set_values(self, variables: Sequence[Var], values: Sequence[LocalValue]) -> None:
        """Set the values of `variables`."""
        for var, value in zip(variables, values):
            self.env[var] = value
            if value.var is None:
                value.var = var

    def local_aval(self, aval: ShapedArray, place: Placement) -> ShapedArray:
        return aval.update(shape=local_shape(aval.shape, place.dims, self.sizes), sharding=None)

    def compute(self, eqn: Eqn) -> None:
        """Add the local equations of one global equation."""
        primitive, is_split = eqn.primitive, False
        if isinstance(primitive, SPECIAL):
            outs = self.special(self, eqn)
        elif isinstance(primitive, ConstraintOp):
            outs = [self.constrain(eqn)]
        elif isinstance(primitive, PartialTermsOp):
            outs = [self.place_terms(eqn)]
        elif isinstance(primitive, BarrierOp):
            outs = self.hold(eqn)
        else:
            outs, is_split = self.compute_split(eqn), True
        self.set_values(eqn.outvars, outs)
        early = self.schedule.early
        for var, value in zip(eqn.outvars, outs if is_split else ()):
            place = Placement(early[var]) if var in early else value.placement
            local = self.materialize(
                value, place, "operand", f"later operations take it as {place}"
            )
            if place.partial != value.placement.partial:  # the reduced form of a sum comes first
                value.forms = {place: local, **value.forms}

    def constrain(self, eqn: Eqn) -> LocalValue:
        """Return the operand in the layout of the constraint; dims that it leaves open follow propagation."""
        value, propagated = self.read(eqn.invars[0]), self.target_specs.spec(eqn.outvars[0])
        constraint = self.constraint_spec(eqn)
        terms = self.terms(eqn.outvars[0])
        used_axes = {axis for axes in constraint for axis in axes or ()} | terms
        target = Placement(
            tuple(
                tuple(x for x in p if x not in used_axes) if a is None else a
                for a, p in zip(constraint, propagated)
            ),
            terms,
        )
        if target.partial:
            self.as_terms(value, target.partial)
        local = self.materialize(value, target, "constraint", f"the constraint asks for {target}")
        return LocalValue(value.aval, target, local, value.origin if target.partial else None)

    # --- terms of sums, if types require them ---

    def terms(self, atom: Any) -> frozenset[Any]:
        """Return the unreduced axes of the type of `atom`."""
        return (
            frozenset() if type(atom) is Literal else self.target_specs.terms.get(atom, frozenset())
        )

    def as_terms(self, value: LocalValue, axes: frozenset[Any]) -> Placement:
        """Return a form of `value` that is a partial sum over `axes`: an existing one, or each device's block among zeros, or the whole
        value on the first device along an axis."""
        for place in value.forms:
            if place.partial >= axes:
                target = Placement(place.dims, axes)
                self.materialize(value, target, "operand", f"a type asks for {target}")
                return target
        summed = [p for p in value.forms if p.partial <= axes]
        whole = Placement(value.placement.dims)
        place = max(summed, key=lambda p: len(p.partial), default=whole)
        missing, shape = axes - place.partial, value.aval.shape
        dims = tuple(self.cut_by(n, mine, missing) for n, mine in zip(shape, place.dims))
        place = Placement(dims, place.partial)
        local = self.materialize(
            value,
            place,
            "operand",
            f"a type asks for a sum over {', '.join(sorted(map(str, axes)))}",
        )
        for d, mine in enumerate(dims):
            if missing & set(mine):
                local = local_equations.own_block(local, d, mine, shape[d])
        extra = tuple(a for a in self.sizes if a in missing - place.axes)
        target = Placement(tuple(() if missing & set(mine) else mine for mine in dims), axes)
        value.forms[target] = local_equations.as_partial_sum(local, extra) if extra else local
        return target

    def cut_by(self, size: int, axes: tuple[Any, ...], missing: frozenset[Any]) -> tuple[Any, ...]:
        """Return the axes of a dim along which each device may have its block as a term of a sum over `missing` axes."""
        if not missing & set(axes) or (missing >= set(axes) and is_even(size, axes, self.sizes)):
            return axes
        return tuple(a for a in axes if a not in missing)

    def place_terms(self, eqn: Eqn) -> LocalValue:
        """Return the terms of a value, each on its devices, as a first dim split by its axes."""
        value, aval = self.read(eqn.invars[0]), eqn.outvars[0].aval
        axes, *_ = self.target_specs.spec(eqn.outvars[0])
        # other shardings may refine these axes differently
        if math.prod(self.sizes[a] for a in axes) != aval.shape[0]:
            place = self.whole_form(value, eqn.invars[0])
            local = self.materialize(
                value, place, "operand", f"{eqn.primitive} takes its operand as {place}"
            )
            return LocalValue(
                aval, Placement(((), *place.dims)), local_equations.with_zeros(local, aval.shape[0])
            )
        place = self.as_terms(value, frozenset(axes))
        local, shape = value.forms[place], typeof(value.forms[place]).shape
        first = layout.broadcast_in_dim(local, (1, *shape), tuple(range(1, len(shape) + 1)))
        return LocalValue(aval, Placement((tuple(axes), *place.dims)), first)

    def compute_terms(
        self, eqn: Eqn, rule: FactorRule, values: Sequence[LocalValue], terms: frozenset[Any]
    ) -> list[LocalValue]:
        """Return the results of an equation as partial sums over the axes `terms`: of its own sum, or of the operands' terms."""
        passing = [i for i in rule.linear_ins if rule.additive or self.terms(eqn.invars[i])]
        passing = passing or [i for i, a in enumerate(eqn.invars) if self.terms(a) == terms]
        for i in passing:
            self.as_terms(values[i], terms)
        deferred = terms if passing else NO_AXES
        options = [
            self.strategy(eqn, rule, values, axes, deferred, passing)
            for axes in Candidates(self, eqn, rule, values)
        ]
        options.append(self.strategy(eqn, rule, values, {}, deferred, passing))
        options = [s for s in options if s.outs[0].partial >= terms] or options
        return self.emit(eqn, rule, values, self.choose_cheapest(eqn, rule, values, options))

    def hold(self, eqn: Eqn) -> list[LocalValue]:
        """Return the operands after a barrier. Each keeps its placement, unless the barrier has `alike`; sums are reduced first.

        Other forms of an operand pass the barrier too if they need no more memory, so that recomputed values are not moved again."""
        values = [self.read(a) for a in eqn.invars]
        alike = eqn.params.get("alike")
        places = [
            self.target_placement(out)
            if alike
            else v.placement
            if not v.placement.partial
            else self.whole_form(v, out)
            for v, out in zip(values, eqn.outvars)
        ]
        forms = [
            {p: self.materialize(v, p, "operand", read_reason(eqn, i, p))}
            for i, (v, p) in enumerate(zip(values, places))
        ]
        for form, v, place in zip(forms, values, places):
            most = self.local_bytes(v.aval, place)
            form |= {
                p: x
                for p, x in v.forms.items()
                if not (alike or p.partial) and self.local_bytes(v.aval, p) <= most
            }
        flat = iter(eqn.primitive.bind(*[x for form in forms for x in form.values()], **eqn.params))
        outs: list[LocalValue] = []
        for form, v in zip(forms, values):
            (place, local), *others = zip(form, flat)
            outs.append(LocalValue(v.aval, place, local))
            outs[-1].forms |= dict(others)
        return outs

    def whole_form(self, value: LocalValue, var: Atom) -> Placement:
        """Return a reduced form of a sum over devices; otherwise the cheaper of the target of `var` and the sum's own dims."""
        for place in value.forms:
            if not place.partial:
                return place
        options = self.target_placement(var), Placement(value.placement.dims)
        return min(options, key=lambda p: self.cheapest_source(value, p)[1])

    # --- one equation ---

    def compute_split(self, eqn: Eqn) -> list[LocalValue]:
        """Return the results of an equation by the cheapest strategy."""
        if computes_nothing(eqn):
            return [self.zeros(v) for v in eqn.outvars]
        values = [self.read(a) for a in eqn.invars]
        rule, terms = (
            self.target_specs.rule(eqn),
            self.terms(eqn.outvars[0]) if self.target_specs.terms and eqn.outvars else None,
        )
        try:
            if terms and rule is not None:
                return self.compute_terms(eqn, rule, values, terms)
            strategy = self.choose(eqn, rule, values)
            return self.emit(eqn, rule, values, strategy)
        except NotSplittable:
            return self.emit(eqn, None, values, self.replicate(eqn))

    def zeros(self, var: Var) -> LocalValue:
        """Return zeros for a result, placed as its target spec; no operand is moved."""
        place = Placement(self.target_specs.spec(var), self.terms(var))
        return LocalValue(
            var.aval,
            place,
            layout.full(local_shape(var.aval.shape, place.dims, self.sizes), 0, var.aval.dtype),
        )

    def replicate(self, eqn: Eqn) -> Strategy:
        """Return the strategy of computing the equation on whole operands on all devices."""
        ins = [Placement(((),) * a.aval.ndim) for a in eqn.invars]
        outs = [Placement(((),) * v.aval.ndim) for v in eqn.outvars]
        return Strategy({}, ins, outs)

    def choose(self, eqn: Eqn, rule: FactorRule | None, values: Sequence[LocalValue]) -> Strategy:
        """Return the cheapest strategy to split the factors of an equation."""
        if rule is None:
            return self.replicate(eqn)
        known = self.strategies(eqn, rule, values)
        if len(known.strategies) == 1:
            return known.strategies[0]
        if known.cheapest_by_forms is None:
            return self.choose_cheapest(eqn, rule, values, known.strategies)
        key = (
            *[(v.runs, *v.forms) for v in values],
            *[(self.is_fixed(v), v in self.target_specs.boundary) for v in eqn.outvars],
        )
        strategy = known.cheapest_by_forms.get(key)
        if strategy is None:
            strategy = known.cheapest_by_forms[key] = self.choose_cheapest(
                eqn, rule, values, known.strategies
            )
        return strategy

    def choose_cheapest(
        self,
        eqn: Eqn,
        rule: FactorRule,
        values: Sequence[LocalValue],
        strategies: Sequence[Strategy],
    ) -> Strategy:
        """Return the strategy whose computation and communication cost least."""
        best, least_cost = strategies[0], math.inf
        for strategy in strategies:
            repeated = self.cost.repeated_latency > 0 and replicates_reduction(
                rule, values, strategy.axes
            )
            cost = self.computation_cost(eqn, rule, strategy, repeated)
            if repeated:
                self.repeatable.append(eqn)
                cost += self.cost.repeated_latency * sum(
                    self.cheapest_source(v, p)[1] > 0 for v, p in zip(values, strategy.ins)
                )
            if cost < least_cost:  # otherwise skip the costs of reshards, which are slow to compute
                cost += self.communication_cost(eqn, rule, values, strategy)
                if cost < least_cost:
                    best, least_cost = strategy, cost
        return best

    def strategies(self, eqn: Eqn, rule: FactorRule, values: Sequence[LocalValue]) -> StrategySet:
        """Return the strategies for an equation. Equal equations on values with equal layouts, as in equal layers, share them.

        They are not shared if the possible splits of the op depend on more than types and parameters.
        """
        deferred = self.partial_sums.defer(eqn, rule, values)
        make = lambda: [
            self.strategy(eqn, rule, values, axes, deferred)
            for axes in Candidates(self, eqn, rule, values)
        ]
        if rule.groups or split_rule_of(eqn.primitive) is not None:
            return StrategySet(make())
        key = (
            id(rule),
            deferred,
            *[self.target_specs.spec(v) for v in eqn.outvars],
            *[(v.placement.dims, bool(v.partial_axes)) for v in values],
        )
        strategies = self.strategy_sets.get(key)
        if strategies is None:
            known = self.strategy_lists.get(key)
            if known is None:
                known = self.strategy_lists[key] = make()
            strategies = self.strategy_sets[key] = StrategySet(known, {})
        return strategies

    def context(self, eqn: Eqn, rule: FactorRule, axes: FactorAxes) -> SplitContext:
        """Return the context of a split rule for factors that are split by `axes`."""
        special = {
            f: mine
            for f, mine in axes.items()
            if f in rule.special or rule.reduced.get(f, "add") not in COMPLETED_BY
        }
        return SplitContext(self, eqn, rule, special)

    def strategy(
        self,
        eqn: Eqn,
        rule: FactorRule,
        values: Sequence[LocalValue],
        axes: FactorAxes,
        deferred: frozenset[Any],
        passing: Collection[int] | None = None,
    ) -> Strategy:
        """Return the strategy with factors split by `axes`. Partial sums over `deferred` axes pass through, of the operands `passing` if
        these are given."""
        used = frozenset(a for mine in axes.values() for a in mine)
        deferred = frozenset() if deferred & used else deferred
        ins = [
            Placement(
                dims_of_factors(fs, axes, rule, self.sizes),
                deferred if (v.partial_axes if passing is None else i in passing) else frozenset(),
            )
            for i, (v, fs) in enumerate(zip(values, rule.ins))
        ]
        summed = frozenset(
            a for f, mine in axes.items() if makes_partial_sums(eqn, rule, f, axes) for a in mine
        )
        outs = [
            Placement(dims_of_factors(fs, axes, rule, self.sizes), summed | deferred)
            for fs in rule.outs
        ]
        return Strategy(axes, ins, outs)

    def communication_cost(
        self, eqn: Eqn, rule: FactorRule, values: Sequence[LocalValue], strategy: Strategy
    ) -> float:
        """Return the bytes sent to move operands to their placements and results to their targets. A value read twice is sent once."""
        axes, ins, outs = strategy.axes, strategy.ins, strategy.outs
        moves = {(id(v), p): v for v, p in zip(values, ins)}
        cost = sum(self.cheapest_source(v, p)[1] for (_, p), v in moves.items())
        completed = [
            (spec, a)
            for f, mine in axes.items()
            if (spec := completed_by(rule, f)) is not None
            for a in mine
        ]
        cost += self.context(eqn, rule, axes).bytes_sent(ins)
        for var, place in zip(eqn.outvars, outs):
            target = self.result_placement(var, place)
            weight = 1 if self.is_fixed(var) else self.target_weight
            cost += weight * plan_cost(
                place,
                target,
                var.aval.shape,
                var.aval.dtype.itemsize,
                self.sizes,
                self.cost.latency,
            )
            if completed:
                n = math.prod(self.sizes[a] for _, a in completed)
                cost += self.cost.latency + collective_bytes(
                    completed[0][0].name, self.local_bytes(var.aval, place), n
                )
        return cost

    def local_bytes(self, aval: ShapedArray, place: Placement) -> int:
        return math.prod(local_shape(aval.shape, place.dims, self.sizes)) * aval.dtype.itemsize

    def computation_cost(
        self, eqn: Eqn, rule: FactorRule | None, strategy: Strategy, repeated: bool = False
    ) -> float:
        """Return the time of the local computation, in the unit of bytes sent."""
        placed = [*zip(eqn.invars, strategy.ins), *zip(eqn.outvars, strategy.outs)]
        cost = (
            sum([self.local_bytes(a.aval, p) for a, p in placed]) / self.cost.local_bytes_per_byte
        )
        if rule is not None and isinstance(eqn.primitive, (ProductOp, LibraryOp)):
            # followers add no iterations to their leaders
            followers = {f for _, *rest in rule.groups for f in rest}
            work = math.prod(n for f, n in enumerate(rule.sizes) if f not in followers)
            splits = math.prod(
                self.sizes[a]
                for f, mine in strategy.axes.items()
                if f not in followers
                for a in mine
            )
            rate = self.cost.repeated_flops_per_byte if repeated else self.cost.flops_per_byte
            cost += 2 * work / splits / rate
        return cost

    def emit(
        self, eqn: Eqn, rule: FactorRule | None, values: Sequence[LocalValue], strategy: Strategy
    ) -> list[LocalValue]:
        """Bind the local equation; return the results as values."""
        params, context = eqn.params, None
        if strategy.axes and rule is not None:
            context = self.context(eqn, rule, strategy.axes)
            if strategy.params is None:
                strategy.params = self.local_params(eqn, rule, strategy, context.axes)
            params = strategy.params
        self.work.append(self.count * self.computation_cost(eqn, rule, strategy))
        locals_ = [
            v.forms[p]
            if p in v.forms
            else self.materialize(v, p, "operand", read_reason(eqn, i, p))
            for i, (v, p) in enumerate(zip(values, strategy.ins))
        ]
        if strategy.axes and rule is not None and rule.reduced:
            locals_ = [
                self.mask_padding(eqn, rule, strategy.axes, i, x) for i, x in enumerate(locals_)
            ]
        if context is not None and context.axes:
            outs = SPLIT_RULES[eqn.primitive].local(context, locals_, **params)
        else:
            outs = eqn.primitive.bind(*locals_, **params)
        outs = list(outs) if eqn.primitive.multiple_results else [outs]
        if context is not None and rule is not None:
            outs = self.complete(eqn, rule, strategy, context.axes, outs)
        origin, often = self.origin(eqn, rule, strategy, values), run_count(eqn, values)
        return [
            LocalValue(v.aval, p, out, origin, runs=often)
            for v, p, out in zip(eqn.outvars, strategy.outs, outs)
        ]

    def mask_padding(self, eqn: Eqn, rule: FactorRule, axes: FactorAxes, i: int, x: Any) -> Any:
        """Return local operand `i` with the neutral element of the reduction in the padding of blocks of reduced dims."""
        for d, factors in enumerate(rule.ins[i]):
            for f in factors:
                if (
                    f in axes
                    and f in rule.reduced
                    and f not in rule.special
                    and not is_even(rule.sizes[f], axes[f], self.sizes)
                ):
                    fill = neutral_element(eqn, eqn.invars[i].aval.dtype)
                    x = local_equations.mask_padding(x, d, axes[f], rule.sizes[f], fill)
        return x

    def origin(
        self, eqn: Eqn, rule: FactorRule | None, strategy: Strategy, values: Sequence[LocalValue]
    ) -> Origin | None:
        """Return the origin of the results if they are partial sums; otherwise None."""
        axes = sorted(
            {
                str(a)
                for f, mine in strategy.axes.items()
                if rule is not None and makes_partial_sums(eqn, rule, f, strategy.axes)
                for a in mine
            }
        )
        if axes:
            split = split_rule_of(eqn.primitive)
            return Origin(
                Why(
                    "sum",
                    f"{eqn.primitive} sums over a dim that is split over {', '.join(join_axis_parts(axes))}",
                    eqn,
                ),
                eqn.source,
                split is not None and split.selects and not any(v.partial_axes for v in values),
            )
        origin = next((v.origin for v in values if v.partial_axes), None)
        return (
            Origin(origin.why, origin.source)
            if origin is not None and not isinstance(eqn.primitive, LayoutOp)
            else origin
        )

    def complete(
        self,
        eqn: Eqn,
        rule: FactorRule,
        strategy: Strategy,
        special: FactorAxes,
        outs: Sequence[Any],
    ) -> list[Any]:
        """Complete reductions other than sums across the axes of reduced factors, unless the split rule of the op did."""
        for f, mine in sorted(strategy.axes.items()):
            spec = completed_by(rule, f)
            if spec is not None and f not in special:
                why = Why(
                    "reduction",
                    f"{eqn.primitive} reduces over a dim that is split over {', '.join(map(str, join_axis_parts(mine)))}",
                    eqn,
                )
                n, parts = math.prod(self.sizes[a] for a in mine), outs
                outs = []
                for part in parts:
                    outs.append(registry[spec.name].bind(part, axes=mine, axis_index_groups=None))
                    step = ReshardStep(
                        spec.counted_as,
                        mine,
                        nbytes=collective_bytes(spec.name, typeof(part).nbytes, n),
                    )
                    self.record_collective(step, part, why, self.trace.eqns[-1])
        return list(outs)

    def local_params(
        self, eqn: Eqn, rule: FactorRule, strategy: Strategy, special: FactorAxes
    ) -> dict[str, Any]:
        """Return the parameters for local shapes; raise `NotSplittable` if the op cannot run on them.

        Dims whose factors have a split rule keep their global sizes here, because the split rule handles them.
        """
        ordinary = {f: mine for f, mine in strategy.axes.items() if f not in special}

        def shrink(atom: Atom, factors: OperandFactors) -> ShapedArray:
            dims = dims_of_factors(factors, ordinary, rule, self.sizes)
            shape = local_shape(atom.aval.shape, dims, self.sizes)
            return atom.aval.update(shape=shape, sharding=None)

        ins = [shrink(a, fs) for a, fs in zip(eqn.invars, rule.ins)]
        outs = [shrink(v, fs) for v, fs in zip(eqn.outvars, rule.outs)]
        hook = eqn.primitive.localize
        params = eqn.params if hook is None else hook(eqn.params, ins, outs)
        try:
            got = eqn.primitive.abstract(ins, params)
        except (ValueError, TypeError) as error:
            raise NotSplittable from error
        if any(g.shape != o.shape or g.dtype != o.dtype for g, o in zip(got, outs)):
            raise NotSplittable
        return params
