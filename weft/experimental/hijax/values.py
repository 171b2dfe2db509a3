"""Values of hi types and the arrays that represent them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.control.hitypes import HiType, is_linear, lowered
from weft._engine.core.trace import Zero
from weft._engine.transforms.jvp import instantiate


def raise_values(avals: Sequence, arrays: Sequence) -> list:
    """Values of types, from the arrays of all."""
    given = iter(arrays)
    return [
        a.raise_val(*[next(given) for _ in a.lo_ty()]) if a.is_high else next(given) for a in avals
    ]


def lower_values(name: str, avals: Sequence, values: Sequence) -> list:
    """The arrays of all values."""
    return [
        x
        for a, v in zip(avals, values, strict=True)
        for x in (lowered(instantiated(v), name) if a.is_high else [instantiate(v)])
    ]


def tangent_type(name: str, aval: Any) -> Any:
    """The type of tangents of values of a type, whose arrays must be the tangents of the arrays of such a value."""
    tangent = aval.to_tangent_aval()
    if aval.is_high and not is_linear(aval):
        raise NotImplementedError(
            f"{name}: differentiating with respect to the type {aval} is not supported: its tangents, of type "
            f"{tangent}, consist of {tangent.lo_ty()}, not of the tangents of the arrays {aval.lo_ty()}."
        )
    return tangent


def instantiated(x: Any) -> Any:
    """A value for a `Zero`; anything else as it is."""
    if type(x) is not Zero or not x.aval.is_high:
        return instantiate(x)
    aval: Any = x.aval
    if type(aval).vspace_zero is not HiType.vspace_zero:
        return aval.vspace_zero()
    return aval.raise_val(*[instantiate(Zero(a)) for a in aval.lo_ty()])
