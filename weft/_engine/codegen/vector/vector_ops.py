"""Operations of Loops on register values; the code is the same for one lane and for vectors.

In:   names of register values (half precision is held in float32 registers, rounded after each
      operation; bool is i1).
Out:  names of register values.
Laws: nothing traps: integer division by zero gives -1 (remainder: the dividend), the least integer
      divided by -1 is itself, shifts by the width or more give zero (or the sign), casts of floats
      to integers saturate and map NaN to 0. min and max propagate NaN.
Next: `half` rounds and stores half precision, `division` divides integers, `math` has the
      functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.codegen.ir.scalar_types import BITS, MEMORY, REGISTER, mangle, vector
from weft._engine.codegen.ir.scoped_writer import ScopedWriter
from weft._engine.codegen.vector.registers import (
    INTEGER_RANGE,
    Registers,
    float_bits,
    parse_integer,
    round_to,
)
from weft._engine.ir.loops import FLOATS, SIGNED, ScalarType

_HALVES = frozenset({"f16", "bf16"})


def _is_number(operand: str) -> bool:
    """Return whether an operand is a floating constant other than NaN."""
    return operand[0] != "%" and "0x7FF8" not in operand and "0xFFF8" not in operand


#: integer operation -> the equivalent operation on bools
_ON_BOOLS = {"add": "or", "mul": "and", "sub": "xor", "min": "and", "max": "or"}


class Lanes(Registers):
    """Emitter of the operations of Loops on `width` lanes at a time."""

    # --- registers and memory

    def round_to_type(self, x: str, type_: ScalarType) -> str:
        """Round a computed value to its type; only half precision needs it."""
        if type_ in _HALVES:
            from weft._engine.codegen.vector import half

            return half.round_to_half(self, x, type_, any_nan=False)
        return x

    def to_memory(self, x: str, type_: ScalarType) -> tuple[str, str]:
        """Return the (LLVM type, name) of a value in its memory type; a loaded value is returned as
        it was loaded."""
        memory, (stored,) = self.all_to_memory((x,), type_)
        return memory, stored

    def all_to_memory(self, xs: Sequence[str], type_: ScalarType) -> tuple[str, list[str]]:
        """Like `to_memory` for several values, whose rare cases share one branch."""
        if type_ == "bf16" and self.target.has_bf16 and self.w == 16:
            fresh = [x for x in xs if (x, type_) not in self._raw and x in self.unrounded]
            from weft._engine.codegen.vector import half

            at_once = dict(
                zip(fresh, half.round_to_bf16_natively(self, [self.unrounded[x] for x in fresh]))
            )
            return vector("i16", self.w), [at_once.get(x) or self._to_memory(x, type_) for x in xs]
        return vector(MEMORY[type_], self.w), [self._to_memory(x, type_) for x in xs]

    def _to_memory(self, x: str, type_: ScalarType) -> str:
        raw = self._raw.get((x, type_))
        if raw is not None:
            return raw
        if type_ == "bool":
            return self.convert("zext", self.i1, x, vector("i8", self.w))
        if type_ in _HALVES:
            from weft._engine.codegen.vector import half

            return half.to_memory(self, x, type_)
        return x

    def from_memory(self, x: str, type_: ScalarType) -> str:
        """Convert a loaded value to its register type."""
        register = self._from_memory(x, type_)
        self._raw[register, type_] = x
        return register

    def _from_memory(self, x: str, type_: ScalarType) -> str:
        if type_ == "bool":
            byte = vector("i8", self.w)
            return self.b.pure(f"icmp ne {byte} {x}, {self.splat_literal('0', 'i8')}", x)
        if type_ in _HALVES:
            from weft._engine.codegen.vector import half

            return half.from_memory(self, x, type_)
        return x

    # --- arithmetic

    def arithmetic(self, op: str, type_: ScalarType, args: list[str]) -> str:
        """Emit an op of `loops.ARITHMETIC` on values of one type."""
        if type_ in FLOATS:
            return self.round_to_type(self._float_op(op, self.type(type_), args), type_)
        return self._int_op(op, type_, args)

    def _float_op(self, op: str, t: str, args: list[str]) -> str:
        x = args[0]
        if op in ("add", "sub", "mul", "div"):
            return self.binary("f" + op, t, x, args[1])
        if op == "neg":
            return self.b.pure(f"fneg {t} {x}", x)
        if op == "abs":
            return self.b.intrinsic("fabs", t, x)
        if op in ("min", "max"):
            return self._float_extreme("olt" if op == "min" else "ogt", t, x, args[1])
        if op == "fma":
            return self._fuse(t, args)
        if op == "sign":
            one = self.splat_literal(float_bits(1.0), t.split(" x ")[-1].rstrip(">"))
            zero = self.b.pure(f"fcmp ueq {t} {x}, zeroinitializer", x)
            return self.select(zero, t, x, self.b.intrinsic("copysign", t, one, x))
        raise NotImplementedError(f"codegen: operation {op!r} on floats is not implemented")

    def _fuse(self, t: str, args: list[str]) -> str:
        if self.target.has_fma:
            return self.b.intrinsic("fma", t, *args)
        return self.per_lane("fma", "fma", t, *args) if t == self.f64 else self._fused_f32(args)

    def _fused_f32(self, args: list[str]) -> str:
        x, y, z = (self.convert("fpext", self.f32, arg, self.f64) for arg in args)
        total = self.binary("fadd", self.f64, self.binary("fmul", self.f64, x, y), z)
        return self.convert("fptrunc", self.f64, total, self.f32)

    def _float_extreme(self, order: str, t: str, x: str, y: str) -> str:
        # "x < y ? x : y" is one instruction, and y if either is NaN, so a constant must be x.
        if _is_number(y):
            x, y = y, x
        best = self.select(self.b.pure(f"fcmp {order} {t} {x}, {y}", x, y), t, x, y)
        if _is_number(x):
            return best
        return self.select(self.b.pure(f"fcmp uno {t} {x}, {x}", x), t, x, best)

    def _int_op(self, op: str, type_: ScalarType, args: list[str]) -> str:
        t, x = self.type(type_), args[0]
        if type_ == "bool":
            op = _ON_BOOLS.get(op, op)
        if op in ("add", "sub", "mul", "and", "or", "xor"):
            return self.binary(op, t, x, args[1])
        if op in ("div", "rem"):
            from weft._engine.codegen.vector import division

            return division.divide(self, op, type_, x, args[1])
        if op in ("min", "max"):
            order = ("s" if type_ in SIGNED else "u") + ("lt" if op == "min" else "gt")
            is_first = self.b.pure(f"icmp {order} {t} {x}, {args[1]}", x, args[1])
            return self.select(is_first, t, x, args[1])
        if op in ("shl", "shr_logical", "shr_arithmetic"):
            return self._shift(op, type_, x, args[1])
        if op == "fma":
            return self.binary("add", t, self.binary("mul", t, x, args[1]), args[2])
        return self._unary_int_op(op, type_, x)

    def _unary_int_op(self, op: str, type_: ScalarType, x: str) -> str:
        t = self.type(type_)
        if op == "neg":
            return self.binary("sub", t, "zeroinitializer" if self.w > 1 else "0", x)
        if op == "not":
            return self.binary("xor", t, x, self.const(True if type_ == "bool" else -1, type_))
        if op == "abs":
            if type_ not in SIGNED:
                return x
            negative = self.arithmetic("neg", type_, [x])
            return self.select(self.compare("lt", type_, x, self.const(0, type_)), t, negative, x)
        if op == "sign":
            is_some = self.compare("ne", type_, x, self.const(0, type_))
            positive = self.convert("zext", self.i1, is_some, t)
            if type_ not in SIGNED:
                return positive
            signs = self.binary("ashr", t, x, self.const(BITS[type_] - 1, type_))
            return self.binary("or", t, signs, positive)
        if op == "popcount":
            return self.b.intrinsic("ctpop", t, x)
        if op == "clz":
            name = f"llvm.ctlz.{'v' + str(self.w) if self.w > 1 else ''}{REGISTER[type_]}"
            self.b.declare(name, t, t, "i1")
            return self.b.pure(f"call {t} @{name}({t} {x}, i1 false)", x)
        raise NotImplementedError(f"codegen: operation {op!r} on {type_} is not implemented")

    def _shift(self, op: str, type_: ScalarType, x: str, y: str) -> str:
        t, width = self.type(type_), BITS[type_]
        count = parse_integer(y)
        if count is not None and 0 <= count < width:
            return self.binary(
                {"shl": "shl", "shr_logical": "lshr", "shr_arithmetic": "ashr"}[op], t, x, y
            )
        inside = self.b.pure(f"icmp ult {t} {y}, {self.const(width, type_)}", y)
        if op == "shr_arithmetic":
            return self.binary(
                "ashr", t, x, self.select(inside, t, y, self.const(width - 1, type_))
            )
        safe = self.select(inside, t, y, self.const(0, type_))
        shifted = self.binary("shl" if op == "shl" else "lshr", t, x, safe)
        return self.select(inside, t, shifted, self.const(0, type_))

    # --- conversions

    def cast(self, x: str, source: ScalarType, target: ScalarType) -> str:
        """Convert a value between real types."""
        if source == target:
            return x
        s, t = self.type(source), self.type(target)
        if target == "bool":
            if source in FLOATS:
                return self.b.pure(
                    f"fcmp une {s} {x}, zeroinitializer"
                    if self.w > 1
                    else f"fcmp une {s} {x}, 0.0",
                    x,
                )
            return self.b.pure(f"icmp ne {s} {x}, {self.const(0, source)}", x)
        if target in FLOATS:
            return self._to_float(x, source, target)
        if source in FLOATS and self.w > 1:
            return self._saturate(x, "f64" if source == "f64" else "f32", target)
        if source in FLOATS:
            low, high = mangle(t), mangle(s)
            name = f"llvm.fpto{'s' if target in SIGNED else 'u'}i.sat.{low}.{high}"
            self.b.declare(name, t, s)
            return self.b.pure(f"call {t} @{name}({s} {x})", x)
        if BITS[source] == BITS[target]:
            return x
        if BITS[source] > BITS[target]:
            return self.convert("trunc", s, x, t)
        return self.convert("sext" if source in SIGNED else "zext", s, x, t)

    def _saturate(self, x: str, source: ScalarType, target: ScalarType) -> str:
        # LLVM splits its own saturating conversions of vectors into scalar conversions.
        s, signed = self.type(source), target in SIGNED
        least, most = INTEGER_RANGE[target]
        # The largest float that converts; greater floats become `most`.
        below = (
            float(most) if round_to(float(most), source) == most else 2.0 ** (BITS[target] - signed)
        )
        exact = below == most
        if not exact:
            below -= 2.0 ** (BITS[target] - signed - (53 if source == "f64" else 24))
        y = self.select(self.b.pure(f"fcmp uno {s} {x}, {x}", x), s, self.const(0.0, source), x)
        for order, edge in (("ogt", below), ("olt", float(least))):
            limit = self.const(edge, source)
            y = self.select(self.b.pure(f"fcmp {order} {s} {y}, {limit}", y), s, limit, y)
        narrow = BITS[target] < 32
        int_type = self.type("i32" if narrow else target)
        y = self.convert("fptosi" if signed or narrow else "fptoui", s, y, int_type)
        if narrow:
            return self.convert("trunc", int_type, y, self.type(target))
        if exact:
            return y
        over = self.b.pure(f"fcmp ogt {s} {x}, {self.const(below, source)}", x)
        return self.select(over, int_type, self.const(most, target), y)

    def _to_float(self, x: str, source: ScalarType, target: ScalarType) -> str:
        s, t = self.type(source), self.type(target)
        if source not in FLOATS:
            return self.round_to_type(
                self.convert("sitofp" if source in SIGNED else "uitofp", s, x, t), target
            )
        if target in _HALVES:
            from weft._engine.codegen.vector import half

            return half.round_to_half(
                self, half.round_odd(self, x) if source == "f64" else x, target
            )
        if source == "f64":
            return self.convert("fptrunc", s, x, t)
        return self.convert("fpext", s, x, t) if target == "f64" else x

    def bitcast(self, x: str, source: ScalarType, target: ScalarType) -> str:
        """Reinterpret the bits of a value as another type of the same size."""
        memory, name = self.to_memory(x, source)
        raw = vector(f"i{max(8, BITS[target])}", self.w)
        name = self.convert("bitcast", memory, name, raw)
        if target == "bool":
            return self.b.pure(f"icmp ne {raw} {name}, {self.splat_literal('0', 'i8')}", name)
        element = {"f16": "half", "bf16": "i16"}.get(target, REGISTER[target])
        return self.from_memory(self.convert("bitcast", raw, name, vector(element, self.w)), target)

    # --- lanes through scalar functions

    def per_lane(self, label: str, function: str, t: str, *args: str) -> str:
        """Call the C double function `function` on every lane, through an outlined helper."""
        double = vector("double", self.w)
        if t != double:
            args = tuple(self.convert("fpext", t, arg, double) for arg in args)
        self.b.declare(function, "double", *(["double"] * len(args)))
        if self.w == 1:
            result = self.b.pure(
                f"call double @{function}({', '.join(f'double {arg}' for arg in args)})", *args
            )
        else:
            helper = lane_helper(self.b, label, function, self.w, len(args))
            listed = ", ".join(f"{double} {arg}" for arg in args)
            result = self.b.pure(f"call {double} @{helper}({listed})", *args)
        return result if t == double else self.convert("fptrunc", double, result, t)


def lane_helper(builder: ScopedWriter, label: str, function: str, width: int, arity: int) -> str:
    """Return the name of an internal function that applies a scalar C function to each lane; define
    it on first use."""
    name = f"weft.lanes.{label}.{width}"
    if name not in builder.helpers:
        own, v = ScopedWriter(), f"<{width} x double>"
        buffers = [own.let(f"alloca [{width} x double], align 64") for _ in range(arity)]
        for i, place in enumerate(buffers):
            own.do(f"store {v} %a{i}, ptr {place}, align 64")

        def body(lane: str) -> list[str]:
            places = [own.element("double", place, lane) for place in buffers]
            passed = ", ".join([f"double {own.read('double', place)}" for place in places])
            own.do(
                f"store double {own.let(f'call double @{function}({passed})')}, ptr {places[0]}, align 8"
            )
            return []

        own.loop_over_range("0", str(width), 1, body, (), runs_at_least_once=True)
        result = own.read(v, buffers[0], 64)
        builder.helpers[name] = own.helper(
            name, v, ", ".join([f"{v} %a{i}" for i in range(arity)]), result
        )
    return name
