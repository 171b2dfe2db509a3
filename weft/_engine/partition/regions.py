"""Partitioning of inner programs (loops, branches, calls, bodies of `shard_map`) and of callbacks.

In:   the partitioner of the enclosing program, and an equation with inner programs, a callback, or a user's collective.
Out:  its results as values; separate partitioners, which share the records, partition the inner programs.
Laws: the carry of a loop has the same layout at the beginning and the end of an iteration. A carry to which the loop only adds
      sums over a split dim stays a partial sum, so the whole loop costs one reduction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft._engine.core.pass_rules import PassRules
from weft._engine.core.primitive import (
    BranchLike,
    CallbackOp,
    CollectiveOp,
    CustomOp,
    ElementwiseOp,
    LoopLike,
    RegionOp,
)
from weft._engine.core.trace import set_trace, typeof
from weft._engine.ir.collective_spec import collective_axes, collective_bytes, spec_of
from weft._engine.ir.factors import OperandFactors
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.specs import PartitionSpec, Spec
from weft._engine.ops.callback import CallbackSharding
from weft._engine.partition import local_equations
from weft._engine.partition.cost import Why
from weft._engine.partition.padding import evenly_split
from weft._engine.partition.partial_sums import variables
from weft._engine.partition.partitioner import Partitioner
from weft._engine.partition.propagation.propagate import call_jaxpr, free_axes
from weft._engine.partition.reshard import Placement, ReshardStep
from weft._engine.partition.values import LocalTrace, LocalValue, NotPartial, Origin


def compute(outer: Partitioner, eqn: Eqn) -> list[LocalValue]:
    """Return the results of an equation of a class in `partitioner.SPECIAL`."""
    return _RULES[eqn.primitive](outer, eqn)


def region(outer: Partitioner, eqn: Eqn) -> list[LocalValue]:
    """Return the results of an op with inner programs."""
    values = [outer.read(a) for a in eqn.invars]
    match eqn.primitive:
        case LoopLike(counted=True):
            return scan(outer, eqn, values)
        case LoopLike():
            return while_loop(outer, eqn, values)
        case BranchLike():
            return cond(outer, eqn, values)
        case _:
            pass
    if eqn.primitive.per_device:
        return shard_map(outer, eqn, values)
    inner = call_jaxpr(eqn)
    # raises the error of a missing rule
    return outer.run(inner, values) if inner is not None else eqn.primitive.lower(eqn)


def callback(outer: Partitioner, eqn: Eqn) -> list[LocalValue]:
    """Return the results of a callback. The host reads the blocks of operands in any layout, so only partial sums need collectives."""
    values = [outer.read(a) for a in eqn.invars]
    places = [
        next((p for p in v.forms if not p.partial), Placement(v.placement.dims)) for v in values
    ]
    if eqn.primitive.inspects_sharding:
        outer.layout_callbacks.append((eqn.params["callback"], places[0].dims))
        return []
    by_device = eqn.params.get("partitioned", False)
    mapped = eqn.params.get("mapped", ())
    if by_device:
        # blocks are passed unchanged, so they must not have padding; every device has each example
        leads = [sum(m.operands[k] for m in mapped) for k in range(len(values))]
        places = [
            Placement(evenly_split(v.aval.shape, (*((),) * n, *p.dims[n:]), outer.sizes))
            for v, p, n in zip(values, places, leads)
        ]
    locals_ = [
        outer.materialize(v, p, "read", f"{eqn.primitive} reads it") for v, p in zip(values, places)
    ]
    layout = CallbackSharding(
        tuple(p.dims for p in places),
        tuple(v.aval.shape for v in values),
        frozenset(outer.sizes) - outer.manual,
        by_device,
        len(mapped),
    )
    outs = eqn.primitive.bind(*locals_, **dict(eqn.params, layout=layout))
    return [
        LocalValue(v.aval, Placement(((),) * v.aval.ndim), out) for v, out in zip(eqn.outvars, outs)
    ]


def shard_map(outer: Partitioner, eqn: Eqn, values: Sequence[LocalValue]) -> list[LocalValue]:
    """Return the results of a shard_map: operands are moved to their specs, and the body with the user's collectives is inlined."""
    p = eqn.params
    body, manual = p["jaxpr"], p["manual_axes"]

    def split(spec: PartitionSpec, inner: Var) -> Spec:
        pairs = zip(spec.dims(inner.aval.ndim), outer.target_specs.spec(inner))
        return tuple((*mine, *free) for mine, free in pairs)

    blocks: list[LocalValue] = []
    for value, spec, var in zip(values, p["in_specs"], body.invars):
        place = Placement(split(spec, var))
        block = outer.materialize(value, place, "enters", f"shard_map takes it as {place}")
        blocks.append(LocalValue(var.aval, Placement(outer.target_specs.spec(var)), block))
    outside, outer.manual, outer.depth = outer.manual, outer.manual.union(manual), outer.depth + 1
    outs = outer.run(body, blocks)
    outer.manual, outer.depth = outside, outer.depth - 1
    outer.trace.source, outer.eqn = eqn.source, eqn
    results: list[LocalValue] = []
    for value, spec, atom, var in zip(outs, p["out_specs"], body.outvars, eqn.outvars):
        inner = Placement(tuple(free_axes((), have, manual) for have in value.placement.dims))
        local = outer.materialize(value, inner, "leaves", f"shard_map gives it as {inner}")
        place = Placement(
            tuple((*mine, *free) for mine, free in zip(spec.dims(atom.aval.ndim), inner.dims))
        )
        results.append(LocalValue(var.aval, place, local))
    return results


def collective(outer: Partitioner, eqn: Eqn) -> list[LocalValue]:
    """Return the results of a user's collective. Dims that it keeps may stay split by other axes."""
    values = [outer.read(a) for a in eqn.invars]
    rule = eqn.primitive.factors(
        [a.aval for a in eqn.invars], [v.aval for v in eqn.outvars], **eqn.params
    )
    split = {
        f: axes
        for value, fs in zip(values, rule.ins)
        for (f,), axes in zip(fs, value.placement.dims)
        if len(values) == 1 and f not in rule.special
    }

    def place(fs: OperandFactors) -> Placement:
        return Placement(tuple(split.get(f, ()) for (f,) in fs))

    places = [place(fs) for fs in rule.ins]
    locals_ = [
        outer.materialize(v, p, "operand", f"{eqn.primitive} takes it as {p}")
        for v, p in zip(values, places)
    ]
    out = eqn.primitive.bind(*locals_, **eqn.params)
    _record_user_collective(outer, eqn, locals_)
    outs = out if eqn.primitive.multiple_results else [out]
    return [LocalValue(v.aval, place(fs), x) for v, fs, x in zip(eqn.outvars, rule.outs, outs)]


def _record_user_collective(outer: Partitioner, eqn: Eqn, locals_: Sequence[Any]) -> None:
    """Record a collective of the user's shard_map."""
    spec, axes = spec_of(eqn.primitive), collective_axes(eqn.params)
    if not spec.is_local:
        groups = eqn.params.get("axis_index_groups")
        n = len(groups[0]) if groups else math.prod(outer.sizes[a] for a in axes)
        nbytes = collective_bytes(spec.name, typeof(locals_[0]).nbytes, n)
        # reductions over whole axes can be combined
        local = outer.trace.eqns[-1] if not groups else None
        outer.record_collective(
            ReshardStep(spec.counted_as, axes, nbytes=nbytes),
            locals_[0],
            Why("asked", "shard_map asks for it", eqn),
            local,
        )


def local_program(
    outer: Partitioner,
    jaxpr: Jaxpr,
    ins: Sequence[Placement],
    outs: Sequence[Placement],
    count: int,
    constants: Sequence[LocalValue] = (),
    open_ended: bool = False,
) -> Jaxpr:
    """Return the local program of `jaxpr`, which runs `count` times, for inputs placed as `ins` and results placed as `outs`.

    The first inputs are the `constants` of a loop; moves that depend on constants only leave the loop.
    """
    trace = LocalTrace(outer.trace, jaxpr.name)
    inner = Partitioner(
        outer.target_specs,
        outer.constraint_spec,
        trace,
        outer.special,
        outer.records,
        outer.count * count,
        fixed_results=set(variables(jaxpr.outvars)),
        layout_callbacks=outer.layout_callbacks,
        manual=outer.manual,
        finer_axes=outer.finer_axes,
        repeatable=outer.repeatable,
        work=outer.work,
        placed_eqns=outer.placed_eqns,
        programs=outer.programs,
        depth=outer.depth + 1,
        open_ended=outer.open_ended or open_ended,
        cost=outer.cost,
        target_weight=outer.target_weight,
        schedule=outer.schedule,
        strategy_lists=outer.strategy_lists,
    )
    try:
        with set_trace(trace):
            args = [trace.new_arg(inner.local_aval(v.aval, p)) for v, p in zip(jaxpr.invars, ins)]
            runs = [
                *(v.runs or outer.count for v in constants),
                *[0] * (len(args) - len(constants)),
            ]
            values = [
                LocalValue(v.aval, p, x, runs=n)
                for v, p, x, n in zip(jaxpr.invars, ins, args, runs)
            ]
            results = inner.run(jaxpr, values)
            trace.source = jaxpr.eqns[-1].source if jaxpr.eqns else None
            reason = "the loop or branch gives its result as"
            locals_ = [
                inner.materialize(v, p, "loop", f"{reason} {p}") for v, p in zip(results, outs)
            ]
            return inner.close(args, locals_, jaxpr, outs)
    finally:
        trace.finished = True


def _materialize(
    outer: Partitioner, eqn: Eqn, values: Sequence[LocalValue], places: Sequence[Placement]
) -> list[Any]:
    return [
        outer.materialize(v, p, "loop", f"{eqn.primitive} takes it as {p}")
        for v, p in zip(values, places)
    ]


def _values(eqn: Eqn, outs: Sequence[Any], places: Sequence[Placement]) -> list[LocalValue]:
    return [LocalValue(v.aval, p, out) for v, p, out in zip(eqn.outvars, places, outs)]


def scan(outer: Partitioner, eqn: Eqn, values: Sequence[LocalValue]) -> list[LocalValue]:
    p = eqn.params
    body, n_consts, n_carry = p["jaxpr"], p["num_consts"], p["num_carry"]
    ins = [outer.target_placement(v) for v in body.invars]
    carries = range(n_consts, n_consts + n_carry)
    ys = [outer.target_placement(a) for a in body.outvars[n_carry:]]

    def stacked(places: Sequence[Placement]) -> list[Placement]:
        return [Placement(((), *place.dims)) for place in places]

    args = _materialize(outer, eqn, values, [*ins[: carries.stop], *stacked(ins[carries.stop :])])
    summed = [_accumulated_axes(outer, body, i, body.outvars[i - n_consts]) for i in carries]
    carry = [Placement(ins[i].dims, axes) for i, axes in zip(carries, summed)]
    shared = (outer.records, outer.layout_callbacks, outer.placed_eqns, outer.programs, outer.work)
    lengths = [len(entries) for entries in shared]
    try:
        local = local_program(
            outer,
            body,
            [*ins[:n_consts], *carry, *ins[carries.stop :]],
            [*carry, *ys],
            p["length"],
            values[:n_consts],
        )
    except NotPartial:
        for entries, n in zip(shared, lengths):
            del entries[n:]
        carry = ins[n_consts : carries.stop]
        local = local_program(outer, body, ins, [*carry, *ys], p["length"], values[:n_consts])
    for i, place in zip(carries, carry):
        if place.partial:
            args[i] = local_equations.as_partial_sum(
                args[i], tuple(a for a in outer.sizes if a in place.partial)
            )
    outs = eqn.primitive.bind(*args, **dict(p, jaxpr=local))
    results = _values(eqn, outs, [*carry, *stacked(ys)])
    for value in results[:n_carry]:
        value.origin = Origin(
            Why("sum", "the loop accumulates sums over a split dim", eqn), eqn.source
        )
    return results


def _accumulated_axes(outer: Partitioner, body: Jaxpr, i: int, out: Any) -> frozenset[Any]:
    """Return the axes over which carry `i` of a scan may stay a partial sum because the body only adds partial sums to it."""
    carry = body.invars[i]
    makers = {v: eqn for eqn in body.eqns for v in eqn.outvars}
    eqn = makers.get(out)
    readers = [e for e in body.eqns if carry in e.invars]
    if (
        eqn is None
        or readers != [eqn]
        or out in outer.target_specs.fixed
        or carry in body.outvars
        or not _is_sum_of_two(outer, eqn)
    ):
        return frozenset()
    (term,) = [a for a in eqn.invars if a is not carry] or [None]
    is_read = any(out in e.invars for e in body.eqns)
    if term is None or is_read or body.outvars.count(out) != 1:
        return frozenset()
    outer.partial_sums.makers.update(makers)
    axes = outer.partial_sums.partial_axes(term)
    return frozenset() if axes & outer.target_placement(carry).axes else axes


def _is_sum_of_two(outer: Partitioner, eqn: Eqn) -> bool:
    """Return whether an equation adds two values elementwise."""
    rule = outer.target_specs.rule(eqn)
    is_additive = rule is not None and rule.additive
    return is_additive and len(eqn.invars) == 2 and isinstance(eqn.primitive, ElementwiseOp)


def while_loop(outer: Partitioner, eqn: Eqn, values: Sequence[LocalValue]) -> list[LocalValue]:
    p = eqn.params
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    cond_consts = [outer.target_placement(v) for v in p["cond_jaxpr"].invars[:n_cond]]
    body_consts = [outer.target_placement(v) for v in p["body_jaxpr"].invars[:n_body]]
    carry = [outer.target_placement(v) for v in p["body_jaxpr"].invars[n_body:]]
    cond = local_program(
        outer,
        p["cond_jaxpr"],
        [*cond_consts, *carry],
        [Placement(())],
        1,
        values[:n_cond],
        open_ended=True,
    )
    body = local_program(
        outer,
        p["body_jaxpr"],
        [*body_consts, *carry],
        carry,
        1,
        values[n_cond : n_cond + n_body],
        open_ended=True,
    )
    args = _materialize(outer, eqn, values, [*cond_consts, *body_consts, *carry])
    outs = eqn.primitive.bind(*args, **dict(p, cond_jaxpr=cond, body_jaxpr=body))
    return _values(eqn, outs, carry)


def cond(outer: Partitioner, eqn: Eqn, values: Sequence[LocalValue]) -> list[LocalValue]:
    branches = eqn.params["branches"]
    ins = [outer.target_placement(v) for v in branches[0].invars]
    outs = [outer.target_placement(v) for v in eqn.outvars]
    local = tuple(local_program(outer, b, ins, outs, 1) for b in branches)
    args = _materialize(outer, eqn, values, [Placement(()), *ins])
    return _values(eqn, eqn.primitive.bind(*args, **dict(eqn.params, branches=local)), outs)


def custom(outer: Partitioner, eqn: Eqn) -> list[LocalValue]:
    """Return the results of a function with a user-defined partition rule."""
    from weft._engine.partition.custom_partition import compute  # rarely needed

    return compute(outer, eqn)


_RULES = PassRules(
    "partitioning",
    {RegionOp: region, CollectiveOp: collective, CallbackOp: callback, CustomOp: custom},
)
