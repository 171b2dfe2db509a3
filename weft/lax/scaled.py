"""Products of block-scaled operands: numbers of few bits, with a scale for each block along the contracted dim.

In:   operands, and scales of the same shape but for the contracted dims, which hold one scale for each block.
Out:  the product of the operands times their scales, computed in float32.
Next: `nn.scaled` quantizes operands to such blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.api.execute import to_array
from weft.core.trace import Tracer
from weft.ops import casting, contraction, layout
from weft.ops.arithmetic import mul
from weft.ops.contraction import DotDimensionNumbers
from weft.util import dtypes
from weft.util.errors import ShapeError

_F32 = np.dtype(np.float32)


def scaled_dot(lhs: Any, rhs: Any, *, lhs_scale: Any = None, rhs_scale: Any = None, dimension_numbers: DotDimensionNumbers | None = None,
               preferred_element_type: Any = None) -> Any:
    """`dot_general(lhs * lhs_scale, rhs * rhs_scale)`, where a scale has an element for each block of a contracted dim.

    Scales have their operand's sizes in all dims but the contracted ones, where theirs divide the operand's. By default matrices are
    multiplied, or batches of them along dim 0. The result is bfloat16, or `preferred_element_type`: float32 or bfloat16.
    Raises ShapeError for scales that do not fit, TypeError for another result.

    >>> x, s = wnp.ones((2, 4), "float8_e4m3fn"), wnp.array([[1.0, 2.0], [1.0, 3.0]], "float8_e8m0fnu")
    >>> lax.scaled_dot(x, x.T, lhs_scale=s).tolist()
    [[6.0, 6.0], [10.0, 10.0]]
    """
    lhs, rhs = [v if isinstance(v, Tracer) else to_array(v) for v in (lhs, rhs)]
    if dimension_numbers is None:
        if (lhs.ndim, rhs.ndim) not in ((2, 2), (3, 3)):
            raise ShapeError("scaled_dot: without dimension_numbers, operands have 2 dims, or 3 with a batch; got "
                             f"{lhs.ndim} and {rhs.ndim}.")
        dimension_numbers = (((1,), (0,)), ((), ())) if lhs.ndim == 2 else (((2,), (1,)), ((0,), (0,)))
    wanted = dtypes.canonicalize_dtype("bfloat16" if preferred_element_type is None else preferred_element_type)
    if wanted.name not in ("bfloat16", "float32"):
        raise TypeError(f"scaled_dot: preferred_element_type must be bfloat16 or float32, got {wanted.name}.")
    (lc, rc), _ = dimension_numbers
    scaled = [_scaled(x, scale, tuple(dims), side) for x, scale, dims, side in ((lhs, lhs_scale, lc, "lhs"), (rhs, rhs_scale, rc, "rhs"))]
    out = contraction.dot_general(*scaled, dimension_numbers, preferred_element_type=_F32)
    return casting.convert_element_type(out, wanted)


def _scaled(x: Any, scale: Any, contracted: tuple[int, ...], side: str) -> Any:
    """`x` times its scales, in float32."""
    wide = casting.convert_element_type(x, _F32)
    if scale is None:
        return wide
    scale = scale if isinstance(scale, Tracer) else to_array(scale)
    shape, blocks = tuple(x.shape), tuple(scale.shape)
    fits = len(shape) == len(blocks) and all(
        n == m or (m and n % m == 0 and d in contracted) for d, (n, m) in enumerate(zip(shape, blocks)))
    if not fits:
        raise ShapeError(f"scaled_dot: {side}_scale has shape {blocks}, {side} {shape}; they must be equal but for the contracted dims "
                         f"{contracted}, where the size of the scale must divide that of the operand.")
    scale = casting.convert_element_type(scale, _F32)
    if shape == blocks:
        return mul(wide, scale)
    split = [size for n, m in zip(shape, blocks) for size in (m, n // m)]
    spread = layout.broadcast_in_dim(scale, tuple(split), tuple(range(0, 2 * len(shape), 2)))
    return mul(wide, layout.reshape(spread, shape))
