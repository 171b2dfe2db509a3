"""Updates at an index: `x.at[index].set(...)` as an update of one slice or as one scatter.

An index becomes the same `IndexPlan` as for reading. Arrays never change: every update returns a new
one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._engine.api.jit import eager_jit
from weft._engine.control import ref_index
from weft._engine.core.trace import Tracer, eval_trace, trace_state, typeof
from weft._engine.core.typed_scalars import scalar_of_dtype
from weft._engine.numpy import eager_index, indexing
from weft._engine.numpy.creation import asarray, ones_like, zeros
from weft._engine.numpy.indexing import (
    IndexPlan,
    getitem,
    lift_scalar_bools,
    make_plan,
    result_shape,
    stack_positions,
)
from weft._engine.numpy.promote import (
    PYTHON_SCALARS,
    adopted,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    concrete,
    value,
)
from weft._engine.ops import elementwise as ew, indexing as ix
from weft._engine.ops.casting import size_as
from weft._engine.ops.dynamic_slicing import dynamic_update_slice_p
from weft._engine.ops.layout import broadcast_in_dim, reshape, rev, transpose
from weft._engine.ops.placement import with_out_sharding
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes
from weft._engine.util.promotion import common_dtype
from weft._engine.util.source import array_method, is_own_arithmetic, warn_user


class AtHelper:
    """`x.at`: index it to get the functional update methods."""

    __slots__ = ("array",)

    def __init__(self, array):
        self.array = array

    def __getitem__(self, index) -> "IndexedUpdate":
        return IndexedUpdate(self.array, index)

    def __repr__(self) -> str:
        return f"AtHelper({self.array!r})"


class IndexedUpdate:
    """`x.at[index]`, whose methods return new arrays; `x` itself never changes.

    >>> wnp.zeros(4).at[1:3].add(2.0)
    Array([0., 2., 2., 0.], dtype=float32)
    """

    __slots__ = ("array", "index")

    def __init__(self, array, index):
        self.array, self.index = array, index

    def __repr__(self) -> str:
        return f"_At({self.array!r}, {self.index!r})"

    def _index(self, wraps: bool):
        return self.index if wraps else _normalize_index(tuple(np.shape(self.array)), self.index)

    @array_method
    def get(
        self,
        *,
        indices_are_sorted=False,
        unique_indices=False,
        mode=None,
        fill_value=None,
        out_sharding=None,
        wrap_negative_indices=True,
    ):
        """Return `x[index]` with a `mode` for positions out of bounds.

        Modes are clip, fill and promise_in_bounds.
        """
        index = self._index(wrap_negative_indices)
        read = lambda: getitem(
            self.array,
            index,
            mode=mode,
            fill_value=fill_value,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
        )
        return with_out_sharding(out_sharding, "at[...].get", read, self.array)

    def _update(
        self,
        values,
        scatter,
        indices_are_sorted,
        unique_indices,
        mode,
        out_sharding,
        wrap_negative_indices,
    ):
        values = _list_items(values)
        _check_storable(self.array, values)
        index = self._index(wrap_negative_indices)
        write = lambda: setitem(
            self.array, index, values, scatter, indices_are_sorted, unique_indices, mode
        )
        return with_out_sharding(out_sharding, "at[...]", write, self.array)

    @array_method
    def set(
        self,
        values,
        *,
        indices_are_sorted=False,
        unique_indices=False,
        mode=None,
        out_sharding=None,
        wrap_negative_indices=True,
    ):
        """Return `x` with `values` at the index."""
        return self._update(
            values,
            ix.scatter,
            indices_are_sorted,
            unique_indices,
            mode,
            out_sharding,
            wrap_negative_indices,
        )

    @array_method
    def add(
        self,
        values,
        *,
        indices_are_sorted=False,
        unique_indices=False,
        mode=None,
        out_sharding=None,
        wrap_negative_indices=True,
    ):
        """Return `x` with `values` added at the index; repeated positions accumulate."""
        return self._update(
            values,
            ix.scatter_add,
            indices_are_sorted,
            unique_indices,
            mode,
            out_sharding,
            wrap_negative_indices,
        )

    @array_method
    def subtract(self, values, **kwargs):
        """Return `x` with `values` subtracted at the index."""
        values = value(_list_items(values))
        return self.add(ew.neg(concrete(cast(values, _combined_in(self.array, values)))), **kwargs)

    sub = subtract

    @array_method
    def multiply(
        self,
        values,
        *,
        indices_are_sorted=False,
        unique_indices=False,
        mode=None,
        out_sharding=None,
        wrap_negative_indices=True,
    ):
        """Return `x` multiplied by `values` at the index."""
        return self._update(
            values,
            ix.scatter_mul,
            indices_are_sorted,
            unique_indices,
            mode,
            out_sharding,
            wrap_negative_indices,
        )

    mul = multiply

    @array_method
    def divide(self, values, **kwargs):
        """Return `x` divided by `values` at the index."""
        from weft._engine.numpy.ufuncs import true_divide

        return true_divide(self.array, self._ones_times(values, **kwargs))

    @array_method
    def power(self, values, **kwargs):
        """Return `x` to the power `values` at the index."""
        from weft._engine.numpy.ufuncs import power

        return power(self.array, self._ones_times(values, **kwargs))

    def _ones_times(self, values, **kwargs):

        return IndexedUpdate(ones_like(self.array), self.index).multiply(values, **kwargs)

    @array_method
    def min(
        self,
        values,
        *,
        indices_are_sorted=False,
        unique_indices=False,
        mode=None,
        out_sharding=None,
        wrap_negative_indices=True,
    ):
        """Return `x` with the smaller of its elements and `values` at the index."""
        return self._update(
            values,
            ix.scatter_min,
            indices_are_sorted,
            unique_indices,
            mode,
            out_sharding,
            wrap_negative_indices,
        )

    @array_method
    def max(
        self,
        values,
        *,
        indices_are_sorted=False,
        unique_indices=False,
        mode=None,
        out_sharding=None,
        wrap_negative_indices=True,
    ):
        """Return `x` with the larger of its elements and `values` at the index."""
        return self._update(
            values,
            ix.scatter_max,
            indices_are_sorted,
            unique_indices,
            mode,
            out_sharding,
            wrap_negative_indices,
        )

    @array_method
    def apply(self, func, **kwargs):
        """Return `x` with `func` applied to the elements at the index, once per occurrence."""
        mode = kwargs.get("mode")
        if not kwargs.pop("wrap_negative_indices", True):
            return IndexedUpdate(self.array, self._index(False)).apply(func, **kwargs)
        result = func(self.get(mode=mode))
        if (
            not kwargs.get("unique_indices")
            and not make_plan(tuple(np.shape(self.array)), self.index).is_basic
        ):
            result = self._apply_repeated(func, result, mode)
        return self.set(result, **kwargs)

    def _apply_repeated(self, func, index, mode):
        """Apply `func` again to elements that the index contains several times.

        It was applied once to each.
        """
        from weft._engine.control.loops import fori_loop
        from weft._engine.numpy.selection import where

        times = IndexedUpdate(zeros(np.shape(self.array), np.int32), self.index).add(1, mode=mode)
        here = IndexedUpdate(times, self.index).get(mode=mode)
        repeat = lambda k, index: where(here > k, func(index), index).astype(index.dtype)
        return fori_loop(1, times.max() if times.size else 1, repeat, index)


def _normalize_index(shape: tuple[int, ...], index) -> tuple:
    """Return an index equivalent to `index` if negative indices do not count from the end."""
    entries, d = indexing.as_tuple(index), 0
    width = lambda i: 0 if i is None or i is Ellipsis else np.ndim(i) if indexing.is_bool(i) else 1
    out: list = []
    for k, i in enumerate(entries):
        n = shape[d] if d < len(shape) else 0
        if indexing.is_bool(i) or isinstance(i, slice) or i is None or i is Ellipsis:
            out.append(i)
        elif isinstance(i, (int, np.integer)):
            out.append(int(i) - n if i < 0 else i)
        else:
            i = cast(
                concrete(indexing.as_index_array(i) if isinstance(i, (list, tuple)) else i),
                np.dtype(np.int32),
            )
            out.append(ew.select_n(ew.lt(i, 0), i, ew.sub(i, n)))
        d = len(shape) - sum(map(width, entries[k + 1 :])) if i is Ellipsis else d + width(i)
    return tuple(out)


def setitem(x, index, values, scatter, indices_are_sorted=False, unique_indices=False, mode=None):
    """Return `x` with `values` scattered at `index` by the op `scatter`.

    It has the type of `x`, weak if `x` is.
    """
    out = _set(x, index, values, scatter, indices_are_sorted, unique_indices, mode)
    return cast(out, out.dtype, True) if getattr(x, "weak_type", False) else out


def _set(x, index, values, scatter, indices_are_sorted, unique_indices, mode):
    if type(values) is int and not -1 << 31 <= values < 1 << 31:  # it may fit only the dtype of `x`
        values = scalar_of_dtype(values, typeof(x).dtype)
    if (
        mode is None
        and not indices_are_sorted
        and not unique_indices
        and type(x) is Array
        and trace_state.trace is eval_trace
        and type(values) in (Array, float, int, bool, np.ndarray)
    ):
        parts = eager_index.split(x, index)
        if parts is not None:
            form, arguments = parts
            return _write_eager(x, values, arguments, form, scatter)
    return scatter_update(x, index, values, scatter, indices_are_sorted, unique_indices, mode)


def _write(x, values, arguments, form, scatter):
    return scatter_update(x, eager_index.join(form, arguments), values, scatter)


_write_eager = eager_jit(_write, (0, 1, 2))


def scatter_update(
    x, index, values, scatter, indices_are_sorted=False, unique_indices=False, mode=None
):
    """Return the result of `setitem`, from a separate plan."""
    x, values = concrete(value(x)), value(values)
    dtype = typeof(x).dtype
    if type(values) is complex and not dtypes.issubdtype(dtype, np.complexfloating):
        values = concrete(values)
    if scatter is not ix.scatter and (wide := _combined_in(x, values)) != dtype:
        # combined in that dtype, then stored
        return cast(
            scatter_update(
                cast(x, wide), index, values, scatter, indices_are_sorted, unique_indices, mode
            ),
            dtype,
        )
    values = cast(values, dtype) if isinstance(x, Tracer) else concrete(cast(values, dtype))
    if ref_index.has_slices(index):
        return _write_windows(x, index, values, scatter, mode)
    lifted, index = lift_scalar_bools(tuple(x.shape), index)
    if lifted != tuple(x.shape):
        return reshape(
            scatter_update(
                reshape(x, lifted), index, values, scatter, indices_are_sorted, unique_indices, mode
            ),
            x.shape,
        )
    plan = make_plan(tuple(x.shape), index)
    if isinstance(x, Tracer):
        indexing.make_outside_dynamic(plan)  # the scatter drops them
    shape = result_shape(plan)
    if 0 in shape or 0 in plan.shape:
        _fit_values(values, shape, plan)
        return x
    is_block = plan.is_basic and not plan.ranges and not plan.reversed
    if is_block and scatter is ix.scatter and mode is None:
        return _write_slice(x, plan, _fit_values(values, shape, plan))
    return _write_scatter(x, plan, values, scatter, indices_are_sorted, unique_indices, mode)


def _write_windows(x, index, values, scatter, mode):
    """Update at an index with slices made by `ds`.

    Nothing is written if one of them is not completely inside.
    """
    index, inside = ref_index.clamp_index(tuple(x.shape), index)
    out = ref_index.replace_window(
        x, index, lambda part, rest: scatter_update(part, rest, values, scatter, mode=mode)
    )
    if inside is True or (
        mode is not None and ix.GatherScatterMode.from_any(mode) is ix.GatherScatterMode.CLIP
    ):
        return out
    return (
        x if inside is False else ew.select_n(broadcast_to_shape(inside(), tuple(x.shape)), x, out)
    )


def _list_items(values):
    """Return lists of values as arrays."""
    if not isinstance(values, (list, tuple)):
        return values

    return asarray(values)


def _combined_in(x, values) -> np.dtype:
    """Return the dtype for combining elements of `x` and `values`.

    It is the dtype of `x` if x64 is disabled and `x` has more bits.
    """
    common, have = dtypes.result_type(x, values), typeof(x).dtype
    return have if common == dtypes.canonicalize_dtype(have) else common


def _check_storable(x, values) -> None:
    """Warn of values that the dtype of `x` may not represent, unless they are weft's own.

    They are converted for now.
    """
    have, values_dtype = typeof(x).dtype, getattr(values, "dtype", None)
    if have == values_dtype or type(values) in adopted[have] or is_own_arithmetic():
        return
    values_dtype = typeof(value(values)).dtype
    common = (
        common_dtype(have, type(values))
        if type(values) in PYTHON_SCALARS
        else dtypes.result_type(x, value(values))
    )
    if common != have:
        warn_user(
            f"x.at[...]: scatter inputs have incompatible types: {values_dtype.name} values are stored in an array of {have.name}, which "
            "may change them and will be an error. Convert them with astype first.",
            FutureWarning,
        )


def _fit_values(values, shape, plan: IndexPlan):
    """Return values broadcast to the shape of the index's result, without new dims and reversals."""
    have = tuple(values.shape)
    while len(have) > len(shape) and have[0] == 1:
        have = have[1:]
        values = reshape(values, have)
    try:
        fits = broadcast_shapes(have, shape) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"Incompatible shapes for broadcasting: {have} and requested shape {tuple(shape)} in x.at[...]. "
            "The new values must broadcast to the shape of x[...]."
        )
    values = broadcast_to_shape(values, tuple(shape))
    keep, flip, at = [], [], 0
    for o in plan.out_dims:
        width = len(plan.group_shape) if o == ("group",) else 1
        if o != ("new",):
            if o[0] == "window" and o[1] in plan.reversed:
                flip.append(len(keep))
            keep += range(at, at + width)
        at += width
    if len(keep) < len(shape):
        values = reshape(values, tuple(shape[k] for k in keep))
    return rev(values, flip) if flip else values


def _write_slice(x, plan: IndexPlan, values):
    """Update a static block by one slice update."""
    n = len(plan.shape)
    starts, sizes = [0] * n, list(plan.shape)
    for d, (start, size) in plan.windows.items():
        starts[d], sizes[d] = start, size
    for d, a in plan.arrays.items():
        if not 0 <= a < plan.shape[d]:
            return x  # out of bounds: dropped
        starts[d], sizes[d] = a, 1
    block = reshape(values, tuple(sizes))
    of_array, of_block = typeof(x), typeof(block)
    if (
        of_block.shape == of_array.shape
        and of_array.explicit is None
        and of_array.vma == of_block.vma
    ):
        return block
    return dynamic_update_slice_p.bind(x, block, *starts)


def _write_scatter(x, plan: IndexPlan, values, scatter, indices_are_sorted, unique_indices, mode):
    """Update by one scatter.

    Windows keep their dims, index arrays share the group's dims, strided ranges have separate dims.
    """
    n = len(plan.shape)
    range_dims = [o[1] for o in plan.out_dims if o[0] == "range"]
    batch = (*plan.group_shape, *(plan.ranges[d].size for d in range_dims))
    partial = [d for d, window in plan.windows.items() if window != (0, plan.shape[d])]
    indexed = sorted([*plan.arrays, *range_dims, *partial])
    parts = [_dim_positions(plan, d, batch, range_dims) for d in indexed]
    positions = (
        stack_positions(parts, batch)
        if parts
        else broadcast_to_shape(np.zeros(0, np.int32), (*batch, 0))
    )
    values = _batch_first(_fit_values(values, result_shape(plan), plan), plan, range_dims)
    dnums = ix.ScatterDimensionNumbers(
        update_window_dims=tuple(range(len(batch), len(batch) + len(plan.windows))),
        inserted_window_dims=tuple(d for d in range(n) if d not in plan.windows),
        scatter_dims_to_operand_dims=tuple(indexed),
    )
    return scatter(
        x,
        positions,
        values,
        dnums,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        mode=mode,
    )


def _dim_positions(plan: IndexPlan, d: int, batch: tuple, range_dims: list[int]):
    """Return the positions along dim `d`, of shape `batch`: the dims of the group, then one per range."""
    group = plan.group_shape
    if d in plan.arrays:
        a = plan.arrays[d]
        a = indexing.position_array(a) if isinstance(a, indexing.STATIC) else a
        if isinstance(a, np.ndarray) and indexing.is_static(*group):
            a = np.broadcast_to(a, group)
        else:
            a = broadcast_to_shape(cast(concrete(a), np.dtype(np.int32)), group)
        return _broadcast_to_dims(a, batch, range(len(group)))
    if d in plan.ranges:
        return _broadcast_to_dims(
            plan.ranges[d].positions(), batch, [len(group) + range_dims.index(d)]
        )
    first = plan.windows[d][0]
    start = size_as(first, np.int32)
    if indexing.is_static(first, *batch):
        return np.full(batch, start, np.int32)
    return broadcast_to_shape(concrete(start), batch)


def _batch_first(values, plan: IndexPlan, range_dims: list[int]):
    """Transpose `values` from the result's order to the dims of the group, the ranges, then the windows."""
    sources: dict[tuple, list[int]] = {("group",): []}
    at = 0
    for o in plan.out_dims:
        if o == ("new",):
            continue
        width = len(plan.group_shape) if o == ("group",) else 1
        sources[o] = list(range(at, at + width))
        at += width
    keys = [("group",), *(("range", d) for d in range_dims)]
    keys += [("window", d) for d in sorted(plan.windows)]
    order = [k for key in keys for k in sources[key]]
    if order == list(range(len(order))):
        return values

    return transpose(values, tuple(order))


def _broadcast_to_dims(a, batch: tuple[int, ...], dims: Sequence[int]):
    """Return `a` broadcast to shape `batch`; its dims become dims `dims` of the result."""
    dims = tuple(dims)
    if isinstance(a, np.ndarray):
        shape = [1] * len(batch)
        for k, d in enumerate(dims):
            shape[d] = a.shape[k]
        return np.broadcast_to(a.reshape(shape), batch)
    return broadcast_in_dim(a, batch, dims) if tuple(a.shape) != batch else a
