"""Accumulators of cotangents, into which transposition rules of users write."""

from __future__ import annotations

from typing import Any

from weft._engine.core.trace import Zero, is_undef
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.elementwise import add_any
from weft._engine.transforms.jvp import instantiate


class _NothingType:
    """Stands for no cotangent where None would be no leaf."""


NO_COTANGENT: Any = _NothingType()


class GradAccum:
    """Where `vjp_bwd` and `transpose` put the cotangent of an argument of type `aval`."""

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def accum(self, x: Any) -> None:
        """Add `x` to the cotangent."""
        raise NotImplementedError(f"{type(self).__name__}.accum")


class ValAccum(GradAccum):
    """Sums cotangents; `freeze` gives the sum, or a `Zero`."""

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
    """For an argument whose cotangent nobody wants."""

    def accum(self, x: Any) -> None:
        """Drop `x`."""


class RefAccum(GradAccum):
    """Adds cotangents to a reference to a mutable array."""

    def __init__(self, aval: ShapedArray, ref: Any):
        super().__init__(aval)
        self.ref = ref

    def accum(self, x: Any) -> None:
        """Add `x` to what the reference holds."""
        if x is not None and x is not NO_COTANGENT and type(x) is not Zero:
            self.ref.addupdate(x)


def instantiate_zeros(tangent: Any) -> Any:
    """An array of zeros for a `Zero`; anything else as it is.

    >>> from weft.experimental.hijax import ShapedArray, Zero, instantiate_zeros
    >>> instantiate_zeros(Zero(ShapedArray((2,), np.dtype('float32')))).tolist(), instantiate_zeros(3)
    ([0.0, 0.0], 3)
    """
    return instantiate(tangent)


def is_undefined_primal(x: Any) -> bool:
    """Whether `x` stands for a linear argument of which only the type is known, or its accumulator.

    >>> from weft.experimental.hijax import is_undefined_primal
    >>> is_undefined_primal(3.0)
    False
    """
    return is_undef(x) or isinstance(x, GradAccum)
