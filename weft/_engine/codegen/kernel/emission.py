"""The state of a kernel while it is emitted: names, lanes, masks, and where elements are in memory.

In:   a target.
Out:  registers and addresses; instructions go to the builder.
Laws: uniform values stay scalar until a register per part is asked for; i64 values affine in the vector variable stay symbolic.
      What few kernels need (complex values, scans, strided loads) takes an `Emission` and calls its abstract methods.
Next: `expressions` evaluates, `kernel_emitter` adds statements.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, overload

from weft._engine.codegen.ir.scalar_types import MEMORY, REGISTER, mangle, vector
from weft._engine.codegen.ir.scoped_writer import ScopedWriter
from weft._engine.codegen.ir.values import (
    Affine,
    Offset,
    Pair,
    Uniform,
    Value,
    Varying,
    constant,
    each,
    leaves,
)
from weft._engine.codegen.toolchain.target import Target
from weft._engine.codegen.vector.registers import literal
from weft._engine.codegen.vector.vector_ops import Lanes
from weft._engine.ir.loops import COMPLEX, ITEMSIZE, REAL_OF, Buf, Expr, Stmt, Store

#: buffers shorter than this are gathered from by 32-bit indices
_SHORT_SIZE = 1 << 30


class Emission:
    """What emits a kernel, without the expressions and statements themselves."""

    def __init__(self, target: Target):
        self.b = ScopedWriter()
        self.target = target
        self.env: dict[str, Value] = {}
        self.memo: dict[int, Value] = {}
        self.buffers: dict[str, Buf] = {}
        self.pure_buffers: set[str] = set()
        self.strided: dict[
            tuple, list[int]
        ] = {}  # offsets that `strided_access` has read: by scope, buffer, index, stride, width
        self.tags: dict[str, str] = {}
        self.alias_tags: dict[str, str] = {}
        self._lanes: dict[int, Lanes] = {}
        self.scalar = self.lanes_of(1)
        self.left: Value = constant(0)  # iterations from the first lane on, where there are masks
        self.leave_vector_loop()
        self.outlined: Container[str] = frozenset()
        self.demands: dict[int, str] = {}
        self.streamed = False  # whether some store bypasses the caches

    def leave_vector_loop(self) -> None:
        """Set the state outside of vector loops: one lane, not masked."""
        self.lanes = self.scalar
        self.parts = 1
        self.induction: Value = constant(0)
        self.masks: list[str | None] = [None]
        self.vectorized = False
        self.reducing: frozenset[str] = frozenset()
        self.scanned: frozenset[str] = frozenset()

    # --- what the classes above this one do

    def evaluate(self, expr: Expr) -> Value:
        """The value of an expression."""
        raise NotImplementedError

    def operate(self, op: str, args: list[Value], type_: str, demand: str = "") -> Value:
        """Apply an operation to values; `demand` is a half type where the result needs no more bits."""
        raise NotImplementedError

    def body(self, stmts: Sequence[Stmt]) -> None:
        """Emit statements in a scope of names."""
        raise NotImplementedError

    def store_value(self, stmt: Store, value: Value, index: Value, guard: Value | None) -> None:
        """Write a value, real or complex, where `stmt` says how."""
        raise NotImplementedError

    def store_real(
        self, stmt: Store, type_: str, size: int, value: Value, index: Value, guard: Value | None
    ) -> None:
        """Write a real value."""
        raise NotImplementedError

    # --- values

    def lanes_of(self, width: int) -> Lanes:
        """The operations on `width` lanes."""
        made = self._lanes.get(width)
        if made is None:
            made = self._lanes[width] = Lanes(self.b, self.target, width)
        return made

    def constant(self, value: Any, type_: str) -> Value:
        """A literal; `type_` determines the Python type of the value."""
        if type_ == "i64":
            return constant(int(value))
        if type_ in COMPLEX:
            value, part = complex(value), REAL_OF[type_]
            return Pair(type_, self.constant(value.real, part), self.constant(value.imag, part))
        return Uniform(type_, literal(value, type_))

    def sum(self, x: Value, y: Value) -> Value:
        """Sum of uniform i64 values; constants are added last."""
        (first, a), (second, b) = self.apart(x), self.apart(y)
        if first is not None and second is not None:
            total = self.scalar.binary("add", "i64", first.parts[0], second.parts[0])
            first = Uniform("i64", total)
        return self._more(second if first is None else first, a + b)

    def apart(self, x: Value) -> tuple[Value | None, int]:
        """What varies of a uniform i64 value, and a constant."""
        return (None, x.const) if x.const is not None else x.sum_of or (x, 0)

    def _more(self, x: Value | None, more: int) -> Value:
        """A value without a constant of its own, and a constant."""
        if x is None or not more:
            return constant(more) if x is None else x
        made = Uniform("i64", self.scalar.binary("add", "i64", x.parts[0], str(more)))
        made.sum_of = x, more
        return made

    def scaled(self, x: Value, factor: int) -> Value:
        """A uniform, affine or offset i64 value times a constant."""
        if factor == 1:
            return x
        if factor == 0:
            return constant(0)
        if isinstance(x, Affine):
            return Affine(self.scaled(x.base, factor), x.stride * factor)
        if isinstance(x, Offset):
            return Offset(self.scaled(x.base, factor), x.stride * factor, x.parts)
        rest, more = self.apart(x)
        if rest is not None:
            rest = Uniform("i64", self.scalar.binary("mul", "i64", rest.parts[0], str(factor)))
        return self._more(rest, more * factor)

    # --- lanes

    def spread(self, x: Value) -> tuple[str, ...]:
        """The registers of a value, one per part of the vector loop."""
        if isinstance(x, Varying):
            return x.parts
        if isinstance(x, Affine):
            return self._affine_parts(x, "i64")
        if isinstance(x, Offset):
            wide = Varying("i64", tuple([self.lanes.cast(part, "i32", "i64") for part in x.parts]))
            scaled = (
                wide if x.stride == 1 else self.operate("mul", [wide, constant(x.stride)], "i64")
            )
            return (
                scaled.parts
                if x.base.const == 0
                else self.operate("add", [x.base, scaled], "i64").parts
            )
        if self.lanes.w == 1:
            return x.parts * self.parts
        return (self.lanes.splat(x.parts[0], REGISTER[x.type]),) * self.parts

    def _affine_parts(self, x: Affine, type_: str) -> tuple[str, ...]:
        """Vectors of `base + stride * iteration` in an integer type (wrapping, as a cast would)."""
        start = self.sum(x.base, self.scaled(self.induction, x.stride)).parts[0]
        element, width = REGISTER[type_], self.lanes.w
        start = (
            self.scalar.cast(start, "i64", type_) if start[0] == "%" else literal(int(start), type_)
        )
        splat, made = self.lanes.splat(start, element), []
        for part in range(self.parts):
            steps = [literal(x.stride * (part * width + lane), type_) for lane in range(width)]
            ramp = (
                steps[0]
                if width == 1
                else f"<{', '.join([f'{element} {step}' for step in steps])}>"
            )
            made.append(self.lanes.binary("add", self.lanes.type(type_), splat, ramp))
        return tuple(made)

    def widened(self, value: Value) -> Value:
        """The same value with a register per part."""
        return each(lambda x: Varying(x.type, self.spread(x)), value)

    def _any(self, guard: Value) -> Value:
        """Whether a mask holds in any lane of any part."""
        lanes, (total, *others) = self.lanes, self.spread(guard)
        for part in others:
            total = lanes.binary("or", lanes.i1, total, part)
        return Uniform("bool", lanes.any(total))

    def reversed(self, x: str, type_: str) -> str:
        """The lanes of a vector in backward order."""
        return self.b.shuffle(type_, x, "poison", range(self.lanes.w - 1, -1, -1))

    def lanes_below(self, splat: str, first: int = 0) -> str:
        """The mask of the lanes whose number, from `first` on, is below that in all lanes of a register of i32."""
        ramp = ", ".join([f"i32 {first + lane}" for lane in range(self.lanes.w)])
        return self.b.pure(f"icmp slt {self.lanes.i32} <{ramp}>, {splat}", splat)

    def mask_of(self, part: int, cond: str | None) -> str | None:
        """The lanes of a part that take part in the iteration, and for which a condition holds."""
        mask = self.masks[part]
        return mask if cond is None else cond if mask is None else self.lanes.both(cond, mask)

    def flatten(self, names: list[str]) -> list[tuple[str, str]]:
        """(LLVM type, register) of every register the accumulators occupy."""
        flat = []
        for name in names:
            for leaf in leaves(self.env[name]):
                type_ = (
                    self.lanes.type(leaf.type) if isinstance(leaf, Varying) else REGISTER[leaf.type]
                )
                flat += [(type_, part) for part in leaf.parts]
        return flat

    def unflatten(self, names: list[str], registers: Sequence[str]) -> None:
        """Give the accumulators new registers, in the order of `_flatten`."""
        rest = iter(registers)

        def renamed(old: Value) -> Value:
            if isinstance(old, Uniform):
                return Uniform(old.type, next(rest))
            return Varying(old.type, tuple([next(rest) for _ in old.parts]))

        for name in names:
            self.env[name] = each(renamed, self.env[name])

    # --- memory

    def _where(self, guard: Value, index: Value, other: int = 0) -> Value:
        return self.operate("select", [guard, index, constant(other)], "i64")

    @overload
    def inside(self, guard: Value, index: Affine, size: int) -> Affine: ...
    @overload
    def inside(self, guard: Value, index: Value, size: int) -> Value: ...
    def inside(self, guard: Value, index: Value, size: int) -> Value:
        """The index, led into the buffer where one guard forbids all lanes: masked loads of pages that are not there are
        right, but cost some CPUs hundreds of cycles."""
        if not isinstance(guard, Uniform) or not isinstance(index, Affine):
            return index
        return Affine(
            self._where(guard, index.base, size - 1 if index.stride < 0 else 0), index.stride
        )

    def address(self, name: str, type_: str, index: Value) -> str:
        """Pointer to the element at a uniform index."""
        pointer, (rest, more) = self.tags[name], self.apart(index)
        if rest is not None:
            at = rest.parts[0]
            pointer = self.b.pure(
                f"getelementptr {MEMORY[type_]}, ptr {pointer}, i64 {at}", pointer, at
            )
        return self._shifted(pointer, more * ITEMSIZE[type_])

    def _shifted(self, pointer: str, nbytes: int) -> str:
        return (
            pointer
            if nbytes == 0
            else self.b.pure(f"getelementptr i8, ptr {pointer}, i64 {nbytes}", pointer)
        )

    def vector_address(self, name: str, type_: str, index: Affine, offset: int) -> str:
        """Pointer to element `index + offset iterations` of an affine index with stride one or minus one."""
        start, more = self.apart(index.base)
        pointer = self.tags[name] if start is None else self.address(name, type_, start)
        steps, further = self.apart(self.scaled(self.induction, index.stride))
        if steps is not None:
            at = steps.parts[0]
            pointer = self.b.pure(
                f"getelementptr {MEMORY[type_]}, ptr {pointer}, i64 {at}", pointer, at
            )
        return self._shifted(pointer, (more + further + offset * index.stride) * ITEMSIZE[type_])

    def pointers(self, name: str, type_: str, index: Value, part: int) -> str:
        """A vector of element addresses."""
        memory, lanes = MEMORY[type_], self.lanes
        if not isinstance(index, (Affine, Offset)) or self.buffers[name].size >= _SHORT_SIZE:
            where, base = self.spread(index)[part], self.tags[name]
            return self.b.pure(
                f"getelementptr {memory}, ptr {base}, {lanes.i64} {where}", base, where
            )
        start = index.base if isinstance(index, Offset) else index
        stride = 0
        if isinstance(start, Affine):
            start, stride = (
                self.sum(start.base, self.scaled(self.induction, start.stride)),
                start.stride,
            )
        steps = [f"i32 {stride * (part * lanes.w + lane)}" for lane in range(lanes.w)]
        where, base = f"<{', '.join(steps)}>", self.address(name, type_, start)
        if isinstance(index, Offset):
            short = lanes.arithmetic(
                "mul", "i32", [index.parts[part], lanes.const(index.stride, "i32")]
            )
            short = index.parts[part] if index.stride == 1 else short
            where = lanes.arithmetic("add", "i32", [short, where]) if stride else short
        return self.b.pure(f"getelementptr {memory}, ptr {base}, {lanes.i32} {where}", base, where)

    def read(self, name: str, text: str, *operands: str) -> str:
        """A load: shared and hoisted when nobody writes the buffer."""
        if name in self.pure_buffers:
            return self.b.invariant_load(text, *operands)
        return self.b.let(text)

    def masked_load(
        self, name: str, memory: str, pointer: str, mask: str, size: int, width: int = 0
    ) -> str:
        """The elements in lanes that the mask holds, zeros in the others."""
        bits, called = vector("i1", width or self.lanes.w), f"llvm.masked.load.{mangle(memory)}.p0"
        self.b.declare(called, memory, "ptr", "i32", bits, memory)
        return self.read(
            name,
            f"call {memory} @{called}(ptr {pointer}, i32 {size}, {bits} {mask}, "
            f"{memory} zeroinitializer){self.alias_tag(name)}",
            pointer,
            mask,
        )

    def write(
        self, memory: str, x: str, pointer: str, rest: tuple[int, str], mask: str | None
    ) -> None:
        """Store a vector, of which a mask may leave lanes; `rest`: the alignment, and the metadata of the buffer."""
        align, tag = rest
        if mask is None:
            self.b.do(f"store {memory} {x}, ptr {pointer}, align {align}{tag}")
            return
        bits, called = (
            f"<{memory[1 : memory.index(' ')]} x i1>",
            f"llvm.masked.store.{mangle(memory)}.p0",
        )
        self.b.declare(called, "void", memory, "ptr", "i32", bits)
        self.b.do(
            f"call void @{called}({memory} {x}, ptr {pointer}, i32 {align}, {bits} {mask}){tag}"
        )

    def alias_tag(self, name: str) -> str:
        """Metadata that says which buffer an access is in."""
        return self.alias_tags.get(name, "")
