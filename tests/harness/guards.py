"""Zones of known bytes around the memory that compiled programs write: a kernel that leaves its buffers is caught at once.

`guarded()` is a context in which every call of an executable from Python writes into guarded memory, and its inputs are
compared before and after.
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from unittest.mock import patch

import numpy as np

from weft._engine.backends.cpu.buffer import HostBuffer
from weft._engine.backends.cpu.loaded_program import CpuProgram

ZONE = 4096
MARK = 0xA5


class _Guarded:
    """Memory of `nbytes` at `ptr` between two zones."""

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        self.whole = HostBuffer(nbytes + 2 * ZONE)
        self.bytes = self.whole.view("u1", (nbytes + 2 * ZONE,))
        self.bytes[:] = MARK
        self.ptr = self.whole.ptr + ZONE

    def overrun(self) -> str | None:
        for name, zone in (
            ("before", self.bytes[:ZONE]),
            ("after", self.bytes[ZONE + self.nbytes :]),
        ):
            found = np.flatnonzero(zone != MARK)
            if found.size:
                return f"{found.size} bytes written {name} a buffer of {self.nbytes} bytes"
        return None

    def to_buffer(self) -> HostBuffer:
        copy = HostBuffer(self.nbytes)
        ctypes.memmove(copy.ptr, self.ptr, self.nbytes)
        return copy


def _run(self: CpuProgram, ins: list[HostBuffer]) -> list[HostBuffer]:
    """Run `CpuProgram.run` in guarded memory."""
    before = [b.view("u1", (b.nbytes,)).tobytes() for b in ins]
    taken = set(self.aliases.values())
    outs = {i: _Guarded(n) for i, n in enumerate(self.plan.result_bytes) if i not in self.aliases}
    arena = _Guarded(self.temporary_bytes)
    slots = self.slots_type(
        *[b.ptr for b in ins],
        *[
            outs[i].ptr if i in outs else ins[self.aliases[i]].ptr
            for i in range(len(self.plan.result_bytes))
        ],
        *[c.ptr for c in self.consts],
        arena.ptr,
    )
    if self.native.call(slots):
        self.native.host.reraise()
    for what, memory in [(f"result {i}", g) for i, g in outs.items()] + [("the arena", arena)]:
        problem = memory.overrun()
        assert problem is None, f"{what}: {problem}"
    for i, (buffer, old) in enumerate(zip(ins, before)):
        assert i in taken or buffer.view("u1", (buffer.nbytes,)).tobytes() == old, (
            f"input {i} was written"
        )
    return [
        outs[i].to_buffer() if i in outs else ins[self.aliases[i]]
        for i in range(len(self.plan.result_bytes))
    ]


def guarded() -> AbstractContextManager[object]:
    return patch.object(CpuProgram, "run", _run)
