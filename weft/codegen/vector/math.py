"""The vector math library: UNARY_MATH, BINARY_MATH and the remainder of floats on lanes of any width.

In:   register values and a floating type.
Out:  register values; half precision is computed in f32, by formulas as short as it allows, and rounded.
Laws: the same instructions per lane at every width, so a value does not depend on where in a vector it lies.
      Special values follow IEEE and NumPy. f64 `lgamma`, and without fused multiply-add `pow`, call the C library.
      Where a kernel uses a function often, it calls it (`call_outlined`), on all vectors of an iteration at once.
Next: `math_exp`, `math_trig`, `math_special`, `math_gamma` hold the formulas, `math_tables` the coefficients.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from weft.codegen.ir.builder import Builder
from weft.codegen.vector.math_real import Real
from weft.codegen.vector.vector_ops import Lanes
from weft.ir.loops import ScalarType

#: single instructions, or expanded well by LLVM
_INTRINSICS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round_even": "roundeven"}

#: module of this package -> the functions that it states
_STATED_BY = {
    "math_exp": "exp exp2 expm1 log log1p log2 sinh cosh tanh asinh acosh atanh logistic rsqrt cbrt logaddexp pow rem",
    "math_trig": "sin cos tan asin acos atan atan2",
    "math_special": "erf erfc erf_inv digamma lgamma bessel_i0e bessel_i1e round_away copysign nextafter",
    "math_gamma": "igamma igammac igamma_grad_a igamma_grad_x random_gamma_grad",
}
_HOMES = {name: module for module, names in _STATED_BY.items() for name in names.split()}
_OTHERWISE = {"pow": "pow_", "rem": "remainder"}


def _formula(op: str) -> Callable:
    """The formula of a function; its module is loaded by the first kernel that has one of its functions."""
    return getattr(importlib.import_module(f"weft.codegen.vector.{_HOMES[op]}"), _OTHERWISE.get(op, op))


def call(lanes: Lanes, op: str, type_: ScalarType, args: list[str], goal: ScalarType = "") -> str:
    """Emit function `op` of arguments of one floating type; `goal` is the type of the result where it is a narrower one."""
    if type_ in ("f16", "bf16"):
        if op == "nextafter":
            single = Real(lanes, "f32")
            y = _formula(op)(single, *[single.v(arg) for arg in args], type_).name
        else:
            y = call(lanes, op, "f32", args, type_)
        return y if op == "is_finite" else lanes.settle(y, type_)
    if type_ not in ("f32", "f64"):
        raise NotImplementedError(f"codegen: {op!r} on {type_}")
    if op in _INTRINSICS:
        return lanes.b.intrinsic(_INTRINSICS[op], lanes.type(type_), args[0])
    real = Real(lanes, type_, goal)
    values = [real.v(arg) for arg in args]
    if op == "is_finite":
        return (real.abs(values[0]) < float("inf")).name
    return _formula(op)(real, *values).name


def call_outlined(lanes: Lanes, op: str, type_: ScalarType, rows: list[list[str]], goal: ScalarType = "") -> list[str]:
    """Call `op` as a function of its own on several vectors per argument; `rows` has one row of arguments per vector.

    A module then holds the instructions once, however often the function occurs.
    """
    b, t, parts, name = lanes.b, lanes.type(type_), len(rows), f"weft.{op}.{type_}{goal}.{lanes.w}x{len(rows)}"
    result = t if parts == 1 else "{" + ", ".join([t] * parts) + "}"
    if name not in b.helpers:
        b.helpers[name] = _function(lanes, op, (type_, goal), name, result, len(rows[0]), parts)
    flat = [arg for row in rows for arg in row]
    made = b.pure(f"call fastcc {result} @{name}({', '.join([f'{t} {arg}' for arg in flat])})", *flat)
    return [made] if parts == 1 else [b.pure(f"extractvalue {result} {made}, {i}", made) for i in range(parts)]


def _function(lanes: Lanes, op: str, types: tuple[str, str], name: str, result: str, arity: int, parts: int) -> str:
    """The text of an outlined function."""
    own, (type_, goal) = Builder(), types
    inner, t = Lanes(own, lanes.target, lanes.w), lanes.type(type_)
    names = [f"%x{i}" for i in range(arity * parts)]
    values = [call(inner, op, type_, names[i * arity:(i + 1) * arity], goal) for i in range(parts)]
    made = values[0]
    if parts > 1:
        made = "poison"
        for i, value in enumerate(values):
            made = own.here(f"insertvalue {result} {made}, {t} {value}, {i}")
    lanes.b.declarations |= own.declarations
    lanes.b.helpers |= own.helpers
    params, lines = ", ".join([f"{t} {x}" for x in names]), "\n".join(own.scopes[0].lines)
    return (f"define internal fastcc {result} @{name}({params}) noinline #0 {{\nentry:\n{lines}\n"
            f"  ret {result} {made}\n}}\n")
