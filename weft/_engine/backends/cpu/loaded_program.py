"""A compiled program in memory: from the compiler, or from the disk cache.

In:   native code, and the program's constants and memory sizes.
Out:  `CpuProgram`: one native call runs everything; this module allocates memory, and stores programs on disk.
Laws: when optimized code replaces a draft, native dispatch (`native_entries`) follows. A program from disk equals the result of the compiler;
      loading it imports neither the compiler nor LLVM.
"""

from __future__ import annotations

import ctypes
import functools
import marshal
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.backends.base import DispatchCandidate, LoadedLocalProgram
from weft._engine.backends.cpu import buffer
from weft._engine.backends.cpu.buffer import HostBuffer, address
from weft._engine.codegen.program import program_runner
from weft._engine.codegen.runtime import pool, queue as queues
from weft._engine.codegen.toolchain import loader
from weft._engine.cpython.references import is_held_at_most
from weft._engine.util.config import config
from weft._engine.util.dispatch_state import guard
from weft._engine.util.record import record
from weft._engine.util.threads import DaemonThread
from weft._engine.util.user_code_suspension import suspended

if TYPE_CHECKING:
    from weft._engine.codegen.program.build_record import BuildRecord
    from weft._engine.codegen.program.program_runner import NativeProgram
    from weft._engine.codegen.runtime.queue import Queue
    from weft._engine.ir.program import ScheduledProgram

# thresholds, measured on several machines
#: minimum bytes of memory traffic of a call that releases the GIL: about 20 µs
_LONG_CALL_BYTES = 1 << 18
#: minimum bytes of memory traffic of a program that is queued, so that its caller continues
_QUEUE_FROM_BYTES = 1 << 26


Write = Callable[[Callable[[], bytes | None]], None]


@record
class CallPlan:
    """The constants and memory sizes for running a program. `aliases`: result number -> number of the donated argument whose memory it
    reuses."""

    consts: Sequence[np.ndarray]
    aliases: dict[int, int]
    arena_bytes: int
    kernel_count: int
    argument_bytes: tuple[int, ...]  # of each argument
    result_bytes: tuple[int, ...]
    work: int  # approximate cost of a call, in bytes of memory traffic
    # process-dependent entries (`process_constants.process_words`) of the constant `words_at`
    words: tuple = ()
    words_at: int = -1


class CpuProgram(LoadedLocalProgram):
    """A program that runs in one native call."""

    buffer_type = HostBuffer

    def __init__(self, native: NativeProgram, plan: CallPlan):
        self.native, self.plan = native, plan
        self.consts = [HostBuffer.from_numpy(np.ascontiguousarray(c)) for c in plan.consts]
        # process-dependent words are filled in at the first run, when all processes plan their exchanges
        self.has_words = not plan.words
        if plan.words:
            self.consts[plan.words_at] = HostBuffer(8 * len(plan.words))
        # `has_effects`: calls must keep their order, because they call Python or exchange data with other processes
        self.exchanges = bool(plan.words)
        self.has_effects = bool(native.host.calls) or bool(plan.words)
        self.aliases = plan.aliases
        self.kernel_count = plan.kernel_count
        self.temporary_bytes = plan.arena_bytes
        self.constant_bytes = sum(c.nbytes for c in self.consts)
        traffic = sum(plan.argument_bytes) + sum(plan.result_bytes) + plan.arena_bytes
        # a long call releases the GIL; so does a host call, during which arguments must be held
        self.is_long = traffic > _LONG_CALL_BYTES or native.may_take_long or bool(plan.words)
        self.holds_gil = not self.is_long and plan.work <= _LONG_CALL_BYTES
        self.slots_type = ctypes.c_void_p * (
            len(plan.argument_bytes) + len(plan.result_bytes) + len(self.consts) + 1
        )
        # called with the address of the code that replaces this one
        self.followers: list[Callable[[int], None]] = []
        if native.draft is not None:
            me = weakref.ref(self)
            native.draft.then.append(lambda better: _replace(me(), better))

    def run(self, buffers: list[HostBuffer]) -> list[HostBuffer]:
        """Run the program in one native call."""
        native, aliases, queue = self.native, self.aliases, queues.current()
        if not self.has_words:
            self._fill_words()
        if native.draft is not None:
            native.draft.note_call()
        if self.has_effects and queue is not None:
            queue.wait_for_effects()
        for i in aliases.values():
            # its array and `buffers` hold it; any other holder would see the results in it
            if not (is_held_at_most(buffers[i], 2) and buffers[i].owns_memory()):
                buffers[i] = buffers[i].copy()
        outs = [
            buffers[aliases[i]] if i in aliases else HostBuffer(n)
            for i, n in enumerate(self.plan.result_bytes)
        ]
        arena = HostBuffer(self.temporary_bytes) if self.temporary_bytes else None
        memory = map(_POINTER, (*buffers, *outs, *self.consts))
        slots = self.slots_type(*memory, arena and arena.ptr)
        failed = native.short_call(slots) if self.holds_gil else native.call(slots)
        for array_type in _first_long[:]:
            _first_long.clear()
            DaemonThread(_open_queue, array_type, False)
        if failed:
            self._fail(native, (buffers, outs, arena))
        return outs

    def _fail(self, native: NativeProgram, memory: tuple) -> None:
        """Raise the error of a call; keep its memory alive if other processes may still use it."""
        if self.plan.words:
            _abandoned.append(memory)
        native.host.reraise()

    def start(
        self, buffers: list[Any], array_type: type, check: Callable | None = None
    ) -> list[Any] | None:
        """Queue the program if it is long, if its arguments are pending, or if it and queued programs have effects."""
        queue, native = queues.current() or _first_queue(self, array_type), self.native
        if queue is None or not self._must_run_in_queue(queue, list(map(type, buffers))):
            return None
        if not self.has_words:
            self._fill_words()
        new_bytes = sum([n for i, n in enumerate(self.plan.result_bytes) if i not in self.aliases])
        queue.wait_for_capacity(new_bytes)
        outs = []
        for i, n in enumerate(self.plan.result_bytes):
            if i in self.aliases:
                out = _sole_block(buffers, self.aliases[i], queue)
            else:
                out = buffer.new_block(n)
            if out is None:  # other objects hold the memory, or there is none
                return None
            outs.append(out)
        if native.draft is not None:
            native.draft.note_call()
        blocks = [address(x) for x in (*buffers, *outs)]
        slots = self.slots_type(*blocks, *[c.ptr for c in self.consts], None)
        objects = [(ctypes.c_void_p * max(1, len(xs)))(*map(id, xs)) for xs in (buffers, outs)]
        if check is None:
            keep = functools.partial(_raise_error, native, self.consts)
            entry, calls_python = native.entry, self.has_effects
        else:
            keep = _CheckedCall(self, buffers, outs, check)
            entry, calls_python = keep.entry, True
        refused = queue.post(
            entry,
            len(slots),
            slots,
            len(buffers),
            objects[0],
            len(outs),
            objects[1],
            self.temporary_bytes,
            id(keep),
            new_bytes,
            None,
            0,
            calls_python,
        )
        return None if refused else outs

    def _must_run_in_queue(self, queue: Queue, types: list[type]) -> bool:
        """Return whether a call with arguments of these types must and can run in the queue."""
        ordered = self.has_effects and queue.has_effects()
        if not (self.is_queued or queue.pending in types or ordered):
            return False
        if not config.cpu_enable_async_dispatch or queue.is_queue_thread() or queue.failed in types:
            return False
        # Python callbacks would run in another thread, without the settings in force here
        return not (self.native.host.calls and guard[0])

    def _fill_words(self) -> None:
        """Plan the exchanges, at the first run: all processes do so, thus not while one of them compiles for others that wait."""
        from weft._engine.backends.cpu import process_constants  # not needed in a single process

        plan = self.plan
        self.consts[plan.words_at].view(np.int64, (len(plan.words),))[:] = (
            process_constants.process_words(plan.words)
        )
        self.has_words = True

    @property
    def is_queued(self) -> bool:
        """Whether callers do not wait for the program."""
        min_bytes = config.async_dispatch_bytes
        return self.plan.work >= (_QUEUE_FROM_BYTES if min_bytes < 0 else min_bytes)

    def store(self, write: Write) -> None:
        """Store the program on disk, unless it calls functions of this process."""
        if not self.native.host.calls:
            _keep(self.native, self.plan, write)

    def speed_up(self, function: Any, call: DispatchCandidate) -> bool:
        """Add an entry for native dispatch."""
        global _has_second_calls
        if call.is_first and not _has_second_calls:
            return True  # dispatch is not worthwhile if every function is called only once
        _has_second_calls = True
        with suspended:
            from weft._engine.backends.cpu import native_entries

        return native_entries.add_native_dispatch(function, self, call)


_has_second_calls = _has_long_calls = False
#: the array class that `_first_queue` passes on while the first long call runs; else empty
_first_long: list[type] = []
#: memory of programs whose exchanges failed, kept alive forever
_abandoned: list[tuple] = []


def _first_queue(loaded: CpuProgram, array_type: type) -> Queue | None:
    """Return the queue of this process, opened at the second long call. The first has all CPUs to itself; the queue's code is compiled
    after it, if a CPU is free for that, and the second call waits for the code."""
    global _has_long_calls
    if loaded.is_queued and config.cpu_enable_async_dispatch:
        if not _has_long_calls and pool.num_threads() > 1:
            _first_long.append(array_type)
        elif _has_long_calls:
            _open_queue(array_type, True)
        _has_long_calls = True
    return queues.current()


def _open_queue(array_type: type, wait: bool) -> None:
    with suspended:
        from weft._engine.backends.cpu import native_entries  # not needed for a first result

    native_entries.open_queue(array_type, wait)


def _raise_error(native: NativeProgram, _: object) -> None:
    """Raise the error of a queued program; its arguments keep alive what the program needs."""
    native.host.reraise()


_POINTER = operator.attrgetter("ptr")
_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class _CheckedCall:
    """A queued program with the check of its results: `entry` runs both. Calling the object raises their error."""

    def __init__(self, loaded: CpuProgram, held: list[Any], outs: list[Any], check: Callable):
        plan, self.native, self.consts, self.check = (
            loaded.plan,
            loaded.native,
            loaded.consts,
            check,
        )
        self.error: BaseException | None = None
        self.memory = [(held, plan.argument_bytes), (outs, plan.result_bytes)]
        self.run = _RUN(self._run)
        self.entry = ctypes.cast(self.run, ctypes.c_void_p).value or 0

    def _run(self, slots: int) -> int:
        try:
            if self.native.call(slots):
                return 1
            self.check(
                *[
                    [
                        x if type(x) is HostBuffer else HostBuffer.of_block(x, n)
                        for x, n in zip(*part)
                    ]
                    for part in self.memory
                ]
            )
            return 0
        except BaseException as error:
            self.error = error.with_traceback(None)  # the frames would keep the arrays alive
            return 1
        finally:
            self.memory = []

    def __call__(self) -> None:
        error, self.error = self.error, None
        if error is None:
            self.native.host.reraise()
            return
        try:
            raise error
        finally:
            del error  # breaks the cycle through this frame


def _sole_block(buffers: list[Any], i: int, queue: Queue) -> Any:
    """Return the block of the donated argument `buffers[i]` if only its array, this call and queued programs hold it; else None."""
    x = buffers[i]
    if type(x) is HostBuffer:
        return x.block() if is_held_at_most(x, 3) and x.owns_memory() else None
    return x if queue.count_references(id(x)) == 3 else None


def _replace(loaded: CpuProgram | None, better: NativeProgram) -> None:
    """Replace the code of a program by equivalent code."""
    if loaded is not None:
        loaded.native = better
        for tell in loaded.followers:
            tell(better.entry)


# ---- on disk


def _keep(code: NativeProgram, plan: CallPlan, write: Write) -> None:
    """Store a program on disk; if it is a draft, store the optimized code too once it is ready."""
    parts, draft = code.build_record, code.draft
    distinct = code.kernel_count
    write(lambda: _serialize(parts, draft is not None, distinct, plan))
    if draft is not None:
        draft.then.append(lambda better: _keep(better, plan, write))


def _serialize(parts: BuildRecord, is_draft: bool, distinct: int, plan: CallPlan) -> bytes | None:
    """Return the serialized program for `load`; None if its code has no image."""
    from weft._engine.codegen.program.program import image_of

    image = image_of(parts)
    values = [np.ascontiguousarray(c).tobytes() for c in plan.consts]
    facts = (
        tuple(plan.aliases.items()),
        plan.arena_bytes,
        plan.kernel_count,
        plan.argument_bytes,
        plan.result_bytes,
        plan.work,
        plan.words,
        plan.words_at,
    )
    return (
        None if image is None else marshal.dumps((tuple(image), is_draft, distinct, values, facts))
    )


def load(code: bytes, lowered: Callable[[], Any], write: Write) -> CpuProgram:
    """Return a program stored by `store`; `lowered()` recomputes its stages."""
    image, is_draft, distinct, values, (aliases, *facts) = marshal.loads(code)
    plan = CallPlan([np.frombuffer(value, np.uint8) for value in values], dict(aliases), *facts)

    def program() -> ScheduledProgram:
        return lowered().scheduled.program

    native_program = program_runner.load(
        loader.Image(*image), distinct, lambda: _build_record_of(program())
    )
    if is_draft:
        from weft._engine.codegen.program.tiered_compilation import FROM_DISK_S, Draft

        native_program.draft = Draft(program, FROM_DISK_S)
    loaded = CpuProgram(native_program, plan)
    if native_program.draft is not None:
        native_program.draft.then.append(lambda better: _keep(better, plan, write))
    return loaded


def _build_record_of(program: ScheduledProgram) -> BuildRecord:
    """Compile a program and return the record of its build."""
    from weft._engine.codegen.program.program import compile_program

    return compile_program(program).build_record
