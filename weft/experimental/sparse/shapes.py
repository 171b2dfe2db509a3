"""Operations that permute, slice, join and sum the dims of BCOO arrays.

In:   BCOO arrays, and the parameters of the `weft.lax` operation of the same name.
Out:  BCOO arrays; entries outside of the result become padding.
Next: `products`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax
from weft._engine.numpy.reductions import sum_dtype
from weft._engine.ops.families import canonical_dims
from weft._engine.util.messages.quantities import quantity
from weft.experimental.sparse.bcoo import (
    BCOO,
    batch_to_sparse,
    bcoo_sum_duplicates,
    broadcast_batch_dims,
    broadcast_mask,
    columns,
    in_range,
    map_batch_dims,
    pad_entries,
    shapes_of,
)


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """Permute the dims. NotImplementedError if a dim would change its kind: batch, sparse or dense.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_transpose(sparse.eye(2, 3, k=1), permutation=(1, 0)).indices.tolist()
    [[1, 0], [2, 1]]
    """
    permutation = tuple(operator.index(d) for d in permutation)
    if sorted(permutation) != list(range(mat.ndim)):
        raise ValueError(
            f"bcoo_transpose: {permutation} is not a permutation of {quantity(mat.ndim, 'dim')}."
        )
    b, end = mat.n_batch, mat.n_batch + mat.n_sparse
    batch, sparse, dense = permutation[:b], permutation[b:end], permutation[end:]
    if any(d >= b for d in batch) or any(not b <= d < end for d in sparse):
        raise NotImplementedError(
            f"bcoo_transpose: permutation {permutation} of an array with n_batch={b}, n_sparse={mat.n_sparse},"
            f" n_dense={mat.n_dense} mixes dims of different kinds. Call update_layout first."
        )
    data = wnp.transpose(mat.data, (*batch, b, *(d - end + b + 1 for d in dense)))
    indices: Any = wnp.transpose(mat.indices, (*batch, b, b + 1))
    if sparse:
        indices = indices[..., tuple(d - b for d in sparse)]
    return BCOO(
        (data, indices),
        shape=tuple(mat.shape[d] for d in permutation),
        unique_indices=mat.unique_indices,
        indices_sorted=mat.indices_sorted and sparse == tuple(range(b, end)),
    )


def _check_places(mat: BCOO, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """Raise ValueError unless `dims` are the places of the dims of `mat` in `shape`, in order."""
    places = sorted(set(dims).intersection(range(len(shape))))
    is_ordered = len(dims) == mat.ndim and list(dims) == places
    if not is_ordered or any(size not in (1, shape[d]) for size, d in zip(mat.shape, dims)):
        raise ValueError(
            f"bcoo_broadcast_in_dim: dims {dims} do not place an array of shape {mat.shape} in {shape}."
        )


def _kinds_of_dims(mat: BCOO, ndim: int, dims: tuple[int, ...]) -> list[str]:
    """Return the kind of each dim of an array of rank `ndim` if `mat` becomes its dims `dims`.

    A new dim before or directly after the last batch dim is a batch dim.
    """
    kinds = []
    for d in range(ndim):
        before = sum(place < d for place in dims)
        if before + (d in dims) <= mat.n_batch:
            kinds.append("batch")
        else:
            is_dense = mat.n_dense and before >= mat.n_batch + mat.n_sparse
            kinds.append("dense" if is_dense else "sparse")
    return kinds


def bcoo_broadcast_in_dim(
    mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCOO:
    """Return an array of `shape` whose dim `broadcast_dimensions[i]` is dim i of `mat`; entries are repeated along the others.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_broadcast_in_dim(sparse.BCOO.fromdense(wnp.array([0., 2.])), shape=(2, 2), broadcast_dimensions=(1,)).todense().tolist()
    [[0.0, 2.0], [0.0, 2.0]]
    """
    shape, dims = tuple(shape), tuple(broadcast_dimensions)
    _check_places(mat, shape, dims)
    kinds = _kinds_of_dims(mat, len(shape), dims)
    n_batch, n_dense = kinds.count("batch"), kinds.count("dense")
    source = {place: i for i, place in enumerate(dims)}

    def sizes(of: tuple[int, ...], places: Iterable[int]) -> list[int]:
        """Return sizes of `of` at places of the result, 1 for new dims."""
        return [of[source[d]] if d in source else 1 for d in places]

    data, indices = mat.data, mat.indices
    lead, lead_indices = (sizes(x.shape, range(n_batch)) for x in (data, indices))
    tail = sizes(mat.shape, range(len(shape) - n_dense, len(shape)))
    data = wnp.broadcast_to(
        wnp.reshape(data, (*lead, mat.nse, *tail)), (*lead, mat.nse, *shape[len(shape) - n_dense :])
    )
    indices = wnp.reshape(indices, (*lead_indices, mat.nse, mat.n_sparse))
    wide = {d: source.get(d) for d in range(n_batch, len(shape) - n_dense)}
    repeated = [d for d, old in wide.items() if old is None or mat.shape[old] != shape[d]]
    factor = math.prod(shape[d] for d in repeated)
    grid = np.indices([shape[d] for d in repeated]).reshape(len(repeated), factor)

    def column(d: int, old: int | None) -> Any:
        """Return the indices of all repetitions of the entries along dim d."""
        stored = (
            None if old is None else wnp.repeat(indices[..., old - mat.n_batch], factor, axis=-1)
        )
        if d not in repeated:
            return stored
        row = wnp.asarray(grid[repeated.index(d)].astype(np.dtype(indices.dtype)))
        new = wnp.broadcast_to(wnp.tile(row, mat.nse), (*indices.shape[:-2], mat.nse * factor))
        if stored is None:
            return new
        # padding of a dim of size 1 stays padding
        return wnp.where(stored == 0, new, wnp.array(shape[d], indices.dtype))

    if wide:
        indices = wnp.stack([column(d, old) for d, old in wide.items()], axis=-1)
        data = wnp.repeat(data, factor, axis=n_batch)
    return BCOO((data, indices), shape=shape, unique_indices=mat.unique_indices)


def bcoo_reshape(
    mat: BCOO,
    *,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    sharding: Any = None,
) -> BCOO:
    """Return the array reshaped in row-major order. Batch, sparse and dense dims are reshaped separately.

    ValueError if the new sizes would mix kinds of dims.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_reshape(sparse.eye(2), new_sizes=(4,)).indices.tolist()
    [[0], [3]]
    """
    if dimensions is not None and tuple(dimensions) != tuple(range(mat.ndim)):
        mat = bcoo_transpose(mat, permutation=dimensions)
    batch, sparse, dense = shapes_of(mat)
    sizes = tuple(new_sizes)
    if math.prod(sizes) != mat.size:
        raise ValueError(
            f"bcoo_reshape: an array of shape {mat.shape} has no {math.prod(sizes)} elements, which {sizes} needs."
        )
    cuts = _cuts(sizes, math.prod(batch), math.prod(sparse), bool(batch), bool(sparse), bool(dense))
    if cuts is None:
        raise ValueError(
            f"bcoo_reshape: from {mat.shape} to {sizes} cannot mix batch and sparse dimensions, or those with dense ones"
            f" (n_batch={mat.n_batch}, n_dense={mat.n_dense}). Call update_layout first."
        )
    new_batch, new_sparse, new_dense = sizes[: cuts[0]], sizes[cuts[0] : cuts[1]], sizes[cuts[1] :]
    data, indices = broadcast_batch_dims(mat)
    data = wnp.reshape(data, (*new_batch, mat.nse, *new_dense))
    indices = wnp.reshape(indices, (*new_batch, mat.nse, len(sparse)))

    def apply_unbatched(indices: Any) -> Any:
        flat = wnp.zeros(mat.nse, indices.dtype)
        for column, size in zip(columns(indices), sparse):
            flat = flat * size + column
        is_in_range = in_range(indices, sparse)
        new_indices = []
        for size in reversed(new_sparse):
            new_indices.append(
                wnp.where(is_in_range, flat % max(size, 1), wnp.array(size, indices.dtype))
            )
            flat = flat // max(size, 1)
        return (
            wnp.stack(new_indices[::-1], axis=1)
            if new_indices
            else wnp.zeros((mat.nse, 0), indices.dtype)
        )

    return BCOO(
        (data, map_batch_dims(apply_unbatched, len(new_batch))(indices)),
        shape=sizes,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def _cuts(
    sizes: tuple[int, ...],
    batch: int,
    sparse: int,
    has_batch: bool,
    has_sparse: bool,
    has_dense: bool,
) -> tuple[int, int] | None:
    """Return the ends of the batch and the sparse dims in the new sizes."""
    for first in range(len(sizes) + 1):
        if (
            math.prod(sizes[:first]) != batch
            or (first and not has_batch)
            or (has_batch and not first and batch != 1)
        ):
            continue
        ends = range(len(sizes), first - 1, -1) if not has_dense else range(first, len(sizes) + 1)
        for second in ends:
            if (
                math.prod(sizes[first:second]) == sparse
                and (has_sparse or first == second)
                and (has_dense or second == len(sizes))
            ):
                return first, second
    return None


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """Remove dims of size 1. ValueError if one has another size.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_squeeze(sparse.eye(1, 3), dimensions=(0,)).shape
    (3,)
    """
    drop = set(canonical_dims("bcoo_squeeze", dimensions, arr.ndim))
    if bad := [d for d in drop if arr.shape[d] != 1]:
        raise ValueError(
            f"bcoo_squeeze: dim {bad[0]} of shape {arr.shape} has size {arr.shape[bad[0]]}, not 1."
        )
    b, end = arr.n_batch, arr.n_batch + arr.n_sparse
    data = wnp.squeeze(
        arr.data, tuple(d if d < b else d - end + b + 1 for d in drop if not b <= d < end)
    )
    dropped_dims = tuple(d - b for d in drop if b <= d < end)
    keep = [i for i in range(arr.n_sparse) if i not in dropped_dims]
    indices: Any = wnp.squeeze(arr.indices, tuple(d for d in drop if d < b))
    if dropped_dims:
        out = wnp.any(indices[..., dropped_dims] != 0, axis=-1, keepdims=True)
        bound = wnp.array(np.array([arr.shape[b + i] for i in keep], np.int64), indices.dtype)
        if not keep:
            inside = wnp.reshape(~out[..., 0], (*out.shape[:-1], *[1] * (data.ndim - out.ndim + 1)))
            data = wnp.where(inside, data, wnp.zeros((), data.dtype))
        indices = wnp.where(out, bound, indices[..., tuple(keep)]) if keep else indices[..., :0]
    return BCOO(
        (data, indices),
        shape=tuple(size for d, size in enumerate(arr.shape) if d not in drop),
        indices_sorted=arr.indices_sorted and not dropped_dims,
        unique_indices=arr.unique_indices,
    )


def bcoo_slice(
    mat: BCOO,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> BCOO:
    """Return a slice: see `weft.lax.slice`. Entries outside of it become padding; the slice has at most one entry per element.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_slice(sparse.eye(4), start_indices=(1, 0), limit_indices=(3, 4)).todense().tolist()
    [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
    """
    starts, limits = tuple(start_indices), tuple(limit_indices)
    steps = (1,) * mat.ndim if strides is None else tuple(strides)
    if not len(starts) == len(limits) == len(steps) == mat.ndim:
        raise ValueError(
            f"bcoo_slice: an array with {quantity(mat.ndim, 'dim')} needs as many starts, limits and strides;"
            f" got {starts}, {limits}, {strides}."
        )
    if any(
        not 0 <= start <= limit <= size or step < 1
        for start, limit, step, size in zip(starts, limits, steps, mat.shape)
    ):
        raise ValueError(
            f"bcoo_slice: starts {starts}, limits {limits} and strides {steps} are not a slice of shape {mat.shape}."
        )
    shape = tuple(-(-(limit - start) // step) for start, limit, step in zip(starts, limits, steps))
    b, end = mat.n_batch, mat.n_batch + mat.n_sparse
    cut = [slice(start, limit, step) for start, limit, step in zip(starts, limits, steps)]
    whole = slice(None)
    data = mat.data[
        tuple(whole if mat.data.shape[d] == 1 else cut[d] for d in range(b)) + (whole, *cut[end:])
    ]
    indices = mat.indices[tuple(whole if mat.indices.shape[d] == 1 else cut[d] for d in range(b))]
    data, indices = _resize_ones(data, shape, b), _resize_ones(indices, shape, b)
    if shape[b:end] == mat.shape[b:end]:
        return _limit_entries(
            BCOO(
                (data, indices),
                shape=shape,
                indices_sorted=mat.indices_sorted,
                unique_indices=mat.unique_indices,
            )
        )
    return _select_window(
        mat,
        data,
        indices,
        shape,
        np.array(starts[b:end]),
        np.array(steps[b:end]),
        np.array(limits[b:end]),
    )


def _resize_ones(array: Any, shape: tuple[int, ...], b: int) -> Any:
    """Reduce batch dims of size 1 to 0 if the slice is empty there."""
    return array[tuple(slice(0, min(array.shape[d], shape[d])) for d in range(b))] if b else array


def _select_window(
    mat: BCOO, data: Any, indices: Any, shape: tuple[int, ...], starts: Any, steps: Any, limits: Any
) -> BCOO:
    """Keep the entries whose sparse indices are in a window, with shifted indices; truncate padding if possible."""
    b, end = mat.n_batch, mat.n_batch + mat.n_sparse
    sparse = shape[b:end]
    dtype = indices.dtype
    starts, steps, limits = (
        wnp.astype(wnp.asarray(each), dtype) for each in (starts, steps, limits)
    )
    moved = indices - starts
    inside = wnp.all(
        (indices >= starts) & (indices < limits) & (moved % steps == 0), axis=-1, keepdims=True
    )
    new = wnp.where(inside, moved // steps, wnp.array(np.array(sparse, np.int64), dtype))
    mask = wnp.reshape(inside[..., 0], (*inside.shape[:-1], *[1] * (data.ndim - inside.ndim + 1)))
    data = wnp.where(mask, data, wnp.zeros((), data.dtype))
    return _limit_entries(BCOO((data, new), shape=shape, unique_indices=mat.unique_indices))


def _limit_entries(mat: BCOO) -> BCOO:
    """Reduce the number of entries to the number of elements: keep distinct entries in range in their order, else sum them."""
    batch, sparse, _ = shapes_of(mat)
    most = math.prod(sparse)
    if most >= mat.nse:
        return mat
    if not mat.unique_indices:
        return bcoo_sum_duplicates(mat, nse=most)

    def first(data: Any, indices: Any) -> tuple[Any, Any]:
        order = wnp.argsort(~in_range(indices, sparse), stable=True)[:most]
        return data[order], indices[order]

    data, indices = map_batch_dims(first, len(batch))(*broadcast_batch_dims(mat))
    return BCOO(
        (data, indices), shape=mat.shape, indices_sorted=mat.indices_sorted, unique_indices=True
    )


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """Return a slice of static sizes at possibly traced starts, which are clamped: see `weft.lax.dynamic_slice`.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_dynamic_slice(sparse.eye(4), (2, 2), (2, 2)).todense().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    from weft import lax

    sizes, starts = tuple(slice_sizes), list(start_indices)
    if not len(sizes) == len(starts) == mat.ndim:
        raise ValueError(
            f"bcoo_dynamic_slice: {quantity(mat.ndim, 'dim')} need as many starts and sizes; got {len(starts)} and {sizes}."
        )
    if any(not 0 <= size <= whole for size, whole in zip(sizes, mat.shape)):
        raise ValueError(f"bcoo_dynamic_slice: sizes {sizes} do not fit shape {mat.shape}.")
    b, end = mat.n_batch, mat.n_batch + mat.n_sparse
    starts = [
        wnp.clip(
            wnp.where(wnp.asarray(start) < 0, wnp.asarray(start) + whole, start), 0, whole - size
        )
        for start, size, whole in zip(starts, sizes, mat.shape)
    ]

    def cut(array: Any, dims: dict[int, int]) -> Any:  # dim of the array -> dim of the matrix
        for own, d in dims.items():
            if array.shape[own] == mat.shape[d]:
                array = lax.dynamic_slice_in_dim(array, starts[d], sizes[d], own)
            else:
                array = array[(slice(None),) * own + (slice(0, min(1, sizes[d])),)]
        return array

    data = cut(
        mat.data, {**{d: d for d in range(b)}, **{d - end + b + 1: d for d in range(end, mat.ndim)}}
    )
    indices = cut(mat.indices, {d: d for d in range(b)})
    if not mat.n_sparse or sizes[b:end] == mat.shape[b:end]:
        return _limit_entries(
            BCOO(
                (data, indices),
                shape=sizes,
                indices_sorted=mat.indices_sorted,
                unique_indices=mat.unique_indices,
            )
        )
    at = wnp.stack([wnp.asarray(start, indices.dtype) for start in starts[b:end]])
    limits = at + wnp.array(np.array(sizes[b:end], np.int64), indices.dtype)
    return _select_window(mat, data, indices, sizes, at, np.ones(end - b, int), limits)


def bcoo_gather(
    operand: BCOO,
    start_indices: Any,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> BCOO:
    """Gather one slice, as a dynamic slice: see `weft.lax.gather`. NotImplementedError for several slices.

    >>> from weft.experimental import sparse
    >>> dims = lax.GatherDimensionNumbers(offset_dims=(0,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> sparse.bcoo_gather(sparse.eye(3), wnp.array([1]), dims, (1, 3)).todense().tolist()
    [0.0, 1.0, 0.0]
    """
    lax.GatherScatterMode.from_any(mode)  # out-of-bounds starts are clamped, as in dynamic_slice
    start_indices = wnp.asarray(start_indices)
    if start_indices.ndim != 1 or getattr(dimension_numbers, "operand_batching_dims", ()):
        raise NotImplementedError(
            "bcoo_gather: a gather of more than one slice from a sparse array. Use update_layout and todense,"
            " or one slice at a time."
        )
    starts: list[Any] = [0] * operand.ndim
    for place, d in enumerate(dimension_numbers.start_index_map):
        starts[d] = start_indices[place]
    result = bcoo_dynamic_slice(operand, starts, slice_sizes)
    return bcoo_squeeze(result, dimensions=dimension_numbers.collapsed_slice_dims)


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """Reverse the array along dims: see `weft.lax.rev`.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_rev(sparse.eye(2), (0,)).todense().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    dims = set(canonical_dims("bcoo_rev", dimensions, operand.ndim))
    b, end = operand.n_batch, operand.n_batch + operand.n_sparse
    data = wnp.flip(
        operand.data, tuple(d if d < b else d - end + b + 1 for d in dims if not b <= d < end)
    )
    indices = wnp.flip(operand.indices, tuple(d for d in dims if d < b))
    turned = [d - b for d in dims if b <= d < end]
    for i in turned:
        size = operand.shape[b + i]
        column = indices[..., i]
        indices = indices.at[..., i].set(wnp.where(column < size, size - 1 - column, size))
    return BCOO(
        (data, indices),
        shape=operand.shape,
        indices_sorted=operand.indices_sorted and not turned,
        unique_indices=operand.unique_indices,
    )


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """Return the sum over dims, in the dtype of `weft.numpy.sum`. Entries of the result may have equal indices, which are not summed here.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_reduce_sum(sparse.eye(3), axes=(0,)).todense().tolist()
    [1.0, 1.0, 1.0]
    """
    acc_dtype = sum_dtype(mat)
    if mat.dtype != acc_dtype:
        data = mat.data.astype(acc_dtype)
        mat = BCOO(
            (data, mat.indices),
            shape=mat.shape,
            indices_sorted=mat.indices_sorted,
            unique_indices=mat.unique_indices,
        )
    return reduce_sum(mat, axes)


def _batches_to_sparse(mat: BCOO, dims: list[int]) -> BCOO:
    """Convert the batch dims `dims` to leading sparse dims."""
    if not dims:
        return mat
    order = [d for d in range(mat.n_batch) if d not in dims] + dims
    mat = bcoo_transpose(mat, permutation=(*order, *range(mat.n_batch, mat.ndim)))
    for _ in dims:
        mat = batch_to_sparse(mat)
    return mat


def reduce_sum(mat: BCOO, axes: Sequence[int]) -> BCOO:
    """Return the sum over dims in the dtype of `mat`."""
    drop = sorted(set(canonical_dims("bcoo_reduce_sum", axes, mat.ndim)))
    b, end = mat.n_batch, mat.n_batch + mat.n_sparse
    summed_batches = [d for d in drop if d < b]
    data, indices = broadcast_batch_dims(mat) if summed_batches else (mat.data, mat.indices)
    summed_dense = [d for d in drop if d >= end]
    if summed_dense:
        data = data.sum(tuple(d - end + b + 1 for d in summed_dense))
    kept_dense = tuple(mat.shape[d] for d in range(end, mat.ndim) if d not in drop)
    mat = BCOO(
        (data, indices), shape=(*mat.shape[:end], *kept_dense), unique_indices=mat.unique_indices
    )
    mat = _batches_to_sparse(mat, summed_batches)
    n_batch = mat.n_batch
    lead = len(summed_batches)  # the sparse dims that were batch dims
    dropped_dims = {*range(lead), *[d - b + lead for d in drop if b <= d < end]}
    if not dropped_dims:
        return mat
    keep = [i for i in range(mat.n_sparse) if i not in dropped_dims]
    sizes = tuple(mat.shape[n_batch + i] for i in keep)
    _, sparse, dense = shapes_of(mat)

    def apply_unbatched(data: Any, indices: Any) -> tuple[Any, Any]:
        is_in_range = in_range(indices, sparse)
        data = wnp.where(broadcast_mask(is_in_range, data), data, wnp.zeros((), data.dtype))
        if not keep:
            return data.sum(0, keepdims=True), wnp.zeros((1, 0), indices.dtype)
        kept_indices = wnp.stack([indices[:, i] for i in keep], axis=1)
        return data, wnp.where(
            is_in_range[:, None], kept_indices, wnp.array(np.array(sizes, np.int64), indices.dtype)
        )

    data, indices = map_batch_dims(apply_unbatched, n_batch)(*broadcast_batch_dims(mat))
    return BCOO((data.astype(mat.dtype), indices), shape=(*mat.shape[:n_batch], *sizes, *dense))


def _check_joined(operands: list[BCOO], dimension: int) -> int:
    """Return the dim along which arrays are joined, from 0 up. Raises ValueError if they do not fit."""
    if not operands or not all(isinstance(each, BCOO) for each in operands):
        raise ValueError("bcoo_concatenate: needs BCOO arrays, at least one.")
    first = operands[0]
    (dimension,) = canonical_dims("bcoo_concatenate", (dimension,), first.ndim)
    kinds = (first.n_batch, first.n_sparse, first.n_dense)
    for each in operands[1:]:
        if (each.n_batch, each.n_sparse, each.n_dense) != kinds:
            raise ValueError(
                f"bcoo_concatenate: the kinds of dims differ: n_batch={first.n_batch}, n_dense={first.n_dense} and"
                f" n_batch={each.n_batch}, n_dense={each.n_dense}."
            )
        if any(a != b for d, (a, b) in enumerate(zip(first.shape, each.shape)) if d != dimension):
            raise ValueError(
                f"bcoo_concatenate: shapes {first.shape} and {each.shape} differ in a dim that is not {dimension}."
            )
    if dimension >= first.n_batch + first.n_sparse:
        raise NotImplementedError(
            "bcoo_concatenate: concatenation along a dense dim is not implemented. Call update_layout first."
        )
    return dimension


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Join arrays along a dim; their numbers of batch and dense dims are equal. NotImplementedError for a dense dim.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_concatenate([sparse.eye(1), sparse.eye(1)], dimension=1).todense().tolist()
    [[1.0, 1.0]]
    """
    operands = list(operands)
    dimension = _check_joined(operands, dimension)
    first = operands[0]
    b, end = first.n_batch, first.n_batch + first.n_sparse
    shape = tuple(
        sum(each.shape[d] for each in operands) if d == dimension else size
        for d, size in enumerate(first.shape)
    )
    dtype = wnp.result_type(*(each.dtype for each in operands))
    wholes = [broadcast_batch_dims(each) for each in operands]
    if dimension < b:
        nse = max(each.nse for each in operands)
        padded = [
            map_batch_dims(lambda data, indices: pad_entries(data, indices, nse, shape[b:end]), b)(
                *whole
            )
            for whole in wholes
        ]
        data = wnp.concatenate([each.astype(dtype) for each, _ in padded], axis=dimension)
        return BCOO(
            (data, wnp.concatenate([each for _, each in padded], axis=dimension)),
            shape=shape,
            unique_indices=all(each.unique_indices for each in operands),
        )
    column, offset, moved = dimension - b, 0, []
    for each, (_, indices) in zip(operands, wholes):
        size = each.shape[dimension]
        place = indices[..., column]
        moved.append(
            indices.at[..., column].set(wnp.where(place < size, place + offset, shape[dimension]))
        )
        offset += size
    data = wnp.concatenate([data.astype(dtype) for data, _ in wholes], axis=b)
    return BCOO(
        (data, wnp.concatenate(moved, axis=b)),
        shape=shape,
        unique_indices=all(each.unique_indices for each in operands),
    )
