"""Conversion between values of hijax types and the arrays that represent them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.control.hijax_types import HiType, is_linear, lower_value
from weft._engine.core.trace import Zero
from weft._engine.transforms.jvp import instantiate


def raise_values(avals: Sequence, arrays: Sequence) -> list:
    """Return values of the types `avals`, built from the concatenated list of their arrays."""
    remaining = iter(arrays)
    return [
        a.raise_val(*[next(remaining) for _ in a.lo_ty()]) if a.is_high else next(remaining)
        for a in avals
    ]


def lower_values(name: str, avals: Sequence, values: Sequence) -> list:
    """Return the concatenated list of the arrays of all values."""
    return [
        x
        for a, v in zip(avals, values, strict=True)
        for x in (lower_value(instantiate_zeros(v), name) if a.is_high else [instantiate(v)])
    ]


def tangent_type(name: str, aval: Any) -> Any:
    """Return the type of tangents of a type, whose arrays must be the tangents of the arrays of a value."""
    tangent = aval.to_tangent_aval()
    if aval.is_high and not is_linear(aval):
        raise NotImplementedError(
            f"{name}: differentiating with respect to the type {aval} is not supported: its tangents, of type "
            f"{tangent}, consist of {tangent.lo_ty()}, not of the tangents of the arrays {aval.lo_ty()}."
        )
    return tangent


def instantiate_zeros(x: Any) -> Any:
    """Return an array value for a `Zero`; return any other value unchanged."""
    if type(x) is not Zero or not x.aval.is_high:
        return instantiate(x)
    aval: Any = x.aval
    if type(aval).vspace_zero is not HiType.vspace_zero:
        return aval.vspace_zero()
    return aval.raise_val(*[instantiate(Zero(a)) for a in aval.lo_ty()])
