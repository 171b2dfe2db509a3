"""Rules for operations with regions: calls, branches, loops, manual computations; shardings and
collectives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft._engine.core.primitive import BarrierOp, CallLike, CollectiveOp, ConstraintOp
from weft._engine.hlo.lowering import Rule, result_types, rule
from weft._engine.hlo.ops import HloBlock, HloValue, array_type, is_static
from weft._engine.hlo.rules.arrays import dynamic_slice
from weft._engine.hlo.sharding_text import constrain, sharding_text
from weft._engine.ir.collective_spec import collective_axes, spec_of
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ir.rewrite import inlined_program
from weft._engine.ir.types import ShapedArray
from weft._engine.util.source import with_metadata

# --- calls and control flow -------------------------------------------------------------------------------------------


@rule(CallLike)
def _call(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    """Write a function for a call that the user wrote.

    Inline calls that only carry derivative rules.
    """
    if eqn.primitive.only_derivatives or b.context.mesh is not None:
        return b.context.inline(b, inlined_program(eqn), args)
    p = eqn.params
    operands = [constrain(b, x, s) for x, s in zip(args, p["in_shardings"])]
    outs = b.context.call(b, p["jaxpr"], p["name"], operands)
    return [constrain(b, y, s) for y, s in zip(outs, p["out_shardings"])]


@rule("xla_metadata_call")
def _metadata_call(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    """Write a call with the metadata as attributes; in the program of one device, inline the call and attach them to its operations."""
    context, p = b.context, eqn.params
    if context.mesh is None:
        context.metadata = with_metadata(context.metadata, p["xla_metadata"])
        return context.call(b, p["jaxpr"], eqn.primitive.name, args)
    outer = context.around
    context.around = with_metadata(context.metadata, p["xla_metadata"])
    results = context.inline(b, p["jaxpr"], args)
    context.around = outer
    return results


# --- branches and loops -----------------------------------------------------------------------


def _write_in_chain(
    r: HloBlock, chain: Sequence[HloValue], fill: Callable[[], Sequence[HloValue]]
) -> list[HloValue]:
    """Return the results of `fill()`, whose host calls follow `chain`, and the chain after them."""
    outer, r.context.chain = r.context.chain, tuple(chain)
    results = [*fill(), *r.context.chain]
    r.context.chain = outer
    return results


def _split_off_chain(
    b: HloBlock, chain: Sequence[HloValue], results: Sequence[HloValue]
) -> list[HloValue]:
    """Return the results of an operation without its chain, which becomes the current chain."""
    if not chain:
        return list(results)
    b.context.chain = tuple(results[-len(chain) :])
    return list(results[: -len(chain)])


@rule("cond")
def _cond(b: HloBlock, eqn: Eqn, index: HloValue, *args: HloValue) -> list[HloValue]:
    branches, chain = eqn.params["branches"], b.context.chain_in(eqn.params["branches"])
    index = b.op("clamp", b.like(index, 0), index, b.like(index, len(branches) - 1))
    write = lambda branch: b.region(
        [], lambda r: _write_in_chain(r, chain, lambda: r.context.inline(r, branch, args))
    )
    types = [*result_types(eqn), *[x.type for x in chain]]
    return _split_off_chain(
        b, chain, b.emit("case", [index], types, [write(branch) for branch in branches])
    )


@rule("while")
def _while(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    p = eqn.params
    n, m = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    chain = b.context.chain_in([p["cond_jaxpr"], p["body_jaxpr"]])
    if b.context.chain_in([p["cond_jaxpr"]]):
        return _while_with_calls(b, eqn, args[:n], args[n:m], args[m:])
    begin = [*args[m:], *chain]
    types, count = [x.type for x in begin], len(args) - m
    body = lambda r, *carry: _write_in_chain(
        r, carry[count:], lambda: r.context.inline(r, p["body_jaxpr"], [*args[n:m], *carry[:count]])
    )
    results = b.emit(
        "while",
        begin,
        types,
        [
            b.region(
                types,
                lambda r, *carry: r.context.inline(r, p["cond_jaxpr"], [*args[:n], *carry[:count]]),
            ),
            b.region(types, body),
        ],
    )
    return _split_off_chain(b, chain, results)


def _while_with_calls(
    b: HloBlock,
    eqn: Eqn,
    of_cond: Sequence[HloValue],
    of_body: Sequence[HloValue],
    carry: Sequence[HloValue],
) -> list[HloValue]:
    """Write a loop whose condition calls the host.

    The condition is computed before the loop and at the end of each iteration.
    """
    p, count = eqn.params, len(carry)
    test = lambda r, values: r.context.inline(r, p["cond_jaxpr"], [*of_cond, *values])

    def body(r: HloBlock, *values: HloValue) -> list[HloValue]:
        results = r.context.inline(r, p["body_jaxpr"], [*of_body, *values[:count]])
        return [*results, *test(r, results)]

    begin = [*carry, *test(b, carry), *b.context.chain]
    types = [x.type for x in begin]
    results = b.emit(
        "while",
        begin,
        types,
        [
            b.region(types, lambda r, *values: values[count]),
            b.region(
                types,
                lambda r, *values: _write_in_chain(
                    r, values[count + 1 :], lambda: body(r, *values)
                ),
            ),
        ],
    )
    return _split_off_chain(b, b.context.chain, results)[:count]


@rule("scan")
def _scan(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    """Write a loop over an index that slices the inputs and writes the outputs into place."""
    p, length = eqn.params, eqn.params["length"]
    nc, nk = p["num_consts"], p["num_consts"] + p["num_carry"]
    consts, carry, xs = args[:nc], args[nc:nk], args[nk:]
    stacked = [b.full(t.shape, 0, t.dtype) for t in result_types(eqn)[p["num_carry"] :]]
    if not length:
        return [*carry, *stacked]
    chain = b.context.chain_in([p["jaxpr"]])
    begin = [b.constant(0, np.int32), *carry, *stacked, *chain]
    types, count = [x.type for x in begin], len(carry) + len(stacked)

    def body(r: HloBlock, i: HloValue, *values: HloValue) -> list[HloValue]:
        at = r.op("subtract", r.size(length - 1, np.int32), i) if p["reverse"] else i
        start = lambda x: [at, *[r.constant(0, np.int32)] * (x.ndim - 1)]
        rows = [
            r.reshape(dynamic_slice(r, x, start(x), (1, *x.shape[1:])), x.shape[1:]) for x in xs
        ]
        results = r.context.inline(r, p["jaxpr"], [*consts, *values[: len(carry)], *rows])
        put = [
            r.op("dynamic_update_slice", y, r.reshape(row, (1, *row.shape)), *start(y))
            for y, row in zip(values[len(carry) : count], results[len(carry) :])
        ]
        return [r.op("add", i, r.constant(1, np.int32)), *results[: len(carry)], *put]

    more = lambda r, i, *_: r.compare("LT", i, r.size(length, np.int32))
    trips = {"trip_count": length} if is_static([length]) else {}
    step = lambda r, i, *values: _write_in_chain(r, values[count:], lambda: body(r, i, *values))
    return _split_off_chain(
        b,
        chain,
        b.emit("while", begin, types, [b.region(types, more), b.region(types, step)], **trips),
    )[1:]


@rule(BarrierOp)
def _barrier(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    return b.emit("optimization_barrier", args, [x.type for x in args])


# --- shardings --------------------------------------------------------------------------------


@rule(ConstraintOp)
def _constraint(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return constrain(b, x, eqn.params["sharding"])


@rule("mesh_cast")
def _same(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return x


@rule("shard_map")
def _shard_map(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    p, context = eqn.params, b.context
    outer, context.mesh = context.mesh, p["mesh"]
    inner = [array_type(a.shape, a.dtype) for a in p["jaxpr"].in_avals]
    body = b.region(inner, lambda r, *blocks: context.inline(r, p["jaxpr"], blocks))
    context.mesh = outer
    others = len(p["manual_axes"]) < len(p["mesh"].axis_names)  # automatic axes may split any dim
    show = lambda specs, atoms: [
        sharding_text(
            context, p["mesh"], spec.dims(a.aval.ndim), range(a.aval.ndim) if others else ()
        )
        for spec, a in zip(specs, atoms)
    ]
    return b.emit(
        "sdy.manual_computation",
        args,
        result_types(eqn),
        [body],
        axes=p["manual_axes"],
        mesh=p["mesh"],
        in_specs=p["in_specs"],
        out_specs=p["out_specs"],
        in_shardings=show(p["in_specs"], eqn.invars),
        out_shardings=show(p["out_specs"], eqn.outvars),
    )


# --- collectives ------------------------------------------------------------------------------------------------------


#: device numbers: the members of each group, or sender and receiver
Groups = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=256)
def _groups(axes: tuple, mesh: tuple[tuple[Any, int], ...]) -> Groups:
    """Return the device numbers of each group along `axes`, ordered by position along the axes.

    >>> _groups(("b",), (("a", 2), ("b", 2))), _groups(("b", "a"), (("a", 2), ("b", 2)))
    (((0, 1), (2, 3)), ((0, 2, 1, 3),))
    """
    names = [name for name, _ in mesh]
    numbers = np.arange(math.prod(n for _, n in mesh)).reshape([n for _, n in mesh])
    along = [names.index(a) for a in axes if a in names]
    other_dims = [d for d in range(len(names)) if d not in along]
    count = math.prod(mesh[d][1] for d in along)
    return tuple(map(tuple, numbers.transpose(other_dims + along).reshape(-1, count).tolist()))


def participant_groups(eqn: Eqn, mesh: tuple[tuple[Any, int], ...]) -> Groups:
    """Return the groups of devices that exchange values in a collective.

    They include `axis_index_groups`.
    """
    axes, parts = collective_axes(eqn.params), eqn.params.get("axis_index_groups")
    return _parts_of_groups(axes, mesh, parts) if parts else _groups(axes, mesh)


@lru_cache(maxsize=256)
def _parts_of_groups(axes: tuple, mesh: tuple[tuple[Any, int], ...], parts: Groups) -> Groups:
    return tuple(
        [tuple([group[i] for i in part]) for group in _groups(axes, mesh) for part in parts]
    )


def pairs(eqn: Eqn, mesh: tuple[tuple[Any, int], ...]) -> Groups:
    """Return pairs of device numbers, sender and receiver, of a permutation."""
    return _pairs(collective_axes(eqn.params), mesh, eqn.params["perm"])


@lru_cache(maxsize=256)
def _pairs(axes: tuple, mesh: tuple[tuple[Any, int], ...], perm: Groups) -> Groups:
    return tuple(sorted([(group[s], group[t]) for group in _groups(axes, mesh) for s, t in perm]))


#: rules of collectives by their HLO instruction
_COLLECTIVES: dict[str, Rule] = {}


def _collective(instruction: str) -> Callable[[Rule], Rule]:
    return lambda fn: _COLLECTIVES.setdefault(instruction, fn)


@rule(CollectiveOp)
def _collective_op(b: HloBlock, eqn: Eqn, *args: HloValue) -> HloValue | list[HloValue]:
    instruction = spec_of(eqn.primitive).hlo
    if instruction not in _COLLECTIVES:
        raise NotImplementedError(
            f"as_text: {eqn.primitive.name} cannot be written as XLA operations."
        )
    return _COLLECTIVES[instruction](b, eqn, *args)


def _communicate(
    b: HloBlock,
    eqn: Eqn,
    x: HloValue,
    shape: Sequence[int],
    groups: Groups | None = None,
    **attrs: object,
) -> HloValue:
    """Write a collective of one value among groups of devices."""
    return _exchange(b, eqn, [x], [array_type(shape, x.dtype)], groups, **attrs)[0]


def _exchange(
    b: HloBlock,
    eqn: Eqn,
    xs: Sequence[HloValue],
    types: Sequence[ShapedArray],
    groups: Groups | None = None,
    **attrs: object,
) -> list[HloValue]:
    """Write a collective operation over several values of one dtype."""
    spec, element = spec_of(eqn.primitive), array_type((), xs[0].dtype)
    regions = (
        [b.region([element, element], lambda r, x, y: r.op(spec.to_apply, x, y))]
        if spec.to_apply
        else []
    )
    return b.emit(
        spec.hlo.replace("-", "_"),
        xs,
        types,
        regions,
        channel=b.context.next_channel(),
        groups=groups or participant_groups(eqn, b.context.mesh.shape_tuple),
        **attrs,
    )


_collective("copy")(_same)


@_collective("all-reduce")
def _all_reduce(b: HloBlock, eqn: Eqn, *xs: HloValue) -> list[HloValue]:
    return _exchange(b, eqn, xs, [x.type for x in xs])


@_collective("all-gather")
def _all_gather(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    dim, (out,) = eqn.params["all_gather_dimension"], result_types(eqn)
    x = x if eqn.params["tiled"] else b.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))
    return _communicate(b, eqn, x, out.shape, dim=dim)


@_collective("reduce-scatter")
def _reduce_scatter(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    dim = eqn.params["scatter_dimension"]
    shape = [n // eqn.params["axis_size"] if d == dim else n for d, n in enumerate(x.shape)]
    return b.reshape(_communicate(b, eqn, x, shape, dim=dim), result_types(eqn)[0].shape)


@_collective("all-to-all")
def _all_to_all(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    p = eqn.params
    return _communicate(
        b,
        eqn,
        x,
        result_types(eqn)[0].shape,
        split=p["split_axis"],
        concat=p["concat_axis"],
        count=p["axis_size"],
    )


@_collective("collective-permute")
def _permute(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return _communicate(b, eqn, x, x.shape, pairs(eqn, b.context.mesh.shape_tuple))


@_collective("collective-broadcast")
def _broadcast(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    """Write a broadcast from the first device of each group."""
    source, groups = eqn.params["source"], participant_groups(eqn, b.context.mesh.shape_tuple)
    return _communicate(
        b, eqn, x, x.shape, tuple([(g[source], *g[:source], *g[source + 1 :]) for g in groups])
    )


@_collective("ragged-all-to-all")
def _ragged(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    groups = participant_groups(eqn, b.context.mesh.shape_tuple)
    return b.emit(
        "custom_call",
        args,
        result_types(eqn),
        target="ragged_all_to_all",
        backend_config={},
        groups=groups,
        has_side_effect=False,
    )


def _position(b: HloBlock, axes: Sequence) -> HloValue:
    """Return the position of this device along `axes`, the first one being the major one."""
    sizes = b.context.mesh.shape_tuple
    device = b.context.device_number(b)

    def along(axis: Any) -> tuple[HloValue, int]:
        at = [name for name, _ in sizes].index(axis)
        minor, size = math.prod(n for _, n in sizes[at + 1 :]), sizes[at][1]
        quotient = b.op("divide", device, b.like(device, minor))
        return b.op("remainder", quotient, b.like(device, size)), size

    first, *others = axes
    position, _ = along(first)
    for axis in others:
        here, size = along(axis)
        position = b.op("add", b.op("multiply", position, b.like(position, size)), here)
    return b.convert(position, np.int32)


@_collective("partition-id")
def _axis_index(b: HloBlock, eqn: Eqn) -> HloValue:
    return _position(b, collective_axes(eqn.params))


@_collective("dynamic-slice")
def _own_slice(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    dim, (out,) = eqn.params["dim"], result_types(eqn)
    start = b.op(
        "multiply", _position(b, collective_axes(eqn.params)), b.constant(out.shape[dim], np.int32)
    )
    return dynamic_slice(
        b, x, [start if d == dim else b.constant(0, np.int32) for d in range(x.ndim)], out.shape
    )
