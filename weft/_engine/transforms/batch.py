"""Batching: map a program over a new dim of some of its inputs.

Law: `vmap(f)(xs)[i] == f(xs[i])` for every i. A value carries the dim it is mapped over, or None if it is the same for all.
A collective whose axes include the name of the mapped axis becomes an ordinary operation on that dim; this is also how the
compiler turns the program of one device into the program of a whole mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.interpret import evaluate
from weft._engine.core.pair_trace import PairTrace, run_pairs
from weft._engine.core.primitive import BatchAxis, CollectiveOp, Primitive, RegionOp
from weft._engine.core.sharded_types import check
from weft._engine.core.stage import stage
from weft._engine.core.trace import Trace, Tracer, current_trace, derived_trace, typeof
from weft._engine.ir.collective_spec import collective_axes
from weft._engine.ir.jaxpr import Jaxpr, subjaxprs
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import broadcast_in_dim, transpose


class BatchTracer(Tracer):
    """A value mapped over dim `dim` of `value`."""

    __slots__ = ("value", "dim")

    def __init__(self, trace: "BatchTrace", value: Any, dim: int):
        self.owning_trace = trace
        self.value = value
        self.dim = dim

    val = property(
        lambda self: self.value,
        doc="All examples in one array, under the name by which JAX's users look at them.",
    )

    # computed on demand, since most are not asked for their types
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
    __slots__ = ("axis",)

    def __init__(self, parent: Trace, axis: BatchAxis):
        super().__init__(parent)
        self.axis = axis

    @property
    def level(self) -> BatchAxis:
        return self.axis

    def split(self, x: Any) -> tuple[Any, int | None]:
        """(value, dim) of any value."""
        if type(x) is BatchTracer and (x.owning_trace is self or x.owning_trace.axis is self.axis):
            return x.value, x.dim
        return x, None

    def join(self, first: Any, second: int | None) -> Any:
        return first if second is None else BatchTracer(self, first, second)

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        pairs = [self.split(x) for x in args]
        values = [v for v, _ in pairs]
        dims = [d for _, d in pairs]
        if all(d is None for d in dims) and not self.concerns(primitive, params):
            return self.outer.process(primitive, values, params)
        rule = primitive.batch
        check(primitive, args, params, self.axis.splits)
        with derived_trace(self.outer):
            out, out_dim = rule(self.axis, values, dims, **params)
        if primitive.multiple_results:
            return [self.join(v, d) for v, d in zip(out, out_dim)]
        return self.join(out, out_dim)

    def concerns(self, primitive: Primitive, params: dict[str, Any]) -> bool:
        """Whether an equation without mapped operands still depends on the axis by name."""
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


ANY_AXIS = object()


def named_axes(jaxpr: Jaxpr) -> frozenset[Any]:
    """Names of all axes that collectives anywhere in `jaxpr` work over; with `ANY_AXIS` where a derivative rule of its own may do so."""

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
    """Results of flat `fun` mapped over `dims` of `args`, and the dims they are mapped over (None: not mapped)."""
    return run_pairs(
        BatchTrace(current_trace(), axis),
        fun,
        args,
        dims,
        [(axis.name, axis.size)] if axis.name is not None else [],
    )


def move_dim(x: Any, source: int, target: int) -> Any:
    """`x` with dim `source` moved to `target`."""
    if source == target:
        return x
    order = [d for d in range(typeof(x).ndim) if d != source]
    order.insert(target, source)
    return transpose(x, tuple(order))


def add_batch_dim(x: Any, size: int, target: int = 0) -> Any:
    """`x` repeated along a new dim `target` of `size`."""
    aval = typeof(x)
    shape = aval.shape[:target] + (size,) + aval.shape[target:]
    return broadcast_in_dim(x, shape, tuple(d for d in range(len(shape)) if d != target))


def to_dim(x: Any, dim: int | None, axis: BatchAxis, target: int) -> Any:
    """A batched or unbatched value with its batch dim at `target`, repeated if it had none."""
    return add_batch_dim(x, axis.size, target) if dim is None else move_dim(x, dim, target)


def batch_jaxpr(
    jaxpr: Jaxpr,
    axis: BatchAxis,
    in_batched: tuple[bool, ...],
    force_out: bool | tuple[bool, ...] = False,
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """`jaxpr` mapped over dim 0 of its `in_batched` inputs; batched outputs (the second result says which) have it as dim 0.
    `force_out` makes some (or all) outputs batched."""
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
            a.with_dim(0, axis.size, axis.splits) if b else a
            for a, b in zip(jaxpr.in_avals, in_batched)
        ]
        return stage(run, avals, jaxpr.name), tuple(out_batched)

    return jaxpr.memo(("batch", axis, in_batched, force), make)
