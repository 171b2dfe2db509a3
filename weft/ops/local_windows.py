"""How pad, concatenate, rev and convolutions run on shards of the dims along which they move things (see `ops.local`).

Each device computes its block of the result from the rows of the operands that the block depends on: its own, and from
its neighbours the few that lie across a border. A kernel whose window dim is split (the gradient of a convolution with
respect to its kernel, where the image's gradient is the kernel) leaves partial sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core.trace import typeof
from weft.ops import convolution, layout, slicing
from weft.ops.halo import Need, Window, behind, entry, rows, taken, within
from weft.ops.recognized import part_p, rotate_p
from weft.ops.split_rule import split_rule

# --- pad --------------------------------------------------------------------------------------------------------------

def _spread(first: int, advance: int, span: int, step: int) -> Window:
    """The rows of a dim whose elements stand `step` apart that may lie in windows of places."""
    if advance % step == 0:
        low = -(-first // step)
        return Window(low, advance // step, max(1, (first + span - 1) // step - low + 1))
    return Window(first, advance, (span - 1) // step + 1, apart=step)


def _put_apart(ctx: Any, x: Any, need: Need, places: tuple[int, int, int, int], fill: Any) -> Any:
    """Rows `x` in their places, `step` apart, in windows of places (see `_spread`), with scalar `fill` in between."""
    first, advance, span, step = places
    dim, n = need.dim, ctx.size(need.axes)
    if step == 1:
        return x
    before = [need.window.of(p) * step - (first + p * advance) for p in range(n)]
    most, length = max(before), (need.window.span - 1) * step + 1
    config = lambda low, high: [(low, high, step - 1) if d == dim else (0, 0, 0) for d in range(typeof(x).ndim)]
    if len(set(before)) == 1:
        return slicing.pad(x, fill, config(most, span - most - length))
    wide = slicing.pad(x, fill, config(most, max(0, span - min(before) - length)))
    return taken(wide, entry(ctx, need.axes, [most - b for b in before]), span, dim)


def _pad_places(ctx: Any, d: int, config: tuple) -> tuple[int, int, int, int]:
    own = ctx.block(ctx.result_extent(0, d), ctx.of_result(0, d))
    return -config[0], own, own, config[2] + 1


def _pad_windows(ctx: Any, padding_config: tuple) -> list[Need]:
    return [ctx.need(0, d, ctx.of_result(0, d), _spread(*_pad_places(ctx, d, config)))
            for d, config in enumerate(padding_config) if ctx.of_result(0, d)]


def _special(f: int, rule: Any, eqn: Any) -> bool:
    return f in rule.special


@split_rule(slicing.pad_p, _special, windows=_pad_windows)
def _pad_split(ctx: Any, args: list, *, padding_config: tuple) -> Any:
    x, value = args
    config = list(padding_config)
    for need in ctx.needs():
        d = need.dim
        x = within(ctx, rows(ctx, x, need, bool(ctx.of_dim(0, d))), need, value)
        x = _put_apart(ctx, x, need, _pad_places(ctx, d, config[d]), value)
        config[d] = (0, 0, 0)
    return slicing.pad(x, value, config)


# --- concatenate, rev -------------------------------------------------------------------------------------------------

def _concatenate_windows(ctx: Any, dimension: int) -> list[Need]:
    axes = ctx.of_result(0, dimension)
    own = ctx.block(ctx.result_extent(0, dimension), axes)
    sizes = [ctx.extent(k, dimension) for k in range(len(ctx.eqn.invars))]
    starts = np.cumsum([0, *sizes]).tolist()
    return [ctx.need(k, dimension, axes, Window(-start, own, own)) for k, start in zip(range(len(sizes)), starts)]


@split_rule(slicing.concatenate_p, _special, windows=_concatenate_windows)
def _concatenate_split(ctx: Any, args: list, *, dimension: int) -> Any:
    """The rows of every operand that belong into this device's block, each in its place."""
    out = None
    for need, x in zip(ctx.needs(), args):
        part = rows(ctx, x, need, bool(ctx.of_dim(need.operand, dimension)))
        out = part if out is None else behind(ctx, need, part, out)
    return out


def _rev_windows(ctx: Any, dimensions: Sequence[int]) -> list[Need]:
    needs = []
    for d in dimensions:
        axes = ctx.of_dim(0, d)
        if axes:
            own = ctx.block(ctx.extent(0, d), axes)
            needs.append(ctx.need(0, d, axes, Window(ctx.extent(0, d) - own, -own, own)))
    return needs


@split_rule(layout.rev_p, _special, windows=_rev_windows)
def _rev_split(ctx: Any, args: list, *, dimensions: Sequence[int]) -> Any:
    (x,) = args
    for need in ctx.needs():
        x = rows(ctx, x, need)
    return layout.rev(x, dimensions)


# --- rotations, parts of padded values ---------------------------------------------------------------------------------

def _rotate_windows(ctx: Any, dim: int, start: int) -> list[Need]:
    """The rows from `start` on; where the last block is padded, those before the first one are asked for apart."""
    axes, size = ctx.of_dim(0, dim), ctx.extent(0, dim)
    own = ctx.block(size, axes)
    if size == own * ctx.size(axes):
        return [ctx.need(0, dim, axes, Window(start, own, own, ring=True))]
    return [ctx.need(0, dim, axes, Window(first, own, own)) for first in (start, start - size)]


@split_rule(rotate_p, lambda f, rule, eqn: f == rule.ins[0][eqn.params["dim"]][0], windows=_rotate_windows)
def _rotate_split(ctx: Any, args: list, *, dim: int, start: int) -> Any:
    (x,) = args
    found = [rows(ctx, x, need) for need in ctx.needs()]
    return found[0] if len(found) == 1 else behind(ctx, ctx.needs()[1], found[1], found[0])


def _part_windows(ctx: Any, padding_config: tuple, start_indices: tuple, strides: tuple | None, **_cut: Any) -> list[Need] | None:
    needs = []
    for d, (low, _, inner) in enumerate(padding_config):
        axes, step = ctx.of_result(0, d), strides[d] if strides else 1
        if axes and inner:
            return None
        if axes:
            own = ctx.block(ctx.result_extent(0, d), axes)
            needs.append(ctx.need(0, d, axes, Window(start_indices[d] - low, own * step, (own - 1) * step + 1)))
    return needs


@split_rule(part_p, lambda f, rule, eqn: f in rule.special, windows=_part_windows)
def _part_split(ctx: Any, args: list, *, padding_config: tuple, start_indices: tuple, limit_indices: tuple, strides: tuple | None
                ) -> Any:
    x, value = args
    config, starts, limits = list(padding_config), list(start_indices), list(limit_indices)
    for need in ctx.needs():
        d = need.dim
        x = within(ctx, rows(ctx, x, need, bool(ctx.of_dim(0, d))), need, value)
        config[d], starts[d], limits[d] = (0, 0, 0), 0, need.window.span
    return part_p.bind(x, value, padding_config=tuple(config), start_indices=starts, limit_indices=limits, strides=strides)


# --- convolution ------------------------------------------------------------------------------------------------------

def _conv_places(ctx: Any, i: int, params: dict) -> tuple[tuple, tuple] | None:
    """The axes that split spatial dim `i`, and (first, advance, span, step) of the places that a device's block sees.

    Places are those of the image with its elements `step` apart, before padding.
    """
    numbers = params["dimension_numbers"]
    of_result, of_kernel = ctx.of_result(0, numbers.out_spec[i + 2]), ctx.of_dim(1, numbers.rhs_spec[i + 2])
    kernel, result = ctx.extent(1, numbers.rhs_spec[i + 2]), ctx.result_extent(0, numbers.out_spec[i + 2])
    (low, _), stride = params["padding"][i], params["window_strides"][i]
    step, apart = params["lhs_dilation"][i], params["rhs_dilation"][i]
    if of_result:
        own = ctx.block(result, of_result)
        return of_result, (-low, own * stride, (own - 1) * stride + (kernel - 1) * apart + 1, step)
    if of_kernel:
        own = ctx.block(kernel, of_kernel)
        return of_kernel, (-low, own * apart, (result - 1) * stride + (own - 1) * apart + 1, step)
    return None


def _misses(window: Window, n: int, size: int) -> bool:
    """Whether a device needs no row at all, and finds others in their place."""
    return window.of(0) + window.span <= 0 or window.of(n - 1) >= size


def _conv_windows(ctx: Any, **params: Any) -> list[Need]:
    found = [(d, _conv_places(ctx, i, params)) for i, d in enumerate(params["dimension_numbers"].lhs_spec[2:])]
    return [ctx.need(0, d, places[0], _spread(*places[1])) for d, places in found if places is not None]


@split_rule(convolution.conv_general_dilated_p, _special, windows=_conv_windows,
        makes_partial_sums=lambda f, rule, axes: any(f in dim for dim in rule.ins[1]))
def _conv_split(ctx: Any, args: list, **params: Any) -> Any:
    """The image's rows under the windows of this device, zeros outside of the image, convolved without padding."""
    image, kernel = args
    numbers, padding, spread = params["dimension_numbers"], list(params["padding"]), list(params["lhs_dilation"])
    zero = np.zeros((), typeof(image).dtype)[()]
    for need in ctx.needs():
        i = numbers.lhs_spec.index(need.dim) - 2
        is_split = bool(ctx.of_dim(0, need.dim))
        image = rows(ctx, image, need, is_split)
        if not is_split or need.size % ctx.size(need.axes) or _misses(need.window, ctx.size(need.axes), need.size):
            image = within(ctx, image, need, zero)                  # else zeros came from where there are no rows
        (_, places) = _conv_places(ctx, i, params) or ((), (0, 0, 0, 1))
        image = _put_apart(ctx, image, need, places, zero)
        padding[i], spread[i] = (0, 0), 1
        d = numbers.rhs_spec[i + 2]
        kernel = ctx.masked(kernel, d, ctx.of_dim(1, d), ctx.extent(1, d), 0)
    return convolution.conv_general_dilated_p.bind(
        image, kernel, **dict(params, padding=tuple(padding), lhs_dilation=tuple(spread)))
