"""Batching: map a program over a dim of some of its inputs.

Law: `vmap(f)(xs)[i] == f(xs[i])` for every i. The batch dim of a value is an int, or None if the value is the same for all examples.
A collective over the name of the mapped axis becomes an ordinary operation on the batch dim. The compiler uses the same mechanism to
convert the program of one device into the program of a whole mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.interpret import evaluate
from weft._engine.core.pair_trace import PairTrace, run_pairs
from weft._engine.core.primitive import BatchAxis, CollectiveOp, Primitive, RegionOp
from weft._engine.core.sharded_types import check
from weft._engine.core.stage import stage
from weft._engine.core.trace import (
    Trace,
    Tracer,
    current_trace,
    derived_trace,
    trace_state,
    typeof,
    with_source,
)
from weft._engine.ir.collective_spec import collective_axes
from weft._engine.ir.jaxpr import Jaxpr, subjaxprs
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import broadcast_in_dim, transpose
from weft._engine.util.source import CollectiveLine, SourceLine


class BatchTracer(Tracer):
    """One example of `value`, which is mapped over its dim `dim`."""

    __slots__ = ("value", "dim")

    def __init__(self, trace: "BatchTrace", value: Any, dim: int):
        self.owning_trace = trace
        self.value = value
        self.dim = dim

    val = property(
        lambda self: self.value,
        doc="All examples in one array; JAX uses this name.",
    )

    # computed on demand, because the types of most tracers are never read
    @property
    def aval(self) -> ShapedArray:  # pyright: ignore[reportIncompatibleVariableOverride]
        aval = typeof(self.value)
        return (
            aval.dec_rank(self.owning_trace.axis.size, self.dim)
            if aval.is_high
            else aval.without_dim(self.dim)
        )

    def __repr__(self) -> str:
        return f"VmapTracer(aval={self.aval.str_short(kinds=True)}, batched={typeof(self.value).str_short(kinds=True)})"

    def describe(self) -> str:
        return f"a value under vmap of type {self.aval.str_short()} (per example)"


class BatchTrace(PairTrace):
    """A trace that maps operations over `axis`, by the batching rules of primitives."""

    __slots__ = ("axis",)

    def __init__(self, parent: Trace, axis: BatchAxis):
        super().__init__(parent)
        self.axis = axis

    @property
    def level(self) -> BatchAxis:
        return self.axis

    def split(self, x: Any) -> tuple[Any, int | None]:
        """Return the pair (value, batch dim) of any value."""
        if type(x) is BatchTracer and (x.owning_trace is self or x.owning_trace.axis is self.axis):
            return x.value, x.dim
        return x, None

    def join(self, first: Any, second: int | None) -> Any:
        return first if second is None else BatchTracer(self, first, second)

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        pairs = [self.split(x) for x in args]
        values = [v for v, _ in pairs]
        dims = [d for _, d in pairs]
        if all(d is None for d in dims) and not self.depends_on_axis(primitive, params):
            return self.outer.process(primitive, values, params)
        rule = primitive.batch
        check(primitive, args, params, self.axis.explicit_axes)
        with derived_trace(self.outer):
            if self.axis.of_mesh and isinstance(primitive, CollectiveOp):
                with with_source(_collective_line(primitive)):
                    out, out_dim = rule(self.axis, values, dims, **params)
            else:
                out, out_dim = rule(self.axis, values, dims, **params)
        if primitive.multiple_results:
            return [self.join(v, d) for v, d in zip(out, out_dim)]
        return self.join(out, out_dim)

    def depends_on_axis(self, primitive: Primitive, params: dict[str, Any]) -> bool:
        """Return whether an operation without mapped operands depends on the mapped axis, for example by its name."""
        if primitive.batched_always:
            return True
        name = self.axis.name
        if name is None:
            return False
        if isinstance(primitive, CollectiveOp):
            return name in collective_axes(params)
        return isinstance(primitive, RegionOp) and any(
            not named_axes(j).isdisjoint((name, ANY_AXIS)) for _, j in subjaxprs(params)
        )


def _collective_line(primitive: Primitive) -> SourceLine | None:
    """Return the line of the operations that implement a collective between stacked devices; None if its line is unknown."""
    line = trace_state.source
    if line is None or isinstance(line, CollectiveLine):
        return line
    return CollectiveLine(line, primitive.name)


#: a member of `named_axes` that stands for all names
ANY_AXIS = object()


def named_axes(jaxpr: Jaxpr) -> frozenset[Any]:
    """Return the axis names of all collectives in `jaxpr`, at any depth.

    The result contains `ANY_AXIS` if an op has custom derivative rules, which may use any axis.
    """

    def make():
        names: set[Any] = set()
        for eqn in jaxpr.eqns:
            if isinstance(eqn.primitive, CollectiveOp):
                names.update(collective_axes(eqn.params))
            elif isinstance(eqn.primitive, RegionOp):
                names.update((ANY_AXIS,) if eqn.primitive.only_derivatives else ())
                for _, inner in subjaxprs(eqn.params):
                    names.update(named_axes(inner))
        return frozenset(names)

    return jaxpr.memo("named_axes", make)


def batch_flat(
    fun: Callable[..., Any], axis: BatchAxis, args: Sequence[Any], dims: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Map the flat function `fun` over `dims` of `args`; return the results and their batch dims (None: not mapped)."""
    return run_pairs(
        BatchTrace(current_trace(), axis),
        fun,
        args,
        dims,
        [(axis.name, axis.size)] if axis.name is not None else [],
    )


def move_dim(x: Any, source: int, target: int) -> Any:
    """Move dim `source` of `x` to position `target`."""
    if source == target:
        return x
    order = [d for d in range(typeof(x).ndim) if d != source]
    order.insert(target, source)
    return transpose(x, tuple(order))


def add_batch_dim(x: Any, size: int, target: int = 0) -> Any:
    """Repeat `x` along a new dim of size `size` at position `target`."""
    aval = typeof(x)
    shape = aval.shape[:target] + (size,) + aval.shape[target:]
    return broadcast_in_dim(x, shape, tuple(d for d in range(len(shape)) if d != target))


def to_dim(x: Any, dim: int | None, axis: BatchAxis, target: int) -> Any:
    """Move the batch dim `dim` of `x` to position `target`; if it is None, repeat `x` along a new dim there."""
    return add_batch_dim(x, axis.size, target) if dim is None else move_dim(x, dim, target)


def batch_jaxpr(
    jaxpr: Jaxpr,
    axis: BatchAxis,
    in_batched: tuple[bool, ...],
    force_out: bool | tuple[bool, ...] = False,
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """Map `jaxpr` over dim 0 of the inputs marked in `in_batched`; return the program and for each of its results whether it is batched.

    Batched results have the batch dim 0. `force_out` is the results, or True for all, that must be batched.
    """
    force = (force_out,) * len(jaxpr.outvars) if isinstance(force_out, bool) else tuple(force_out)

    def make():
        out_batched: list[bool] = []

        def run(*args: Any) -> list[Any]:
            outs, dims = batch_flat(
                lambda *xs: evaluate(jaxpr, *xs), axis, args, [0 if b else None for b in in_batched]
            )
            batched = [d is not None or f for d, f in zip(dims, force)]
            out_batched.extend(batched)
            return [to_dim(o, d, axis, 0) if b else o for o, d, b in zip(outs, dims, batched)]

        avals = [
            a.with_dim(0, axis.size, axis.explicit_axes) if b else a
            for a, b in zip(jaxpr.in_avals, in_batched)
        ]
        return stage(run, avals, jaxpr.name), tuple(out_batched)

    return jaxpr.memo(("batch", axis, in_batched, force), make)
