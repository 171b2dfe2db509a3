"""Functions composed of convolutions: one with a separate kernel at each position, and result
shapes.

In:   operands and dimension numbers as in `conv_general_dilated`.
Laws: no primitive of their own, so they have the derivatives, batching and sharding of convolution
      and `dot_general`.
Read next: `weft._engine.ops.convolution`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

from weft._engine.core.trace import typeof
from weft._engine.ir.symbolic import as_int
from weft._engine.ops.contraction import PrecisionLike, dot_general
from weft._engine.ops.conv_products import dilate, out_size
from weft._engine.ops.convolution import (
    ConvDimensionNumbers,
    _transposed_padding,
    conv_dimension_numbers,
    conv_general_dilated_patches,
    padtype_to_pads,
)
from weft._engine.ops.families import shape_error
from weft._engine.ops.layout import transpose
from weft._engine.ops.rule_helpers import inverse
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import guard_all

__all__ = [
    "ConvGeneralDilatedDimensionNumbers",
    "conv_general_dilated_local",
    "conv_general_permutations",
    "conv_general_shape_tuple",
    "conv_shape_tuple",
    "conv_transpose_shape_tuple",
]

ConvGeneralDilatedDimensionNumbers = Union[tuple[str, str, str], ConvDimensionNumbers, None]
ConvGeneralDilatedDimensionNumbers.__doc__ = (
    "The roles of the dims of the operands and the result of a convolution."
)


def conv_general_dilated_local(
    lhs,
    rhs,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
):
    """Return a convolution whose kernel differs between positions: a locally connected layer.

    `rhs` has the layout of a kernel, but its spatial dims are the result's, and its input features
    are the features of `lhs` times the elements of a window of `filter_shape`, features major, the
    window's dims in the order of `rhs`. The other arguments are as in `conv_general_dilated`; both
    of a pair of precisions apply to the products. Raises ShapeError unless `rhs` has the shape that
    follows from the others.

    >>> image, kernels = np.array([[[1.0, 2.0, 3.0]]]), np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> conv_general_dilated_local(image, kernels, (1,), "VALID", (2,)).tolist()
    [[[1.0, 3.0]]]
    """
    lhs_type, rhs_type = typeof(lhs), typeof(rhs)
    numbers = conv_dimension_numbers(lhs_type.shape, (1, 1, *filter_shape), dimension_numbers)
    patches = conv_general_dilated_patches(
        lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, numbers
    )
    table = [
        ("lhs", lhs_type.str_short()),
        ("rhs", rhs_type.str_short()),
        ("filter_shape", tuple(filter_shape)),
        ("dimension_numbers", tuple(map(tuple, numbers))),
    ]
    if rhs_type.ndim != lhs_type.ndim:
        raise shape_error(
            "conv_general_dilated_local", "lhs and rhs must have the same number of dims.", table
        )
    windows = typeof(patches).shape
    needed = tuple(windows[d] for d in numbers.out_spec[1:])
    if tuple(rhs_type.shape[d] for d in numbers.rhs_spec[1:]) != needed:
        raise shape_error(
            "conv_general_dilated_local",
            f"rhs must have {needed[0]} input features, the features of lhs times the elements of a "
            f"window, and the spatial dims of the result, {needed[1:]}.",
            table,
        )
    contracted = [numbers.out_spec[1]], [numbers.rhs_spec[1]]
    batch = numbers.out_spec[2:], numbers.rhs_spec[2:]
    out = dot_general(patches, rhs, (contracted, batch), precision=precision)
    spatial = lhs_type.ndim - 2
    # positions of the batch, the features and the spatial dims in `out`
    position_of = (
        spatial,
        spatial + 1,
        *range(spatial),
    )
    return transpose(out, tuple(position_of[d] for d in inverse(numbers.out_spec)))


def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return permutations for three strings of dims, such as ("NHWC", "HWIO", "NHWC").

    They lead to (batch, feature, spatial...) and, for the kernel, (out feature, in feature,
    spatial...). Raise TypeError for strings that do not name the same dims.

    >>> conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    specs = tuple(dimension_numbers)
    try:
        lhs, rhs = [range(len(spec)) for spec in specs[:2]]
        return tuple(map(tuple, conv_dimension_numbers(lhs, rhs, specs)))
    except (ValueError, IndexError) as e:
        raise TypeError(
            f"conv_general_permutations: dimension_numbers must be three strings, with N and C, O and I, N and C once each, "
            f"and the same letters for spatial dims, got {specs}."
        ) from e


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]],
    batch_group_count: int = 1,
) -> tuple[int, ...]:
    """Return the shape of a convolution of two shapes.

    They are (batch, features, spatial...) and (out features, in features, spatial...).

    >>> conv_shape_tuple((2, 3, 8, 8), (4, 3, 3, 3), (1, 2), "VALID")
    (2, 4, 6, 3)
    """
    return _result_shape(
        "conv_shape_tuple",
        lhs_shape,
        rhs_shape,
        strides,
        pads,
        None,
        (1,) * len(strides),
        batch_group_count,
    )


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Any,
) -> tuple[int, ...]:
    """Return the shape of a convolution of shapes in the layouts of `dimension_numbers`.

    >>> conv_general_shape_tuple((2, 8, 9, 3), (3, 3, 3, 4), (1, 2), "SAME", ("NHWC", "HWIO", "NHWC"))
    (2, 8, 5, 4)
    """
    ones = (1,) * len(window_strides)
    return _result_shape(
        "conv_general_shape_tuple",
        lhs_shape,
        rhs_shape,
        window_strides,
        padding,
        dimension_numbers,
        ones,
    )


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Any,
) -> tuple[int, ...]:
    """Return the shape of a `conv_transpose` with strides `window_strides`.

    >>> conv_transpose_shape_tuple((2, 8, 9, 3), (3, 5, 3, 4), (1, 2), "VALID", ("NHWC", "HWIO", "NHWC"))
    (2, 10, 21, 4)
    """
    if isinstance(padding, str):
        numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
        window = [rhs_shape[d] for d in numbers.rhs_spec[2:]]
        padding = [
            _transposed_padding(k, s, padding.upper()) for k, s in zip(window, window_strides)
        ]
    ones = (1,) * len(window_strides)
    return _result_shape(
        "conv_transpose_shape_tuple",
        lhs_shape,
        rhs_shape,
        ones,
        padding,
        dimension_numbers,
        window_strides,
    )


def _result_shape(
    name: str,
    lhs_shape,
    rhs_shape,
    strides,
    padding,
    dimension_numbers,
    lhs_dilation,
    batch_groups: int = 1,
):
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    if len(lhs_shape) < 2:
        raise shape_error(
            name,
            "lhs and rhs need a batch or output features, and input features, before the spatial dims.",
            [("lhs_shape", tuple(lhs_shape)), ("rhs_shape", tuple(rhs_shape))],
        )
    image, window = (
        [lhs_shape[d] for d in numbers.lhs_spec[2:]],
        [rhs_shape[d] for d in numbers.rhs_spec[2:]],
    )
    if isinstance(padding, str):
        padding = padtype_to_pads(
            [dilate(n, d) for n, d in zip(image, lhs_dilation)], window, strides, padding
        )
    batch, features = lhs_shape[numbers.lhs_spec[0]], rhs_shape[numbers.rhs_spec[0]]
    table = [("lhs_shape", tuple(lhs_shape)), ("rhs_shape", tuple(rhs_shape))]
    if any(len(per_dim) != len(image) for per_dim in (strides, padding, lhs_dilation)):
        raise shape_error(
            name,
            f"strides and padding need one entry for each of the {len(image)} spatial dims.",
            table,
        )
    if batch % batch_groups or features % batch_groups:
        raise shape_error(
            name,
            f"a batch of {batch} and {quantity(features, 'feature')} do not divide into {batch_groups} batch groups.",
            table,
        )
    sizes = [
        out_size(n, lo, hi, spread, k, 1, s)
        for n, (lo, hi), spread, k, s in zip(image, padding, lhs_dilation, window, strides)
    ]
    shape = (batch // batch_groups, features, *sizes)
    return tuple(as_int(shape[d]) for d in inverse(numbers.out_spec))


guard_all(globals())
