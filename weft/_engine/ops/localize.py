"""Parameters for local shapes: the `localize` slot of the ops whose parameters carry sizes (see `ops.local`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._engine.core.primitive import Primitive
from weft._engine.ops import layout, slicing


def _localizes(primitive: Primitive) -> Callable:
    def fill(fn: Callable) -> Callable:
        primitive.rules["localize"] = fn
        return fn

    return fill


@_localizes(layout.broadcast_in_dim_p)
def _broadcast_localize(params: dict, ins: Any, outs: Any) -> dict:
    return dict(params, shape=outs[0].shape)


@_localizes(layout.reshape_p)
def _reshape_localize(params: dict, ins: Any, outs: Any) -> dict:
    return dict(params, new_sizes=outs[0].shape)


@_localizes(slicing.slice_p)
def _slice_localize(params: dict, ins: Any, outs: Any) -> dict:
    strides = params["strides"] or (1,) * ins[0].ndim
    limits = tuple(
        lo + out if step == 1 else hi
        for lo, hi, out, step in zip(
            params["start_indices"], params["limit_indices"], outs[0].shape, strides
        )
    )
    return dict(params, limit_indices=limits)


@_localizes(slicing.dynamic_slice_p)
def _dynamic_slice_localize(params: dict, ins: Any, outs: Any) -> dict:
    return dict(params, slice_sizes=outs[0].shape)
