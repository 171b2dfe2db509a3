"""Convolution: conv_general_dilated and the functions built on it.

In:   lhs (images: batch, features, spatial dims) and rhs (kernels: output features, input features,
      spatial dims); `dimension_numbers` gives other orders of dims.
Laws: bilinear; both cotangents are convolutions too, with strides and dilations exchanged. Kernels
      are not flipped. `conv_products` lowers convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import ConvolutionOp
from weft._engine.core.trace import is_undef, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.symbolic import as_int, max_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.contraction import (
    PrecisionLike,
    algorithm_by_casts,
    canonical_precision,
    convert,
    is_whole,
    multiply_by_algorithm,
    round_values,
    sums_of_products,
)
from weft._engine.ops.conv_products import ConvDimensionNumbers, ConvParams, dilate, expand_conv
from weft._engine.ops.families import ANY, check_dtype, joined_vma, move_dim, shape_error
from weft._engine.ops.layout import reshape, rev, transpose
from weft._engine.ops.lowering_specs import ExpandSpec
from weft._engine.ops.placement import OUT_SHARDING, with_out_sharding
from weft._engine.ops.rule_helpers import inverse, multilinear
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.promotion import sum_dtype

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        BatchDims,
        NumPyArray,
        Value,
        Values,
    )
    from weft._engine.util.errors import ShapeError

conv_general_dilated_p = ConvolutionOp("conv_general_dilated", out_sharding=OUT_SHARDING)


# --- the functions


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Return `dimension_numbers` as positions of dims.

    They may be None, three strings such as ('NHWC', 'HWIO', 'NHWC'), or positions already.

    >>> conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 16), ("NHWC", "HWIO", "NHWC")).lhs_spec
    (0, 3, 1, 2)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if len(lhs_shape) != len(rhs_shape):
        raise shape_error(
            "conv_general_dilated",
            "lhs and rhs must have the same number of dims.",
            [("lhs", tuple(lhs_shape)), ("rhs", tuple(rhs_shape))],
        )
    if dimension_numbers is None:
        iota = tuple(range(len(lhs_shape)))
        return ConvDimensionNumbers(iota, iota, iota)
    return _numbers_of_names(tuple(dimension_numbers), len(lhs_shape))


def _numbers_of_names(specs: tuple[Any, ...], ndim: int) -> ConvDimensionNumbers:
    """Return the positions of dims that three strings name."""
    if len(specs) != 3 or not all(isinstance(s, str) and len(s) == ndim for s in specs):
        raise ValueError(
            "conv_general_dilated: dimension_numbers must be None, ConvDimensionNumbers, or three strings with "
            f"letter per dim, got {specs!r}."
        )
    lhs, rhs, out = specs
    for text, pair in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        if any(text.count(letter) != 1 for letter in pair) or len(set(text)) != len(text):
            raise ValueError(
                f"conv_general_dilated: {text!r} must name {pair[0]} and {pair[1]} and each spatial dim once."
            )
    spatial = [letter for letter in rhs if letter not in "OI"]
    if any(set(text) - set(pair) != set(spatial) for text, pair in ((lhs, "NC"), (out, "NC"))):
        raise ValueError(f"conv_general_dilated: {specs} must name the same spatial dims.")
    place: Callable[[str, str], tuple[int, ...]] = lambda text, pair: tuple(
        text.index(letter) for letter in (*pair, *spatial)
    )
    return ConvDimensionNumbers(place(lhs, "NC"), place(rhs, "OI"), place(out, "NC"))


def padtype_to_pads(
    in_shape: Sequence[int],
    window_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str,
) -> list[tuple[int, int]]:
    """Return low and high padding per spatial dim for 'SAME', 'SAME_LOWER' or 'VALID'.

    >>> padtype_to_pads((5,), (3,), (2,), "SAME")
    [(1, 1)]
    """
    kind = padding.upper()
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    if kind not in ("SAME", "SAME_LOWER"):
        raise ValueError(
            f"padding {padding!r} is not understood. Use 'SAME', 'SAME_LOWER', 'VALID' or pairs of numbers."
        )
    pads: list[tuple[int, int]] = []
    for n, k, s in zip(in_shape, window_shape, window_strides):
        total = as_int(max_dim((-(-n // s) - 1) * s + k - n, 0))
        less, more = total // 2, total - total // 2
        pads.append((less, more) if kind == "SAME" else (more, less))
    return pads


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Slide the kernels `rhs` over `lhs`: products summed over input features and over the kernel's window.

    By default `lhs` is (batch, features, spatial dims...) and `rhs` (output features, input
    features, spatial dims...); `dimension_numbers` names other layouts, such as ("NHWC", "HWIO",
    "NHWC"). `padding` is "SAME", "VALID" or a pair per spatial dim. `lhs_dilation` spreads lhs (a
    transposed convolution), `rhs_dilation` the kernel (an atrous one). `feature_group_count`
    convolves groups of features separately, `batch_group_count` groups of the batch. The dtype is
    the operands' dtype or `preferred_element_type`. Raise ShapeError for shapes that do not fit,
    TypeError for different dtypes.

    >>> image, kernel = np.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32)
    >>> np.asarray(conv_general_dilated(image, kernel, (1,), "VALID")).tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    if out_sharding is not None:
        plain = lambda: conv_general_dilated(
            lhs,
            rhs,
            window_strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            dimension_numbers,
            feature_group_count,
            batch_group_count,
            precision,
            preferred_element_type,
        )
        return with_out_sharding(out_sharding, "conv_general_dilated", plain, lhs, rhs)
    lhs_shape, rhs_shape = typeof(lhs).shape, typeof(rhs).shape
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    numbers = ConvDimensionNumbers(*(tuple(map(int, spec)) for spec in numbers))
    ones = (1,) * (len(lhs_shape) - 2)
    strides = tuple(map(int, window_strides))
    lhs_dilation = tuple(map(int, ones if lhs_dilation is None else lhs_dilation))
    rhs_dilation = tuple(map(int, ones if rhs_dilation is None else rhs_dilation))
    if isinstance(padding, str):
        sizes = [rhs_shape[d] for d in numbers.rhs_spec[2:]]
        window = list(map(dilate, sizes, rhs_dilation))
        image = list(map(dilate, [lhs_shape[d] for d in numbers.lhs_spec[2:]], lhs_dilation))
        padding = padtype_to_pads(image, window, strides, padding)
    elif not all(np.ndim(pair) == 1 and len(pair) == 2 for pair in padding):
        raise ValueError(
            f"conv_general_dilated: the padding argument must be 'SAME', 'SAME_LOWER', 'VALID' or a pair of numbers for each "
            f"spatial dim, got {padding!r}."
        )
    params = ConvParams(
        numbers,
        strides,
        tuple((as_int(lo), as_int(hi)) for lo, hi in padding),
        lhs_dilation,
        rhs_dilation,
        int(feature_group_count),
        int(batch_group_count),
        canonical_precision(precision),
        None,
    )
    algorithm = algorithm_by_casts(precision, lhs, rhs)
    if algorithm is not None:
        multiply: Callable[[Value, Value, Any], Value] = lambda x, y, dtype: _convolve(
            x, y, params, dtype
        )
        return multiply_by_algorithm(lhs, rhs, algorithm, preferred_element_type, multiply)
    return _convolve(lhs, rhs, params, preferred_element_type)


def _convolve(lhs: Value, rhs: Value, params: ConvParams, preferred_element_type: Any):
    """Return the convolution in a dtype; None stands for the operands' dtype."""
    if preferred_element_type is None:
        return _bind(lhs, rhs, params)
    preferred = dtypes.check_dtype(preferred_element_type, "conv_general_dilated")
    left, right = typeof(lhs).dtype, typeof(rhs).dtype
    is_sum = is_whole(left, right, preferred)
    sums = preferred if is_sum else sum_dtype(left, right, preferred)
    out = _bind(lhs, rhs, params._replace(preferred_element_type=sums))
    return out if sums == preferred else convert(out, preferred)


def _bind(lhs: Value, rhs: Value, p: ConvParams):
    return conv_general_dilated_p.bind(lhs, rhs, **p._asdict())


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """Return the convolution of lhs with rhs.

    Shapes are [batch, feature, spatial...] and [out feature, in feature, spatial...].
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """Return `conv` with explicit padding and dilations."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Array:
    """Return the convolution that enlarges `lhs` by `strides`.

    With `transpose_kernel` it is a gradient of `conv`.

    Pairs of numbers pad the enlarged `lhs`; with `use_consistent_padding` they are the padding of
    the convolution whose gradient this is.
    """
    ndim = typeof(lhs).ndim
    if dimension_numbers is None:
        if ndim > 5:
            raise ValueError(
                "conv_transpose: give dimension_numbers for more than three spatial dims."
            )
        letters = "DHW"[5 - ndim :]
        dimension_numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    numbers = conv_dimension_numbers(typeof(lhs).shape, typeof(rhs).shape, dimension_numbers)
    rhs_dilation = (1,) * (ndim - 2) if rhs_dilation is None else tuple(rhs_dilation)
    window = [
        dilate(typeof(rhs).shape[d], step) for d, step in zip(numbers.rhs_spec[2:], rhs_dilation)
    ]
    if isinstance(padding, str):
        padding = [_transposed_padding(k, s, padding.upper()) for k, s in zip(window, strides)]
    elif use_consistent_padding:
        padding = [
            (k - 1 - low, max_dim(k, s) - 1 - high)
            for k, s, (low, high) in zip(window, strides, padding)
        ]
    if transpose_kernel:
        rhs = rev(rhs, tuple(numbers.rhs_spec[2:]))
        numbers = numbers._replace(rhs_spec=_swap(numbers.rhs_spec))
    return conv_general_dilated(
        lhs,
        rhs,
        (1,) * (ndim - 2),
        padding,
        tuple(strides),
        rhs_dilation,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def _swap(spec: Sequence[int]) -> tuple[int, ...]:
    return spec[1], spec[0], *spec[2:]


def _transposed_padding(k: int, s: int, kind: str) -> tuple[int, int]:
    if kind == "SAME":
        total = k + s - 2
        low = k - 1 if s > k - 1 else -(-total // 2)
    elif kind == "VALID":
        total = k + s - 2 + max_dim(k - s, 0)
        low = k - 1
    else:
        raise ValueError(
            f"conv_transpose: padding {kind!r} is not understood. Use 'SAME', 'VALID' or pairs of numbers."
        )
    return low, total - low


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """Return the windows of a kernel of `filter_shape`, flattened into the feature dim.

    The input feature is major.
    """
    filter_shape = tuple(int(k) for k in filter_shape)
    aval = typeof(lhs)
    numbers = conv_dimension_numbers(aval.shape, (1, 1, *filter_shape), dimension_numbers)
    features = aval.shape[numbers.lhs_spec[1]]
    size = math.prod(filter_shape)
    # one kernel per element of the window, which selects that element
    one = np.eye(size, dtype=aval.dtype).reshape(size, 1, *filter_shape)
    kernel = np.tile(one, (features, 1, *(1,) * len(filter_shape))).transpose(
        inverse(numbers.rhs_spec)
    )
    return conv_general_dilated(
        lhs,
        kernel,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        numbers,
        features,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


# --- sizes


def _pick(shape: Sequence[int], spec: Sequence[int]) -> list[int]:
    return [shape[d] for d in spec]


@conv_general_dilated_p.def_type
def _conv_type(lhs: ShapedArray, rhs: ShapedArray, **params: Any):
    for i, aval in enumerate((lhs, rhs)):
        check_dtype("conv_general_dilated", aval, ANY, i)
    p = ConvParams(**params)
    _check(lhs, rhs, p)
    preferred = p.preferred_element_type
    weak = lhs.weak_type and rhs.weak_type and preferred is None
    return ShapedArray(
        _out_shape(lhs.shape, rhs.shape, p),
        preferred or lhs.dtype,
        weak,
        None,
        joined_vma((lhs, rhs)),
    )


def _out_shape(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], p: ConvParams
) -> tuple[int, ...]:
    lhs, rhs, out = p.dimension_numbers
    sizes = (
        lhs_shape[lhs[0]] // p.batch_group_count,
        rhs_shape[rhs[0]],
        *p.out_sizes(lhs_shape, rhs_shape),
    )
    return tuple(sizes[i] for i in inverse(out))


def _check(lhs: ShapedArray, rhs: ShapedArray, p: ConvParams) -> None:
    numbers = p.dimension_numbers
    table = [
        ("lhs", lhs.str_short(), tuple(numbers.lhs_spec)),
        ("rhs", rhs.str_short(), tuple(numbers.rhs_spec)),
    ]

    def fail(what: str, rule: str = "") -> ShapeError:
        return shape_error("conv_general_dilated", what, table, rule)

    spatial = lhs.ndim - 2
    if spatial < 0 or rhs.ndim != lhs.ndim:
        raise fail("lhs and rhs must have the same number of dims, at least 2.")
    if any(sorted(spec) != list(range(lhs.ndim)) for spec in numbers):
        raise fail(f"dimension_numbers {tuple(numbers)} must name every dim once.")
    if {spatial} != set(map(len, (p.window_strides, p.padding, p.lhs_dilation, p.rhs_dilation))):
        raise fail(
            f"strides, padding and dilations need one entry for each of the {spatial} spatial dims."
        )
    counts = (p.feature_group_count, p.batch_group_count)
    if min(*p.window_strides, *p.lhs_dilation, *p.rhs_dilation, *counts) < 1:
        raise fail("strides, dilations and group counts must be at least 1.")
    image = [
        dilate(size, d) for size, d in zip(_pick(lhs.shape, numbers.lhs_spec)[2:], p.lhs_dilation)
    ]
    if any(size + lo + hi < 0 for size, (lo, hi) in zip(image, p.padding)):
        raise fail(
            f"negative padding {p.padding} is larger than the image, which has {tuple(image)}."
        )
    _check_groups(lhs, rhs, p, fail)
    _check_dtypes(lhs, rhs, p, fail)


def _check_groups(
    lhs: ShapedArray, rhs: ShapedArray, p: ConvParams, fail: Callable[..., Any]
) -> None:
    numbers = p.dimension_numbers
    n, features, *_ = _pick(lhs.shape, numbers.lhs_spec)
    out_features, in_features, *_ = _pick(rhs.shape, numbers.rhs_spec)
    if features != in_features * p.feature_group_count:
        raise fail(
            f"lhs has {quantity(features, 'feature')}; rhs takes {in_features} in each of {quantity(p.feature_group_count, 'group')}.",
            "The features of lhs must be the input features of rhs times feature_group_count.",
        )
    if p.feature_group_count > 1 and p.batch_group_count > 1:
        raise fail("feature_group_count and batch_group_count cannot both be greater than 1.")
    if out_features % (p.feature_group_count * p.batch_group_count) or n % p.batch_group_count:
        raise fail(
            f"{out_features} output features and a batch of {n} do not divide into {p.feature_group_count} feature "
            f"groups and {p.batch_group_count} batch groups."
        )


def _check_dtypes(
    lhs: ShapedArray, rhs: ShapedArray, p: ConvParams, fail: Callable[..., Any]
) -> None:
    if lhs.dtype != rhs.dtype and p.preferred_element_type is None:
        raise TypeError(
            f"conv_general_dilated: requires arguments to have the same dtypes, got {lhs.dtype.name}, {rhs.dtype.name}.\n"
            "  Cast one with .astype, or give preferred_element_type."
        )


# --- semantics


@conv_general_dilated_p.def_reference
def _conv_reference(lhs: NumPyArray, rhs: NumPyArray, **params: Any):
    p = ConvParams(**params)
    numbers, out_dtype = p.dimension_numbers, p.preferred_element_type or lhs.dtype
    accumulate = sum_dtype(lhs.dtype, rhs.dtype, np.dtype(out_dtype))
    out_shape = _out_shape(lhs.shape, rhs.shape, p)
    batch, features, *sizes = _pick(out_shape, numbers.out_spec)
    x = lhs.transpose(numbers.lhs_spec).astype(accumulate)
    w = rhs.transpose(numbers.rhs_spec).astype(accumulate)
    groups, batch_groups = p.feature_group_count, p.batch_group_count
    total = np.zeros((batch, features, *sizes), accumulate)
    per_feature, per_batch = features // groups, features // batch_groups
    image = _padded_reference(x, p.padding, p.lhs_dilation)
    for tap in np.ndindex(w.shape[2:]):
        steps = zip(tap, p.rhs_dilation, sizes, p.window_strides)
        window = image[
            (
                slice(None),
                slice(None),
                *(slice(t * d, t * d + (n - 1) * s + 1 if n else t * d, s) for t, d, n, s in steps),
            )
        ]
        for g in range(groups):
            mine = window[:, g * w.shape[1] : (g + 1) * w.shape[1]]
            for b in range(batch_groups):
                part = mine[b * batch : (b + 1) * batch]
                size = per_feature if groups > 1 else per_batch
                start = (g if groups > 1 else b) * size
                kernel = w[(slice(start, start + size), slice(None), *tap)]
                total[:, start : start + size] += np.moveaxis(
                    np.tensordot(part, kernel, ((1,), (1,))), -1, 1
                )
    return np.ascontiguousarray(round_values(total.transpose(inverse(numbers.out_spec)), out_dtype))


def _padded_reference(x: NumPyArray, padding: Sequence[tuple[int, int]], dilation: Sequence[int]):
    sizes = [dilate(n, d) for n, d in zip(x.shape[2:], dilation)]
    out = np.zeros(
        (*x.shape[:2], *(n + max(lo, 0) + max(hi, 0) for n, (lo, hi) in zip(sizes, padding))),
        x.dtype,
    )
    all_elements = slice(None)
    out[
        (
            all_elements,
            all_elements,
            *(
                slice(max(lo, 0), max(lo, 0) + n, d)
                for n, (lo, _), d in zip(sizes, padding, dilation)
            ),
        )
    ] = x
    return out[
        (
            all_elements,
            all_elements,
            *(slice(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi) in zip(out.shape[2:], padding)),
        )
    ]


conv_general_dilated_p.define(lower=ExpandSpec(expand_conv))


# --- derivatives


multilinear(conv_general_dilated_p, (0, 1))


@conv_general_dilated_p.def_transpose
def _conv_transpose(ct: Value, lhs: Value, rhs: Value, **params: Any):
    """Return the cotangents of the operands.

    They have the types of their operands even with `preferred_element_type`.
    """
    p = ConvParams(**params)._replace(preferred_element_type=None)
    lhs_shape, rhs_shape = [x.aval.shape if is_undef(x) else typeof(x).shape for x in (lhs, rhs)]
    n, k, o = [
        _pick(shape, spec)[2:]
        for shape, spec in zip((lhs_shape, rhs_shape, typeof(ct).shape), p.dimension_numbers)
    ]
    inner = [dilate(*x) for x in zip(n, p.lhs_dilation)]
    window, outer = (
        [dilate(*x) for x in zip(k, p.rhs_dilation)],
        [dilate(*x) for x in zip(o, p.window_strides)],
    )
    if is_undef(lhs):
        before = [w - 1 - lo for w, (lo, _) in zip(window, p.padding)]
        after = [i + w - 1 - u - b for i, w, u, b in zip(inner, window, outer, before)]
        return [_lhs_cotangent(ct, lhs.aval, rhs, p, tuple(zip(before, after))), None]
    pads = [(lo, u + w - 1 - i - lo) for i, w, u, (lo, _) in zip(inner, window, outer, p.padding)]
    return [None, _rhs_cotangent(ct, lhs, rhs.aval, p, tuple(pads))]


def _mixed_conv(x: Value, y: Value, dtype: dtypes.DType, p: ConvParams):
    """Return a convolution of operands of possibly different dtypes, with a result of `dtype`."""
    a, b = typeof(x).dtype, typeof(y).dtype
    acc_dtype = a if a == b else sum_dtype(a, b, dtype)
    return convert(_bind(convert(x, acc_dtype), convert(y, acc_dtype), p), dtype)


def _group(x: Value, dim: int, groups: int):
    """Return `x` with the major part of dim `dim`, the group index, moved to the front."""
    shape = typeof(x).shape
    return move_dim(
        reshape(x, (*shape[:dim], groups, shape[dim] // groups, *shape[dim + 1 :])), dim, 0
    )


def _lhs_cotangent(ct: Value, aval: ShapedArray, rhs: Value, p: ConvParams, pads: tuple[Any, ...]):
    """Convolve ct, spread by the strides, with the flipped kernel whose features are exchanged."""
    numbers = p.dimension_numbers
    groups = max(p.feature_group_count, p.batch_group_count)
    w = rev(transpose(rhs, numbers.rhs_spec), tuple(range(2, aval.ndim)))  # [out, in, spatial...]
    w = move_dim(_group(w, 0, groups), 2, 1)  # [group, in, out of the group, spatial...]
    shape = typeof(w).shape
    w = reshape(w, (shape[0] * shape[1], *shape[2:]))
    iota = tuple(range(aval.ndim))
    spec = numbers.lhs_spec if p.batch_group_count == 1 else iota
    out = _mixed_conv(
        ct,
        w,
        aval.dtype,
        p._replace(
            window_strides=p.lhs_dilation,
            padding=pads,
            lhs_dilation=p.window_strides,
            feature_group_count=groups,
            batch_group_count=1,
            dimension_numbers=ConvDimensionNumbers(numbers.out_spec, iota, spec),
        ),
    )
    if p.batch_group_count > 1:  # [batch, group and feature] -> [group and batch, feature]
        out = _group(out, 1, groups)
        shape = typeof(out).shape
        out = transpose(reshape(out, (shape[0] * shape[1], *shape[2:])), inverse(numbers.lhs_spec))
    return out


def _rhs_cotangent(ct: Value, lhs: Value, aval: ShapedArray, p: ConvParams, pads: tuple[Any, ...]):
    """Convolve the image with ct as kernel, summed over the batch.

    Strides and kernel dilation are exchanged.
    """
    lhs_spec, rhs_spec, out_spec = map(_swap, p.dimension_numbers)
    return _mixed_conv(
        lhs,
        ct,
        aval.dtype,
        p._replace(
            window_strides=p.rhs_dilation,
            padding=pads,
            rhs_dilation=p.window_strides,
            feature_group_count=p.batch_group_count,
            batch_group_count=p.feature_group_count,
            dimension_numbers=ConvDimensionNumbers(lhs_spec, out_spec, rhs_spec),
        ),
    )


# --- batching


def _merge(x: Value, source: int, target: int, groups: int = 1):
    """Merge dim `source` of `x` into dim `target` (counted without it).

    It is placed inside the major part that numbers `groups`.
    """
    x = move_dim(x, source, 0)
    size, *shape = typeof(x).shape
    split = reshape(
        x, (size, *shape[:target], groups, shape[target] // groups, *shape[target + 1 :])
    )
    moved = move_dim(split, 0, target + 1)
    return reshape(moved, (*shape[:target], size * shape[target], *shape[target + 1 :]))


def _unmerge(x: Value, target: int, size: int, groups: int = 1):
    """Undo `_merge`: the batch dim of `size` becomes the first dim."""
    shape = typeof(x).shape
    inner = shape[target] // (groups * size)
    split = reshape(x, (*shape[:target], groups, size, inner, *shape[target + 1 :]))
    moved = move_dim(split, target + 1, 0)
    return reshape(moved, (size, *shape[:target], groups * inner, *shape[target + 1 :]))


@conv_general_dilated_p.def_batch
def _conv_batch(
    axis: BatchAxis,
    args: Values,
    dims: BatchDims,
    *,
    dimension_numbers: ConvDimensionNumbers,
    feature_group_count: int,
    batch_group_count: int,
    **params: Any,
):
    (lhs, rhs), (left, right) = args, dims
    numbers, size = dimension_numbers, axis.size

    def bind(
        lhs: Value,
        rhs: Value,
        features: int = feature_group_count,
        batches: int = batch_group_count,
    ) -> Value:
        return conv_general_dilated_p.bind(
            lhs,
            rhs,
            dimension_numbers=numbers,
            feature_group_count=features,
            batch_group_count=batches,
            **params,
        )

    groups = max(feature_group_count, batch_group_count)
    if right is None:  # the batch dim becomes a part of the batch
        assert left is not None
        out = bind(_merge(lhs, left, numbers.lhs_spec[0], batch_group_count), rhs)
        return _unmerge(out, numbers.out_spec[0], size), 0
    if left is None:  # the batch dim becomes a part of the output features
        out = bind(lhs, _merge(rhs, right, numbers.rhs_spec[0], groups))
        return _unmerge(out, numbers.out_spec[1], size, groups), 0
    rhs = _merge(rhs, right, numbers.rhs_spec[0])  # the batch dim numbers groups of groups
    if batch_group_count > 1:
        out = bind(_merge(lhs, left, numbers.lhs_spec[0]), rhs, batches=size * batch_group_count)
    else:
        out = bind(_merge(lhs, left, numbers.lhs_spec[1]), rhs, features=size * feature_group_count)
    return _unmerge(out, numbers.out_spec[1], size), 0


# --- splitting


@conv_general_dilated_p.def_factors
def _conv_factors(in_avals: Avals, out_avals: Avals, **params: Any):
    lhs, rhs = in_avals
    p = ConvParams(**params)
    numbers = p.dimension_numbers
    b = RuleBuilder()
    n, _, *image = _pick(lhs.shape, numbers.lhs_spec)
    out_features, in_features, *kernel = _pick(rhs.shape, numbers.rhs_spec)
    groups = max(p.feature_group_count, p.batch_group_count)
    group = (b.new(groups),) if groups > 1 else ()
    batch, inner, outer = (
        b.new(n // p.batch_group_count),
        b.new(in_features),
        b.new(out_features // groups),
    )
    special: dict[int, str] = {}
    together: list[tuple[int, int]] = []
    lhs_dims = [
        (*group, batch) if p.batch_group_count > 1 else (batch,),
        (*group, inner) if p.feature_group_count > 1 else (inner,),
    ]
    rhs_dims: list[Any] = [(*group, outer), (inner,)]
    out_dims: list[Any] = [(batch,), (*group, outer)]
    sizes = _pick(out_avals[0].shape, numbers.out_spec)[2:]
    for a, k, o, s, pads, ld, rd in zip(
        image, kernel, sizes, p.window_strides, p.padding, p.lhs_dilation, p.rhs_dilation
    ):
        f, g = b.new(a), b.new(k)
        pointwise = k == s == ld == rd == 1 and tuple(pads) == (0, 0)
        h = f if pointwise else b.new(o)
        special[g] = "replicate"
        if not pointwise:
            special[f] = special[h] = "halo"
            together += [(h, f), (g, f)]
        lhs_dims.append((f,))
        rhs_dims.append((g,))
        out_dims.append((h,))
    place: Callable[[Sequence[Any], Sequence[int]], list[Any]] = lambda dims, spec: [
        dims[i] for i in inverse(spec)
    ]
    sums = sums_of_products(
        [inner, *[g for (g,) in rhs_dims[2:]]], (lhs.dtype, rhs.dtype), out_avals[0].dtype
    )
    special |= sums.pop("special", {})
    return b.rule(
        [place(lhs_dims, numbers.lhs_spec), place(rhs_dims, numbers.rhs_spec)],
        [place(out_dims, numbers.out_spec)],
        special=special,
        groups=tuple(together),
        **sums,
    )


@conv_general_dilated_p.def_localize
def _localize_conv(params: dict[str, Any], in_avals: Avals, out_avals: Avals) -> dict[str, Any]:
    """Return parameters for local shapes.

    Their group counts fit the local features or batch.
    """
    numbers: ConvDimensionNumbers = params["dimension_numbers"]
    lhs, rhs, out = in_avals[0].shape, in_avals[1].shape, out_avals[0].shape
    changes: dict[str, int] = {}
    if params["feature_group_count"] > 1:
        changes["feature_group_count"] = lhs[numbers.lhs_spec[1]] // max(
            rhs[numbers.rhs_spec[1]], 1
        )
    if params["batch_group_count"] > 1:
        changes["batch_group_count"] = lhs[numbers.lhs_spec[0]] // max(out[numbers.out_spec[0]], 1)
    return dict(params, **changes)
