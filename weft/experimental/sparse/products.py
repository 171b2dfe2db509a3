"""Products of BCOO arrays with dense arrays and with each other.

In:   arrays, and the dimension numbers of `weft.lax.dot_general`.
Out:  a dense array, or BCOO if both operands are sparse.
Laws: for sparse × dense, rows of the dense array are gathered by the sparse indices, multiplied and added to rows of the
      result, in one fused kernel; memory and time are proportional to entries × columns. Dims of every kind may be
      contracted dims or batch dims.
Next: `transform`.
"""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental.sparse.base import JAXSparse
from weft.experimental.sparse.bcoo import (
    BCOO,
    bcoo_extract_data,
    bcoo_sum_duplicates,
    bcoo_todense,
    broadcast_batch_dims,
    broadcast_mask,
    columns,
    in_range,
    map_batch_dims,
    shapes_of,
)


def _numbers(
    name: str, dimension_numbers: Any, left: tuple[int, ...], right: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    """Return the contracted and batch dims after validation."""
    (contract_l, contract_r), (batch_l, batch_r) = dimension_numbers
    numbers = tuple(
        tuple(int(d) for d in dims) for dims in (contract_l, contract_r, batch_l, batch_r)
    )
    for a, b in ((numbers[0], numbers[1]), (numbers[2], numbers[3])):
        if len(a) != len(b) or any(left[i] != right[j] for i, j in zip(a, b)):
            raise TypeError(
                f"{name}: dims {a} of shape {left} and dims {b} of shape {right} do not belong together."
            )
    return numbers


def bcoo_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Return the product of two arrays, at least one of them sparse; dimension numbers as in `weft.lax.dot_general`.

    Sparse × sparse is sparse. TypeError if dims do not match; NotImplementedError for sparse × sparse with dense dims.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_dot_general(sparse.eye(2), wnp.ones((2, 3)), dimension_numbers=(((1,), (0,)), ((), ()))).shape
    (2, 3)
    """
    if isinstance(lhs, BCOO) and isinstance(rhs, BCOO):
        return _sparse_sparse(lhs, rhs, dimension_numbers, preferred_element_type)
    if isinstance(lhs, BCOO):
        product = _sparse_dense(lhs, wnp.asarray(rhs), dimension_numbers, preferred_element_type)
    elif isinstance(rhs, BCOO):
        (contract_l, contract_r), (batch_l, batch_r) = dimension_numbers
        lhs = wnp.asarray(lhs)
        product = _sparse_dense(
            rhs, lhs, ((contract_r, contract_l), (batch_r, batch_l)), preferred_element_type
        )
        n, free_r = len(batch_l), rhs.ndim - len(batch_r) - len(contract_r)
        product = wnp.moveaxis(
            product, range(n, n + free_r), range(product.ndim - free_r, product.ndim)
        )
    else:
        return lax.dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)
    return product if out_sharding is None else lax.with_sharding_constraint(product, out_sharding)


def _sparse_dense(lhs: BCOO, rhs: Any, dimension_numbers: Any, preferred: Any) -> Any:
    contract_l, contract_r, batch_l, batch_r = _numbers(
        "bcoo_dot_general", dimension_numbers, lhs.shape, rhs.shape
    )
    letters = iter(string.ascii_letters)
    lhs_letters = [next(letters) for _ in range(lhs.ndim)]
    right = [next(letters) for _ in range(rhs.ndim)]
    for i, j in (*zip(contract_l, contract_r), *zip(batch_l, batch_r)):
        right[j] = lhs_letters[i]
    batch = [lhs_letters[d] for d in batch_l]
    out = (
        batch
        + [l for d, l in enumerate(lhs_letters) if d not in contract_l + batch_l]
        + [l for d, l in enumerate(right) if d not in contract_r + batch_r]
    )
    sizes = {**dict(zip(lhs_letters, lhs.shape)), **dict(zip(right, rhs.shape))}
    dtype = wnp.result_type(lhs.dtype, rhs.dtype) if preferred is None else preferred
    data, indices = broadcast_batch_dims(lhs)
    return _batches(
        data.astype(dtype),
        indices,
        rhs.astype(dtype),
        lhs_letters,
        right,
        out,
        lhs.n_batch,
        lhs.n_sparse,
        sizes,
        lhs.indices_sorted,
        lhs.unique_indices,
    )


def _batches(
    data: Any,
    indices: Any,
    rhs: Any,
    left: list,
    right: list,
    out: list,
    n_batch: int,
    n_sparse: int,
    sizes: dict,
    ordered: bool,
    unique: bool,
) -> Any:
    """Return the product with the leading batch dim of the sparse array mapped, recursively."""
    if not n_batch:
        return _entries(data, indices, rhs, left, right, out, n_sparse, sizes, ordered, unique)
    letter = left[0]
    axis = right.index(letter) if letter in right else None
    inner_right = [l for l in right if l != letter]
    inner_out = [l for l in out if l != letter]

    def apply_unbatched(data: Any, indices: Any, rhs: Any) -> Any:
        return _batches(
            data,
            indices,
            rhs,
            left[1:],
            inner_right,
            inner_out,
            n_batch - 1,
            n_sparse,
            sizes,
            ordered,
            unique,
        )

    product = weft.vmap(
        apply_unbatched, in_axes=(0, 0, axis), out_axes=out.index(letter) if letter in out else 0
    )(data, indices, rhs)
    return product if letter in out else product.sum(0)


def _entries(
    data: Any,
    indices: Any,
    rhs: Any,
    left: list,
    right: list,
    out: list,
    n_sparse: int,
    sizes: dict,
    ordered: bool,
    unique: bool,
) -> Any:
    """Return the product of entries [nse, *dense] with a dense array: gather, multiply, add."""
    sparse, dense = left[:n_sparse], left[n_sparse:]
    if data.shape[0] == 0:
        return wnp.zeros(list(map(sizes.__getitem__, out)), data.dtype)
    is_in_range = in_range(indices, list(map(sizes.__getitem__, sparse)))
    data = wnp.where(broadcast_mask(is_in_range, data), data, wnp.zeros((), data.dtype))
    shared = [l for l in sparse if l in right]
    own_letters = [l for l in right if l not in shared]
    rhs = wnp.transpose(rhs, list(map(right.index, shared + own_letters)))
    at = {l: indices[:, i] for i, l in enumerate(sparse)}
    entry = next(l for l in string.ascii_letters[::-1] if l not in sizes)
    kept_labels = [l for l in sparse if l in out]
    if shared:
        rhs = rhs.at[tuple(map(at.__getitem__, shared))].get(mode="fill", fill_value=0)
        own_letters = [entry, *own_letters]
    tail = [l for l in out if l not in kept_labels]
    terms = _contract(data, [entry, *dense], rhs, own_letters, [entry] * bool(kept_labels) + tail)
    if kept_labels:
        start: Any = wnp.zeros([sizes[l] for l in kept_labels + tail], terms.dtype)
        terms = start.at[tuple(map(at.__getitem__, kept_labels))].add(
            terms,
            mode="drop",
            indices_are_sorted=ordered and kept_labels == sparse[: len(kept_labels)],
            unique_indices=unique and kept_labels == sparse,
        )
    return wnp.transpose(terms, list(map((kept_labels + tail).index, out)))


def _contract(x: Any, x_labels: list, y: Any, y_labels: list, out: list) -> Any:
    """Return an einsum; without contracted labels, a plain multiplication, which fuses with the gather and the scatter."""
    if all(l in out for l in x_labels + y_labels):
        return _align(x, x_labels, out) * _align(y, y_labels, out)
    return wnp.einsum(f"{''.join(x_labels)},{''.join(y_labels)}->{''.join(out)}", x, y)


def _align(x: Any, labels: list, out: list) -> Any:
    order = [l for l in out if l in labels]
    x = wnp.transpose(x, [labels.index(l) for l in order])
    return wnp.expand_dims(x, tuple(i for i, l in enumerate(out) if l not in labels))


def _sparse_sparse(lhs: BCOO, rhs: BCOO, dimension_numbers: Any, preferred: Any) -> BCOO:
    """Return the products of all pairs of entries whose contracted and batch indices are equal."""
    contract_l, contract_r, batch_l, batch_r = _numbers(
        "bcoo_dot_general", dimension_numbers, lhs.shape, rhs.shape
    )
    if lhs.n_dense or rhs.n_dense:
        raise NotImplementedError(
            "bcoo_dot_general: sparse × sparse with dense dims. Call update_layout(n_dense=0) first."
        )
    same_batch = batch_l == batch_r and lhs.n_batch == rhs.n_batch
    n = _count_leading_batch_dims(lhs.n_batch, batch_l) if same_batch else 0
    if (lhs.n_batch, rhs.n_batch) != (n, n):
        lhs, rhs = _all_sparse(lhs, n), _all_sparse(rhs, n)
    free_l, free_r = _free(lhs.ndim, contract_l + batch_l), _free(rhs.ndim, contract_r + batch_r)
    same_l, same_r = [*contract_l, *batch_l[n:]], [*contract_r, *batch_r[n:]]
    sizes = [lhs.shape[d] for d in [*batch_l[n:], *free_l]] + [rhs.shape[d] for d in free_r]
    dtype = wnp.result_type(lhs.dtype, rhs.dtype) if preferred is None else preferred
    index_dtype = wnp.result_type(lhs.indices.dtype, rhs.indices.dtype)
    _, sparse_l, _ = shapes_of(lhs)
    _, sparse_r, _ = shapes_of(rhs)
    nse = lhs.nse * rhs.nse

    left_columns = functools.partial(_columns, n, (slice(None), None))
    right_columns = functools.partial(_columns, n, (None, slice(None)))

    def apply_unbatched(
        data_l: Any, indices_l: Any, data_r: Any, indices_r: Any
    ) -> tuple[Any, Any]:
        equal = in_range(indices_l, sparse_l)[:, None] & in_range(indices_r, sparse_r)[None, :]
        for left, right in zip(left_columns(indices_l, same_l), right_columns(indices_r, same_r)):
            equal = equal & (left == right)
        data: Any = wnp.where(
            equal,
            data_l.astype(dtype)[:, None] * data_r.astype(dtype)[None, :],
            wnp.zeros((), dtype),
        )
        columns = left_columns(indices_l, [*batch_l[n:], *free_l])
        columns += right_columns(indices_r, free_r)
        broadcast_columns = [wnp.broadcast_to(column, equal.shape) for column in columns]
        if not broadcast_columns:
            return data.sum()[None], wnp.zeros((1, 0), index_dtype)
        indices = wnp.stack(
            [wnp.where(equal, column, size) for column, size in zip(broadcast_columns, sizes)],
            axis=-1,
        )
        return wnp.reshape(data, (nse,)), wnp.reshape(
            indices, (nse, len(broadcast_columns))
        ).astype(index_dtype)

    data, indices = map_batch_dims(apply_unbatched, n)(
        *broadcast_batch_dims(lhs), *broadcast_batch_dims(rhs)
    )
    product = BCOO((data, indices), shape=(*lhs.shape[:n], *sizes))
    most = math.prod(sizes)
    return bcoo_sum_duplicates(product, nse=min(most, nse)) if sizes else product


def _free(ndim: int, used: Sequence[int]) -> list[int]:
    return [d for d in range(ndim) if d not in used]


def _columns(n_batch: int, place: tuple, indices: Any, dims: list[int]) -> list[Any]:
    """Return the indices of entries along dims, each indexed by `place` to add a dim."""
    return [indices[:, d - n_batch][place] for d in dims]


def _count_leading_batch_dims(n_batch: int, batch: Sequence[int]) -> int:
    """Return the number of batch dims of the product that are leading batch dims of the arrays: all or none."""
    return n_batch if tuple(batch[:n_batch]) == tuple(range(n_batch)) else 0


def _all_sparse(mat: BCOO, n_batch: int) -> BCOO:
    return mat.update_layout(n_batch=n_batch, on_inefficient=None)


def bcoo_dot_general_sampled(A: Any, B: Any, indices: Any, *, dimension_numbers: Any) -> Any:
    """Return the elements of a product of dense arrays at `indices` [*batch, nse, dims], without computing the others.

    >>> from weft.experimental import sparse
    >>> x = wnp.arange(4.).reshape(2, 2)
    >>> sparse.bcoo_dot_general_sampled(x, x, wnp.array([[1, 0]]), dimension_numbers=(((1,), (0,)), ((), ()))).tolist()
    [6.0]
    """
    A, B, indices = wnp.asarray(A), wnp.asarray(B), wnp.asarray(indices)
    contract_a, contract_b, batch_a, batch_b = _numbers(
        "bcoo_dot_general_sampled", dimension_numbers, A.shape, B.shape
    )
    n = indices.ndim - 2
    free_a = [d for d in range(A.ndim) if d not in contract_a + batch_a]
    free_b = [d for d in range(B.ndim) if d not in contract_b + batch_b]
    if n != len(batch_a) or indices.shape[-1] != len(free_a) + len(free_b):
        product = lax.dot_general(A, B, dimension_numbers)
        if indices.shape[-1] + n > product.ndim:
            raise ValueError(
                f"bcoo_dot_general_sampled: indices of shape {indices.shape} do not fit a product of shape {product.shape}."
            )
        return bcoo_extract_data(indices, product)
    A = wnp.transpose(A, (*batch_a, *free_a, *contract_a))
    B = wnp.transpose(B, (*batch_b, *free_b, *contract_b))
    letters = string.ascii_lowercase[1 : len(contract_a) + 1]

    def apply_unbatched(A: Any, B: Any, indices: Any) -> Any:
        at = columns(indices)
        rows = _rows(A, at[: len(free_a)], len(indices))
        return wnp.einsum(
            f"a{letters},a{letters}->a", rows, _rows(B, at[len(free_a) :], len(indices))
        )

    return map_batch_dims(apply_unbatched, n)(
        A, B, wnp.broadcast_to(indices, (*A.shape[:n], *indices.shape[n:]))
    )


def _rows(x: Any, at: tuple, count: int) -> Any:
    return (
        x.at[at].get(mode="fill", fill_value=0)
        if at
        else wnp.broadcast_to(x[None], (count, *x.shape))
    )


def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> Any:
    """Return the data of the elementwise product with a broadcast dense array; its indices are the indices of `sp_mat`.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_multiply_dense(sparse.eye(2), wnp.array([3., 4.])).tolist()
    [3.0, 4.0]
    """
    v = wnp.asarray(v)
    if v.ndim > sp_mat.ndim or any(
        size not in (1, whole) for size, whole in zip(v.shape[::-1], sp_mat.shape[::-1])
    ):
        raise NotImplementedError(
            f"bcoo_multiply_dense: a dense array of shape {v.shape} does not broadcast to {sp_mat.shape}."
        )
    if not v.ndim:
        return sp_mat.data * v
    v = wnp.reshape(v, (*[1] * (sp_mat.ndim - v.ndim), *v.shape))
    n_batch = sp_mat.n_batch

    def apply_unbatched(data: Any, indices: Any, v: Any) -> Any:
        count = indices.shape[1]
        at = tuple(
            wnp.minimum(column, v.shape[i] - 1) if v.shape[i] == 1 else column
            for i, column in enumerate(columns(indices))
        )
        rows = v.at[at].get(mode="fill", fill_value=0) if count else v[None]
        return data * rows

    data, indices = broadcast_batch_dims(sp_mat)
    return map_batch_dims(apply_unbatched, n_batch)(
        data, indices, wnp.broadcast_to(v, (*sp_mat.shape[:n_batch], *v.shape[n_batch:]))
    )


def _broadcast_dim_by_dim(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return len(a) == len(b) and all(m == n or 1 in (m, n) for m, n in zip(a, b))


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """Return the elementwise product of two sparse arrays with equal numbers of dense dims: their common entries.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_multiply_sparse(sparse.eye(3), sparse.eye(3, k=1)).todense().sum().item()
    0.0
    """
    if not _broadcast_dim_by_dim(lhs.shape, rhs.shape):
        raise NotImplementedError(
            f"bcoo_multiply_sparse: shapes {lhs.shape} and {rhs.shape} do not broadcast dim by dim."
        )
    if lhs.n_dense != rhs.n_dense:
        raise NotImplementedError(
            "bcoo_multiply_sparse: arrays with different n_dense. Call update_layout first."
        )
    is_same_pattern = lhs.indices is rhs.indices and lhs.shape == rhs.shape
    if is_same_pattern and lhs.unique_indices and rhs.unique_indices:
        return BCOO(
            (lhs.data * rhs.data, lhs.indices),
            shape=lhs.shape,
            indices_sorted=lhs.indices_sorted,
            unique_indices=True,
        )
    n_batch = min(lhs.n_batch, rhs.n_batch)
    lhs, rhs = lhs.update_layout(n_batch=n_batch), rhs.update_layout(n_batch=n_batch)
    shape = tuple(max(a, b) if 0 not in (a, b) else 0 for a, b in zip(lhs.shape, rhs.shape))
    sparse = shape[n_batch : len(shape) - lhs.n_dense]
    (_, sparse_l, _), (_, sparse_r, _) = shapes_of(lhs), shapes_of(rhs)
    dtype = wnp.result_type(lhs.dtype, rhs.dtype)

    def apply_unbatched(
        data_l: Any, indices_l: Any, data_r: Any, indices_r: Any
    ) -> tuple[Any, Any]:
        equal = in_range(indices_l, sparse_l)[:, None] & in_range(indices_r, sparse_r)[None, :]
        columns = []
        for i in range(len(sparse)):
            a, b = indices_l[:, i][:, None], indices_r[:, i][None, :]
            if sparse_l[i] == sparse_r[i]:
                equal = equal & (a == b)
            columns.append(wnp.broadcast_to(b if sparse_l[i] == 1 else a, equal.shape))
        product = data_l.astype(dtype)[:, None] * data_r.astype(dtype)[None, :]
        mask = wnp.reshape(equal, (*equal.shape, *[1] * (product.ndim - 2)))
        data: Any = wnp.where(mask, product, wnp.zeros((), dtype))
        count = equal.size
        indices = (
            wnp.stack(
                [wnp.where(equal, column, size) for column, size in zip(columns, sparse)], axis=-1
            )
            if columns
            else wnp.zeros((*equal.shape, 0), indices_l.dtype)
        )
        return wnp.reshape(data, (count, *data.shape[2:])), wnp.reshape(
            indices, (count, len(columns))
        ).astype(indices_l.dtype)

    wide_l, wide_r = _to_batches(lhs, shape[:n_batch]), _to_batches(rhs, shape[:n_batch])
    data, indices = map_batch_dims(apply_unbatched, n_batch)(*wide_l, *wide_r)
    bcoo = BCOO((data, indices), shape=shape)
    if not sparse:
        return bcoo
    bound = min(math.prod(sparse), _most_pairs(lhs, rhs))
    return bcoo_sum_duplicates(bcoo, nse=bound)


def _most_pairs(lhs: BCOO, rhs: BCOO) -> int:
    """Return an upper bound on the number of distinct indices of the product."""
    pairs = lhs.nse * rhs.nse
    return (
        min(lhs.nse, rhs.nse)
        if lhs.shape == rhs.shape and lhs.unique_indices and rhs.unique_indices
        else pairs
    )


def _to_batches(mat: BCOO, batch: tuple[int, ...]) -> tuple[Any, Any]:
    return (
        wnp.broadcast_to(mat.data, (*batch, *mat.data.shape[len(batch) :])),
        wnp.broadcast_to(mat.indices, (*batch, *mat.indices.shape[len(batch) :])),
    )


def add(lhs: BCOO, rhs: BCOO) -> BCOO:
    """Return the sum of two sparse arrays of equal shape, with the entries of both."""
    if lhs.shape != rhs.shape:
        raise NotImplementedError(
            f"sparse addition: broadcasting is not implemented; shapes {lhs.shape} and {rhs.shape} differ."
        )
    n_batch, n_dense = min(lhs.n_batch, rhs.n_batch), min(lhs.n_dense, rhs.n_dense)
    lhs, rhs = (
        lhs.update_layout(n_batch=n_batch, n_dense=n_dense),
        rhs.update_layout(n_batch=n_batch, n_dense=n_dense),
    )
    dtype = wnp.result_type(lhs.dtype, rhs.dtype)
    if lhs.indices is rhs.indices and lhs.data.shape == rhs.data.shape:
        return BCOO(
            (lhs.data.astype(dtype) + rhs.data.astype(dtype), lhs.indices),
            shape=lhs.shape,
            indices_sorted=lhs.indices_sorted,
            unique_indices=lhs.unique_indices,
        )
    (data_l, indices_l), (data_r, indices_r) = broadcast_batch_dims(lhs), broadcast_batch_dims(rhs)
    return BCOO(
        (
            wnp.concatenate([data_l.astype(dtype), data_r.astype(dtype)], axis=n_batch),
            wnp.concatenate([indices_l, indices_r.astype(indices_l.dtype)], axis=n_batch),
        ),
        shape=lhs.shape,
    )


def to_dense(value: Any) -> Any:
    """Return the dense array of a sparse or dense array."""
    return (
        bcoo_todense(value)
        if isinstance(value, BCOO)
        else value.todense()
        if isinstance(value, JAXSparse)
        else np.asarray(value)
        if np.isscalar(value)
        else value
    )
