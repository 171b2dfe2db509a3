"""A compiled program in memory: from the compiler, or from what an earlier process kept on disk.

In:   native code, and what it needs of memory.
Out:  `CpuLoaded`: one native call runs everything; this file only finds memory, and keeps what can be kept.
Laws: native dispatch (`calls`) follows when better code takes the place of a draft. What comes from disk is what the compiler would
      make; loading it imports neither the compiler nor LLVM.
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

from weft._engine.backends.base import Call, Loaded
from weft._engine.backends.cpu import buffer
from weft._engine.backends.cpu.buffer import Buffer, address
from weft._engine.codegen.program import native
from weft._engine.codegen.runtime import pool, queue as queues
from weft._engine.codegen.toolchain import loader
from weft._engine.cpython.references import is_held_at_most
from weft._engine.util.config import config
from weft._engine.util.record import record
from weft._engine.util.state import guard
from weft._engine.util.threads import DaemonThread
from weft._engine.util.user_code import suspended

if TYPE_CHECKING:
    from weft._engine.codegen.program.build_record import BuildRecord
    from weft._engine.codegen.program.native import NativeProgram
    from weft._engine.codegen.runtime.queue import Queue
    from weft._engine.ir.program import Program

# thresholds, measured on several machines
#: bytes of memory traffic in which other Python threads should run: about 20 µs
_LONG_CALL_BYTES = 1 << 18
#: bytes of memory traffic of a program that is worth being queued, so that its caller goes on
_QUEUE_FROM_BYTES = 1 << 26


Write = Callable[[Callable[[], bytes | None]], None]


@record
class Plan:
    """What running a program needs besides its code. `aliases`: result number -> number of the donated argument whose memory it
    takes."""

    consts: Sequence[np.ndarray]
    aliases: dict[int, int]
    arena_bytes: int
    kernel_count: int
    argument_bytes: tuple[int, ...]  # of each
    result_bytes: tuple[int, ...]
    work: int  # roughly what a call costs, in bytes of memory traffic
    words: tuple = ()  # what depends on the process (`exchanges.filled`), the value of a constant:
    words_at: int = -1  # that of this number


class CpuLoaded(Loaded):
    """A program of one native call."""

    buffer_type = Buffer

    def __init__(self, native: NativeProgram, plan: Plan):
        self.native, self.plan = native, plan
        self.consts = [Buffer.from_numpy(np.ascontiguousarray(c)) for c in plan.consts]
        self.has_words = (
            not plan.words
        )  # those that depend on the process, which it asks the others for when it first runs
        if plan.words:
            self.consts[plan.words_at] = Buffer(8 * len(plan.words))
        #: whether calls have to keep their order: programs that call Python, or exchange with other processes
        self.exchanges = bool(plan.words)
        self.has_effects = bool(native.host.calls) or bool(plan.words)
        self.aliases = plan.aliases
        self.kernel_count = plan.kernel_count
        self.temporary_bytes = plan.arena_bytes
        self.constant_bytes = sum(c.nbytes for c in self.consts)
        traffic = sum(plan.argument_bytes) + sum(plan.result_bytes) + plan.arena_bytes
        # worth letting other Python threads run; while a host call runs they may, and arguments must be held
        self.is_long = traffic > _LONG_CALL_BYTES or native.takes_long or bool(plan.words)
        self.holds_gil = not self.is_long and plan.work <= _LONG_CALL_BYTES
        self.slots_type = ctypes.c_void_p * (
            len(plan.argument_bytes) + len(plan.result_bytes) + len(self.consts) + 1
        )
        self.followers: list[
            Callable[[int], None]
        ] = []  # called with the address of the code that takes over
        if native.draft is not None:
            me = weakref.ref(self)
            native.draft.then.append(lambda better: _replace(me(), better))

    def run(self, buffers: list[Buffer]) -> list[Buffer]:
        """One native call."""
        native, aliases, queue = self.native, self.aliases, queues.current()
        if not self.has_words:
            self._fill_words()
        if native.draft is not None:
            native.draft.called()
        if self.has_effects and queue is not None:
            queue.wait_for_effects()
        for i in aliases.values():
            # its array and `buffers` hold it; others would see the results in it
            if not (is_held_at_most(buffers[i], 2) and buffers[i].owns_memory()):
                buffers[i] = buffers[i].copy()
        outs = [
            buffers[aliases[i]] if i in aliases else Buffer(n)
            for i, n in enumerate(self.plan.result_bytes)
        ]
        arena = Buffer(self.temporary_bytes) if self.temporary_bytes else None
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
        """Raise what a call failed with, and keep its memory if other processes may still use it."""
        if self.plan.words:
            _abandoned.append(memory)
        native.host.reraise()

    def start(
        self, held: list[Any], array_type: type, check: Callable | None = None
    ) -> list[Any] | None:
        """Queue the program if it takes long, its arguments are not computed yet, or it calls Python and others are queued that do."""
        queue, native = queues.current() or _first_queue(self, array_type), self.native
        if queue is None or not self._takes_queue(queue, list(map(type, held))):
            return None
        if not self.has_words:
            self._fill_words()
        fresh = sum([n for i, n in enumerate(self.plan.result_bytes) if i not in self.aliases])
        queue.room(fresh)
        outs = []
        for i, n in enumerate(self.plan.result_bytes):
            if i in self.aliases:
                out = _sole_block(held, self.aliases[i], queue)
            else:
                out = buffer.new_block(n)
            if out is None:  # others hold the memory, or there is none
                return None
            outs.append(out)
        if native.draft is not None:
            native.draft.called()
        blocks = [address(x) for x in (*held, *outs)]
        slots = self.slots_type(*blocks, *[c.ptr for c in self.consts], None)
        objects = [(ctypes.c_void_p * max(1, len(xs)))(*map(id, xs)) for xs in (held, outs)]
        if check is None:
            keep = functools.partial(_raise_error, native, self.consts)
            entry, calls_python = native.entry, self.has_effects
        else:
            keep = _Checked(self, held, outs, check)
            entry, calls_python = keep.entry, True
        refused = queue.post(
            entry,
            len(slots),
            slots,
            len(held),
            objects[0],
            len(outs),
            objects[1],
            self.temporary_bytes,
            id(keep),
            fresh,
            None,
            0,
            calls_python,
        )
        return None if refused else outs

    def _takes_queue(self, queue: Queue, types: list[type]) -> bool:
        """True if a call with arguments of these types has to run in the queue, and can."""
        ordered = self.has_effects and queue.has_effects()
        if not (self.is_queued or queue.pending in types or ordered):
            return False
        if not config.cpu_enable_async_dispatch or queue.is_mine() or queue.failed in types:
            return False
        # the settings in force here would not be in force where Python is called from
        return not (self.native.host.calls and guard[0])

    def _fill_words(self) -> None:
        """Plan the exchanges. All processes come here: not while one of them compiles for others that wait."""
        from weft._engine.backends.cpu import exchanges  # what a single process does without

        plan = self.plan
        self.consts[plan.words_at].view(np.int64, (len(plan.words),))[:] = exchanges.filled(
            plan.words
        )
        self.has_words = True

    @property
    def is_queued(self) -> bool:
        """Whether callers do not wait for the program."""
        least = config.async_dispatch_bytes
        return self.plan.work >= (_QUEUE_FROM_BYTES if least < 0 else least)

    def keep(self, write: Write) -> None:
        """Keep a program whose code is all on disk, and which calls nothing of this process."""
        if not self.native.host.calls:
            _keep(self.native, self.plan, write)

    def speed_up(self, function: Any, call: Call) -> bool:
        """Make an entry for native dispatch."""
        global _has_second_calls
        if call.is_first and not _has_second_calls:
            return True  # a process that calls everything once does without dispatch
        _has_second_calls = True
        with suspended:
            from weft._engine.backends.cpu import calls

        return calls.speed_up(function, self, call)


_has_second_calls = _has_long_calls = False
#: the type of arrays, while the first call that takes long runs
_first_long: list[type] = []
#: memory of programs whose exchanges failed
_abandoned: list[tuple] = []


def _first_queue(loaded: CpuLoaded, array_type: type) -> Queue | None:
    """The queue of this process, from the second call on that takes long. The first has all CPUs for itself; what the queue needs is
    compiled after it, if there is a CPU for that, and the second call waits for it."""
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
        from weft._engine.backends.cpu import calls  # what a first result does without

    calls.open_queue(array_type, wait)


def _raise_error(native: NativeProgram, _: object) -> None:
    """Raise what a queued program failed with; everything that it needs lives as long as the call of this."""
    native.host.reraise()


_POINTER = operator.attrgetter("ptr")
_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class _Checked:
    """A queued program, and what looks at its results once it has run: `entry` does both. Called, it raises what either failed with."""

    def __init__(self, loaded: CpuLoaded, held: list[Any], outs: list[Any], check: Callable):
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
                    [x if type(x) is Buffer else Buffer.of_block(x, n) for x, n in zip(*part)]
                    for part in self.memory
                ]
            )
            return 0
        except BaseException as error:
            self.error = error.with_traceback(None)  # whose frames hold the arrays
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
            del error  # no cycle through this frame


def _sole_block(held: list[Any], i: int, queue: Queue) -> Any:
    """The block of the donated argument `held[i]`, if only its array, this call and queued programs hold it; None else."""
    x = held[i]
    if type(x) is Buffer:
        return x.block() if is_held_at_most(x, 3) and x.owns_memory() else None
    return x if queue.holders(id(x)) == 3 else None


def _replace(loaded: CpuLoaded | None, better: NativeProgram) -> None:
    """From now on other code does the same."""
    if loaded is not None:
        loaded.native = better
        for tell in loaded.followers:
            tell(better.entry)


# ---- on disk


def _keep(code: NativeProgram, plan: Plan, write: Write) -> None:
    """Keep a program, and what becomes of it if it is a draft."""
    parts, draft = code.made, code.draft
    distinct = code.kernel_count
    write(lambda: _stored(parts, draft is not None, distinct, plan))
    if draft is not None:
        draft.then.append(lambda better: _keep(better, plan, write))


def _stored(parts: BuildRecord, is_draft: bool, distinct: int, plan: Plan) -> bytes | None:
    """All that `load` needs."""
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


def load(code: bytes, lowered: Callable[[], Any], write: Write) -> CpuLoaded:
    """The program that `keep` stored; `lowered()` computes its stages again."""
    image, is_draft, distinct, values, (aliases, *facts) = marshal.loads(code)
    plan = Plan([np.frombuffer(value, np.uint8) for value in values], dict(aliases), *facts)

    def program() -> Program:
        return lowered().scheduled.program

    found = native.load(loader.Image(*image), distinct, lambda: _made(program()))
    if is_draft:
        from weft._engine.codegen.program.tiered_compilation import FROM_DISK_S, Draft

        found.draft = Draft(program, FROM_DISK_S)
    loaded = CpuLoaded(found, plan)
    if found.draft is not None:
        found.draft.then.append(lambda better: _keep(better, plan, write))
    return loaded


def _made(program: Program) -> BuildRecord:
    """What the code of a program is made of."""
    from weft._engine.codegen.program.program import compile_program

    return compile_program(program).made
