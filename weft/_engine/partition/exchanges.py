"""The program of one process: the local program mapped over the process's devices, with exchanges between processes.

In:   the program of one device, its mesh axes as parts between and within processes (`process_axes`), the specs of its arguments and
      results.
Out:  a Jaxpr on the storage blocks of this process [splits..., local dims...], the same in every process, without collectives:
      along local parts they become ordinary ops (`stack`), along process parts `ops.exchange` equations.
Laws: a collective is first performed within the process, so that one message per process remains. An exchange reads and writes
      dense arrays, whole or with a leading dim for the ranks of its group; all other parts of a collective are ordinary ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft._engine.core.interpret import evaluate, evaluate_with
from weft._engine.core.primitive import CollectiveOp, ExchangeOp, LoopLike, Primitive, RegionOp
from weft._engine.core.stage import stage
from weft._engine.core.trace import (
    InnerTrace,
    Trace,
    current_trace,
    derived_trace,
    extend_axis_env,
    set_trace,
    trace_state,
    typeof,
)
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var, subjaxprs
from weft._engine.ir.rewrite import map_jaxprs
from weft._engine.ir.specs import Spec
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import collective_rules as rules
from weft._engine.ops.dynamic_slicing import dynamic_slice_in_dim
from weft._engine.ops.elementwise import add, complex as complex_of, imag, mul, real, select_n
from weft._engine.ops.exchange import bytes_sent, exchange_p, process_position_p, role_of
from weft._engine.ops.families import move_dim, zeros
from weft._engine.ops.layout import reshape, squeeze
from weft._engine.ops.ragged_all_to_all import ragged_all_to_all_p
from weft._engine.ops.slicing import concatenate, slice_in_dim
from weft._engine.partition.combine import later_collectives, separate_reductions, topological
from weft._engine.partition.process_axes import ProcessAxes, has_groups, on_parts, process_axes
from weft._engine.partition.shard_check import check_exchanges
from weft._engine.partition.stack import block_types, on_blocks
from weft._engine.transforms.batch import named_axes
from weft._engine.util import dtypes
from weft._engine.util.record import record


def program_of_process(
    local: Jaxpr,
    mesh: Sequence[tuple[Any, int]],
    owners: np.ndarray,
    in_specs: Sequence[Spec],
    out_specs: Sequence[Spec],
    out_blocks: Sequence[tuple[int, ...] | None] = (),
) -> Jaxpr:
    """Return `local` for the devices of one process, on the storage blocks of that process; `owners` has the process of each device."""
    axes = process_axes(mesh, owners, fine=has_groups(local))
    if any(blocks is not None for blocks in out_blocks):
        raise NotImplementedError(
            "jit: the axes of the program's mesh cannot express the sharding of a result over several processes.\n"
            "  Give all shardings of a program on one mesh."
        )
    local = on_parts(separate_reductions(local), axes)
    ins, outs = [[axes.local_spec(spec) for spec in specs] for specs in (in_specs, out_specs)]

    def run(*blocks: Any) -> Any:
        with extend_axis_env(axes.between), set_trace(_ExchangeTrace(current_trace(), axes)):
            return on_blocks(local, axes.local, ins, outs, (), blocks)

    program = combine(stage(run, block_types(local.invars, ins, axes.local), local.name))
    check_exchanges(_all_eqns(program), axes.ranks)
    return program


def _all_eqns(jaxpr: Jaxpr) -> Iterator[Eqn]:
    """Yield the equations of a program and of its inner programs."""
    for eqn in jaxpr.eqns:
        yield eqn
        for _, inner in subjaxprs(eqn.params):
            yield from _all_eqns(inner)


# ---- combining of small reductions

#: maximal size of an operand in a combined exchange; concatenating larger ones costs more than a message
MOST_COMBINED_BYTES = 256 << 10


def combine(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with independent reductions of small operands between the same ranks combined into one exchange each."""
    index = {
        eqn: i
        for i, eqn in enumerate(jaxpr.eqns)
        if role_of(eqn) == "exchange" and eqn.params["kind"] == "all_reduce"
    }
    later = later_collectives(jaxpr.eqns, index)
    groups: dict[tuple[Any, ...], list[Eqn]] = {}
    for eqn in index:
        x, p = eqn.invars[0], eqn.params
        if type(x) is Var and x.aval.nbytes <= MOST_COMBINED_BYTES:
            groups.setdefault((x.aval.dtype, p["op"], p["groups"], later[eqn]), []).append(eqn)
    combined: dict[Eqn, Eqn] = {}
    for some in groups.values():
        if len(some) > 1:
            combined_eqn = some[0].replace(
                primitive=_together_p,
                invars=[e.invars[0] for e in some],
                outvars=[e.outvars[0] for e in some],
            )
            combined.update(dict.fromkeys(some, combined_eqn))
    if not combined:
        return jaxpr
    together = set(combined.values())
    ordered = jaxpr.replace(eqns=topological([combined.get(eqn, eqn) for eqn in jaxpr.eqns]))

    def bind(eqn: Eqn, operands: list[Any]) -> Sequence[Any]:
        if eqn in together:
            return _exchange_jointly(operands, eqn.params)
        out = eqn.primitive.bind(*operands, **eqn.params)
        return out if eqn.primitive.multiple_results else [out]

    return stage(lambda *args: evaluate_with(bind, ordered, args), jaxpr.in_avals, jaxpr.name)


_together_p = ExchangeOp("exchanges", multiple_results=True, register=False)


def _exchange_jointly(operands: list[Any], params: dict[str, Any]) -> list[Any]:
    """Exchange several operands in one exchange; return the results."""
    shapes = [typeof(x).shape for x in operands]
    sizes = [math.prod(shape) for shape in shapes]
    total = exchange_p.bind(
        concatenate([reshape(x, (n,)) for x, n in zip(operands, sizes)], 0), **params
    )
    ends = np.cumsum(sizes).tolist()
    return [
        reshape(slice_in_dim(total, end - n, end), shape)
        for end, n, shape in zip(ends, sizes, shapes)
    ]


#: groups of positions along axes
Groups = Sequence[Sequence[int]]


class _ExchangeTrace(InnerTrace):
    """A trace that binds collectives over process parts as exchanges, on values of the parent trace."""

    __slots__ = ("axes",)

    def __init__(self, parent: Trace, axes: ProcessAxes):
        super().__init__(parent)
        self.axes = axes

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        with derived_trace(self.outer):
            if isinstance(primitive, CollectiveOp):
                return _MEANING[primitive](self, *args, **params)
            if isinstance(primitive, RegionOp):
                params = map_jaxprs(params, self._rewrite_nested)
            return primitive.bind(*args, **params)

    def _rewrite_nested(self, program: Jaxpr) -> Jaxpr:
        """Return an inner program with its collectives as exchanges."""
        if not named_axes(program) and not any(subjaxprs(eqn.params) for eqn in program.eqns):
            return program

        def run(*args: Any) -> Any:
            with set_trace(_ExchangeTrace(current_trace(), self.axes)):
                return evaluate(program, *args)

        return combine(stage(run, program.in_avals, program.name))

    # ---- one exchange

    def exchange(
        self,
        x: Any,
        kind: str,
        axes: Sequence[Any],
        op: str | None = None,
        groups: tuple[Any, ...] | None = None,
        pairs: tuple[Any, ...] = (),
    ) -> Any:
        """Bind an exchange between the ranks along `axes`, or in `groups`."""
        groups = self.axes.groups(axes) if groups is None else groups
        aval = typeof(x)
        if dtypes.is_complex(aval.dtype) and op == "sum":

            def on_parts(parts: Any) -> Any:
                return self.exchange(parts, kind, axes, op, groups, pairs)

            return _as_parts(x, on_parts)
        return exchange_p.bind(
            x, kind=kind, op=op, groups=groups, pairs=pairs, source=trace_state.source
        )

    def groups_of(self, axes: Sequence[Any], groups: Groups | None) -> tuple[tuple[int, ...], ...]:
        """Return groups of ranks: of all positions along `axes`, or of each group of positions."""
        whole = self.axes.groups(axes)
        if groups is None:
            return whole
        return tuple(tuple(ranks[i] for i in members) for ranks in whole for members in groups)


def _as_parts(x: Any, exchange: Callable[[Any], Any]) -> Any:
    """Exchange complex numbers as real and imaginary parts, in an additional last dim."""
    shape = typeof(x).shape
    parts = concatenate([reshape(real(x), (*shape, 1)), reshape(imag(x), (*shape, 1))], len(shape))
    exchanged = exchange(parts)
    shape = typeof(exchanged).shape[:-1]
    return complex_of(
        *[reshape(slice_in_dim(exchanged, i, i + 1, axis=len(shape)), shape) for i in (0, 1)]
    )


# ---- the meaning of each collective along process parts, after its local parts are done


def _reduce(op: str) -> Callable[..., Any]:
    def meaning(
        trace: _ExchangeTrace,
        x: Any,
        *,
        axes: Sequence[Any],
        axis_index_groups: Groups | None,
    ) -> Any:
        return trace.exchange(x, "all_reduce", axes, op, trace.groups_of(axes, axis_index_groups))

    return meaning


def _gather(
    trace: _ExchangeTrace,
    x: Any,
    *,
    all_gather_dimension: int,
    axis_name: Any,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups | None = None,
) -> Any:
    rows = trace.exchange(
        x, "all_gather", axis_name, groups=trace.groups_of(axis_name, axis_index_groups)
    )
    return _place_dim(rows, all_gather_dimension, tiled)


def _place_dim(rows: Any, dim: int, tiled: bool) -> Any:
    """Move dim 0 of `rows` to dim `dim`, or, if `tiled`, merge it as the major part into dim `dim` of each row."""
    y = move_dim(rows, 0, dim)
    if not tiled:
        return y
    shape = typeof(y).shape
    return reshape(y, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))


def _in_blocks(x: Any, dim: int, size: int) -> Any:
    """Split dim `dim` of `x` into `size` blocks, numbered by a new dim 0."""
    shape = typeof(x).shape
    return move_dim(reshape(x, (*shape[:dim], size, shape[dim] // size, *shape[dim + 1 :])), dim, 0)


def _scatter(
    trace: _ExchangeTrace,
    x: Any,
    *,
    scatter_dimension: int,
    axis_name: Any,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups | None,
) -> Any:
    blocks = _in_blocks(x, scatter_dimension, axis_size)
    own = trace.exchange(
        blocks, "reduce_scatter", axis_name, "sum", trace.groups_of(axis_name, axis_index_groups)
    )
    return own if tiled else squeeze(own, (scatter_dimension,))


def _all_to_all(
    trace: _ExchangeTrace,
    x: Any,
    *,
    split_axis: int,
    concat_axis: int,
    axis_name: Any,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups | None,
) -> Any:
    received = trace.exchange(
        _in_blocks(x, split_axis, axis_size),
        "all_to_all",
        axis_name,
        groups=trace.groups_of(axis_name, axis_index_groups),
    )
    return _place_dim(received, concat_axis, True)


def _permute(
    trace: _ExchangeTrace, x: Any, *, axis_name: Any, perm: Sequence[tuple[int, int]]
) -> Any:
    size = math.prod(dict(trace.axes.between)[axis] for axis in axis_name)
    moved = [(s, d) for s, d in perm if s != d]
    if not moved:
        return x if len(perm) == size else _own_or_zeros(trace, x, axis_name, perm)
    pairs = tuple(
        sorted((ranks[s], ranks[d]) for ranks in trace.axes.groups(axis_name) for s, d in perm)
    )
    return trace.exchange(x, "permute", axis_name, groups=(), pairs=pairs)


def _own_or_zeros(
    trace: _ExchangeTrace, x: Any, axis_name: Sequence[Any], perm: Sequence[tuple[int, int]]
) -> Any:
    """Return `x` at the positions that keep their values, zeros elsewhere."""
    n = math.prod(dict(trace.axes.between)[axis] for axis in axis_name)
    keeps = np.zeros(n, bool)
    keeps[[s for s, _ in perm]] = True
    own = reshape(dynamic_slice_in_dim(keeps, _position(trace, axis_name), 1), ())
    return select_n(own, zeros(typeof(x)), x)


def _broadcast(trace: _ExchangeTrace, x: Any, *, axis_name: Any, source: int) -> Any:
    groups = tuple(
        (ranks[source], *ranks[:source], *ranks[source + 1 :])
        for ranks in trace.axes.groups(axis_name)
    )
    return trace.exchange(x, "broadcast", axis_name, groups=groups)


def _position(trace: _ExchangeTrace, axes: Sequence[Any]) -> Any:
    sizes = dict(trace.axes.between)
    index: Any = None
    for axis in axes:
        here = process_position_p.bind(table=trace.axes.positions(axis))
        index = here if index is None else add(mul(index, np.int32(sizes[axis])), here)
    return np.int32(0) if index is None else index


def _own_slice(trace: _ExchangeTrace, x: Any, *, axis_name: Any, axis_size: int, dim: int) -> Any:
    block = typeof(x).shape[dim] // axis_size
    return dynamic_slice_in_dim(x, mul(_position(trace, axis_name), np.int32(block)), block, dim)


def _ragged(
    trace: _ExchangeTrace,
    *args: Any,
    axis_name: Any,
    axis_index_groups: Groups | None,
) -> Any:
    several = ragged_all_to_all_p.several
    assert several is not None  # defined with the op
    with set_trace(trace):
        return several(*args, axis_name=axis_name, axis_index_groups=axis_index_groups)


def _unchanged(trace: _ExchangeTrace, x: Any, **_params: Any) -> Any:
    return x


def _axis_index(trace: _ExchangeTrace, *, axis_name: Any) -> Any:
    return _position(trace, (axis_name,))


_MEANING: dict[Primitive, Callable[..., Any]] = {
    rules.psum_p: _reduce("sum"),
    rules.pmax_p: _reduce("max"),
    rules.pmin_p: _reduce("min"),
    rules.pvary_p: _unchanged,
    rules.pcast_p: _unchanged,
    rules.all_gather_p: _gather,
    rules.all_gather_invariant_p: _gather,
    rules.reduce_scatter_p: _scatter,
    rules.all_to_all_p: _all_to_all,
    rules.ppermute_p: _permute,
    rules.pbroadcast_p: _broadcast,
    rules.axis_index_p: _axis_index,
    rules.own_slice_p: _own_slice,
    ragged_all_to_all_p: _ragged,
}


# ---- the exchanges of a program


@record
class ExchangeRecord:
    """One exchange of a program of one process: its kind, the type of each process's operand, the groups of ranks, the user's line, and
    the number of runs, which is for one iteration of a while loop if `open_ended`."""

    kind: str
    op: str | None
    operand: ShapedArray
    groups: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]
    source: Any
    count: int = 1
    open_ended: bool = False

    @property
    def size(self) -> int:
        """The number of ranks in a group."""
        return len(self.groups[0]) if self.groups else 2

    @property
    def bytes(self) -> int:
        """The bytes that a process sends in all runs by ring algorithms; in a permutation, a process that sends."""
        return self.count * bytes_sent(self.kind, self.operand.nbytes, self.size)

    @property
    def messages(self) -> int:
        """The number of messages that a process sends in all runs, by the same algorithms."""
        steps = {"all_reduce": 2 * (self.size - 1), "permute": 1, "broadcast": 1}
        return self.count * steps.get(self.kind, self.size - 1)

    def between(self) -> Iterator[tuple[int, int, int]]:
        """Yield (sender, receiver, bytes) for all runs: along the ring of each group, or between any two ranks in an all_to_all."""
        nbytes = self.bytes
        if self.kind == "permute":
            yield from ((a, b, nbytes) for a, b in self.pairs if a != b)
            return
        for group in self.groups:
            n = len(group)
            if self.kind == "all_to_all":
                yield from ((a, b, nbytes // (n - 1)) for a in group for b in group if a != b)
            elif n > 1:
                ring = zip(group, (*group[1:], group[0]))
                yield from (
                    (a, b, nbytes)
                    for a, b in (list(ring)[:-1] if self.kind == "broadcast" else ring)
                )


def exchanges_of(jaxpr: Jaxpr, count: int = 1, open_ended: bool = False) -> list[ExchangeRecord]:
    """Return the exchanges of a program, including those in loops and in all branches.

    Exchanges whose groups have one rank are omitted, because nothing is sent.
    """
    records: list[ExchangeRecord] = []
    for eqn in jaxpr.eqns:
        if role_of(eqn) == "exchange":
            p = eqn.params
            records.append(
                ExchangeRecord(
                    p["kind"],
                    p["op"],
                    eqn.invars[0].aval,
                    p["groups"],
                    p["pairs"],
                    p["source"],
                    count,
                    open_ended,
                )
            )
            continue
        times, unknown = 1, open_ended
        if isinstance(eqn.primitive, LoopLike):
            counted = eqn.primitive.counted
            times, unknown = eqn.params["length"] if counted else 1, open_ended or not counted
        for _, inner in subjaxprs(eqn.params):
            records += exchanges_of(inner, count * times, unknown)
    return records


def link_bytes(
    records: Sequence[ExchangeRecord], host_of: Callable[[int], Any]
) -> dict[tuple[Any, Any], int]:
    """Return the bytes sent between hosts in a call, by (sender, receiver); `host_of` returns the host of a rank.

    >>> record = ExchangeRecord("all_gather", None, ShapedArray((4,), np.dtype("f4")), ((0, 1, 2, 3),), (), None)
    >>> link_bytes([record], lambda rank: rank // 2)
    {(0, 1): 48, (1, 0): 48}
    """
    nbytes_by_ends: dict[tuple[Any, Any], int] = {}
    for one in records:
        for sender, receiver, nbytes in one.between():
            ends = host_of(sender), host_of(receiver)
            if ends[0] != ends[1]:
                nbytes_by_ends[ends] = nbytes_by_ends.get(ends, 0) + nbytes
    return nbytes_by_ends
