"""Integer division without traps.

x / 0 is -1, x % 0 is x, and the least integer divided by -1 is itself.

In:   `Registers`, and the names of the dividend and of the divisor (or the divisor's literal).
Out:  the name of the truncated quotient, or of the remainder. CPUs lack vector integer division, so
      vectors use doubles.
"""

from __future__ import annotations

from weft._engine.codegen.ir.scalar_types import BITS
from weft._engine.codegen.vector.registers import INTEGER_RANGE, Registers, parse_integer
from weft._engine.ir.loops import SIGNED, ScalarType


def divide(lanes: Registers, op: str, type_: ScalarType, x: str, y: str) -> str:
    """Emit a division (`op` is `div`) or a remainder (`rem`)."""
    t, signed = lanes.type(type_), type_ in SIGNED
    if lanes.w > 1 and BITS[type_] <= 32 and not y.startswith("splat"):
        return _divide_by_floats(lanes, op, type_, x, y)
    divisor = parse_integer(y)
    if lanes.w > 1 and type_ == "i64" and divisor is not None and lanes.target.level == "avx512":
        if 1 < divisor < 1 << 31 and divisor & (divisor - 1):
            return _divide_by_constant(lanes, op, x, divisor)
    instruction = ("s" if signed else "u") + op
    if divisor is not None and divisor not in (0, -1):
        return lanes.binary(instruction, t, x, y)
    zero = lanes.compare("eq", type_, y, lanes.const(0, type_))
    safe = lanes.select(zero, t, lanes.const(1, type_), y)
    if signed:
        lowest = lanes.compare("eq", type_, x, lanes.const(INTEGER_RANGE[type_][0], type_))
        overflow = lanes.logical_and(lowest, lanes.compare("eq", type_, y, lanes.const(-1, type_)))
        safe = lanes.select(overflow, t, lanes.const(1, type_), safe)
    result = lanes.binary(instruction, t, x, safe)
    return lanes.select(zero, t, lanes.const(-1, type_) if op == "div" else x, result)


def _divide_by_floats(lanes: Registers, op: str, type_: ScalarType, x: str, y: str) -> str:
    # Vectors have no integer division; 32-bit quotients are exact through doubles.
    t, to_float = lanes.type(type_), "sitofp" if type_ in SIGNED else "uitofp"
    zero = lanes.compare("eq", type_, y, lanes.const(0, type_))
    a, b = (
        lanes.convert(to_float, t, v, lanes.f64)
        for v in (x, lanes.select(zero, t, lanes.const(1, type_), y))
    )
    wide = lanes.convert("fptosi", lanes.f64, lanes.binary("fdiv", lanes.f64, a, b), lanes.i64)
    quotient = lanes.convert("trunc", lanes.i64, wide, t)
    if op == "div":
        return lanes.select(zero, t, lanes.const(-1, type_), quotient)
    return lanes.select(zero, t, x, lanes.binary("sub", t, x, lanes.binary("mul", t, quotient, y)))


def _divide_by_constant(lanes: Registers, op: str, x: str, divisor: int) -> str:
    # 64-bit vectors have neither division nor a high product. The remainder of a quotient through
    # doubles is small, so a second quotient is exact; adding 1/2 to its dividend keeps it off
    # integers.
    i64, f64, inverse = lanes.i64, lanes.f64, lanes.const(1.0 / divisor, "f64")
    d, zero = lanes.const(divisor, "i64"), lanes.const(0, "i64")
    guess = lanes.binary("fmul", f64, lanes.convert("sitofp", i64, x, f64), inverse)
    q = lanes.convert("fptosi", f64, guess, i64)
    remainder = lanes.binary("sub", i64, x, lanes.binary("mul", i64, q, d))
    half = lanes.binary(
        "fadd", f64, lanes.convert("sitofp", i64, remainder, f64), lanes.const(0.5, "f64")
    )
    step = lanes.b.intrinsic("floor", f64, lanes.binary("fmul", f64, half, inverse))
    step = lanes.convert("fptosi", f64, step, i64)
    q = lanes.binary("add", i64, q, step)
    remainder = lanes.binary("sub", i64, remainder, lanes.binary("mul", i64, step, d))
    # From floor to truncation: add one if negative and inexact.
    up = lanes.logical_and(
        lanes.compare("lt", "i64", x, zero), lanes.compare("ne", "i64", remainder, zero)
    )
    if op == "div":
        return lanes.select(up, i64, lanes.binary("add", i64, q, lanes.const(1, "i64")), q)
    return lanes.select(up, i64, lanes.binary("sub", i64, remainder, d), remainder)
