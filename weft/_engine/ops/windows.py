"""Windows at run-time positions, shared by gather and the scatters.

In:   dimension numbers, which relate dims of the operand, of the indices and of the windows.
Out:  positions of windows (on NumPy for references, as expressions for kernels), checks, shapes and
      sharding factors. | Law: a scatter has the same windows as the gather that reads its places
      (`window_of_scatter`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft._engine.ir.factors import RuleBuilder
from weft._engine.ops.families import shape_error
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity

if TYPE_CHECKING:
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ir.loops import Expr
    from weft._engine.ir.types import ShapedArray
    from weft._engine.ops.rule_types import ElementIndex, ElementReader, NumPyArray
    from weft._engine.util.errors import ShapeError


class GatherDimensionNumbers(NamedTuple):
    """The correspondence of dims in a gather.

    offset_dims                   dims of the result that index into the window
    collapsed_slice_dims          dims of the operand with window size 1 that the result lacks
    start_index_map               dims of the operand that the entries of an index address
    operand_batching_dims         dims of the operand paired with start_indices_batching_dims of the indices
    """

    __module__ = "weft.lax"

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """The correspondence of dims in a scatter.

    It is the same as in a gather whose result has the shape of the updates.

    Updates have their window in dims `update_window_dims`; they lack the operand's dims
    `inserted_window_dims`, and the entries of an index address dims `scatter_dims_to_operand_dims`.

    >>> rows = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    >>> lax.scatter_add(np.zeros((3, 2)), np.array([[1], [1]]), np.ones((2, 2)), rows).tolist()
    [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]]
    """

    __module__ = "weft.lax"

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


class GatherScatterMode(enum.Enum):
    """Treatment of windows outside the operand.

    They are moved inside (CLIP), filled or dropped, or promised not to occur: then a gather moves
    them inside nevertheless, and a scatter drops them. UNCHECKED is for windows that are known to
    be inside.
    """

    __module__ = "weft.lax"

    CLIP = 1
    FILL_OR_DROP = 2
    PROMISE_IN_BOUNDS = 3
    UNCHECKED = 4

    @staticmethod
    def from_any(mode: "str | GatherScatterMode | None") -> "GatherScatterMode":
        """Return the mode named by a string; None is FILL_OR_DROP.

        >>> GatherScatterMode.from_any("clip")
        GatherScatterMode.CLIP
        """
        if isinstance(mode, GatherScatterMode):
            return mode
        if mode is None or mode in ("fill", "drop"):
            return GatherScatterMode.FILL_OR_DROP
        if mode == "clip":
            return GatherScatterMode.CLIP
        if mode == "promise_in_bounds":
            return GatherScatterMode.PROMISE_IN_BOUNDS
        raise ValueError(
            f"mode {mode!r} is not understood. Use 'fill', 'drop', 'clip' or 'promise_in_bounds'."
        )

    def __repr__(self) -> str:
        return f"GatherScatterMode.{self.name}"

    @property
    def of_scatter(self) -> "GatherScatterMode":
        """The corresponding mode of a scatter."""
        return (
            GatherScatterMode.FILL_OR_DROP if self is GatherScatterMode.PROMISE_IN_BOUNDS else self
        )


# --- positions of windows


def kept_dims(ndim: int, numbers: GatherDimensionNumbers) -> tuple[int, ...]:
    """Return the dims of the operand that are window dims of the result."""
    dropped_dims = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    return tuple(d for d in range(ndim) if d not in dropped_dims)


def batch_dims(ndim: int, numbers: GatherDimensionNumbers) -> tuple[int, ...]:
    """Return the dims of the result for the positions, in order.

    There is one per dim of the indices but the last.
    """
    return tuple(d for d in range(ndim) if d not in numbers.offset_dims)


def window_of_scatter(
    numbers: ScatterDimensionNumbers, operand_ndim: int, update_shape: Sequence[int]
) -> tuple[GatherDimensionNumbers, tuple[int, ...]]:
    """Return the gather that reads the places a scatter writes.

    The result is its dimension numbers and slice sizes.
    """
    as_gather = GatherDimensionNumbers(*map(tuple, numbers))
    sizes = [1] * operand_ndim
    for d, w in zip(kept_dims(operand_ndim, as_gather), numbers.update_window_dims):
        sizes[d] = update_shape[w]
    return as_gather, tuple(sizes)


def reference_positions(
    indices: NumPyArray,
    operand_shape: Sequence[int],
    out_shape: Sequence[int],
    numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    mode: GatherScatterMode,
):
    """Return an index array per operand dim, and a mask of the windows inside.

    The index arrays broadcast to `out_shape`.
    """
    rank = len(out_shape)
    batch = batch_dims(rank, numbers)
    window_axes = dict(zip(kept_dims(len(operand_shape), numbers), numbers.offset_dims))

    def along(values: NumPyArray, dims: Sequence[int]):
        shape = [1] * rank
        for d, size in zip(dims, values.shape):
            shape[d] = size
        return values.reshape(shape)

    positions: list[NumPyArray] = []
    inside: NumPyArray = np.ones((1,) * rank, bool)
    for d, (n, size) in enumerate(zip(operand_shape, slice_sizes)):
        if d in numbers.operand_batching_dims:
            dim = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(d)]
            positions.append(along(np.arange(n), (batch[dim],)))
            continue
        start = np.zeros((1,) * rank, np.int64)
        if d in numbers.start_index_map:
            start = indices[..., numbers.start_index_map.index(d)]
            start = along(
                np.minimum(start, n).astype(np.int64)
                if start.dtype == np.uint64
                else start.astype(np.int64),
                batch,
            )
        if mode is GatherScatterMode.FILL_OR_DROP:
            inside = inside & (start >= 0) & (start <= n - size)
        start = np.clip(start, 0, n - size)
        positions.append(
            start + along(np.arange(size), (window_axes[d],)) if d in window_axes else start
        )
    return positions, inside


def window_position(
    b: LoopsBuilder,
    index: ElementIndex,
    indices: ElementReader,
    operand_shape: Sequence[int],
    numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    mode: GatherScatterMode,
):
    """Return the position in the operand of element `index` of the result.

    Also return whether the window is inside.

    The second value is a bool expression, or None if the window is always inside.
    """
    batch = tuple(index[d] for d in batch_dims(len(index), numbers))
    window_axes = dict(zip(kept_dims(len(operand_shape), numbers), numbers.offset_dims))
    position: list[Expr] = []
    inside: Expr | None = None
    for d, (n, size) in enumerate(zip(operand_shape, slice_sizes)):
        if d in numbers.operand_batching_dims:
            position.append(
                batch[numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(d)]]
            )
            continue
        start = 0
        if d in numbers.start_index_map:
            entry = b.const(numbers.start_index_map.index(d), "i64")
            start = b.to_index(indices((*batch, entry)))
            if mode is GatherScatterMode.FILL_OR_DROP:
                here = b.logical_and(b.icmp("ge", start, 0), b.icmp("le", start, n - size))
                inside = here if inside is None else b.logical_and(inside, here)
            elif mode is not GatherScatterMode.UNCHECKED:
                start = b.imax(b.imin(start, n - size), 0)
        position.append(
            b.iadd(start, index[window_axes[d]]) if d in window_axes else b.iadd(start, 0)
        )
    return tuple(position), inside


def scatter_position(
    b: LoopsBuilder,
    index: ElementIndex,
    indices: ElementReader,
    operand_shape: Sequence[int],
    update_shape: Sequence[int],
    *,
    dimension_numbers: ScatterDimensionNumbers,
    mode: GatherScatterMode,
    **_params: Any,
):
    """Return the position in the operand for element `index` of the updates.

    Also return whether it is inside.

    The second value is a bool expression, or None if the position is always inside.
    """
    numbers, sizes = window_of_scatter(dimension_numbers, len(operand_shape), update_shape)
    return window_position(b, index, indices, operand_shape, numbers, sizes, mode)


_OF_SCATTER = (
    "update_window_dims",
    "inserted_window_dims",
    "scatter_dims_to_operand_dims",
    "operand_batching_dims",
    "scatter_indices_batching_dims",
)


def check_dims(
    api: str, operand: ShapedArray, indices: ShapedArray, numbers: GatherDimensionNumbers
) -> None:
    """Raise ShapeError unless `numbers` name existing dims, each once, in order where required."""
    table = [
        ("operand", operand.str_short()),
        ("indices", indices.str_short()),
        ("dimension_numbers", numbers),
    ]
    fail: Callable[[str], ShapeError] = lambda what: shape_error(api, what, table)
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise TypeError(f"{api}: indices must be integers, got {indices.str_short()}.")
    op, names = "gather", GatherDimensionNumbers._fields
    if api.startswith("scatter"):
        op, names = "scatter", _OF_SCATTER
    window, collapsed, indexed, batching, indices_batching = names
    result_rank = max(indices.ndim - 1, 0) + len(numbers.offset_dims)
    limits = (result_rank, operand.ndim, operand.ndim, operand.ndim, max(indices.ndim - 1, 0))
    for name, dims, limit in zip(names, numbers, limits):
        if name in (window, collapsed, batching) and list(dims) != sorted(dims):
            raise fail(f"{name} in {op} op must be sorted, got {tuple(dims)}.")
        if len(set(dims)) != len(dims):
            raise fail(f"{name} in {op} op must not repeat, got {tuple(dims)}.")
        if any(not 0 <= d < limit for d in dims):
            raise fail(
                f"Invalid {name} set in {op} op; valid range is [0, {limit}), got {tuple(dims)}."
            )
    shared = numbers.operand_batching_dims
    for name, dims in (
        (collapsed, numbers.collapsed_slice_dims),
        (indexed, numbers.start_index_map),
    ):
        if not set(dims).isdisjoint(shared):
            raise fail(
                f"{name} and {batching} in {op} op must be disjoint, got {tuple(dims)} and {tuple(shared)}."
            )
    if indices.ndim == 0 or indices.shape[-1] != len(numbers.start_index_map):
        raise fail(
            f"{indexed} has {quantity(len(numbers.start_index_map), 'entry')}; the last dim of the indices must have as many."
        )
    if len(shared) != len(numbers.start_indices_batching_dims):
        raise fail(f"{batching} and {indices_batching} in {op} op must be equal in number.")
    _check_batching_sizes(fail, operand, indices, numbers)


def _check_batching_sizes(
    fail: Callable[[str], Exception],
    operand: ShapedArray,
    indices: ShapedArray,
    numbers: GatherDimensionNumbers,
) -> None:
    """Raise `fail(...)` if a batching dim of the operand and of the indices differ in size."""
    for d, i in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims):
        if operand.shape[d] != indices.shape[i]:
            raise fail(
                f"batching dim {d} of the operand and dim {i} of the indices must have equal sizes."
            )


def check_numbers(
    api: str,
    operand: ShapedArray,
    indices: ShapedArray,
    numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
) -> None:
    """Check dims as `check_dims` does, and that the window fits into the operand.

    Raise ShapeError otherwise.
    """
    check_dims(api, operand, indices, numbers)
    table = [
        ("operand", operand.str_short()),
        ("indices", indices.str_short()),
        ("dimension_numbers", numbers),
        ("window", slice_sizes),
    ]
    fail: Callable[[str], ShapeError] = lambda what: shape_error(api, what, table)
    if len(slice_sizes) != operand.ndim:
        raise fail("the window needs one size per dim of the operand.")
    dropped_dims = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    if any(slice_sizes[d] > 1 for d in dropped_dims):
        raise fail("the window must have size 1 in collapsed and batching dims.")
    if any(
        not 0 <= size <= n and d not in numbers.operand_batching_dims
        for d, (size, n) in enumerate(zip(slice_sizes, operand.shape))
    ):
        raise fail(
            "the window does not fit into the operand. Bounds of the window dimensions are the sizes of the operand."
        )
    if len(numbers.offset_dims) != operand.ndim - len(dropped_dims):
        raise fail(
            "needs one window dim in the result for each dim of the operand that is neither collapsed nor batching."
        )


def gathered_shape(
    operand_ndim: int,
    indices_shape: Sequence[int],
    numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
) -> tuple[int, ...]:
    rank = len(indices_shape) - 1 + len(numbers.offset_dims)
    shape = [0] * rank
    for d, size in zip(batch_dims(rank, numbers), indices_shape):
        shape[d] = size
    for d, k in zip(numbers.offset_dims, kept_dims(operand_ndim, numbers)):
        shape[d] = slice_sizes[k]
    return tuple(shape)


def index_factors(
    b: RuleBuilder,
    operand: ShapedArray,
    indices: ShapedArray,
    window_shape: Sequence[int],
    numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
):
    """Return factors of the operand, the indices and the window array, with marks.

    The window array is a gather's result or a scatter's updates.

    Batching dims and dims whose window is the whole dim are shared; indexed dims are marked
    `index`; a part of a dim that is not indexed is a `halo`.
    """
    special: dict[int, str] = {}
    window: list[Any] = [None] * len(window_shape)
    of_indices = b.add_factors(indices.shape)
    special[of_indices[-1]] = "replicate"
    for d, f in zip(batch_dims(len(window_shape), numbers), of_indices):
        window[d] = f
    window_axes = dict(zip(kept_dims(operand.ndim, numbers), numbers.offset_dims))
    of_operand: list[int] = []
    for d, (n, size) in enumerate(zip(operand.shape, slice_sizes)):
        if d in numbers.operand_batching_dims:
            of_operand.append(
                of_indices[
                    numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(d)]
                ]
            )
            continue
        f = b.new(n)
        of_operand.append(f)
        whole = size == n and d not in numbers.start_index_map
        if not whole:
            special[f] = "index" if d in numbers.start_index_map else "halo"
        if d in window_axes:
            g = f if whole else b.new(size)
            window[window_axes[d]] = g
            if not whole:
                special[g] = "replicate"
    return of_operand, of_indices, window, special
