"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.api.hijax import (
    GradAccum, NullAccum, RefAccum, VJPHiPrimitive, ValAccum, instantiate_zeros, is_undefined_primal, jvp_from_lin, linearize_from_jvp,
    vjp_from_jvp, vjp_from_lin,
)
from weft.control.ref import AbstractRef
from weft.core.trace import Zero
from weft.ir.types import ShapedArray

__all__ = [
    "AbstractRef", "GradAccum", "NullAccum", "RefAccum", "ShapedArray", "VJPHiPrimitive", "ValAccum", "Zero", "instantiate_zeros",
    "is_undefined_primal", "jvp_from_lin", "linearize_from_jvp", "vjp_from_jvp", "vjp_from_lin",
]
