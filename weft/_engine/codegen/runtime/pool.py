"""The thread pool under all native code, and its scratch memory.

In:   nothing; compiled from `pool.ll` on first use.
Out:  `symbols()`, the addresses that other native modules link to: `weft_parallel_for(ptr fn, ptr ctx, i64 ntasks)`,
      where `fn` is `void(ptr ctx, i64 task, i64 wid)`, `weft_scratch_take(i64) -> ptr` and `weft_scratch_give(ptr)`.
Laws: every task runs exactly once before `weft_parallel_for` returns; 0 <= wid < num_threads(), and concurrent tasks of one
      call have different `wid`s (tasks of different calls may share one, so scratch belongs to a call); nested calls, and
      callers that find the pool busy, run inline; a forked child starts its own workers.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Callable

from weft._engine.codegen.toolchain import objects, target
from weft._engine.codegen.toolchain.loader import architecture
from weft._engine.codegen.toolchain.native_library import (
    LibraryModule,
    compile_apart,
    link,
    request,
    text_of,
)
from weft._engine.codegen.toolchain.objects import ObjectRequest
from weft._engine.util.machine_model import MODEL
from weft._engine.util.threads import DaemonThread, allowed_threads, held_over_forks
from weft._engine.util.user_code import suspended

# thresholds, measured on several machines
#: or with more threads than CPUs, where it takes time from one that works
_POOL_SPIN_HINTS_CROWDED = 50


_EXPORTS = (
    "weft_parallel_for",
    "weft_scratch_take",
    "weft_scratch_give",
    "weft_pool_stop",
    "weft_pool_forked",
    "weft_pool_threads",
    "weft_pool_spin",
    "weft_pool_allowed",
    "weft_pool_place",
    "weft_pool_alive",
)
_LIBC = (
    "syscall",
    "sched_getcpu",
    "sched_yield",
    "pthread_create",
    "pthread_detach",
    "pthread_setaffinity_np",
    "pthread_sigmask",
    "sigfillset",
    "aligned_alloc",
    "free",
    "madvise",
    "memcpy",
    "abort",
)
_MAX_THREADS = 1024
# What differs between architectures: the number of the futex system call, and a hint that this is a spin loop.
_ARCH = {
    "x86_64": {
        "futex": "202",
        "declare_relax": "declare void @llvm.x86.sse2.pause()",
        "relax": "call void @llvm.x86.sse2.pause()",
    },
    "aarch64": {
        "futex": "98",
        "declare_relax": "declare void @llvm.aarch64.hint(i32)",
        "relax": "call void @llvm.aarch64.hint(i32 1)",
    },
}
making = held_over_forks(threading.RLock())
_made: list[dict[str, int]] = []  # one pool, once it is made
_prewarmers: list[
    DaemonThread
] = []  # threads that load LLVM and compile the pool before they are needed


@functools.cache
def num_threads() -> int:
    """Threads that share a job, the caller included: WEFT_NUM_THREADS, else the CPUs this process may use.

    >>> num_threads() >= 1
    True
    """
    count = allowed_threads()
    return min(count, _MAX_THREADS) if _can_share() else 1


def _can_share() -> bool:
    """Workers sleep on a futex, so only Linux has them; elsewhere every call runs on its caller."""
    return sys.platform == "linux" and architecture() in _ARCH


def futex() -> int:
    """The number of the system call that threads sleep in, or 0 where there is none."""
    return int(_ARCH[architecture()]["futex"]) if _can_share() else 0


def of_architecture(machine: str) -> dict[str, str]:
    """What texts of the runtime have placeholders for: the hint of a thread that waits, and the number of a system call."""
    return _ARCH.get(machine, {"futex": "0", "declare_relax": "", "relax": ""})


def source(machine: str) -> str:
    """Return the pool's LLVM IR for one architecture (a name as `platform.machine()` gives it)."""
    text = text_of("pool.ll")
    for name, word in of_architecture(machine).items():
        text = text.replace(f"${{{name}}}", word)
    return text


# ---- prewarming

PAUSE_S = 0.02  # a process that compiled nothing for so long has a CPU to spare


class _Prewarming:
    """What the thread of `prewarm` does, and until when it pauses."""

    resting = over = compiling = False
    pause_ends = 0.0


def prewarm() -> None:
    """Where nothing was ever compiled, load LLVM while the process goes on, and compile the pool in its first pause."""
    if target.is_new() and not _prewarmers:
        _prewarmers.append(DaemonThread(_prewarm_pool))
        atexit.register(_end_prewarming)


def defer(seconds: float = PAUSE_S) -> None:
    """Leave the CPUs to others for a moment."""
    _Prewarming.pause_ends = time.monotonic() + seconds


def rest_left() -> float:
    """Seconds until the CPUs are free, as far as is known."""
    return _Prewarming.pause_ends - time.monotonic()


def _prewarm_pool() -> None:
    with contextlib.suppress(ImportError, OSError):  # the next compilation raises it again
        target.load()
        defer()
        _Prewarming.resting = True
        while (rest := rest_left()) > 0:
            time.sleep(min(rest, PAUSE_S))
        _Prewarming.resting = False
        if _Prewarming.over or _made or objects.is_there(wanted := request(_part())):
            return
        _Prewarming.compiling = True
        compile_apart(wanted)
        objects.image([wanted])


def _end_prewarming() -> None:
    """The process ends, and LLVM with it."""
    _Prewarming.over = True
    if not _Prewarming.resting:
        _prewarmers[0].join()


def _is_prewarming() -> bool:
    return _Prewarming.compiling and _prewarmers[0].is_alive()


def _addresses() -> dict[str, int]:
    """Return the one pool's addresses."""
    if not _made:
        if _is_prewarming():
            _prewarmers[0].join()
        with suspended, making:
            if not _made:
                _made.append(_make())
    return _made[0]


def _part() -> LibraryModule:
    machine = architecture()
    # not optimized: 5 ns of the 40 that sharing out two tasks takes, for 12 of the 17 ms of a new process's first module
    return LibraryModule(f"pool {machine}", lambda: source(machine), _EXPORTS, quick=True)


def requests() -> list[ObjectRequest]:
    """What to prepare before `symbols` is called."""
    return [] if _made or _is_prewarming() else [request(_part())]


def make_of_what_is_there() -> None:
    """Make the pool, unless it would have to be compiled."""
    if all(map(objects.is_there, requests())):
        _addresses()


def _make() -> dict[str, int]:
    addresses = link([_part()], libc=_LIBC)
    threads, cpus = (
        num_threads(),
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0},
    )
    ctypes.c_int64.from_address(addresses["weft_pool_threads"]).value = threads
    hints = MODEL.pool_spin_hints if threads <= len(cpus) else _POOL_SPIN_HINTS_CROWDED
    ctypes.c_int32.from_address(addresses["weft_pool_spin"]).value = hints
    words = (ctypes.c_uint64 * 16).from_address(addresses["weft_pool_allowed"])
    for cpu in cpus:
        if cpu < 1024:
            words[cpu // 64] |= 1 << cpu % 64
    # One system call per worker whenever the caller moved: worth it for few workers only.
    ctypes.c_int32.from_address(addresses["weft_pool_place"]).value = int(
        2 <= threads <= 16 and len(cpus) >= 2
    )
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(addresses["weft_pool_forked"]))
    atexit.register(_stop_at_exit)
    return addresses


def symbols() -> dict[str, int]:
    """Return name -> address of the native functions that other modules link to; compiles them on the first call."""
    addresses = _addresses()
    return {name: addresses[name] for name in _EXPORTS[:3]}


def parallel_for(fn: int, ctx: int, ntasks: int) -> None:
    """Run the native function at address `fn` for task 0 .. ntasks-1 on the pool; returns when all are done."""
    _entry()(fn, ctx, ntasks)


@functools.cache
def _entry() -> Callable[[int, int, int], None]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        symbols()["weft_parallel_for"]
    )


def _stop_at_exit() -> None:
    """Let the workers return before the interpreter goes; do not wait long for one that a daemon thread keeps busy."""
    addresses = _addresses()
    alive = ctypes.c_int32.from_address(addresses["weft_pool_alive"])
    ctypes.CFUNCTYPE(None)(addresses["weft_pool_stop"])()
    deadline = time.monotonic() + 0.5
    while alive.value > 0 and time.monotonic() < deadline:
        time.sleep(0.0005)
