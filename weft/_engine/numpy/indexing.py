"""NumPy indexing: `x[index]` as slices, reversals, reshapes and one gather.

An index becomes a `IndexPlan` for a shape: per dim of the operand a window (a unit-step range that is
kept), a point (an integer), or an array of positions; and the origin of each dim of the result.
Next: `indexed_update` writes with the same plans; `eager_index` indexes values without retracing.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.control import ref_index
from weft._engine.core.trace import Tracer, typeof
from weft._engine.ir.symbolic import SymbolicDim, as_size, max_dim, min_dim, slice_bounds
from weft._engine.numpy.creation import array
from weft._engine.numpy.promote import broadcast_shapes, broadcast_to_shape, cast, concrete, value
from weft._engine.ops import elementwise as ew, indexing as ix
from weft._engine.ops.casting import size_as
from weft._engine.ops.dynamic_slicing import dynamic_slice_p
from weft._engine.ops.layout import (
    broadcast_in_dim,
    broadcasted_iota,
    expand_dims,
    reshape,
    rev,
    squeeze_p,
)
from weft._engine.ops.slicing import concatenate, slice as slice_op
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes
from weft._engine.util.config import config
from weft._engine.util.errors import (
    InconclusiveDimensionOperation,
    NonConcreteBooleanIndexError,
    describe,
)
from weft._engine.util.record import field, record
from weft._engine.util.source import user_frame
from weft._engine.util.tree import tree_leaves

_SCALAR_INT = (int, np.integer)
#: types of positions that are known while tracing
STATIC = (int, SymbolicDim)


@record
class PositionRange:
    """The `size` positions `first`, `first + step`, ... along a dim."""

    first: int
    size: int
    step: int

    def span(self) -> tuple[int, int, int]:
        """Return the positions in ascending order as the start, stop and step of a `slice`."""
        if self.step > 0:
            return self.first, self.first + max_dim((self.size - 1) * self.step + 1, 0), self.step
        end = self.first + 1
        return end - max_dim((self.size - 1) * -self.step + 1, 0), end, -self.step

    def positions(self) -> Any:
        if not is_static(self.first, self.size, self.step):
            steps = ew.mul(
                broadcasted_iota(np.int32, (self.size,), 0), size_as(self.step, np.int32)
            )
            return ew.add(steps, size_as(self.first, np.int32))
        return self.first + np.arange(self.size, dtype=np.int32) * np.int32(self.step)


@record(frozen=False)
class IndexPlan:
    """The way an index reads or writes an array.

    `arrays[d]` holds positions (arrays, which all form one broadcast group, or separate ranges),
    `windows[d]` the (start, size) of a kept range. `out_dims` lists the origin of each dim of the
    result: ("new",), ("window", d), ("group",) (the dims of the broadcast index arrays) or
    ("range", d).
    """

    shape: tuple[int, ...]
    windows: dict[int, tuple[int, int]] = field(default_factory=dict)
    arrays: dict[int, Any] = field(default_factory=dict)
    ranges: dict[int, PositionRange] = field(default_factory=dict)
    reversed: list[int] = field(default_factory=list)
    out_dims: list[tuple] = field(default_factory=list)
    group_shape: tuple[int, ...] = ()

    @property
    def is_basic(self) -> bool:
        """Return whether there are only static ranges and integers."""
        return not any(isinstance(a, (Array, Tracer, np.ndarray)) for a in self.arrays.values())


def as_tuple(index) -> tuple:
    if isinstance(index, tuple):
        return index
    if isinstance(index, list):
        raise TypeError(
            f"Using a non-tuple sequence for multidimensional indexing is not allowed; use arr[array(seq)] or "
            f"arr[tuple(seq)]; got seq = {index!r:.80}."
        )
    return (index,)


def as_index_array(sequence):
    """Return a list or tuple inside an index as an array of positions or a mask."""

    if any(isinstance(leaf, (Array, Tracer)) for leaf in tree_leaves(sequence)):
        return array(sequence)
    indices = np.asarray(sequence)
    return indices if indices.size else indices.astype(np.int32)


def is_bool(i) -> bool:
    return isinstance(i, (bool, np.bool_)) or (hasattr(i, "dtype") and i.dtype == np.bool_)


def _expand_bools(index: tuple) -> tuple:
    """Replace boolean masks by the integer arrays of their nonzero positions.

    Masks must be concrete.
    """
    out: list = []
    for i in index:
        if not is_bool(i):
            out.append(i)
            continue
        if isinstance(i, Tracer):
            raise NonConcreteBooleanIndexError(
                describe(
                    "x[mask]",
                    f"Array boolean indices must be concrete; got {i.describe()}.",
                    (),
                    user_frame(),
                    "The shape of the result would depend on values.",
                    "Use weft.numpy.where(mask, x, y), or x.at[...] with where, which keep the shape.",
                )
            )
        out += [np.asarray(p, np.int32) for p in np.nonzero(np.asarray(i))]
    return tuple(out)


def lift_scalar_bools(shape: tuple[int, ...], index) -> tuple[tuple[int, ...], Any]:
    """Replace scalar bools by index arrays into new dims of size one.

    Return the shape of the operand with those dims, and the index.
    """
    entries = as_tuple(index)
    scalar = [
        is_bool(i) and not getattr(i, "ndim", 0) and not isinstance(i, Tracer) for i in entries
    ]
    if not any(scalar):
        return shape, index
    width = [
        0 if i is None or i is Ellipsis or s else i.ndim if is_bool(i) else 1
        for i, s in zip(entries, scalar)
    ]
    if not any(i is Ellipsis for i in entries):
        entries, scalar, width = (*entries, Ellipsis), [*scalar, False], [*width, 0]
    lifted, out, d = [], [], 0
    for i, s, w in zip(entries, scalar, width):
        w = len(shape) - sum(width) if i is Ellipsis else w
        lifted += [1] if s else shape[d : d + w]
        out.append(np.zeros(int(bool(i)), np.int32) if s else i)
        d += w
    return tuple(lifted), tuple(out)


def _consume(index: tuple) -> int:
    return sum(i is not None and i is not Ellipsis for i in index)


def make_plan(shape: tuple[int, ...], index) -> IndexPlan:
    """Return the plan for reading or writing an array of `shape` at `index`."""
    entries = tuple(
        as_index_array(i) if isinstance(i, (list, tuple)) else i for i in as_tuple(index)
    )
    _check_masks(shape, entries)
    index = _fill_dims(_expand_bools(entries), len(shape))
    plan = IndexPlan(tuple(shape))
    advanced = any(_is_array(i) for i in index)
    seen: list[int] = []  # positions of advanced entries in `index`
    d = 0
    for k, i in enumerate(index):
        if i is Ellipsis:
            continue
        if i is None:
            plan.out_dims.append(("new",))
            continue
        if isinstance(i, slice):
            _plan_slice(plan, d, i)
        else:
            plan.arrays[d] = _entry_positions(i, shape[d], d)
            if advanced or not isinstance(i, _SCALAR_INT):
                seen.append(k)
                plan.out_dims.append(("advanced",))
        d += 1
    if plan.arrays:
        plan.group_shape = broadcast_shapes(*[_shape(a) for a in plan.arrays.values()])
    adjacent = not seen or seen == list(range(seen[0], seen[-1] + 1))
    _place_group(plan, adjacent)
    return plan


def _fill_dims(index: tuple, ndim: int) -> tuple:
    """Add whole slices to `index` for the dims it does not mention, after its ellipsis or at the end."""
    ellipses = [k for k, i in enumerate(index) if i is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...').")
    if _consume(index) > ndim:
        raise IndexError(
            f"Too many indices: array is {ndim}-dimensional, but {_consume(index)} were indexed."
        )
    # the ellipsis stays, since it separates entries even where it covers no dim
    end = ellipses[0] + 1 if ellipses else len(index)
    return index[:end] + (slice(None),) * (ndim - _consume(index)) + index[end:]


def _entry_positions(i, n: int, d: int):
    """Return the positions of an integer or an array of them along dim `d` of size `n`."""
    if isinstance(i, _SCALAR_INT):
        return _static_int(int(i), n, d)
    if _is_array(i):
        return _positions(i, n, d)
    if hasattr(i, "__index__"):
        return _static_int(as_size(i), n, d)
    raise TypeError(
        f"Indexer must have integer or boolean type, got indexer with type {type(i)}: {i!r:.80}."
    )


def _place_group(plan: IndexPlan, adjacent: bool) -> None:
    if ("advanced",) not in plan.out_dims:
        return
    other_dims = [o for o in plan.out_dims if o != ("advanced",)]
    at = plan.out_dims.index(("advanced",)) if adjacent else 0
    plan.out_dims = other_dims[:at] + [("group",)] + other_dims[at:]


def _check_masks(shape, index) -> None:
    d = 0
    for i in index:
        if i is None or i is Ellipsis:
            if i is Ellipsis:
                return
            continue
        n = getattr(i, "ndim", 0) if is_bool(i) else 1
        if is_bool(i) and n:
            expected = tuple(shape[d : d + n])
            if tuple(i.shape) != expected and i.size:
                raise IndexError(
                    f"boolean index did not match shape of indexed array in index {d}: got {tuple(i.shape)}, expected "
                    f"{expected}."
                )
        d += n


def _is_array(i) -> bool:
    return isinstance(i, (Array, Tracer, np.ndarray)) and not isinstance(i, np.generic)


def _shape(a) -> tuple[int, ...]:
    return () if isinstance(a, STATIC) else tuple(a.shape)


def is_inside(i: int | SymbolicDim, n: int | SymbolicDim) -> bool:
    """Return whether position `i` is within a dim of size `n`, for all values of symbolic sizes."""
    try:
        return 0 <= i < n
    except InconclusiveDimensionOperation:
        return False


def position_array(a: int | SymbolicDim) -> Any:
    """Return a static position as an array: a NumPy array, or a traced one if it is symbolic."""
    return size_as(a, np.int32) if isinstance(a, SymbolicDim) else np.asarray(a, np.int32)


def is_static(*sizes: Any) -> bool:
    """Return whether no size is symbolic."""
    return not any(isinstance(n, SymbolicDim) for n in sizes)


def _static_int(i: int, n: int, d: int) -> int:
    if n == 0:
        raise IndexError(f"index {i} is out of bounds for axis {d} with size 0")
    if config.check_static_indices and not -n <= i < n:
        raise IndexError(
            f"index {i} out of bounds for axis {d} with size {n}; jax_check_static_indices refuses it"
        )
    return i + n if i < 0 else i


def _positions(i, n: int, d: int):
    dtype = typeof(i).dtype
    if n == 0 and not np.shape(i):
        raise IndexError(f"index is out of bounds for axis {d} with size 0")
    if not dtypes.issubdtype(dtype, np.integer):
        if np.size(i) == 0 if not isinstance(i, Tracer) else False:
            return np.zeros(np.shape(i), np.int32)
        raise TypeError(
            f"Indexer must have integer or boolean type, got indexer with type {dtype.name}."
        )
    if isinstance(i, np.ndarray):
        i = i.astype(np.int32) if n < 1 << 31 else i
        return np.where(i < 0, i + n, i) if dtype.kind == "i" else i
    if dtypes.issubdtype(dtype, np.unsignedinteger):
        return i
    if dtype.itemsize < 4:
        i = cast(i, np.dtype(np.int32))
    return ew.select_n(ew.lt(i, 0), i, ew.add(i, n))


def _bound_text(bound) -> str:
    return bound.describe() if isinstance(bound, Tracer) else repr(bound)


def _plan_slice(plan: IndexPlan, d: int, s: slice) -> None:
    n = plan.shape[d]
    for part in (s.start, s.stop, s.step):
        if isinstance(part, Tracer):
            raise IndexError(
                describe(
                    "x[start:stop]",
                    "Array slice indices must have static start/stop/step to be used with NumPy indexing syntax.",
                    [
                        (name, _bound_text(p))
                        for name, p in zip(("start", "stop", "step"), (s.start, s.stop, s.step))
                    ],
                    user_frame(),
                    "The shape of the result would depend on values.",
                    "Use weft.lax.dynamic_slice (or dynamic_slice_in_dim), which takes traced starts.",
                )
            )
    try:
        parts = [None if p is None else operator.index(p) for p in (s.start, s.stop, s.step)]
        start, stop, step = slice(*parts).indices(n)
        size = len(range(start, stop, step))
        single = size <= 1
    except InconclusiveDimensionOperation:
        start, size, step = slice_bounds(s.start, s.stop, s.step, n)
        single = False
    if step == 1 or single:
        plan.windows[d] = (start if size else 0, size)
        plan.out_dims.append(("window", d))
    elif step == -1:
        plan.windows[d] = (start - size + 1, size)
        plan.reversed.append(d)
        plan.out_dims.append(("window", d))
    else:
        plan.ranges[d] = PositionRange(start, size, step)
        plan.out_dims.append(("range", d))


def getitem(
    x,
    index,
    *,
    mode=None,
    fill_value=None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
):
    """Return `x[index]`."""
    x = concrete(value(x))
    if type(index) is int and mode is None and _is_row(x, index):  # the most frequent index
        first, row_shape = index % x.shape[0], tuple(x.shape[1:])
        return squeeze_p.bind(
            slice_op(x, (first, *[0] * len(row_shape)), (first + 1, *row_shape)), dimensions=(0,)
        )
    if ref_index.has_slices(index):
        return ref_index.read(x, ref_index.clamp_index(tuple(x.shape), index)[0])
    shape, index = lift_scalar_bools(tuple(x.shape), index)
    x = reshape(x, shape) if shape != tuple(x.shape) else x
    plan = make_plan(shape, index)
    if (
        isinstance(x, Tracer)
        if mode is None
        else ix.GatherScatterMode.from_any(mode) is ix.GatherScatterMode.FILL_OR_DROP
    ):
        make_outside_dynamic(plan)  # the gather fills them
    x, dims = _read_static(x, plan)
    dynamic = {d: a for d, a in plan.arrays.items() if not isinstance(a, STATIC)}
    if not dynamic:
        return _arrange(x, plan)
    if mode is None and all(not _shape(a) for a in dynamic.values()):
        return _arrange(_read_points(x, dims, dynamic), plan)
    return _read_gather(
        x, plan, dims, dynamic, mode, fill_value, indices_are_sorted, unique_indices
    )


def _is_row(x, i: int) -> bool:
    """Return whether `i` is within the first dim of `x`, for all values of symbolic sizes."""
    try:
        return bool(x.ndim) and -x.shape[0] <= i < x.shape[0]
    except InconclusiveDimensionOperation:
        return False


def make_outside_dynamic(plan: IndexPlan) -> None:
    """Turn static positions out of bounds into arrays.

    Gathers then fill, scatters drop, and checkify reports them.
    """
    for d, a in plan.arrays.items():
        if isinstance(a, STATIC) and not is_inside(a, plan.shape[d]):
            plan.arrays[d] = position_array(a)


def _read_static(x, plan: IndexPlan):
    """Apply ranges, reversals and static integers.

    Return the value and the remaining operand dims.
    """
    n = len(plan.shape)
    starts, stops, steps, points = [0] * n, list(plan.shape), [1] * n, []
    for d, (start, size) in plan.windows.items():
        starts[d], stops[d] = start, start + size
    for d, r in plan.ranges.items():
        starts[d], stops[d], steps[d] = r.span()
    for d, a in plan.arrays.items():
        if isinstance(a, STATIC):
            a = max_dim(0, min_dim(a, plan.shape[d] - 1))
            starts[d], stops[d] = a, a + 1
            points.append(d)
    if starts != [0] * n or stops != list(plan.shape) or steps != [1] * n:
        x = slice_op(x, starts, stops, None if steps == [1] * n else steps)
    flip = plan.reversed + [d for d, r in plan.ranges.items() if r.step < 0]
    if flip:
        x = rev(x, flip)
    dims = [d for d in range(n) if d not in points]
    if points:
        x = squeeze_p.bind(x, dimensions=tuple(points))
    return x, dims


def _arrange(x, plan: IndexPlan):
    """Insert the new dims of size one (and the group of a purely static index, which has no dims)."""
    kinds = [o[0] for o in plan.out_dims if o[0] in ("new", "window", "range")]
    return (
        expand_dims(x, [d for d, kind in enumerate(kinds) if kind == "new"])
        if "new" in kinds
        else x
    )


def _read_points(x, dims, dynamic):
    """Read traced integers, one position each, by a dynamic slice at non-negative starts."""
    dtype = np.dtype(np.int32)
    starts = [cast(concrete(dynamic[d]), dtype) if d in dynamic else np.int32(0) for d in dims]
    sizes = tuple(1 if d in dynamic else n for d, n in zip(dims, x.shape))
    out = dynamic_slice_p.bind(x, *starts, slice_sizes=sizes)
    return squeeze_p.bind(out, dimensions=tuple([k for k, d in enumerate(dims) if d in dynamic]))


def _read_gather(
    x, plan: IndexPlan, dims, dynamic, mode, fill_value, indices_are_sorted, unique_indices
):
    group = plan.group_shape
    if 0 in x.shape and 0 in (shape := result_shape(plan)):
        return reshape(x, shape)  # there is nothing to read
    positions = stack_positions([dynamic[d] for d in dims if d in dynamic], group)
    collapsed = tuple(k for k, d in enumerate(dims) if d in dynamic)
    order = [o for o in plan.out_dims if o[0] != "new"]
    offset, at = [], 0
    for o in order:
        if o == ("group",):
            at += len(group)
        else:
            offset.append(at)
            at += 1
    dnums = ix.GatherDimensionNumbers(
        offset_dims=tuple(offset), collapsed_slice_dims=collapsed, start_index_map=collapsed
    )
    sizes = tuple(1 if d in dynamic else n for d, n in zip(dims, x.shape))
    out = ix.gather(
        x,
        positions,
        dnums,
        sizes,
        mode="promise_in_bounds" if mode is None else mode,
        fill_value=fill_value,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
    )
    return _insert_new(out, plan, len(group))


def _insert_new(x, plan: IndexPlan, group_rank: int):
    if ("new",) not in plan.out_dims:
        return x
    new, at = [], 0
    for o in plan.out_dims:
        if o == ("new",):
            new.append(at)
        at += group_rank if o == ("group",) else 1
    return expand_dims(x, new)


def result_shape(plan: IndexPlan) -> tuple[int, ...]:
    """Return the shape of the elements that an index reads or writes."""
    shape: list[int] = []
    for o in plan.out_dims:
        if o == ("new",):
            shape.append(1)
        elif o == ("group",):
            shape += plan.group_shape
        elif o[0] == "window":
            shape.append(plan.windows[o[1]][1])
        else:
            shape.append(plan.ranges[o[1]].size)
    return tuple(shape)


def stack_positions(arrays: Sequence, group: tuple[int, ...]):
    """Return index arrays broadcast together and stacked along a last dim, as int32."""
    parts = []
    for a in arrays:
        if isinstance(a, STATIC):
            a = position_array(a)
        if isinstance(a, np.ndarray) and is_static(*group):
            parts.append(np.broadcast_to(a.astype(np.int32), group)[..., None])
        else:
            a = broadcast_to_shape(cast(concrete(a), np.dtype(np.int32)), group)
            parts.append(broadcast_in_dim(a, (*group, 1), tuple(range(len(group)))))
    if all(isinstance(p, np.ndarray) for p in parts):
        return np.concatenate(parts, -1)
    return parts[0] if len(parts) == 1 else concatenate([concrete(p) for p in parts], len(group))
