"""Arena allocation: temporary buffers with live ranges are packed into one arena.

In:   `ArenaBuffer`s, each with its first and last step.
Out:  the offsets of temporaries (aligned to 64 bytes; buffers of at least 2 MiB to 2 MiB), and the size of the arena.
Laws: buffers that are live at the same step do not overlap, unless one overwrites the other in place.
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
class ArenaBuffer:
    """The memory of one value. `kind` is the kind of its slot; `forward` is set if it is a part of another buffer."""

    nbytes: int
    kind: SlotKind = SlotKind.TEMP
    number: int = -1  # position among the inputs, outputs or constants
    region: "Region | None" = None  # the loop body or branch that created it
    first: int = 1 << 60
    last: int = -1
    offset: int = 0
    forward: "ArenaRef | None" = None
    # the buffer that the first writer of this one reads last, and overwrites in place
    takes_over: "ArenaBuffer | None" = None

    @property
    def is_temp(self) -> bool:
        """True if the buffer is in the arena."""
        return self.kind is SlotKind.TEMP

    @property
    def has_slot(self) -> bool:
        """True if the program has a slot for the buffer: it is not part of another buffer, and is used."""
        return self.forward is None and not (self.is_temp and self.last < 0)


@record
class ArenaRef:
    """An address: `offset` bytes from the start of a buffer, plus strides in bytes times loop variables."""

    buffer: ArenaBuffer
    offset: int = 0
    strides: tuple[tuple[str, int], ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if this is the start of a buffer in all iterations."""
        return not self.offset and not self.strides

    def offset_by(self, nbytes: int) -> "ArenaRef":
        return ArenaRef(self.buffer, self.offset + nbytes, self.strides) if nbytes else self

    def final(self) -> "ArenaRef":
        """Return the same address in the buffer that contains this one after following `forward`."""
        ref = self
        while ref.buffer.forward is not None:
            base = ref.buffer.forward
            ref = ArenaRef(base.buffer, base.offset + ref.offset, base.strides + ref.strides)
        return ref


@record(frozen=False, eq=False)
class Region:
    """A loop body or branch. Outside buffers in `touched` are live until it ends.

    The iterations of a loop with `tasks` run in parallel, each with `own_bytes` of private memory."""

    parent: "Region | None"
    touched: set[ArenaBuffer] = field(default_factory=set)
    tasks: bool = False
    own_bytes: int = 0

    def of_tasks(self) -> "Region | None":
        """Return the enclosing region whose iterations run in parallel, possibly this one; None if there is none."""
        region: Region | None = self
        while region is not None and not region.tasks:
            region = region.parent
        return region


def assign_offsets(buffers: Iterable[ArenaBuffer]) -> int:
    """Assign offsets to temporary buffers; return the size of the arena.

    A buffer is placed in the narrowest gap that fits, the lowest of equal gaps, or otherwise after all live buffers.
    """
    temps = [b for b in buffers if b.is_temp and b.forward is None and b.last >= 0]
    temps.sort(key=lambda b: (b.first, -b.nbytes))
    if config.check and config.checks.memory:
        return _assign_guarded_offsets(temps)
    owners: dict[ArenaBuffer, int] = {}  # live buffer -> the end of its memory
    expiring: list[tuple[int, int, ArenaBuffer]] = []  # (last, order, owner), a heap
    gaps = _Gaps()
    for order, buffer in enumerate(temps):
        while expiring and expiring[0][0] < buffer.first:
            expired = heapq.heappop(expiring)[2]
            if expired in owners:  # otherwise another buffer has taken it over
                gaps.give(expired.offset, owners.pop(expired))
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
            f"the program needs {gaps.top} bytes for intermediate values, more than the address space has. "
            "Reduce the sizes of its arrays."
        )
    return gaps.top


#: bytes before and after each buffer if memory checks are enabled
GUARD = 4096


def _assign_guarded_offsets(temps: Iterable[ArenaBuffer]) -> int:
    """Assign separate memory to each buffer, with guards around it; return the size of the arena.

    Only buffers that overwrite each other in place share memory."""
    top = GUARD
    placed: set[ArenaBuffer] = set()
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
    """The free ranges below `end`, the end of all live memory, in order of their starts. `top` is the maximum of `end` so far."""

    __slots__ = ("end", "starts", "ends", "top")

    def __init__(self):
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.end = self.top = 0

    def take(self, nbytes: int, align: int) -> int:
        """Allocate `nbytes` bytes; return their start."""
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
        gaps = [(a, b) for a, b in ((start, begin), (begin + nbytes, end)) if a < b]
        self.starts[at : at + 1], self.ends[at : at + 1] = (
            [a for a, _ in gaps],
            [b for _, b in gaps],
        )
        return begin

    def give(self, start: int, end: int) -> None:
        """Free a range and merge it with adjacent gaps."""
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
