"""Attention that never stores the whole score matrix, with positions before heads.

In:   queries, keys and values [batch, positions, heads, size].
Out:  the attention output for each query, in the dtype of the queries.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import weft.numpy as wnp
from weft.nn import dot_product_attention


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """The block sizes of a GPU kernel; accepted without effect, because weft's compiler tiles the operands itself."""

    block_q: int
    block_k: int
    block_q_dkv: int | None = None
    block_kv_dkv: int | None = None
    block_q_dq: int | None = None
    block_kv_dq: int | None = None

    @classmethod
    def get_default(cls) -> BlockSizes:
        """Return the default block sizes."""
        return cls(128, 128, 32, 32, 32, 32)


def mha(
    q: Any,
    k: Any,
    v: Any,
    segment_ids: Any,
    sm_scale: float = 1.0,
    causal: bool = False,
    block_sizes: BlockSizes | None = None,
    backward_pass_impl: str = "triton",
    num_warps: int | None = None,
    num_stages: int = 2,
    grid: Any = None,
    interpret: bool = False,
    debug: bool = False,
    return_residuals: bool = False,
) -> Any:
    """Return softmax(sm_scale q·k)·v for each head.

    `q` is [batch, T, heads, size], `k` and `v` are [batch, S, heads, size]; `segment_ids` is [batch, T] or None: a query
    attends to keys of its own segment. With `causal`, query t attends to the keys 0 to t. With `return_residuals`, also
    return the logarithm of each query's sum of exponentials, [batch, heads, T] in float32. The other arguments are
    options of GPU kernels without effect. Raises ShapeError if the shapes do not match.

    >>> q = np.zeros((1, 2, 1, 4), 'f4')
    >>> mha(q, q, np.arange(8, dtype='f4').reshape(1, 2, 1, 4), None, causal=True)[0, :, 0].tolist()
    [[0.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0]]
    """
    mask = None
    if segment_ids is not None:
        mask = wnp.equal(wnp.expand_dims(segment_ids, (1, 3)), wnp.expand_dims(segment_ids, (1, 2)))
    out = dot_product_attention(
        *map(wnp.asarray, (q, k, v)),
        mask=mask,
        scale=sm_scale,
        is_causal=causal,
        return_residual=return_residuals,
    )
    return (
        (out[0], wnp.astype(wnp.swapaxes(out[1], 1, 2), wnp.float32)) if return_residuals else out
    )
