"""The entry of a program: its schedule as one native function `i32 entry(ptr slots)`.

In:   a `Program`, and the symbols under which its kernels, matmuls and sorts are linked.
Out:  LLVM IR. The result is 0, or 1 when a host call or the handler of a signal raised.
Laws: Signals are seen to before each host call and, in long programs, about every 100 ms of work between steps.
      `slots` holds the addresses of ins, outs and consts in order, then the arena; temps lie in the arena.
      Kernels with one task are called directly; others go through `weft_parallel_for(ptr fn, ptr ctx, i64 tasks)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.ir.program import (
    Branch,
    BufRef,
    Copy,
    Gemm,
    HostCall,
    Launch,
    Loop,
    Program,
    Sort,
    Step,
    WhileLoop,
)

#: copies at least this large are split among the workers
PARALLEL_COPY = 1 << 20
COPY_CHUNK = 1 << 18
#: bytes of memory traffic after which signals are looked for
PATIENCE = 1 << 28
FLOPS_PER_BYTE = 16


class EntryEmitter:
    """Emits the entry of one program."""

    def __init__(self, program: Program, kernel_symbol: Callable, library_symbol: Callable):
        self.program = program
        self.kernel_symbol = kernel_symbol
        self.library_symbol = library_symbol
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.externals: dict[str, str] = {}
        self.vars: dict[str, str] = {}
        self.bases: dict[int, str] = {}
        self.label = "entry"
        self.counter = 0
        self.context_words = 1
        self.host_calls: list[HostCall] = []
        self.checks_signals = False
        self.work = 0                     # bytes of traffic since signals were looked for, as far as it is known here

    def module(self, symbol: str) -> str:
        """The whole text."""
        self._load_bases()
        self._steps(self.program.steps)
        if self.checks_signals:
            for name, signature in _PYTHON.items():
                self._external(name, signature)
        externals = "\n".join(self.externals.values())
        head = f"  %ctx = alloca i64, i64 {self.context_words}, align 64"
        if "%spent" in self.vars:
            head += "\n  %spent = alloca i64\n  store i64 0, ptr %spent"
        return (f"{externals}\n{_COPY_TASK if 'weft_copy' in self.externals else ''}{_CHECK if self.checks_signals else ''}"
                f"define i32 @{symbol}(ptr %slots) nounwind {{\nentry:\n{head}\n" + "\n".join(self.lines)
                + "\n  ret i32 0\nfailed:\n  ret i32 1\n}\n")

    # --- small parts

    def _name(self) -> str:
        self.counter += 1
        return f"%t{self.counter}"

    def _value(self, text: str) -> str:
        name = self._name()
        self.lines.append(f"  {name} = {text}")
        return name

    def _line(self, text: str) -> None:
        self.lines.append("  " + text)

    def _block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def _fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def _external(self, name: str, signature: str) -> str:
        self.externals[name] = f"declare {signature.replace('NAME', '@' + name)}"
        return "@" + name

    def _load_bases(self) -> None:
        slots = self.program.slots
        given = [i for i, slot in enumerate(slots) if slot.kind != "temp"]
        for position, i in enumerate(given):
            self.bases[i] = self._base(position)
        if len(given) < len(slots):
            arena = self._base(len(given))
            for i, slot in enumerate(slots):
                if slot.kind == "temp":
                    self.bases[i] = self._value(f"getelementptr i8, ptr {arena}, i64 {slot.offset}")

    def _base(self, position: int) -> str:
        return self._value(f"load ptr, ptr {self._value(f'getelementptr ptr, ptr %slots, i64 {position}')}, align 8")

    def address(self, ref: BufRef) -> str:
        """The address a reference denotes at this place."""
        pointer = self.bases[ref.slot]
        if ref.offset:
            pointer = self._value(f"getelementptr i8, ptr {pointer}, i64 {ref.offset}")
        for var, stride in ref.strides:
            moved = self._value(f"mul i64 {self.vars[var]}, {stride}")
            pointer = self._value(f"getelementptr i8, ptr {pointer}, i64 {moved}")
        return pointer

    def _context(self, words: list[tuple[str, str]]) -> None:
        """Fill the context array with (type, value) words."""
        self.context_words = max(self.context_words, len(words))
        for i, (type_, value) in enumerate(words):
            self._line(f"store {type_} {value}, ptr {self._value(f'getelementptr i64, ptr %ctx, i64 {i}')}, align 8")

    # --- steps

    def _steps(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            _EMIT[type(step)](self, step)
            self.work += self._traffic(step)
            if self.work > PATIENCE:
                self._check_signals()

    # --- signals

    def _traffic(self, step: Step) -> int:
        """Roughly what a step costs, in bytes of memory traffic; loops count for themselves."""
        if isinstance(step, Launch):
            return 64 + sum(map(self._reach, step.args))
        if isinstance(step, Gemm):
            return step.m * step.n * step.k * math.prod(b[0] for b in (*step.batch, *step.outer_k)) // FLOPS_PER_BYTE
        if isinstance(step, Sort):
            return step.rows * step.n * (8 if step.kind == "top" else 64)
        return step.nbytes if isinstance(step, Copy) else 0

    def _reach(self, ref: BufRef) -> int:
        """The bytes that a step can touch through `ref`: a slice, where a loop steps through the buffer."""
        return min([self.program.slots[ref.slot].nbytes, *(abs(stride) for _, stride in ref.strides)])

    def _check_signals(self) -> None:
        """Let the handlers of signals run; stop the program if one raises."""
        self.checks_signals, self.work = True, 0
        self._fail_unless_zero(self._value("call i32 @weft_check_signals()"))

    def _spend(self, work: int) -> None:
        """At the end of a loop's body, which costs `work`: look for signals if enough was done since the last time."""
        self.vars["%spent"] = "%spent"
        before = self._value("load i64, ptr %spent")
        now = self._value(f"add i64 {before}, {max(work, 64)}")
        enough = self._value(f"icmp ugt i64 {now}, {PATIENCE}")
        kept = self._value(f"select i1 {enough}, i64 0, i64 {now}")
        self._line(f"store i64 {kept}, ptr %spent")
        check, onward = self._fresh("check"), self._fresh("onward")
        self._line(f"br i1 {enough}, label %{check}, label %{onward}")
        self._block(check)
        self._check_signals()
        self._line(f"br label %{onward}")
        self._block(onward)

    def _fail_unless_zero(self, status: str) -> None:
        onward = self._fresh("onward")
        self._line(f"br i1 {self._value(f'icmp eq i32 {status}, 0')}, label %{onward}, label %failed")
        self._block(onward)

    def launch(self, step: Launch) -> None:
        """Run a kernel over its tasks."""
        tasks = step.kernel.parallel_extent
        if tasks <= 0:
            return
        function = self._external(self.kernel_symbol(step.kernel), "void NAME(ptr, i64, i64)")
        self._context([("ptr", self.address(ref)) for ref in step.args])
        if tasks == 1:
            self._line(f"call void {function}(ptr %ctx, i64 0, i64 0)")
        else:
            run = self._external("weft_parallel_for", "void NAME(ptr, ptr, i64)")
            self._line(f"call void {run}(ptr {function}, ptr %ctx, i64 {tasks})")

    def gemm(self, step: Gemm) -> None:
        """Call the matmul of the step's types on a descriptor (see `codegen.gemm`)."""
        from weft.codegen import gemm

        function, tail = self._external(self.library_symbol(step), "void NAME(ptr)"), "null"
        if step.tail is not None:
            tail = self._external(self.kernel_symbol(step.tail), "void NAME(ptr, i64, i64)")
        c = "null" if step.c is None else self.address(step.c)
        pointers = [self.address(step.a), self.address(step.b), c, tail]
        _, words = gemm.describe(step)
        rest = words[len(gemm.POINTERS):len(words) - len(step.tail_args)]
        self._context([*(("ptr", pointer) for pointer in pointers), *(("i64", str(word)) for word in rest),
                       *(("ptr", self.address(ref)) for ref in step.tail_args)])
        self._line(f"call void {function}(ptr %ctx)")

    def sort(self, step: Sort) -> None:
        """Sort rows, one a task (see `codegen.sort`)."""
        function = self._external(self.library_symbol(step), "void NAME(ptr, i64, i64)")
        refs = (step.source, step.previous, step.out, step.places)
        numbers = (step.n, step.k, int(step.descending))
        self._context([*(("ptr", "null" if ref is None else self.address(ref)) for ref in refs), *(("i64", str(x)) for x in numbers)])
        if step.rows == 1:
            self._line(f"call void {function}(ptr %ctx, i64 0, i64 0)")
        elif step.rows > 1:
            run = self._external("weft_parallel_for", "void NAME(ptr, ptr, i64)")
            self._line(f"call void {run}(ptr {function}, ptr %ctx, i64 {step.rows})")

    def copy(self, step: Copy) -> None:
        """Copy bytes, in parallel when there are many."""
        if step.nbytes <= 0:
            return
        target, source = self.address(step.dst), self.address(step.src)
        if step.nbytes < PARALLEL_COPY:
            copy = self._external("llvm.memcpy.p0.p0.i64", "void NAME(ptr, ptr, i64, i1)")
            self._line(f"call void {copy}(ptr {target}, ptr {source}, i64 {step.nbytes}, i1 false)")
            return
        self._external("llvm.memcpy.p0.p0.i64", "void NAME(ptr, ptr, i64, i1)")
        self.externals["weft_copy"] = ""
        run = self._external("weft_parallel_for", "void NAME(ptr, ptr, i64)")
        self._context([("ptr", target), ("ptr", source), ("i64", str(step.nbytes))])
        tasks = -(-step.nbytes // COPY_CHUNK)
        self._line(f"call void {run}(ptr @weft_copy, ptr %ctx, i64 {tasks})")

    def host_call(self, step: HostCall) -> None:
        """Call Python through the program's trampoline."""
        self._check_signals()
        number = len(self.host_calls)
        self.host_calls.append(step)
        self._context([("ptr", self.address(ref)) for ref, _, _ in (*step.ins, *step.outs)])
        call = self._external("weft_host_call", "i32 NAME(i64, ptr)")
        self._fail_unless_zero(self._value(f"call i32 {call}(i64 {number}, ptr %ctx)"))

    def loop(self, step: Loop) -> None:
        """A counted loop."""
        if step.extent <= 0:
            return
        head, exit_, before = self._fresh("loop"), self._fresh("exit"), self.label
        counter, onward = self._name(), self._name()
        self._line(f"br label %{head}")
        self._block(head)
        at = len(self.lines)
        saved = self.vars.get(step.var)
        self.vars[step.var] = counter
        if step.reverse:
            self.vars[step.var] = self._value(f"sub i64 {step.extent - 1}, {counter}")
        outside, self.work = self.work, 0
        self._steps(step.body)
        self._spend(self.work)
        self.work = outside
        self.lines.insert(at, f"  {counter} = phi i64 [0, %{before}], [{onward}, %{self.label}]")
        self._line(f"{onward} = add i64 {counter}, 1")
        again = self._value(f"icmp slt i64 {onward}, {step.extent}")
        self._line(f"br i1 {again}, label %{head}, label %{exit_}")
        self._block(exit_)
        if saved is not None:
            self.vars[step.var] = saved

    def while_loop(self, step: WhileLoop) -> None:
        """A loop on a condition in memory."""
        head, body, exit_ = self._fresh("while"), self._fresh("do"), self._fresh("exit")
        self._line(f"br label %{head}")
        self._block(head)
        self._steps(step.cond_body)
        flag = self._value(f"load i8, ptr {self.address(step.cond)}, align 1")
        self._line(f"br i1 {self._value(f'icmp ne i8 {flag}, 0')}, label %{body}, label %{exit_}")
        self._block(body)
        outside, self.work = self.work, 0
        self._steps(step.body)
        self._spend(self.work)
        self.work = outside
        self._line(f"br label %{head}")
        self._block(exit_)

    def branch(self, step: Branch) -> None:
        """A choice by number."""
        last = len(step.branches) - 1
        if last <= 0:
            self._steps(step.branches[0] if step.branches else ())
            return
        index = self._value(f"load i32, ptr {self.address(step.index)}, align 4")
        positive = self._value(f"icmp sgt i32 {index}, 0")
        index = self._value(f"select i1 {positive}, i32 {index}, i32 0")
        labels, join = [self._fresh("case") for _ in step.branches], self._fresh("join")
        cases = " ".join([f"i32 {i}, label %{label}" for i, label in enumerate(labels[:-1])])
        self._line(f"switch i32 {index}, label %{labels[last]} [{cases}]")
        for label, body in zip(labels, step.branches):
            self._block(label)
            self._steps(body)
            self._line(f"br label %{join}")
        self._block(join)


_EMIT = {Launch: EntryEmitter.launch, Gemm: EntryEmitter.gemm, Sort: EntryEmitter.sort, Copy: EntryEmitter.copy,
         HostCall: EntryEmitter.host_call, Loop: EntryEmitter.loop, WhileLoop: EntryEmitter.while_loop,
         Branch: EntryEmitter.branch}

_COPY_TASK = f"""define internal void @weft_copy(ptr %ctx, i64 %task, i64 %worker) {{
entry:
  %target = load ptr, ptr %ctx
  %source_at = getelementptr i64, ptr %ctx, i64 1
  %source = load ptr, ptr %source_at
  %size_at = getelementptr i64, ptr %ctx, i64 2
  %size = load i64, ptr %size_at
  %from = mul i64 %task, {COPY_CHUNK}
  %left = sub i64 %size, %from
  %short = icmp slt i64 %left, {COPY_CHUNK}
  %count = select i1 %short, i64 %left, i64 {COPY_CHUNK}
  %to = getelementptr i8, ptr %target, i64 %from
  %of = getelementptr i8, ptr %source, i64 %from
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %of, i64 %count, i1 false)
  ret void
}}
"""

#: what the check for signals needs of Python; the last is memory for what a handler raised: type, value, traceback
_PYTHON = {"PyGILState_Ensure": "i32 NAME()", "PyGILState_Release": "void NAME(i32)", "PyErr_CheckSignals": "i32 NAME()",
           "PyErr_Fetch": "void NAME(ptr, ptr, ptr)"}

_CHECK = """@weft_signal_error = external global [3 x ptr]
define internal i32 @weft_check_signals() noinline {
entry:
  %lock = call i32 @PyGILState_Ensure()
  %status = call i32 @PyErr_CheckSignals()
  %quiet = icmp eq i32 %status, 0
  br i1 %quiet, label %done, label %raised
raised:
  %value = getelementptr ptr, ptr @weft_signal_error, i64 1
  %traceback = getelementptr ptr, ptr @weft_signal_error, i64 2
  call void @PyErr_Fetch(ptr @weft_signal_error, ptr %value, ptr %traceback)
  br label %done
done:
  call void @PyGILState_Release(i32 %lock)
  ret i32 %status
}
"""
