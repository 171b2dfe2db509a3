"""Evaluation of Loops expressions into registers, scalar or several vectors wide.

In:   expressions, the environment of names, and the shape of the current vector loop (lanes, parts,
      masks).
Out:  `EmittedValue`s; instructions are written to the builder.
Laws: uniform operands are computed once as scalars; i64 expressions affine in the vector variable
      stay symbolic.
"""

from __future__ import annotations

from weft._engine.codegen.ir.scalar_types import MEMORY, REGISTER, mangle, vector
from weft._engine.codegen.ir.values import (
    Affine,
    ComplexPair,
    EmittedValue,
    GatherOffset,
    Uniform,
    Varying,
    constant,
    is_adjacent,
    leaves,
)
from weft._engine.codegen.kernel.emission import Emission
from weft._engine.codegen.vector import math as vector_math
from weft._engine.codegen.vector.registers import literal
from weft._engine.codegen.vector.vector_ops import Lanes
from weft._engine.ir.loops import (
    ARITHMETIC,
    COMPARISONS,
    COMPLEX,
    FLOATS,
    ITEMSIZE,
    REAL_OF,
    Const,
    Expr,
    Index,
    Load,
    ScalarOp,
    ScalarRef,
)
from weft._engine.ir.registry import functions

# thresholds, measured on several machines
#: loads with strides up to this use whole vectors and shuffles
_WIDEST_STRIDE = 8


_INDEX_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "rem", "neg"})
_LOGIC = frozenset({"and", "or", "not"})
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
#: largest constant term of an index whose difference with another index cannot wrap
_FARTHEST = 1 << 61
#: integer types whose values fit in i32
_SHORT = frozenset({"i8", "i16", "i32", "u8", "u16"})


class Expressions(Emission):
    """Emitter of expressions; `kernel_emitter.KernelEmitter` adds statements."""

    # --- evaluation

    def evaluate(self, expr: Expr) -> EmittedValue:
        """Return the value of an expression; an object shared in a statement is evaluated once."""
        value = self.memo.get(id(expr))
        if value is None:
            value = self.memo[id(expr)] = self._evaluate(expr)
        return value

    def _evaluate(self, expr: Expr) -> EmittedValue:
        if isinstance(expr, ScalarOp):
            return self.operate(
                expr.op,
                [self.evaluate(arg) for arg in expr.args],
                expr.type,
                self.demands.get(id(expr), ""),
            )
        if isinstance(expr, Load):
            return self.load(expr)
        if isinstance(expr, Const):
            return self.constant(expr.value, expr.type)
        if isinstance(expr, (Index, ScalarRef)):
            return self.env[expr.name]
        raise TypeError(f"codegen: not an expression: {expr!r}")

    def operate(
        self, op: str, args: list[EmittedValue], type_: str, demand: str = ""
    ) -> EmittedValue:
        """Apply an operation; `demand` names the half type if its precision suffices for the result."""
        if type_ in COMPLEX or any(isinstance(arg, ComplexPair) for arg in args):
            from weft._engine.codegen.kernel import complex as complex_ops

            return complex_ops.operate(self, op, args, type_)
        result = None
        if type_ == "i64":
            result = self._index_arithmetic(op, args)
        if result is None and op == "cast":
            result = self._cast(args[0], type_)
        if result is None and (op in COMPARISONS or op in ("min", "max")):
            result = self._operate_on_places(op, args, type_)
        if result is not None:
            return result
        if all(isinstance(arg, Uniform) for arg in args):
            names = [arg.parts[0] for arg in args]
            return Uniform(type_, self._lanewise(self.scalar, op, args, names, type_, demand))
        return self._operate_on_lanes(op, args, type_, demand)

    def _operate_on_places(
        self, op: str, args: list[EmittedValue], type_: str
    ) -> EmittedValue | None:
        """Compare indices, or take their minimum or maximum, in 32 bits; None if this is impossible."""
        shorts = self._as_i32_registers(args)
        if shorts is not None:
            operands: list[EmittedValue] = [Varying("i32", parts) for parts in shorts]
            if type_ == "bool":
                return self.operate(op, operands, "bool")
            return self._offset(self.operate(op, operands, "i32"))
        if op in COMPARISONS and all(map(self._is_near, args)):
            x, y = args
            if isinstance(x, Affine) and isinstance(y, Uniform):
                return self._compare_places(op, x, y)
            if isinstance(x, Uniform) and isinstance(y, Affine):
                return self._compare_places(_MIRRORED[op], y, x)
        return None

    def _operate_on_lanes(
        self, op: str, args: list[EmittedValue], type_: str, demand: str
    ) -> EmittedValue:
        """Apply an operation to the registers of each part."""
        columns = [self.registers_of(arg) for arg in args]
        lanes = self.lanes
        if op in self.outlined:
            rows = [list(row) for row in zip(*columns)]
            return Varying(
                type_, tuple(vector_math.call_outlined(lanes, op, args[0].type, rows, demand))
            )
        if self.parts > 1 and functions[op]:
            return Varying(type_, self._interleave_parts(op, args, columns, type_, demand))
        is_index_condition = op in _LOGIC and all(
            arg.is_index_condition or isinstance(arg, Uniform) for arg in args
        )
        parts = [self._lanewise(lanes, op, args, list(row), type_, demand) for row in zip(*columns)]
        return Varying(type_, tuple(parts), is_index_condition)

    def _interleave_parts(
        self,
        op: str,
        args: list[EmittedValue],
        columns: list[tuple[str, ...]],
        type_: str,
        demand: str,
    ) -> tuple[str, ...]:
        """Emit a long function for all parts with interleaved instructions, to overlap dependency chains."""
        lines, results, runs = self.b.scopes[-1].lines, [], []
        for row in zip(*columns):
            before = len(lines)
            results.append(self._lanewise(self.lanes, op, args, list(row), type_, demand))
            runs.append(lines[before:])
            del lines[before:]
        # Interleave up to the first branch, aligned at the end: later parts reuse values of the
        # first part and so have fewer lines.
        straight = [
            next((i for i, line in enumerate(run) if line.startswith("  br ")), len(run))
            for run in runs
        ]
        longest = max(straight)
        for at in range(-longest, 0):
            lines += [run[size + at] for run, size in zip(runs, straight) if size + at >= 0]
        for run, size in zip(runs, straight):
            lines += run[size:]
        return tuple(results)

    def _lanewise(
        self,
        lanes: Lanes,
        op: str,
        args: list[EmittedValue],
        names: list[str],
        type_: str,
        demand: str = "",
    ) -> str:
        if op in COMPARISONS:
            return lanes.compare(op, args[0].type, *names)
        function = functions["fmod" if op == "rem" and type_ in FLOATS else op]
        if function:
            return vector_math.call(lanes, function, args[0].type, names, demand)
        if op in ARITHMETIC:
            return lanes.arithmetic(op, type_, names)
        if op == "select":
            return lanes.select(names[0], lanes.type(type_), names[1], names[2])
        if op == "bitcast":
            return lanes.bitcast(names[0], args[0].type, type_)
        if op == "cast":
            return lanes.cast(names[0], args[0].type, type_)
        if op in ("real", "conj"):
            return names[0]
        if op == "imag":
            return lanes.const(0, type_)
        raise NotImplementedError(f"codegen: operation {op!r} on {args[0].type} is not implemented")

    def _offset(self, x: EmittedValue) -> EmittedValue:
        """Widen an i32 value to an i64 index."""
        return GatherOffset(constant(0), 1, x.parts)

    def _as_i32_registers(self, args: list[EmittedValue]) -> list[tuple[str, ...]] | None:
        """Return two i64 values as i32 registers if one is an i32 register and the other a constant
        that fits, else None."""
        registers = []
        for arg in args:
            if isinstance(arg, GatherOffset) and arg.stride == 1 and arg.base.const == 0:
                registers.append(arg.parts)
            elif arg.const is not None and abs(arg.const) < 1 << 31:
                registers.append((self.lanes.const(arg.const, "i32"),) * self.parts)
        is_mixed = sum(isinstance(arg, GatherOffset) for arg in args) == 1
        return registers if len(args) == len(registers) == 2 and is_mixed else None

    def _cast(self, x: EmittedValue, type_: str) -> EmittedValue:
        if (
            isinstance(x, Affine)
            and type_ in REGISTER
            and type_ not in ("f16", "bf16", "f32", "f64", "bool")
        ):
            return Varying(type_, self._affine_parts(x, type_))
        if isinstance(x, Uniform):
            if x.const is not None:
                return self.constant(x.const, type_)
            return Uniform(type_, self.scalar.cast(x.parts[0], x.type, type_))
        if type_ == "i64" and x.type in _SHORT:
            return self._offset(self._cast(x, "i32"))
        return Varying(
            type_, tuple([self.lanes.cast(part, x.type, type_) for part in self.registers_of(x)])
        )

    # --- index arithmetic

    def _index_arithmetic(self, op: str, args: list[EmittedValue]) -> EmittedValue | None:
        """Apply i64 add, sub or mul with constants folded and affine structure kept; None if impossible."""
        if op not in _INDEX_ARITHMETIC or any(isinstance(arg, Varying) for arg in args):
            return None
        x, y = args[0], args[-1]
        if op == "neg":
            return self.multiply_by_constant(x, -1)
        if op == "mul":
            if y.const is not None:
                return self.multiply_by_constant(x, y.const)
            return None if x.const is None else self.multiply_by_constant(y, x.const)
        if op in ("div", "rem"):
            return _constant_quotient(op, x.const, y.const)
        if op == "sub":
            if isinstance(x, Uniform) and isinstance(y, Uniform) and y.const is None:
                return None
            y = self.multiply_by_constant(y, -1)
        return self._index_sum(x, y)

    def _index_sum(self, x: EmittedValue, y: EmittedValue) -> EmittedValue | None:
        if isinstance(y, GatherOffset):
            if isinstance(x, GatherOffset):
                return None
            x, y = y, x
        if isinstance(x, GatherOffset):
            return GatherOffset(self.operate("add", [x.base, y], "i64"), x.stride, x.parts)
        if isinstance(x, Affine) and isinstance(y, Affine):
            base, stride = self.sum(x.base, y.base), x.stride + y.stride
            return Affine(base, stride) if stride else base
        if isinstance(x, Affine):
            return Affine(self.sum(x.base, y), x.stride)
        if isinstance(y, Affine):
            return Affine(self.sum(x, y.base), y.stride)
        return self.sum(x, y)

    def _is_near(self, x: EmittedValue) -> bool:
        """Return whether the constant term of an index is too small for a difference to wrap."""
        return abs(self.split_constant(x.base if isinstance(x, Affine) else x)[1]) <= _FARTHEST

    def _compare_places(self, op: str, x: Affine, y: Uniform) -> EmittedValue:
        """Compare an affine index with a uniform one: the lane steps with the clamped difference of
        the bases, in 32 bits."""
        width, scalar = self.lanes.w, self.scalar
        start = self.sum(x.base, self.multiply_by_constant(self.induction, x.stride))
        difference = self.operate("sub", [y, start], "i64")
        most = abs(x.stride) * width * self.parts
        if difference.const is not None:
            clamped = str(min(max(difference.const, -most), most))
        else:
            low = scalar.arithmetic("max", "i64", [difference.parts[0], str(-most)])
            clamped = scalar.convert(
                "trunc", "i64", scalar.arithmetic("min", "i64", [low, str(most)]), "i32"
            )
        splat, masks = self.lanes.splat(clamped, "i32"), []
        for part in range(self.parts):
            steps = [f"i32 {x.stride * (part * width + lane)}" for lane in range(width)]
            ramp = steps[0][4:] if width == 1 else f"<{', '.join(steps)}>"
            masks.append(self.lanes.compare(op, "i32", ramp, splat))
        return Varying("bool", tuple(masks), is_index_condition=True)

    # --- memory

    def load(self, expr: Load) -> EmittedValue:
        """Load an element of a buffer, or one per lane."""
        buf = self.buffers[expr.buf]
        index = self.evaluate(expr.index)
        guard = None if expr.guard is None else self.evaluate(expr.guard)
        other = None if expr.other is None else self.evaluate(expr.other)
        if buf.type in COMPLEX:
            if isinstance(index, Affine) and index.stride == 1 and buf.size:
                from weft._engine.codegen.kernel.complex_memory import load

                return load(self, buf, index, guard, other)
            real_type = REAL_OF[buf.type]
            halves = []
            rests = (None, None) if other is None else leaves(other)
            for offset, index_rest in enumerate(rests):
                at = self._index_arithmetic("add", [self._double_index(index), constant(offset)])
                at = at or self.operate("add", [self._double_index(index), constant(offset)], "i64")
                halves.append(self._load(expr.buf, real_type, 2 * buf.size, at, guard, index_rest))
            return ComplexPair(buf.type, *halves)
        return self._load(expr.buf, buf.type, buf.size, index, guard, other)

    def _double_index(self, index: EmittedValue) -> EmittedValue:
        if isinstance(index, Varying):
            return self.operate("mul", [index, constant(2)], "i64")
        return self.multiply_by_constant(index, 2)

    def _load(
        self,
        name: str,
        type_: str,
        size: int,
        index: EmittedValue,
        guard: EmittedValue | None,
        other: EmittedValue | None,
    ) -> EmittedValue:
        if guard is None or (isinstance(guard, Uniform) and guard.parts[0] == "true"):
            if isinstance(index, Uniform):
                return Uniform(type_, self._load_scalar(name, type_, index))
            parts = [
                self._load_part(name, type_, index, part, self.masks[part], None)
                for part in range(self.parts)
            ]
            return Varying(type_, tuple(parts))
        other = other or self.constant(0, type_)
        if size == 0:
            return other
        if isinstance(index, Uniform):
            cond = guard if isinstance(guard, Uniform) else self._any(guard)
            loaded = self._load_scalar(name, type_, self._select_index(cond, index))
            return self.operate("select", [guard, Uniform(type_, loaded), other], type_)
        return self._load_guarded(name, type_, self.clamp_index(guard, index, size), guard, other)

    def _load_guarded(
        self, name: str, type_: str, index: EmittedValue, guard: EmittedValue, other: EmittedValue
    ) -> EmittedValue:
        """Load the lanes selected by a guard; the others take the value `other`."""
        if self.lanes.w == 1:
            raise AssertionError("_load_guarded: without vector lanes every value must be Uniform")
        conds = self.registers_of(guard)
        # Lanes that are not loaded become zero.
        is_zero = other.parts[0] == literal(0, type_)
        fallbacks = (None,) * self.parts if is_zero else self.registers_of(other)
        masks = [self.mask_of(part, cond) for part, cond in enumerate(conds)]

        def emit() -> list[str]:
            return [
                self._load_part(name, type_, index, part, masks[part], fallbacks[part])
                for part in range(self.parts)
            ]

        if not guard.is_index_condition or not is_zero:
            return Varying(type_, tuple(emit()))
        # Load only if the guard holds in some lane: a load for no lane would still fetch cache
        # lines.
        cond = self._any(guard).parts[0]
        return Varying(type_, tuple(self.b.conditional(cond, emit, self.lanes.type(type_))))

    def _load_scalar(self, name: str, type_: str, index: EmittedValue) -> str:
        pointer = self.address(name, type_, index)
        size = min(ITEMSIZE[type_], 8)
        raw = self.read(
            name,
            f"load {MEMORY[type_]}, ptr {pointer}, align {size}{self.alias_tag(name)}",
            pointer,
        )
        return self.scalar.from_memory(raw, type_)

    def _load_part(
        self,
        name: str,
        type_: str,
        index: EmittedValue,
        part: int,
        mask: str | None,
        other: str | None,
    ) -> str:
        lanes, memory, size = (
            self.lanes,
            vector(MEMORY[type_], self.lanes.w),
            min(ITEMSIZE[type_], 8),
        )
        tag = self.alias_tag(name)
        first = part * lanes.w
        if is_adjacent(index):
            reverse = index.stride == -1
            pointer = self.vector_address(
                name, type_, index, first + (lanes.w - 1 if reverse else 0)
            )
            if mask is None:
                raw = self.read(name, f"load {memory}, ptr {pointer}, align {size}{tag}", pointer)
            else:
                raw = self.masked_load(
                    name,
                    memory,
                    pointer,
                    self.reverse_lanes(mask, lanes.i1) if reverse else mask,
                    size,
                )
            if reverse:
                raw = self.reverse_lanes(raw, memory)
        elif (
            isinstance(index, Affine)
            and mask is self.masks[part]
            and other is None
            and 2 <= index.stride <= min(_WIDEST_STRIDE, lanes.w)
        ):
            from weft._engine.codegen.kernel import strided_access

            raw = strided_access.load(self, name, type_, index, part)
        else:
            raw = self._gather(name, type_, memory, index, part, mask, size)
        value = lanes.from_memory(raw, type_)
        return (
            value
            if mask is None or other is None
            else lanes.select(mask, lanes.type(type_), value, other)
        )

    def _gather(
        self,
        name: str,
        type_: str,
        memory: str,
        index: EmittedValue,
        part: int,
        mask: str | None,
        size: int,
    ) -> str:
        lanes = self.lanes
        pointers = self.pointers(name, type_, index, part)
        several = f"<{lanes.w} x ptr>"
        called = f"llvm.masked.gather.{mangle(memory)}.v{lanes.w}p0"
        self.b.declare(called, memory, several, "i32", lanes.i1, memory)
        mask = mask or lanes.splat_literal("true", "i1")
        return self.read(
            name,
            f"call {memory} @{called}({several} {pointers}, i32 {size}, {lanes.i1} {mask}, "
            f"{memory} zeroinitializer){self.alias_tag(name)}",
            pointers,
            mask,
        )


def _constant_quotient(op: str, x: int | None, y: int | None) -> EmittedValue | None:
    """Fold the truncating division of known integers, or its remainder."""
    if x is None or not y:
        return None
    quotient = abs(x) // abs(y)
    quotient = quotient if (x < 0) == (y < 0) else -quotient
    return constant(quotient if op == "div" else x - quotient * y)
