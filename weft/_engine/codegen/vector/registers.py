"""Registers: constants, moves, masks and single instructions, on one lane or a vector of lanes.

In:   names of register values.
Out:  names of register values; instructions are written to the builder.
Next: `vector_ops` has the operations of Loops; `half` and `division` use the instructions of this
      module.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from weft._engine.codegen.ir.scalar_types import BITS, REGISTER, vector
from weft._engine.codegen.ir.scoped_writer import ScopedWriter
from weft._engine.codegen.toolchain.target import CpuTarget
from weft._engine.ir.loops import FLOATS, SIGNED, UNSIGNED, ScalarType

_ORDERED = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
INTEGER_RANGE = {name: (-(1 << BITS[name] - 1), (1 << BITS[name] - 1) - 1) for name in SIGNED}
INTEGER_RANGE |= {name: (0, (1 << BITS[name]) - 1) for name in UNSIGNED}


def float_bits(value: float) -> str:
    """Return an LLVM literal that is exactly `value` (a double, or an f32 value written as double).

    >>> float_bits(1.0)
    '0x3FF0000000000000'
    """
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def round_to(value: float, type_: ScalarType) -> float:
    """Return `value` rounded to a floating type, as a Python float."""
    if type_ == "f64":
        return float(value)
    with np.errstate(over="ignore"):
        if type_ == "f32":
            return float(np.float32(value))
        if type_ == "f16":
            return float(np.float16(value))
    import ml_dtypes

    return float(ml_dtypes.bfloat16(value))


def literal(value: float, type_: ScalarType) -> str:
    """Return the LLVM literal of a scalar constant in its register type."""
    if type_ == "bool":
        return "true" if value else "false"
    if type_ in FLOATS:
        return float_bits(round_to(value, type_))
    bits = BITS[type_]
    number = int(value) & ((1 << bits) - 1)
    return str(number - (1 << bits) if number >> (bits - 1) else number)


def parse_integer(operand: str) -> int | None:
    """Return the integer value of a literal operand or a splat of one; None for other operands.

    >>> parse_integer("-7"), parse_integer("splat (i32 13)"), parse_integer("%v7")
    (-7, 13, None)
    """
    if operand[0] == "s":
        operand = operand[operand.index(" ", 6) + 1 : -1]
    return int(operand) if operand[0] in "-0123456789" and not operand.startswith("0x") else None


class Registers:
    """Emitter of single instructions on `width` lanes at a time."""

    def __init__(self, builder: ScopedWriter, target: CpuTarget, width: int):
        self.b = builder
        self.target = target
        self.w = width
        self._raw: dict[tuple[str, str], str] = {}
        # bfloat16 register -> the register of the value before rounding
        self.unrounded: dict[str, str] = {}
        self.f32 = vector("float", width)
        self.f64 = vector("double", width)
        self.i32 = vector("i32", width)
        self.i64 = vector("i64", width)
        self.i1 = vector("i1", width)

    def type(self, scalar: ScalarType) -> str:
        """Return the register type of `width` values of a scalar type."""
        return vector(REGISTER[scalar], self.w)

    # --- constants and moves

    def const(self, value: float, scalar: ScalarType) -> str:
        """Return the operand text of a constant in every lane."""
        return self.splat_literal(literal(value, scalar), REGISTER[scalar])

    def splat_literal(self, text: str, element: str) -> str:
        """Return the operand text of a scalar literal in every lane."""
        return text if self.w == 1 else f"splat ({element} {text})"

    def splat(self, name: str, element: str) -> str:
        """Return a scalar (name or literal) in every lane."""
        if self.w == 1:
            return name
        if name[0] != "%":
            return f"splat ({element} {name})"
        type_ = vector(element, self.w)
        one = self.b.pure(f"insertelement {type_} poison, {element} {name}, i32 0", name)
        return self.b.pure(
            f"shufflevector {type_} {one}, {type_} poison, <{self.w} x i32> zeroinitializer", one
        )

    def binary(self, instruction: str, type_: str, x: str, y: str) -> str:
        """Emit an instruction with two operands."""
        return self.b.pure(f"{instruction} {type_} {x}, {y}", x, y)

    def select(self, cond: str, type_: str, x: str, y: str) -> str:
        """Choose x or y lanewise."""
        if x == y:
            return x
        return self.b.pure(f"select {self.i1} {cond}, {type_} {x}, {type_} {y}", cond, x, y)

    def convert(self, instruction: str, source: str, x: str, target: str) -> str:
        """Emit a conversion instruction (`zext`, `sitofp`, `bitcast`, ...)."""
        if source == target:
            return x
        return self.b.pure(f"{instruction} {source} {x} to {target}", x)

    def logical_and(self, x: str, y: str) -> str:
        """Return the logical and of two masks."""
        return self.binary("and", self.i1, x, y)

    def compare(self, op: str, type_: ScalarType, x: str, y: str) -> str:
        """Emit an op of `loops.COMPARISONS`; return a mask."""
        t = self.type(type_)
        if type_ in FLOATS:
            return self.b.pure(f"fcmp {_ORDERED[op]} {t} {x}, {y}", x, y)
        sign = "" if op in ("eq", "ne") else "s" if type_ in SIGNED else "u"
        return self.b.pure(f"icmp {sign}{op} {t} {x}, {y}", x, y)

    def opaque_mask(self, count: int) -> str:
        """Return the mask of the first `count` lanes, hidden from LLVM's optimizations.

        LLVM combines a masked store of a truncated vector, if only one lane is known to be set,
        into a scalar store of the type before truncation, which writes too many bytes.
        """
        width = max(8, self.w)
        bits = self.b.pure(
            f'call i{width} asm "", "=r,0"(i{width} {literal((1 << count) - 1, f"i{width}")})'
        )
        mask = self.b.pure(f"bitcast i{width} {bits} to <{width} x i1>", bits)
        if width == self.w:
            return mask
        return self.b.shuffle(f"<{width} x i1>", mask, "poison", range(self.w))

    def fma(self, type_: str, x: str, y: str, z: str) -> str:
        """Return x * y + z, rounded once on machines with fused multiply-add, else twice."""
        if self.target.has_fma:
            return self.b.intrinsic("fma", type_, x, y, z)
        return self.binary("fadd", type_, self.binary("fmul", type_, x, y), z)

    def branch_on_rare_lanes(
        self, where: str, cases: Sequence[tuple[str, str]], type_: str, *operands: str
    ) -> list[str]:
        """Return the first value of each case, or the result of its call if the mask `where` has a
        lane set; almost free if none is."""
        b = self.b
        level = max(
            b.hoist_limit,
            *[b.level_of.get(name, 0) for name in (where, *[y for y, _ in cases], *operands)],
        )
        table, keys = b.scopes[level].table, [f"{where} {y} {call}" for y, call in cases]
        if keys[0] not in table:
            others, emit = [y for y, _ in cases], lambda: [b.let(call) for _, call in cases]
            table.update(
                zip(
                    keys,
                    b.conditional(self.any(where), emit, type_, others, level, is_unlikely=True),
                )
            )
        return [table[key] for key in keys]

    def any(self, mask: str) -> str:
        """Return the condition that a mask is set in any lane."""
        if self.w == 1:
            return mask
        bits = self.b.pure(f"bitcast {self.i1} {mask} to i{self.w}", mask)
        return self.b.pure(f"icmp ne i{self.w} {bits}, 0", bits)
