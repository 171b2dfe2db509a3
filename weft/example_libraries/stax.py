"""Layers for examples: pairs of functions, one that draws parameters and one that applies them.

In:  sizes of layers, and initializers of `weft.nn.initializers`.
Out: (init_fun, apply_fun): `init_fun(rng, input_shape)` gives (output_shape, params), `apply_fun(params, inputs, rng=None)` the outputs.
Laws: `serial` and `parallel` join pairs to pairs. Layers with several inputs take lists of shapes and of arrays. A batch size that is
      not known yet may be -1.

>>> init, apply = serial(Dense(8), Relu, Dense(2), LogSoftmax)
>>> shape, params = init(random.key(0), (-1, 5))
>>> shape, apply(params, wnp.ones((3, 5))).shape
((-1, 2), (3, 2))
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import weft.numpy as wnp
from weft import lax, nn, random
from weft._engine.util.source import api_boundary
from weft.nn.initializers import glorot_normal, normal, ones, zeros

__all__ = [
    "AvgPool", "BatchNorm", "Conv", "Conv1DTranspose", "ConvTranspose", "Dense", "Dropout", "Elu", "Exp", "FanInConcat", "FanInSum",
    "FanOut", "Flatten", "Gelu", "GeneralConv", "GeneralConvTranspose", "Identity", "LeakyRelu", "LogSoftmax", "MaxPool", "Relu", "Selu",
    "Sigmoid", "Softmax", "Softplus", "SumPool", "Tanh", "elementwise", "glorot", "logsoftmax", "parallel", "randn", "serial",
    "shape_dependent",
]  # fmt: skip

Layer = tuple[Callable[..., Any], Callable[..., Any]]

glorot, randn, logsoftmax = glorot_normal, normal, nn.log_softmax
_WEIGHTS, _BIAS, _SMALL_BIAS = glorot_normal(), normal(), normal(1e-6)  # the default initializers


def Dense(out_dim: int, W_init: Any = _WEIGHTS, b_init: Any = _BIAS) -> Layer:
    """`inputs @ W + b`, over the last dim."""

    def init_fun(rng: Any, input_shape: Sequence[int]) -> Any:
        key_w, key_b = random.split(rng)
        return (*input_shape[:-1], out_dim), (
            W_init(key_w, (input_shape[-1], out_dim)),
            b_init(key_b, (out_dim,)),
        )

    @api_boundary
    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return wnp.dot(inputs, W) + b

    return init_fun, apply_fun


def GeneralConv(
    dimension_numbers: tuple[str, str, str], out_chan: int, filter_shape: Sequence[int], strides: Sequence[int] | None = None,
    padding: Any = "VALID", W_init: Any = None, b_init: Any = _SMALL_BIAS,
) -> Layer:  # fmt: skip
    """A convolution with a bias; `dimension_numbers` as in `lax.conv_general_dilated`, strings of inputs, kernel and outputs."""
    strides = strides or (1,) * len(filter_shape)
    return _convolution(
        dimension_numbers,
        out_chan,
        filter_shape,
        strides,
        padding,
        W_init,
        b_init,
        transposed=False,
    )


def GeneralConvTranspose(
    dimension_numbers: tuple[str, str, str], out_chan: int, filter_shape: Sequence[int], strides: Sequence[int] | None = None,
    padding: Any = "VALID", W_init: Any = None, b_init: Any = _SMALL_BIAS,
) -> Layer:  # fmt: skip
    """A transposed convolution (`lax.conv_transpose`) with a bias: strides make the output larger."""
    strides = strides or (1,) * len(filter_shape)
    return _convolution(
        dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init, transposed=True
    )


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def _convolution(
    numbers: tuple[str, str, str], out_chan: int, filter_shape: Sequence[int], strides: Sequence[int], padding: Any, W_init: Any,
    b_init: Any, transposed: bool,
) -> Layer:  # fmt: skip
    """The layer of both kinds of convolution."""
    lhs, rhs, out = numbers
    W_init = W_init or glorot_normal(rhs.index("I"), rhs.index("O"))
    spatial = [c for c in rhs if c not in "IO"]
    extent = _transposed_extent if transposed else _window_count

    def init_fun(rng: Any, input_shape: Sequence[int]) -> Any:
        sizes = dict(zip(lhs, input_shape, strict=True))
        window = dict(zip(spatial, filter_shape, strict=True))
        kernel_sizes = {**window, "I": sizes["C"], "O": out_chan}
        result = {"N": sizes["N"], "C": out_chan}
        for i, c in enumerate(spatial):
            result[c] = extent(
                sizes[c], window[c], strides[i], padding if isinstance(padding, str) else padding[i]
            )
        key_w, key_b = random.split(rng)
        bias_shape = [out_chan if c == "C" else 1 for c in out]
        return tuple(result[c] for c in out), (
            W_init(key_w, [kernel_sizes[c] for c in rhs]),
            b_init(key_b, bias_shape),
        )

    @api_boundary
    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        convolve = lax.conv_transpose if transposed else lax.conv_general_dilated
        return convolve(inputs, W, strides, padding, dimension_numbers=numbers) + b

    return init_fun, apply_fun


def _window_count(size: int, window: int, stride: int, padding: Any) -> int:
    """Return the number of windows that fit in a dim, padded by a rule or by a pair of numbers."""
    if padding == "SAME" or padding == "SAME_LOWER":
        return -(-size // stride)
    low, high = (0, 0) if padding == "VALID" else padding
    return max((size + low + high - window) // stride + 1, 0)


def _transposed_extent(size: int, window: int, stride: int, padding: Any) -> int:
    """The size of a dim after a transposed convolution."""
    if padding == "SAME":
        return size * stride
    if padding == "VALID":
        return size * stride + max(window - stride, 0)
    low, high = padding
    return (size - 1) * stride + 1 + low + high - window + 1


def BatchNorm(
    axis: int | Sequence[int] = (0, 1, 2), epsilon: float = 1e-5, center: bool = True, scale: bool = True, beta_init: Any = zeros,
    gamma_init: Any = ones,
) -> Layer:  # fmt: skip
    """Means of zero and variances of one over `axis`, then `gamma · x + beta` where `scale` and `center` are set."""
    axis = (axis,) if isinstance(axis, int) else tuple(axis)

    def init_fun(rng: Any, input_shape: Sequence[int]) -> Any:
        shape = tuple(size for d, size in enumerate(input_shape) if d not in axis)
        key_beta, key_gamma = random.split(rng)
        return input_shape, (
            beta_init(key_beta, shape) if center else (),
            gamma_init(key_gamma, shape) if scale else (),
        )

    @api_boundary
    def apply_fun(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        dims = [d for d in range(wnp.ndim(x)) if d in axis]
        result = nn.standardize(x, axis, epsilon=epsilon)
        if scale:
            result = wnp.expand_dims(gamma, dims) * result
        return result + wnp.expand_dims(beta, dims) if center else result

    return init_fun, apply_fun


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """A layer without parameters that applies `fun(inputs, **fun_kwargs)`, which keeps shapes."""

    @api_boundary
    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return fun(inputs, **fun_kwargs)

    return (lambda rng, input_shape: (input_shape, ())), apply_fun


Tanh = elementwise(wnp.tanh)
Relu = elementwise(nn.relu)
Exp = elementwise(wnp.exp)
LogSoftmax = elementwise(nn.log_softmax, axis=-1)
Softmax = elementwise(nn.softmax, axis=-1)
Softplus = elementwise(nn.softplus)
Sigmoid = elementwise(nn.sigmoid)
Elu = elementwise(nn.elu)
LeakyRelu = elementwise(nn.leaky_relu)
Selu = elementwise(nn.selu)
Gelu = elementwise(nn.gelu)


def _make_pooling_layer(
    combine: Any,
    start: float,
    mean: bool,
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: Any,
    spec: str | None,
) -> Layer:
    """A pooling layer: windows combined from `start`, and divided by their sizes for a mean."""
    layout = spec or "N" + "X" * len(window_shape) + "C"
    spatial_dims = [d for d, c in enumerate(layout) if c not in "NC"]
    windows, steps = [1] * len(layout), [1] * len(layout)
    for position, d in enumerate(spatial_dims):
        windows[d] = window_shape[position]
        steps[d] = strides[position] if strides else 1
    pads: Any = padding if isinstance(padding, str) else [(0, 0)] * len(layout)
    if not isinstance(padding, str):
        for position, d in enumerate(spatial_dims):
            pads[d] = tuple(padding[position])

    def init_fun(rng: Any, input_shape: Sequence[int]) -> Any:
        shape = [
            size
            if c in "NC"
            else _window_count(
                size, windows[d], steps[d], pads if isinstance(pads, str) else pads[d]
            )
            for d, (c, size) in enumerate(zip(layout, input_shape, strict=True))
        ]
        return tuple(shape), ()

    @api_boundary
    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        out = lax.reduce_window(inputs, start, combine, windows, steps, pads)
        if not mean:
            return out
        # windows at the border of a padded input hold fewer elements
        inside = wnp.ones(
            [size if c not in "NC" else 1 for c, size in zip(layout, inputs.shape, strict=True)],
            inputs.dtype,
        )
        return out / lax.reduce_window(inside, 0.0, lax.add, windows, steps, pads)

    return init_fun, apply_fun


def MaxPool(
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    spec: str | None = None,
) -> Layer:
    """The largest element of each window; `spec` names the dims, N and C are not windowed ("NHWC" where there are two others)."""
    return _make_pooling_layer(lax.max, -math.inf, False, window_shape, strides, padding, spec)


def SumPool(
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    spec: str | None = None,
) -> Layer:
    """The sum of each window; `spec` names the dims, N and C are not windowed ("NHWC" where there are two others)."""
    return _make_pooling_layer(lax.add, 0.0, False, window_shape, strides, padding, spec)


def AvgPool(
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    spec: str | None = None,
) -> Layer:
    """The mean of the elements of each window that are not padding; `spec` as in `MaxPool`."""
    return _make_pooling_layer(lax.add, 0.0, True, window_shape, strides, padding, spec)


def _flatten(shape: Sequence[int]) -> tuple[int, int]:
    return shape[0], math.prod(shape[1:])


#: all dims but the first become one
Flatten: Layer = (
    lambda rng, input_shape: (_flatten(input_shape), ()),
    lambda params, inputs, **kwargs: wnp.reshape(inputs, _flatten(inputs.shape)),
)
#: the inputs as they are
Identity: Layer = (
    lambda rng, input_shape: (input_shape, ()),
    lambda params, inputs, **kwargs: inputs,
)


def FanOut(num: int) -> Layer:
    """`num` times the same inputs, as a list, for `parallel`."""
    return (lambda rng, input_shape: ([input_shape] * num, ())), (
        lambda params, inputs, **kwargs: [inputs] * num
    )


#: the sum of a list of inputs
FanInSum: Layer = (
    lambda rng, input_shape: (input_shape[0], ()),
    lambda params, inputs, **kwargs: sum(inputs),
)


def FanInConcat(axis: int = -1) -> Layer:
    """A list of inputs, concatenated along `axis`."""

    def init_fun(rng: Any, input_shape: Sequence[Sequence[int]]) -> Any:
        shape = list(input_shape[0])
        shape[axis] = sum(one[axis] for one in input_shape)
        return tuple(shape), ()

    return init_fun, (lambda params, inputs, **kwargs: wnp.concatenate(inputs, axis))


def Dropout(rate: Any, mode: str = "train") -> Layer:
    """Keep each input with probability `rate`, divided by it, and set the others to zero; identity unless `mode` is "train".

    Needs `rng=` where it is applied, else a ValueError.
    """

    def apply_fun(params: Any, inputs: Any, rng: Any = None, **kwargs: Any) -> Any:
        if rng is None:
            raise ValueError(
                "Dropout needs a random key where it is applied: apply_fun(params, inputs, rng=key)"
            )
        if mode != "train":
            return inputs
        return wnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return (lambda rng, input_shape: (input_shape, ())), api_boundary(apply_fun)


def _keys(rng: Any, count: int) -> Any:
    return [None] * count if rng is None else random.split(rng, count)


def serial(*layers: Layer) -> Layer:
    """One layer after the other; the parameters are the list of all layers' parameters."""

    def init_fun(rng: Any, input_shape: Any) -> Any:
        params = []
        for init, _ in layers:
            rng, key = random.split(rng)
            input_shape, drawn = init(key, input_shape)
            params.append(drawn)
        return input_shape, params

    def apply_fun(params: Any, inputs: Any, rng: Any = None, **kwargs: Any) -> Any:
        for (_, apply), drawn, key in zip(layers, params, _keys(rng, len(layers)), strict=True):
            inputs = apply(drawn, inputs, rng=key, **kwargs)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """Each layer on its own element of a list of inputs.

    >>> init, apply = serial(FanOut(2), parallel(Identity, Relu), FanInSum)
    >>> apply([(), [(), ()], ()], wnp.array([-1.0, 2.0]))
    Array([-1.,  4.], dtype=float32)
    """

    def init_fun(rng: Any, input_shape: Any) -> Any:
        keys = random.split(rng, len(layers))
        drawn = [
            init(key, shape)
            for (init, _), key, shape in zip(layers, keys, input_shape, strict=True)
        ]
        return [shape for shape, _ in drawn], [params for _, params in drawn]

    def apply_fun(params: Any, inputs: Any, rng: Any = None, **kwargs: Any) -> Any:
        applied = zip(layers, params, inputs, _keys(rng, len(layers)), strict=True)
        return [apply(drawn, one, rng=key, **kwargs) for (_, apply), drawn, one, key in applied]

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """The layer `make_layer(input_shape)`, made when the shape of the inputs is known."""
    return (
        lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape),
        lambda params, inputs, **kwargs: make_layer(inputs.shape)[1](params, inputs, **kwargs),
    )
