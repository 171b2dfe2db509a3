"""The thread pool under all native code, and its scratch memory.

In:   nothing; compiled from `pool.ll` on first use.
Out:  `symbols()`, the addresses that other native modules link to: `weft_parallel_for(ptr fn, ptr
      ctx, i64 ntasks)`, where `fn` is `void(ptr ctx, i64 task, i64 wid)`, `weft_scratch_take(i64)
      -> ptr` and `weft_scratch_give(ptr)`.
Laws: every task runs exactly once before `weft_parallel_for` returns; 0 <= wid < num_threads(), and
      concurrent tasks of one call have different `wid`s. Tasks of different calls may share a
      `wid`, so scratch memory is per call. Nested calls, and calls while the pool is busy, run
      inline; a forked child starts its own workers.
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
    compile_concurrently,
    link,
    request,
    text_of,
)
from weft._engine.codegen.toolchain.objects import ObjectRequest
from weft._engine.util.machine_model import MODEL
from weft._engine.util.threads import DaemonThread, allowed_threads, hold_during_fork
from weft._engine.util.user_code_suspension import suspended

# thresholds, measured on several machines
#: spin hints of a waiting thread if there are more threads than CPUs: spinning takes time from
#: working threads
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
    "sigdelset",
    "sigfillset",
    "aligned_alloc",
    "free",
    "madvise",
    "memcpy",
    "abort",
)
_MAX_THREADS = 1024
# Per architecture: the number of the futex system call, and the hint instruction of spin loops.
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
making = hold_during_fork(threading.RLock())
_pool_addresses: list[dict[str, int]] = []  # empty, or the addresses of the one pool
# at most one thread, which loads LLVM and compiles the pool ahead of use
_prewarmers: list[DaemonThread] = []


@functools.cache
def num_threads() -> int:
    """Return the number of threads of a parallel call, including the caller: WEFT_NUM_THREADS, else
    the CPUs of this process, or its cores if products use tiles, whose unit belongs to a core.

    >>> num_threads() >= 1
    True
    """
    count = allowed_threads()
    if target.current().has_tiles and not os.environ.get("WEFT_NUM_THREADS", "").strip():
        count = min(count, len(cores()))
    return min(count, _MAX_THREADS) if _can_share() else 1


def cores() -> set[str]:
    """Return the cores of this process's CPUs, each as the list of the CPUs that share it."""
    path = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    siblings: set[str] = set()
    for cpu in os.sched_getaffinity(0):
        try:
            with open(path.format(cpu)) as file:
                siblings.add(file.read().strip())
        except OSError:
            siblings.add(str(cpu))
    return siblings


def _can_share() -> bool:
    """Return whether worker threads are supported. They sleep on a futex, so only on Linux;
    elsewhere calls run inline."""
    return sys.platform == "linux" and architecture() in _ARCH


def futex() -> int:
    """Return the number of the futex system call, or 0 if there is none."""
    return int(_ARCH[architecture()]["futex"]) if _can_share() else 0


def placeholder_values(machine: str) -> dict[str, str]:
    """Return the values of the placeholders in runtime texts: the spin hint and the number of the
    futex system call."""
    return _ARCH.get(machine, {"futex": "0", "declare_relax": "", "relax": ""})


def source(machine: str) -> str:
    """Return the pool's LLVM IR for one architecture, named as by `platform.machine()`."""
    text = text_of("pool.ll")
    for name, word in placeholder_values(machine).items():
        text = text.replace(f"${{{name}}}", word)
    return text


# ---- prewarming

PAUSE_S = 0.02  # a process that has compiled nothing for this long is assumed to have an idle CPU


class _Prewarming:
    """The state of the prewarming thread, and the end of its pause."""

    resting = over = compiling = False
    pause_ends = 0.0


def prewarm() -> None:
    """If nothing was ever compiled on this machine, load LLVM in a thread and compile the pool in
    the first pause."""
    if target.is_new() and not _prewarmers:
        _prewarmers.append(DaemonThread(_prewarm_pool))
        atexit.register(_end_prewarming)


def postpone_background_work(seconds: float = PAUSE_S) -> None:
    """Postpone prewarming and the optimization of drafts by `seconds`, to leave CPUs to others."""
    _Prewarming.pause_ends = time.monotonic() + seconds


def seconds_until_idle() -> float:
    """Return the remaining seconds of the current pause; negative if it is over."""
    return _Prewarming.pause_ends - time.monotonic()


def _prewarm_pool() -> None:
    with contextlib.suppress(ImportError, OSError):  # the next compilation raises the error again
        target.load()
        postpone_background_work()
        _Prewarming.resting = True
        while (remaining := seconds_until_idle()) > 0:
            time.sleep(min(remaining, PAUSE_S))
        _Prewarming.resting = False
        if (
            _Prewarming.over
            or _pool_addresses
            or objects.is_there(pool_request := request(_part()))
        ):
            return
        _Prewarming.compiling = True
        compile_concurrently(pool_request)
        objects.image([pool_request])


def _end_prewarming() -> None:
    """Let the thread finish its use of LLVM before the interpreter unloads it."""
    _Prewarming.over = True
    if not _Prewarming.resting:
        _prewarmers[0].join()


def _is_prewarming() -> bool:
    return _Prewarming.compiling and _prewarmers[0].is_alive()


def _addresses() -> dict[str, int]:
    """Return the addresses of the pool, which is created on first use."""
    if not _pool_addresses:
        if _is_prewarming():
            _prewarmers[0].join()
        with suspended, making:
            if not _pool_addresses:
                _pool_addresses.append(_make())
    return _pool_addresses[0]


def _part() -> LibraryModule:
    machine = architecture()
    # Not optimized: this costs 5 of the 40 ns of distributing two tasks and saves 12 of the 17 ms
    # of a new process's first module.
    return LibraryModule(f"pool {machine}", lambda: source(machine), _EXPORTS, quick=True)


def requests() -> list[ObjectRequest]:
    """Return the objects to prepare before `symbols` is called."""
    return [] if _pool_addresses or _is_prewarming() else [request(_part())]


def make_if_compiled() -> None:
    """Create the pool if it needs no compilation."""
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
    # Placing workers costs one system call per worker whenever the caller moves to another CPU:
    # only worth it for few workers.
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
    """Run the native function at address `fn` for tasks 0 .. ntasks-1 on the pool; return when all
    tasks are done."""
    _entry()(fn, ctx, ntasks)


@functools.cache
def _entry() -> Callable[[int, int, int], None]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        symbols()["weft_parallel_for"]
    )


def _stop_at_exit() -> None:
    """Stop the workers before the interpreter exits; wait at most 0.5 s for workers that daemon
    threads keep busy."""
    addresses = _addresses()
    alive = ctypes.c_int32.from_address(addresses["weft_pool_alive"])
    ctypes.CFUNCTYPE(None)(addresses["weft_pool_stop"])()
    deadline = time.monotonic() + 0.5
    while alive.value > 0 and time.monotonic() < deadline:
        time.sleep(0.0005)
