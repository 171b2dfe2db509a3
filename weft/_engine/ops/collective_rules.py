"""Primitives of collectives, with one record each (`ir.collective_spec`).

In:   equations that the functions of `ops.collectives`, shard_map or the partitioner bind.
Out:  the primitives, and their records in `COLLECTIVES`.
Laws: several axes count as one, with the first one as the major one. A collective is not defined on
      a single array. Its batch rule over one of its axes defines it: the rule replaces it by
      ordinary operations on the dim of that axis, and the other axes remain bound. A result that is
      equal at all positions has no such dim. Groups of positions along an axis act as a finer axis:
      the rule splits the dim into groups and members, and the collective works over the members.
      Where types track the axes over which a value varies, operands of a collective vary over all
      of its axes, and each type rule computes the axes of its result. Transposes follow these
      types. Elsewhere every position has its own copy of a result, and the cotangents of copies are
      added.
Next: `docs/adding-a-collective.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import (
    BatchAxis,
    CollectiveOp,
    Primitive,
    declare_unsupported,
    registry,
)
from weft._engine.core.trace import Zero, axis_env_size, find_tracked_axes, typeof
from weft._engine.ir.collective_spec import CollectiveSpec, collective_axes, register
from weft._engine.ir.factors import RuleBuilder, elementwise_rule
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.collective_blocks import (
    Axes,
    Perm,
    block_dims,
    check_blocks,
    diagonal,
    other_axes,
    permute_rows,
    position_block,
    regroup,
    take_rows,
)
from weft._engine.ops.dynamic_slicing import dynamic_slice_in_dim, dynamic_update_slice_in_dim
from weft._engine.ops.elementwise import add, convert_element_type, div, eq, mul, select_n
from weft._engine.ops.families import (
    NUMBER,
    ORDERED,
    check_dtype,
    move_dim,
    zero_tangent,
    zeros,
)
from weft._engine.ops.layout import iota, reshape, squeeze
from weft._engine.ops.reduce import reduce_max_p, reduce_min_p, reduce_sum, reduce_sum_p
from weft._engine.ops.rule_helpers import batch_dim_to_front, jointly_linear
from weft._engine.ops.slicing import concatenate, slice_in_dim
from weft._engine.util import dtypes

if TYPE_CHECKING:
    from weft._engine.core.trace import UndefPrimal
    from weft._engine.ops.collective_blocks import Groups
    from weft._engine.ops.rule_types import Avals, BatchDims, NumPyArray, Value, Values

_NO_REFERENCE = "A collective is not defined on one array; stack the mesh axes first."
_NO_KERNEL = "Collectives become ordinary operations when the mesh axes are stacked."


def collective(spec: CollectiveSpec, **slots: Any) -> Primitive:
    """Return the primitive of a collective; its slots come from its record or from `slots`."""
    p = CollectiveOp(spec.name, is_exact=spec.to_apply != "add")
    p.define(
        collective=spec,
        type=spec.type,
        factors=spec.factors or _factors(spec),
        reference=declare_unsupported(_NO_REFERENCE),
        batch=_batch_rule(p, spec),
        lower=declare_unsupported(_NO_KERNEL),
        transpose=spec.transpose or declare_unsupported("is not linear in its operand"),
    )
    if spec.jvp is None:
        jointly_linear(p)
    else:
        p.define(jvp=spec.jvp)
    register(spec)
    return p.define(**slots)


def _factors(spec: CollectiveSpec) -> Callable[..., Any]:
    """Return the factors over other axes; `spec.dims` and added or removed dims stay whole."""

    def factors(in_avals: Avals, out_avals: Avals, **params: Any):
        linear = (0,) if spec.transpose is not None else ()
        if not spec.dims:
            return elementwise_rule(in_avals, out_avals, linear_ins=linear)
        (x,), (out,) = in_avals, out_avals
        b = RuleBuilder()
        touched = {params[n] for n in spec.dims}
        ins = b.add_factors(x.shape)
        outs: list[int] = []
        special: dict[int, str] = {}
        unchanged = [d for d in range(x.ndim) if d not in touched or out.ndim > x.ndim]
        shared = iter(unchanged)
        for d in range(out.ndim):
            whole = d in touched and out.ndim >= x.ndim
            outs.append(b.new(out.shape[d]) if whole else ins[next(shared)])
            if whole:
                special[outs[-1]] = "replicate"
        special.update({ins[d]: "replicate" for d in range(x.ndim) if d not in unchanged})
        return b.rule([ins], [outs], special=special, linear_ins=linear)

    return factors


# --- helpers


def position(axis_name: Axes) -> Any:
    """Return this position's index along the axes, with the first one as the major one."""
    index: Any = None
    for name in axis_name:
        here = axis_index_p.bind(axis_name=name)
        index = here if index is None else add(mul(index, np.int32(axis_env_size(name))), here)
    return np.int32(0) if index is None else index


def _batch_rule(primitive: Primitive, spec: CollectiveSpec) -> Callable[..., Any]:
    """Return the batch rule of a collective of at most one operand, from its rule over one axis."""

    def batch(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
        if axis.name is None or axis.name not in collective_axes(params):
            if not spec.dims:
                return primitive.bind(*args, **params), dims[0] if dims else None
            return primitive.bind(
                batch_dim_to_front(args[0], dims[0], axis.size), **_shift_dims(params, spec.dims)
            ), 0
        if params.get("axis_index_groups") is None:
            return spec.stacked(axis, *args, *dims, **params)
        return _in_groups(
            spec.stacked,
            axis,
            batch_dim_to_front(args[0], dims[0], axis.size),
            _shift_dims(params, spec.dims),
        ), 0

    return batch


def all_but_own_block(nbytes: int, n: int) -> int:
    return nbytes * (n - 1) // n


def _shift_dims(params: dict[str, Any], shifted: Sequence[str]) -> dict[str, Any]:
    """Return `params` with dims shifted for an operand with a new leading dim."""
    return params | {name: params[name] + 1 for name in shifted}


def _in_groups(over: Callable[..., Any], axis: BatchAxis, x: Any, params: dict[str, Any]) -> Any:
    """Apply a collective to `x` within each group; dim numbers in `params` include the leading dim of groups."""
    assert len(collective_axes(params)) == 1, (
        "groups along several axes are exchanged by `bind_over`"
    )
    groups = params["axis_index_groups"]
    order = [i for members in groups for i in members]
    count, size = len(groups), len(groups[0])
    y = permute_rows(x, [(s, d) for d, s in enumerate(order)])
    y = move_dim(reshape(y, (count, size, *typeof(y).shape[1:])), 1, 0)
    y, dim = over(BatchAxis(size, axis.name), y, 0, **params | {"axis_index_groups": None})
    y = move_dim(batch_dim_to_front(y, dim, size), 1, 0)
    return permute_rows(reshape(y, (count * size, *typeof(y).shape[2:])), list(enumerate(order)))


# --- psum, pmax, pmin


def all_reduce(
    name: str,
    reduce: Primitive,
    unbatched: Callable[[Value, int], Value],
    groups: tuple[Any, ...],
    **facts: Any,
) -> Primitive:
    """Return a collective that reduces the values of all positions by `reduce`.

    `unbatched(x, n)` is its result for n equal values `x`. It accepts the dtypes of `groups`;
    `facts` are fields of its record.
    """

    def type_rule(aval: ShapedArray, *, axes: Axes, axis_index_groups: Groups | None):
        check_dtype(name, aval, groups)
        unchanged = not aval.vma or axis_index_groups is not None
        return aval if unchanged else aval.update(vma=aval.vma - frozenset(axes))

    def stacked(
        axis: BatchAxis, x: Value, dim: int | None, *, axes: Axes, axis_index_groups: Groups | None
    ):
        x = reduce.bind(x, axes=(dim,)) if dim is not None else unbatched(x, axis.size)
        other = tuple(a for a in axes if a != axis.name)
        return (p.bind(x, axes=other, axis_index_groups=axis_index_groups) if other else x), None

    def exchange(values: Sequence[NumPyArray], **params: Any):
        return [reduce.reference(np.stack(values), axes=(0,))] * len(values)

    # a reduce_scatter, then an all_gather
    bytes_sent: Callable[[int, int], int] = lambda nbytes, n: 2 * nbytes * (n - 1) // n
    p = collective(
        CollectiveSpec(name, type_rule, stacked, exchange, bytes_sent, hlo="all-reduce", **facts)
    )
    return p


def _multiply_by_size(x: Any, size: int) -> Any:
    return mul(x, np.asarray(size).astype(typeof(x).dtype)[()])


def _psum_transpose(ct: Value, x: UndefPrimal, *, axes: Axes, axis_index_groups: Groups | None):
    if axis_index_groups is not None:
        return [psum_p.bind(ct, axes=axes, axis_index_groups=axis_index_groups)]
    # if types track an axis, the result's cotangent is one value for all positions; else the
    # cotangents of the positions' copies are added
    tracked = tuple(a for a in axes if a in x.aval.vma)
    copied = tuple(a for a in axes if a not in x.aval.vma)
    if tracked:
        ct = pvary_p.bind(ct, axes=tracked)
    return [psum_p.bind(ct, axes=copied, axis_index_groups=None) if copied else ct]


def _extremum_jvp(name: str) -> Callable[..., tuple[Value, Value]]:
    """Return the jvp of the collective `name`: the mean tangent of positions at the extremum."""

    def jvp(primals: Values, tangents: Values, **params: Any):
        out = registry[name].bind(*primals, **params)
        zero = zero_tangent(out)
        if type(tangents[0]) is Zero or zero.aval.dtype == dtypes.float0:
            return out, zero
        attained = convert_element_type(eq(primals[0], out), typeof(out).dtype)
        total = psum_p.bind(mul(tangents[0], attained), **params)
        return out, div(total, psum_p.bind(attained, **params))

    return jvp


psum_p = all_reduce(
    "psum",
    reduce_sum_p,
    _multiply_by_size,
    NUMBER,
    completes=("add",),
    to_apply="add",
    transpose=_psum_transpose,
)
_keep: Callable[[Value, int], Value] = lambda x, n: x
pmax_p = all_reduce(
    "pmax", reduce_max_p, _keep, ORDERED,
    completes=("max", "or"), to_apply="maximum", jvp=_extremum_jvp("pmax"))  # fmt: skip
pmin_p = all_reduce(
    "pmin", reduce_min_p, _keep, ORDERED,
    completes=("min", "and"), to_apply="minimum", jvp=_extremum_jvp("pmin"))  # fmt: skip


# --- pvary


def _pvary_type(aval: ShapedArray, *, axes: Axes):
    return aval.update(vma=aval.vma | frozenset(axes))


def _pvary(axis: BatchAxis, x: Value, dim: int | None, *, axes: Axes):
    other = tuple(a for a in axes if a != axis.name)
    return (pvary_p.bind(x, axes=other) if other else x), dim


def _pvary_transpose(ct: Value, x: UndefPrimal, *, axes: Axes):
    return [psum_p.bind(ct, axes=axes, axis_index_groups=None)]


def _exchange_nothing(values: Sequence[NumPyArray], **params: Any):
    return values


pvary_p = collective(
    CollectiveSpec(
        "pvary", _pvary_type, _pvary, _exchange_nothing, transpose=_pvary_transpose, hlo="copy"
    )
)
pvary_p.casts = True


# --- pcast


def _pcast_type(aval: ShapedArray, *, axes: Axes, to: Any):
    cast = frozenset(axes)
    unreduced, reduced = aval.vma_unreduced - cast, aval.vma_reduced - cast
    return aval.update(
        vma_unreduced=unreduced | cast if to == "unreduced" else unreduced,
        vma_reduced=reduced | cast if to == "reduced" else reduced,
    )


def _pcast(axis: BatchAxis, x: Value, dim: int | None, *, axes: Axes, to: str):
    other = tuple(a for a in axes if a != axis.name)
    return (pcast_p.bind(x, axes=other, to=to) if other else x), dim


def _pcast_transpose(ct: Value, x: UndefPrimal, *, axes: Axes, to: Any):
    aval = x.aval
    if to == "reduced" and not aval.vma_reduced.intersection(axes):
        return [ct]  # terms of a sum, which is computed where the value was one for all positions
    for kind, those in (
        ("unreduced", aval.vma_reduced),
        ("reduced", aval.vma_unreduced),
        ("varying", aval.vma - aval.vma_unreduced - aval.vma_reduced),
    ):
        ct = cast_varying(ct, tuple(a for a in axes if a in those), kind)
    return [ct]


#: params: axes, over which the operand varies, and to: varying, unreduced or reduced. The result is
#: the operand with that type.
pcast_p = collective(
    CollectiveSpec(
        "pcast",
        _pcast_type,
        _pcast,
        _exchange_nothing,
        transpose=_pcast_transpose,
        hlo="copy",
    )
)
pcast_p.casts = True


def cast_varying(x: Any, axes: Axes, to: str) -> Any:
    """Return `x`, which varies over the tracked axes, typed over them as `to`."""
    aval = typeof(x)
    axes = tuple(a for a in axes if a in aval.vma)
    return (
        x
        if not axes or aval is _pcast_type(aval, axes=axes, to=to)
        else pcast_p.bind(x, axes=axes, to=to)
    )


# --- all_gather


def _gathered_type(
    aval: ShapedArray,
    *,
    all_gather_dimension: int,
    axis_name: Axes,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups | None = None,
):
    shape = list(aval.shape)
    if tiled:
        shape[all_gather_dimension] *= axis_size
    else:
        shape.insert(all_gather_dimension, axis_size)
    return aval.update(shape=tuple(shape), sharding=None)


def _all_gather_invariant_type(aval: ShapedArray, *, axis_name: Axes, **params: Any):
    return _gathered_type(aval, axis_name=axis_name, **params).update(
        vma=aval.vma - frozenset(axis_name)
    )


def _gather(
    primitive: Primitive,
    axis: BatchAxis,
    x: Value,
    dim: int | None,
    *,
    all_gather_dimension: int,
    axis_name: Axes,
    axis_size: int,
    tiled: bool,
    **groups: Any,
):
    x = batch_dim_to_front(x, dim, axis.size)
    other, major, minor = other_axes(axis_name, axis.name)
    shape = typeof(x).shape[1:]
    if other:
        x = primitive.bind(
            x,
            all_gather_dimension=0,
            axis_name=other,
            axis_size=major * minor,
            tiled=False,
            **groups,
        )
    labels = ["major", "minor", "own", *range(len(shape))]
    gathered = ["major", "own", "minor"]
    parts: list[list[Any]] = [[d] for d in range(len(shape))]
    if tiled:
        parts[all_gather_dimension] = [*gathered, all_gather_dimension]
    else:
        parts.insert(all_gather_dimension, gathered)
    return regroup(x, labels, [major, minor, axis.size, *shape], parts), None


def _exchange_gathered(
    values: Sequence[NumPyArray], *, all_gather_dimension: int, tiled: bool, **params: Any
):
    return [(np.concatenate if tiled else np.stack)(values, all_gather_dimension)] * len(values)


def _gathered_bytes(nbytes: int, n: int) -> int:
    return nbytes * (n - 1)  # every block passes through every device


def _all_gather_transpose(ct: Value, x: UndefPrimal, *, all_gather_dimension: int, **params: Any):
    return [reduce_scatter_p.bind(ct, scatter_dimension=all_gather_dimension, **params)]


def _all_gather_invariant_transpose(
    ct: Value,
    x: UndefPrimal,
    *,
    all_gather_dimension: int,
    axis_name: Axes,
    axis_size: int,
    tiled: bool,
):
    # the cotangent is one value for all positions; each position takes the part of its operand
    own = own_slice_p.bind(ct, axis_name=axis_name, axis_size=axis_size, dim=all_gather_dimension)
    return [own if tiled else squeeze(own, (all_gather_dimension,))]


all_gather_p = collective(CollectiveSpec(
    "all_gather", _gathered_type, lambda *args, **params: _gather(all_gather_p, *args, **params), _exchange_gathered,
    _gathered_bytes, dims=("all_gather_dimension",), transpose=_all_gather_transpose, hlo="all-gather"))  # fmt: skip
all_gather_invariant_p = collective(CollectiveSpec(
    "all_gather_invariant", _all_gather_invariant_type, lambda *args, **params: _gather(all_gather_invariant_p, *args, **params),
    _exchange_gathered, _gathered_bytes, dims=("all_gather_dimension",), transpose=_all_gather_invariant_transpose,
    hlo="all-gather", kind="all_gather"))  # fmt: skip


# --- reduce_scatter


def _reduce_scatter_type(
    aval: ShapedArray,
    *,
    scatter_dimension: int,
    axis_name: Axes,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups | None,
):
    shape = list(aval.shape)
    check_blocks("reduce_scatter", aval, scatter_dimension, axis_size, tiled)
    if tiled:
        shape[scatter_dimension] //= axis_size
    else:
        del shape[scatter_dimension]
    return aval.update(shape=tuple(shape), sharding=None)


def _reduce_scatter(
    axis: BatchAxis,
    x: Value,
    dim: int | None,
    *,
    scatter_dimension: int,
    axis_name: Axes,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups | None,
):
    total = reduce_sum(x, (dim,)) if dim is not None else _multiply_by_size(x, axis.size)
    on_rest: Callable[[Value, Axes, int], Value] = lambda y, rest, n: reduce_scatter_p.bind(
        y,
        scatter_dimension=1,
        axis_name=rest,
        axis_size=n,
        tiled=False,
        axis_index_groups=axis_index_groups,
    )
    return position_block(total, axis, axis_name, scatter_dimension, tiled, on_rest), 0


def _reduce_scatter_transpose(ct: Value, x: UndefPrimal, *, scatter_dimension: int, **params: Any):
    return [all_gather_p.bind(ct, all_gather_dimension=scatter_dimension, **params)]


def _exchange_scattered(
    values: Sequence[NumPyArray], *, scatter_dimension: int, tiled: bool, **params: Any
):
    total = reduce_sum_p.reference(np.stack(values), axes=(0,))
    parts = np.split(total, len(values), scatter_dimension)
    return parts if tiled else [y.squeeze(scatter_dimension) for y in parts]


reduce_scatter_p = collective(CollectiveSpec(
    "reduce_scatter", _reduce_scatter_type, _reduce_scatter, _exchange_scattered, all_but_own_block,
    dims=("scatter_dimension",), transpose=_reduce_scatter_transpose, hlo="reduce-scatter", to_apply="add",
    aliases=("psum_scatter",)))  # fmt: skip


# --- own_slice


def _own_slice_type(aval: ShapedArray, *, axis_name: Axes, axis_size: int, dim: int):
    check_blocks("own_slice", aval, dim, axis_size, True)
    shape = list(aval.shape)
    shape[dim] //= axis_size
    return aval.update(
        shape=tuple(shape),
        sharding=None,
        vma=aval.vma | find_tracked_axes().intersection(axis_name),
    )


def _own_slice(
    axis: BatchAxis, x: Value, batch_dim: int | None, *, axis_name: Axes, axis_size: int, dim: int
):
    on_rest: Callable[[Value, Axes, int], Value] = lambda y, rest, n: squeeze(
        own_slice_p.bind(y, axis_name=rest, axis_size=n, dim=1), (1,)
    )
    if batch_dim is None:
        return position_block(x, axis, axis_name, dim, True, on_rest), 0
    # every position takes its block from its own value: the diagonal of positions and blocks
    x = move_dim(x, batch_dim, 0)
    other, major, minor = other_axes(axis_name, axis.name)
    labels, sizes = block_dims(typeof(x).shape[1:], dim, major, axis.size, minor, True)
    dims = [label for label in labels if isinstance(label, int)]
    y = regroup(
        x,
        ["all", *labels],
        [axis.size, *sizes],
        [["all"], ["own"], ["major", "minor"], *[[k] for k in dims]],
    )
    y = diagonal(y, axis.size)
    return (on_rest(y, other, major * minor) if other else squeeze(y, (1,))), 0


def _own_slice_transpose(ct: Value, x: UndefPrimal, *, axis_name: Axes, axis_size: int, dim: int):
    aval = x.aval
    # axes over which the operand is one value: cotangents of blocks are gathered or summed
    shared = tuple(a for a in axis_name if a in find_tracked_axes() and a not in aval.vma)
    if shared == axis_name:
        return [
            all_gather_invariant_p.bind(
                ct, all_gather_dimension=dim, axis_name=axis_name, axis_size=axis_size, tiled=True
            )
        ]
    start = mul(position(axis_name), np.int32(aval.shape[dim] // axis_size))
    placed = dynamic_update_slice_in_dim(zeros(aval.update(vma=frozenset())), ct, start, dim)
    return [psum_p.bind(placed, axes=shared, axis_index_groups=None) if shared else placed]


def _exchange_sliced(values: Sequence[NumPyArray], *, dim: int, **params: Any):
    return [np.split(x, len(values), dim)[i] for i, x in enumerate(values)]


own_slice_p = collective(CollectiveSpec("own_slice", _own_slice_type, _own_slice, _exchange_sliced, dims=("dim",),
                                        transpose=_own_slice_transpose, hlo="dynamic-slice"))  # fmt: skip


# --- all_to_all


def _all_to_all_type(
    aval: ShapedArray,
    *,
    split_axis: int,
    concat_axis: int,
    axis_name: Axes,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups | None,
):
    check_blocks("all_to_all", aval, split_axis, axis_size, True)
    shape = list(aval.shape)
    shape[split_axis] //= axis_size
    shape[concat_axis] *= axis_size
    return aval.update(shape=tuple(shape), sharding=None)


def _all_to_all(
    axis: BatchAxis,
    x: Value,
    dim: int | None,
    *,
    split_axis: int,
    concat_axis: int,
    axis_name: Axes,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups | None,
):
    x = batch_dim_to_front(x, dim, axis.size)
    other, major, minor = other_axes(axis_name, axis.name)
    labels, sizes = block_dims(typeof(x).shape[1:], split_axis, major, axis.size, minor, True)
    inner = [label for label in labels if isinstance(label, int)]
    # the block index becomes the position, and the position becomes the index of the sender
    x = regroup(
        x,
        ["sender", *labels],
        [axis.size, *sizes],
        [["own"], ["sender"], ["major", "minor"], *[[d] for d in inner]],
    )
    if other:
        x = all_to_all_p.bind(
            x,
            split_axis=2,
            concat_axis=2,
            axis_name=other,
            axis_size=major * minor,
            tiled=True,
            axis_index_groups=axis_index_groups,
        )
    size_of = dict(zip(labels, sizes))
    labels = ["own", "sender", "major", "minor", *inner]
    sizes = [axis.size, axis.size, major, minor, *[size_of[d] for d in inner]]
    groups = [
        ["own"],
        *[["major", "sender", "minor", d] if d == concat_axis else [d] for d in inner],
    ]
    return regroup(x, labels, sizes, groups), 0


def _all_to_all_transpose(
    ct: Value, x: UndefPrimal, *, split_axis: int, concat_axis: int, **params: Any
):
    return [all_to_all_p.bind(ct, split_axis=concat_axis, concat_axis=split_axis, **params)]


def _exchange_blocks(
    values: Sequence[NumPyArray], *, split_axis: int, concat_axis: int, **params: Any
):
    sent = [np.split(x, len(values), split_axis) for x in values]
    return [np.concatenate(received, concat_axis) for received in zip(*sent)]


all_to_all_p = collective(CollectiveSpec(
    "all_to_all", _all_to_all_type, _all_to_all, _exchange_blocks, all_but_own_block, dims=("split_axis", "concat_axis"),
    transpose=_all_to_all_transpose, hlo="all-to-all"))  # fmt: skip


# --- ppermute


def _ppermute_type(aval: ShapedArray, *, axis_name: Axes, perm: Perm):
    return aval


def _ppermute_transpose(ct: Value, x: UndefPrimal, *, axis_name: Axes, perm: Perm):
    return [ppermute_p.bind(ct, axis_name=axis_name, perm=tuple((d, s) for s, d in perm))]


def _ppermute(axis: BatchAxis, x: Value, dim: int | None, *, axis_name: Axes, perm: Perm):
    other, major, minor = other_axes(axis_name, axis.name)
    if dim is None and not other and len(perm) == axis.size:
        return x, None  # all positions send and receive the same value
    x = batch_dim_to_front(x, dim, axis.size)
    if not other:
        return permute_rows(x, perm), 0
    own: Callable[[int], int] = lambda i: i // minor % axis.size
    others: Callable[[int], int] = lambda i: i // (minor * axis.size) * minor + i % minor
    moves: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for s, d in perm:
        moves.setdefault((own(s), own(d)), []).append((others(s), others(d)))
    plans = {tuple(sorted(pairs)) for pairs in moves.values()}
    if len(plans) == 1 and len({s for s, _ in moves}) == len({d for _, d in moves}) == len(moves):
        (plan,) = plans  # the moves along the other axes are the same for all pairs
        y, stays = permute_rows(x, tuple(moves)), all(s == d for s, d in plan)
        if not stays or len(plan) != major * minor:
            y = ppermute_p.bind(y, axis_name=other, perm=plan)
        return y, 0
    return _moved_by_others(axis, x, other, major * minor, moves), 0


def _moved_by_others(
    axis: BatchAxis,
    x: Any,
    rest: Axes,
    count: int,
    moves: dict[tuple[int, int], list[tuple[int, int]]],
) -> Any:
    """Permute the rows of `x`: `moves` maps (source row, target row) to (sender, receiver) pairs of positions of the axes `rest`."""
    if len({d for _, d in moves}) < len(moves):
        return _select_arriving_rows(x, rest, count, moves)
    rows = [zeros(typeof(slice_in_dim(x, 0, 1)))] * axis.size
    for (s, d), pairs in moves.items():
        rows[d] = ppermute_p.bind(slice_in_dim(x, s, s + 1), axis_name=rest, perm=tuple(pairs))
    return concatenate(rows, 0)


def _select_arriving_rows(
    x: Any, rest: Axes, count: int, moves: dict[tuple[int, int], list[tuple[int, int]]]
) -> Any:
    """Return the rows that arrive here, selected from a gather of all rows of all positions."""
    size, *shape = typeof(x).shape
    # an index out of bounds reads zeros
    table = np.full((count, size), count * size, np.int32)
    for (s, d), pairs in moves.items():
        for there, here in pairs:
            table[here, d] = there * size + s
    everything = all_gather_p.bind(
        x, all_gather_dimension=0, axis_name=rest, axis_size=count, tiled=False
    )
    numbers = reshape(dynamic_slice_in_dim(table, position(rest), 1), (size,))
    return take_rows(reshape(everything, (count * size, *shape)), numbers)


def _exchange_permuted(values: Sequence[NumPyArray], *, perm: Perm, **params: Any):
    source = {d: s for s, d in perm}
    return [values[source[i]] if i in source else np.zeros_like(x) for i, x in enumerate(values)]


ppermute_p = collective(CollectiveSpec("ppermute", _ppermute_type, _ppermute, _exchange_permuted, lambda nbytes, n: nbytes,
                                       transpose=_ppermute_transpose, hlo="collective-permute"))  # fmt: skip


# --- pbroadcast


def _pbroadcast_type(aval: ShapedArray, *, axis_name: Axes, source: int):
    return aval


def _pbroadcast(axis: BatchAxis, x: Value, dim: int | None, *, axis_name: Axes, source: int):
    other, _, minor = other_axes(axis_name, axis.name)
    if dim is not None:
        own = source // minor % axis.size
        x = squeeze(slice_in_dim(x, own, own + 1, axis=dim), (dim,))
    others = source // (minor * axis.size) * minor + source % minor
    return (pbroadcast_p.bind(x, axis_name=other, source=others) if other else x), None


def _pbroadcast_transpose(ct: Value, x: UndefPrimal, *, axis_name: Axes, source: int):
    total = psum_p.bind(ct, axes=axis_name, axis_index_groups=None)
    return [select_n(eq(position(axis_name), np.int32(source)), zeros(typeof(total)), total)]


def _exchange_broadcast(values: Sequence[NumPyArray], *, source: int, **params: Any):
    return [values[source]] * len(values)


pbroadcast_p = collective(
    CollectiveSpec(
        "pbroadcast",
        _pbroadcast_type,
        _pbroadcast,
        _exchange_broadcast,
        lambda nbytes, n: nbytes,
        transpose=_pbroadcast_transpose,
        hlo="collective-broadcast",
    )
)


# --- axis_index


def _axis_index_type(*, axis_name: Axes):
    return ShapedArray((), np.dtype(np.int32), vma=find_tracked_axes().intersection((axis_name,)))


def _axis_index_jvp(primals: Values, tangents: Values, *, axis_name: Axes):
    out = axis_index_p.bind(axis_name=axis_name)
    return out, zero_tangent(out)


def _axis_index(axis: BatchAxis, *, axis_name: Axes):
    return iota(np.int32, axis.size), 0


def _number_positions(values: Sequence[NumPyArray], **params: Any):
    return [np.asarray(i, np.int32) for i in range(len(values))]


def _axis_index_factors(in_avals: Avals, out_avals: Avals, **params: Any):
    return RuleBuilder().rule([], [[]])


axis_index_p = collective(
    CollectiveSpec(
        "axis_index",
        _axis_index_type,
        _axis_index,
        _number_positions,
        factors=_axis_index_factors,
        jvp=_axis_index_jvp,
        hlo="partition-id",
    ),
    transpose=declare_unsupported("has no operand"),
    several=position,
)
