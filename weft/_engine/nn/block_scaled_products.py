"""Matrix products of operands quantized in blocks: MXFP8 and NVFP4.

In:   operands in ordinary floats, or numbers of few bits with their scales.
Out:  products in float32, or another float.
Laws: a block's largest element stays in the range of its few bits; derivatives are products of quantized operands too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft._engine.control.custom_rules import custom_vjp
from weft._engine.lax.block_scaled_products import scaled_dot
from weft._engine.ops.contraction import DotDimensionNumbers, dot_general
from weft._engine.util.errors import ShapeError
from weft._engine.util.record import record
from weft._engine.util.source import warn_user


@record
class BlockScaleConfig:
    """The quantization of an operand.

    It has the mode, the elements of a block, the dtypes of data and scales, a scale of the whole operand, and whether there are no
    derivatives.
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


def get_scaled_dot_general_config(mode: str, global_scale: Any = None) -> BlockScaleConfig:
    """The configuration of `scaled_dot_general` for an operand.

    'mxfp8' is float8_e4m3fn with a power of two for each 32 elements; 'nvfp4' is float4_e2m1fn with a float8_e4m3fn for each 16, and
    `global_scale`, a float32 that everything is divided by first, 1 if not given. Raises ValueError for another mode, or for a global
    scale of 'mxfp8'.

    >>> weft.nn.get_scaled_dot_general_config("mxfp8").block_size
    32
    """
    if mode == "nvfp4":
        scale = wnp.ones((1,), wnp.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, wnp.float4_e2m1fn, wnp.float8_e4m3fn, scale, False)
    if mode != "mxfp8":
        raise ValueError(
            f"get_scaled_dot_general_config: Unsupported mode: {mode}; use 'mxfp8' or 'nvfp4'."
        )
    if global_scale is not None:
        raise ValueError("get_scaled_dot_general_config: mxfp8 has no global_scale; leave it None.")
    return BlockScaleConfig(mode, 32, wnp.float8_e4m3fn, wnp.float8_e8m0fnu, None, False)


def scaled_matmul(
    lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = wnp.float32
) -> Any:
    """The products of matrices [batch, M, K] with transposed ones [batch, N, K], each multiplied by its scales along K: [batch, M, N].

    Scales are [batch, M, K / block]; the size of a block follows from the shapes. Raises ShapeError for shapes that do not fit.

    >>> a, b, half = wnp.array([[[1.0, 2, 3]]]), wnp.array([[[4.0, 5, 6]]]), wnp.array([[[0.5]]])
    >>> weft.nn.scaled_matmul(a, b, half, half).tolist()
    [[[8.0]]]
    """
    operands = [wnp.asarray(x) for x in (lhs, rhs, lhs_scales, rhs_scales)]
    if any(x.ndim != 3 for x in operands):
        raise ShapeError(
            f"scaled_matmul: operands and scales have three dims, got shapes {[tuple(x.shape) for x in operands]}."
        )
    lhs, rhs, lhs_scales, rhs_scales = operands
    out = scaled_dot(
        lhs,
        rhs,
        lhs_scale=lhs_scales,
        rhs_scale=rhs_scales,
        dimension_numbers=(((2,), (2,)), ((0,), (0,))),
        preferred_element_type=wnp.float32,
    )
    return out.astype(preferred_element_type)


def scaled_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: DotDimensionNumbers,
    preferred_element_type: Any = wnp.float32,
    configs: Sequence[BlockScaleConfig] | None = None,
    implementation: str | None = None,
) -> Any:
    """`lax.dot_general` of operands that are quantized in blocks along the contracted dims.

    `configs` has one configuration each for `lhs`, `rhs` and the gradients of the result (`get_scaled_dot_general_config`); without it
    nothing is quantized. The contracted size must be a multiple of the block size. `implementation` is deprecated: it
    has no effect.
    Raises ShapeError for other sizes, ValueError unless there are three configurations.

    >>> config = weft.nn.get_scaled_dot_general_config("mxfp8")
    >>> weft.nn.scaled_dot_general(wnp.ones((2, 32)), wnp.ones((3, 32)), (((1,), (1,)), ((), ())), configs=[config] * 3)[0].tolist()
    [32.0, 32.0, 32.0]
    """
    if implementation is not None:
        warn_user(
            "scaled_dot_general: the argument implementation is ignored: there is one. Leave it out.",
            DeprecationWarning,
        )
    lhs, rhs = wnp.asarray(lhs), wnp.asarray(rhs)
    if configs is None:
        return dot_general(
            lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type
        )
    if len(configs) != 3:
        raise ValueError(
            f"scaled_dot_general: configs has one configuration each for lhs, rhs and gradients, got {len(configs)}."
        )
    (lc, rc), (lb, rb) = dimension_numbers
    rows, left = _as_rows(lhs, lc, lb)
    columns, right = _as_rows(rhs, rc, rb)
    out = _product(rows, columns, configs)
    batch = [lhs.shape[d] for d in lb]
    return out.reshape(*batch, *left, *right).astype(preferred_element_type)


def _as_rows(x: Any, contracted: Sequence[int], batch: Sequence[int]) -> tuple[Any, list[int]]:
    """`x` as [batch, rows, contracted], and the sizes of its other dims."""
    contracted, batch = [d % x.ndim for d in contracted], [d % x.ndim for d in batch]
    free = [d for d in range(x.ndim) if d not in contracted and d not in batch]
    sizes = [math.prod(x.shape[d] for d in dims) for dims in (batch, free, contracted)]
    return x.transpose(*batch, *free, *contracted).reshape(sizes), [x.shape[d] for d in free]


def _product(rows: Any, columns: Any, configs: Sequence[BlockScaleConfig]) -> Any:
    """[B, M, K] times [B, N, K], quantized; its derivatives quantize the gradient and the other operand along what they contract."""
    left, right, gradient = configs
    if left.infer_only:
        return _quantized_product(rows, columns, left, right)

    @custom_vjp
    def product(rows, columns):
        return _quantized_product(rows, columns, left, right)

    def backward(residuals, ct):
        rows, columns = residuals
        turned = lambda x: x.swapaxes(1, 2)
        d_rows = _quantized_product(ct, turned(columns), gradient, right)
        d_columns = _quantized_product(turned(ct), turned(rows), gradient, left)
        return _where_in_range(rows, d_rows, left), _where_in_range(columns, d_columns, right)

    product.defvjp(
        lambda rows, columns: (_quantized_product(rows, columns, left, right), (rows, columns)),
        backward,
    )
    return product(rows, columns)


def _where_in_range(x: Any, gradient: Any, config: BlockScaleConfig) -> Any:
    """The gradient of `x`, 0 where its quantization is cut off."""
    if config.global_scale is None:
        return gradient.astype(x.dtype)
    limit = config.global_scale * _largest(config.data_type) * _largest(config.scale_type)
    return wnp.where(wnp.abs(x) <= limit, gradient, 0).astype(x.dtype)


def _quantized_product(
    rows: Any, columns: Any, left: BlockScaleConfig, right: BlockScaleConfig
) -> Any:
    (a, a_scale), (b, b_scale) = _quantize(rows, left), _quantize(columns, right)
    out = scaled_matmul(a, b, a_scale, b_scale)
    for config in (left, right):
        out = out if config.global_scale is None else out * config.global_scale
    return out


def _quantize(x: Any, config: BlockScaleConfig) -> tuple[Any, Any]:
    """The elements of [..., K] in the data type, and their scales, [..., K / block]."""
    size = config.block_size
    if x.shape[-1] % size:
        raise ShapeError(
            f"scaled_dot_general: {config.mode} quantizes blocks of {size} elements; the contracted size {x.shape[-1]} is no "
            "multiple of that."
        )
    blocks = x.astype(wnp.float32).reshape(*x.shape[:-1], -1, size)
    if config.global_scale is not None:
        blocks = blocks / config.global_scale
    largest = _largest(config.data_type)
    needed = wnp.max(wnp.abs(blocks), axis=-1, keepdims=True) / largest
    if config.mode == "mxfp8":  # the next power of two
        part, exponent = wnp.frexp(needed)
        scales = wnp.ldexp(
            wnp.ones_like(needed), wnp.clip(exponent - (part == 0.5), -127, 127)
        ).astype(config.scale_type)
    else:
        scales = wnp.clip(needed, 0, _largest(config.scale_type)).astype(config.scale_type)
    divisor = scales.astype(wnp.float32)
    data = wnp.clip(blocks / wnp.where(divisor == 0, 1, divisor), -largest, largest).astype(
        config.data_type
    )
    return data.reshape(x.shape), scales[..., 0]


def _largest(dtype: Any) -> float:
    return float(wnp.finfo(dtype).max)
