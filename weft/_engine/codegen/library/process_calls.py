"""Native code for collectives between processes: entry points, and exchange in shared memory.

In:   nothing; for MPI, the LLVM type of its handles.
Out:  `symbols()`, the functions of `windows.ll`; `mpi_symbols()`, the functions of `mpi.ll`;
      `liveness_symbols()`, the functions of `liveness.ll`.
Next: `process_reduction` generates the reductions.
"""

from __future__ import annotations

import functools
import string

from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain.native_library import LibraryModule, link, text_of

# thresholds, measured on several machines
#: number of spin hints before a waiting process yields its CPU: a few microseconds
_EXCHANGE_SPIN_HINTS = 500


_EXPORTS = (
    "weft_collective_start",
    "weft_collective_wait",
    "weft_window_start",
    "weft_window_wait",
)
_HINTS_OF_POLL = 16  # spin hints that take as long as polling MPI once
_LIBC = ("malloc", "free", "memcpy", "memset", "sched_yield", "usleep", "clock_gettime")


def _load_ir_text(name: str, **words: str) -> str:
    """Return the text of a file of LLVM IR with placeholders filled in for this architecture."""
    machine = pool.placeholder_values(pool.architecture())
    return string.Template(text_of(name)).safe_substitute(machine, **words)


@functools.cache
def symbols() -> dict[str, int]:
    """Return name -> address of the functions of `windows.ll`; compile them on the first call."""
    return link(
        [
            LibraryModule(
                "windows",
                lambda: _load_ir_text("windows.ll", spins=str(_EXCHANGE_SPIN_HINTS)),
                _EXPORTS,
            )
        ],
        libc=_LIBC,
    )


@functools.cache
def mpi_symbols(handle: str) -> dict[str, int]:
    """Return name -> address of the functions of `mpi.ll`, for an MPI whose handles have type
    `handle`: i32 or ptr."""
    exports = ("weft_mpi_start", "weft_mpi_wait", "weft_ring_start", "weft_mpi_progress")
    spins = str(_EXCHANGE_SPIN_HINTS // _HINTS_OF_POLL)
    module = LibraryModule(
        f"mpi {handle}", lambda: _load_ir_text("mpi.ll", handle=handle, spins=spins), exports
    )
    return link([module], libc=_LIBC)


@functools.cache
def liveness_symbols() -> dict[str, int]:
    """Return name -> address of the functions of `liveness.ll`."""
    module = LibraryModule("liveness", lambda: text_of("liveness.ll"), ("weft_answer_probes",))
    return link([module], libc=("accept", "close", "usleep"))
