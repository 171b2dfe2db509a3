"""SPMD: from a global program and a wish for the layout of every variable to the program that one device runs.

In:   a global Jaxpr, the result of `propagate`, the placements of its inputs.
Out:  a Jaxpr on local shapes in which every move between devices is an explicit collective, and a record of each.
Laws: running the result on all devices and putting the shards together gives what the global program gives; only the
      equations that this file adds communicate.
How:  equations are taken in order and bound on local values under a staging trace. For each, several ways to split its
      factors are priced (moving the operands there, moving the results where they are wished, the work itself) and the
      cheapest is taken. A contraction over a split dim leaves a partial sum; the sum over devices waits until a
      consumer needs the value whole, so linear equations share one reduction.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import weft.ops.localize  # noqa: F401  (fills the slot `localize`)
from weft.core.stage import StageTrace, StageTracer
from weft.core.trace import extend_axis_env, set_trace
from weft.ir.factors import FactorRule
from weft.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft.ir.specs import Spec
from weft.ir.types import ShapedArray
from weft.ops.callback import Layout
from weft.ops.halo import Need, Window, rows_sent
from weft.partition import emit
from weft.partition.choices import FINISHED, Candidates
from weft.partition.combine import combined
from weft.partition.cost import (
    FLOPS_PER_BYTE,
    LATENCY,
    LOCAL_BYTES_PER_BYTE,
    REPEATED_FLOPS_PER_BYTE,
    CollectiveRecord,
    Why,
    collective_bytes,
)
from weft.partition.propagate import (
    FactorAxes,
    Propagation,
    axes_of_factors,
    call_jaxpr,
    dims_of_factors,
    free_axes,
    region_jaxprs,
)
from weft.partition.reshard import Placement, Step, is_even, local_shape, plan, plan_cost
from weft.partition.uneven import even_dims, neutral_element
from weft.transforms.batch import collective_axes
from weft.util.record import field, record

#: how a factor that is reduced with this operation is finished across devices
FINISH: dict[str, Callable] = {name: getattr(emit, collective) for name, collective in FINISHED.items()}


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
    """One way to compute an equation: axes per factor, placements of operands and results."""
    axes: FactorAxes
    ins: list[Placement]
    outs: list[Placement]


@record(frozen=False)
class Partitioner:
    """The state of one partitioning; programs inside programs share everything but the trace."""
    wishes: Propagation
    constraint_spec: Callable
    trace: LocalTrace
    records: list[CollectiveRecord] = field(default_factory=list)
    count: int = 1                        # how often the program at hand runs
    env: dict[Var, Value] = field(default_factory=dict)
    uses: Counter = field(default_factory=Counter)
    readers: dict[Var, list[Eqn]] = field(default_factory=dict)         # the equations that read a variable
    makers: dict[Var, Eqn] = field(default_factory=dict)        # the equation that makes it
    foreseen: dict[Var, frozenset] = field(default_factory=dict)
    settled: set = field(default_factory=set)      # results that must end as they are wished
    edges: dict[tuple, tuple] = field(default_factory=dict)     # rows of neighbours that were fetched
    places: dict[Eqn, int] = field(default_factory=dict)        # the record of a local equation
    manual: frozenset = frozenset()       # axes that the program at hand deals with itself
    looks: list[tuple[Callable, Spec]] = field(default_factory=list)     # who asks how which value lies
    laid: list[Laid] = field(default_factory=list)
    known: dict[tuple, list[Choice]] = field(default_factory=dict)      # the ways to compute equations, by what they follow from
    depth: int = 0
    open_ended: bool = False              # whether the program at hand is inside of a while loop
    eqn: Eqn | None = None                # that is being computed

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
        known = wish.axes or atom in self.wishes.given or atom in self.settled
        if known or atom not in self.wishes.edges:
            return wish if known else Placement(made.dims)
        return Placement(even_dims(atom.aval.shape, made.dims, self.sizes))

    def best(self, value: Value, target: Placement) -> tuple[Placement, float]:
        """The form of `value` from which `target` is reached most cheaply, and the price."""
        item = value.aval.dtype.itemsize
        priced = [(plan_cost(p, target, value.aval.shape, item, self.sizes), i, p) for i, p in enumerate(value.views)
                  if target.partial <= p.partial]
        if not priced:
            raise _NotPending
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
        for eqn in eqns:
            read = set(_variables(eqn.invars))
            self.uses.update(read)
            for var in read:
                self.readers.setdefault(var, []).append(eqn)
            self.makers.update(dict.fromkeys(eqn.outvars, eqn))
        self.uses.update(a for a in jaxpr.outvars if type(a) is not Literal)
        for eqn in eqns:
            self.trace.source, self.eqn = eqn.source, eqn
            place = len(self.laid)
            with np.errstate(all="ignore"):
                self.compute(eqn)
            places = tuple(self.env[v].placement for v in eqn.outvars)
            self.laid.insert(place, Laid(eqn, places, self.count, self.depth, self.manual))
        return [self.read(a) for a in jaxpr.outvars]

    def compute(self, eqn: Eqn) -> None:
        """Add the local equations of one global equation."""
        kind = eqn.primitive.kind
        if kind == "region":
            outs = self.region(eqn)
        elif kind == "collective":
            outs = self.collective(eqn)
        elif kind == "constraint":
            outs = [self.constrain(eqn)]
        elif kind == "callback":
            outs = self.callback(eqn)
        else:
            outs = self.plain(eqn)
        self.env.update(zip(eqn.outvars, outs))

    def constrain(self, eqn: Eqn) -> Value:
        """The operand, laid out as the constraint says; dims it leaves open follow propagation."""
        value, wish = self.read(eqn.invars[0]), self.wishes.spec(eqn.outvars[0])
        asked = self.constraint_spec(eqn)
        target = Placement(tuple(w if a is None else a for a, w in zip(asked, wish)))
        return Value(value.aval, target, self.view(value, target, "constraint", f"the constraint asks for {target}"))

    def callback(self, eqn: Eqn) -> list[Value]:
        """A call of Python: the host reads the blocks of the operands where they lie, so only pending sums move anything."""
        values = [self.read(a) for a in eqn.invars]
        places = [next((p for p in v.views if not p.partial), Placement(v.placement.dims)) for v in values]
        if eqn.primitive.name == "inspect_sharding":
            self.looks.append((eqn.params["callback"], places[0].dims))
            return []
        apart = eqn.params.get("partitioned", False)
        if apart:                            # blocks are shown as they are, so none may have padding
            places = [Placement(even_dims(v.aval.shape, p.dims, self.sizes)) for v, p in zip(values, places)]
        locals_ = [self.view(v, p, "read", f"{eqn.primitive} reads it") for v, p in zip(values, places)]
        layout = Layout(tuple(p.dims for p in places), tuple(v.aval.shape for v in values), frozenset(self.sizes) - self.manual,
                        apart, len(eqn.params.get("mapped", ())))
        outs = eqn.primitive.bind(*locals_, **dict(eqn.params, layout=layout))
        return [Value(v.aval, Placement(((),) * v.aval.ndim), out) for v, out in zip(eqn.outvars, outs)]

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
        choices = self.choices(eqn, rule, values)
        best, least = choices[0], math.inf
        for choice in choices if len(choices) > 1 else ():
            work = self.work(eqn, rule, choice.axes, choice.ins, choice.outs, self.gives_up(rule, values, choice.axes))
            if work < least:                 # else no way of moving, which is what takes long to price, would make up for it
                price = work + self.moves(eqn, rule, values, choice)
                if price < least:
                    best, least = choice, price
        return best

    def choices(self, eqn: Eqn, rule: FactorRule, values: Sequence[Value]) -> list[Choice]:
        """The ways to split the factors of an equation; equal equations on values that lie alike, as in equal layers, have the same.

        Not so where more than types and parameters tell what the operation can do split.
        """
        passing = self.passing(eqn, rule, values)
        make = lambda: [self.placements(eqn, rule, values, axes, passing) for axes in Candidates(self, eqn, rule, values)]
        if rule.groups or eqn.primitive.has("split"):
            return make()
        key = (id(rule), passing, *[self.wishes.spec(v) for v in eqn.outvars], *[(v.placement.dims, bool(v.pending)) for v in values])
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = make()
        return found

    def context(self, eqn: Eqn, rule: FactorRule, axes: FactorAxes) -> emit.SplitContext:
        """What a `split` rule is told when factors are split by `axes`."""
        special = {f: mine for f, mine in axes.items() if f in rule.special or _needs_split(rule, f)}
        return emit.SplitContext(self, eqn, rule, special)

    def passing(self, eqn: Eqn, rule: FactorRule, values: Sequence[Value]) -> frozenset:
        """The axes of pending sums that this equation lets through, because it is linear in the summed operands.

        Only sums that nobody else waits for pass, so a sum is never done twice; and only where that saves something:
        here or later the sum gets smaller, or several become one.
        """
        pending = [(i, v.pending) for i, v in enumerate(values) if v.pending]
        if not pending or any(i not in rule.linear_ins for i, _ in pending):
            return frozenset()
        axes = pending[0][1]
        needed = set(rule.linear_ins) if rule.additive else {pending[0][0]}
        if any(p != axes for _, p in pending) or {i for i, _ in pending} != needed:
            return frozenset()
        if any(self.uses[eqn.invars[i]] != 1 for i, _ in pending):
            return frozenset()
        return axes if self.gains(eqn, [eqn.invars[i] for i, _ in pending], axes) else frozenset()

    def gains(self, eqn: Eqn, pending: Sequence[Var], axes: frozenset) -> bool:
        """Whether it pays to let sums over `axes` that `pending` wait for through the linear equation `eqn`."""
        before = {v: v.aval.nbytes for v in pending}
        after = sum(v.aval.nbytes for v in eqn.outvars)
        if after != sum(before.values()) or len(eqn.outvars) != 1:
            return after < sum(before.values())
        (var,) = eqn.outvars
        reader = self.readers.get(var, [None])[0]
        if self.uses[var] != 1 or reader is None or reader.primitive.kind == "region":
            return False
        rule = self.wishes.rule(reader)
        where = [i for i, a in enumerate(reader.invars) if a is var]
        if rule is None or any(i not in rule.linear_ins for i in where):
            return False
        others = [reader.invars[i] for i in rule.linear_ins if reader.invars[i] is not var] if rule.additive else []
        if any(self.awaits(a) != axes for a in others):
            return False
        return self.gains(reader, [var, *others], axes)

    def awaits(self, atom: Any) -> frozenset:
        """The axes over which a value is, or will probably be, a pending sum."""
        if type(atom) is Literal:
            return frozenset()
        if atom in self.env:
            return self.env[atom].pending
        if atom not in self.foreseen:
            self.foreseen[atom] = self.foresee(atom)
        return self.foreseen[atom]

    def foresee(self, atom: Var) -> frozenset:
        """`awaits` for a value that is not computed yet, from the wishes for the operands of its equation."""
        eqn = self.makers.get(atom)
        rule = None if eqn is None or eqn.primitive.kind == "region" else self.wishes.rule(eqn)
        if rule is None:
            return frozenset()
        summed: set = set()
        for a, factors in zip(eqn.invars, rule.ins):
            for f, mine in axes_of_factors(factors, self.wishes.spec(a), rule, self.sizes)[0].items():
                if rule.reduced.get(f) == "add":
                    summed.update(mine)
        return frozenset(summed) or self.awaits_through(eqn, rule)

    def awaits_through(self, eqn: Eqn, rule: FactorRule) -> frozenset:
        """The axes of a probable pending sum that would pass a linear equation."""
        found = [self.awaits(eqn.invars[i]) for i in rule.linear_ins]
        if rule.additive:
            return found[0] if found and all(axes == found[0] for axes in found) else frozenset()
        pending = [axes for axes in found if axes]
        return pending[0] if len(pending) == 1 else frozenset()

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
        finishing = [a for f, mine in axes.items() if rule.reduced.get(f) in FINISH for a in mine]
        cost += self.exchanged(eqn, rule, axes, ins)
        for var, place in zip(eqn.outvars, outs):
            cost += plan_cost(place, self.target(var, place), var.aval.shape, var.aval.dtype.itemsize, self.sizes)
            if finishing:
                n = math.prod(self.sizes[a] for a in finishing)
                cost += LATENCY + collective_bytes("psum", self.local_bytes(var.aval, place), n)
        return cost

    def exchanged(self, eqn: Eqn, rule: FactorRule, axes: FactorAxes, ins: Sequence[Placement]) -> float:
        """Bytes of the rows that devices send each other because operands are needed across the borders of blocks."""
        context = self.context(eqn, rule, axes)
        cost = 0.0
        for need in (context.needs() or ()) if context.axes else ():
            if context.of_dim(need.operand, need.dim):
                row = self.local_bytes(eqn.invars[need.operand].aval, ins[need.operand]) / context.block(need.size, need.axes)
                cost += sum(LATENCY + count * row for count in rows_sent(need.window, context.size(need.axes), need.size))
        return cost

    def reach(self, var: Var, need: Need) -> Window:
        """The rows that all equations which are wished to follow the same blocks need of `var` along a dim."""
        windows = [need.window]
        for eqn in self.readers.get(var, ()):
            rule = self.wishes.rule(eqn) if eqn.primitive.has("split") else None
            for group in rule.groups if rule is not None else ():
                wished = axes_of_factors(rule.outs[0], self.wishes.spec(eqn.outvars[0]), rule, self.sizes)[0]
                if wished.get(group[0]) == need.axes:
                    found = self.context(eqn, rule, dict.fromkeys(group, need.axes)).needs() or ()
                    windows += [other.window for other in found if eqn.invars[other.operand] is var and other.dim == need.dim
                                and other.window.advance == need.window.advance]
        first = min(w.first for w in windows)
        return Window(first, need.window.advance, max(w.first + w.span for w in windows) - first)

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
            params = self.localized(eqn, rule, choice, context.axes)
        locals_ = [self.view(v, p, "operand", f"{eqn.primitive} takes {_what(eqn, i)} as {p}")
                   for i, (v, p) in enumerate(zip(values, choice.ins))]
        if choice.axes:
            locals_ = [self.neutral(eqn, rule, choice.axes, i, x) for i, x in enumerate(locals_)]
        if context is not None and context.axes:
            outs = eqn.primitive.rule("split")(context, locals_, **params)
        else:
            outs = eqn.primitive.bind(*locals_, **params)
        outs = list(outs) if eqn.primitive.multiple_results else [outs]
        if context is not None and not context.axes:
            outs = self.finish(eqn, rule, choice, outs)
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

    def finish(self, eqn: Eqn, rule: FactorRule, choice: Choice, outs: Sequence) -> list:
        """Complete reductions other than sums across the axes that split the reduced factors."""
        for f, mine in sorted(choice.axes.items()):
            combine = rule.reduced.get(f)
            if combine in FINISH:
                why = Why("reduction", f"{eqn.primitive} reduces over a dim that is split over {', '.join(map(str, mine))}", eqn)
                finished = []
                for out in outs:
                    aval = emit.aval_of(out)
                    n = math.prod(self.sizes[a] for a in mine)
                    nbytes = collective_bytes("psum", aval.nbytes, n)
                    step = Step(FINISH[combine].__name__, mine, nbytes=nbytes)
                    finished.append(FINISH[combine](out, mine))
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

    # --- operations that hold programs ---

    def region(self, eqn: Eqn) -> list[Value]:
        values = [self.read(a) for a in eqn.invars]
        inner = call_jaxpr(eqn)
        name = eqn.primitive.name
        if name == "scan":
            return self.scan(eqn, values)
        if name == "while":
            return self.while_loop(eqn, values)
        if name == "cond":
            return self.cond(eqn, values)
        if name == "shard_map":
            return self.shard_map(eqn, values)
        if inner is not None:
            return self.run(inner, values)
        raise NotImplementedError(f"partition: operation {name!r} holding {len(region_jaxprs(eqn.params))} programs")

    def shard_map(self, eqn: Eqn, values: Sequence[Value]) -> list[Value]:
        """The program of one device in its place: operands are brought to their specs, the collectives are the user's."""
        p = eqn.params
        body, manual = p["jaxpr"], p["manual_axes"]
        split = lambda spec, inner: tuple((*mine, *free) for mine, free in zip(spec.dims(inner.aval.ndim), self.wishes.spec(inner)))
        blocks = []
        for value, spec, var in zip(values, p["in_specs"], body.invars):
            place = Placement(split(spec, var))
            block = self.view(value, place, "enters", f"shard_map takes it as {place}")
            blocks.append(Value(var.aval, Placement(self.wishes.spec(var)), block))
        outside, self.manual, self.depth = self.manual, self.manual.union(manual), self.depth + 1
        outs = self.run(body, blocks)
        self.manual, self.depth = outside, self.depth - 1
        self.trace.source, self.eqn = eqn.source, eqn
        results = []
        for value, spec, atom, var in zip(outs, p["out_specs"], body.outvars, eqn.outvars):
            inner = Placement(tuple(free_axes((), have, manual) for have in value.placement.dims))
            local = self.view(value, inner, "leaves", f"shard_map gives it as {inner}")
            place = Placement(tuple((*mine, *free) for mine, free in zip(spec.dims(atom.aval.ndim), inner.dims)))
            results.append(Value(var.aval, place, local))
        return results

    def collective(self, eqn: Eqn) -> list[Value]:
        """A collective of a program of one device. Blocks that other axes split further stay so where it keeps their dims."""
        values = [self.read(a) for a in eqn.invars]
        rule = eqn.primitive.rule("factors")([a.aval for a in eqn.invars], [v.aval for v in eqn.outvars], **eqn.params)
        split = {f: axes for value, fs in zip(values, rule.ins) for (f,), axes in zip(fs, value.placement.dims)
                 if len(values) == 1 and f not in rule.special}
        place = lambda fs: Placement(tuple(split.get(f, ()) for (f,) in fs))
        places = [place(fs) for fs in rule.ins]
        locals_ = [self.view(v, p, "operand", f"{eqn.primitive} takes it as {p}") for v, p in zip(values, places)]
        out = eqn.primitive.bind(*locals_, **eqn.params)
        self.asked(eqn, locals_)
        outs = out if eqn.primitive.multiple_results else [out]
        return [Value(v.aval, place(fs), x) for v, fs, x in zip(eqn.outvars, rule.outs, outs)]

    def asked(self, eqn: Eqn, locals_: Sequence) -> None:
        """Note a collective that a program of one device asks for."""
        kind, axes = eqn.primitive.name.removesuffix("_invariant"), collective_axes(eqn.params)
        if kind in emit.BYTES_AS:
            groups = eqn.params.get("axis_index_groups")
            n = len(groups[0]) if groups else math.prod(self.sizes[a] for a in axes)
            nbytes = collective_bytes(emit.BYTES_AS[kind], emit.aval_of(locals_[0]).nbytes, n)
            local = self.trace.eqns[-1] if not groups else None          # sums of whole axes may travel together
            self.record(Step(kind, axes, nbytes=nbytes), locals_[0], Why("asked", "shard_map asks for it", eqn), local)

    def inside(self, jaxpr: Jaxpr, ins: Sequence[Placement], outs: Sequence[Placement], count: int, open_ended: bool = False) -> Jaxpr:
        """The local program of `jaxpr`, which runs `count` times, for inputs placed as `ins`, giving results placed as `outs`."""
        trace = LocalTrace(self.trace, jaxpr.name)
        inner = Partitioner(self.wishes, self.constraint_spec, trace, self.records, self.count * count,
                            settled=set(_variables(jaxpr.outvars)), looks=self.looks, manual=self.manual,
                            laid=self.laid, depth=self.depth + 1, open_ended=self.open_ended or open_ended)
        try:
            with set_trace(trace):
                args = [trace.new_arg(inner.local_aval(v.aval, p)) for v, p in zip(jaxpr.invars, ins)]
                results = inner.run(jaxpr, [Value(v.aval, p, x) for v, p, x in zip(jaxpr.invars, ins, args)])
                trace.source = jaxpr.eqns[-1].source if jaxpr.eqns else None
                reason = "the loop or branch gives its result as"
                locals_ = [inner.view(v, p, "loop", f"{reason} {p}") for v, p in zip(results, outs)]
                return inner.close(args, locals_)
        finally:
            trace.finished = True

    def close(self, args: Sequence, results: Sequence) -> Jaxpr:
        """The local program, its reductions combined."""
        self.trace.eqns = combined(self.trace.eqns, self.records, self.places)
        return self.trace.to_jaxpr(args, results)

    def local_aval(self, aval: ShapedArray, place: Placement) -> ShapedArray:
        return aval.update(shape=local_shape(aval.shape, place.dims, self.sizes), sharding=None)

    def placed(self, eqn: Eqn, values: Sequence[Value], places: Sequence[Placement]) -> list:
        return [self.view(v, p, "loop", f"{eqn.primitive} takes it as {p}") for v, p in zip(values, places)]

    def results(self, eqn: Eqn, outs: Sequence, places: Sequence[Placement]) -> list[Value]:
        return [Value(v.aval, p, out) for v, p, out in zip(eqn.outvars, places, outs)]

    def scan(self, eqn: Eqn, values: Sequence[Value]) -> list[Value]:
        p = eqn.params
        body, n_consts, n_carry = p["jaxpr"], p["num_consts"], p["num_carry"]
        ins = [self.wish(v) for v in body.invars]
        carries = range(n_consts, n_consts + n_carry)
        ys = [self.wish(a) for a in body.outvars[n_carry:]]
        stacked = lambda places: [Placement(((), *place.dims)) for place in places]
        args = self.placed(eqn, values, [*ins[:carries.stop], *stacked(ins[carries.stop:])])
        summed = [self.accumulates(body, i, body.outvars[i - n_consts]) for i in carries]
        pending = [Placement(ins[i].dims, axes) for i, axes in zip(carries, summed)]
        known, looks, laid = len(self.records), len(self.looks), len(self.laid)
        try:
            local = self.inside(body, [*ins[:n_consts], *pending, *ins[carries.stop:]], [*pending, *ys], p["length"])
        except _NotPending:
            del self.records[known:], self.looks[looks:], self.laid[laid:]
            pending = ins[n_consts:carries.stop]
            local = self.inside(body, ins, [*pending, *ys], p["length"])
        for i, place in zip(carries, pending):
            if place.partial:
                args[i] = emit.pending(args[i], tuple(a for a in self.sizes if a in place.partial))
        outs = eqn.primitive.bind(*args, **dict(p, jaxpr=local))
        results = self.results(eqn, outs, [*pending, *stacked(ys)])
        for value in results[:n_carry]:
            value.origin = Origin(Why("sum", "the loop accumulates sums over a split dim", eqn), eqn.source)
        return results

    def accumulates(self, body: Jaxpr, i: int, out: Any) -> frozenset:
        """The axes over which carry `i` of a scan may stay a pending sum: the body only adds pending sums to it."""
        carry = body.invars[i]
        makers = {v: eqn for eqn in body.eqns for v in eqn.outvars}
        eqn = makers.get(out)
        readers = [e for e in body.eqns if carry in e.invars]
        if eqn is None or readers != [eqn] or out in self.wishes.given or sum(a is carry for a in body.outvars):
            return frozenset()
        rule = self.wishes.rule(eqn)
        if rule is None or not rule.additive or len(eqn.invars) != 2 or eqn.primitive.kind != "elementwise":
            return frozenset()
        (term,) = [a for a in eqn.invars if a is not carry] or [None]
        if term is None or sum(a is out for a in body.outvars) != 1 or any(out in e.invars for e in body.eqns):
            return frozenset()
        self.makers.update(makers)
        axes = self.awaits(term)
        return frozenset() if axes & self.wish(carry).axes else axes

    def while_loop(self, eqn: Eqn, values: Sequence[Value]) -> list[Value]:
        p = eqn.params
        n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
        cond_consts = [self.wish(v) for v in p["cond_jaxpr"].invars[:n_cond]]
        body_consts = [self.wish(v) for v in p["body_jaxpr"].invars[:n_body]]
        carry = [self.wish(v) for v in p["body_jaxpr"].invars[n_body:]]
        cond = self.inside(p["cond_jaxpr"], [*cond_consts, *carry], [Placement(())], 1, open_ended=True)
        body = self.inside(p["body_jaxpr"], [*body_consts, *carry], carry, 1, open_ended=True)
        args = self.placed(eqn, values, [*cond_consts, *body_consts, *carry])
        outs = eqn.primitive.bind(*args, **dict(p, cond_jaxpr=cond, body_jaxpr=body))
        return self.results(eqn, outs, carry)

    def cond(self, eqn: Eqn, values: Sequence[Value]) -> list[Value]:
        branches = eqn.params["branches"]
        ins = [self.wish(v) for v in branches[0].invars]
        outs = [self.wish(v) for v in eqn.outvars]
        local = tuple(self.inside(b, ins, outs, 1) for b in branches)
        args = self.placed(eqn, values, [Placement(()), *ins])
        return self.results(eqn, eqn.primitive.bind(*args, **dict(eqn.params, branches=local)), outs)


class _NotPending(Exception):
    """A value that was expected to be a pending sum is not one."""


class _NotLocal(Exception):
    """The operation cannot run on the local shapes."""


def _needs_split(rule: FactorRule, f: int) -> bool:
    return f in rule.reduced and rule.reduced[f] != "add" and rule.reduced[f] not in FINISH


def _what(eqn: Eqn, i: int) -> str:
    return "its operand" if len(eqn.invars) == 1 else f"operand {i}"


def _live(jaxpr: Jaxpr) -> list[Eqn]:
    """The equations that results or effects depend on: nothing is communicated for the others."""
    needed, live = set(_variables(jaxpr.outvars)), []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            needed.update(_variables(eqn.invars))
            live.append(eqn)
    return live[::-1]


def _variables(atoms: Sequence) -> list[Var]:
    return [a for a in atoms if type(a) is not Literal]


def partition_program(jaxpr: Jaxpr, wishes: Propagation, ins: Sequence[Placement], outs: Sequence[Spec | None],
                      constraint_spec: Callable, parent: Any) -> tuple[Jaxpr, list[Spec], Partitioner]:
    """The local program of a whole `jaxpr`, the specs of its results (those of `outs` where given), and who made them."""
    trace = LocalTrace(parent, jaxpr.name)
    partitioner = Partitioner(wishes, constraint_spec, trace)
    partitioner.settled.update(_variables([a for a, spec in zip(jaxpr.outvars, outs) if spec is not None]))
    with extend_axis_env(list(wishes.sizes.items())), set_trace(trace):
        args: list[StageTracer] = [trace.new_arg(partitioner.local_aval(v.aval, p)) for v, p in zip(jaxpr.invars, ins)]
        values = partitioner.run(jaxpr, [Value(v.aval, p, x, argument=i) for i, (v, p, x) in enumerate(zip(jaxpr.invars, ins, args))])
        results, specs = [], []
        for i, (value, spec, atom) in enumerate(zip(values, outs, jaxpr.outvars)):
            partitioner.eqn = _maker_of(jaxpr, atom)
            trace.source = partitioner.eqn and partitioner.eqn.source
            place = partitioner.target(atom, value.placement) if spec is None else Placement(spec)
            place = Placement(even_dims(atom.aval.shape, place.dims, wishes.sizes))
            results.append(partitioner.view(value, place, "output", f"output {i} is laid out as {place}"))
            specs.append(place.dims)
        local = partitioner.close(args, results)
        return local, specs, partitioner


def _maker_of(jaxpr: Jaxpr, atom: Any) -> Eqn | None:
    """The equation that gives `atom`."""
    return next((e for e in reversed(jaxpr.eqns) if atom in e.outvars), None)
