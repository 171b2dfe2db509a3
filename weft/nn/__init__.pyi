"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

from collections.abc import Sequence
from typing import Any, Literal, overload
from weft._engine.nn.block_scaled_products import BlockScaleConfig
from weft._engine.nn.normalization import Axis
from weft._engine.ops.collectives import AxisName
from weft._engine.ops.contraction import DotDimensionNumbers
from weft._engine.runtime.array import Array
from weft.nn import initializers
from weft.typing import ArrayLike, DTypeLike

@overload
def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: ArrayLike | None = None,
) -> Array: ...
@overload
def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: ArrayLike | None = None,
) -> tuple[Array, Array]: ...
@overload
def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any: ...
def celu(x: ArrayLike, alpha: ArrayLike = ...) -> Array:
    r"""`elu` with a derivative of 1 at 0 for every `alpha`."""
def dot_product_attention(query: ArrayLike, key: ArrayLike, value: ArrayLike, bias: ArrayLike | None = None, mask: ArrayLike | None = None, *, scale: float | None = None, is_causal: bool = False, query_seq_lengths: ArrayLike | None = None, key_value_seq_lengths: ArrayLike | None = None, local_window_size: int | tuple[int, int] | None = None, implementation: str | None = None, return_residual: bool = False) -> Any:
    r"""softmax(scale query·key + bias)·value for each head."""
def elu(x: ArrayLike, alpha: ArrayLike = ...) -> Array:
    r"""`x` where it is positive, `alpha (exp(x) - 1)` elsewhere."""
def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    r"""`x` times the normal distribution function at `x`; `approximate` takes a cubic inside tanh for it."""
def get_scaled_dot_general_config(mode: str, global_scale: ArrayLike | None = None) -> BlockScaleConfig:
    r"""The configuration of `scaled_dot_general` for an operand."""
def glu(x: ArrayLike, axis: int = -1) -> Array:
    r"""The first half of `x` along `axis`, gated by the sigmoid of the second half."""
def hard_sigmoid(x: ArrayLike) -> Array:
    r"""relu6(x + 3) / 6."""
def hard_silu(x: ArrayLike) -> Array:
    r"""x hard_sigmoid(x)."""
def hard_swish(x: ArrayLike) -> Array:
    r"""x hard_sigmoid(x)."""
def hard_tanh(x: ArrayLike) -> Array:
    r"""`x`, cut to [-1, 1]."""
def identity(x: ArrayLike) -> Array:
    r"""`x` itself."""
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = ...) -> Array:
    r"""`x` where it is not negative, `negative_slope * x` elsewhere."""
def log1mexp(x: ArrayLike) -> Array:
    r"""log(1 - exp(-x)) for positive `x`, exact near 0 and far from it."""
def log_sigmoid(x: ArrayLike) -> Array:
    r"""log(sigmoid(x)), without cancellation."""
def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None, initial: ArrayLike | None = None) -> Array:
    r"""The logarithm of `softmax`, without cancellation; where `where` is false, minus infinity. `initial` is that of `softmax`."""
def logmeanexp(x: ArrayLike, axis: Axis | None = None, where: ArrayLike | None = None, keepdims: bool = False) -> Array:
    r"""log(mean(exp(x))) along `axis`, without overflow."""
def mish(x: ArrayLike) -> Array:
    r"""x tanh(softplus(x))."""
def one_hot(x: ArrayLike, num_classes: int, *, dtype: DTypeLike | None = None, axis: int | AxisName = -1) -> Array:
    r"""Vectors of `num_classes` along a new dim `axis`: 1 at index `x`, 0 elsewhere, all 0 for an index out of range."""
def relu(x: ArrayLike) -> Array:
    r"""The greater of `x` and 0; its derivative at 0 is 0."""
def relu6(x: ArrayLike) -> Array:
    r"""`relu(x)`, at most 6; its derivative at 0 and 6 is 0."""
def scaled_dot_general(lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: DotDimensionNumbers, preferred_element_type: DTypeLike | None = ..., configs: Sequence[BlockScaleConfig] | None = None, implementation: str | None = None) -> Array:
    r"""`lax.dot_general` of operands that are quantized in blocks along the contracted dims."""
def scaled_matmul(lhs: ArrayLike, rhs: ArrayLike, lhs_scales: ArrayLike, rhs_scales: ArrayLike, preferred_element_type: DTypeLike | None = ...) -> Array:
    r"""The products of matrices [batch, M, K] with transposed ones [batch, N, K], each multiplied by its scales along K: [batch, M, N]."""
def selu(x: ArrayLike) -> Array:
    r"""`elu`, scaled so that a standard normal input gives mean 0 and variance 1."""
def sigmoid(x: ArrayLike) -> Array:
    r"""1 / (1 + exp(-x))."""
def silu(x: ArrayLike) -> Array:
    r"""x sigmoid(x), also known as swish."""
def soft_sign(x: ArrayLike) -> Array:
    r"""x / (1 + |x|)."""
def softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None, initial: ArrayLike | None = None) -> Array:
    r"""exp(x), divided by its sum along `axis`; where `where` is false, 0."""
def softplus(x: ArrayLike) -> Array:
    r"""log(1 + exp(x))."""
def sparse_plus(x: ArrayLike) -> Array:
    r"""0 below -1, `x` above 1, (x + 1)² / 4 between."""
def sparse_sigmoid(x: ArrayLike) -> Array:
    r"""(x + 1) / 2, cut to [0, 1]."""
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    r"""(x + sqrt(x² + b)) / 2."""
def standardize(x: ArrayLike, axis: Axis = -1, mean: ArrayLike | None = None, variance: ArrayLike | None = None, epsilon: ArrayLike = ..., where: ArrayLike | None = None, *, algorithm: str = 'fast') -> Array:
    r"""`x` less its mean, divided by its deviation along `axis`; `epsilon` is added to the variance."""
def swish(x: ArrayLike) -> Array:
    r"""x sigmoid(x), also known as swish."""
def tanh(x: ArrayLike) -> Array:
    r"""The hyperbolic tangent."""

__all__ = [
    "celu", "dot_product_attention", "elu", "gelu", "get_scaled_dot_general_config", "glu",
    "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity", "initializers",
    "leaky_relu", "log1mexp", "log_sigmoid", "log_softmax", "logmeanexp", "logsumexp", "mish",
    "one_hot", "relu", "relu6", "scaled_dot_general", "scaled_matmul", "selu", "sigmoid", "silu",
    "soft_sign", "softmax", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus",
    "standardize", "swish", "tanh",
]
