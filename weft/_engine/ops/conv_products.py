"""Lowering of convolutions to padding, strided windows and one matrix product.

In:   the operands and parameters of `conv_general_dilated`.
Out:  `expand_conv`: the same result from pad, reshape, transpose, `windows` and dot_general.
Laws: `windows` copies nothing. The matmul reads windows through strides as it packs, so no patches
      are stored. Kernels with one feature per group become sums of products, which fuse like any
      reduction. A spread image (`lhs_dilation`) is not multiplied by its zeros: each phase of the
      result uses its own part of the kernel. If there are few output features, every pixel is
      multiplied by the whole kernel first, and the products are then added at their places in the
      result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft._engine.core.primitive import LayoutOp
from weft._engine.core.trace import typeof
from weft._engine.ir.symbolic import max_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.contraction import convert, dot_general_p, is_whole
from weft._engine.ops.elementwise import mul
from weft._engine.ops.families import full
from weft._engine.ops.layout import broadcast_in_dim, copy, reshape, transpose
from weft._engine.ops.reduce import reduce_sum
from weft._engine.ops.rule_helpers import inverse
from weft._engine.ops.slicing import concatenate, pad, slice as slice_op
from weft._engine.util.promotion import sum_dtype
from weft._engine.util.record import record

if TYPE_CHECKING:
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ops.rule_types import (
        Avals,
        ElementIndex,
        ElementReader,
        Ints,
        NumPyArray,
        Value,
    )
    from weft._engine.util import dtypes

#: grouped convolutions with at most this many output features per group become sums of products
_FEW_FEATURES = 2
#: the number of output features below which most lanes of a matrix product would be empty
_THIN = 8
#: the most products per feature of a pixel that may be stored
_PRODUCTS_KEPT = 3


def dilate(size: int, dilation: int) -> int:
    """Return the extent of `size` elements that are `dilation` apart."""
    return max_dim((size - 1) * dilation + 1, 0)


def out_size(
    n: int, lo: int, hi: int, lhs_dilation: int, k: int, rhs_dilation: int, stride: int
) -> int:
    """Return the number of positions of a window of `k` elements on a dim of size `n`.

    The dim is padded and spread.
    """
    return max_dim((dilate(n, lhs_dilation) + lo + hi - dilate(k, rhs_dilation)) // stride + 1, 0)


def products_along(
    n: int, k: int, places: int, lo: int, stride: int, lhs_dilation: int, rhs_dilation: int
) -> int:
    """Return the number of (position, tap) pairs along a dim of size `n` that meet an element.

    Padding and gaps between elements are not counted.

    >>> products_along(3, 3, 3, 1, 1, 1, 1), products_along(4, 2, 4, 1, 2, 2, 1)
    (7, 4)
    """
    # Position p and tap t meet element (p * stride - offset) / lhs_dilation. For each tap, the
    # positions where this is an integer are one residue class, so they are counted without
    # enumeration.
    offset = lo - np.arange(k, dtype=np.int64) * rhs_dilation
    step = math.gcd(stride, lhs_dilation)
    period = lhs_dilation // step
    residue = (offset // step) % period * pow(stride // step, -1, period) % period
    first = np.maximum(-(-offset // stride), 0)
    past = np.minimum((offset + (n - 1) * lhs_dilation) // stride + 1, places)
    # number of members of the residue class in [0, end)
    upto: Callable[[NumPyArray], NumPyArray] = lambda end: (end - residue + period - 1) // period
    met = np.where(offset % step == 0, np.maximum(upto(past) - upto(first), 0), 0)
    return int(met.sum()) if n else 0


# --- windows

#: The windows along some dims: position p and tap t of dim d read element p * strides[d] + t *
#: dilation[d]. Taps are new dims at the end. Only this module binds it.
windows_p = LayoutOp("windows", register=False)


@windows_p.def_type
def _windows_type(
    x: ShapedArray, *, dims: Ints, places: Ints, taps: Ints, strides: Ints, dilation: Ints
):
    shape = list(x.shape)
    for d, n in zip(dims, places):
        shape[d] = n
    return ShapedArray((*shape, *taps), x.dtype, x.weak_type, None, x.vma)


def _strided(x: np.ndarray, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Return a copy of elements of `x` at overlapping places.

    NumPy cannot do this for every one-byte dtype, so bytes are copied.
    """
    raw = x.view(np.uint8) if x.dtype.itemsize == 1 else x
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(raw, shape, strides)).view(x.dtype)


@windows_p.def_reference
def _windows_reference(
    x: NumPyArray, *, dims: Ints, places: Ints, taps: Ints, strides: Ints, dilation: Ints
):
    shape, steps = list(x.shape), list(x.strides)
    inner: list[int] = []
    for d, n, s, step in zip(dims, places, strides, dilation):
        inner.append(x.strides[d] * step)
        shape[d], steps[d] = n, x.strides[d] * s
    return _strided(x, (*shape, *taps), (*steps, *inner))


def _windows_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    *,
    in_avals: Avals,
    out_avals: Avals,
    dims: Ints,
    places: Ints,
    taps: Ints,
    strides: Ints,
    dilation: Ints,
):
    at = list(index[: in_avals[0].ndim])
    for i, (d, s, step) in enumerate(zip(dims, strides, dilation)):
        at[d] = b.iadd(b.imul(at[d], s), b.imul(index[in_avals[0].ndim + i], step))
    return x(tuple(at))


windows_p.define(lower=_windows_lower)


#: The shifted sum positions of products computed tap by tap: position p of dim d reads, for index t
#: of dim `along`, element p + t * dilation of d.
shifted_p = LayoutOp("shifted", register=False)


@shifted_p.def_type
def _shifted_type(x: ShapedArray, *, dims: Ints, along: Ints, places: Ints, dilation: Ints):
    shape = list(x.shape)
    for d, n in zip(dims, places):
        shape[d] = n
    return ShapedArray(tuple(shape), x.dtype, x.weak_type, None, x.vma)


@shifted_p.def_reference
def _shifted_reference(x: NumPyArray, *, dims: Ints, along: Ints, places: Ints, dilation: Ints):
    shape, steps = list(x.shape), list(x.strides)
    for d, t, n, step in zip(dims, along, places, dilation):
        shape[d], steps[t] = n, x.strides[t] + x.strides[d] * step
    return _strided(x, shape, steps)


def _shifted_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    *,
    in_avals: Avals,
    out_avals: Avals,
    dims: Ints,
    along: Ints,
    places: Ints,
    dilation: Ints,
):
    at = list(index)
    for d, t, step in zip(dims, along, dilation):
        at[d] = b.iadd(index[d], b.imul(index[t], step))
    return x(tuple(at))


shifted_p.define(lower=_shifted_lower)


# --- convolutions


class ConvDimensionNumbers(NamedTuple):
    """The positions of the dims of a convolution.

    They are (batch, feature, *spatial) of lhs and result, (out, in, *spatial) of rhs.
    """

    __module__ = "weft.lax"

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


class ConvParams(NamedTuple):
    """The parameters of a convolution."""

    dimension_numbers: ConvDimensionNumbers
    window_strides: tuple[Any, ...]
    padding: tuple[Any, ...]
    lhs_dilation: tuple[Any, ...]
    rhs_dilation: tuple[Any, ...]
    feature_group_count: int
    batch_group_count: int
    precision: Any
    preferred_element_type: Any

    def out_sizes(self, lhs_shape: Sequence[int], rhs_shape: Sequence[int]) -> list[int]:
        """Return the sizes of the spatial dims of the result."""
        numbers = self.dimension_numbers
        return [
            out_size(n, lo, hi, ld, k, rd, s)
            for n, k, (lo, hi), ld, rd, s in zip(
                [lhs_shape[d] for d in numbers.lhs_spec[2:]],
                [rhs_shape[d] for d in numbers.rhs_spec[2:]],
                self.padding,
                self.lhs_dilation,
                self.rhs_dilation,
                self.window_strides,
            )
        ]


def expand_conv(lhs: Value, rhs: Value, **params: Any):
    """Return the convolution as simpler operations.

    These are pad, windows and dot_general, or products and a sum for each feature.
    """
    p = ConvParams(**params)
    left, right = typeof(lhs).dtype, typeof(rhs).dtype
    out = np.dtype(p.preferred_element_type or left)
    if left != right or left == np.bool_ or not is_whole(left, right, out):
        acc_dtype = sum_dtype(left, right, out)
        return convert(
            expand_conv(
                convert(lhs, acc_dtype),
                convert(rhs, acc_dtype),
                **dict(params, preferred_element_type=acc_dtype),
            ),
            out,
        )
    p = p._replace(preferred_element_type=out)
    image, kernel = lhs, rhs
    spread = any(d > 1 for d in p.lhs_dilation)
    if _is_thin(image, kernel, p, spread):
        return _by_taps(image, kernel, p)
    if spread and all(d == 1 for d in (*p.window_strides, *p.rhs_dilation)):
        return _phases(image, kernel, p)
    return _convolve(
        _pad(image, p.padding, p.lhs_dilation, kernel, p),
        kernel,
        p,
        p.out_sizes(lhs.shape, rhs.shape),
    )


def _pad(
    image: Value,
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    kernel: Value,
    p: ConvParams,
):
    config = [(0, 0, 0)] * typeof(image).ndim
    for d, (lo, hi), step in zip(p.dimension_numbers.lhs_spec[2:], padding, dilation):
        config[d] = (lo, hi, step - 1)
    if all(c == (0, 0, 0) for c in config):
        return image
    # Dims after the last padded one are copied with it, so that a row is zeros, one copy, and
    # zeros. `_sum` iterates over the features and would have to divide indices otherwise.
    shape, last = typeof(image).shape, max(d for d, c in enumerate(config) if c != (0, 0, 0))
    (lo, hi, step), inner = config[last], math.prod(shape[last + 1 :])
    if step == 0 and inner > 1 and not _is_summed(kernel, p):
        image, config[last:] = (
            reshape(image, (*shape[:last], shape[last] * inner)),
            [(lo * inner, hi * inner, 0)],
        )
    padded = pad(image, np.zeros((), typeof(image).dtype)[()], config)
    return (
        padded
        if len(config) == len(shape)
        else reshape(
            padded, (*typeof(padded).shape[:-1], shape[last] + lo + hi, *shape[last + 1 :])
        )
    )


def _convolve(image: Value, kernel: Value, p: ConvParams, sizes: Sequence[int]):
    """Return the convolution of a padded image, with `sizes` positions.

    Letters of dims: g group, n batch, c feature of the group, o output feature of the group; p0,
    p1, ... positions of the window; t0, t1, ... taps in it.
    """
    numbers, out_dtype = p.dimension_numbers, p.preferred_element_type
    taps = [typeof(kernel).shape[d] for d in numbers.rhs_spec[2:]]
    windows = windows_p.bind(
        image,
        dims=tuple(numbers.lhs_spec[2:]),
        places=tuple(sizes),
        taps=tuple(taps),
        strides=tuple(p.window_strides),
        dilation=tuple(p.rhs_dilation),
    )
    at, t = [f"p{i}" for i in range(len(taps))], [f"t{i}" for i in range(len(taps))]
    count = max(p.feature_group_count, p.batch_group_count)
    windows, w_dims = _named(
        windows,
        (*numbers.lhs_spec, *range(len(taps) + 2, 2 * len(taps) + 2)),
        ["n", "c", *at, *t],
        {"c": p.feature_group_count, "n": p.batch_group_count},
    )
    kernel, k_dims = _named(kernel, numbers.rhs_spec, ["o", "c", *t], {"o": count})
    out_dims = [("n", "o", *at)[i] for i in inverse(numbers.out_spec)]
    o = out_dims.index("o")
    out_dims[o:o] = ["g"] if count > 1 else []
    extent = {**dict(zip(w_dims, typeof(windows).shape)), **dict(zip(k_dims, typeof(kernel).shape))}
    if 0 in extent.values():
        out = full([extent[d] for d in out_dims], 0, out_dtype)
    elif _is_summed(kernel, p):
        out = _sum(windows, w_dims, kernel, k_dims, out_dims, extent, out_dtype)
    else:
        out = _multiply(windows, w_dims, kernel, k_dims, out_dims, extent, p.precision, out_dtype)
    if count > 1:
        shape = typeof(out).shape
        out = reshape(out, (*shape[:o], shape[o] * shape[o + 1], *shape[o + 2 :]))
    return out


def _is_summed(kernel: Value, p: ConvParams) -> bool:
    """Return whether groups are so small that products and sums are faster than matmuls."""
    o, c = (typeof(kernel).shape[d] for d in p.dimension_numbers.rhs_spec[:2])
    groups = max(p.feature_group_count, p.batch_group_count)
    return groups > 1 and o // groups <= _FEW_FEATURES and (c == 1 or p.batch_group_count > 1)


def _named(x: Value, spec: Sequence[int], names: list[str], groups: dict[str, int]):
    """Return `x` with the dims that hold groups split, and the names of its dims.

    `spec` has the positions of the named dims.
    """
    at = dict(zip(spec, names))
    dims: list[str] = []
    shape: list[int] = []
    for d, n in enumerate(typeof(x).shape):
        inner = groups.get(at[d], 1)
        if inner > 1:
            dims, shape = [*dims, "g"], [*shape, inner]
        dims, shape = [*dims, at[d]], [*shape, n // inner]
    return (x if len(shape) == typeof(x).ndim else reshape(x, shape)), dims


def _multiply(
    windows: Value,
    w_dims: list[str],
    kernel: Value,
    k_dims: list[str],
    out_dims: list[str],
    extent: dict[str, int],
    precision: Any,
    out_dtype: np.dtype[Any],
):
    """Return the convolution as one dot_general and a transpose of its result."""
    group = ["g"] if "g" in w_dims else []
    inner = set(w_dims).difference(group)
    summed, rows = [[d for d in dims if d in inner] for dims in (k_dims, out_dims)]
    places, taps = (math.prod(n for d, n in extent.items() if d[0] == letter) for letter in "pt")
    if places > taps > 1 and summed[-1] != "c" and extent["c"] > 4:
        # Along features, not along the window, elements of an image's windows are evenly spaced:
        # the kernel's dims begin with the features, too.
        k_dims, kernel = _order(
            kernel, k_dims, [*group, *(d for d in k_dims if d[0] == "t"), "c", "o"]
        )
        kernel, summed = copy(kernel), [d for d in k_dims if d in summed]
    longest = max(rows, key=extent.__getitem__)
    by_place = extent[rows[-1]] < 8 and extent[longest] >= 8
    if by_place:  # long runs of rows, and a result that is transposed afterwards
        rows = [*(d for d in rows if d != longest), longest]
    w_dims, windows = _order(windows, w_dims, [*group, *rows, *summed])
    k_dims, kernel = _order(kernel, k_dims, [*group, *summed, "o"])
    first, n = len(group), len(summed)
    batch = tuple(range(first))
    contract = tuple(range(len(w_dims) - n, len(w_dims))), tuple(range(first, first + n))
    out = _product(windows, kernel, (contract, (batch, batch)), precision, out_dtype)
    if by_place:
        out = copy(out)
    return _order(out, [*group, *rows, "o"], out_dims)[1]


def _product(x: Value, y: Value, numbers: Any, precision: Any, dtype: dtypes.DType):
    return dot_general_p.bind(
        x, y, dimension_numbers=numbers, precision=precision, preferred_element_type=dtype
    )


def _sum(
    windows: Value,
    w_dims: list[str],
    kernel: Value,
    k_dims: list[str],
    out_dims: list[str],
    extent: dict[str, int],
    out_dtype: np.dtype[Any],
):
    """Return products of every window with its group's kernel, summed.

    For kernels of one feature, whose matrices would be thin.
    """
    dims = [*out_dims, *(d for d in w_dims if d in k_dims and d != "g")]
    acc_dtype = sum_dtype(typeof(windows).dtype, typeof(kernel).dtype, out_dtype)
    shape = tuple(extent[d] for d in dims)

    def spread(x: Value, names: list[str]):
        names, x = _order(x, names, [d for d in dims if d in names])
        return broadcast_in_dim(convert(x, acc_dtype), shape, tuple(dims.index(d) for d in names))

    terms = mul(spread(windows, w_dims), spread(kernel, k_dims))
    return convert(reduce_sum(terms, tuple(range(len(out_dims), len(dims)))), out_dtype)


def _order(x: Value, names: list[str], order: list[str]) -> tuple[list[str], object]:
    permutation = tuple(names.index(d) for d in order)
    return order, x if permutation == tuple(range(len(names))) else transpose(x, permutation)


# --- spread images


def _phases(image: Value, kernel: Value, p: ConvParams):
    """Return the convolution of a spread image by phases: results `spread` apart use the same taps.

    Result s * u + r is a sum over taps k with r + k - lo = s * q: these are k = k0 + s * t, at
    element q = u + t - before.
    """
    numbers, spread = p.dimension_numbers, p.lhs_dilation
    phases = _Phases.of(image, kernel, p)

    def phase(offsets: Sequence[int]):
        part = kernel
        pads: list[tuple[int, int]] = []
        for i, (d, k) in enumerate(zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:])):
            first, before = phases.begin(i, offsets[i])
            part = _strided_elements(part, k, first, spread[i])
            pads.append(
                (
                    before,
                    phases.phase_sizes[i]
                    + typeof(part).shape[k]
                    - 1
                    - typeof(image).shape[d]
                    - before,
                )
            )
        if 0 in typeof(part).shape:
            return _empty_result(image, kernel, p, phases.phase_sizes)
        return _convolve(_pad(image, pads, (1,) * len(pads), part, p), part, p, phases.phase_sizes)

    return phases.join(phase, numbers.out_spec[2:])


def _empty_result(image: Value, kernel: Value, p: ConvParams, sizes: Sequence[int]):
    """Return the result of a convolution without products, or without positions."""
    lhs, rhs, out = p.dimension_numbers
    whole = typeof(image).shape[lhs[0]] // p.batch_group_count, typeof(kernel).shape[rhs[0]], *sizes
    return full([whole[i] for i in inverse(out)], 0, p.preferred_element_type)


@record
class _Phases:
    """The phases of the result of a spread image (one phase if the spread is 1)."""

    sizes: tuple[int, ...]
    phase_sizes: tuple[int, ...]  # positions in one phase
    low: tuple[int, ...]  # padding before the image
    spread: tuple[int, ...]

    @staticmethod
    def of(image: Value, kernel: Value, p: ConvParams) -> "_Phases":
        sizes, spread = p.out_sizes(typeof(image).shape, typeof(kernel).shape), p.lhs_dilation
        each = tuple(-(-n // s) for n, s in zip(sizes, spread))
        return _Phases(tuple(sizes), each, tuple(lo for lo, _ in p.padding), tuple(spread))

    def begin(self, i: int, offset: int) -> tuple[int, int]:
        """Return a phase's first tap in dim i, and how many elements before the image it begins."""
        first = (self.low[i] - offset) % self.spread[i]
        return first, (self.low[i] - offset - first) // self.spread[i]

    def join(self, phase: Callable[..., Any], dims: Sequence[int]):
        """Return the whole result from `phase(offset in each dim)`; `dims` are its spatial dims."""
        parts = {r: phase(r) for r in itertools.product(*map(range, self.spread))}
        for i in reversed(range(len(dims))):  # interleave the phases of one dim after the other
            rest = list(itertools.product(*map(range, self.spread[:i])))
            parts = {
                r: _interleave(
                    [parts[*r, q] for q in range(self.spread[i])], dims[i], self.sizes[i]
                )
                for r in rest
            }
        return parts[()]


def _strided_elements(x: Value, dim: int, first: int, step: int):
    """Return the elements `first`, `first + step`, ... of a dim."""
    shape = typeof(x).shape
    if step == 1:
        return x
    start, strides = [0] * len(shape), [1] * len(shape)
    start[dim], strides[dim] = min(first, shape[dim]), step
    return slice_op(x, start, shape, strides)


def _interleave(parts: list[Any], dim: int, size: int):
    """Return `size` elements: the first of each part, the second of each part, and so on."""
    if len(parts) > 1:
        shape = typeof(parts[0]).shape
        columns = [reshape(x, (*shape[: dim + 1], 1, *shape[dim + 1 :])) for x in parts]
        joined = concatenate(columns, dim + 1)
        parts = [reshape(joined, (*shape[:dim], shape[dim] * len(parts), *shape[dim + 1 :]))]
    shape = typeof(parts[0]).shape
    if shape[dim] == size:
        return parts[0]
    limits = list(shape)
    limits[dim] = size
    return slice_op(parts[0], (0,) * len(shape), limits)


# --- few output features


def _is_thin(image: Value, kernel: Value, p: ConvParams, spread: bool) -> bool:
    """Return whether there are few output features.

    Products are then added after the matmul.
    """
    outs, features, *taps = (typeof(kernel).shape[d] for d in p.dimension_numbers.rhs_spec)
    plain = p.feature_group_count == p.batch_group_count == 1 and all(
        s == 1 for s in p.window_strides
    )
    products = math.prod(taps) * outs
    return (
        plain
        and not (spread and any(d > 1 for d in p.rhs_dilation))
        and 0 < outs <= _THIN
        and outs < products <= _PRODUCTS_KEPT * features
        and typeof(image).size > 0
    )


def _by_taps(image: Value, kernel: Value, p: ConvParams):
    """Multiply every pixel by the whole kernel in one product; each position sums its taps.

    The product is (taps, output features) by (pixels).
    """
    numbers, spread, dilation, out_dtype = (
        p.dimension_numbers,
        p.lhs_dilation,
        p.rhs_dilation,
        p.preferred_element_type,
    )
    count = len(spread)
    phases = _Phases.of(image, kernel, p)
    if 0 in phases.sizes:
        return _empty_result(image, kernel, p, phases.sizes)
    kernel = transpose(kernel, (*numbers.rhs_spec[2:], *numbers.rhs_spec[:2]))
    image = transpose(image, (numbers.lhs_spec[0], *numbers.lhs_spec[2:], numbers.lhs_spec[1]))
    acc_dtype = sum_dtype(typeof(image).dtype, typeof(kernel).dtype, out_dtype)
    products = _product(
        kernel, image, (((count + 1,), (count + 1,)), ((), ())), p.precision, acc_dtype
    )
    taps, places = range(count), range(count + 2, 2 * count + 2)

    def phase(offsets: Sequence[int]):
        part, config = products, [(0, 0, 0)] * typeof(products).ndim
        for i, d in enumerate(places):
            first, before = phases.begin(i, offsets[i])
            part = _strided_elements(part, i, first, spread[i])
            reach = phases.phase_sizes[i] + (typeof(part).shape[i] - 1) * dilation[i]
            config[d] = (before, reach - typeof(part).shape[d] - before, 0)
        if 0 in typeof(part).shape:
            return full(
                [*typeof(products).shape[count : count + 2], *phases.phase_sizes], 0, acc_dtype
            )
        padded = pad(part, np.zeros((), acc_dtype)[()], config)
        shifted = shifted_p.bind(
            padded,
            dims=tuple(places),
            along=tuple(taps),
            places=phases.phase_sizes,
            dilation=tuple(dilation),
        )
        return reduce_sum(shifted, tuple(taps))

    out = copy(phases.join(phase, range(2, count + 2)))
    order = ("o", "n", *range(count))
    target = [("n", "o", *range(count))[i] for i in inverse(numbers.out_spec)]
    return convert(transpose(out, [order.index(d) for d in target]), out_dtype)
