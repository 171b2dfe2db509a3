"""Batched coordinates (BCOO): the sparse format with all operations.

In:   `data` of shape [*batch, nse, *dense] and `indices` of shape [*batch, nse, n_sparse], for an array [*batch, *sparse, *dense].
      A batch dim of either may be 1 if the array's is not: it is broadcast.
Out:  the same, or dense arrays.
Laws: every operation is written for arrays without batch dims (`map_batch_dims` maps it), in terms of gathers, scatters and
      sums, from which its derivatives, batching and sharding follow. The number of entries is static.
Next: `shapes` (slices, reshapes, sums), `products`, `transform` (functions of dense arrays applied to sparse ones).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft._engine.core.trace import Tracer
from weft._engine.util.messages.quantities import quantity
from weft.experimental.sparse.base import JAXSparse, axes_of, dims_of, mapped_shape
from weft.experimental.sparse.util import SparseEfficiencyError, SparseEfficiencyWarning


class BCOO(JAXSparse):
    """A sparse array in batched coordinates: values, and for each value its index in every sparse dim.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO.fromdense(wnp.array([[0., 2.], [3., 0.]]))
    >>> m, m.indices.tolist(), (m @ wnp.ones(2)).tolist()
    (BCOO(float32[2, 2], nse=2), [[0, 1], [1, 0]], [2.0, 3.0])
    """

    __slots__ = ("data", "indices", "indices_sorted", "unique_indices")

    indices: Any

    def __init__(
        self,
        args: Sequence[Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ):
        super().__init__(args, shape=shape)
        data, indices = args
        self.data, self.indices = wnp.asarray(data), wnp.asarray(indices)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        _check(self)

    n_batch = property(lambda self: self.indices.ndim - 2, doc="Number of batch dims.")
    n_sparse = property(lambda self: self.indices.shape[-1], doc="Number of sparse dims.")
    n_dense = property(
        lambda self: self.data.ndim - self.indices.ndim + 1, doc="Number of dense dims."
    )
    nse = property(
        lambda self: self.indices.shape[-2],
        doc="Number of specified elements, padding included, in each batch.",
    )

    def tree_flatten(self) -> tuple[tuple, Any]:
        """Return the data and the indices; the shape and the flags of the indices are static."""
        return (self.data, self.indices), (
            self.shape,
            self.indices_sorted,
            self.unique_indices,
            dims_of(self.data, self.indices),
        )

    @classmethod
    def tree_unflatten(cls, static: Any, children: Iterable[Any]) -> BCOO:
        """Invert `tree_flatten`; a batch dim that `vmap` removed or added is removed from or added to the shape."""
        shape, indices_sorted, unique_indices, before = static
        self = object.__new__(cls)
        self.data, self.indices = children
        self.shape = mapped_shape(shape, before, self.data, self.indices, 2)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        return self

    @classmethod
    def fromdense(
        cls,
        mat: Any,
        *,
        nse: int | None = None,
        index_dtype: Any = np.int32,
        n_dense: int = 0,
        n_batch: int = 0,
    ) -> BCOO:
        """See `bcoo_fromdense`."""
        return bcoo_fromdense(
            mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch
        )

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """Return the BCOO array of a matrix of `scipy.sparse`."""
        if n_dense or n_batch:
            raise NotImplementedError("BCOO.from_scipy_sparse: n_dense and n_batch must be 0.")
        mat = mat.tocoo()
        indices = np.column_stack((mat.row, mat.col)).astype(index_dtype or np.int32)
        return cls((mat.data, indices), shape=mat.shape)

    @classmethod
    def _empty(
        cls,
        shape: Sequence[int],
        *,
        dtype: Any = None,
        index_dtype: Any = np.int32,
        n_dense: int = 0,
        n_batch: int = 0,
        nse: int = 0,
    ) -> BCOO:
        shape = tuple(shape)
        batch, sparse, dense = split_shape(shape, n_batch, n_dense)
        return cls(
            (
                wnp.zeros((*batch, nse, *dense), dtype),
                wnp.full((*batch, nse, len(sparse)), np.array(sparse), index_dtype),
            ),
            shape=shape,
            indices_sorted=True,
            unique_indices=True,
        )

    @classmethod
    def _eye(
        cls,
        N: int,
        M: int,
        k: int,
        *,
        dtype: Any = None,
        index_dtype: Any = np.int32,
        n_batch: int = 0,
        n_dense: int = 0,
    ) -> BCOO:
        start = max(-k, 0)
        count = max(min(N - start, M - max(k, 0)), 0)
        rows = wnp.arange(count, dtype=index_dtype) + start
        result = cls(
            (wnp.ones(count, dtype), wnp.stack([rows, rows + k], axis=1)),
            shape=(N, M),
            indices_sorted=True,
            unique_indices=True,
        )
        return (
            result
            if not (n_batch or n_dense)
            else bcoo_fromdense(result.todense(), n_batch=n_batch, n_dense=n_dense)
        )

    def todense(self) -> Any:
        """The dense array."""
        return bcoo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """Permute the dims; batch, sparse and dense dims are permuted separately."""
        return self._sparsify(lambda x: wnp.transpose(x, axes_of(x.ndim, axes)), self)

    def reshape(self, *shape: Any, order: str = "C") -> BCOO:
        """See `bcoo_reshape`; the shape may be a tuple or separate integers."""
        return self._sparsify(lambda x: x.reshape(*shape, order=order), self)

    def astype(self, *args: Any, **kwargs: Any) -> BCOO:
        """Return the same entries with another dtype."""
        return _like(self, self.data.astype(*args, **kwargs), self.indices)

    def sort_indices(self) -> BCOO:
        """See `bcoo_sort_indices`."""
        return bcoo_sort_indices(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """See `bcoo_sum_duplicates`; with `remove_zeros` and without `nse`, zero entries are removed too."""
        if remove_zeros and nse is None and not isinstance(self.data, Tracer):
            return bcoo_sum_duplicates(_without_zeros(self))
        return bcoo_sum_duplicates(self, nse)

    def update_layout(
        self,
        *,
        n_batch: int | None = None,
        n_dense: int | None = None,
        on_inefficient: str | None = "error",
    ) -> BCOO:
        """See `bcoo_update_layout`."""
        return bcoo_update_layout(
            self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient
        )


def _check(mat: BCOO) -> None:
    shape, data, indices = mat.shape, mat.data, mat.indices
    if indices.ndim < 2 or data.ndim < indices.ndim - 1:
        raise ValueError(
            f"BCOO: data of shape {data.shape} and indices of shape {indices.shape} do not belong together:"
            " they are [*batch, nse, *dense] and [*batch, nse, n_sparse]."
        )
    if not np.issubdtype(indices.dtype, np.integer):
        raise TypeError(f"BCOO: indices must be integers, got {indices.dtype.name}.")
    n_batch, n_dense = mat.n_batch, mat.n_dense
    batch, sparse, dense = split_shape(shape, n_batch, n_dense)
    fits = (
        len(sparse) == indices.shape[-1]
        and n_batch + n_dense <= len(shape)
        and data.shape[n_batch + 1 :] == dense
        and data.shape[n_batch] == indices.shape[-2]
    )
    for lead_shape in (data.shape[:n_batch], indices.shape[:n_batch]):
        fits &= all(extent in (1, size) for extent, size in zip(lead_shape, batch))
    if not fits:
        raise ValueError(
            f"BCOO: data of shape {data.shape} and indices of shape {indices.shape} do not mean an array of shape {shape}."
        )


def split_shape(
    shape: tuple[int, ...], n_batch: int, n_dense: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of the batch, sparse and dense dims of a shape."""
    cut = len(shape) - n_dense
    return shape[:n_batch], shape[n_batch:cut], shape[cut:]


def shapes_of(mat: BCOO) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of the batch, sparse and dense dims of an array."""
    return split_shape(mat.shape, mat.n_batch, mat.n_dense)


def _like(mat: BCOO, data: Any, indices: Any) -> BCOO:
    return BCOO(
        (data, indices),
        shape=mat.shape,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def broadcast_batch_dims(mat: BCOO) -> tuple[Any, Any]:
    """Return data and indices with every batch dim broadcast to its full size."""
    batch = mat.shape[: mat.n_batch]
    return (
        wnp.broadcast_to(mat.data, (*batch, *mat.data.shape[len(batch) :])),
        wnp.broadcast_to(mat.indices, (*batch, *mat.indices.shape[len(batch) :])),
    )


def map_batch_dims(fun: Callable, n_batch: int) -> Callable:
    """Map `fun` over `n_batch` leading dims."""
    for _ in range(n_batch):
        fun = weft.vmap(fun)
    return fun


def columns(indices: Any) -> tuple[Any, ...]:
    """Return the indices [nse, n_sparse] as one array for each sparse dim."""
    return tuple(indices[:, i] for i in range(indices.shape[1]))


def in_range(indices: Any, sparse: Sequence[int]) -> Any:
    """Return a mask [nse] of the entries that are not padding."""
    if not len(sparse):
        return wnp.ones(indices.shape[0], bool)
    return wnp.all((indices >= 0) & (indices < wnp.array(np.array(sparse), indices.dtype)), axis=1)


def broadcast_mask(mask: Any, data: Any) -> Any:
    """Reshape a mask [nse] to broadcast against data [nse, *dense]."""
    return wnp.reshape(mask, (*mask.shape, *[1] * (data.ndim - 1)))


def pad_entries(data: Any, indices: Any, nse: int, sparse: Sequence[int]) -> tuple[Any, Any]:
    """Pad entries [n, ...] to `nse` entries."""
    more = nse - data.shape[0]
    if more <= 0:
        return data, indices
    return (
        wnp.concatenate([data, wnp.zeros((more, *data.shape[1:]), data.dtype)]),
        wnp.concatenate(
            [indices, wnp.full((more, len(sparse)), np.array(sparse, np.int64), indices.dtype)]
        ),
    )


# ---- conversion from and to dense arrays


def bcoo_todense(mat: BCOO) -> Any:
    """Return the dense array.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_todense(sparse.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    _, sparse, dense = shapes_of(mat)

    def apply_unbatched(data: Any, indices: Any) -> Any:
        if not sparse:
            return data.sum(0)
        start: Any = wnp.zeros((*sparse, *dense), data.dtype)
        return start.at[columns(indices)].add(data, mode="drop", unique_indices=mat.unique_indices)

    return map_batch_dims(apply_unbatched, mat.n_batch)(*broadcast_batch_dims(mat))


def bcoo_fromdense(
    mat: Any,
    *,
    nse: int | None = None,
    n_batch: int = 0,
    n_dense: int = 0,
    index_dtype: Any = np.int32,
) -> BCOO:
    """Return the nonzero entries of a dense array, in the order of their indices.

    `nse` is the number of entries, required if values are traced. ValueError if `n_batch` and `n_dense` exceed the number
    of dims.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_fromdense(wnp.array([0, 5, 0, 7])).data.tolist()
    [5, 7]
    """
    mat = wnp.asarray(mat)
    n_batch, n_dense = operator.index(n_batch), operator.index(n_dense)
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > mat.ndim:
        raise ValueError(
            f"bcoo_fromdense: n_batch={n_batch} and n_dense={n_dense} do not fit an array with {quantity(mat.ndim, 'dim')}."
        )
    _, sparse, dense = split_shape(mat.shape, n_batch, n_dense)
    is_nonzero = mat != 0
    if dense:
        is_nonzero = wnp.any(is_nonzero, axis=tuple(range(mat.ndim - n_dense, mat.ndim)))
    if nse is None:
        if isinstance(mat, Tracer):
            raise weft.errors.ConcretizationTypeError(
                mat,
                "bcoo_fromdense: the number of entries depends on values that are not known while tracing. Give nse=.",
            )
        counts = np.asarray(is_nonzero).sum(axis=tuple(range(n_batch, is_nonzero.ndim)))
        nse = int(counts.max()) if counts.size else 0
    nse = operator.index(nse)

    def apply_unbatched(there: Any) -> Any:
        if not sparse:
            return wnp.zeros((nse, 0), index_dtype)
        nonzero = wnp.nonzero(there, size=nse, fill_value=sparse)
        return wnp.stack(nonzero, axis=1).astype(index_dtype)

    indices = map_batch_dims(apply_unbatched, n_batch)(is_nonzero)
    return BCOO(
        (bcoo_extract_data(indices, mat), indices),
        shape=mat.shape,
        indices_sorted=True,
        unique_indices=True,
    )


def bcoo_extract_data(indices: Any, mat: Any) -> Any:
    """Return the values of a dense array at the indices; 0 for indices out of range."""

    def apply_unbatched(indices: Any, mat: Any) -> Any:
        if not indices.shape[1]:
            return wnp.broadcast_to(mat[None], (indices.shape[0], *mat.shape))
        return mat.at[columns(indices)].get(mode="fill", fill_value=0)

    batch = mat.shape[: indices.ndim - 2]
    return map_batch_dims(apply_unbatched, len(batch))(
        wnp.broadcast_to(indices, (*batch, *indices.shape[-2:])), mat
    )


def bcoo_extract(sparr: BCOO, arr: Any, *, assume_unique: bool | None = None) -> BCOO:
    """Return the values of dense `arr` at the indices of `sparr`. Unless `assume_unique`, the first of equal indices holds the value.

    ValueError if the shapes differ.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_extract(sparse.eye(2), wnp.array([[1., 2.], [3., 4.]])).data.tolist()
    [1.0, 4.0]
    """
    arr = wnp.asarray(arr)
    if not isinstance(sparr, BCOO):
        raise TypeError(
            f"bcoo_extract: the first argument must be a BCOO, got {type(sparr).__name__}."
        )
    if sparr.shape != arr.shape:
        raise ValueError(
            f"bcoo_extract: shapes differ: {sparr.shape} of the sparse array, {arr.shape} of the dense one."
        )
    data = bcoo_extract_data(sparr.indices, arr)
    if not (sparr.unique_indices if assume_unique is None else assume_unique):
        first = map_batch_dims(_first_of_equals, data.ndim - 1 - sparr.n_dense)(
            wnp.broadcast_to(
                sparr.indices, (*data.shape[: sparr.n_batch], *sparr.indices.shape[-2:])
            )
        )
        data = wnp.where(
            wnp.reshape(first, (*first.shape, *[1] * sparr.n_dense)),
            data,
            wnp.zeros((), data.dtype),
        )
    return BCOO(
        (data, sparr.indices),
        shape=sparr.shape,
        indices_sorted=sparr.indices_sorted,
        unique_indices=sparr.unique_indices,
    )


def _order(indices: Any) -> Any:
    return wnp.lexsort(columns(indices)[::-1]) if indices.shape[1] else wnp.arange(indices.shape[0])


def _run_starts(ordered: Any) -> Any:
    """Return a mask of the ordered indices that differ from their predecessors."""
    changed = wnp.any(ordered[1:] != ordered[:-1], axis=1)
    return wnp.concatenate([wnp.ones(min(1, ordered.shape[0]), bool), changed])


def _first_of_equals(indices: Any) -> Any:
    order = _order(indices)
    nowhere: Any = wnp.zeros(indices.shape[0], bool)
    return nowhere.at[order].set(_run_starts(indices[order]))


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """Sort the entries by their indices.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO((wnp.array([1, 2]), wnp.array([[3], [0]])), shape=(4,))
    >>> sparse.bcoo_sort_indices(m).data.tolist()
    [2, 1]
    """
    order = map_batch_dims(_order, mat.n_batch)(mat.indices)
    # indices keep broadcast batch dims of size 1
    batch = tuple(map(max, mat.data.shape[: mat.n_batch], order.shape[:-1]))
    full_order = wnp.broadcast_to(order, (*batch, mat.nse))
    data = map_batch_dims(lambda data, order: data[order], mat.n_batch)(
        wnp.broadcast_to(mat.data, (*batch, *mat.data.shape[mat.n_batch :])), full_order
    )
    indices = map_batch_dims(lambda indices, order: indices[order], mat.n_batch)(mat.indices, order)
    return BCOO(
        (data, indices), shape=mat.shape, indices_sorted=True, unique_indices=mat.unique_indices
    )


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """Add entries with equal indices, and sort them. `nse` is the number of entries of the result, required if indices are
    traced. Batch dims of size 1, over which indices or data are broadcast, keep that size.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO((wnp.array([1, 2, 4]), wnp.array([[3], [0], [3]])), shape=(4,))
    >>> sparse.bcoo_sum_duplicates(m).data.tolist()
    [2, 5]
    """
    _, sparse, _ = shapes_of(mat)
    n_batch, indices = mat.n_batch, mat.indices
    if nse is None:
        if isinstance(indices, Tracer):
            raise weft.errors.ConcretizationTypeError(
                indices,
                "bcoo_sum_duplicates: the number of different indices is not known while tracing. Give nse=.",
            )
        flat = np.asarray(indices).reshape(math.prod(indices.shape[:-2]), *indices.shape[-2:])
        valid = [
            rows[((rows >= 0) & (rows < np.array(sparse, rows.dtype))).all(1)] for rows in flat
        ]
        nse = max(
            (len(np.unique(rows, axis=0)) if sparse else min(1, len(rows)) for rows in valid),
            default=0,
        )
    count = operator.index(nse)

    def apply_unbatched(data: Any, indices: Any) -> tuple[Any, Any]:
        is_in_range = in_range(indices, sparse)
        data = wnp.where(broadcast_mask(is_in_range, data), data, wnp.zeros((), data.dtype))
        bound = wnp.array(np.array(sparse, np.int64), indices.dtype)
        indices = wnp.where(is_in_range[:, None], indices, bound)
        order = _order(indices)
        ordered = indices[order]
        place = wnp.cumsum(_run_starts(ordered)) - 1
        start: Any = wnp.zeros((count, *data.shape[1:]), data.dtype)
        sums = start.at[place].add(data[order], mode="drop")
        return sums, wnp.broadcast_to(bound, (count, len(sparse))).at[place].set(
            ordered, mode="drop"
        )

    batch = np.broadcast_shapes(mat.data.shape[:n_batch], indices.shape[:n_batch])
    data, distinct = map_batch_dims(apply_unbatched, n_batch)(
        wnp.broadcast_to(mat.data, (*batch, *mat.data.shape[n_batch:])),
        wnp.broadcast_to(indices, (*batch, *indices.shape[n_batch:])),
    )
    repeated = tuple(slice(1) if size == 1 else slice(None) for size in indices.shape[:n_batch])
    return BCOO(
        (data, distinct[repeated]), shape=mat.shape, indices_sorted=True, unique_indices=True
    )


def _without_zeros(mat: BCOO) -> BCOO:
    """Replace entries that are 0 by padding, which `bcoo_sum_duplicates` removes."""
    _, sparse, _ = shapes_of(mat)
    data, indices = mat.data, mat.indices
    is_nonzero = data != 0
    if mat.n_dense:
        is_nonzero = wnp.any(
            is_nonzero, axis=tuple(range(is_nonzero.ndim - mat.n_dense, is_nonzero.ndim))
        )
    repeated = tuple(d for d, size in enumerate(indices.shape[: mat.n_batch]) if size == 1)
    # a broadcast index is needed if any of its entries is needed
    is_nonzero = wnp.any(is_nonzero, axis=repeated, keepdims=True)
    return BCOO(
        (
            data,
            wnp.where(
                is_nonzero[..., None], indices, wnp.array(np.array(sparse, np.int64), indices.dtype)
            ),
        ),
        shape=mat.shape,
    )


# ---- changes of the kind of dims


def bcoo_update_layout(
    mat: BCOO,
    *,
    n_batch: int | None = None,
    n_dense: int | None = None,
    on_inefficient: str | None = "error",
) -> BCOO:
    """Return the same array with other numbers of batch and dense dims.

    A sparse dim that becomes a batch or dense dim needs memory for its whole length: this raises SparseEfficiencyError,
    warns with `on_inefficient="warn"`, or is allowed with None. ValueError for numbers that do not fit the array.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO.fromdense(wnp.eye(2), n_batch=1)
    >>> sparse.bcoo_update_layout(m, n_batch=0)
    BCOO(float32[2, 2], nse=2)
    """
    n_batch = operator.index(mat.n_batch if n_batch is None else n_batch)
    n_dense = operator.index(mat.n_dense if n_dense is None else n_dense)
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > mat.ndim:
        raise ValueError(
            f"bcoo_update_layout: n_batch={n_batch} and n_dense={n_dense} do not fit an array with {quantity(mat.ndim, 'dim')}."
        )
    if on_inefficient not in ("error", "warn", None):
        raise ValueError(
            f"bcoo_update_layout: on_inefficient must be 'error', 'warn' or None, got {on_inefficient!r}."
        )
    if n_batch > mat.n_batch or n_dense > mat.n_dense:
        _inefficient(
            f"bcoo_update_layout: from n_batch={mat.n_batch}, n_dense={mat.n_dense} to n_batch={n_batch}, n_dense={n_dense}"
            " a sparse dim is stored whole.",
            on_inefficient,
        )
    while mat.n_dense > n_dense:
        mat = _dense_to_sparse(mat)
    while mat.n_batch > n_batch:
        mat = batch_to_sparse(mat)
    while mat.n_dense < n_dense:
        mat = _sparse_to_dense(mat)
    while mat.n_batch < n_batch:
        mat = _sparse_to_batch(mat)
    return mat


def _inefficient(message: str, on_inefficient: str | None) -> None:
    if on_inefficient == "error":
        raise SparseEfficiencyError(f"{message} To do it nevertheless, set on_inefficient=None.")
    if on_inefficient == "warn":
        import warnings

        warnings.warn(message, SparseEfficiencyWarning, stacklevel=4)


def batch_to_sparse(mat: BCOO) -> BCOO:
    """Convert the last batch dim to the first sparse dim."""

    def apply_unbatched(data: Any, indices: Any) -> tuple[Any, Any]:  # [b, nse, ...], [b, nse, s]
        count, nse, dims = indices.shape
        places = wnp.repeat(wnp.arange(count, dtype=indices.dtype), nse)[:, None]
        places = wnp.concatenate([places, wnp.reshape(indices, (count * nse, dims))], axis=1)
        return wnp.reshape(data, (count * nse, *data.shape[2:])), places

    data, indices = broadcast_batch_dims(mat)
    if not mat.n_sparse:
        return _change_layout(
            mat,
            apply_unbatched,
            mat.n_batch - 1,
            data,
            wnp.zeros((*indices.shape[:-1], 0), indices.dtype),
        )
    return _change_layout(mat, apply_unbatched, mat.n_batch - 1, data, indices, mat.indices_sorted)


def _dense_to_sparse(mat: BCOO) -> BCOO:
    """Convert the first dense dim to the last sparse dim."""

    def apply_unbatched(data: Any, indices: Any) -> tuple[Any, Any]:  # [nse, d, ...], [nse, s]
        nse, count = data.shape[:2]
        places = wnp.tile(wnp.arange(count, dtype=indices.dtype), nse)[:, None]
        repeated = wnp.repeat(indices, count, axis=0)
        return wnp.reshape(data, (nse * count, *data.shape[2:])), wnp.concatenate(
            [repeated, places], axis=1
        )

    return _change_layout(
        mat, apply_unbatched, mat.n_batch, *broadcast_batch_dims(mat), mat.indices_sorted
    )


def _sparse_to_dense(mat: BCOO) -> BCOO:
    """Convert the last sparse dim to the first dense dim."""
    size = mat.shape[mat.n_batch + mat.n_sparse - 1]

    def apply_unbatched(data: Any, indices: Any) -> tuple[Any, Any]:
        nse = data.shape[0]
        rows: Any = wnp.zeros((nse, size, *data.shape[1:]), data.dtype)
        return rows.at[wnp.arange(nse), indices[:, -1]].set(data, mode="drop"), indices[:, :-1]

    result = _change_layout(mat, apply_unbatched, mat.n_batch, *broadcast_batch_dims(mat))
    return BCOO((result.data, result.indices), shape=mat.shape, indices_sorted=mat.indices_sorted)


def _sparse_to_batch(mat: BCOO) -> BCOO:
    """Convert the first sparse dim to the last batch dim."""
    _, sparse, _ = shapes_of(mat)

    def apply_unbatched(data: Any, indices: Any) -> tuple[Any, Any]:
        def row(place: Any) -> tuple[Any, Any]:
            here = indices[:, 0] == place
            row_indices = wnp.where(
                here[:, None],
                indices[:, 1:],
                wnp.array(np.array(sparse[1:], np.int64), indices.dtype),
            )
            return wnp.where(
                broadcast_mask(here, data), data, wnp.zeros((), data.dtype)
            ), row_indices

        return weft.vmap(row)(wnp.arange(sparse[0], dtype=indices.dtype))

    data, indices = map_batch_dims(apply_unbatched, mat.n_batch)(*broadcast_batch_dims(mat))
    return BCOO((data, indices), shape=mat.shape, unique_indices=mat.unique_indices)


def _change_layout(
    mat: BCOO,
    apply_unbatched: Callable,
    n_batch: int,
    data: Any,
    indices: Any,
    indices_sorted: bool = False,
) -> BCOO:
    data, indices = map_batch_dims(apply_unbatched, n_batch)(data, indices)
    return BCOO(
        (data, indices),
        shape=mat.shape,
        indices_sorted=indices_sorted,
        unique_indices=mat.unique_indices,
    )
