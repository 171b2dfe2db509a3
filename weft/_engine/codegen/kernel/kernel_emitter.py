"""Translation of kernels to LLVM IR: statements, loops and accumulators.

In:   `Kernel`s and a `CpuTarget`.
Out:  `module_ir`, the text of one module with a `void <symbol>(ptr ctx, i64 task, i64 worker)` per
      kernel; `ctx` is an array of the buffers' addresses in order.
Laws: a `vector` loop runs several vectors per iteration, then a masked or scalar remainder; every
      size is correct. An accumulator declared outside a vector loop becomes one vector accumulator
      per part, combined after the loop.
Next: `expressions` evaluates, `vector_ops` holds the operations, `scoped_writer` places
      instructions. `horizontal_reduction`, `structured_branches`, `nontemporal`, `complex_memory`,
      `vector_scan`, `register_transpose` and `compress_store` emit rare statements and are imported
      on first use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft._engine.codegen.ir.scalar_types import MEMORY, mangle, vector
from weft._engine.codegen.ir.values import (
    Affine,
    EmittedValue,
    Uniform,
    Varying,
    constant,
    is_adjacent,
    leaves,
    map_parts,
)
from weft._engine.codegen.kernel.expressions import Expressions
from weft._engine.codegen.kernel.horizontal_reduction import fold_accumulator, neutral
from weft._engine.codegen.kernel.precision_demand import demands_of
from weft._engine.codegen.kernel.vectorization_plan import (
    VectorizationPlan,
    assigned_accumulators,
    consists_mostly_of_calls,
    plan_of,
    repeated_math,
    upper_bound,
)
from weft._engine.codegen.toolchain.target import CpuTarget
from weft._engine.ir import loops

# thresholds, measured on several machines
#: scratch buffers up to this size are on the thread's stack
_STACK_SCRATCH_BYTES = 1 << 16


_METADATA = '!0 = !{!0}\n!1 = !{i32 1}\n!2 = !{!"branch_weights", i32 1, i32 100000}'
#: added to `len(metadata)` for the first free node number; `_METADATA` is one entry and defines
#: nodes 0 to 2
_FIRST_METADATA = 9


def module_ir(kernels: Iterable[tuple[loops.LoopsKernel, str]], target: CpuTarget) -> str:
    """Return one LLVM module of several kernels, each under its own symbol."""
    declarations: dict[str, str] = {}
    helpers: dict[str, str] = {}
    functions, metadata = [], [_METADATA]
    for kernel, symbol in kernels:
        emitter = KernelEmitter(kernel, symbol, target, len(metadata) + _FIRST_METADATA)
        functions.append(emitter.function())
        declarations |= emitter.b.declarations
        helpers |= emitter.b.helpers
        metadata += emitter.metadata
    # Without stack alignment, spilled vectors straddle cache lines. Attributes that repeat the
    # machine's features are omitted: LLVM builds and keeps its CPU tables anew for each set of such
    # attributes.
    attributes = f"attributes #0 = {{ nounwind alignstack={target.vector_bytes} }}"
    return "\n".join(
        [*declarations.values(), *helpers.values(), *functions, attributes, *metadata, ""]
    )


class KernelEmitter(Expressions):
    """Emitter of one kernel."""

    def __init__(
        self, kernel: loops.LoopsKernel, symbol: str, target: CpuTarget, first_metadata: int = 0
    ):
        super().__init__(target)
        self.first_metadata = first_metadata
        self.kernel = kernel
        self.symbol = symbol
        self.metadata: list[str] = []
        self.heap: str | None = None

    # --- the function

    def function(self) -> str:
        """Return the text of the kernel's function."""
        self._bind_buffers()
        body = self.kernel.body
        self.outlined, self.demands = repeated_math(body), demands_of(self.kernel)
        loop = self.kernel.parallel_loop
        if loop is not None:
            self.env[loop.var] = Uniform("i64", "%task")
            body = loop.body
        self.body(body)
        if self.heap:
            self.b.declare("weft_scratch_give", "void", "ptr")
            self.b.do(f"call void @weft_scratch_give(ptr {self.heap})")
        if self.has_nontemporal_stores:
            # nontemporal stores need a fence: later readers synchronize with ordinary stores only
            self.b.declare("llvm.x86.sse.sfence", "void")
            self.b.do("call void @llvm.x86.sse.sfence()")
        self.b.do("ret void")
        lines = "\n".join(self.b.scopes[0].lines)
        # Without optimization, LLVM fails on shuffles of eight 16-bit lanes: "Value is not an N-bit
        # unsigned value".
        halves = any(f"shufflevector <8 x {type_}>" in lines for type_ in ("half", "i16"))
        plain = (
            " optnone noinline"
            if self.outlined
            and not halves
            and consists_mostly_of_calls(self.kernel.body, self.outlined)
            else ""
        )
        return f"define void @{self.symbol}(ptr %ctx, i64 %task, i64 %worker){plain} #0 {{\nentry:\n{lines}\n}}"

    def _bind_buffers(self) -> None:
        bufs, b = self.kernel.bufs, self.b
        for buf in (*bufs, *self.kernel.scratch):
            if buf.type not in loops.ITEMSIZE:
                raise NotImplementedError(
                    f"codegen: buffers of type {buf.type} are not implemented"
                )
        aliased = {buf.alias for buf in bufs if buf.alias} | {buf.name for buf in bufs if buf.alias}
        for number, buf in enumerate(bufs):
            slot = "%ctx" if number == 0 else b.pure(f"getelementptr ptr, ptr %ctx, i64 {number}")
            self.tags[buf.name] = b.pure(f"load ptr, ptr {slot}, align 8", slot)
            self.buffers[buf.name] = buf
            if buf.mode == "in" and buf.name not in aliased:
                self.pure_buffers.add(buf.name)
        self._bind_scratch()
        self._alias_metadata(list(bufs) + list(self.kernel.scratch))

    def _bind_scratch(self) -> None:
        offset, places = 0, []
        for buf in self.kernel.scratch:
            self.buffers[buf.name] = buf
            places.append((buf.name, offset))
            offset += (buf.size * loops.ITEMSIZE[buf.type] + 63) // 64 * 64
        if not places:
            return
        if offset <= _STACK_SCRATCH_BYTES:
            base = self.b.let(f"alloca i8, i64 {max(offset, 64)}, align 64")
        else:
            self.b.declare("weft_scratch_take", "ptr", "i64")
            base = self.heap = self.b.let(f"call ptr @weft_scratch_take(i64 {offset})")
        for name, at in places:
            self.tags[name] = (
                base if at == 0 else self.b.pure(f"getelementptr i8, ptr {base}, i64 {at}", base)
            )

    def _alias_metadata(self, bufs: list[loops.Buf]) -> None:
        """Write one alias scope per family of overlapping buffers: accesses of different families
        are independent."""
        family: dict[str, str] = {}
        for buf in bufs:
            family[buf.name] = (
                family.get(buf.alias, buf.alias) if buf.alias else family.get(buf.name, buf.name)
            )
        roots = list(dict.fromkeys(family.values()))
        if len(roots) < 2:
            return
        scopes = {root: self.first_metadata + 3 * i for i, root in enumerate(roots)}
        for root, number in scopes.items():
            others = ", ".join([f"!{other}" for key, other in scopes.items() if key != root])
            self.metadata += [
                f"!{number} = distinct !{{!{number}, !0}}",
                f"!{number + 1} = !{{!{number}}}",
                f"!{number + 2} = !{{{others}}}",
            ]
        for buf in bufs:
            number = scopes[family[buf.name]]
            self.alias_tags[buf.name] = f", !alias.scope !{number + 1}, !noalias !{number + 2}"

    # --- statements

    def body(self, stmts: Sequence[loops.Stmt]) -> None:
        """Emit statements in a nested scope of names; outer accumulators keep updated values."""
        outer = dict(self.env)
        for stmt in stmts:
            self.memo.clear()
            _emitter_of(type(stmt))(self, stmt)
        self.memo.clear()
        self.env = {name: self.env[name] for name in outer}

    def let(self, stmt: loops.Let) -> None:
        """Bind a name."""
        self.env[stmt.name] = self.evaluate(stmt.value)

    def init(self, stmt: loops.Init) -> None:
        """Declare an accumulator; inside a vector loop it has one value per lane."""
        value = self.evaluate(stmt.value)
        self.env[stmt.name] = self.replicate_parts(value) if self.vectorized else value

    def accum(self, stmt: loops.Accum) -> None:
        """Update an accumulator."""
        name = stmt.name
        old, value = self.env[name], self.evaluate(stmt.value)
        if self.vectorized:
            value = self.replicate_parts(value)
        # min and max test their first operand for NaN: pass the new value first
        operands = [value, old] if stmt.op in ("min", "max") else [old, value]
        new = value if stmt.op == "set" else self.operate(stmt.op, operands, old.type)
        guard = None if stmt.guard is None else self.evaluate(stmt.guard)
        new = self.select_guarded(guard, new, old)
        if name in self.reducing and any(self.masks):
            new = map_parts(self._masked_choice, new, old)
        self.env[name] = new

    def select_guarded(
        self, guard: EmittedValue | None, new: EmittedValue, old: EmittedValue
    ) -> EmittedValue:
        """Return `new` where the guard holds, else `old`."""
        if guard is None:
            return new
        return map_parts(lambda x, y: self.operate("select", [guard, x, y], x.type), new, old)

    def _masked_choice(self, new: EmittedValue, old: EmittedValue) -> EmittedValue:
        parts = [
            x if mask is None else self.lanes.select(mask, self.lanes.type(new.type), x, y)
            for x, y, mask in zip(new.parts, old.parts, self.masks)
        ]
        return Varying(new.type, tuple(parts))

    def store(self, stmt: loops.StoreElement) -> None:
        """Emit a store to a buffer."""
        guard = None if stmt.guard is None else self.evaluate(stmt.guard)
        self.store_value(stmt, self.evaluate(stmt.value), self.evaluate(stmt.index), guard)

    def store_value(
        self,
        stmt: loops.StoreElement,
        value: EmittedValue,
        index: EmittedValue,
        guard: EmittedValue | None,
    ) -> None:
        """Write a value, real or complex, as the options of `stmt` specify."""
        buf = self.buffers[stmt.buf]
        if buf.type not in loops.COMPLEX:
            self.store_real(stmt, buf.type, buf.size, value, index, guard)
            return
        if stmt.accumulate:
            raise NotImplementedError(
                "codegen: accumulating store of complex values is not implemented"
            )
        if self.vectorized and isinstance(index, Affine) and index.stride == 1:
            from weft._engine.codegen.kernel import complex_memory

            complex_memory.store(self, buf, value, index, guard)
            return
        part = loops.REAL_OF[buf.type]
        real, imag = leaves(value)
        double = self.operate("mul", [index, constant(2)], "i64")
        self.store_real(stmt, part, 2 * buf.size, real, double, guard)
        self.store_real(
            stmt,
            part,
            2 * buf.size,
            imag,
            self.operate("add", [double, constant(1)], "i64"),
            guard,
        )

    def store_real(
        self,
        stmt: loops.StoreElement,
        type_: str,
        size: int,
        value: EmittedValue,
        index: EmittedValue,
        guard: EmittedValue | None,
    ) -> None:
        """Write a real value with scalar, vector or scattered stores, as its index varies."""
        if size == 0:
            return
        if not self.vectorized:
            if guard is None or guard.parts[0] == "true":
                self._store_scalar(stmt, type_, value, index)
            elif guard.parts[0] != "false":
                self.b.branch(guard.parts[0], lambda: self._store_scalar(stmt, type_, value, index))
            return
        if (
            stmt.streaming
            and guard is None
            and not any(self.masks)
            and not stmt.accumulate
            and self.target.is_x86
        ):
            if is_adjacent(index):
                from weft._engine.codegen.kernel import nontemporal

                nontemporal.store(self, stmt, type_, value, index)
                return
        if guard is not None and isinstance(guard, Uniform):
            # one branch for all lanes, because masked stores are slow on some processors
            if guard.parts[0] != "false":
                self.b.branch(
                    guard.parts[0],
                    lambda: self._store_parts(stmt, type_, value, index, [None] * self.parts),
                )
            return
        self._store_parts(
            stmt,
            type_,
            value,
            index,
            [None] * self.parts if guard is None else list(self.registers_of(guard)),
        )

    def _store_parts(
        self,
        stmt: loops.StoreElement,
        type_: str,
        value: EmittedValue,
        index: EmittedValue,
        conds: list,
    ) -> None:
        """Store the registers of a value, each under its condition (None: unconditionally)."""
        registers = (
            self.registers_of(value)
            if stmt.accumulate
            else self.lanes.all_to_memory(self.registers_of(value), type_)[1]
        )
        for part in range(self.parts):
            self._store_part(
                stmt, type_, registers[part], index, part, self.mask_of(part, conds[part])
            )

    def _store_scalar(
        self, stmt: loops.StoreElement, type_: str, value: EmittedValue, index: EmittedValue
    ) -> None:
        pointer, size, tag = (
            self.address(stmt.buf, type_, index),
            loops.ITEMSIZE[type_],
            self.alias_tag(stmt.buf),
        )
        if stmt.accumulate:
            raw = self.b.let(f"load {MEMORY[type_]}, ptr {pointer}, align {size}{tag}")
            old = Uniform(type_, self.scalar.from_memory(raw, type_))
            value = self.operate(stmt.accumulate, [old, value], type_)
        memory, name = self.scalar.to_memory(value.parts[0], type_)
        self.b.do(f"store {memory} {name}, ptr {pointer}, align {size}{tag}")

    def _store_part(
        self,
        stmt: loops.StoreElement,
        type_: str,
        x: str,
        index: EmittedValue,
        part: int,
        mask: str | None,
    ) -> None:
        """Convert a register to its memory type and store it, or combine it with memory."""
        lanes, b, memory = self.lanes, self.b, vector(MEMORY[type_], self.lanes.w)
        if stmt.accumulate:
            raw = self._load_part(stmt.buf, type_, index, part, mask, None)
            _, x = lanes.to_memory(lanes.arithmetic(stmt.accumulate, type_, [raw, x]), type_)
        size, tag = loops.ITEMSIZE[type_], self.alias_tag(stmt.buf)
        if isinstance(index, Uniform):
            raise NotImplementedError(
                "codegen: every iteration of a vector loop stores to one element"
            )
        if is_adjacent(index):
            reverse = index.stride == -1
            pointer = self.vector_address(
                stmt.buf, type_, index, part * lanes.w + (lanes.w - 1 if reverse else 0)
            )
            x = self.reverse_lanes(x, memory) if reverse else x
            mask = self.reverse_lanes(mask, lanes.i1) if reverse and mask is not None else mask
            if mask is not None and self.masks[part] is None and memory.endswith(("i8>", "i16>")):
                mask = lanes.logical_and(mask, lanes.opaque_mask(lanes.w))
            self.write(memory, x, pointer, (size, tag), mask)
            return
        pointers, several = self.pointers(stmt.buf, type_, index, part), f"<{lanes.w} x ptr>"
        called = f"llvm.masked.scatter.{mangle(memory)}.v{lanes.w}p0"
        b.declare(called, "void", memory, several, "i32", lanes.i1)
        mask = mask or lanes.splat_literal("true", "i1")
        b.do(
            f"call void @{called}({memory} {x}, {several} {pointers}, i32 {size}, {lanes.i1} {mask}){tag}"
        )

    # --- loops

    def loop(self, stmt: loops.For) -> None:
        """A serial, vector or (nested) parallel loop."""
        extent = (
            constant(stmt.extent) if isinstance(stmt.extent, int) else self.evaluate(stmt.extent)
        )
        self.memo.clear()
        if extent.const is not None and extent.const <= 0:
            return
        if stmt.is_vector and not self.vectorized:
            most = extent.const if extent.const is not None else upper_bound(stmt.extent)
            plan = plan_of(
                stmt, self.target, self.buffers, most, extent.const is not None, self.outlined
            )
            if plan is not None:
                self._vector_loop(stmt, extent, plan)
                return
        self._emit_counted_loop(
            stmt, constant(0), extent, 1, lambda counter: self._iteration(stmt, counter)
        )

    def _iteration(self, stmt: loops.For, counter: EmittedValue) -> None:
        self.env[stmt.var] = counter
        self.body(stmt.body)

    def _emit_counted_loop(
        self,
        stmt: loops.For,
        start: EmittedValue,
        stop: EmittedValue,
        step: int,
        emit: Callable[[EmittedValue], None],
    ) -> None:
        """Run `emit(counter)` for counter = start, start + step, ... below stop."""
        saved = self.env.get(stmt.var)
        if start.const is not None and stop.const is not None:
            if stop.const <= start.const:
                return
            if stop.const - start.const <= step:
                emit(start)
                self._restore(stmt.var, saved)
                return
        carried = [name for name in assigned_accumulators(stmt) if name in self.env]

        def body(index: str, *registers: str) -> list[str]:
            self.unflatten(carried, registers)
            emit(Uniform("i64", index))
            self.memo.clear()
            return [register for _, register in self.flatten(carried)]

        certain = start.const is not None and stop.const is not None
        self.unflatten(
            carried,
            self.b.loop_over_range(
                start.parts[0], stop.parts[0], step, body, self.flatten(carried), certain
            ),
        )
        self._restore(stmt.var, saved)

    def _restore(self, var: str, saved: EmittedValue | None) -> None:
        if saved is None:
            self.env.pop(var, None)
        else:
            self.env[var] = saved

    # --- vector loops

    def _vector_loop(self, stmt: loops.For, extent: EmittedValue, plan: VectorizationPlan) -> None:
        reduced = [
            name
            for name in assigned_accumulators(stmt)
            if name in self.env and name not in plan.scanned | plan.packed
        ]
        starts = {name: self.env[name] for name in reduced}
        self.lanes, self.vectorized = self.lanes_of(plan.lanes), True
        self.reducing, self.scanned, self.parts = frozenset(reduced), plan.scanned, plan.parts
        self._widen_accumulators(plan, starts)
        first_remaining = self._vector_blocks(stmt, extent, plan)
        self.parts = plan.parts
        self._fold_accumulators(plan, starts)
        self.leave_vector_loop()
        if not plan.masked:
            self._emit_counted_loop(
                stmt, first_remaining, extent, 1, lambda counter: self._iteration(stmt, counter)
            )

    def _widen_accumulators(self, plan: VectorizationPlan, starts: dict[str, EmittedValue]) -> None:
        """Give the accumulators of a vector loop a register per part; scanned ones have a single register."""
        if plan.scanned:
            from weft._engine.codegen.kernel.vector_scan import in_all_lanes

            for name in plan.scanned:
                self.env[name] = in_all_lanes(self, self.env[name])
        if starts:
            for name, start in starts.items():
                self.env[name] = neutral(self, plan.reductions[name], start.type)

    def _fold_accumulators(self, plan: VectorizationPlan, starts: dict[str, EmittedValue]) -> None:
        """Reduce the accumulators of a vector loop to scalars."""
        if starts:
            for name, start in starts.items():
                self.env[name] = fold_accumulator(
                    self, plan.reductions[name], start, self.env[name]
                )
        if plan.scanned:
            from weft._engine.codegen.kernel.vector_scan import of_first_lane

            for name in plan.scanned:
                self.env[name] = of_first_lane(self, self.env[name])

    def _vector_blocks(
        self, stmt: loops.For, extent: EmittedValue, plan: VectorizationPlan
    ) -> EmittedValue:
        """Emit all iterations that vectors compute; return the first remaining iteration."""
        block = plan.lanes * plan.parts
        if plan.merged and (extent.const is None or extent.const > block):
            self._emit_vector_blocks(stmt, constant(0), extent, plan.parts, masked=True)
            return extent
        if extent.const is not None:
            whole = constant(extent.const // block * block)
            self._emit_vector_blocks(stmt, constant(0), whole, plan.parts)
            self._emit_static_remainder(stmt, extent.const // block * block, extent.const, plan)
            return whole
        clamped: EmittedValue = constant(0)
        most = upper_bound(stmt.extent)
        if not plan.masked or most is None or most > block or plan.parts > 1:
            name = self.scalar.binary("and", "i64", extent.parts[0], str(-block))
            whole = Uniform("i64", name)
            self._emit_vector_blocks(stmt, constant(0), whole, plan.parts)
            clamped = self.operate("max", [whole, constant(0)], "i64")
        if plan.masked:
            self._emit_vector_blocks(stmt, clamped, extent, 1, masked=True)
        return clamped

    def _emit_static_remainder(
        self, stmt: loops.For, start: int, stop: int, plan: VectorizationPlan
    ) -> None:
        """Emit the last `stop - start` iterations: whole vectors, then one masked vector."""
        if start == stop or not plan.masked:
            return
        remaining = stop - start
        parts = -(-remaining // plan.lanes)
        odd = remaining % plan.lanes
        self.masks, self.remaining = [None] * parts, constant(remaining)
        if odd:
            self.masks[-1] = self.lanes.opaque_mask(odd)
        self._block(stmt, constant(start), parts)

    def _emit_vector_blocks(
        self,
        stmt: loops.For,
        start: EmittedValue,
        stop: EmittedValue,
        parts: int,
        masked: bool = False,
    ) -> None:
        """Emit blocks of `parts` vectors from `start` to `stop`."""

        def emit(counter: EmittedValue) -> None:
            self.masks = self._tail_masks(counter, stop, parts) if masked else [None] * parts
            self._block(stmt, counter, parts)

        self._emit_counted_loop(stmt, start, stop, parts * self.lanes.w, emit)

    def _tail_masks(
        self, counter: EmittedValue, stop: EmittedValue, parts: int
    ) -> list[str | None]:
        """Return, for each part, the mask of the lanes below `stop`."""
        lanes = self.lanes
        remaining = self.scalar.binary("sub", "i64", stop.parts[0], counter.parts[0])
        block_remaining = self.operate(
            "min", [Uniform("i64", remaining), constant(lanes.w * parts)], "i64"
        )
        splat = lanes.splat(
            self.scalar.convert("trunc", "i64", block_remaining.parts[0], "i32"), "i32"
        )
        self.remaining = block_remaining
        return [self.lanes_below(splat, part * lanes.w) for part in range(parts)]

    def _block(self, stmt: loops.For, counter: EmittedValue, parts: int) -> None:
        """Emit one iteration of `parts` vectors beginning at `counter`."""
        loop_parts = self.parts
        full = {name: self.env[name] for name in self.reducing}
        if parts != loop_parts:
            for name in self.reducing:
                self.env[name] = map_parts(
                    lambda value: Varying(value.type, value.parts[:parts]), full[name]
                )
        self.parts, self.induction = parts, counter
        self.env[stmt.var] = Affine(constant(0), 1)
        self.body(stmt.body)
        if parts != loop_parts:
            for name in self.reducing:
                self.env[name] = map_parts(
                    lambda all, first: Varying(all.type, first.parts + all.parts[parts:]),
                    full[name],
                    self.env[name],
                )
        self.parts = loop_parts


@functools.cache
def _emitter_of(kind: type) -> Callable[[KernelEmitter, Any], None]:
    """Return the emitter of a kind of statement; rare ones are imported on first use."""
    if kind is loops.PrefixCombine:
        from weft._engine.codegen.kernel.vector_scan import scan as emit
    elif kind is loops.Interleave:
        from weft._engine.codegen.kernel.register_transpose import interleave as emit
    elif kind is loops.Pack:
        from weft._engine.codegen.kernel.compress_store import pack as emit
    elif kind is loops.Prefetch:
        from weft._engine.codegen.kernel.nontemporal import prefetch as emit
    elif kind is loops.If:
        from weft._engine.codegen.kernel.structured_branches import branch as emit
    elif kind is loops.While:
        from weft._engine.codegen.kernel.structured_branches import repeat as emit
    else:
        return {
            loops.Let: KernelEmitter.let,
            loops.Init: KernelEmitter.init,
            loops.Accum: KernelEmitter.accum,
            loops.StoreElement: KernelEmitter.store,
            loops.For: KernelEmitter.loop,
        }[kind]
    return emit
