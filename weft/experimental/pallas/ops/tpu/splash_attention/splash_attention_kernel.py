"""Attention with a static mask, with heads before positions.

In:   queries [heads, T, size]; keys and values [heads of keys, S, size], or [S, size] for one head of keys; a mask [heads, T, S].
Out:  the attention output for each query, in the dtype of the queries. Scores are not scaled: scale the queries.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import weft.numpy as wnp
from weft._engine.api.checkpointing import checkpoint_name
from weft._engine.core.trace import Tracer
from weft._engine.util.errors import ShapeError
from weft.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as mask_lib
from weft.nn import logsumexp
from weft.sharding import NamedSharding, PartitionSpec
from weft.tree_util import register_pytree_node_class

DEFAULT_MASK_VALUE = -0.7 * float(np.finfo(np.float32).max)


class SegmentIds(NamedTuple):
    """The segment of each position: a query attends only to keys of its own segment. `q` [T] and `kv` [S] are integers."""

    q: Any
    kv: Any


class QKVLayout(enum.IntEnum):
    """The position of an operand's fastest dim in a TPU kernel; without effect."""

    HEAD_DIM_MINOR = enum.auto()
    SEQ_MINOR = enum.auto()


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """The block sizes of a TPU kernel; accepted without effect, because weft's compiler tiles the operands itself."""

    block_q: int
    block_kv: int
    block_kv_compute: int | None = None
    block_q_dkv: int | None = None
    block_kv_dkv: int | None = None
    block_kv_dkv_compute: int | None = None
    block_q_dq: int | None = None
    block_kv_dq: int | None = None
    use_fused_bwd_kernel: bool = False
    q_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR
    k_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR
    v_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR

    @property
    def has_backward_blocks(self) -> bool:
        """Return True if the sizes for the backward pass are given."""
        sizes = [self.block_q_dkv, self.block_kv_dkv, self.block_kv_dkv_compute]
        return None not in (
            sizes if self.use_fused_bwd_kernel else [*sizes, self.block_q_dq, self.block_kv_dq]
        )

    @classmethod
    def get_default(cls) -> BlockSizes:
        """Return the default block sizes."""
        return cls(128, 128, 128, 128, 128, 128, 128, 128)


def attention_reference(
    mask: Any,
    q: Any,
    k: Any,
    v: Any,
    segment_ids: SegmentIds | None,
    sinks: Any = None,
    *,
    mask_value: float = DEFAULT_MASK_VALUE,
    save_residuals: bool = False,
    custom_type: str = "flash",
    attn_logits_soft_cap: float | None = None,
) -> Any:
    """Return the attention of one head: `q` [T, size], `k` [S, size], `v` [S, size of values], `mask` [T, S]. See `SplashAttentionKernel`."""
    result = _attention(
        wnp.asarray(mask)[None],
        q[None],
        k[None],
        v[None],
        segment_ids,
        None if sinks is None else wnp.reshape(sinks, 1),
        mask_value,
        attn_logits_soft_cap,
    )
    out, residual = result[0][0], result[1][0]
    return (out, (residual,)) if save_residuals else out


def _attention(
    mask: Any,
    q: Any,
    k: Any,
    v: Any,
    segment_ids: SegmentIds | None,
    sinks: Any,
    mask_value: float,
    soft_cap: float | None,
) -> tuple[Any, Any]:
    """Return the result [heads, T, size of values], and the logarithm of each query's sum of exponentials in float32, [heads, T]."""
    scores = wnp.einsum("htd,hsd->hts", q, k, preferred_element_type=np.float32)
    if soft_cap is not None:
        scores = wnp.tanh(scores / soft_cap) * soft_cap
    allowed = mask
    if segment_ids is not None:
        same = wnp.equal(wnp.asarray(segment_ids.q)[:, None], wnp.asarray(segment_ids.kv)[None, :])
        allowed = same if mask is None else wnp.logical_and(mask, same)
    if allowed is not None:
        scores = wnp.where(allowed, scores, mask_value)
    sums = logsumexp(scores, axis=-1)
    if sinks is not None:
        sums = wnp.logaddexp(sums, wnp.asarray(sinks, np.float32)[:, None])
    weights = wnp.exp(scores - sums[..., None])
    return wnp.einsum("hts,hsd->htd", weights, v.astype(np.float32)).astype(q.dtype), sums


@register_pytree_node_class
class SplashAttentionKernel:
    """Attention under a mask, as a function of queries, keys and values: `kernel(q, k, v, segment_ids=None, sinks=None)`.

    Computes softmax(q·k)·v per head, over the keys that the mask and `segment_ids` allow. `attn_logits_soft_cap=c` first
    replaces a score s by c·tanh(s / c). `sinks` has an additional score per head, with weight but without a value. Each
    head of keys serves an equal number of heads of queries. With residuals the result is (out, (sums,)), where sums is
    the logarithm of each query's sum of exponentials, [heads, T]. The kernel is a pytree of its mask. Raises ShapeError
    if the shapes do not match.
    """

    def __init__(self, mask: Any, **options: Any):
        self._mask, self._options = mask, options

    def __call__(
        self, q: Any, k: Any, v: Any, segment_ids: SegmentIds | None = None, sinks: Any = None
    ) -> Any:
        is_mqa, name = self._options["is_mqa"], self._options["residual_checkpoint_name"]
        q, k, v = wnp.asarray(q), wnp.asarray(k), wnp.asarray(v)
        k, v = (k[None], v[None]) if is_mqa else (k, v)
        self._check_shapes(q, k, v)
        heads = q.shape[0]
        k, v = (wnp.repeat(x, heads // k.shape[0], axis=0) for x in (k, v))
        out, sums = _attention(
            self._mask,
            q,
            k,
            v,
            segment_ids,
            sinks,
            self._options["mask_value"],
            self._options["attn_logits_soft_cap"],
        )
        if name is not None:
            out, sums = checkpoint_name(out, name), checkpoint_name(sums, name)
        return (out, (sums,)) if self._options["save_residuals"] else out

    def _check_shapes(self, q: Any, k: Any, v: Any) -> None:
        (heads, queries), (key_heads, keys) = q.shape[:2], k.shape[:2]
        fits = heads % key_heads == 0 and k.shape[:2] == v.shape[:2]
        mask = None if self._mask is None else tuple(self._mask.shape)
        if not fits or mask not in (None, (1, queries, keys), (heads, queries, keys)):
            raise ShapeError(
                f"SplashAttentionKernel: q, k and v of shapes {q.shape}, {k.shape} and {v.shape} do not fit a mask of shape "
                f"{mask}. Queries have the dims [heads, queries, size], keys and values [heads of keys, keys, size], the mask "
                "[heads, queries, keys]."
            )

    def manual_sharding_spec(self, sharding: NamedSharding) -> SplashAttentionKernel:
        """Return the kernel with specs in place of its arrays, for `in_specs` of `shard_map`: `sharding` splits [heads, queries]."""
        if self._mask is None:
            return self
        heads, queries = (*sharding.spec.partitions, None, None)[:2]
        return SplashAttentionKernel(
            PartitionSpec(heads if self._mask.shape[0] > 1 else None, queries), **self._options
        )

    def tree_flatten(self) -> tuple[tuple[Any], tuple]:
        return (self._mask,), tuple(sorted(self._options.items()))

    @classmethod
    def tree_unflatten(cls, options: tuple, children: tuple[Any]) -> SplashAttentionKernel:
        return cls(children[0], **dict(options))


def _mask_array(mask: Any) -> Any:
    """Return a mask as bools [heads, T, S], with one head if all are equal; None if everything is allowed."""
    if not isinstance(mask, mask_lib.MultiHeadMask):
        mask = mask if isinstance(mask, Tracer) else np.asarray(mask)
        if mask.ndim != 3 or mask.dtype != bool:
            raise ValueError(
                "make_splash_mha: the mask must have bools of dims [heads, queries, keys], got "
                f"{mask.dtype}{list(mask.shape)}."
            )
        return mask
    heads = mask.masks if len(set(mask.masks)) > 1 else mask.masks[:1]
    if all(isinstance(each, mask_lib.FullMask) for each in heads):
        return None
    return np.stack([each[:, :] for each in heads])


def _make_splash_attention(
    mask: Any,
    *,
    block_sizes: BlockSizes | None = None,
    is_mqa: bool,
    save_residuals: bool = False,
    mask_value: float = DEFAULT_MASK_VALUE,
    attn_logits_soft_cap: float | None = None,
    downcast_smem_data: bool = True,
    head_shards: int = 1,
    q_seq_shards: int = 1,
    residual_checkpoint_name: str | None = None,
    interpret: bool = False,
) -> SplashAttentionKernel:
    """Return the kernel of a MultiHeadMask, or of an array of bools [heads, T, S].

    `head_shards` and `q_seq_shards` are the numbers of parts into which a mesh divides heads and queries. Block sizes and
    the memory and interpreter options of TPU kernels have no effect.
    """
    return SplashAttentionKernel(
        _mask_array(mask),
        is_mqa=is_mqa,
        save_residuals=save_residuals,
        mask_value=mask_value,
        attn_logits_soft_cap=attn_logits_soft_cap,
        residual_checkpoint_name=residual_checkpoint_name,
    )


make_splash_mha = make_splash_mha_single_device = partial(_make_splash_attention, is_mqa=False)
make_splash_mqa = make_splash_mqa_single_device = partial(_make_splash_attention, is_mqa=True)


def make_attention_reference(
    mask: Any, is_mqa: bool, backward_impl: str = "vanilla", **params: Any
) -> Callable[..., Any]:
    """Return the attention under a mask as a function with the arguments of a kernel, as a reference for kernels."""
    return _make_splash_attention(mask, is_mqa=is_mqa, **params)


make_masked_mha_reference = partial(make_attention_reference, is_mqa=False)
make_masked_mqa_reference = partial(make_attention_reference, is_mqa=True)
