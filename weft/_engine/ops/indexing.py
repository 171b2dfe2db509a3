"""Indexing: gather and the scatters, which read or update one window of the operand at each of many
run-time positions.

In:   an operand, integer indices whose last dim holds one position (an entry per dim of
      `start_index_map`), and for scatters the updates, one window per position.
Laws: a window is either completely inside the operand or out of bounds; `mode` defines the
      treatment of windows out of bounds. gather and scatter_add are each other's transposes.
      `operand_batching_dims` correspond one to one to dims of the indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import IndexOp, Primitive, ScatterOp, declare_unsupported
from weft._engine.core.trace import Zero, is_undef, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.symbolic import as_int, is_at_most, min_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import families, windows
from weft._engine.ops.casting import size_as
from weft._engine.ops.elementwise import add, clamp, convert_element_type, div, eq, mul, neg, select
from weft._engine.ops.layout import broadcast_in_dim, iota, reshape, transpose
from weft._engine.ops.lowering_specs import ScatterSpec
from weft._engine.ops.placement import READ_AT
from weft._engine.ops.rule_helpers import aval_of, batch_dim_to_front, jointly_linear, shift_dims
from weft._engine.ops.windows import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from weft._engine.util import dtypes
from weft._engine.util.source import named

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        BatchDims,
        ElementIndex,
        ElementReader,
        Ints,
        NumPyArray,
        Value,
        Values,
    )

gather_p = IndexOp("gather", out_sharding=READ_AT)


# --- the functions


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> Array:
    """Return the windows of `slice_sizes` of `operand` at `start_indices`. `mode` None clips.

    >>> numbers = GatherDimensionNumbers((), (0,), (0,))
    >>> np.asarray(gather(np.array([10, 20, 30]), np.array([[2], [0]]), numbers, (1,))).tolist()
    [30, 10]
    """
    parsed = GatherScatterMode.CLIP if mode is None else GatherScatterMode.from_any(mode)
    if parsed is not GatherScatterMode.FILL_OR_DROP:
        fill_value = None
    elif fill_value is None:
        fill_value = default_fill_value(typeof(operand).dtype)
    elif hasattr(fill_value, "item"):
        fill_value = fill_value.item()
    return gather_p.bind(
        operand,
        start_indices,
        dimension_numbers=_canonical(GatherDimensionNumbers, dimension_numbers),
        slice_sizes=tuple([as_int(s) for s in slice_sizes]),
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        mode=parsed,
        fill_value=fill_value,
    )


def default_fill_value(dtype: np.dtype[Any]) -> Any:
    """Return the default result of a gather outside the operand.

    It is NaN, the least signed or greatest unsigned integer, or True.
    """
    if dtypes.issubdtype(dtype, np.inexact):
        return math.nan
    if dtypes.issubdtype(dtype, np.bool_):
        return True
    # the raw data of random keys
    info = dtypes.iinfo(np.uint32 if dtypes.is_extended(dtype) else dtype)
    return int(info.min) if dtypes.issubdtype(dtype, np.signedinteger) else int(info.max)


def _canonical(kind: type[Any], numbers: Any):
    return kind(*(tuple(int(d) for d in field) for field in numbers))


# --- gather


@gather_p.def_type
def _gather_type(
    operand: ShapedArray,
    indices: ShapedArray,
    *,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Ints,
    **_params: Any,
):
    windows.check_numbers("gather", operand, indices, dimension_numbers, slice_sizes)
    rank = indices.ndim - 1 + len(dimension_numbers.offset_dims)
    if any(not 0 <= d < rank for d in dimension_numbers.offset_dims):
        raise families.shape_error(
            "gather",
            f"offset_dims {dimension_numbers.offset_dims} do not fit a result of rank {rank}.",
            (),
        )
    shape = windows.gathered_shape(operand.ndim, indices.shape, dimension_numbers, slice_sizes)
    return ShapedArray(
        shape, operand.dtype, operand.weak_type, None, families.joined_vma((operand, indices))
    )


@gather_p.def_reference
def _gather_reference(
    x: NumPyArray,
    indices: NumPyArray,
    *,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Ints,
    mode: GatherScatterMode,
    fill_value: Any,
    **_params: Any,
):
    shape = windows.gathered_shape(x.ndim, indices.shape, dimension_numbers, slice_sizes)
    positions, inside = windows.reference_positions(
        indices, x.shape, shape, dimension_numbers, slice_sizes, mode
    )
    if 0 in shape:
        return np.zeros(shape, x.dtype)
    out = np.broadcast_to(x[tuple(positions)], shape)
    if mode is GatherScatterMode.FILL_OR_DROP:
        out = np.where(inside, out, np.asarray(fill_value).astype(x.dtype))
    return np.ascontiguousarray(out).reshape(shape)


@gather_p.def_jvp
def _gather_jvp(primals: Values, tangents: Values, **params: Any):
    out = gather_p.bind(*primals, **params)
    if type(tangents[0]) is Zero:
        return out, families.zero_tangent(out)
    return out, gather_p.bind(tangents[0], primals[1], **_with_zero_fill(params))


def _with_zero_fill(params: dict[str, Any]) -> dict[str, Any]:
    return dict(params, fill_value=0 if params["mode"] is GatherScatterMode.FILL_OR_DROP else None)


@gather_p.def_transpose
def _gather_transpose(
    ct: Value,
    operand: Value,
    indices: Value,
    *,
    dimension_numbers: GatherDimensionNumbers,
    mode: GatherScatterMode,
    indices_are_sorted: bool,
    unique_indices: bool,
    **_params: Any,
):
    if _picks_one_of_each_row(operand.aval, indices, dimension_numbers):
        return [_one_element_per_row(ct, operand.aval, indices, dimension_numbers, mode), None]
    numbers = ScatterDimensionNumbers(*dimension_numbers)
    out = scatter_add_p.bind(
        families.zeros(operand.aval.update(dtype=typeof(ct).dtype)),
        indices,
        ct,
        dimension_numbers=numbers,
        mode=mode.of_scatter,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
    )
    return [out, None]


def _picks_one_of_each_row(aval: ShapedArray, indices: Value, n: GatherDimensionNumbers) -> bool:
    """Return whether a gather reads one element per position along the batching dims.

    A cross entropy does.
    """
    own = [d for d in range(indices.ndim - 1) if d not in n.start_indices_batching_dims]
    return (
        not n.offset_dims
        and len(n.start_index_map) == 1
        and len(n.operand_batching_dims) == aval.ndim - 1
        and aval.explicit is None
        and all(indices.shape[d] == 1 for d in own)
    )


def _one_element_per_row(
    ct: Value, aval: ShapedArray, indices: Value, n: GatherDimensionNumbers, mode: GatherScatterMode
):
    """Return zeros with one element of `ct` in each row.

    It is a comparison of positions, which fuses with the surrounding operations.
    """
    own, pairs = (
        sorted(n.start_indices_batching_dims),
        sorted(zip(n.operand_batching_dims, n.start_indices_batching_dims)),
    )

    def spread(x: Value):
        picked = reshape(x, tuple(indices.shape[d] for d in own))
        return broadcast_in_dim(
            transpose(picked, [own.index(d) for _, d in pairs]), aval.shape, [d for d, _ in pairs]
        )

    (dim,) = n.start_index_map
    dtype, size = np.promote_types(indices.dtype, np.int32), aval.shape[dim]
    at = convert_element_type(indices, dtype)
    if mode is GatherScatterMode.CLIP:  # indices that break a promise of bounds are dropped
        at = clamp(np.array(0, dtype), at, size_as(size - 1, dtype))
    hit = eq(broadcast_in_dim(iota(dtype, size), aval.shape, (dim,)), spread(at))
    return select(hit, spread(ct), families.full(aval.shape, 0, typeof(ct).dtype))


def _shift(dims: Sequence[int]) -> tuple[int, ...]:
    return shift_dims(dims, 0)


@gather_p.def_batch
def _gather_batch(
    axis: BatchAxis,
    args: Values,
    dims: BatchDims,
    *,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Ints,
    indices_are_sorted: bool,
    **params: Any,
):
    (x, indices), (x_dim, indices_dim) = args, dims
    n = dimension_numbers
    if x_dim is None:  # many positions in one operand
        indices = batch_dim_to_front(indices, indices_dim, axis.size)
        numbers = n._replace(
            offset_dims=_shift(n.offset_dims),
            start_indices_batching_dims=_shift(n.start_indices_batching_dims),
        )
        sizes, indices_are_sorted = slice_sizes, False
    else:
        x = batch_dim_to_front(x, x_dim, axis.size)
        numbers = GatherDimensionNumbers(
            _shift(n.offset_dims),
            _shift(n.collapsed_slice_dims),
            _shift(n.start_index_map),
            _shift(n.operand_batching_dims),
            n.start_indices_batching_dims,
        )
        if indices_dim is None:  # the batch dim becomes a whole dim of the window
            numbers = numbers._replace(offset_dims=(0, *numbers.offset_dims))
            sizes = (axis.size, *slice_sizes)
        else:
            indices = batch_dim_to_front(indices, indices_dim, axis.size)
            numbers = numbers._replace(
                operand_batching_dims=(0, *numbers.operand_batching_dims),
                start_indices_batching_dims=(0, *_shift(n.start_indices_batching_dims)),
            )
            sizes, indices_are_sorted = (1, *slice_sizes), False
    return gather_p.bind(
        x,
        indices,
        dimension_numbers=numbers,
        slice_sizes=sizes,
        indices_are_sorted=indices_are_sorted,
        **params,
    ), 0


@gather_p.def_factors
def _gather_factors(
    in_avals: Avals,
    out_avals: Avals,
    *,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Ints,
    mode: GatherScatterMode,
    fill_value: Any,
    **_params: Any,
):
    b = RuleBuilder()
    operand, indices = in_avals
    x, i, out, special = windows.index_factors(
        b, operand, indices, out_avals[0].shape, dimension_numbers, slice_sizes
    )
    fills = mode is GatherScatterMode.FILL_OR_DROP and fill_value != 0  # affine, not linear
    return b.rule([x, i], [out], special=special, linear_ins=() if fills else (0,))


@gather_p.def_lower
def _gather_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    indices: ElementReader,
    *,
    in_avals: Avals,
    out_avals: Avals,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Ints,
    mode: GatherScatterMode,
    fill_value: Any,
    **_params: Any,
):
    position, inside = windows.window_position(
        b, index, indices, in_avals[0].shape, dimension_numbers, slice_sizes, mode
    )
    if inside is None:
        return x(position)
    return b.select(inside, x(position, inside), b.const(fill_value, b.type_of(out_avals[0])))


@gather_p.def_localize
def _localize_gather(params: dict[str, Any], in_avals: Avals, out_avals: Avals) -> dict[str, Any]:
    """Return parameters for local shapes: whole dims of the window shrink with the result."""
    sizes = list(params["slice_sizes"])
    numbers = params["dimension_numbers"]
    for d, o in zip(windows.kept_dims(len(sizes), numbers), numbers.offset_dims):
        sizes[d] = out_avals[0].shape[o]
    return dict(params, slice_sizes=tuple(sizes))


# --- scatters


def _scatter_type(name: str, computes: bool):
    def type_rule(
        operand: ShapedArray,
        indices: ShapedArray,
        updates: ShapedArray,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        **_params: Any,
    ):
        if computes:
            families.check_dtype(name, operand, families.ANY)
        windows.check_dims(
            name, operand, indices, GatherDimensionNumbers(*map(tuple, dimension_numbers))
        )
        numbers, sizes = _checked_window(name, dimension_numbers, operand, updates)
        windows.check_numbers(
            name, operand, indices, numbers, _read(operand, updates, numbers, sizes)
        )
        if updates.shape != windows.gathered_shape(operand.ndim, indices.shape, numbers, sizes):
            raise families.shape_error(
                name,
                "Bounds of the scatter dimensions, the dims of the updates that are no window dims, must be those of the indices.",
                [
                    ("indices", indices.str_short()),
                    ("updates", updates.str_short()),
                    ("update_window_dims", dimension_numbers.update_window_dims),
                ],
            )
        if updates.dtype != operand.dtype:
            raise TypeError(
                f"{name}: operand and updates must have equal dtypes, got {operand.dtype.name} and {updates.dtype.name}."
            )
        weak = operand.weak_type and updates.weak_type
        return operand.update(
            weak_type=weak, sharding=None, vma=families.joined_vma((operand, indices, updates))
        )

    return type_rule


def _checked_window(
    name: str, numbers: ScatterDimensionNumbers, operand: ShapedArray, updates: ShapedArray
):
    window = numbers.update_window_dims
    dropped_count = len(numbers.inserted_window_dims) + len(numbers.operand_batching_dims)
    if len(window) != operand.ndim - dropped_count or any(
        not 0 <= d < updates.ndim for d in window
    ):
        raise families.shape_error(
            name,
            "update_window_dims do not fit the operand and the updates.",
            [
                ("operand", operand.str_short()),
                ("updates", updates.str_short()),
                ("dimension_numbers", numbers),
            ],
        )
    return windows.window_of_scatter(numbers, operand.ndim, updates.shape)


def _read(operand: Value, updates: Value, numbers: GatherDimensionNumbers, sizes: Sequence[int]):
    """Return the window sizes of the gather that reads the elements a scatter writes.

    If the scatter writes nothing, the window is limited to the operand.
    """
    if is_at_most(1, updates.size):
        return sizes
    window_dims = windows.kept_dims(operand.ndim, numbers)
    return tuple(
        size if d in window_dims else min_dim(size, n)
        for d, (size, n) in enumerate(zip(sizes, operand.shape))
    )


def _scatter_reference(ufunc: np.ufunc | None):
    def reference(
        x: NumPyArray,
        indices: NumPyArray,
        updates: NumPyArray,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        mode: GatherScatterMode,
        **_params: Any,
    ):
        numbers, sizes = windows.window_of_scatter(dimension_numbers, x.ndim, updates.shape)
        positions, inside = windows.reference_positions(
            indices, x.shape, updates.shape, numbers, sizes, mode
        )
        if updates.size == 0:
            return x.copy()
        where = tuple(np.broadcast_to(p, updates.shape).ravel() for p in positions)
        inside = np.broadcast_to(inside, updates.shape).ravel()
        where = tuple(p[inside] for p in where)
        values = updates.ravel()[inside]
        narrow = ufunc is not None and families.is_narrow(x.dtype)
        out = x.astype(np.float32) if narrow else x.copy()
        if x.ndim == 0:
            out, where = out.reshape(1), (np.zeros(values.size, np.int64),)
        if ufunc is None:
            out[where] = values
        else:
            ufunc.at(out, where, values.astype(out.dtype))
        return out.astype(x.dtype).reshape(x.shape)

    return reference


def _scatter_batch(primitive: Primitive):
    def batch(
        axis: BatchAxis,
        args: Values,
        dims: BatchDims,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        indices_are_sorted: bool,
        **params: Any,
    ):
        (x, indices, updates), (x_dim, indices_dim, updates_dim) = args, dims
        n = dimension_numbers
        x, updates = (
            batch_dim_to_front(x, x_dim, axis.size),
            batch_dim_to_front(updates, updates_dim, axis.size),
        )
        numbers = ScatterDimensionNumbers(
            _shift(n.update_window_dims),
            _shift(n.inserted_window_dims),
            _shift(n.scatter_dims_to_operand_dims),
            _shift(n.operand_batching_dims),
            n.scatter_indices_batching_dims,
        )
        if indices_dim is None:
            numbers = numbers._replace(update_window_dims=(0, *numbers.update_window_dims))
        else:
            indices = batch_dim_to_front(indices, indices_dim, axis.size)
            indices_are_sorted = False
            numbers = numbers._replace(
                operand_batching_dims=(0, *numbers.operand_batching_dims),
                scatter_indices_batching_dims=(0, *_shift(n.scatter_indices_batching_dims)),
            )
        return primitive.bind(
            x,
            indices,
            updates,
            dimension_numbers=numbers,
            indices_are_sorted=indices_are_sorted,
            **params,
        ), 0

    return batch


def _scatter_factors(combine: str | None, additive: bool):
    def factors(
        in_avals: Avals,
        out_avals: Avals,
        *,
        dimension_numbers: ScatterDimensionNumbers,
        **_params: Any,
    ):
        operand, indices, updates = in_avals
        numbers, sizes = windows.window_of_scatter(dimension_numbers, operand.ndim, updates.shape)
        b = RuleBuilder()
        x, i, u, special = windows.index_factors(b, operand, indices, updates.shape, numbers, sizes)
        reduced = {}
        for f in i[:-1]:
            if f in x:
                continue  # a batching dim
            if combine in ("min", "max"):
                reduced[f] = combine
            elif combine == "add":  # the operand lacks this factor and must count once: see `split`
                reduced[f], special[f] = "add", "index"
            else:
                special[f] = "replicate"
        linear = (0, 2) if additive else ()
        return b.rule(
            [x, i, u], [x], reduced=reduced, special=special, linear_ins=linear, additive=additive
        )

    return factors


def _make_scatter(name: str, combine: str | None, ufunc: np.ufunc | None) -> Primitive:
    p = ScatterOp(name)
    p.define(
        type=_scatter_type(name, ufunc is not None),
        reference=_scatter_reference(ufunc),
        batch=_scatter_batch(p),
        factors=_scatter_factors(combine, combine == "add"),
        lower=ScatterSpec(combine),
    )
    return p


scatter_p = _make_scatter("scatter", None, None)
scatter_add_p = _make_scatter("scatter-add", "add", np.add)
scatter_mul_p = _make_scatter("scatter-mul", "mul", np.multiply)
scatter_min_p = _make_scatter("scatter-min", "min", np.minimum)
scatter_max_p = _make_scatter("scatter-max", "max", np.maximum)


def _scatter_function(primitive: Primitive, doc: str) -> Callable[..., Any]:
    """Return the public function of one scatter; all have one signature."""

    def function(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
    ) -> Array:
        return primitive.bind(
            operand,
            scatter_indices,
            updates,
            dimension_numbers=_canonical(ScatterDimensionNumbers, dimension_numbers),
            indices_are_sorted=bool(indices_are_sorted),
            unique_indices=bool(unique_indices),
            mode=GatherScatterMode.from_any(mode).of_scatter,
        )

    return named(function, primitive.name.replace("-", "_"), doc)


scatter = _scatter_function(
    scatter_p,
    "Return `operand` with the windows at `scatter_indices` replaced by `updates`; of several for one place, one wins.",
)
scatter_add = _scatter_function(
    scatter_add_p,
    """\
    Return `operand` with `updates` added to the windows at `scatter_indices`; several for one place all count.

    >>> numbers = ScatterDimensionNumbers((), (0,), (0,))
    >>> np.asarray(scatter_add(np.zeros(3), np.array([[1], [1], [7]]), np.ones(3), numbers)).tolist()
    [0.0, 2.0, 0.0]
    """,
)
scatter_mul = _scatter_function(
    scatter_mul_p, "Return `operand` with the windows at `scatter_indices` multiplied by `updates`."
)
scatter_min = _scatter_function(
    scatter_min_p,
    "Return `operand` with the windows at `scatter_indices` lowered to `updates` where these are smaller.",
)
scatter_max = _scatter_function(
    scatter_max_p,
    "Return `operand` with the windows at `scatter_indices` raised to `updates` where these are greater.",
)


def scatter_sub(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    **options: Any,
) -> Array:
    """Return `operand` with `updates` subtracted from the windows at `scatter_indices`.

    Options are as in `scatter_add`.
    """
    return scatter_add(operand, scatter_indices, neg(updates), dimension_numbers, **options)


def _gather_at(x: Value, indices: Value, update_aval: ShapedArray, params: dict[str, Any]):
    """Return the elements of `x` at the places that a scatter with `params` writes.

    Dropped updates give zeros.
    """
    numbers, sizes = windows.window_of_scatter(
        params["dimension_numbers"], typeof(x).ndim, update_aval.shape
    )
    fill = 0 if params["mode"] is GatherScatterMode.FILL_OR_DROP else None
    return gather_p.bind(
        x,
        indices,
        dimension_numbers=numbers,
        slice_sizes=sizes,
        mode=params["mode"],
        fill_value=fill,
        indices_are_sorted=params["indices_are_sorted"],
        unique_indices=params["unique_indices"],
    )


def _positions_are_unique(indices: Value, params: dict[str, Any]) -> bool:
    numbers = params["dimension_numbers"]
    batching = set(numbers.scatter_indices_batching_dims)
    free = [n for d, n in enumerate(typeof(indices).shape[:-1]) if d not in batching]
    return params["unique_indices"] or is_at_most(math.prod(free), 1)


jointly_linear(scatter_add_p, (0, 2))


@scatter_add_p.def_transpose
def _scatter_add_transpose(
    ct: Value, operand: Value, indices: Value, updates: Value, **params: Any
):
    ct_updates = _gather_at(ct, indices, updates.aval, params) if is_undef(updates) else None
    return [ct if is_undef(operand) else None, None, ct_updates]


@scatter_p.def_jvp
def _scatter_jvp(primals: Values, tangents: Values, **params: Any):
    x, indices, updates = primals
    out = scatter_p.bind(x, indices, updates, **params)
    t_x, _, t_updates = tangents
    if type(t_x) is Zero and type(t_updates) is Zero:
        return out, families.zero_tangent(out)
    if _positions_are_unique(indices, params):
        return out, scatter_p.bind(
            families.instantiate(t_x), indices, families.instantiate(t_updates), **params
        )
    total: Any = families.zero_tangent(out)
    if type(t_x) is not Zero:
        total = scatter_p.bind(
            t_x, indices, families.zeros(typeof(t_x).update(shape=typeof(updates).shape)), **params
        )
    if type(t_updates) is not Zero:
        won = mul(t_updates, _last_writers(x, indices, updates, params, typeof(t_updates).dtype))
        total = families.add_tangents(
            total,
            scatter_add_p.bind(
                families.zeros(typeof(out).update(dtype=typeof(won).dtype)), indices, won, **params
            ),
        )
    return out, total


def _last_writers(
    x: Value, indices: Value, updates: Value, params: dict[str, Any], dtype: np.dtype[Any]
):
    """Return 1 for each update whose value remains when several are written to one place, else 0."""
    shape = typeof(updates).shape
    ids = reshape(add(iota(np.int32, math.prod(shape)), np.int32(1)), shape)
    written = scatter_p.bind(families.full(typeof(x).shape, 0, np.int32), indices, ids, **params)
    return convert_element_type(eq(ids, _gather_at(written, indices, typeof(ids), params)), dtype)


@scatter_p.def_transpose
def _scatter_transpose(ct: Value, operand: Value, indices: Value, updates: Value, **params: Any):
    if is_undef(updates) and not _positions_are_unique(indices, params):
        raise NotImplementedError(
            "scatter: is linear in the updates only if no two are written to one place; "
            "say unique_indices=True if that is so."
        )
    aval = aval_of(updates)
    ct_operand = ct_updates = None
    if is_undef(operand):
        ct_operand = scatter_p.bind(
            ct, indices, families.zeros(aval.update(dtype=typeof(ct).dtype)), **params
        )
    if is_undef(updates):
        ct_updates = _gather_at(ct, indices, aval, params)
    return [ct_operand, None, ct_updates]


@scatter_mul_p.def_jvp
def _scatter_mul_jvp(primals: Values, tangents: Values, **params: Any):
    x, indices, updates = primals
    out = scatter_mul_p.bind(x, indices, updates, **params)
    t_x, _, t_updates = tangents
    total: Any = families.zero_tangent(out)
    if type(t_x) is not Zero:
        total = scatter_mul_p.bind(t_x, indices, updates, **params)
    if type(t_updates) is not Zero:
        if not _positions_are_unique(indices, params):
            raise NotImplementedError(
                "scatter_mul: the derivative in the updates needs unique_indices=True."
            )
        moved = scatter_add_p.bind(families.zeros(typeof(out)), indices, t_updates, **params)
        total = families.add_tangents(total, mul(x, moved))
    return out, total


@scatter_mul_p.def_transpose
def _scatter_mul_transpose(
    ct: Value, operand: Value, indices: Value, updates: Value, **params: Any
):
    return [
        scatter_mul_p.bind(ct, indices, updates, **params) if is_undef(operand) else None,
        None,
        None,
    ]


def _extreme_jvp(primitive: Primitive):
    """Return a jvp rule for an extremum: values that attain it share the tangent equally."""

    def jvp(primals: Values, tangents: Values, **params: Any):
        x, indices, updates = primals
        out = primitive.bind(x, indices, updates, **params)
        t_x, _, t_updates = tangents
        zero = families.zero_tangent(out)
        if zero.aval.dtype == dtypes.float0 or (type(t_x) is Zero and type(t_updates) is Zero):
            return out, zero
        dtype = zero.aval.dtype
        nothing = families.zeros(zero.aval)
        from_x = convert_element_type(eq(x, out), dtype)
        from_updates = convert_element_type(
            eq(updates, _gather_at(out, indices, typeof(updates), params)), dtype
        )
        count = scatter_add_p.bind(from_x, indices, from_updates, **params)
        total: Any = zero
        if type(t_x) is not Zero:
            total = mul(t_x, from_x)
        if type(t_updates) is not Zero:
            total = families.add_tangents(
                total, scatter_add_p.bind(nothing, indices, mul(t_updates, from_updates), **params)
            )
        return out, div(total, count)

    return jvp


for _p in (scatter_min_p, scatter_max_p):
    _p.define(jvp=_extreme_jvp(_p), transpose=declare_unsupported("is not linear in any operand"))
del _p
