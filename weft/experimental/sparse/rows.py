"""The formats that hold matrices by their rows and columns: BCSR, COO, CSR and CSC.

In:   values, and indices of rows and columns, or where each row (column) begins.
Out:  dense arrays, or sparse ones. Products and sums go through BCOO, whose entries these formats hold in another way.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.experimental.sparse import bcoo as coordinates, products, shapes
from weft.experimental.sparse.base import JAXSparse, axes_of, mapped_shape
from weft.experimental.sparse.bcoo import BCOO, over_batches


def _beginnings(rows: Any, count: int) -> Any:
    """Where each of `count` rows begins among ordered row numbers, and where the last one ends."""
    return wnp.searchsorted(rows, wnp.arange(count + 1, dtype=rows.dtype), side="left").astype(rows.dtype)


def numbers(beginnings: Any, nse: int) -> Any:
    """The row of each of `nse` entries; behind the last row there is padding."""
    return (wnp.searchsorted(beginnings, wnp.arange(nse, dtype=beginnings.dtype), side="right") - 1).astype(beginnings.dtype)


class BCSR(JAXSparse):
    """Batched compressed rows: values and columns [*batch, nse], and where each row begins [*batch, rows + 1].

    >>> from weft.experimental import sparse
    >>> m = sparse.BCSR.fromdense(wnp.array([[0., 2.], [3., 0.]]))
    >>> m, m.indptr.tolist(), (m @ wnp.ones(2)).tolist()
    (BCSR(float32[2, 2], nse=2), [0, 1, 2], [2.0, 3.0])
    """
    __slots__ = ("data", "indices", "indptr", "indices_sorted", "unique_indices")

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int], indices_sorted: bool = False, unique_indices: bool = False):
        super().__init__(args, shape=shape)
        self.data, self.indices, self.indptr = map(wnp.asarray, args)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        rows = self.shape[self.n_batch] if len(self.shape) > self.n_batch else None
        if self.ndim != self.n_batch + 2 + self.n_dense or self.n_dense < 0 or self.indptr.shape[-1] != (rows or 0) + 1:
            raise ValueError(f"BCSR: data {self.data.shape}, indices {self.indices.shape} and indptr {self.indptr.shape} do not mean an"
                             f" array of shape {self.shape}.")

    n_batch = property(lambda self: self.indices.ndim - 1, doc="Number of batch dims.")
    n_sparse = property(lambda self: 2, doc="Number of sparse dims: rows and columns.")
    n_dense = property(lambda self: self.data.ndim - self.indices.ndim, doc="Number of dense dims.")
    nse = property(lambda self: self.indices.shape[-1], doc="Number of specified elements, padding included, in each batch.")

    def tree_flatten(self) -> tuple[tuple, Any]:
        """Data, columns and beginnings; the shape and what is known of the indices are static."""
        ndim = getattr(self.data, "ndim", None)
        return (self.data, self.indices, self.indptr), (self.shape, self.indices_sorted, self.unique_indices, ndim)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Iterable[Any]) -> BCSR:
        """The inverse; a batch dim that was mapped over is gone from the shape, and one that was added is there."""
        shape, indices_sorted, unique_indices, ndim = static
        self = object.__new__(cls)
        self.data, self.indices, self.indptr = children
        self.shape = mapped_shape(shape, ndim, self.data)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        return self

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """See `bcsr_fromdense`."""
        return bcsr_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """The same array, whose two sparse dims are rows and columns. ValueError if it has another number of them."""
        if arr.n_sparse != 2:
            raise ValueError(f"BCSR.from_bcoo: needs two sparse dims, got {arr.n_sparse}.")
        if not arr.indices_sorted:
            arr = arr.sort_indices()
        rows = arr.shape[arr.n_batch]
        data, indices = coordinates.whole_batches(arr)
        beginnings = over_batches(lambda rows_of: _beginnings(rows_of, rows), arr.n_batch)(indices[..., 0])
        return cls((data, indices[..., 1], beginnings), shape=arr.shape, indices_sorted=True, unique_indices=arr.unique_indices)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """A matrix of `scipy.sparse`."""
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
        """The same array in coordinates."""
        batch = self.shape[:self.n_batch]
        columns = wnp.broadcast_to(self.indices, (*batch, self.nse))
        beginnings = wnp.broadcast_to(self.indptr, (*batch, self.indptr.shape[-1]))
        rows = over_batches(lambda each: numbers(each, self.nse), self.n_batch)(beginnings).astype(columns.dtype)
        data = wnp.broadcast_to(self.data, (*batch, *self.data.shape[self.n_batch:]))
        return BCOO((data, wnp.stack([rows, columns], axis=-1)), shape=self.shape, indices_sorted=self.indices_sorted,
                    unique_indices=self.unique_indices)

    def todense(self) -> Any:
        """The dense array."""
        return self.to_bcoo().todense()

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """The dims permuted."""
        axes = axes_of(self.ndim, axes)
        return self if axes == tuple(range(self.ndim)) else BCSR.from_bcoo(self.to_bcoo().transpose(axes))

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """See `bcsr_sum_duplicates`; with `remove_zeros`, and where `nse` is not given, entries of 0 go too."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse, remove_zeros))


def bcsr_fromdense(mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32) -> BCSR:
    """The entries of a dense array that are not 0, by rows. ValueError if there are not two sparse dims.

    >>> from weft.experimental import sparse
    >>> sparse.bcsr_fromdense(wnp.eye(2)).indices.tolist()
    [0, 1]
    """
    mat = wnp.asarray(mat)
    if mat.ndim != n_batch + n_dense + 2:
        raise ValueError(f"bcsr_fromdense: an array with {mat.ndim} dims, n_batch={n_batch} and n_dense={n_dense} leave"
                         f" {mat.ndim - n_batch - n_dense} sparse dims; there must be two.")
    return BCSR.from_bcoo(coordinates.bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype))


def bcsr_todense(mat: BCSR) -> Any:
    """The dense array."""
    return mat.todense()


def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Any:
    """The values of a dense array at the columns `indices` of rows that begin at `indptr`.

    >>> from weft.experimental import sparse
    >>> sparse.bcsr_extract(wnp.array([1, 0]), wnp.array([0, 1, 2]), wnp.array([[1., 2.], [3., 4.]])).tolist()
    [2.0, 3.0]
    """
    indices, indptr, mat = map(wnp.asarray, (indices, indptr, mat))
    rows = over_batches(lambda each: numbers(each, indices.shape[-1]), indptr.ndim - 1)(indptr).astype(indices.dtype)
    return coordinates.bcoo_extract_data(wnp.stack(wnp.broadcast_arrays(rows, indices), axis=-1), mat)


def bcsr_dot_general(lhs: Any, rhs: Any, *, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None,
                     out_sharding: Any = None) -> Any:
    """The product of a sparse and a dense array: see `bcoo_dot_general`."""
    lhs, rhs = (each.to_bcoo() if isinstance(each, BCSR) else each for each in (lhs, rhs))
    return products.bcoo_dot_general(lhs, rhs, dimension_numbers=dimension_numbers, precision=precision,
                                     preferred_element_type=preferred_element_type, out_sharding=out_sharding)


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """Entries with equal indices added up: see `bcoo_sum_duplicates`."""
    return BCSR.from_bcoo(coordinates.bcoo_sum_duplicates(mat.to_bcoo(), nse))


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """Arrays joined along a dim: see `bcoo_concatenate`."""
    return BCSR.from_bcoo(shapes.bcoo_concatenate([each.to_bcoo() for each in operands], dimension=dimension))


def bcsr_broadcast_in_dim(mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None) -> BCSR:
    """Repeated along new dims: see `bcoo_broadcast_in_dim`. The result has two sparse dims."""
    return BCSR.from_bcoo(shapes.bcoo_broadcast_in_dim(mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions))


class _Matrix(JAXSparse):
    """A matrix of entries whose three arrays are values and two of indices."""
    __slots__ = ()

    def tree_flatten(self) -> tuple[tuple, Any]:
        """The three arrays; the shape is static."""
        return tuple(getattr(self, name) for name in self._names), self._static()

    @classmethod
    def tree_unflatten(cls, static: Any, children: Iterable[Any]) -> Any:
        """The inverse of `tree_flatten`."""
        self = object.__new__(cls)
        for name, child in zip(cls._names, children):
            setattr(self, name, child)
        self._set_static(static)
        return self

    _names: tuple[str, ...] = ()

    def _static(self) -> Any:
        return self.shape

    def _set_static(self, static: Any) -> None:
        self.shape = static

    def to_bcoo(self) -> BCOO:
        """The same array in coordinates."""
        raise NotImplementedError

    def todense(self) -> Any:
        """The dense array."""
        return self.to_bcoo().todense()

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> Any:
        """The entries of a dense matrix that are not 0."""
        mat = wnp.asarray(mat)
        if mat.ndim != 2:
            raise ValueError(f"{cls.__name__}.fromdense: needs a matrix, got an array with {mat.ndim} dims.")
        return cls._from_bcoo(coordinates.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype))

    @classmethod
    def _from_bcoo(cls, mat: BCOO) -> Any:
        raise NotImplementedError

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = np.int32) -> Any:
        if len(shape) != 2:
            raise ValueError(f"{cls.__name__}: must have two dims, got shape {tuple(shape)}.")
        return cls._from_bcoo(BCOO._empty(shape, dtype=dtype, index_dtype=index_dtype))

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = np.int32) -> Any:
        return cls._from_bcoo(BCOO._eye(N, M, k, dtype=dtype, index_dtype=index_dtype))

    def _two_dims(self, axes: Sequence[int] | None) -> bool:
        """Whether `axes` turn the matrix. ValueError if they are no permutation of two."""
        axes = axes_of(2, axes)
        if sorted(axes) != [0, 1]:
            raise ValueError(f"{type(self).__name__}.transpose: {axes} is no permutation of two dims.")
        return axes == (1, 0)


class COO(_Matrix):
    """A matrix of coordinates: values, rows and columns.

    >>> from weft.experimental import sparse
    >>> m = sparse.COO.fromdense(wnp.array([[0., 2.], [3., 0.]]))
    >>> m.row.tolist(), m.col.tolist(), (m.T @ wnp.ones(2)).tolist()
    ([0, 1], [1, 0], [3.0, 2.0])
    """
    __slots__ = ("data", "row", "col", "_rows_sorted", "_cols_sorted")
    _names = ("data", "row", "col")

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int], rows_sorted: bool = False, cols_sorted: bool = False):
        super().__init__(args, shape=shape)
        self.data, self.row, self.col = map(wnp.asarray, args)
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted

    def _static(self) -> Any:
        return self.shape, self._rows_sorted, self._cols_sorted

    def _set_static(self, static: Any) -> None:
        self.shape, self._rows_sorted, self._cols_sorted = static

    @classmethod
    def _from_bcoo(cls, mat: BCOO) -> COO:
        return cls((mat.data, mat.indices[:, 0], mat.indices[:, 1]), shape=mat.shape, rows_sorted=mat.indices_sorted)

    def to_bcoo(self) -> BCOO:
        """The same matrix in batched coordinates."""
        return BCOO((self.data, wnp.stack([self.row, self.col], axis=1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> COO:
        """The matrix turned: rows become columns."""
        if not self._two_dims(axes):
            return self
        return COO((self.data, self.col, self.row), shape=self.shape[::-1], rows_sorted=self._cols_sorted, cols_sorted=self._rows_sorted)


class CSR(_Matrix):
    """A matrix of compressed rows: values, their columns, and where each row begins.

    >>> from weft.experimental import sparse
    >>> sparse.CSR.fromdense(wnp.array([[0., 2.], [3., 0.]])).indptr.tolist()
    [0, 1, 2]
    """
    __slots__ = ("data", "indices", "indptr")
    _names = ("data", "indices", "indptr")

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]):
        super().__init__(args, shape=shape)
        self.data, self.indices, self.indptr = map(wnp.asarray, args)

    @classmethod
    def _from_bcoo(cls, mat: BCOO) -> CSR:
        mat = mat if mat.indices_sorted else mat.sort_indices()
        return cls((mat.data, mat.indices[:, 1], _beginnings(mat.indices[:, 0], mat.shape[0])), shape=mat.shape)

    def to_bcoo(self) -> BCOO:
        """The same matrix in batched coordinates."""
        rows = numbers(self.indptr, self.nse).astype(self.indices.dtype)
        return BCOO((self.data, wnp.stack([rows, self.indices], axis=1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """The matrix turned, in compressed columns."""
        return CSC((self.data, self.indices, self.indptr), shape=self.shape[::-1]) if self._two_dims(axes) else self


class CSC(_Matrix):
    """A matrix of compressed columns: values, their rows, and where each column begins.

    >>> from weft.experimental import sparse
    >>> sparse.CSC.fromdense(wnp.array([[0., 2.], [3., 0.]])).indices.tolist()
    [1, 0]
    """
    __slots__ = ("data", "indices", "indptr")
    _names = ("data", "indices", "indptr")

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]):
        super().__init__(args, shape=shape)
        self.data, self.indices, self.indptr = map(wnp.asarray, args)

    @classmethod
    def _from_bcoo(cls, mat: BCOO) -> CSC:
        return CSR._from_bcoo(mat.transpose()).T

    def to_bcoo(self) -> BCOO:
        """The same matrix in batched coordinates."""
        columns = numbers(self.indptr, self.nse).astype(self.indices.dtype)
        return BCOO((self.data, wnp.stack([self.indices, columns], axis=1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """The matrix turned, in compressed rows."""
        return CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1]) if self._two_dims(axes) else self


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
    """The entries of a dense matrix that are not 0.

    >>> from weft.experimental import sparse
    >>> sparse.coo_fromdense(wnp.eye(2)).row.tolist()
    [0, 1]
    """
    return COO.fromdense(mat, nse=nse, index_dtype=index_dtype)


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
    """The entries of a dense matrix that are not 0, by rows."""
    return CSR.fromdense(mat, nse=nse, index_dtype=index_dtype)


def coo_todense(mat: COO) -> Any:
    """The dense matrix."""
    return mat.todense()


def csr_todense(mat: CSR) -> Any:
    """The dense matrix."""
    return mat.todense()


def _product(name: str, mat: Any, other: Any, dims: int, transpose: bool) -> Any:
    other = wnp.asarray(other)
    turned = mat.T if transpose else mat
    if other.ndim != dims or other.shape[0] != turned.shape[1]:
        raise ValueError(f"{name}: a matrix of shape {turned.shape} and an array of shape {other.shape} have no product.")
    return products.bcoo_dot_general(turned.to_bcoo(), other, dimension_numbers=(((1,), (0,)), ((), ())))


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Any:
    """The product of a matrix, turned with `transpose`, and a vector. ValueError if sizes differ.

    >>> from weft.experimental import sparse
    >>> sparse.coo_matvec(sparse.COO.fromdense(wnp.array([[0., 2.], [3., 0.]])), wnp.array([1., 1.]), transpose=True).tolist()
    [3.0, 2.0]
    """
    return _product("coo_matvec", mat, v, 1, transpose)


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Any:
    """The product of a matrix, turned with `transpose`, and a dense matrix. ValueError if sizes differ."""
    return _product("coo_matmat", mat, B, 2, transpose)


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Any:
    """The product of a matrix, turned with `transpose`, and a vector. ValueError if sizes differ."""
    return _product("csr_matvec", mat, v, 1, transpose)


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Any:
    """The product of a matrix, turned with `transpose`, and a dense matrix. ValueError if sizes differ."""
    return _product("csr_matmat", mat, B, 2, transpose)


_FORMATS = {"bcoo": BCOO, "bcsr": BCSR, "coo": COO, "csr": CSR, "csc": CSC}


def _format(name: str, sparse_format: str) -> Any:
    if sparse_format not in _FORMATS:
        raise ValueError(f"{name}: sparse_format={sparse_format!r} not recognized; must be one of {list(_FORMATS)}.")
    return _FORMATS[sparse_format]


def empty(shape: Sequence[int], dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo", **kwds: Any) -> JAXSparse:
    """A sparse array of zeros, which has no entries. ValueError for a format that is none.

    >>> from weft.experimental import sparse
    >>> sparse.empty((2, 3))
    BCOO(float32[2, 3], nse=0)
    """
    kind = _format("empty", sparse_format)
    return kind._empty(tuple(shape), dtype=wnp.result_type(float) if dtype is None else dtype, index_dtype=index_dtype, **kwds)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo",
        **kwds: Any) -> JAXSparse:
    """A sparse matrix with ones on a diagonal. ValueError for a format that is none.

    >>> from weft.experimental import sparse
    >>> sparse.eye(2, 3, k=1).todense().tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    kind = _format("eye", sparse_format)
    N = operator.index(N)
    return kind._eye(N, N if M is None else operator.index(M), operator.index(k), dtype=wnp.result_type(float) if dtype is None else dtype,
                     index_dtype=index_dtype, **kwds)


def todense(arr: Any) -> Any:
    """A dense array, of a sparse or a dense one.

    >>> from weft.experimental import sparse
    >>> sparse.todense(sparse.eye(1)).tolist()
    [[1.0]]
    """
    return arr.todense() if isinstance(arr, JAXSparse) else wnp.asarray(arr)


def random_bcoo(key: Any, shape: Sequence[int], *, dtype: Any = None, indices_dtype: Any = None, nse: float = 0.2, n_batch: int = 0,
                n_dense: int = 0, unique_indices: bool = True, sorted_indices: bool = False, generator: Any = None, **kwds: Any) -> BCOO:
    """A sparse array of random entries: `nse` of them in each batch, or that share of all if it is below 1.

    `generator(key, shape, dtype, **kwds)` draws the values, `weft.random.uniform` if not given. ValueError if more different entries
    are asked for than there are.

    >>> from weft.experimental import sparse
    >>> sparse.random_bcoo(weft.random.key(0), (4, 5), nse=3)
    BCOO(float32[4, 5], nse=3)
    """
    from weft import random

    shape = tuple(shape)
    batch, sparse, dense = coordinates.split_shape(shape, n_batch, n_dense)
    whole = int(np.prod(sparse, dtype=int))
    count = int(np.ceil(nse * whole)) if 0 <= nse < 1 else operator.index(int(nse))
    if unique_indices and count > whole:
        raise ValueError(f"random_bcoo: {count} different entries of {whole} places. Give a smaller nse, or unique_indices=False.")
    dtype = wnp.result_type(float) if dtype is None else dtype
    key, of_data = random.split(random.key(key) if isinstance(key, int) else key)
    total = int(np.prod(batch, dtype=int))

    def places(key: Any) -> Any:
        flat = random.choice(key, whole, (count,), replace=not unique_indices) if whole else wnp.zeros((count,), int)
        flat = wnp.sort(flat) if sorted_indices else flat
        return wnp.stack(wnp.unravel_index(flat, sparse), axis=1) if sparse else wnp.zeros((count, 0), int)

    indices = wnp.stack([places(each) for each in random.split(key, total)]) if total else wnp.zeros((0, count, len(sparse)), int)
    indices = wnp.reshape(indices, (*batch, count, len(sparse))).astype(indices_dtype or np.int32)
    data = (generator or random.uniform)(of_data, (*batch, count, *dense), dtype, **kwds)
    return BCOO((data, indices), shape=shape, indices_sorted=sorted_indices, unique_indices=unique_indices)
