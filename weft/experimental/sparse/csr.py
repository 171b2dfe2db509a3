"""Matrices of compressed rows or columns.

In:   values, their columns (rows), and the start of each row (column).
Out:  dense or sparse arrays. Products and sums use BCOO.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.experimental.sparse.bcoo import BCOO
from weft.experimental.sparse.bcsr import row_numbers, row_starts
from weft.experimental.sparse.coo import Matrix, product


class _Compressed(Matrix):
    """Base class of compressed rows and compressed columns."""

    __slots__ = ("data", "indices", "indptr")
    _names = ("data", "indices", "indptr")

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]):
        super().__init__(args, shape=shape)
        self.data, self.indices, self.indptr = map(wnp.asarray, args)


class CSR(_Compressed):
    """A matrix of compressed rows: values, their columns, and the start of each row.

    >>> from weft.experimental import sparse
    >>> sparse.CSR.fromdense(wnp.array([[0., 2.], [3., 0.]])).indptr.tolist()
    [0, 1, 2]
    """

    __slots__ = ()

    @classmethod
    def _from_bcoo(cls, mat: BCOO) -> CSR:
        mat = mat if mat.indices_sorted else mat.sort_indices()
        return cls(
            (mat.data, mat.indices[:, 1], row_starts(mat.indices[:, 0], mat.shape[0])),
            shape=mat.shape,
        )

    def to_bcoo(self) -> BCOO:
        """Return the same matrix as BCOO."""
        rows = row_numbers(self.indptr, self.nse).astype(self.indices.dtype)
        return BCOO((self.data, wnp.stack([rows, self.indices], axis=1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """Return the transpose, in compressed columns."""
        return (
            CSC((self.data, self.indices, self.indptr), shape=self.shape[::-1])
            if self._two_dims(axes)
            else self
        )


class CSC(_Compressed):
    """A matrix of compressed columns: values, their rows, and the start of each column.

    >>> from weft.experimental import sparse
    >>> sparse.CSC.fromdense(wnp.array([[0., 2.], [3., 0.]])).indices.tolist()
    [1, 0]
    """

    __slots__ = ()

    @classmethod
    def _from_bcoo(cls, mat: BCOO) -> CSC:
        return CSR._from_bcoo(mat.transpose()).T

    def to_bcoo(self) -> BCOO:
        """Return the same matrix as BCOO."""
        columns = row_numbers(self.indptr, self.nse).astype(self.indices.dtype)
        return BCOO((self.data, wnp.stack([self.indices, columns], axis=1)), shape=self.shape)

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """Return the transpose, in compressed rows."""
        return (
            CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1])
            if self._two_dims(axes)
            else self
        )


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
    """Return the nonzero entries of a dense matrix, by rows."""
    return CSR.fromdense(mat, nse=nse, index_dtype=index_dtype)


def csr_todense(mat: CSR) -> Any:
    """Return the dense matrix."""
    return mat.todense()


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Any:
    """Return the product of a matrix, transposed with `transpose`, and a vector. ValueError if sizes differ."""
    return product("csr_matvec", mat, v, 1, transpose)


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Any:
    """Return the product of a matrix, transposed with `transpose`, and a dense matrix. ValueError if sizes differ."""
    return product("csr_matmat", mat, B, 2, transpose)
