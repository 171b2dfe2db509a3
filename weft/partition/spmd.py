"""SPMD: from a global program and a wish for the layout of every variable to the program that one device runs.

In:   a global Jaxpr, the result of `propagate`, the placements of its inputs.
Out:  a Jaxpr on local shapes in which every move between devices is an explicit collective, and a record of each.
Laws: running the result on all devices and putting the shards together gives what the global program gives; only the
      equations that this file adds communicate.
How:  equations are taken in order and bound on local values under a staging trace. For each, several ways to split its
      factors are priced (moving the operands there, moving the results where they are wished, the work itself) and the
      cheapest is taken. A contraction over a split dim leaves a partial sum; the sum over devices waits until a
      consumer needs the value whole, so linear equations share one reduction.
Next: `choices` names the ways to split, `pending` tells how far a sum may wait, `regions` are programs inside programs,
      `emit` binds the collectives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import weft.ops.localize  # noqa: F401  (fills the slot `localize`)
from weft.core.stage import StageTrace, StageTracer
from weft.core.trace import extend_axis_env, set_trace
from weft.ir.collective_spec import COMPLETED_BY, CollectiveSpec, collective_bytes
from weft.ir.factors import FactorRule
from weft.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft.ir.registry import registry
from weft.ir.specs import Spec
from weft.ir.types import ShapedArray
from weft.partition import emit
from weft.partition.choices import Candidates
from weft.partition.combine import combined
from weft.partition.cost import (
    FLOPS_PER_BYTE,
    LATENCY,
    LOCAL_BYTES_PER_BYTE,
    REPEATED_FLOPS_PER_BYTE,
    CollectiveRecord,
    Why,
)
from weft.partition.pending import Pending, variables
from weft.partition.propagate import FactorAxes, Propagation, dims_of_factors
from weft.partition.reshard import Placement, Step, is_even, local_shape, plan, plan_cost
from weft.partition.uneven import even_dims, neutral_element
from weft.util.record import field, record


class LocalTrace(StageTrace):
    """Stages local equations; each is attributed to the line of the global equation it comes from."""
    __slots__ = ("source",)

    def __init__(self, parent: Any, name: str = ""):
        super().__init__(parent, name)
        self.source: Any = None

    def process(self, primitive: Any, args: Sequence, params: dict) -> Any:
        out = super().process(primitive, args, params)
        self.eqns[-1].source = self.source
        return out


@record
class Origin:
    """Where a partial sum comes from: the reason, and the user's line."""
    why: Why
    source: Any


@record
class Laid:
    """How the results of an equation of the global program lie: inside a program that runs `count` times, at `depth` in
    programs within programs, which deals with the axes `manual` itself (then types are those of one device)."""
    eqn: Eqn
    places: tuple[Placement, ...]
    count: int
    depth: int
    manual: frozenset


class Value:
    """A global value inside the local program: its type and the local forms it has so far, by placement."""
    __slots__ = ("argument", "aval", "origin", "views")

    def __init__(self, aval: ShapedArray, placement: Placement, local: Any, origin: Origin | None = None, argument: int | None = None):
        self.aval = aval
        self.argument = argument          # its number among the inputs of the program, if it is one
        self.views: dict[Placement, Any] = {placement: local}
        self.origin = origin              # of its being a partial sum

    @property
    def placement(self) -> Placement:
        """How it was made."""
        return next(iter(self.views))

    @property
    def pending(self) -> frozenset:
        """The axes over which it must be summed before anybody can read it; none if a summed form exists."""
        return frozenset() if any(not p.partial for p in self.views) else self.placement.partial


@record(frozen=False)
class Choice:
    """One way to compute an equation, and those equal to it: axes per factor, placements of operands and results."""
    axes: FactorAxes
    ins: list[Placement]
    outs: list[Placement]
    params: dict | None = None            # of the local equation, once they are known


@record(frozen=False)
class Ways:
    """The ways to compute an equation, and which is the cheapest, by the forms that its operands have; None where they are its own."""
    choices: list[Choice]
    best: dict[tuple, Choice] | None = None


@record(frozen=False)
class Partitioner:
    """The state of one partitioning; programs inside programs share everything but the trace."""
    wishes: Propagation
    constraint_spec: Callable
    trace: LocalTrace
    records: list[CollectiveRecord] = field(default_factory=list)
    count: int = 1                        # how often the program at hand runs
    env: dict[Var, Value] = field(default_factory=dict)
    settled: set = field(default_factory=set)      # results that must end as they are wished
    edges: dict[tuple, tuple] = field(default_factory=dict)     # rows of neighbours that were fetched
    places: dict[Eqn, int] = field(default_factory=dict)        # the record of a local equation
    manual: frozenset = frozenset()       # axes that the program at hand deals with itself
    looks: list[tuple[Callable, Spec]] = field(default_factory=list)     # who asks how which value lies
    laid: list[Laid] = field(default_factory=list)
    known: dict[tuple, Ways] = field(default_factory=dict)      # the ways to compute equations, by what they follow from
    depth: int = 0
    open_ended: bool = False              # whether the program at hand is inside of a while loop
    eqn: Eqn | None = None                # that is being computed
    pending: Any = None                   # sums that wait, and who reads what

    def __post_init__(self) -> None:
        self.pending = Pending(self.wishes, self.env)

    @property
    def sizes(self) -> Mapping[Any, int]:
        return self.wishes.sizes

    # --- values ---

    def read(self, atom: Any) -> Value:
        if type(atom) is Literal:
            val = atom.val if atom.aval.weak_type else np.asarray(atom.val, atom.aval.dtype)[()]
            return Value(atom.aval, Placement(()), val)
        return self.env[atom]

    def wish(self, atom: Any) -> Placement:
        return Placement(self.wishes.spec(atom))

    def target(self, atom: Any, made: Placement) -> Placement:
        """Where a result made as `made` should go: its wish, or where it lies if propagation knows nothing about it."""
        wish = self.wish(atom)
        known = wish.axes or self.is_said(atom)
        if known or atom not in self.wishes.edges:
            return wish if known else Placement(made.dims)
        return Placement(even_dims(atom.aval.shape, made.dims, self.sizes))

    def is_said(self, atom: Any) -> bool:
        """Whether somebody said how a result lies in the end."""
        return atom in self.wishes.given or atom in self.settled

    def best(self, value: Value, target: Placement) -> tuple[Placement, float]:
        """The form of `value` from which `target` is reached most cheaply, and the price."""
        item = value.aval.dtype.itemsize
        priced = [(plan_cost(p, target, value.aval.shape, item, self.sizes), i, p) for i, p in enumerate(value.views)
                  if target.partial <= p.partial]
        if not priced:
            raise NotPending
        cost, _, source = min(priced)
        return source, cost

    def view(self, value: Value, target: Placement, cause: str, reason: str) -> Any:
        """The local form of `value` under `target`, made by collectives if there is none yet; they are there for `cause`."""
        if target in value.views:
            return value.views[target]
        source, _ = self.best(value, target)
        local = value.views[source]
        for step, after in plan(source, target, value.aval.shape, value.aval.dtype.itemsize, self.sizes):
            if after in value.views:
                local = value.views[after]
                continue
            consumer = self.trace.source
            if step.kind in ("psum", "reduce_scatter") and value.origin is not None:
                self.trace.source, why = value.origin.source, value.origin.why
            else:
                why = Why(cause, reason, self.eqn)
            shape = local_shape(value.aval.shape, after.dims, self.sizes)
            moved = value.views[after] = emit.step(step, local, math.prod(self.sizes[a] for a in step.axes), shape)
            self.record(step, local, why, self.trace.eqns[-1], before=source, after=target, argument=value.argument)
            local = moved
            self.trace.source = consumer
        return local

    def record(self, step: Step, local: Any, why: Why, eqn: Eqn | None = None, **move: Any) -> None:
        """Note a collective on `local`; one that may be combined with others is the local equation `eqn`."""
        if step.kind != "own_slice" and step.nbytes:
            aval = emit.aval_of(local)
            if eqn is not None:
                self.places[eqn] = len(self.records)
            self.records.append(CollectiveRecord(step.kind, step.axes, step.nbytes, aval.shape, aval.dtype,
                                                 self.trace.source, why.text, self.count, cause=why.cause, eqn=why.eqn,
                                                 open_ended=self.open_ended, **move))

    # --- programs ---

    def run(self, jaxpr: Jaxpr, args: Sequence[Value]) -> list[Value]:
        """Compute all equations of `jaxpr` on `args`; its results as they come."""
        for var, const in zip(jaxpr.constvars, jaxpr.consts):
            self.env[var] = Value(var.aval, Placement(((),) * var.aval.ndim), const)
        self.env.update(zip(jaxpr.invars, args))
        eqns = _live(jaxpr)
        self.pending.note(jaxpr, eqns)
        for eqn in eqns:
            self.trace.source, self.eqn = eqn.source, eqn
            place = len(self.laid)
            with np.errstate(all="ignore"):
                self.compute(eqn)
            places = tuple(self.env[v].placement for v in eqn.outvars)
            self.laid.insert(place, Laid(eqn, places, self.count, self.depth, self.manual))
        return [self.read(a) for a in jaxpr.outvars]

    def close(self, args: Sequence, results: Sequence) -> Jaxpr:
        """The local program, its reductions combined."""
        self.trace.eqns = combined(self.trace.eqns, self.records, self.places)
        return self.trace.to_jaxpr(args, results)

    def local_aval(self, aval: ShapedArray, place: Placement) -> ShapedArray:
        return aval.update(shape=local_shape(aval.shape, place.dims, self.sizes), sharding=None)

    def compute(self, eqn: Eqn) -> None:
        """Add the local equations of one global equation."""
        kind = eqn.primitive.kind
        if kind in ("region", "collective", "callback"):
            from weft.partition import regions  # which few programs hold
            outs = getattr(regions, kind)(self, eqn)
        elif kind == "constraint":
            outs = [self.constrain(eqn)]
        else:
            outs = self.plain(eqn)
        self.env.update(zip(eqn.outvars, outs))

    def constrain(self, eqn: Eqn) -> Value:
        """The operand, laid out as the constraint says; dims it leaves open follow propagation."""
        value, wish = self.read(eqn.invars[0]), self.wishes.spec(eqn.outvars[0])
        asked = self.constraint_spec(eqn)
        target = Placement(tuple(w if a is None else a for a, w in zip(asked, wish)))
        return Value(value.aval, target, self.view(value, target, "constraint", f"the constraint asks for {target}"))

    # --- one equation ---

    def plain(self, eqn: Eqn) -> list[Value]:
        values = [self.read(a) for a in eqn.invars]
        rule = self.wishes.rule(eqn)
        choice = self.choose(eqn, rule, values)
        try:
            return self.emit(eqn, rule, values, choice)
        except _NotLocal:
            return self.emit(eqn, None, values, self.whole(eqn))

    def whole(self, eqn: Eqn) -> Choice:
        """Compute the equation on whole operands, alike on all devices."""
        unsplit = lambda atoms: [Placement(((),) * a.aval.ndim) for a in atoms]
        return Choice({}, unsplit(eqn.invars), unsplit(eqn.outvars))

    def choose(self, eqn: Eqn, rule: FactorRule | None, values: Sequence[Value]) -> Choice:
        """The cheapest way to split the factors of an equation."""
        if rule is None:
            return self.whole(eqn)
        ways = self.choices(eqn, rule, values)
        if len(ways.choices) == 1:
            return ways.choices[0]
        if ways.best is None:
            return self.cheapest(eqn, rule, values, ways.choices)
        key = (*[tuple(v.views) for v in values], *[(self.is_said(v), v in self.wishes.edges) for v in eqn.outvars])
        found = ways.best.get(key)
        if found is None:
            found = ways.best[key] = self.cheapest(eqn, rule, values, ways.choices)
        return found

    def cheapest(self, eqn: Eqn, rule: FactorRule, values: Sequence[Value], choices: Sequence[Choice]) -> Choice:
        """The one of `choices` whose work and moves cost least."""
        best, least = choices[0], math.inf
        for choice in choices:
            work = self.work(eqn, rule, choice.axes, choice.ins, choice.outs, self.gives_up(rule, values, choice.axes))
            if work < least:                 # else no way of moving, which is what takes long to price, would make up for it
                price = work + self.moves(eqn, rule, values, choice)
                if price < least:
                    best, least = choice, price
        return best

    def choices(self, eqn: Eqn, rule: FactorRule, values: Sequence[Value]) -> Ways:
        """The ways to split the factors of an equation; equal equations on values that lie alike, as in equal layers, have the same.

        Not so where more than types and parameters tell what the operation can do split.
        """
        passing = self.pending.passing(eqn, rule, values)
        make = lambda: [self.placements(eqn, rule, values, axes, passing) for axes in Candidates(self, eqn, rule, values)]
        if rule.groups or eqn.primitive.has("split"):
            return Ways(make())
        key = (id(rule), passing, *[self.wishes.spec(v) for v in eqn.outvars], *[(v.placement.dims, bool(v.pending)) for v in values])
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Ways(make(), {})
        return found

    def context(self, eqn: Eqn, rule: FactorRule, axes: FactorAxes) -> emit.SplitContext:
        """What a `split` rule is told when factors are split by `axes`."""
        special = {f: mine for f, mine in axes.items() if f in rule.special or _needs_split(rule, f)}
        return emit.SplitContext(self, eqn, rule, special)

    def placements(self, eqn: Eqn, rule: FactorRule, values: Sequence[Value], axes: FactorAxes, passing: frozenset
                   ) -> Choice:
        """Placements of operands and results when the factors are split by `axes`."""
        used = frozenset(a for mine in axes.values() for a in mine)
        passing = frozenset() if passing & used else passing
        ins = [Placement(dims_of_factors(fs, axes, rule, self.sizes), passing if v.pending else frozenset())
               for v, fs in zip(values, rule.ins)]
        summed = frozenset(a for f, mine in axes.items() if self.sums(eqn, rule, f, axes) for a in mine)
        outs = [Placement(dims_of_factors(fs, axes, rule, self.sizes), summed | passing) for fs in rule.outs]
        return Choice(axes, ins, outs)

    def moves(self, eqn: Eqn, rule: FactorRule, values: Sequence[Value], choice: Choice) -> float:
        """Bytes sent to have operands and results of `eqn` where `choice` and the wishes say."""
        axes, ins, outs = choice.axes, choice.ins, choice.outs
        cost = sum(self.best(v, p)[1] for v, p in zip(values, ins))
        completed = [(spec, a) for f, mine in axes.items() if (spec := _completed_by(rule, f)) is not None for a in mine]
        cost += self.exchanged(eqn, rule, axes, ins)
        for var, place in zip(eqn.outvars, outs):
            cost += plan_cost(place, self.target(var, place), var.aval.shape, var.aval.dtype.itemsize, self.sizes)
            if completed:
                n = math.prod(self.sizes[a] for _, a in completed)
                cost += LATENCY + collective_bytes(completed[0][0].name, self.local_bytes(var.aval, place), n)
        return cost

    def exchanged(self, eqn: Eqn, rule: FactorRule, axes: FactorAxes, ins: Sequence[Placement]) -> float:
        """Bytes of the rows that devices send each other because operands are needed across the borders of blocks."""
        context = self.context(eqn, rule, axes)
        if not context.axes:
            return 0.0
        from weft.partition.borders import bytes_sent  # which few programs need

        return bytes_sent(self, context, ins)

    def gives_up(self, rule: FactorRule, values: Sequence[Value], axes: FactorAxes) -> bool:
        """Whether a sum whose terms all operands hold apart, on the same devices, would be gathered and computed whole.

        So a gradient stays a sum over the devices that hold the batch, reduced once, even where gathering a small batch
        would send less.
        """
        for f, combine in rule.reduced.items():
            if combine != "add" or f in rule.special:
                continue
            lying = [{a for view in v.views for dim, fs in zip(view.dims, dims) if fs == (f,) for a in dim}
                     for v, dims in zip(values, rule.ins) if (f,) in dims]
            if len(lying) > 1 and set.intersection(*lying) - set(axes.get(f, ())):
                return True
        return False

    def sums(self, eqn: Eqn, rule: FactorRule, f: int, axes: FactorAxes) -> bool:
        """Whether factor `f`, split as `axes` say, makes the results partial sums."""
        if f in rule.special:
            return eqn.primitive.has("split") and bool(eqn.primitive.rules["split_sums"](f, rule, axes))
        return rule.reduced.get(f) == "add"

    def local_bytes(self, aval: ShapedArray, place: Placement) -> int:
        return math.prod(local_shape(aval.shape, place.dims, self.sizes)) * aval.dtype.itemsize

    def work(self, eqn: Eqn, rule: FactorRule, axes: FactorAxes, ins: Sequence[Placement], outs: Sequence[Placement],
             repeated: bool) -> float:
        """Time of the local computation, in bytes sent that take as long."""
        nbytes = sum(self.local_bytes(a.aval, p) for a, p in [*zip(eqn.invars, ins), *zip(eqn.outvars, outs)])
        cost = nbytes / LOCAL_BYTES_PER_BYTE
        if eqn.primitive.kind in ("contract", "conv", "library"):
            splits = math.prod(self.sizes[a] for mine in axes.values() for a in mine)
            rate = REPEATED_FLOPS_PER_BYTE if repeated else FLOPS_PER_BYTE
            cost += 2 * math.prod(rule.sizes) / splits / rate
        return cost

    def emit(self, eqn: Eqn, rule: FactorRule | None, values: Sequence[Value], choice: Choice) -> list[Value]:
        """Bind the local equation; results as values."""
        params, context = eqn.params, None
        if choice.axes:
            context = self.context(eqn, rule, choice.axes)
            if choice.params is None:
                choice.params = self.localized(eqn, rule, choice, context.axes)
            params = choice.params
        locals_ = [v.views[p] if p in v.views else self.view(v, p, "operand", f"{eqn.primitive} takes {_what(eqn, i)} as {p}")
                   for i, (v, p) in enumerate(zip(values, choice.ins))]
        if choice.axes and rule.reduced:
            locals_ = [self.neutral(eqn, rule, choice.axes, i, x) for i, x in enumerate(locals_)]
        if context is not None and context.axes:
            outs = eqn.primitive.rule("split")(context, locals_, **params)
        else:
            outs = eqn.primitive.bind(*locals_, **params)
        outs = list(outs) if eqn.primitive.multiple_results else [outs]
        if context is not None:
            outs = self.finish(eqn, rule, choice, context.axes, outs)
        origin = self.origin(eqn, rule, choice, values)
        return [Value(v.aval, p, out, origin) for v, p, out in zip(eqn.outvars, choice.outs, outs)]

    def neutral(self, eqn: Eqn, rule: FactorRule, axes: FactorAxes, i: int, x: Any) -> Any:
        """Local operand `i` with the neutral element of the reduction where blocks of a reduced dim are padded."""
        for d, factors in enumerate(rule.ins[i]):
            for f in factors:
                if f in axes and f in rule.reduced and f not in rule.special and not is_even(rule.sizes[f], axes[f], self.sizes):
                    fill = neutral_element(eqn, eqn.invars[i].aval.dtype)
                    x = emit.masked(x, d, axes[f], rule.sizes[f], fill)
        return x

    def origin(self, eqn: Eqn, rule: FactorRule | None, choice: Choice, values: Sequence[Value]) -> Origin | None:
        """Why the results are partial sums, if they are."""
        axes = sorted({str(a) for f, mine in choice.axes.items() if self.sums(eqn, rule, f, choice.axes) for a in mine})
        if axes:
            return Origin(Why("sum", f"{eqn.primitive} sums over a dim that is split over {', '.join(axes)}", eqn), eqn.source)
        return next((v.origin for v in values if v.pending), None)

    def finish(self, eqn: Eqn, rule: FactorRule, choice: Choice, special: FactorAxes, outs: Sequence) -> list:
        """Complete reductions other than sums across the axes that split the reduced factors, unless the operation did itself."""
        for f, mine in sorted(choice.axes.items()):
            spec = _completed_by(rule, f)
            if spec is not None and f not in special:
                why = Why("reduction", f"{eqn.primitive} reduces over a dim that is split over {', '.join(map(str, mine))}", eqn)
                finished = []
                for out in outs:
                    aval = emit.aval_of(out)
                    n = math.prod(self.sizes[a] for a in mine)
                    nbytes = collective_bytes(spec.name, aval.nbytes, n)
                    step = Step(spec.counted_as, mine, nbytes=nbytes)
                    finished.append(registry[spec.name].bind(out, axes=mine, axis_index_groups=None))
                    self.record(step, out, why, self.trace.eqns[-1])
                outs = finished
        return list(outs)

    def localized(self, eqn: Eqn, rule: FactorRule, choice: Choice, special: FactorAxes) -> dict:
        """Parameters for local shapes; `_NotLocal` if the operation cannot run on them.

        Dims whose factors have a split rule of their own keep their global sizes here; that rule deals with them.
        """
        ordinary = {f: mine for f, mine in choice.axes.items() if f not in special}
        dims = lambda factors: dims_of_factors(factors, ordinary, rule, self.sizes)
        shrink = lambda atom, factors: atom.aval.update(
            shape=local_shape(atom.aval.shape, dims(factors), self.sizes), sharding=None)
        ins = [shrink(a, fs) for a, fs in zip(eqn.invars, rule.ins)]
        outs = [shrink(v, fs) for v, fs in zip(eqn.outvars, rule.outs)]
        hook = eqn.primitive.rules.get("localize")
        params = eqn.params if hook is None else hook(eqn.params, ins, outs)
        try:
            got = eqn.primitive.abstract(ins, params)
        except (ValueError, TypeError) as error:
            raise _NotLocal from error
        if any(g.shape != o.shape or g.dtype != o.dtype for g, o in zip(got, outs)):
            raise _NotLocal
        return params


class NotPending(Exception):
    """A value that was expected to be a pending sum is not one."""


class _NotLocal(Exception):
    """The operation cannot run on the local shapes."""


def _completed_by(rule: FactorRule, f: int) -> CollectiveSpec | None:
    """The collective that completes the reduction of factor `f` at once; None for sums, which can be deferred."""
    combine = rule.reduced.get(f, "add")
    return None if combine == "add" else COMPLETED_BY.get(combine)


def _needs_split(rule: FactorRule, f: int) -> bool:
    return rule.reduced.get(f, "add") not in COMPLETED_BY


def _what(eqn: Eqn, i: int) -> str:
    return "its operand" if len(eqn.invars) == 1 else f"operand {i}"


def _live(jaxpr: Jaxpr) -> list[Eqn]:
    """The equations that results or effects depend on: nothing is communicated for the others."""
    needed, live = set(variables(jaxpr.outvars)), []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            needed.update(variables(eqn.invars))
            live.append(eqn)
    return live[::-1]


def partition_program(jaxpr: Jaxpr, wishes: Propagation, ins: Sequence[Placement], outs: Sequence[Spec | None],
                      constraint_spec: Callable, parent: Any) -> tuple[Jaxpr, list[Spec], Partitioner]:
    """The local program of a whole `jaxpr`, the specs of its results (those of `outs` where given), and who made them."""
    trace = LocalTrace(parent, jaxpr.name)
    partitioner = Partitioner(wishes, constraint_spec, trace)
    partitioner.settled.update(variables([a for a, spec in zip(jaxpr.outvars, outs) if spec is not None]))
    with extend_axis_env(list(wishes.sizes.items())), set_trace(trace):
        args: list[StageTracer] = [trace.new_arg(partitioner.local_aval(v.aval, p)) for v, p in zip(jaxpr.invars, ins)]
        values = partitioner.run(jaxpr, [Value(v.aval, p, x, argument=i) for i, (v, p, x) in enumerate(zip(jaxpr.invars, ins, args))])
        makers = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
        results, specs = [], []
        for i, (value, spec, atom) in enumerate(zip(values, outs, jaxpr.outvars)):
            partitioner.eqn = makers.get(atom) if type(atom) is Var else None
            trace.source = partitioner.eqn and partitioner.eqn.source
            place = partitioner.target(atom, value.placement) if spec is None else Placement(spec)
            place = Placement(even_dims(atom.aval.shape, place.dims, wishes.sizes))
            results.append(partitioner.view(value, place, "output", f"output {i} is laid out as {place}"))
            specs.append(place.dims)
        local = partitioner.close(args, results)
        return local, specs, partitioner
