"""Functions of floats on lanes of any width: those of `ir.registry`, by their formulas.

In:   register values and a floating type.
Out:  register values; half precision is computed in f32, by formulas as short as it allows, and rounded.
Laws: the same instructions per lane at every width, so a value does not depend on where in a vector it is.
      Special values follow IEEE and NumPy. f64 `lgamma`, and without fused multiply-add `pow`, call the C library.
      Where a kernel uses a function often, it calls it (`call_outlined`), on all vectors of an iteration at once.
Next: `ops.functions` for the formulas, `math_real` for what they are written in, `math_tables` for coefficients.
"""

from __future__ import annotations

import weft._engine.ops  # noqa: F401  (announces the functions)
from weft._engine.codegen.ir.scoped_writer import ScopedWriter
from weft._engine.codegen.vector.math_real import Real
from weft._engine.codegen.vector.vector_ops import Lanes
from weft._engine.ir.loops import ScalarType
from weft._engine.ir.registry import Function, functions


def call(
    lanes: Lanes, function: Function, type_: ScalarType, args: list[str], demand: ScalarType = ""
) -> str:
    """Emit a function of arguments of one floating type; `demand` is the type of the result where it is a narrower one."""
    if type_ in ("f16", "bf16"):
        y = call(lanes, function, "f32", args, type_)
        return y if function.test else lanes.settle(y, type_)
    if type_ not in ("f32", "f64"):
        raise NotImplementedError(f"codegen: {function.name!r} on {type_}")
    real = Real(lanes, type_, demand)
    return function.formula(real, *[real.v(arg) for arg in args]).name


def call_outlined(
    lanes: Lanes, op: str, type_: ScalarType, rows: list[list[str]], demand: ScalarType = ""
) -> list[str]:
    """Call `op` as a function of its own on several vectors per argument; `rows` has one row of arguments per vector.

    A module then holds the instructions once, however often the function occurs.
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
    made = b.pure(
        f"call fastcc {result} @{name}({', '.join([f'{t} {arg}' for arg in flat])})", *flat
    )
    return (
        [made]
        if parts == 1
        else [b.pure(f"extractvalue {result} {made}, {i}", made) for i in range(parts)]
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
    made = values[0]
    if parts > 1:
        made = "poison"
        for i, value in enumerate(values):
            made = own.let(f"insertvalue {result} {made}, {t} {value}, {i}")
    lanes.b.declarations |= own.declarations
    lanes.b.helpers |= own.helpers
    return own.helper(
        name, result, ", ".join([f"{t} {x}" for x in names]), made, linkage="internal fastcc"
    )
