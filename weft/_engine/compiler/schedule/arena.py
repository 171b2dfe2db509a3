"""Arena allocation: buffers with live ranges, packed into one arena.

In:   `Buffer`s, each with its first and last step.
Out:  the offsets of temporaries (64-byte aligned, 2 MiB from 2 MiB up), and the size of the arena.
Laws: buffers that are live at the same step do not overlap, unless one takes over the other in place.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable

from weft._engine.ir.program import SlotKind
from weft._engine.util.config import config
from weft._engine.util.errors import OutOfMemoryError
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import field, record


@record(frozen=False, eq=False)
class Buffer:
    """Memory of one value. `kind` is that of its slot; `forward` is set when it is part of another one after all."""

    nbytes: int
    kind: SlotKind = SlotKind.TEMP
    number: int = -1  # position among the buffers of its kind, for in, out and const
    region: "Region | None" = None  # the loop body it belongs to
    first: int = 1 << 60
    last: int = -1
    offset: int = 0
    forward: "Ref | None" = None
    takes_over: "Buffer | None" = (
        None  # a buffer whose last reader is this one's first writer, in place
    )

    @property
    def is_temp(self) -> bool:
        """Whether the buffer lives in the arena."""
        return self.kind is SlotKind.TEMP

    @property
    def has_slot(self) -> bool:
        """Whether the program has a slot for it: it is no part of another buffer, and is used."""
        return self.forward is None and not (self.is_temp and self.last < 0)


@record
class Ref:
    """An address: `offset` bytes into a buffer, and bytes per loop variable."""

    buffer: Buffer
    offset: int = 0
    strides: tuple[tuple[str, int], ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether this is the beginning of a buffer in all iterations."""
        return not self.offset and not self.strides

    def moved(self, nbytes: int) -> "Ref":
        return Ref(self.buffer, self.offset + nbytes, self.strides) if nbytes else self

    def final(self) -> "Ref":
        """The same address in the buffer that is really there."""
        ref = self
        while ref.buffer.forward is not None:
            base = ref.buffer.forward
            ref = Ref(base.buffer, base.offset + ref.offset, base.strides + ref.strides)
        return ref


@record(frozen=False, eq=False)
class Region:
    """A loop body or branch: what it touches of the outside stays alive until it ends. The iterations of a loop with `tasks` run in
    parallel, each with `own_bytes` of memory."""

    parent: "Region | None"
    touched: set[Buffer] = field(default_factory=set)
    tasks: bool = False
    own_bytes: int = 0

    def of_tasks(self) -> "Region | None":
        """The body of the loop around, if any, whose iterations run in parallel."""
        region: Region | None = self
        while region is not None and not region.tasks:
            region = region.parent
        return region


def place(buffers: Iterable[Buffer]) -> int:
    """Give offsets to temporary buffers; the size of the arena.

    A buffer goes to the narrowest gap that it fits in, the lowest of equals, or after everything that is alive.
    """
    temps = [b for b in buffers if b.is_temp and b.forward is None and b.last >= 0]
    temps.sort(key=lambda b: (b.first, -b.nbytes))
    if config.check and config.checks.memory:
        return _place_apart(temps)
    owners: dict[Buffer, int] = {}  # buffer that owns memory -> the end of that
    expiring: list[tuple[int, int, Buffer]] = []  # (last, order, owner), a heap
    gaps = _Gaps()
    for order, buffer in enumerate(temps):
        while expiring and expiring[0][0] < buffer.first:
            gone = heapq.heappop(expiring)[2]
            if gone in owners:  # else another buffer took it over
                gaps.give(gone.offset, owners.pop(gone))
        previous = buffer.takes_over
        if previous is not None and previous in owners:
            buffer.offset, owners[buffer] = previous.offset, owners.pop(previous)
        else:
            align = MODEL.huge_page if buffer.nbytes >= MODEL.huge_page else MODEL.buffer_alignment
            nbytes = -(-max(buffer.nbytes, 1) // MODEL.buffer_alignment) * MODEL.buffer_alignment
            buffer.offset = gaps.take(nbytes, align)
            owners[buffer] = buffer.offset + nbytes
        heapq.heappush(expiring, (buffer.last, order, buffer))
    if gaps.top >= 1 << 63:
        raise OutOfMemoryError(
            f"a program needs {gaps.top} bytes for values between its operations, more than memory has addresses"
        )
    return gaps.top


#: bytes before and after each buffer of a program whose memory is checked
GUARD = 4096


def _place_apart(temps: Iterable[Buffer]) -> int:
    """Give each buffer memory of its own, with guards around it; the size of the arena. Only buffers in place share memory."""
    top = GUARD
    placed: set[Buffer] = set()
    for buffer in temps:
        previous = buffer.takes_over
        if previous is not None and previous in placed:
            buffer.offset = previous.offset
        else:
            buffer.offset = top
            top += -(-buffer.nbytes // MODEL.buffer_alignment) * MODEL.buffer_alignment + GUARD
        placed.add(buffer)
    return top


class _Gaps:
    """Free ranges below the end of what is held, by their start; `top` is the greatest end there ever was."""

    __slots__ = ("end", "starts", "ends", "top")

    def __init__(self):
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.end = self.top = 0

    def take(self, nbytes: int, align: int) -> int:
        """The start of a range that is free no longer."""
        fits = [
            (end - start, i)
            for i, (start, end) in enumerate(zip(self.starts, self.ends))
            if end - -(-start // align) * align >= nbytes
        ]
        if not fits:
            begin = -(-self.end // align) * align
            if begin > self.end:
                self.starts.append(self.end)
                self.ends.append(begin)
            self.end = begin + nbytes
            self.top = max(self.top, self.end)
            return begin
        at = min(fits)[1]
        start, end = self.starts[at], self.ends[at]
        begin = -(-start // align) * align
        left = [(a, b) for a, b in ((start, begin), (begin + nbytes, end)) if a < b]
        self.starts[at : at + 1], self.ends[at : at + 1] = (
            [a for a, _ in left],
            [b for _, b in left],
        )
        return begin

    def give(self, start: int, end: int) -> None:
        """Free a range, merged with the adjacent gaps."""
        at = bisect.bisect(self.starts, start)
        if at < len(self.starts) and self.starts[at] == end:
            end = self.ends[at]
            del self.starts[at], self.ends[at]
        if at and self.ends[at - 1] == start:
            at -= 1
            start = self.starts[at]
            del self.starts[at], self.ends[at]
        if end == self.end:
            self.end = start
        else:
            self.starts.insert(at, start)
            self.ends.insert(at, end)
