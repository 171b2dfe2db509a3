"""The vector math library: UNARY_MATH and BINARY_MATH on lanes of any width.

In:   register values and a floating type.
Out:  register values; half precision is computed in f32 and rounded.
Laws: the same instructions per lane at every width, so a value does not depend on where in a vector it lies.
      Special values follow IEEE and NumPy. Functions without an expansion here call the C library lane by lane in f64.
"""

from __future__ import annotations

from weft.codegen.lanes import Lanes
from weft.ir.loops import ScalarType

#: single instructions, or expanded well by LLVM
_INTRINSICS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round_even": "roundeven"}

#: the C library's double functions (all exist in glibc, musl and macOS)
_LIBRARY = {name: name for name in (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "pow", "atan2",
)}


def call(lanes: Lanes, op: str, type_: ScalarType, args: list[str]) -> str:
    """Emit function `op` of arguments of one floating type."""
    if type_ in ("f16", "bf16"):
        if op == "nextafter":
            raise NotImplementedError(f"codegen: nextafter on {type_}")
        y = call(lanes, op, "f32", args)
        return y if op == "is_finite" else lanes.settle(y, type_)
    if type_ not in ("f32", "f64"):
        raise NotImplementedError(f"codegen: {op!r} on {type_}")
    t = lanes.type(type_)
    if op in _INTRINSICS:
        return lanes.b.intrinsic(_INTRINSICS[op], t, args[0])
    if op in _LIBRARY:
        return lanes.per_lane(op, _LIBRARY[op], t, *args)
    raise NotImplementedError(f"codegen: {op!r} on {type_}")
