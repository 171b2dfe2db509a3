"""Attention that never stores the whole score matrix, with heads before positions.

In:   queries, keys and values [batch, heads, positions, size].
Out:  the attention output for each query, in the dtype of the queries.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import weft.numpy as wnp
from weft.nn import dot_product_attention, softmax

DEFAULT_MASK_VALUE = -0.7 * float(wnp.finfo(wnp.float32).max)


class SegmentIds(NamedTuple):
    """The segment of each position: a query attends only to keys of its own segment.

    `q` [batch, positions of queries] and `kv` [batch, positions of keys] are integers.
    """

    q: Any
    kv: Any


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """The block sizes of a TPU kernel; accepted without effect, because weft's compiler tiles the operands itself."""

    block_q: int
    block_k_major: int
    block_k: int
    block_b: int
    block_q_major_dkv: int | None = None
    block_k_major_dkv: int | None = None
    block_k_dkv: int | None = None
    block_q_dkv: int | None = None
    block_k_major_dq: int | None = None
    block_k_dq: int | None = None
    block_q_dq: int | None = None

    @property
    def has_backward_blocks(self) -> bool:
        """Return True if the sizes for the backward pass are given."""
        return None not in dataclasses.astuple(self)

    @classmethod
    def get_default(
        cls, batch_size: int, num_heads: int, q_seq_len: int, kv_len: int, d_model: int
    ) -> BlockSizes:
        """Return the default block sizes."""
        return cls(128, 128, 128, 1, 128, 128, 128, 128, 128, 128, 128)


def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    ab: Any = None,
    segment_ids: SegmentIds | None = None,
    *,
    causal: bool = False,
    sm_scale: float = 1.0,
    block_sizes: BlockSizes | None = None,
    debug: bool = False,
) -> Any:
    """Return softmax(sm_scale (q·k + ab))·v for each head.

    `q` is [batch, heads, T, size], `k` and `v` are [batch, heads, S, size], `ab` is [batch, heads, T, S]. With `causal`,
    query t attends to the keys 0 to t; with `segment_ids`, to keys of its own segment. Differentiable in all four arrays.
    `block_sizes` and `debug` have no effect. Raises ShapeError if the shapes do not match.

    >>> q = np.zeros((1, 1, 2, 4), 'f4')
    >>> flash_attention(q, q, np.arange(8, dtype='f4').reshape(1, 1, 2, 4), causal=True)[0, 0].tolist()
    [[0.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0]]
    """
    positions_first = lambda x: wnp.swapaxes(x, 1, 2)
    bias = None if ab is None else wnp.multiply(ab, sm_scale)
    mask = None if segment_ids is None else _same_segment(segment_ids)
    out = dot_product_attention(
        positions_first(q),
        positions_first(k),
        positions_first(v),
        bias,
        mask,
        scale=sm_scale,
        is_causal=causal,
    )
    return positions_first(out)


def _same_segment(ids: SegmentIds) -> Any:
    """Return a mask [batch, 1, queries, keys] of the queries and keys with equal segments."""
    return wnp.equal(wnp.expand_dims(ids.q, (1, 3)), wnp.expand_dims(ids.kv, (1, 2)))


def mha_reference(
    q: Any,
    k: Any,
    v: Any,
    ab: Any,
    segment_ids: SegmentIds | None = None,
    mask_value: float = DEFAULT_MASK_VALUE,
    causal: bool = False,
    sm_scale: float = 1.0,
) -> Any:
    """Compute `flash_attention` with the score matrix as an array, as a reference for kernels. Masked scores are `mask_value`.

    >>> q = np.zeros((1, 1, 2, 4), 'f4')
    >>> mha_reference(q, q, np.ones((1, 1, 2, 4), 'f4'), None)[0, 0, 0].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    scores: Any = wnp.einsum("bhtd,bhsd->bhts", q, k)
    scores = (scores if ab is None else scores + ab) * sm_scale
    allowed = wnp.ones(scores.shape[-2:], bool)
    if causal:
        allowed = wnp.tril(allowed)
    if segment_ids is not None:
        allowed = wnp.logical_and(allowed, _same_segment(segment_ids))
    return wnp.einsum("bhts,bhsd->bhtd", softmax(wnp.where(allowed, scores, mask_value)), v)
