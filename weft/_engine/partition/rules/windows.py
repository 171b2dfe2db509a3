"""Split rules of pad, concatenate, rev and convolutions along dims on which they move elements (see `partition.rules.split_rule`).

Each device computes its block of the result from the rows of the operands on which the block depends: its own rows, and a few
rows of its neighbors. If the window dim of a kernel is split (as in the gradient of a convolution with respect to its kernel,
where the cotangent is the kernel), the results are partial sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops import convolution, layout, slicing
from weft._engine.partition.rules.dim_moves import part_p, rotate_p
from weft._engine.partition.rules.halo import (
    Halo,
    Window,
    dynamic_slice_along,
    fetch_rows,
    first_rows,
    mask_outside,
    select_reached,
    table_entry,
)
from weft._engine.partition.rules.split_rule import split_rule

# --- pad --------------------------------------------------------------------------------------------------------------


def _dilated_rows(first: int, advance: int, span: int, step: int) -> Window:
    """Return the window of rows of a dim with dilation `step` that may be in windows of `span` positions."""
    if advance % step == 0:
        low = -(-first // step)
        return Window(low, advance // step, max(1, (first + span - 1) // step - low + 1))
    return Window(first, advance, (span - 1) // step + 1, step=step)


def _dilate(ctx: Any, x: Any, halo: Halo, places: tuple[int, int, int, int], fill: Any) -> Any:
    """Return rows `x` at their positions, dilated by `step`, in windows of positions (see `_dilated_rows`), with scalar `fill` in between."""
    first, advance, span, step = places
    dim, n = halo.dim, ctx.size(halo.axes)
    if step == 1:
        return x
    before = [
        row * step - (first + p * advance) for p, row in enumerate(first_rows(halo.window, n))
    ]
    most, length = max(before), (halo.window.span - 1) * step + 1

    def config(low: int, high: int) -> list[tuple[int, int, int]]:
        return [(low, high, step - 1) if d == dim else (0, 0, 0) for d in range(typeof(x).ndim)]

    if len(set(before)) == 1:
        return slicing.pad(x, fill, config(most, span - most - length))
    dilated = slicing.pad(x, fill, config(most, max(0, span - min(before) - length)))
    return dynamic_slice_along(
        dilated, table_entry(ctx, halo.axes, [most - b for b in before]), span, dim
    )


def _pad_places(ctx: Any, d: int, config: tuple[int, int, int]) -> tuple[int, int, int, int]:
    own = ctx.block(ctx.result_extent(0, d), ctx.of_result(0, d))
    return -config[0], own, own, config[2] + 1


def _pad_halos(ctx: Any, padding_config: tuple[tuple[int, int, int], ...]) -> list[Halo]:
    return [
        ctx.halo(0, d, ctx.of_result(0, d), _dilated_rows(*_pad_places(ctx, d, config)))
        for d, config in enumerate(padding_config)
        if ctx.of_result(0, d)
    ]


def _special(f: int, rule: Any, eqn: Any) -> bool:
    return f in rule.special


@split_rule(slicing.pad_p, _special, halos=_pad_halos)
def _pad_split(
    ctx: Any, args: list[Any], *, padding_config: tuple[tuple[int, int, int], ...]
) -> Any:
    x, value = args
    config: list[tuple[int, int, int]] = list(padding_config)
    for halo in ctx.halos():
        d: int = halo.dim
        x = mask_outside(ctx, fetch_rows(ctx, x, halo, bool(ctx.of_dim(0, d))), halo, value)
        x = _dilate(ctx, x, halo, _pad_places(ctx, d, padding_config[d]), value)
        config[d] = (0, 0, 0)
    return slicing.pad(x, value, config)


# --- concatenate, rev -------------------------------------------------------------------------------------------------


def _concatenate_halos(ctx: Any, dimension: int) -> list[Halo]:
    axes = ctx.of_result(0, dimension)
    own = ctx.block(ctx.result_extent(0, dimension), axes)
    sizes = [ctx.extent(k, dimension) for k in range(len(ctx.eqn.invars))]
    starts = np.cumsum([0, *sizes]).tolist()
    return [
        ctx.halo(k, dimension, axes, Window(-start, own, own))
        for k, start in zip(range(len(sizes)), starts)
    ]


@split_rule(slicing.concatenate_p, _special, halos=_concatenate_halos)
def _concatenate_split(ctx: Any, args: list[Any], *, dimension: int) -> Any:
    """Return this device's block: the rows of each operand in it, at their positions."""
    out = None
    for halo, x in zip(ctx.halos(), args):
        part = fetch_rows(ctx, x, halo, bool(ctx.of_dim(halo.operand, dimension)))
        out = part if out is None else select_reached(ctx, halo, part, out)
    return out


def _rev_halos(ctx: Any, dimensions: Sequence[int]) -> list[Halo]:
    halos: list[Halo] = []
    for d in dimensions:
        axes = ctx.of_dim(0, d)
        if axes:
            own = ctx.block(ctx.extent(0, d), axes)
            halos.append(ctx.halo(0, d, axes, Window(ctx.extent(0, d) - own, -own, own)))
    return halos


@split_rule(layout.rev_p, _special, halos=_rev_halos)
def _rev_split(ctx: Any, args: list[Any], *, dimensions: Sequence[int]) -> Any:
    (x,) = args
    for halo in ctx.halos():
        x = fetch_rows(ctx, x, halo)
    return layout.rev(x, dimensions)


# --- rotations, parts of padded values ---------------------------------------------------------------------------------


def _rotate_halos(ctx: Any, dim: int, start: int) -> list[Halo]:
    """Return the halo of the rows from `start` on; if the last block is padded, the rows before the first are a separate halo."""
    axes, size = ctx.of_dim(0, dim), ctx.extent(0, dim)
    own = ctx.block(size, axes)
    if size == own * ctx.size(axes):
        return [ctx.halo(0, dim, axes, Window(start, own, own, ring=True))]
    return [ctx.halo(0, dim, axes, Window(first, own, own)) for first in (start, start - size)]


@split_rule(
    rotate_p, lambda f, rule, eqn: f == rule.ins[0][eqn.params["dim"]][0], halos=_rotate_halos
)
def _rotate_split(ctx: Any, args: list[Any], *, dim: int, start: int) -> Any:
    (x,) = args
    rows = [fetch_rows(ctx, x, halo) for halo in ctx.halos()]
    return rows[0] if len(rows) == 1 else select_reached(ctx, ctx.halos()[1], rows[1], rows[0])


def _part_halos(
    ctx: Any,
    padding_config: tuple[tuple[int, int, int], ...],
    start_indices: tuple[int, ...],
    strides: tuple[int, ...] | None,
    **_cut: Any,
) -> list[Halo] | None:
    halos: list[Halo] = []
    for d, (low, _, inner) in enumerate(padding_config):
        axes, step = ctx.of_result(0, d), strides[d] if strides else 1
        if axes and inner:
            return None
        if axes:
            own = ctx.block(ctx.result_extent(0, d), axes)
            halos.append(
                ctx.halo(
                    0, d, axes, Window(start_indices[d] - low, own * step, (own - 1) * step + 1)
                )
            )
    return halos


@split_rule(part_p, lambda f, rule, eqn: f in rule.special, halos=_part_halos)
def _part_split(
    ctx: Any,
    args: list[Any],
    *,
    padding_config: tuple[tuple[int, int, int], ...],
    start_indices: tuple[int, ...],
    limit_indices: tuple[int, ...],
    strides: tuple[int, ...] | None,
) -> Any:
    x, value = args
    config, starts, limits = list(padding_config), list(start_indices), list(limit_indices)
    for halo in ctx.halos():
        d = halo.dim
        x = mask_outside(ctx, fetch_rows(ctx, x, halo, bool(ctx.of_dim(0, d))), halo, value)
        config[d], starts[d], limits[d] = (0, 0, 0), 0, halo.window.span
    return part_p.bind(
        x,
        value,
        padding_config=tuple(config),
        start_indices=starts,
        limit_indices=limits,
        strides=strides,
    )


# --- convolution ------------------------------------------------------------------------------------------------------


def _conv_places(
    ctx: Any, i: int, params: dict[str, Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Return the axes that split spatial dim `i`, and (first, advance, span, step) of the positions that a device's block reads.

    Positions are in the dilated image, whose elements are `step` apart, before padding. None if a device reads its own positions only.
    """
    numbers = params["dimension_numbers"]
    if ctx.rule.ins[0][numbers.lhs_spec[i + 2]] == ctx.rule.outs[0][numbers.out_spec[i + 2]]:
        return None  # a pointwise dim, which image and result may split alike
    of_result, of_kernel = (
        ctx.of_result(0, numbers.out_spec[i + 2]),
        ctx.of_dim(1, numbers.rhs_spec[i + 2]),
    )
    kernel, result = (
        ctx.extent(1, numbers.rhs_spec[i + 2]),
        ctx.result_extent(0, numbers.out_spec[i + 2]),
    )
    (low, _), stride = params["padding"][i], params["window_strides"][i]
    step, dilation = params["lhs_dilation"][i], params["rhs_dilation"][i]
    if of_result:
        own = ctx.block(result, of_result)
        return of_result, (
            -low,
            own * stride,
            (own - 1) * stride + (kernel - 1) * dilation + 1,
            step,
        )
    if of_kernel:
        own = ctx.block(kernel, of_kernel)
        return of_kernel, (
            -low,
            own * dilation,
            (result - 1) * stride + (own - 1) * dilation + 1,
            step,
        )
    return None


def _misses(window: Window, n: int, size: int) -> bool:
    """Return whether a device needs no rows, so that its window has rows of others that must be masked."""
    return window.of(0) + window.span <= 0 or window.of(n - 1) >= size


def _conv_halos(ctx: Any, **params: Any) -> list[Halo]:
    fetched = [
        (d, _conv_places(ctx, i, params))
        for i, d in enumerate(params["dimension_numbers"].lhs_spec[2:])
    ]
    return [
        ctx.halo(0, d, places[0], _dilated_rows(*places[1]))
        for d, places in fetched
        if places is not None
    ]


def _can_split_conv(f: int, rule: Any, eqn: Any) -> bool:
    of_kernel = any(f in dim for dim in rule.ins[1])
    return f in rule.special and (not of_kernel or f in rule.reduced)


@split_rule(
    convolution.conv_general_dilated_p,
    _can_split_conv,
    halos=_conv_halos,
    makes_partial_sums=lambda f, rule, axes: f in rule.reduced,
)
def _conv_split(ctx: Any, args: list[Any], **params: Any) -> Any:
    """Convolve the image's rows under the windows of this device without padding; rows outside of the image are zeros."""
    image, kernel = args
    numbers, padding, spread = (
        params["dimension_numbers"],
        list(params["padding"]),
        list(params["lhs_dilation"]),
    )
    zero = np.zeros((), typeof(image).dtype)[()]
    for halo in ctx.halos():
        i = numbers.lhs_spec.index(halo.dim) - 2
        is_split = bool(ctx.of_dim(0, halo.dim))
        image = fetch_rows(ctx, image, halo, is_split)
        if (
            not is_split
            or halo.size % ctx.size(halo.axes)
            or _misses(halo.window, ctx.size(halo.axes), halo.size)
        ):
            # otherwise rows outside of the image are already zeros
            image = mask_outside(ctx, image, halo, zero)
        (_, places) = _conv_places(ctx, i, params) or ((), (0, 0, 0, 1))
        image = _dilate(ctx, image, halo, places, zero)
        padding[i], spread[i] = (0, 0), 1
    for d in numbers.rhs_spec[2:]:
        kernel = ctx.fill_padding(kernel, d, ctx.of_dim(1, d), ctx.extent(1, d), 0)
    return convolution.conv_general_dilated_p.bind(
        image, kernel, **dict(params, padding=tuple(padding), lhs_dilation=tuple(spread))
    )
