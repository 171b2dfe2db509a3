"""Accumulators of cotangents, the output arguments of user-defined transposition rules."""

from __future__ import annotations

from typing import Any

from weft._engine.core.trace import Zero, is_undef
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.elementwise import add_any
from weft._engine.transforms.jvp import instantiate


class _NothingType:
    """A placeholder for a missing cotangent; unlike None, it is a leaf of trees."""


NO_COTANGENT: Any = _NothingType()


class GradAccum:
    """The destination for the cotangent of an argument of type `aval`, used by `vjp_bwd` and `transpose`."""

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def accum(self, x: Any) -> None:
        """Add `x` to the cotangent."""
        raise NotImplementedError(f"{type(self).__name__}.accum")


class ValAccum(GradAccum):
    """An accumulator that sums cotangents; `freeze` returns the sum, or a `Zero`."""

    def __init__(self, aval: ShapedArray, val: Any = None):
        super().__init__(aval)
        self.val = val

    def accum(self, x: Any) -> None:
        """Add `x` to the cotangent."""
        if x is not None and x is not NO_COTANGENT and type(x) is not Zero:
            self.val = x if self.val is None else add_any(self.val, x)

    def freeze(self) -> Any:
        """The sum."""
        return Zero(self.aval) if self.val is None else self.val


class NullAccum(GradAccum):
    """An accumulator for an argument whose cotangent is not needed; it discards its input."""

    def accum(self, x: Any) -> None:
        """Drop `x`."""


class RefAccum(GradAccum):
    """An accumulator that adds cotangents to a mutable array."""

    def __init__(self, aval: ShapedArray, ref: Any):
        super().__init__(aval)
        self.ref = ref

    def accum(self, x: Any) -> None:
        """Add `x` to the mutable array."""
        if x is not None and x is not NO_COTANGENT and type(x) is not Zero:
            self.ref.addupdate(x)


def instantiate_zeros(tangent: Any) -> Any:
    """Return an array of zeros for a `Zero`; return any other value unchanged.

    >>> from weft.experimental.hijax import ShapedArray, Zero, instantiate_zeros
    >>> instantiate_zeros(Zero(ShapedArray((2,), np.dtype('float32')))).tolist(), instantiate_zeros(3)
    ([0.0, 0.0], 3)
    """
    return instantiate(tangent)


def is_undefined_primal(x: Any) -> bool:
    """Return True if `x` represents a linear argument of unknown value, or is its accumulator.

    >>> from weft.experimental.hijax import is_undefined_primal
    >>> is_undefined_primal(3.0)
    False
    """
    return is_undef(x) or isinstance(x, GradAccum)
