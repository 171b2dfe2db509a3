"""The entry of a profiled program: it records when each step begins and ends, and the tasks of each thread.

In:   a scheduled program, as for `program.compile_program`, whose kernels it shares.
Out:  a `ProfiledProgram`: a native program that takes one more pointer after the arena, the address of its records.
Laws: results are bitwise equal to the results of the program without records. Memory for records has a fixed size; what does not fit is
      counted, and the runs and times per step are always complete. The steps of a loop whose iterations run in parallel are not
      recorded one by one. The code of programs that are not profiled does not change.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from weft._engine.codegen.gemm import gemm
from weft._engine.codegen.program.entry import EntryEmitter
from weft._engine.codegen.program.program import compile_program
from weft._engine.codegen.program.program_runner import NativeProgram
from weft._engine.codegen.runtime import pool, recorder
from weft._engine.codegen.runtime.routines import Routine
from weft._engine.ir import program as P
from weft._engine.util.record import record

#: maximal number of records of one call
MOST_RECORDS = 1 << 16
# the words of the memory for records (see `runtime/record_steps.ll`)
_HEAD_WORDS, _RECORD_WORDS = 8, 5


@record
class StepRecords:
    """The records of one call, which took from `begin` to `end`.

    `rows` are (step, thread of the pool, tasks, begin, end); the tasks of a record of the whole step are 0. Times are nanoseconds of
    `time.perf_counter_ns`. `runs` and `nanoseconds` are by step. `dropped` is the number of records that did not fit.
    """

    rows: npt.NDArray[np.int64]
    runs: npt.NDArray[np.int64]
    nanoseconds: npt.NDArray[np.int64]
    dropped: int
    begin: int
    end: int


class ProfiledEntryEmitter(EntryEmitter):
    """Emitter of an entry with a record of each step."""

    def __init__(
        self, program: P.ScheduledProgram, kernel_symbol: Callable, library_symbol: Callable
    ):
        super().__init__(program, kernel_symbol, library_symbol)
        self.numbers = {id(step): i for i, step in enumerate(P.iterate_steps(program.steps))}
        self.current = 0
        self.position = 1 + sum(not slot.is_temp for slot in program.slots)

    def _prologue(self) -> str:
        return (
            f"{super()._prologue()}  %events_at = getelementptr ptr, ptr %slots, i64 {self.position}\n"
            "  %events = load ptr, ptr %events_at, align 8\n"
        )

    def emit(self, step: P.Step) -> None:
        if self.in_task:
            super().emit(step)
            return
        number = self.current = self.numbers[id(step)]
        now = self._external("weft_now", "i64 NAME()")
        record = self._external("weft_record", "void NAME(ptr, i64, i64)")
        begin = self._value(f"call i64 {now}()")
        if isinstance(step, P.Gemm):  # it calls the pool itself
            enter = self._external("weft_recording_enter", "void NAME(ptr, i64)")
            leave = self._external("weft_recording_leave", "void NAME()")
            self._line(f"call void {enter}(ptr %events, i64 {number})")
            super().emit(step)
            self._line(f"call void {leave}()")
        else:
            super().emit(step)
        self._line(f"call void {record}(ptr %events, i64 {number}, i64 {begin})")

    def _run_parallel(self, function: str, tasks: int | str) -> None:
        if self.in_task:
            super()._run_parallel(function, tasks)
            return
        run = self._external(
            "weft_recorded_parallel_for", "void NAME(ptr, ptr, i64, ptr, i64, i64)"
        )
        self._line(
            f"call void {run}(ptr {function}, ptr %ctx, i64 {tasks}, ptr %events, i64 {self.current}, i64 {pool.num_threads()})"
        )

    def imports(self, routines: Sequence[Routine]) -> dict[str, int]:
        addresses = super().imports(routines) | recorder.symbols()
        for symbol, _, features, _ in routines:
            if features is not None:
                addresses[symbol] = gemm.link_copy(symbol, features, recorder.matmul_pool())
        return addresses


class ProfiledProgram(NativeProgram):
    """A native program whose calls pass their records to `receive(records)`, in the calling thread."""

    __slots__ = ("step_count", "receive", "_free")

    def __init__(
        self, native: NativeProgram, step_count: int, receive: Callable[[StepRecords], None]
    ):
        super().__init__(
            native.entry,
            native.host,
            native.keepalive,
            native.kernel_count,
            native.from_disk,
            lambda: native.build_record,
        )
        self.may_take_long, self.work = native.may_take_long, native.work
        self.step_count, self.receive = step_count, receive
        self._free: list[npt.NDArray[np.int64]] = []  # memory for records that no call uses
        run, run_short = self.call, self.short_call
        self.call: Any = lambda slots: self._call(run, slots)
        self.short_call: Any = lambda slots: self._call(run_short, slots)

    def _call(self, run: Callable[[Any], int], slots: Any) -> int:
        """Run the program with memory for records as its last pointer."""
        first = _HEAD_WORDS + 2 * self.step_count
        try:
            words = self._free.pop()
        except IndexError:
            words = np.zeros(first + _RECORD_WORDS * MOST_RECORDS, np.int64)
        words[:first] = 0
        words[1:3] = MOST_RECORDS, self.step_count
        slots[len(slots) - 1] = ctypes.c_void_p(words.ctypes.data)
        begin = time.perf_counter_ns()
        status = run(slots)
        end = time.perf_counter_ns()
        requested = int(words[0])
        count = min(requested, MOST_RECORDS)
        rows = words[first : first + _RECORD_WORDS * count].reshape(count, _RECORD_WORDS)
        totals = words[_HEAD_WORDS:first].reshape(self.step_count, 2)
        runs, nanoseconds = totals[:, 0].copy(), totals[:, 1].copy()
        self.receive(StepRecords(rows.copy(), runs, nanoseconds, requested - count, begin, end))
        self._free.append(words)
        return status


def compile_profiled(
    program: P.ScheduledProgram, receive: Callable[[StepRecords], None]
) -> ProfiledProgram:
    """Compile a program with records; calls pass them to `receive`."""
    native = compile_program(program, emitter_type=ProfiledEntryEmitter)
    return ProfiledProgram(native, sum(1 for _ in P.iterate_steps(program.steps)), receive)
