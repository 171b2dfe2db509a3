"""Convolutions of sparse arrays.

In:   two arrays, at least one of them BCOO, and the parameters of `weft.lax.conv_general_dilated`.
Out:  a BCOO array without batch and dense dims.
How:  every pair of entries is an entry of the result, with their product and its position, or padding. Entries are summed
      only if there are more of them than elements of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental.sparse.bcoo import BCOO, bcoo_fromdense, bcoo_sum_duplicates, in_range


def _dilated_sizes(shape: tuple[int, ...], dims: Sequence[int], steps: Sequence[int]) -> list[int]:
    return [(shape[d] - 1) * step + 1 if shape[d] else 0 for d, step in zip(dims, steps)]


def bcoo_conv_general_dilated(
    lhs: Any,
    rhs: Any,
    *,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    **_: Any,
) -> BCOO:
    """Return the convolution of two arrays, at least one of them sparse: see `weft.lax.conv_general_dilated`.

    NotImplementedError for feature groups or batch groups.

    >>> from weft.experimental import sparse
    >>> image = sparse.BCOO.fromdense(wnp.array([[[1., 0., 0., 2.]]]))
    >>> sparse.bcoo_conv_general_dilated(image, wnp.ones((1, 1, 2)), window_strides=(1,), padding="VALID").todense().tolist()
    [[[1.0, 0.0, 2.0]]]
    """
    if feature_group_count != 1 or batch_group_count != 1:
        raise NotImplementedError(
            "bcoo_conv_general_dilated: groups of features or of the batch. Call todense() first."
        )
    left, right = (_all_sparse(each) for each in (lhs, rhs))
    spatial = left.ndim - 2
    of_lhs, of_rhs = (tuple(each or (1,) * spatial) for each in (lhs_dilation, rhs_dilation))
    numbers = lax.conv_dimension_numbers(left.shape, right.shape, dimension_numbers)
    images = _dilated_sizes(left.shape, numbers.lhs_spec[2:], of_lhs)
    windows = _dilated_sizes(right.shape, numbers.rhs_spec[2:], of_rhs)
    pads = (
        lax.padtype_to_pads(images, windows, window_strides, padding)
        if isinstance(padding, str)
        else padding
    )
    result = weft.eval_shape(
        lambda x, y: lax.conv_general_dilated(
            x,
            y,
            window_strides,
            pads,
            of_lhs,
            of_rhs,
            numbers,
            preferred_element_type=preferred_element_type,
        ),
        *(weft.ShapeDtypeStruct(each.shape, each.dtype) for each in (left, right)),
    )
    index_dtype = wnp.result_type(left.indices.dtype, right.indices.dtype)
    # [pairs of entries, dims]
    a, b = (
        left.indices.astype(index_dtype)[:, None],
        right.indices.astype(index_dtype)[None],
    )
    (batch, feature, *image), (out, entering, *window) = numbers.lhs_spec, numbers.rhs_spec
    is_in_range = (
        in_range(left.indices, left.shape)[:, None] & in_range(right.indices, right.shape)[None]
    )
    is_in_range = is_in_range & (a[..., feature] == b[..., entering])
    place: list[Any] = [a[..., batch], b[..., out]]
    for d, e, spread, dilation, stride, (low, _high) in zip(
        image, window, of_lhs, of_rhs, window_strides, pads
    ):
        at = a[..., d] * spread + low - b[..., e] * dilation
        is_in_range = is_in_range & (at % stride == 0) & (at >= 0)
        place.append(at // stride)
    sizes = [result.shape[d] for d in numbers.out_spec]
    for column, size in zip(place, sizes):
        is_in_range = is_in_range & (column < size)
    ordered: list[Any] = [None] * len(sizes)
    for d, column, size in zip(numbers.out_spec, place, sizes):
        ordered[d] = wnp.where(is_in_range, column, size)
    data: Any = wnp.where(
        is_in_range,
        left.data.astype(result.dtype)[:, None] * right.data.astype(result.dtype),
        np.zeros((), result.dtype),
    )
    indices: Any = wnp.stack(ordered, axis=-1)
    indices = indices.reshape(-1, len(sizes)).astype(index_dtype)
    product = BCOO((data.reshape(-1), indices), shape=result.shape)
    most = math.prod(result.shape)
    return product if product.nse <= most else bcoo_sum_duplicates(product, nse=most)


def _all_sparse(value: Any) -> BCOO:
    if isinstance(value, BCOO):
        return value.update_layout(n_batch=0, n_dense=0)
    value = wnp.asarray(value)
    return bcoo_fromdense(value, nse=value.size)
