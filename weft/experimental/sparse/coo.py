"""COO matrices, and the base class of all formats of single matrices.

In:   values, and two arrays of indices.
Out:  dense or sparse arrays. Products and sums use BCOO.
Next: `csr`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.experimental.sparse import bcoo as coordinates, products
from weft.experimental.sparse.base import JAXSparse, axes_of
from weft.experimental.sparse.bcoo import BCOO


class Matrix(JAXSparse):
    """A sparse matrix of three arrays: values and two index arrays."""

    __slots__ = ()

    def tree_flatten(self) -> tuple[tuple, Any]:
        """Return the three arrays; the shape is static."""
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
        """Return the same array as BCOO."""
        raise NotImplementedError

    def todense(self) -> Any:
        """The dense array."""
        return self.to_bcoo().todense()

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> Any:
        """Return the nonzero entries of a dense matrix."""
        mat = wnp.asarray(mat)
        if mat.ndim != 2:
            raise ValueError(
                f"{cls.__name__}.fromdense: needs a matrix, got an array with {mat.ndim} dims."
            )
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
        """Return True if `axes` transpose the matrix. ValueError unless they are a permutation of two dims."""
        axes = axes_of(2, axes)
        if sorted(axes) != [0, 1]:
            raise ValueError(
                f"{type(self).__name__}.transpose: {axes} is not a permutation of two dims."
            )
        return axes == (1, 0)


class COO(Matrix):
    """A matrix in coordinate format: values, rows and columns.

    >>> from weft.experimental import sparse
    >>> m = sparse.COO.fromdense(wnp.array([[0., 2.], [3., 0.]]))
    >>> m.row.tolist(), m.col.tolist(), (m.T @ wnp.ones(2)).tolist()
    ([0, 1], [1, 0], [3.0, 2.0])
    """

    __slots__ = ("data", "row", "col", "_rows_sorted", "_cols_sorted")
    _names = ("data", "row", "col")

    def __init__(
        self,
        args: Sequence[Any],
        *,
        shape: Sequence[int],
        rows_sorted: bool = False,
        cols_sorted: bool = False,
    ):
        super().__init__(args, shape=shape)
        self.data, self.row, self.col = map(wnp.asarray, args)
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted

    def _static(self) -> Any:
        return self.shape, self._rows_sorted, self._cols_sorted

    def _set_static(self, static: Any) -> None:
        self.shape, self._rows_sorted, self._cols_sorted = static

    @classmethod
    def _from_bcoo(cls, mat: BCOO) -> COO:
        return cls(
            (mat.data, mat.indices[:, 0], mat.indices[:, 1]),
            shape=mat.shape,
            rows_sorted=mat.indices_sorted,
        )

    def to_bcoo(self) -> BCOO:
        """Return the same matrix as BCOO."""
        return BCOO((self.data, wnp.stack([self.row, self.col], axis=1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> COO:
        """Return the transpose: rows become columns."""
        if not self._two_dims(axes):
            return self
        return COO(
            (self.data, self.col, self.row),
            shape=self.shape[::-1],
            rows_sorted=self._cols_sorted,
            cols_sorted=self._rows_sorted,
        )


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
    """Return the nonzero entries of a dense matrix.

    >>> from weft.experimental import sparse
    >>> sparse.coo_fromdense(wnp.eye(2)).row.tolist()
    [0, 1]
    """
    return COO.fromdense(mat, nse=nse, index_dtype=index_dtype)


def coo_todense(mat: COO) -> Any:
    """Return the dense matrix."""
    return mat.todense()


def product(name: str, mat: Any, other: Any, dims: int, transpose: bool) -> Any:
    other = wnp.asarray(other)
    turned = mat.T if transpose else mat
    if not isinstance(turned, Matrix):
        raise ValueError(f"{name}: `mat` must be a sparse matrix, got {turned!r:.60}.")
    if other.ndim != dims or other.shape[0] != turned.shape[1]:
        raise ValueError(
            f"{name}: a matrix of shape {turned.shape} and an array of shape {other.shape} have no product."
        )
    return products.bcoo_dot_general(
        turned.to_bcoo(), other, dimension_numbers=(((1,), (0,)), ((), ()))
    )


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Any:
    """Return the product of a matrix, transposed with `transpose`, and a vector. ValueError if sizes differ.

    >>> from weft.experimental import sparse
    >>> sparse.coo_matvec(sparse.COO.fromdense(wnp.array([[0., 2.], [3., 0.]])), wnp.array([1., 1.]), transpose=True).tolist()
    [3.0, 2.0]
    """
    return product("coo_matvec", mat, v, 1, transpose)


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Any:
    """Return the product of a matrix, transposed with `transpose`, and a dense matrix. ValueError if sizes differ."""
    return product("coo_matmat", mat, B, 2, transpose)
