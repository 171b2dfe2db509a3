"""Batched compressed rows (BCSR).

In:   values and columns [*batch, nse], and the start of each row [*batch, rows + 1].
Out:  dense or sparse arrays. Operations that are not defined here convert to BCOO.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft._engine.util.messages.quantities import quantity
from weft.experimental.sparse import bcoo as coordinates, products, shapes
from weft.experimental.sparse.base import JAXSparse, axes_of, dims_of, mapped_shape
from weft.experimental.sparse.bcoo import BCOO, map_batch_dims


def row_starts(rows: Any, count: int) -> Any:
    """Return the start of each of `count` rows among ordered row numbers, and the end of the last row."""
    return wnp.searchsorted(rows, wnp.arange(count + 1, dtype=rows.dtype), side="left").astype(
        rows.dtype
    )


def row_numbers(beginnings: Any, nse: int) -> Any:
    """Return the row of each of `nse` entries; entries after the last row are padding."""
    return (
        wnp.searchsorted(beginnings, wnp.arange(nse, dtype=beginnings.dtype), side="right") - 1
    ).astype(beginnings.dtype)


class BCSR(JAXSparse):
    """Batched compressed rows: values and columns [*batch, nse], and the start of each row [*batch, rows + 1].

    >>> from weft.experimental import sparse
    >>> m = sparse.BCSR.fromdense(wnp.array([[0., 2.], [3., 0.]]))
    >>> m, m.indptr.tolist(), (m @ wnp.ones(2)).tolist()
    (BCSR(float32[2, 2], nse=2), [0, 1, 2], [2.0, 3.0])
    """

    __slots__ = ("data", "indices", "indptr", "indices_sorted", "unique_indices")

    def __init__(
        self,
        args: Sequence[Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ):
        super().__init__(args, shape=shape)
        self.data, self.indices, self.indptr = map(wnp.asarray, args)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        rows = self.shape[self.n_batch] if len(self.shape) > self.n_batch else None
        if (
            self.ndim != self.n_batch + 2 + self.n_dense
            or self.n_dense < 0
            or self.indptr.shape[-1] != (rows or 0) + 1
        ):
            raise ValueError(
                f"BCSR: data {self.data.shape}, indices {self.indices.shape} and indptr {self.indptr.shape} do not mean an"
                f" array of shape {self.shape}."
            )

    n_batch = property(lambda self: self.indices.ndim - 1, doc="Number of batch dims.")
    n_sparse = property(lambda self: 2, doc="Number of sparse dims: rows and columns.")
    n_dense = property(lambda self: self.data.ndim - self.indices.ndim, doc="Number of dense dims.")
    nse = property(
        lambda self: self.indices.shape[-1],
        doc="Number of specified elements, padding included, in each batch.",
    )

    def tree_flatten(self) -> tuple[tuple, Any]:
        """Return data, columns and row starts; the shape and the flags of the indices are static."""
        return (self.data, self.indices, self.indptr), (
            self.shape,
            self.indices_sorted,
            self.unique_indices,
            dims_of(self.data, self.indices),
        )

    @classmethod
    def tree_unflatten(cls, static: Any, children: Iterable[Any]) -> BCSR:
        """Invert `tree_flatten`; a batch dim that `vmap` removed or added is removed from or added to the shape."""
        shape, indices_sorted, unique_indices, before = static
        self = object.__new__(cls)
        self.data, self.indices, self.indptr = children
        self.shape = mapped_shape(shape, before, self.data, self.indices, 1)
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
    ) -> BCSR:
        """See `bcsr_fromdense`."""
        return bcsr_fromdense(
            mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype
        )

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """Convert a BCOO array whose two sparse dims are rows and columns. ValueError if it has another number of them."""
        if arr.n_sparse != 2:
            raise ValueError(f"BCSR.from_bcoo: needs two sparse dims, got {arr.n_sparse}.")
        if not arr.indices_sorted:
            arr = arr.sort_indices()
        rows = arr.shape[arr.n_batch]
        data, indices = coordinates.broadcast_batch_dims(arr)
        beginnings = map_batch_dims(lambda rows_of: row_starts(rows_of, rows), arr.n_batch)(
            indices[..., 0]
        )
        return cls(
            (data, indices[..., 1], beginnings),
            shape=arr.shape,
            indices_sorted=True,
            unique_indices=arr.unique_indices,
        )

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """Return the BCSR array of a matrix of `scipy.sparse`."""
        if n_dense or n_batch:
            raise NotImplementedError("BCSR.from_scipy_sparse: n_dense and n_batch must be 0.")
        mat = mat.tocsr()
        dtype = index_dtype or np.int32
        return cls((mat.data, mat.indices.astype(dtype), mat.indptr.astype(dtype)), shape=mat.shape)

    @classmethod
    def _empty(cls, shape: Sequence[int], **options: Any) -> BCSR:
        return cls.from_bcoo(BCOO._empty(shape, **options))

    @classmethod
    def _eye(cls, N: int, M: int, k: int, **options: Any) -> BCSR:
        return cls.from_bcoo(BCOO._eye(N, M, k, **options))

    def to_bcoo(self) -> BCOO:
        """Return the same array as BCOO."""
        batch = self.shape[: self.n_batch]
        columns = wnp.broadcast_to(self.indices, (*batch, self.nse))
        beginnings = wnp.broadcast_to(self.indptr, (*batch, self.indptr.shape[-1]))
        rows = map_batch_dims(lambda each: row_numbers(each, self.nse), self.n_batch)(
            beginnings
        ).astype(columns.dtype)
        data = wnp.broadcast_to(self.data, (*batch, *self.data.shape[self.n_batch :]))
        return BCOO(
            (data, wnp.stack([rows, columns], axis=-1)),
            shape=self.shape,
            indices_sorted=self.indices_sorted,
            unique_indices=self.unique_indices,
        )

    def todense(self) -> Any:
        """The dense array."""
        return self.to_bcoo().todense()

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """Permute the dims."""
        axes = axes_of(self.ndim, axes)
        return (
            self
            if axes == tuple(range(self.ndim))
            else BCSR.from_bcoo(self.to_bcoo().transpose(axes))
        )

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """See `bcsr_sum_duplicates`; with `remove_zeros` and without `nse`, zero entries are removed too."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse, remove_zeros))


def bcsr_fromdense(
    mat: Any,
    *,
    nse: int | None = None,
    n_batch: int = 0,
    n_dense: int = 0,
    index_dtype: Any = np.int32,
) -> BCSR:
    """Return the nonzero entries of a dense array, by rows. ValueError unless there are two sparse dims.

    >>> from weft.experimental import sparse
    >>> sparse.bcsr_fromdense(wnp.eye(2)).indices.tolist()
    [0, 1]
    """
    mat = wnp.asarray(mat)
    if mat.ndim != n_batch + n_dense + 2:
        raise ValueError(
            f"bcsr_fromdense: an array with {quantity(mat.ndim, 'dim')}, n_batch={n_batch} and n_dense={n_dense} leave"
            f" {mat.ndim - n_batch - n_dense} sparse dims; there must be two."
        )
    return BCSR.from_bcoo(
        coordinates.bcoo_fromdense(
            mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype
        )
    )


def bcsr_todense(mat: BCSR) -> Any:
    """The dense array."""
    return mat.todense()


def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Any:
    """Return the values of a dense array at the columns `indices` of rows that start at `indptr`.

    >>> from weft.experimental import sparse
    >>> sparse.bcsr_extract(wnp.array([1, 0]), wnp.array([0, 1, 2]), wnp.array([[1., 2.], [3., 4.]])).tolist()
    [2.0, 3.0]
    """
    indices, indptr, mat = map(wnp.asarray, (indices, indptr, mat))
    if not indices.ndim or not indptr.ndim:
        raise ValueError(
            "bcsr_extract: `indices` and `indptr` must have at least 1 dim, got a scalar."
        )
    rows = map_batch_dims(lambda each: row_numbers(each, indices.shape[-1]), indptr.ndim - 1)(
        indptr
    ).astype(indices.dtype)
    return coordinates.bcoo_extract_data(
        wnp.stack(wnp.broadcast_arrays(rows, indices), axis=-1), mat
    )


def bcsr_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Return the product of a sparse and a dense array: see `bcoo_dot_general`."""
    lhs, rhs = (each.to_bcoo() if isinstance(each, BCSR) else each for each in (lhs, rhs))
    return products.bcoo_dot_general(
        lhs,
        rhs,
        dimension_numbers=dimension_numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """Add entries with equal indices: see `bcoo_sum_duplicates`."""
    return BCSR.from_bcoo(coordinates.bcoo_sum_duplicates(mat.to_bcoo(), nse))


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """Join arrays along a dim: see `bcoo_concatenate`."""
    if not all(isinstance(each, BCSR) for each in operands):
        raise TypeError(f"bcsr_concatenate: `operands` must be BCSR arrays, got {operands!r:.60}.")
    return BCSR.from_bcoo(
        shapes.bcoo_concatenate([each.to_bcoo() for each in operands], dimension=dimension)
    )


def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """Broadcast along new dims: see `bcoo_broadcast_in_dim`. The result has two sparse dims."""
    return BCSR.from_bcoo(
        shapes.bcoo_broadcast_in_dim(
            mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions
        )
    )
