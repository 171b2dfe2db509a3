"""The native functions that write the records of profiled programs.

In:   nothing; compiled from `record_steps.ll` on first use.
Out:  `symbols()`, the addresses that the entries of profiled programs link to, and `matmul_pool()`, the functions to which a matmul
      that records its tasks links in place of the pool's.
"""

from __future__ import annotations

import functools

from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain.loader import architecture
from weft._engine.codegen.toolchain.native_library import LibraryModule, link, text_of

_EXPORTS = (
    "weft_now",
    "weft_record",
    "weft_recorded_parallel_for",
    "weft_recording_enter",
    "weft_recording_leave",
    "weft_recording_parallel_for",
)
#: architecture -> the counter of the CPU, which all its cores share
_TICKS = {
    "x86_64": {
        "declare_ticks": "declare i64 @llvm.readcyclecounter()",
        "ticks": "call i64 @llvm.readcyclecounter()",
    },
    "aarch64": {
        "declare_ticks": 'declare i64 @llvm.read_volatile_register.i64(metadata)\n!0 = !{!"CNTVCT_EL0"}',
        "ticks": "call i64 @llvm.read_volatile_register.i64(metadata !0)",
    },
}
#: elsewhere, the clock
_CLOCK = {"declare_ticks": "", "ticks": "call i64 @weft_now()"}


def source(machine: str) -> str:
    """Return the recorder's LLVM IR for one architecture, named as by `platform.machine()`."""
    text = text_of("record_steps.ll")
    values = {"threads": str(pool.num_threads()), **_TICKS.get(machine, _CLOCK)}
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    return text


@functools.cache
def symbols() -> dict[str, int]:
    """Return name -> address of the recorder's functions."""
    machine, threads = architecture(), pool.num_threads()
    part = LibraryModule(f"recorder {machine} {threads}", lambda: source(machine), _EXPORTS)
    return link([part], pool.symbols(), libc=("clock_gettime", "pthread_self"))


def matmul_pool() -> dict[str, int]:
    """Return the pool's symbols with a `weft_parallel_for` that records the tasks of the step of its thread."""
    return pool.symbols() | {"weft_parallel_for": symbols()["weft_recording_parallel_for"]}
