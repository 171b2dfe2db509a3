"""Sparse arrays of any format: zeros, diagonals, random entries, and conversion to dense arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft._engine.api.checkpointing import checkpoint_name
from weft._engine.core.trace import Tracer
from weft.experimental.sparse import bcoo as coordinates
from weft.experimental.sparse.base import JAXSparse
from weft.experimental.sparse.bcoo import BCOO
from weft.experimental.sparse.bcsr import BCSR
from weft.experimental.sparse.coo import COO
from weft.experimental.sparse.csr import CSC, CSR

#: the name of the op that converts to dense, for `sparsify`
DENSE = "weft.experimental.sparse.todense"

_FORMATS = {"bcoo": BCOO, "bcsr": BCSR, "coo": COO, "csr": CSR, "csc": CSC}


def _format(name: str, sparse_format: str) -> Any:
    if sparse_format not in _FORMATS:
        raise ValueError(
            f"{name}: sparse_format={sparse_format!r} not recognized; must be one of {list(_FORMATS)}."
        )
    return _FORMATS[sparse_format]


def empty(
    shape: Sequence[int],
    dtype: Any = None,
    index_dtype: Any = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> JAXSparse:
    """Return a sparse array of zeros, without entries. Raise ValueError for an unknown format.

    >>> from weft.experimental import sparse
    >>> sparse.empty((2, 3))
    BCOO(float32[2, 3], nse=0)
    """
    kind = _format("empty", sparse_format)
    return kind._empty(
        tuple(shape),
        dtype=wnp.result_type(float) if dtype is None else dtype,
        index_dtype=index_dtype,
        **kwds,
    )


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> JAXSparse:
    """Return a sparse matrix with ones on a diagonal. Raise ValueError for an unknown format.

    >>> from weft.experimental import sparse
    >>> sparse.eye(2, 3, k=1).todense().tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    kind = _format("eye", sparse_format)
    N = operator.index(N)
    return kind._eye(
        N,
        N if M is None else operator.index(M),
        operator.index(k),
        dtype=wnp.result_type(float) if dtype is None else dtype,
        index_dtype=index_dtype,
        **kwds,
    )


def todense(arr: Any) -> Any:
    """Return the dense array of a sparse or dense array.

    >>> from weft.experimental import sparse
    >>> sparse.todense(sparse.eye(1)).tolist()
    [[1.0]]
    """
    if isinstance(arr, Tracer):
        return checkpoint_name(arr, DENSE)
    return arr.todense() if isinstance(arr, JAXSparse) else wnp.asarray(arr)


def random_bcoo(
    key: Any,
    shape: Sequence[int],
    *,
    dtype: Any = None,
    indices_dtype: Any = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Any = None,
    **kwds: Any,
) -> BCOO:
    """Return a sparse array with random entries: `nse` entries in each batch, or a fraction of all elements if `nse` is below 1.

    `generator(key, shape, dtype, **kwds)` draws the values, by default `weft.random.uniform`. ValueError if `nse` distinct
    entries do not exist.

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
        raise ValueError(
            f"random_bcoo: {count} different entries of {whole} places. Give a smaller nse, or unique_indices=False."
        )
    dtype = wnp.result_type(float) if dtype is None else dtype
    key, of_data = random.split(random.key(key) if isinstance(key, int) else key)
    total = int(np.prod(batch, dtype=int))

    def places(key: Any) -> Any:
        flat = (
            random.choice(key, whole, (count,), replace=not unique_indices)
            if whole
            else wnp.zeros((count,), int)
        )
        flat = wnp.sort(flat) if sorted_indices else flat
        return (
            wnp.stack(wnp.unravel_index(flat, sparse), axis=1)
            if sparse
            else wnp.zeros((count, 0), int)
        )

    indices = (
        wnp.stack([places(each) for each in random.split(key, total)])
        if total
        else wnp.zeros((0, count, len(sparse)), int)
    )
    indices = wnp.reshape(indices, (*batch, count, len(sparse))).astype(indices_dtype or np.int32)
    data = (generator or random.uniform)(of_data, (*batch, count, *dense), dtype, **kwds)
    return BCOO(
        (data, indices), shape=shape, indices_sorted=sorted_indices, unique_indices=unique_indices
    )
