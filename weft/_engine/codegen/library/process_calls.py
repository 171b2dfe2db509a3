"""Native code for collectives between processes: their entry points, and the exchange through shared memory.

In:   nothing; for MPI the type of its handles.
Out:  `symbols()`, the functions of `windows.ll`; `mpi_symbols()`, those of `mpi.ll`.
Next: `combine` has the reductions.
"""

from __future__ import annotations

import functools
import string

from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain.native_library import LibraryModule, link, text_of

# thresholds, measured on several machines
#: hints for which a waiting process spins before it lets others run: a few microseconds
_EXCHANGE_SPIN_HINTS = 500


_EXPORTS = (
    "weft_collective_start",
    "weft_collective_wait",
    "weft_window_start",
    "weft_window_wait",
)
_HINTS_OF_POLL = 16  # that take as long as asking MPI once
_LIBC = ("malloc", "free", "memcpy", "memset", "sched_yield", "usleep", "clock_gettime")


def _filled(name: str, **words: str) -> str:
    """The text of a file of LLVM IR for this architecture."""
    machine = pool.of_architecture(pool.architecture())
    return string.Template(text_of(name)).safe_substitute(machine, **words)


@functools.cache
def symbols() -> dict[str, int]:
    """Name -> address of the functions of `windows.ll`; compiled on the first call."""
    return link(
        [
            LibraryModule(
                "windows",
                lambda: _filled("windows.ll", spins=str(_EXCHANGE_SPIN_HINTS)),
                _EXPORTS,
            )
        ],
        libc=_LIBC,
    )


@functools.cache
def mpi_symbols(handle: str) -> dict[str, int]:
    """Name -> address of the functions of `mpi.ll`, for an MPI whose handles have the type `handle`: i32 or ptr."""
    exports = ("weft_mpi_start", "weft_mpi_wait", "weft_ring_start", "weft_mpi_progress")
    spins = str(_EXCHANGE_SPIN_HINTS // _HINTS_OF_POLL)
    module = LibraryModule(
        f"mpi {handle}", lambda: _filled("mpi.ll", handle=handle, spins=spins), exports
    )
    return link([module], libc=_LIBC)


@functools.cache
def liveness_symbols() -> dict[str, int]:
    """Return name -> address of the functions of `liveness.ll`."""
    module = LibraryModule("liveness", lambda: text_of("liveness.ll"), ("weft_answer_probes",))
    return link([module], libc=("accept", "close", "usleep"))
