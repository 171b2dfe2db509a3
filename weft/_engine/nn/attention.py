"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import weft.numpy as wnp
from weft._engine.nn.normalization import logsumexp, softmax


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """softmax(scale query·key + bias)·value for each head.

    `query` is [batch, T, heads, size], `key` and `value` [batch, S, heads of keys, size]; without batch all have three
    dims. With fewer heads of keys, each serves an equal number of heads of queries. `mask` and `bias` broadcast to
    [batch, heads, T, S]; where the mask is false, or beyond a sequence's length, nothing is attended. `scale` is
    1/sqrt(size) if not given. Scores are summed and normalized in float32 at least. With `return_residual`, gives also the
    logarithm of each query's sum of exponentials, [batch, T, heads] in the dtype of `query`.
    """
    _check_implementation(implementation)
    query, key, value = wnp.asarray(query), wnp.asarray(key), wnp.asarray(value)
    has_batch = query.ndim == 4
    if not has_batch:
        query, key, value = query[None], key[None], value[None]
        bias, mask = _of_four_dims(bias), _of_four_dims(mask)
    if not query.ndim == key.ndim == value.ndim == 4:
        shapes = ", ".join(str(x.shape[not has_batch :]) for x in (query, key, value))
        raise ValueError(
            f"nn.dot_product_attention: query, key and value must all have dims [batch, T, heads, size] or all "
            f"[T, heads, size], got shapes {shapes}."
        )
    _, n_queries, n_heads, size = query.shape
    n_keys, n_key_heads = key.shape[1], key.shape[2]
    if n_heads % n_key_heads:
        raise ValueError(
            f"nn.dot_product_attention: the number of query heads, {n_heads}, must be a multiple of the number of key heads, {n_key_heads}."
        )
    groups = n_heads // n_key_heads
    if groups > 1:
        key, value = wnp.repeat(key, groups, axis=2), wnp.repeat(value, groups, axis=2)

    sums = wnp.promote_types(query.dtype, wnp.float32)
    scores = wnp.einsum("btnh,bsnh->bnts", query.astype(sums), key.astype(sums))
    scores = scores * (1 / math.sqrt(size) if scale is None else scale)
    if bias is not None:
        scores = scores + wnp.asarray(bias).astype(sums)
    allowed = _allowed(
        mask,
        n_queries,
        n_keys,
        is_causal,
        query_seq_lengths,
        key_value_seq_lengths,
        local_window_size,
    )
    if allowed is not None:
        scores = wnp.where(allowed, scores, -0.7 * float(wnp.finfo(sums).max))
    weights = softmax(scores).astype(query.dtype)
    outs = [wnp.einsum("bnts,bsnh->btnh", weights, value)]
    if return_residual:
        outs.append(logsumexp(scores, axis=-1).swapaxes(1, 2)[..., None].astype(query.dtype))
    if query_seq_lengths is not None:
        inside = (
            wnp.arange(n_queries)[None, :, None, None]
            < wnp.asarray(query_seq_lengths)[:, None, None, None]
        )
        outs = [wnp.where(inside, out, wnp.zeros((), out.dtype)) for out in outs]
    out, *residual = outs if has_batch else [out[0] for out in outs]
    return (out, residual[0][..., 0]) if return_residual else out


def _of_four_dims(x: Any) -> Any:
    if x is None:
        return None
    x = wnp.asarray(x)
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


def _allowed(
    mask: Any,
    n_queries: int,
    n_keys: int,
    is_causal: bool,
    query_lengths: Any,
    key_lengths: Any,
    window: Any,
) -> Any:
    """Which query may attend which key; None if all may."""
    t = wnp.arange(n_queries)[:, None]
    s = wnp.arange(n_keys)[None, :]
    masks = [] if mask is None else [wnp.asarray(mask)]
    if is_causal:
        masks.append(s <= t)
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        masks.append((t - s <= left) & (s - t <= right))
    if query_lengths is not None:
        masks.append(t < wnp.asarray(query_lengths)[:, None, None, None])
    if key_lengths is not None:
        masks.append(s < wnp.asarray(key_lengths)[:, None, None, None])
    if not masks:
        return None
    allowed = masks[0]
    for more in masks[1:]:
        allowed = allowed & more
    return allowed


def _check_implementation(implementation: str | None) -> None:
    if implementation == "cudnn":
        raise NotImplementedError(
            "nn.dot_product_attention: the implementation 'cudnn' is for GPUs; leave it at None."
        )
    if implementation not in (None, "xla"):
        raise ValueError(
            f"nn.dot_product_attention: there is no implementation {implementation!r}; leave it at None."
        )
