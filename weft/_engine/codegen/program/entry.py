"""The entry of a program: its schedule as one native function `i32 entry(ptr slots)`.

Long schedules are split into several functions.

In:   a `Program`, and the symbols under which its kernels, matmuls and sorts are linked.
Out:  modules of LLVM IR. The entry returns 0, or 1 if a host call or a signal handler raised, or an
      exchange failed.
Laws: Signals are handled before each host call and, in long programs, about every 100 ms of work
      between steps. `slots` holds the addresses of ins, outs and consts in order, then the arena,
      which holds temporaries. Kernels with one task are called directly; others are called by
      `weft_parallel_for(ptr fn, ptr ctx, i64 tasks)`. No function has more than about
      `MAX_STEPS_PER_FUNCTION` steps: LLVM's time is superlinear in the length of a function, and
      the parts are compiled in parallel. A part calls only earlier parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from weft._engine.codegen.ir.writer import LLVMBodyWriter
from weft._engine.codegen.runtime import symbols
from weft._engine.codegen.runtime.routines import Routine
from weft._engine.codegen.toolchain.native_library import text_of
from weft._engine.ir import program as P
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: copies of at least this size are parallel
_COPY_PARALLEL_BYTES = 1 << 20
#: bytes per task of a parallel copy
_COPY_CHUNK_BYTES = 1 << 18
#: bytes that a task of a pad writes
_PAD_TASK_BYTES = 1 << 17
#: bytes of memory traffic between two checks of signals
_SIGNAL_CHECK_BYTES = 1 << 28
#: multiply-adds that take as long as one byte of memory traffic
_FLOPS_PER_BYTE = 16


#: maximum number of steps in a function, if the steps can be divided
MAX_STEPS_PER_FUNCTION = 64
#: multiply-adds of a library call on a matrix of n rows, roughly, in units of n^3
FACTORIZATION = 8
#: a context with at least this many constant words is copied from a table
MIN_TABLE_WORDS = 8


class _EntryFunctionWriter(LLVMBodyWriter):
    """The function under construction, and the declarations of its module."""

    optimized = False

    def __init__(self):
        super().__init__()
        self.declared: dict[str, str] = {}
        self.tables: dict[str, str] = {}  # table contents -> name
        self.helpers: list[str] = []  # functions that implement single steps
        self.context_words = 1

    def module(
        self,
        head: str,
        start: str,
        end: str = "  ret i32 0\nfailed:\n  ret i32 1",
        returns: str = "i32",
    ) -> str:
        """Return the text of the function and everything it needs; `start` precedes its lines,
        `end` follows them."""
        declared = "\n".join(self.declared.values())
        tables = "\n".join(
            [
                f"{name} = private unnamed_addr constant {words}"
                for words, name in self.tables.items()
            ]
        )
        helpers = "".join(
            [text_of(file) for name, file in _HELPERS.items() if name in self.declared]
            + self.helpers
        )
        return (
            f"{declared}\n{tables}\n{helpers}define {returns} {head} nounwind {{\nentry:\n"
            f"  %ctx = alloca i64, i64 {self.context_words}, align 64\n{start}"
            + "\n".join(self.lines)
            + f"\n{end}\n}}\n"
        )


class EntryEmitter:
    """Emitter of the entry of one program."""

    def __init__(
        self, program: P.ScheduledProgram, kernel_symbol: Callable, library_symbol: Callable
    ):
        self.program = program
        self.kernel_symbol = kernel_symbol
        self.library_symbol = library_symbol
        self.function = _EntryFunctionWriter()
        self.parts: list[tuple[str, str]] = []  # (symbol, text)
        self.vars: dict[str, str] = {}
        self.host_calls: list[P.HostCallStep] = []
        self.routines: dict[str, None] = {}  # BLAS and LAPACK routines that are called
        self.restricts_library_threads = False  # True if some steps restrict the library's threads
        self.checks_signals = False
        self.in_task = False  # True in the body of a parallel loop, which does not check signals
        self.has_tasks = False
        self.counts_work = False  # True if `%spent` counts traffic since the last signal check
        self.work = 0  # bytes of traffic since the last signal check, where known at compile time
        self.positions = _positions(program)
        self.has_arena = any(slot.is_temp for slot in program.slots)

    def modules(self, symbol: str) -> list[tuple[str, str]]:
        """Return (symbol, text) of every module; each refers to earlier modules only, and the last
        defines the entry."""
        self._steps(self.program.steps)
        start = "  %spent = alloca i64\n  store i64 0, ptr %spent\n" if self.counts_work else ""
        return [
            *self.parts,
            (symbol, self.function.module(f"@{symbol}(ptr %slots)", start + self._prologue())),
        ]

    # --- small parts

    def _value(self, text: str) -> str:
        return self.function.let(text)

    def _line(self, text: str) -> None:
        self.function.do(text)

    def _external(self, name: str, signature: str) -> str:
        self.function.declared[name] = f"declare {signature.replace('NAME', '@' + name)}"
        return "@" + name

    def _prologue(self) -> str:
        """Return the first lines of a function: they load the address of the arena, if there is one."""
        if not self.has_arena:
            return ""
        return f"  %arena_at = getelementptr ptr, ptr %slots, i64 {max(self.positions)}\n  %arena = load ptr, ptr %arena_at, align 8\n"

    def address(self, ref: P.BufRef) -> str:
        """Return the current address of a buffer reference."""
        function, slot, offset = self.function, self.program.slots[ref.slot], ref.offset
        if slot.is_temp:
            pointer, offset = "%own" if slot.own else "%arena", offset + slot.offset
        else:
            pointer = function.read(
                "ptr", function.element("ptr", "%slots", self.positions[ref.slot])
            )
        if offset:
            pointer = function.element("i8", pointer, offset)
        for var, stride in ref.strides:
            moved = self._value(f"mul i64 {self.vars[var]}, {stride}")
            pointer = function.element("i8", pointer, moved)
        return pointer

    def _context(self, words: Sequence[str | int]) -> None:
        """Fill the context array with pointers (strings) and numbers, many of them from a table."""
        self.function.context_words = max(self.function.context_words, len(words))
        from_table = sum(isinstance(word, int) for word in words) >= MIN_TABLE_WORDS
        if from_table:
            copy = self._external("llvm.memcpy.p0.p0.i64", "void NAME(ptr, ptr, i64, i1)")
            self._line(
                f"call void {copy}(ptr align 8 %ctx, ptr align 8 {self._table(words)}, i64 {8 * len(words)}, i1 false)"
            )
        for i, word in enumerate(words):
            if not (from_table and isinstance(word, int)):
                kind = "i64" if isinstance(word, int) else "ptr"
                self.function.write(kind, word, self.function.element("i64", "%ctx", i))

    def _table(self, words: Sequence[str | int]) -> str:
        """Return the name of a constant array with the numbers of `words`; pointers are 0."""
        text = ", ".join([f"i64 {word if isinstance(word, int) else 0}" for word in words])
        tables = self.function.tables
        return tables.setdefault(f"[{len(words)} x i64] [{text}], align 8", f"@words{len(tables)}")

    # --- parts

    def _steps(self, steps: tuple[P.Step, ...]) -> None:
        """Emit steps; long runs become separate functions."""
        runs = _divide(steps)
        for _, run in runs:
            if len(runs) == 1 or self.in_task:
                self._emit_steps_inline(run)
            else:
                self._part(run)

    def _part(self, steps: list[P.Step]) -> None:
        """Emit steps as a separate function, and a call of it."""
        outer, outer_vars = self.function, self.vars
        self.function, self.vars, self.counts_work = (
            _EntryFunctionWriter(),
            {var: f"%v{i}" for i, var in enumerate(outer_vars)},
            True,
        )
        self._emit_steps_inline(steps)
        symbol = f"weft_part_{len(self.parts)}"
        arguments = "".join([f", i64 {value}" for value in self.vars.values()])
        self.parts.append(
            (
                symbol,
                self.function.module(
                    f"@{symbol}(ptr %slots, ptr %spent{arguments})", self._prologue()
                ),
            )
        )
        self.function, self.vars = outer, outer_vars
        called = self._external(symbol, f"i32 NAME(ptr, ptr{', i64' * len(self.vars)})")
        arguments = "".join([f", i64 {value}" for value in self.vars.values()])
        self._fail_unless_zero(self._value(f"call i32 {called}(ptr %slots, ptr %spent{arguments})"))

    # --- steps

    def _emit_steps_inline(self, steps: Sequence[P.Step]) -> None:
        for step in steps:
            self.emit(step)
            self.work += self.traffic(step)
            if self.work > _SIGNAL_CHECK_BYTES and not self.in_task:
                self._check_signals()

    def emit(self, step: P.Step) -> None:
        """Emit one step."""
        _EMIT[type(step)](self, step)

    def imports(self, routines: Sequence[Routine]) -> dict[str, int]:
        """Return the addresses of the routines that the entry calls."""
        return {routine.symbol: routine.address() for routine in routines}

    # --- signals

    def traffic(self, step: P.Step) -> int:
        """Estimate the cost of a step in bytes of memory traffic; 0 for loops, whose bodies count
        separately."""
        if isinstance(step, P.Launch):
            return 64 + step.work + sum(map(self._touched_bytes, step.args))
        if isinstance(step, P.Gemm):
            return (
                step.m
                * step.n
                * step.k
                * math.prod(b[0] for b in (*step.batch, *step.outer_k))
                // _FLOPS_PER_BYTE
            )
        if isinstance(step, P.Sort):
            return step.rows * step.n * (8 if step.gives_top else 64)
        if isinstance(step, P.Fft):
            return 64 * step.rows * step.n * step.inner
        if isinstance(step, P.LibraryCall):
            return (
                step.count
                * FACTORIZATION
                * round(max(size for _, _, size, _ in step.arrays) ** 1.5)
                // _FLOPS_PER_BYTE
            )
        if isinstance(step, P.JoinStep):
            return step.rows * step.pitch
        if isinstance(step, P.Pad):
            return step.rows * step.row
        return step.nbytes if isinstance(step, P.Copy) else 0

    def _touched_bytes(self, ref: P.BufRef) -> int:
        """Return the bytes that a step can access through `ref`: one slice if a loop strides
        through the buffer."""
        return min(
            [self.program.slots[ref.slot].nbytes, *(abs(stride) for _, stride in ref.strides)]
        )

    def _check_signals(self) -> None:
        """Emit a call of pending signal handlers; the program stops if one raises."""
        self.checks_signals, self.work = True, 0
        self.function.declared["weft_check_signals"] = ""
        for name, signature in _PYTHON.items():
            self._external(name, signature)
        self._fail_unless_zero(self._value("call i32 @weft_check_signals()"))

    def _count_work(self, work: int) -> None:
        """Emit the end of a loop body that costs `work`: check signals if enough work was done
        since the last check."""
        if self.in_task:
            return
        self.counts_work = True
        before = self._value("load i64, ptr %spent")
        now = self._value(f"add i64 {before}, {max(work, 64)}")
        is_due = self._value(f"icmp ugt i64 {now}, {_SIGNAL_CHECK_BYTES}")
        spent = self._value(f"select i1 {is_due}, i64 0, i64 {now}")
        self._line(f"store i64 {spent}, ptr %spent")
        self.function.branch(is_due, self._check_signals)

    def _fail_unless_zero(self, status: str) -> None:
        onward = f"onward{self.function.fresh()}"
        self._line(
            f"br i1 {self._value(f'icmp eq i32 {status}, 0')}, label %{onward}, label %failed"
        )
        self.function.block(onward)

    def _pointers(self, refs: Sequence[P.BufRef]) -> None:
        """Fill the context array with the addresses of `refs`."""
        if len(refs) < MIN_TABLE_WORDS // 2 or any(
            ref.strides or self.program.slots[ref.slot].own for ref in refs
        ):
            self._context([self.address(ref) for ref in refs])
            return
        slots = self.program.slots
        offsets = [
            ref.offset + (slots[ref.slot].offset if slots[ref.slot].is_temp else 0) for ref in refs
        ]
        table = self._table(
            [
                word
                for ref, offset in zip(refs, offsets)
                for word in (self.positions[ref.slot], offset)
            ]
        )
        self.function.context_words = max(self.function.context_words, len(refs))
        self.function.declared["weft_fill"] = ""
        self._line(f"call void @weft_fill(ptr %ctx, ptr %slots, ptr {table}, i64 {len(refs)})")

    def launch(self, step: P.Launch) -> None:
        """Emit the launch of a kernel over its tasks."""
        tasks = step.kernel.parallel_extent
        if tasks <= 0:
            return
        function = self._external(self.kernel_symbol(step.kernel), "void NAME(ptr, i64, i64)")
        self._pointers(step.args)
        self._run(function, tasks)

    def gemm(self, step: P.Gemm) -> None:
        """Emit a call of the matmul of the step's types with a descriptor (see
        `codegen.gemm.gemm`)."""
        from weft._engine.codegen.gemm import gemm

        function, epilogue = self._external(self.library_symbol(step), "void NAME(ptr)"), "null"
        if step.epilogue is not None:
            epilogue = self._external(self.kernel_symbol(step.epilogue), "void NAME(ptr, i64, i64)")
        c = "null" if step.c is None else self.address(step.c)
        pointers = [self.address(step.a), self.address(step.b), c, epilogue]
        _, words = gemm.describe(step)
        numbers = words[len(gemm.POINTERS) : len(words) - len(step.epilogue_args)]
        self._context([*pointers, *numbers, *(self.address(ref) for ref in step.epilogue_args)])
        if step.first is None or step.count is None:
            self._line(f"call void {function}(ptr %ctx)")
            return
        from weft._engine.codegen.gemm import grouped_gemm

        name = f"weft_groups_{len(self.function.helpers)}"
        self._external("llvm.memset.p0.i64", "void NAME(ptr, i8, i64, i1)")
        self.function.helpers.append(grouped_gemm.build_group_loop(step, words, name, function))
        self._line(
            f"call void @{name}(ptr %ctx, ptr {self.address(step.first)}, ptr {self.address(step.count)})"
        )

    def sort(self, step: P.Sort) -> None:
        """Emit a sort with one row per task (see `codegen.library.sort`)."""
        function = self._external(self.library_symbol(step), "void NAME(ptr, i64, i64)")
        refs = (step.source, step.previous, step.out, step.places)
        numbers = (step.n, step.k, int(step.descending))
        self._context([*("null" if ref is None else self.address(ref) for ref in refs), *numbers])
        self._run(function, step.rows)

    def fft(self, step: P.Fft) -> None:
        """Emit an FFT with several rows per task (see `codegen.library.fft`)."""
        from weft._engine.codegen.library import fft

        function = self._external(self.library_symbol(step), "void NAME(ptr, i64, i64)")
        refs = (step.source, step.out, step.tables, *([step.part.factors] if step.part else ()))
        self._context([*map(self.address, refs), *fft.words(step)])
        self._run(function, fft.tasks(step))

    def library_call(self, step: P.LibraryCall) -> None:
        """Emit a call of a routine for every problem of a batch (see `codegen.library.lapack`)."""
        from weft._engine.codegen.library import lapack

        if not step.count:
            return
        self.routines[step.routine] = None
        name = f"weft_call_{len(self.function.helpers)}"
        self._external(symbols.routine(step.routine), f"void NAME({lapack.signature(step)})")
        for pool in ("ptr @weft_scratch_take(i64)", "void @weft_scratch_give(ptr)"):
            self.function.declared[pool] = f"declare {pool}"
        self.function.helpers.append(lapack.task(step, name))
        self._context([self.address(ref) for _, ref, _, _ in step.arrays])
        alone = lapack.must_be_single_threaded(step)
        if alone:
            self.restricts_library_threads = True
            self.function.declared["weft_library_enter"] = ""
            self._line("call void @weft_library_enter()")
        self._run(f"@{name}", lapack.tasks(step))
        if alone:
            self._line("call void @weft_library_leave()")

    def _run(self, function: str, tasks: int) -> None:
        """Emit a call of all tasks of a function on the context array; a single task is called
        directly."""
        if tasks == 1:
            self._line(f"call void {function}(ptr %ctx, i64 0, i64 0)")
        elif tasks > 1:
            self._run_parallel(function, tasks)

    def _run_parallel(self, function: str, tasks: int | str) -> None:
        """Emit a call of all tasks of a function on the context array by the thread pool."""
        run = self._external("weft_parallel_for", "void NAME(ptr, ptr, i64)")
        self._line(f"call void {run}(ptr {function}, ptr %ctx, i64 {tasks})")

    def copy(self, step: P.Copy) -> None:
        """Emit a copy of bytes; large copies are parallel."""
        if step.nbytes <= 0:
            return
        target, source = self.address(step.dst), self.address(step.src)
        if step.nbytes < _COPY_PARALLEL_BYTES:
            copy = self._external("llvm.memcpy.p0.p0.i64", "void NAME(ptr, ptr, i64, i1)")
            self._line(f"call void {copy}(ptr {target}, ptr {source}, i64 {step.nbytes}, i1 false)")
            return
        self._external("llvm.memcpy.p0.p0.i64", "void NAME(ptr, ptr, i64, i1)")
        self.function.declared["weft_copy"] = ""
        self._context([target, source, step.nbytes, _COPY_CHUNK_BYTES])
        self._run_parallel("@weft_copy", -(-step.nbytes // _COPY_CHUNK_BYTES))

    def join(self, step: P.JoinStep) -> None:
        """Emit a join with several rows per task (see `codegen.library.join`)."""
        from weft._engine.codegen.library import join

        name = f"weft_join_{len(self.function.helpers)}"
        self._external("llvm.memcpy.p0.p0.i64", "void NAME(ptr, ptr, i64, i1)")
        self.function.helpers.append(join.task(step, name, self._table(join.numbers(step))))
        self._pointers([step.out, *[ref for ref, *_ in step.parts]])
        self._run(f"@{name}", join.tasks(step))

    def pad(self, step: P.Pad) -> None:
        """Emit a copy of runs with zeros between them, several rows per task."""
        self._external("llvm.memcpy.p0.p0.i64", "void NAME(ptr, ptr, i64, i1)")
        self._external("llvm.memset.p0.i64", "void NAME(ptr, i8, i64, i1)")
        self.function.declared["weft_pad"] = ""
        share = max(1, _PAD_TASK_BYTES // step.row)
        sizes = step.row, step.lead, step.run, step.rows, share, len(step.dims)
        self._context(
            [
                self.address(step.dst),
                self.address(step.src),
                *sizes,
                *(word for dim in step.dims for word in dim),
            ]
        )
        self._run("@weft_pad", -(-step.rows // share))

    def host_call(self, step: P.HostCallStep) -> None:
        """Emit a call of Python. `HostCalls` keeps an error of the function; an interrupt is kept
        like a signal handler's error."""
        self._check_signals()
        for name, signature in _PYTHON_CALL.items():
            self._external(name, signature)
        self.function.declared["weft_call_host"] = ""
        number = len(self.host_calls)
        self.host_calls.append(step)
        self._context([self.address(ref) for ref, _, _ in (*step.ins, *step.outs)])
        self._fail_unless_zero(self._value(f"call i32 @weft_call_host(i64 {number}, ptr %ctx)"))

    def start(self, step: P.Start) -> None:
        """Emit the start of an exchange with other processes."""
        words = self.address(step.words)
        function, handle = (
            self._word(words, P.START_WORD, "ptr"),
            self._word(words, step.word, "i64"),
        )
        operands = f"ptr {self.address(step.source)}, ptr {self.address(step.out)}"
        request = self._value(f"call i64 {function}(i64 {handle}, {operands})")
        self.function.write("i64", request, self.address(step.request))
        refused = self._value(f"icmp slt i64 {request}, 0")
        self._fail_unless_zero(self._value(f"zext i1 {refused} to i32"))

    def wait(self, step: P.Wait) -> None:
        """Emit the wait for the end of an exchange."""
        function = self._word(self.address(step.words), P.WAIT_WORD, "ptr")
        request = self.function.read("i64", self.address(step.request))
        self._fail_unless_zero(self._value(f"call i32 {function}(i64 {request})"))

    def _word(self, words: str, number: int, kind: str) -> str:
        """Load one of the words that the process has filled in."""
        return self.function.read(kind, self.function.element("i64", words, number))

    def loop(self, step: P.Loop) -> None:
        """Emit a counted loop."""
        if step.extent <= 0:
            return
        if step.tasks:
            self._loop_of_tasks(step)
            return
        saved, outside, self.work = self.vars.get(step.var), self.work, 0

        def body(counter: str) -> None:
            self.vars[step.var] = (
                self._value(f"sub i64 {step.extent - 1}, {counter}") if step.reverse else counter
            )
            self._steps(step.body)
            self._count_work(self.work)

        self.function.loop(0, step.extent, 1, body)
        self.work = outside + (self.work * step.extent if self.in_task else 0)
        if saved is None:
            del self.vars[step.var]
        else:
            self.vars[step.var] = saved

    def _loop_of_tasks(self, step: P.Loop) -> None:
        """Emit a counted loop with parallel iterations.

        A separate function runs the iterations of one task. Signals are checked between rounds of
        tasks.
        """
        outer, outer_vars, outer_work = self.function, self.vars, self.work
        symbol = f"weft_tasks_{len(self.parts)}"
        self.function, self.vars, self.work, self.in_task, self.has_tasks = (
            _EntryFunctionWriter(),
            {},
            0,
            True,
            True,
        )
        for i, var in enumerate(outer_vars):
            self.vars[var] = self._word("%given", i + 2, "i64")
        first = self._value(f"add i64 {self._word('%given', 1, 'i64')}, %task")
        # `%each`, the number of iterations per task, is known only after the body is emitted.
        self._line(f"%begin = mul i64 {first}, %each")
        self._line("%behind = add i64 %begin, %each")
        self._line(
            f"%end = call i64 {self._external('llvm.umin.i64', 'i64 NAME(i64, i64)')}(i64 %behind, i64 {step.extent})"
        )

        def body(counter: str) -> None:
            self.vars[step.var] = (
                self._value(f"sub i64 {step.extent - 1}, {counter}") if step.reverse else counter
            )
            self._emit_steps_inline(step.body)

        self.function.loop("%begin", "%end", 1, body)
        each = min(-(-MODEL.task_bytes // max(self.work, 64)), step.extent)
        start = f"  %slots = load ptr, ptr %given, align 8\n{self._prologue()}  %each = add i64 0, {each}\n"
        end = "  ret void"
        if step.own_bytes:
            take, give = (
                self._external("weft_scratch_take", "ptr NAME(i64)"),
                self._external("weft_scratch_give", "void NAME(ptr)"),
            )
            start += f"  %own = call ptr {take}(i64 {step.own_bytes})\n"
            end = f"  call void {give}(ptr %own)\n{end}"
        self.parts.append(
            (
                symbol,
                self.function.module(
                    f"@{symbol}(ptr %given, i64 %task, i64 %wid)", start, end, "void"
                ),
            )
        )
        work = max(self.work, 64) * each
        self.function, self.vars, self.work, self.in_task = outer, outer_vars, outer_work, False
        self._run_rounds(
            self._external(symbol, "void NAME(ptr, i64, i64)"), -(-step.extent // each), work
        )

    def _run_rounds(self, function: str, tasks: int, work: int) -> None:
        """Emit tasks that cost `work` each, in rounds with signal checks between them."""
        per_round = min(max(_SIGNAL_CHECK_BYTES // work, 64), tasks)

        def one_round(base: str) -> None:
            words = ["%slots", base, *self.vars.values()]
            self.function.context_words = max(self.function.context_words, len(words))
            for i, word in enumerate(words):
                self.function.write(
                    "i64" if i else "ptr", word, self.function.element("i64", "%ctx", i)
                )
            if per_round == tasks:
                self._run(function, tasks)
                return
            remaining = self._value(f"sub i64 {tasks}, {base}")
            least = self._external("llvm.umin.i64", "i64 NAME(i64, i64)")
            count = self._value(f"call i64 {least}(i64 {remaining}, i64 {per_round})")
            self._run_parallel(function, count)
            self._count_work(work * per_round)

        self.function.loop(0, tasks, per_round, one_round)
        self.work += min(work * tasks, _SIGNAL_CHECK_BYTES)

    def while_loop(self, step: P.WhileLoop) -> None:
        """Emit a loop with a condition in memory."""
        outside, self.work = self.work, 0

        def test() -> str:
            self._steps(step.cond_body)
            flag = self.function.read("i8", self.address(step.cond), 1)
            return self._value(f"icmp ne i8 {flag}, 0")

        def body() -> None:
            self._steps(step.body)
            self._count_work(self.work)

        self.function.loop_while([test], body)
        self.work = outside

    def branch(self, step: P.Branch) -> None:
        """Emit a choice between branches by a clamped index."""
        last = len(step.branches) - 1
        if last <= 0:
            self._steps(step.branches[0] if step.branches else ())
            return
        index = self.function.read("i32", self.address(step.index), 4)
        positive = self._value(f"icmp sgt i32 {index}, 0")
        index = self._value(f"select i1 {positive}, i32 {index}, i32 0")
        self.function.switch(index, [lambda body=body: self._steps(body) for body in step.branches])


def _positions(program: P.ScheduledProgram) -> list[int]:
    """Return the position of each slot's address in `slots`; all temporaries have the position of
    the arena, the last."""
    counter = itertools.count()
    positions = [-1 if slot.is_temp else next(counter) for slot in program.slots]
    arena = next(counter)
    return [arena if position < 0 else position for position in positions]


def _size(step: P.Step) -> int:
    """Return the number of steps emitted for one step, including bodies and branches."""
    if isinstance(step, P.Loop):
        return _total(step.body)
    if isinstance(step, P.WhileLoop):
        return _total(step.cond_body) + _total(step.body)
    return sum(map(_total, step.branches)) if isinstance(step, P.Branch) else 1


def _total(steps: Sequence[P.Step]) -> int:
    """Return the number of steps emitted for a sequence; a part counts as one step."""
    runs = _divide(steps)
    return len(runs) if len(runs) > 1 else runs[0][0]


def _divide(steps: Sequence[P.Step]) -> list[tuple[int, list[P.Step]]]:
    """Divide steps into runs of about `MAX_STEPS_PER_FUNCTION` emitted steps; return each
    run with its number of emitted steps."""
    runs: list[tuple[int, list[P.Step]]] = []
    run: list[P.Step] = []
    total = 0
    for step in steps:
        size = _size(step)
        if run and total + size > MAX_STEPS_PER_FUNCTION:
            runs.append((total, run))
            run, total = [], 0
        run.append(step)
        total += size
    return [*runs, (total, run)]


_EMIT = {
    P.Launch: EntryEmitter.launch,
    P.Gemm: EntryEmitter.gemm,
    P.Sort: EntryEmitter.sort,
    P.Fft: EntryEmitter.fft,
    P.LibraryCall: EntryEmitter.library_call,
    P.Copy: EntryEmitter.copy,
    P.JoinStep: EntryEmitter.join,
    P.Pad: EntryEmitter.pad,
    P.HostCallStep: EntryEmitter.host_call,
    P.Loop: EntryEmitter.loop,
    P.WhileLoop: EntryEmitter.while_loop,
    P.Branch: EntryEmitter.branch,
    P.Start: EntryEmitter.start,
    P.Wait: EntryEmitter.wait,
}


#: signatures of the Python functions that check signals
_PYTHON = {
    "PyGILState_Ensure": "i32 NAME()",
    "PyGILState_Release": "void NAME(i32)",
    "PyErr_CheckSignals": "i32 NAME()",
    "PyErr_Fetch": "void NAME(ptr, ptr, ptr)",
}

#: signatures of the Python functions that call a host function
_PYTHON_CALL = {
    "PyObject_CallFunction": "ptr NAME(ptr, ptr, ...)",
    "PyLong_AsLong": "i64 NAME(ptr)",
    "Py_DecRef": "void NAME(ptr)",
}


#: helper functions -> the files of `codegen.runtime` that define them
_HELPERS = {
    "weft_copy": "parallel_copy.ll",
    "weft_pad": "padded_copy.ll",
    "weft_check_signals": "check_signals.ll",
    "weft_call_host": "call_host.ll",
    "weft_fill": "fill_context.ll",
    "weft_library_enter": "library_threads.ll",
}
