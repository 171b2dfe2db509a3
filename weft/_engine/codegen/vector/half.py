"""Half precision: bfloat16 and float16 values in float32 registers, rounded after each operation.

In:   `Registers`, names of register values or of values in their memory type.
Out:  the rounded values, or values converted between registers and memory; ties round to even.
Laws: subnormal numbers, infinities and NaN follow IEEE 754, with or without machine instructions
      for the conversion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft._engine.codegen.ir.scalar_types import vector
from weft._engine.codegen.ir.scoped_writer import ScopedWriter
from weft._engine.codegen.vector.registers import Registers
from weft._engine.ir.loops import ScalarType


def round_to_half(lanes: Registers, x: str, type_: ScalarType, any_nan: bool = True) -> str:
    """Round any f32 to half precision.

    `any_nan`: the operand may be a NaN that rounds wrongly by integer arithmetic. Arithmetic on
    half precision produces no such NaN.
    """
    return _round_bf16(lanes, x, any_nan) if type_ == "bf16" else _round_f16(lanes, x)


def to_memory(lanes: Registers, x: str, type_: ScalarType) -> str:
    """Convert a value that is exact in the type to its memory type."""
    if type_ == "bf16":
        return _bf16_bits(lanes, x)
    half, short = vector("half", lanes.w), vector("i16", lanes.w)
    if lanes.target.has_f16:
        return lanes.convert("fptrunc", lanes.f32, x, half)
    return lanes.convert("bitcast", short, _half_bits(lanes, x, short), half)


def from_memory(lanes: Registers, x: str, type_: ScalarType) -> str:
    """Convert a loaded value to f32."""
    half, short = vector("half", lanes.w), vector("i16", lanes.w)
    if type_ == "bf16":
        bits = lanes.convert("zext", short, x, lanes.i32)
        return lanes.convert(
            "bitcast", lanes.i32, lanes.binary("shl", lanes.i32, bits, _i(lanes, 16)), lanes.f32
        )
    if lanes.target.has_f16:
        return lanes.convert("fpext", half, x, lanes.f32)
    return _from_half_bits(lanes, lanes.convert("bitcast", half, x, short))


def _i(lanes: Registers, value: int) -> str:
    return lanes.const(value, "i32")


def _round_bf16(lanes: Registers, x: str, any_nan: bool) -> str:
    bits = lanes.convert("bitcast", lanes.f32, x, lanes.i32)
    odd = lanes.binary(
        "and", lanes.i32, lanes.binary("lshr", lanes.i32, bits, _i(lanes, 16)), _i(lanes, 1)
    )
    bits = lanes.binary(
        "add", lanes.i32, bits, lanes.binary("add", lanes.i32, odd, _i(lanes, 0x7FFF))
    )
    bits = lanes.binary("and", lanes.i32, bits, _i(lanes, -65536))
    rounded = lanes.convert("bitcast", lanes.i32, bits, lanes.f32)
    if any_nan:
        nan = lanes.b.pure(f"fcmp uno {lanes.f32} {x}, {x}", x)
        rounded = lanes.select(nan, lanes.f32, lanes.const(math.nan, "f32"), rounded)
    lanes.unrounded[rounded] = x
    return rounded


def _round_f16(lanes: Registers, x: str) -> str:
    if lanes.target.has_f16:
        half = vector("half", lanes.w)
        return lanes.convert("fpext", half, lanes.convert("fptrunc", lanes.f32, x, half), lanes.f32)
    return _round_f16_by_hand(lanes, x)


def _round_f16_by_hand(lanes: Registers, x: str) -> str:
    f32, i32 = lanes.f32, lanes.i32
    size = lanes.b.intrinsic("fabs", f32, x)
    bits = lanes.convert("bitcast", f32, size, i32)
    odd = lanes.binary("and", i32, lanes.binary("lshr", i32, bits, _i(lanes, 13)), _i(lanes, 1))
    up = lanes.binary("add", i32, bits, lanes.binary("add", i32, odd, _i(lanes, 0xFFF)))
    normal = lanes.convert("bitcast", i32, lanes.binary("and", i32, up, _i(lanes, -8192)), f32)
    # the ulp of [0.5, 1) in f32 is the spacing of half-precision subnormals
    half = lanes.const(0.5, "f32")
    tiny = lanes.binary("fsub", f32, lanes.binary("fadd", f32, size, half), half)
    is_tiny = lanes.b.pure(f"fcmp olt {f32} {size}, {lanes.const(2.0**-14, 'f32')}", size)
    y = lanes.select(is_tiny, f32, tiny, normal)
    over = lanes.b.pure(f"fcmp oge {f32} {size}, {lanes.const(65520.0, 'f32')}", size)
    y = lanes.select(over, f32, lanes.const(math.inf, "f32"), y)
    y = lanes.select(lanes.b.pure(f"fcmp uno {f32} {x}, {x}", x), f32, x, y)
    return lanes.b.intrinsic("copysign", f32, y, x)


def _bf16_bits(lanes: Registers, x: str) -> str:
    """Return the bits of an f32 value that is exact in bfloat16."""
    bits = lanes.binary(
        "lshr", lanes.i32, lanes.convert("bitcast", lanes.f32, x, lanes.i32), _i(lanes, 16)
    )
    return lanes.convert("trunc", lanes.i32, bits, vector("i16", lanes.w))


def round_to_bf16_natively(lanes: Registers, xs: Sequence[str]) -> list[str]:
    """Round f32 values to bfloat16 bits with one instruction. It flushes subnormals, which a cold
    function rounds instead."""
    if not xs:
        return []
    b, short, helper = lanes.b, vector("i16", lanes.w), "weft.cold.bf16"
    if helper not in b.helpers:
        own = ScopedWriter()
        inner = Registers(own, lanes.target, lanes.w)
        bits = _bf16_bits(inner, _round_bf16(inner, "%x", any_nan=True))
        b.helpers[helper] = own.helper(
            helper, short, f"{lanes.f32} %x", bits, traits="cold noinline"
        )
    bfloat, where = vector("bfloat", lanes.w), ""
    b.declare("llvm.x86.avx512bf16.cvtneps2bf16.512", bfloat, lanes.f32)
    b.declare("llvm.x86.avx512.fpclass.ps.512", lanes.i1, lanes.f32, "i32")
    cases = []
    for x in xs:
        y = b.pure(f"call {bfloat} @llvm.x86.avx512bf16.cvtneps2bf16.512({lanes.f32} {x})", x)
        subnormal = b.pure(
            f"call {lanes.i1} @llvm.x86.avx512.fpclass.ps.512({lanes.f32} {x}, i32 32)", x
        )
        where = lanes.binary("or", lanes.i1, where, subnormal) if where else subnormal
        cases.append(
            (lanes.convert("bitcast", bfloat, y, short), f"call {short} @{helper}({lanes.f32} {x})")
        )
    return lanes.branch_on_rare_lanes(where, cases, short, *xs)


def _half_bits(lanes: Registers, x: str, short: str) -> str:
    """Return the bits of an f32 value that is exact in half precision."""
    f32, i32 = lanes.f32, lanes.i32
    bits = lanes.convert("bitcast", f32, x, i32)
    sign = lanes.binary(
        "and", i32, lanes.binary("lshr", i32, bits, _i(lanes, 16)), _i(lanes, 0x8000)
    )
    size = lanes.b.intrinsic("fabs", f32, x)
    # Multiplication by 2^-112 aligns the exponents and maps half-precision subnormals to f32
    # subnormals.
    scaled = lanes.binary("fmul", f32, size, lanes.const(2.0**-112, "f32"))
    small = lanes.binary("lshr", i32, lanes.convert("bitcast", f32, scaled, i32), _i(lanes, 13))
    infinite = lanes.b.pure(f"fcmp oeq {f32} {size}, {lanes.const(math.inf, 'f32')}", size)
    nan = lanes.b.pure(f"fcmp uno {f32} {x}, {x}", x)
    small = lanes.select(infinite, i32, _i(lanes, 0x7C00), small)
    small = lanes.select(nan, i32, _i(lanes, 0x7E00), small)
    return lanes.convert("trunc", i32, lanes.binary("or", i32, small, sign), short)


def _from_half_bits(lanes: Registers, x: str) -> str:
    f32, i32 = lanes.f32, lanes.i32
    bits = lanes.convert("zext", vector("i16", lanes.w), x, i32)
    sign = lanes.binary(
        "shl", i32, lanes.binary("and", i32, bits, _i(lanes, 0x8000)), _i(lanes, 16)
    )
    size = lanes.binary("and", i32, bits, _i(lanes, 0x7FFF))
    shifted = lanes.convert("bitcast", i32, lanes.binary("shl", i32, size, _i(lanes, 13)), f32)
    value = lanes.convert(
        "bitcast", f32, lanes.binary("fmul", f32, shifted, lanes.const(2.0**112, "f32")), i32
    )
    special = lanes.b.pure(f"icmp uge {i32} {size}, {_i(lanes, 0x7C00)}", size)
    wide = lanes.binary(
        "or", i32, lanes.binary("shl", i32, size, _i(lanes, 13)), _i(lanes, 0x7F800000)
    )
    value = lanes.select(special, i32, wide, value)
    return lanes.convert("bitcast", i32, lanes.binary("or", i32, value, sign), f32)


def round_odd(lanes: Registers, x: str) -> str:
    """Convert f64 to f32 by rounding to odd, so that rounding again to half is correct."""
    near = lanes.convert("fptrunc", lanes.f64, x, lanes.f32)
    back = lanes.convert("fpext", lanes.f32, near, lanes.f64)
    inexact = lanes.b.pure(f"fcmp one {lanes.f64} {back}, {x}", back, x)
    bits = lanes.convert("bitcast", lanes.f32, near, lanes.i32)
    away = lanes.b.pure(
        f"fcmp ogt {lanes.f64} {lanes.b.intrinsic('fabs', lanes.f64, back)}, "
        f"{lanes.b.intrinsic('fabs', lanes.f64, x)}",
        lanes.b.intrinsic("fabs", lanes.f64, back),
        lanes.b.intrinsic("fabs", lanes.f64, x),
    )
    down = lanes.select(away, lanes.i32, lanes.binary("sub", lanes.i32, bits, _i(lanes, 1)), bits)
    odd = lanes.binary("or", lanes.i32, down, _i(lanes, 1))
    return lanes.convert(
        "bitcast", lanes.i32, lanes.select(inexact, lanes.i32, odd, bits), lanes.f32
    )
