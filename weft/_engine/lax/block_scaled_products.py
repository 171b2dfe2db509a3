"""Products of block-scaled operands: narrow numbers with a scale for each block along the
contracted dim.

In:   operands, and scales of the same shape except in the contracted dims, which have one scale per
      block.
Out:  the product of the operands times their scales, computed in float32.
Next: `nn.block_scaled_products` quantizes operands to such blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft._engine.api.execute import to_array
from weft._engine.core.trace import Tracer
from weft._engine.ops import casting, contraction, layout
from weft._engine.ops.arithmetic import mul
from weft._engine.ops.contraction import DotDimensionNumbers
from weft._engine.util import dtypes
from weft._engine.util.errors import ShapeError

_F32 = np.dtype(np.float32)


def scaled_dot(
    lhs: Any,
    rhs: Any,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return `dot_general(lhs * lhs_scale, rhs * rhs_scale)`.

    There is one scale per block of a contracted dim.

    Scales have their operand's sizes except in contracted dims, where their size divides the
    operand's into blocks of two elements or more. By default matrices, or batches of them along dim
    0, are multiplied. The result is bfloat16, or `preferred_element_type`: float32 or bfloat16.
    Raises ShapeError for operands or scales that do not fit, TypeError for another result dtype.

    >>> x, s = wnp.ones((2, 4), "float8_e4m3fn"), wnp.array([[1.0, 2.0], [1.0, 3.0]], "float8_e8m0fnu")
    >>> lax.scaled_dot(x, x.T, lhs_scale=s).tolist()
    [[6.0, 6.0], [10.0, 10.0]]
    """
    lhs, rhs = [v if isinstance(v, Tracer) else to_array(v) for v in (lhs, rhs)]
    if dimension_numbers is None:
        if (lhs.ndim, rhs.ndim) not in ((2, 2), (3, 3)):
            raise ShapeError(
                "scaled_dot: without dimension_numbers, operands must have the same rank. They have 2 dims, or 3 with a "
                f"batch; got {lhs.ndim} and {rhs.ndim}."
            )
        dimension_numbers = (
            (((1,), (0,)), ((), ())) if lhs.ndim == 2 else (((2,), (1,)), ((0,), (0,)))
        )
    out_dtype = dtypes.canonicalize_dtype(
        "bfloat16" if preferred_element_type is None else preferred_element_type
    )
    if out_dtype.name not in ("bfloat16", "float32"):
        raise TypeError(
            f"scaled_dot: preferred_element_type must be bfloat16 or float32, got {out_dtype.name}."
        )
    (lc, rc), (lb, rb) = dimension_numbers
    for d, e in zip(lb, rb):
        if lhs.shape[d] != rhs.shape[e]:
            raise ShapeError(
                f"scaled_dot: operands must have the same batch dimension size: LHS dim {d} has {lhs.shape[d]}, RHS dim {e} "
                f"{rhs.shape[e]}."
            )
    for d, e in zip(lc, rc):
        if lhs.shape[d] != rhs.shape[e]:
            raise ShapeError(
                f"scaled_dot: LHS contracting dim {d} of size {lhs.shape[d]} does not match RHS contracting dim {e} of size "
                f"{rhs.shape[e]}."
            )
    lhs, rhs = [
        _scale(x, scale, tuple(dims), side)
        for x, scale, dims, side in ((lhs, lhs_scale, lc, "lhs"), (rhs, rhs_scale, rc, "rhs"))
    ]
    out = contraction.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=_F32)
    return casting.convert_element_type(out, out_dtype)


def _scale(x: Any, scale: Any, contracted: tuple[int, ...], side: str) -> Any:
    """Return `x` times its scales, in float32."""
    x32 = casting.convert_element_type(x, _F32)
    if scale is None:
        return x32
    scale = scale if isinstance(scale, Tracer) else to_array(scale)
    shape, blocks = tuple(x.shape), tuple(scale.shape)
    facts = f"scaled_dot: {side}_scale has shape {blocks}, {side} {shape}."
    if len(shape) != len(blocks):
        raise ShapeError(f"{facts} They must have the same rank.")
    for d, (n, m) in enumerate(zip(shape, blocks)):
        if d not in contracted and n != m:
            raise ShapeError(
                f"{facts} {side.upper()} dim {d} of size {n} does not match scale dim size {m}."
            )
        if d in contracted and (not m or n // m < 2):
            raise ShapeError(
                f"{facts} The ratio of {side.upper()} contracting dim {d} to its scale's dim size {m} must be at least 2."
            )
        if d in contracted and n % m:
            raise ShapeError(
                f"{facts} The size of a contracted dim must be a multiple of its scale's."
            )
    scale = casting.convert_element_type(scale, _F32)
    split = [size for n, m in zip(shape, blocks) for size in (m, n // m)]
    spread = layout.broadcast_in_dim(scale, tuple(split), tuple(range(0, 2 * len(shape), 2)))
    return mul(x32, layout.reshape(spread, shape))
