"""Cost rules of operations, by operation or family.

In:   an equation: its context, the shapes of its operands, and its parameters.
Out:  its `RooflineResult`, without a peak, which depends on the enclosing program.
Laws: a rule of `register_roofline` takes precedence. Operations that only rearrange, convert or create elements cost
      nothing: their reads and writes count for their consumers. An operation without a rule costs nothing either.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.core.primitive import CollectiveOp, Primitive
from weft._engine.ir.collective_spec import collective_axes, spec_of
from weft._engine.ops.conv_products import products_along
from weft._engine.ops.convolution import conv_dimension_numbers
from weft._engine.ops.indexing import GatherScatterMode
from weft.experimental.roofline.records import RooflineResult, RooflineRuleContext, RooflineShape

__all__ = ["register_roofline", "register_standard_roofline"]

Rule = Callable[..., RooflineResult]

#: rules registered by users
_GIVEN: dict[Primitive, Rule] = {}


def register_roofline(prim: Primitive) -> Callable[[Rule], Rule]:
    """Decorator: register the cost rule of an operation, replacing any previous rule.

    The rule is called with a `RooflineRuleContext`, a `RooflineShape` for each operand, and the parameters of the operation
    by name. It returns a `RooflineResult`.

    >>> from weft.experimental import roofline
    >>> double_p = weft.extend.core.Primitive("double")
    >>> _ = double_p.def_abstract_eval(lambda x: x)
    >>> @register_roofline(double_p)
    ... def cost(ctx, x):
    ...     return roofline.RooflineResult(unfused_flops=x.size, unfused_hbm_bytes=2 * x.bytes)
    >>> roofline.roofline(double_p.bind)(wnp.ones(8))[1].unfused_flops
    8
    """

    def register(rule: Rule) -> Rule:
        _GIVEN[prim] = rule
        return rule

    return register


def register_standard_roofline(prim: Primitive) -> None:
    """Register an operation as free of cost."""
    _GIVEN[prim] = _nothing


def given_rule(primitive: Primitive) -> Rule | None:
    """Return the rule that a user registered for an operation, or None."""
    return _GIVEN.get(primitive)


def kind_rule(primitive: Primitive) -> Rule | None:
    """Return the rule of an operation or of its family; None if there is none."""
    if isinstance(primitive, CollectiveOp) and spec_of(primitive).is_local:
        return _nothing
    return _OPERATIONS.get(primitive.name) or _KINDS.get(primitive.kind)


# ---- computation and memory


def _nothing(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    return RooflineResult()


def _traffic(ctx: RooflineRuleContext) -> int:
    """Return the number of bytes of all operands and results."""
    return RooflineShape.total_bytes((*ctx.avals_in, *ctx.avals_out))


def _elementwise(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    """Count one operation per element. A select reads the condition, and one of the cases for each element.

    Random bits, the only case with several results, are created where they are used.
    """
    operation = ctx.primitive.computes
    if operation in ("cast", "bitcast", "copy") or ctx.primitive.multiple_results:
        return RooflineResult()
    out = RooflineShape.from_aval(ctx.avals_out[0])
    return RooflineResult(
        unfused_flops=out.size,
        unfused_hbm_bytes=shapes[0].bytes + out.bytes if operation == "select" else _traffic(ctx),
    )


def _reduce(
    ctx: RooflineRuleContext, x: RooflineShape, *rest: RooflineShape, **params: Any
) -> RooflineResult:
    """Count n - 1 operations for each element of the result, where n elements are combined."""
    return RooflineResult(
        unfused_flops=max(x.size - RooflineShape.from_aval(ctx.avals_out[0]).size, 0),
        unfused_hbm_bytes=_traffic(ctx),
    )


def _scan(
    ctx: RooflineRuleContext, x: RooflineShape, *, axis: int, each: int = 1, **params: Any
) -> RooflineResult:
    """Count `each` operations per element along the axis."""
    return RooflineResult(unfused_flops=each * x.shape[axis], unfused_hbm_bytes=_traffic(ctx))


def _contract(
    ctx: RooflineRuleContext,
    lhs: RooflineShape,
    rhs: RooflineShape,
    *,
    dimension_numbers: Any,
    **params: Any,
) -> RooflineResult:
    """Count a multiplication and an addition for each element of the result and each position along the contracted dims."""
    out = RooflineShape.from_aval(ctx.avals_out[0])
    (contracted, _), _ = dimension_numbers
    flops = 2 * out.size * math.prod(lhs.shape[d] for d in contracted)
    nbytes = (0 if ctx.pin_lhs_in_vmem else lhs.bytes + out.bytes) + (
        0 if ctx.pin_rhs_in_vmem else rhs.bytes
    )
    return RooflineResult(
        flops=flops, unfused_flops=flops, hbm_bytes=nbytes, unfused_hbm_bytes=nbytes
    )


def _ragged(
    ctx: RooflineRuleContext,
    lhs: RooflineShape,
    rhs: RooflineShape,
    *places: RooflineShape,
    **params: Any,
) -> RooflineResult:
    """Count each row times the matrix of one group, or times the columns of one row."""
    out = RooflineShape.from_aval(ctx.avals_out[0])
    flops, nbytes = 2 * lhs.size * rhs.shape[-1], sum(x.bytes for x in (lhs, rhs, *places, out))
    return RooflineResult(
        flops=flops, unfused_flops=flops, hbm_bytes=nbytes, unfused_hbm_bytes=nbytes
    )


def _conv(
    ctx: RooflineRuleContext,
    lhs: RooflineShape,
    rhs: RooflineShape,
    *,
    dimension_numbers: Any,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    **params: Any,
) -> RooflineResult:
    """Count a multiplication and an addition for each product without padding."""
    out = RooflineShape.from_aval(ctx.avals_out[0])
    x_dims, w_dims, out_dims = conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    products = out.shape[out_dims[0]] * out.shape[out_dims[1]] * rhs.shape[w_dims[1]]
    for k, (low, _) in enumerate(padding):
        products *= products_along(
            lhs.shape[x_dims[2 + k]],
            rhs.shape[w_dims[2 + k]],
            out.shape[out_dims[2 + k]],
            low,
            window_strides[k],
            lhs_dilation[k],
            rhs_dilation[k],
        )
    return RooflineResult(unfused_flops=2 * products, unfused_hbm_bytes=_traffic(ctx))


def _sort(
    ctx: RooflineRuleContext,
    x: RooflineShape,
    *rest: RooflineShape,
    dimension: int | None = None,
    axis: int = -1,
    **params: Any,
) -> RooflineResult:
    """Count the comparisons of a merge sort of each row: one per element and level."""
    n = x.shape[axis if dimension is None else dimension]
    return RooflineResult(
        unfused_flops=x.size * max(n - 1, 0).bit_length(), unfused_hbm_bytes=_traffic(ctx)
    )


def _fft(
    ctx: RooflineRuleContext, x: RooflineShape, *, fft_lengths: Sequence[int], **params: Any
) -> RooflineResult:
    """Count five operations per element and level of a radix-2 transform."""
    size = max(x.size, RooflineShape.from_aval(ctx.avals_out[0]).size)
    return RooflineResult(
        unfused_flops=int(5 * size * math.log2(max(math.prod(fft_lengths), 1))),
        unfused_hbm_bytes=_traffic(ctx),
    )


def _index(
    ctx: RooflineRuleContext,
    x: RooflineShape,
    *rest: RooflineShape,
    mode: Any = None,
    **params: Any,
) -> RooflineResult:
    """Count a read and a write of the selected elements or the replaced window; the rest of the operand is not touched.

    If elements outside are filled, every index is compared with two limits, the comparisons are combined twice, and every
    element of the result is selected.
    """
    if ctx.primitive.overwrites:
        return RooflineResult(unfused_hbm_bytes=rest[0].bytes + sum(shape.bytes for shape in rest))
    out = RooflineShape.from_aval(ctx.avals_out[0])
    filled = mode == GatherScatterMode.FILL_OR_DROP
    return RooflineResult(
        unfused_flops=4 * rest[0].size + out.size if filled else 0,
        unfused_hbm_bytes=2 * out.bytes + sum(shape.bytes for shape in rest),
    )


def _scatter(
    ctx: RooflineRuleContext,
    x: RooflineShape,
    indices: RooflineShape,
    updates: RooflineShape,
    combines: bool = True,
    **params: Any,
) -> RooflineResult:
    """Count a read of the updates, and a read and a write of the updated elements; one operation combines two elements."""
    return RooflineResult(
        unfused_flops=updates.size if combines else 0,
        unfused_hbm_bytes=3 * updates.bytes + indices.bytes,
    )


def _callback(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    """Count the transfer of operands to the host and of results from the host."""
    return RooflineResult(unfused_hbm_bytes=_traffic(ctx))


# ---- the network: mesh axes are rings of devices, with one link between neighbors


def _on_axes(
    ctx: RooflineRuleContext, axes: Sequence[str], nbytes: float, hops: float
) -> RooflineResult:
    return RooflineResult(
        ici_bytes=dict.fromkeys(axes, int(nbytes)), ici_latency=dict.fromkeys(axes, int(hops))
    )


def _sizes(ctx: RooflineRuleContext, axes: Sequence[str]) -> list[int]:
    if ctx.mesh is None:
        raise ValueError(
            f"roofline: {ctx.primitive.name} over {', '.join(map(repr, axes))} needs a mesh; pass `mesh`, or call it "
            "inside `shard_map`."
        )
    return [ctx.mesh.shape[axis] for axis in axes]


def _ring(
    ctx: RooflineRuleContext, axes: Sequence[str], nbytes: float, passes: int = 1
) -> RooflineResult:
    """Return the cost of gathering blocks of `nbytes` around the rings, or of the reverse, `passes` times.

    The block is divided by the number of axes, so that all their links are busy; every part then passes along one axis
    after another, the longest first, and grows by the size of the axis each time.
    """
    sizes = sorted(_sizes(ctx, axes), reverse=True)
    if math.prod(sizes) == 1:
        return _on_axes(ctx, axes, 0, 0)
    part, sent = nbytes // len(axes), 0.0
    for n in sizes:
        sent += part * (n - 1)
        part *= n
    return passes * _on_axes(ctx, axes, sent, sizes[0] * len(axes))


def _all_gather(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    return _ring(ctx, collective_axes(params), sum(x.bytes for x in shapes))


def _cost_of_reduction(passes: int) -> Rule:
    """Return the rule of a reduction whose result stays divided among the devices, unless a second pass gathers it."""

    def rule(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
        axes = collective_axes(params)
        return _ring(ctx, axes, sum(x.bytes for x in shapes) / math.prod(_sizes(ctx, axes)), passes)

    return rule


def _extreme(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    """Count a gather of one element per operand: largest and smallest values are computed of scalars."""
    return _ring(ctx, collective_axes(params), sum(x.dtype.itemsize for x in shapes))


def _all_to_all(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    """Count half of the data across the middle of the shortest axis: one link per row of devices, two if the ring is closed."""
    axes = collective_axes(params)
    sizes = _sizes(ctx, axes)
    if math.prod(sizes) == 1:
        return _on_axes(ctx, axes, 0, 0)
    links = min(sizes) ** (len(sizes) - 1) * (2 if min(sizes) > 2 else 1)
    return _on_axes(
        ctx,
        axes,
        sum(x.bytes for x in shapes) * math.prod(sizes) / 2 / links,
        sum(n / 2 for n in sizes),
    )


def _ppermute(
    ctx: RooflineRuleContext, *shapes: RooflineShape, perm: Sequence[tuple[int, int]], **params: Any
) -> RooflineResult:
    """Count the shorter way of each block along one axis after another; the busiest link determines the time."""
    axes = collective_axes(params)
    sizes = _sizes(ctx, axes)
    if math.prod(sizes) == 1:
        return _on_axes(ctx, axes, 0, 0)
    links: Counter = Counter()
    most = 0
    for source, target in perm:
        at, to, hops = (
            [int(i) for i in np.unravel_index(source, sizes)],
            np.unravel_index(target, sizes),
            0,
        )
        for d, n in enumerate(sizes):
            step = 1 if (to[d] - at[d]) % n <= (at[d] - to[d]) % n else -1
            while at[d] != to[d]:
                here = tuple(at)
                at[d] = (at[d] + step) % n
                links[frozenset((here, tuple(at)))] += 1
                hops += 1
        most = max(most, hops)
    return _on_axes(ctx, axes, sum(x.bytes for x in shapes) * max(links.values(), default=0), most)


#: family -> rule; other families have none
_KINDS: dict[str, Rule] = {
    "elementwise": _elementwise,
    "reduce": _reduce,
    "scan": _scan,
    "contract": _contract,
    "ragged": _ragged,
    "conv": _conv,
    "index": _index,
    "scatter": _scatter,
    "callback": _callback,
    **dict.fromkeys(("layout", "slice", "random", "constraint", "barrier", "ref"), _nothing),
}
#: operation -> rule, where the family does not determine the cost
_OPERATIONS: dict[str, Rule] = {
    "cumlogsumexp": functools.partial(_scan, each=2),  # the exponential counts, too
    "scatter": functools.partial(_scatter, combines=False),
    "sort": _sort,
    "top_k": _sort,
    "threefry_sequence": _nothing,
    "fft": _fft,
    "all_gather": _all_gather,
    "all_gather_invariant": _all_gather,
    "reduce_scatter": _cost_of_reduction(1),
    "psum": _cost_of_reduction(2),
    "pmin": _extreme,
    "pmax": _extreme,
    "all_to_all": _all_to_all,
    "ppermute": _ppermute,
}
