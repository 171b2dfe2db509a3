"""Activations: elementwise functions between the layers of a network.

Each takes an array (integers count as floats) and gives one of the same shape; all compose from `weft.numpy`, so the
compiler fuses them into the product or the loop before them.
"""

from __future__ import annotations

import math
from typing import Any

import weft.numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.numpy.promote import canonical_axis
from weft._engine.ops import functions
from weft._engine.ops.comparison import clamp
from weft._engine.util import dtypes


def _float(x: Any) -> Any:
    """`x` as an array of floats."""
    x = wnp.asarray(x)
    if dtypes.issubdtype(x.dtype, wnp.inexact):
        return x
    return x + 0.0 if x.weak_type else x.astype(wnp.result_type(float))


def _loose(x: Any) -> Any:
    """`x` as an array of floats; integers become weakly typed ones, as in an operation with a Python float."""
    x = wnp.asarray(x)
    return x if dtypes.issubdtype(x.dtype, wnp.inexact) else x + 0.0


def _single(x: Any) -> Any:
    """Return `x`, converted to float32 if it has at most 16 bits, so that formulas of several steps round only once."""
    return x.astype(wnp.float32) if x.dtype.itemsize < 4 else x


def identity(x: Any) -> Any:
    """`x` itself."""
    return wnp.asarray(x)


@custom_jvp
def relu(x: Any) -> Any:
    """The greater of `x` and 0; its derivative at 0 is 0.

    >>> relu(wnp.array([-1.0, 0.0, 2.0])).tolist()
    [0.0, 0.0, 2.0]
    """
    return wnp.maximum(x, 0)


@relu.defjvp
def _relu_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return relu(x), wnp.where(wnp.asarray(x) > 0, t, wnp.zeros_like(t))


def relu6(x: Any) -> Any:
    """`relu(x)`, at most 6; its derivative at 0 and 6 is 0."""
    return clamp(0, _loose(x), 6)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)).

    >>> sigmoid(0.0).item()
    0.5
    """
    return functions.logistic(_float(x))


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return wnp.logaddexp(x, 0)


def soft_sign(x: Any) -> Any:
    """x / (1 + |x|)."""
    x = _float(x)
    return x / (wnp.abs(x) + 1)


def silu(x: Any) -> Any:
    """x sigmoid(x), also known as swish."""
    x = _float(x)
    return x * sigmoid(x)


swish = silu


def mish(x: Any) -> Any:
    """x tanh(softplus(x))."""
    x = _float(x)
    return x * wnp.tanh(softplus(x))


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), without cancellation."""
    return -softplus(-_float(x))


def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Any:
    """`x` where it is not negative, `negative_slope * x` elsewhere."""
    x = wnp.asarray(x)
    return wnp.where(x >= 0, x, negative_slope * x)


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """`x` where it is positive, `alpha (exp(x) - 1)` elsewhere."""
    x = _loose(x)
    # keeps expm1, and its derivative, from overflowing where it is not used
    below = wnp.where(x > 0, 0.0, x)
    return wnp.where(x > 0, x, alpha * wnp.expm1(below))


def selu(x: Any) -> Any:
    """`elu`, scaled so that a standard normal input gives mean 0 and variance 1."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """`elu` with a derivative of 1 at 0 for every `alpha`."""
    x = _loose(x)
    return wnp.maximum(x, 0.0) + alpha * wnp.expm1(wnp.minimum(x, 0.0) / alpha)


_GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715 * _GELU_LINEAR


def gelu(x: Any, approximate: bool = True) -> Any:
    """`x` times the normal distribution function at `x`; `approximate` takes a cubic inside tanh for it."""
    x = _float(x)
    if approximate:
        # (1 + tanh(u)) / 2 is logistic(2 u), which keeps its digits where it is small
        y = _single(x)
        return (y * functions.logistic(y * (_GELU_LINEAR + _GELU_CUBIC * (y * y)))).astype(x.dtype)
    return 0.5 * x * functions.erfc(-x * math.sqrt(0.5))


def glu(x: Any, axis: int = -1) -> Any:
    """The first half of `x` along `axis`, gated by the sigmoid of the second half."""
    x = _float(x)
    axis = canonical_axis(axis, x.ndim, "glu")
    if x.shape[axis] % 2:
        raise ValueError(
            f"nn.glu: dim {axis} of shape {x.shape} has odd size; it is split into two halves."
        )
    first, second = wnp.split(x, 2, axis)
    return first * sigmoid(second)


def squareplus(x: Any, b: Any = 4) -> Any:
    """(x + sqrt(x² + b)) / 2."""
    x = _float(x)
    return 0.5 * (x + wnp.sqrt(wnp.square(x) + b))


def hard_tanh(x: Any) -> Any:
    """`x`, cut to [-1, 1]."""
    x = wnp.asarray(x)
    return wnp.where(x > 1, 1, wnp.where(x < -1, -1, x))


def hard_sigmoid(x: Any) -> Any:
    """relu6(x + 3) / 6."""
    return relu6(_loose(x) + 3.0) / 6.0


def hard_silu(x: Any) -> Any:
    """x hard_sigmoid(x)."""
    x = _loose(x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


def sparse_plus(x: Any) -> Any:
    """0 below -1, `x` above 1, (x + 1)² / 4 between."""
    x = _loose(x)
    return wnp.where(x <= -1.0, 0.0, wnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


def sparse_sigmoid(x: Any) -> Any:
    """(x + 1) / 2, cut to [0, 1]."""
    return 0.5 * wnp.clip(_loose(x) + 1.0, 0.0, 2.0)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return wnp.tanh(x)
