"""Zones of known bytes around the memory that compiled programs write: a kernel that leaves its buffers is caught at once.

`guarded()` is a context in which every call of an executable from Python writes into guarded memory, and its inputs are
compared before and after.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from weft.runtime.array import Array, relaid
from weft.runtime.buffer import Buffer
from weft.runtime.executable import Executable

ZONE = 4096
MARK = 0xA5


class _Guarded:
    """Memory of `nbytes` at `ptr` between two zones."""

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        self.whole = Buffer(nbytes + 2 * ZONE)
        self.bytes = self.whole.view("u1", (nbytes + 2 * ZONE,))
        self.bytes[:] = MARK
        self.ptr = self.whole.ptr + ZONE

    def overrun(self) -> str | None:
        for name, zone in (("before", self.bytes[:ZONE]), ("after", self.bytes[ZONE + self.nbytes :])):
            found = np.flatnonzero(zone != MARK)
            if found.size:
                return f"{found.size} bytes written {name} a buffer of {self.nbytes} bytes"
        return None

    def to_buffer(self) -> Buffer:
        made = Buffer(self.nbytes)
        ctypes.memmove(made.ptr, self.ptr, self.nbytes)
        return made


def _call(self: Executable, args) -> list[Array]:
    """What `Executable.__call__` does, in guarded memory."""
    ins = [(x if x._spec is s or x._spec.splits == s.splits else relaid(x, s.sharding))._live() for x, s in zip(args, self.in_specs)]
    before = [b.view("u1", (b.nbytes,)).tobytes() for b in ins]
    outs = {i: _Guarded(s.nbytes) for i, s in enumerate(self.out_specs) if i not in self.aliases}
    arena = _Guarded(self.arena_bytes)
    slots = self._template(
        *[b.ptr for b in ins],
        *[outs[i].ptr if i in outs else ins[self.aliases[i]].ptr for i in range(len(self.out_specs))],
        *[c.ptr for c in self.consts],
        arena.ptr,
    )
    if self.native.call(slots):
        self.native.raise_error()
    for what, memory in [(f"result {i}", g) for i, g in outs.items()] + [("the arena", arena)]:
        problem = memory.overrun()
        assert problem is None, f"{what}: {problem}\n{self.stages.stacked}"
    for i, (buffer, old) in enumerate(zip(ins, before)):
        assert i in self.donated or buffer.view("u1", (buffer.nbytes,)).tobytes() == old, f"input {i} was written"
    results = [Array(s, outs[i].to_buffer() if i in outs else ins[self.aliases[i]]) for i, s in enumerate(self.out_specs)]
    for i in self.donated:
        args[i].delete()
    return results


@contextmanager
def guarded() -> Iterator[None]:
    plain = Executable.__call__
    Executable.__call__ = _call
    try:
        yield
    finally:
        Executable.__call__ = plain
