"""Math functions of floats on any number of lanes, computed by the formulas of `ir.registry`.

In:   register values and a floating type.
Out:  register values; half precision is computed in f32, by shorter formulas, and rounded.
Laws: the instructions per lane are the same for every number of lanes, so a value does not depend
      on its position in a vector. Special values follow IEEE 754 and NumPy. f64 `lgamma`, and `pow`
      on machines without fused multiply-add, call the C library. A function that a kernel uses
      often is called (`call_outlined`), for all vectors of an iteration at once.
Next: `ops.functions` for the formulas, `math_real` for their notation, `math_tables` for
      coefficients.
"""

from __future__ import annotations

import weft._engine.ops  # noqa: F401  (registers the functions)
from weft._engine.codegen.ir.scoped_writer import ScopedWriter
from weft._engine.codegen.vector.math_real import RealFormulas
from weft._engine.codegen.vector.vector_ops import Lanes
from weft._engine.ir.loops import ScalarType
from weft._engine.ir.registry import ScalarFunction, functions


def call(
    lanes: Lanes,
    function: ScalarFunction,
    type_: ScalarType,
    args: list[str],
    demand: ScalarType = "",
) -> str:
    """Emit a function of arguments of one floating type; `demand` is the type of the result if it
    is narrower."""
    if type_ in ("f16", "bf16"):
        y = call(lanes, function, "f32", args, type_)
        return y if function.test else lanes.round_to_type(y, type_)
    if type_ not in ("f32", "f64"):
        raise NotImplementedError(f"codegen: {function.name!r} on {type_} is not implemented")
    real = RealFormulas(lanes, type_, demand)
    return function.formula(real, *[real.v(arg) for arg in args]).name


def call_outlined(
    lanes: Lanes, op: str, type_: ScalarType, rows: list[list[str]], demand: ScalarType = ""
) -> list[str]:
    """Call `op` as an outlined function on several vectors; `rows` has the arguments of each.

    A module then contains the instructions of the function only once.
    """
    b, t, parts, name = (
        lanes.b,
        lanes.type(type_),
        len(rows),
        f"weft.{op}.{type_}{demand}.{lanes.w}x{len(rows)}",
    )
    result = t if parts == 1 else "{" + ", ".join([t] * parts) + "}"
    if name not in b.helpers:
        b.helpers[name] = _function(lanes, op, (type_, demand), name, result, len(rows[0]), parts)
    flat = [arg for row in rows for arg in row]
    result_value = b.pure(
        f"call fastcc {result} @{name}({', '.join([f'{t} {arg}' for arg in flat])})", *flat
    )
    return (
        [result_value]
        if parts == 1
        else [
            b.pure(f"extractvalue {result} {result_value}, {i}", result_value) for i in range(parts)
        ]
    )


def _function(
    lanes: Lanes, op: str, types: tuple[str, str], name: str, result: str, arity: int, parts: int
) -> str:
    own, (type_, demand) = ScopedWriter(), types
    inner, t = Lanes(own, lanes.target, lanes.w), lanes.type(type_)
    names = [f"%x{i}" for i in range(arity * parts)]
    values = [
        call(inner, functions[op], type_, names[i * arity : (i + 1) * arity], demand)
        for i in range(parts)
    ]
    result_value = values[0]
    if parts > 1:
        result_value = "poison"
        for i, value in enumerate(values):
            result_value = own.let(f"insertvalue {result} {result_value}, {t} {value}, {i}")
    lanes.b.declarations |= own.declarations
    lanes.b.helpers |= own.helpers
    return own.helper(
        name,
        result,
        ", ".join([f"{t} {x}" for x in names]),
        result_value,
        linkage="internal fastcc",
    )
