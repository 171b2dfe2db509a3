"""The state of a kernel during emission: names, lanes, masks and element addresses.

In:   a target.
Out:  registers and addresses; instructions are written to the builder `b`.
Laws: uniform values stay scalar until a register per part is required; i64 values that are affine
      in the vector variable stay symbolic. Modules for rare features (complex values, scans,
      strided loads) take an `Emission` and call its abstract methods.
Next: `expressions` evaluates, `kernel_emitter` adds statements.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, overload

from weft._engine.codegen.ir.scalar_types import MEMORY, REGISTER, mangle, vector
from weft._engine.codegen.ir.scoped_writer import ScopedWriter
from weft._engine.codegen.ir.values import (
    Affine,
    ComplexPair,
    EmittedValue,
    GatherOffset,
    Uniform,
    Varying,
    constant,
    leaves,
    map_parts,
)
from weft._engine.codegen.toolchain.target import CpuTarget
from weft._engine.codegen.vector.registers import literal
from weft._engine.codegen.vector.vector_ops import Lanes
from weft._engine.ir.loops import COMPLEX, ITEMSIZE, REAL_OF, Buf, Expr, Stmt, StoreElement

#: buffers with fewer elements are gathered from by 32-bit indices
_SHORT_SIZE = 1 << 30


class Emission:
    """Base class of the kernel emitter, without expressions and statements."""

    def __init__(self, target: CpuTarget):
        self.b = ScopedWriter()
        self.target = target
        self.env: dict[str, EmittedValue] = {}
        self.memo: dict[int, EmittedValue] = {}
        self.buffers: dict[str, Buf] = {}
        self.pure_buffers: set[str] = set()
        # offsets read by `strided_access`, by (scope, buffer, index, stride, width)
        self.strided: dict[tuple, list[int]] = {}
        self.tags: dict[str, str] = {}
        self.alias_tags: dict[str, str] = {}
        self._lanes: dict[int, Lanes] = {}
        self.scalar = self.lanes_of(1)
        # number of remaining iterations from the first lane on, if masks are set
        self.remaining: EmittedValue = constant(0)
        self.leave_vector_loop()
        self.outlined: Container[str] = frozenset()
        self.demands: dict[int, str] = {}
        self.has_nontemporal_stores = False  # True if some store bypasses the caches

    def leave_vector_loop(self) -> None:
        """Set the state outside of vector loops: one lane, no mask."""
        self.lanes = self.scalar
        self.parts = 1
        self.induction: EmittedValue = constant(0)
        self.masks: list[str | None] = [None]
        self.vectorized = False
        self.reducing: frozenset[str] = frozenset()
        self.scanned: frozenset[str] = frozenset()

    # --- methods of the derived classes

    def evaluate(self, expr: Expr) -> EmittedValue:
        """Return the value of an expression."""
        raise NotImplementedError

    def operate(
        self, op: str, args: list[EmittedValue], type_: str, demand: str = ""
    ) -> EmittedValue:
        """Apply an operation; `demand` names the half type if its precision suffices for the result."""
        raise NotImplementedError

    def body(self, stmts: Sequence[Stmt]) -> None:
        """Emit statements in a nested scope of names."""
        raise NotImplementedError

    def store_value(
        self,
        stmt: StoreElement,
        value: EmittedValue,
        index: EmittedValue,
        guard: EmittedValue | None,
    ) -> None:
        """Write a value, real or complex, as the options of `stmt` specify."""
        raise NotImplementedError

    def store_real(
        self,
        stmt: StoreElement,
        type_: str,
        size: int,
        value: EmittedValue,
        index: EmittedValue,
        guard: EmittedValue | None,
    ) -> None:
        """Write a real value."""
        raise NotImplementedError

    # --- values

    def lanes_of(self, width: int) -> Lanes:
        """The operations on `width` lanes."""
        lanes = self._lanes.get(width)
        if lanes is None:
            lanes = self._lanes[width] = Lanes(self.b, self.target, width)
        return lanes

    def constant(self, value: Any, type_: str) -> EmittedValue:
        """Return a literal; `type_` determines the Python type of the value."""
        if type_ == "i64":
            return constant(int(value))
        if type_ in COMPLEX:
            value, part = complex(value), REAL_OF[type_]
            return ComplexPair(
                type_, self.constant(value.real, part), self.constant(value.imag, part)
            )
        return Uniform(type_, literal(value, type_))

    def sum(self, x: EmittedValue, y: EmittedValue) -> EmittedValue:
        """Return the sum of uniform i64 values; constants are added last."""
        (first, a), (second, b) = self.split_constant(x), self.split_constant(y)
        if first is not None and second is not None:
            total = self.scalar.binary("add", "i64", first.parts[0], second.parts[0])
            first = Uniform("i64", total)
        return self._add_constant(second if first is None else first, a + b)

    def split_constant(self, x: EmittedValue) -> tuple[EmittedValue | None, int]:
        """Split a uniform i64 value into a variable part (None if constant) and a constant."""
        return (None, x.const) if x.const is not None else x.base_and_constant or (x, 0)

    def _add_constant(self, x: EmittedValue | None, more: int) -> EmittedValue:
        """Return the sum of a value without a constant term and a constant."""
        if x is None or not more:
            return constant(more) if x is None else x
        total = Uniform("i64", self.scalar.binary("add", "i64", x.parts[0], str(more)))
        total.base_and_constant = x, more
        return total

    def multiply_by_constant(self, x: EmittedValue, factor: int) -> EmittedValue:
        """Return a uniform, affine or offset i64 value times a constant."""
        if factor == 1:
            return x
        if factor == 0:
            return constant(0)
        if isinstance(x, Affine):
            return Affine(self.multiply_by_constant(x.base, factor), x.stride * factor)
        if isinstance(x, GatherOffset):
            return GatherOffset(
                self.multiply_by_constant(x.base, factor), x.stride * factor, x.parts
            )
        variable, more = self.split_constant(x)
        if variable is not None:
            variable = Uniform(
                "i64", self.scalar.binary("mul", "i64", variable.parts[0], str(factor))
            )
        return self._add_constant(variable, more * factor)

    # --- lanes

    def registers_of(self, x: EmittedValue) -> tuple[str, ...]:
        """Return the registers of a value, one per part of the vector loop."""
        if isinstance(x, Varying):
            return x.parts
        if isinstance(x, Affine):
            return self._affine_parts(x, "i64")
        if isinstance(x, GatherOffset):
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
        start = self.sum(x.base, self.multiply_by_constant(self.induction, x.stride)).parts[0]
        element, width = REGISTER[type_], self.lanes.w
        start = (
            self.scalar.cast(start, "i64", type_) if start[0] == "%" else literal(int(start), type_)
        )
        splat, vectors = self.lanes.splat(start, element), []
        for part in range(self.parts):
            steps = [literal(x.stride * (part * width + lane), type_) for lane in range(width)]
            ramp = (
                steps[0]
                if width == 1
                else f"<{', '.join([f'{element} {step}' for step in steps])}>"
            )
            vectors.append(self.lanes.binary("add", self.lanes.type(type_), splat, ramp))
        return tuple(vectors)

    def replicate_parts(self, value: EmittedValue) -> EmittedValue:
        """Return the same value with a register per part."""
        return map_parts(lambda x: Varying(x.type, self.registers_of(x)), value)

    def _any(self, guard: EmittedValue) -> EmittedValue:
        """Return the condition that a mask is set in any lane of any part."""
        lanes, (total, *others) = self.lanes, self.registers_of(guard)
        for part in others:
            total = lanes.binary("or", lanes.i1, total, part)
        return Uniform("bool", lanes.any(total))

    def reverse_lanes(self, x: str, type_: str) -> str:
        """Return the lanes of a vector in reverse order."""
        return self.b.shuffle(type_, x, "poison", range(self.lanes.w - 1, -1, -1))

    def lanes_below(self, splat: str, first: int = 0) -> str:
        """Return the mask of the lanes whose number plus `first` is below a splat i32 register."""
        ramp = ", ".join([f"i32 {first + lane}" for lane in range(self.lanes.w)])
        return self.b.pure(f"icmp slt {self.lanes.i32} <{ramp}>, {splat}", splat)

    def mask_of(self, part: int, cond: str | None) -> str | None:
        """Return the active lanes of a part, restricted to `cond` if given; None if all lanes are active."""
        mask = self.masks[part]
        return (
            mask if cond is None else cond if mask is None else self.lanes.logical_and(cond, mask)
        )

    def flatten(self, names: list[str]) -> list[tuple[str, str]]:
        """Return (LLVM type, register) for every register of the accumulators."""
        flat = []
        for name in names:
            for leaf in leaves(self.env[name]):
                type_ = (
                    self.lanes.type(leaf.type) if isinstance(leaf, Varying) else REGISTER[leaf.type]
                )
                flat += [(type_, part) for part in leaf.parts]
        return flat

    def unflatten(self, names: list[str], registers: Sequence[str]) -> None:
        """Replace the registers of the accumulators, in the order of `flatten`."""
        remaining = iter(registers)

        def renamed(old: EmittedValue) -> EmittedValue:
            if isinstance(old, Uniform):
                return Uniform(old.type, next(remaining))
            return Varying(old.type, tuple([next(remaining) for _ in old.parts]))

        for name in names:
            self.env[name] = map_parts(renamed, self.env[name])

    # --- memory

    def _select_index(
        self, guard: EmittedValue, index: EmittedValue, other: int = 0
    ) -> EmittedValue:
        return self.operate("select", [guard, index, constant(other)], "i64")

    @overload
    def clamp_index(self, guard: EmittedValue, index: Affine, size: int) -> Affine: ...
    @overload
    def clamp_index(self, guard: EmittedValue, index: EmittedValue, size: int) -> EmittedValue: ...
    def clamp_index(self, guard: EmittedValue, index: EmittedValue, size: int) -> EmittedValue:
        """Move the index into the buffer if a uniform guard is false.

        A masked load from an unmapped page is correct, but costs hundreds of cycles on some CPUs.
        """
        if not isinstance(guard, Uniform) or not isinstance(index, Affine):
            return index
        return Affine(
            self._select_index(guard, index.base, size - 1 if index.stride < 0 else 0), index.stride
        )

    def address(self, name: str, type_: str, index: EmittedValue) -> str:
        """Return a pointer to the element at a uniform index."""
        pointer, (variable, more) = self.tags[name], self.split_constant(index)
        if variable is not None:
            at = variable.parts[0]
            pointer = self.b.pure(
                f"getelementptr {MEMORY[type_]}, ptr {pointer}, i64 {at}", pointer, at
            )
        return self._shift(pointer, more * ITEMSIZE[type_])

    def _shift(self, pointer: str, nbytes: int) -> str:
        return (
            pointer
            if nbytes == 0
            else self.b.pure(f"getelementptr i8, ptr {pointer}, i64 {nbytes}", pointer)
        )

    def vector_address(self, name: str, type_: str, index: Affine, offset: int) -> str:
        """Return a pointer to element `index` of `offset` iterations later, for stride 1 or -1."""
        start, more = self.split_constant(index.base)
        pointer = self.tags[name] if start is None else self.address(name, type_, start)
        steps, further = self.split_constant(
            self.multiply_by_constant(self.induction, index.stride)
        )
        if steps is not None:
            at = steps.parts[0]
            pointer = self.b.pure(
                f"getelementptr {MEMORY[type_]}, ptr {pointer}, i64 {at}", pointer, at
            )
        return self._shift(pointer, (more + further + offset * index.stride) * ITEMSIZE[type_])

    def pointers(self, name: str, type_: str, index: EmittedValue, part: int) -> str:
        """Return a vector of element addresses."""
        memory, lanes = MEMORY[type_], self.lanes
        if not isinstance(index, (Affine, GatherOffset)) or self.buffers[name].size >= _SHORT_SIZE:
            where, base = self.registers_of(index)[part], self.tags[name]
            return self.b.pure(
                f"getelementptr {memory}, ptr {base}, {lanes.i64} {where}", base, where
            )
        start = index.base if isinstance(index, GatherOffset) else index
        stride = 0
        if isinstance(start, Affine):
            start, stride = (
                self.sum(start.base, self.multiply_by_constant(self.induction, start.stride)),
                start.stride,
            )
        steps = [f"i32 {stride * (part * lanes.w + lane)}" for lane in range(lanes.w)]
        where, base = f"<{', '.join(steps)}>", self.address(name, type_, start)
        if isinstance(index, GatherOffset):
            short = lanes.arithmetic(
                "mul", "i32", [index.parts[part], lanes.const(index.stride, "i32")]
            )
            short = index.parts[part] if index.stride == 1 else short
            where = lanes.arithmetic("add", "i32", [short, where]) if stride else short
        return self.b.pure(f"getelementptr {memory}, ptr {base}, {lanes.i32} {where}", base, where)

    def read(self, name: str, text: str, *operands: str) -> str:
        """Return a load; it is shared and hoisted if the kernel does not write the buffer."""
        if name in self.pure_buffers:
            return self.b.invariant_load(text, *operands)
        return self.b.let(text)

    def masked_load(
        self, name: str, memory: str, pointer: str, mask: str, size: int, width: int = 0
    ) -> str:
        """Load the lanes that `mask` selects; the others are zero."""
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
        self,
        memory: str,
        x: str,
        pointer: str,
        alignment_and_metadata: tuple[int, str],
        mask: str | None,
    ) -> None:
        """Store a vector, or the lanes that `mask` selects; `alignment_and_metadata` is the alignment and the
        buffer's alias metadata."""
        align, tag = alignment_and_metadata
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
        """Return the alias metadata of accesses to a buffer."""
        return self.alias_tags.get(name, "")
