"""Where values live: buffers with a life on the clock of steps, packed into one arena.

In:   `Buffer`s, each with the steps that touch it first and last.
Out:  offsets of the temporary ones (64-byte aligned, 2 MiB from 2 MiB up), and the size of the arena.
Laws: two buffers that are alive at one step do not overlap, unless one was made to take over the other in place.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.util.record import field, record

ALIGN = 64
HUGE = 1 << 21


@record(frozen=False, eq=False)
class Buffer:
    """Memory of one value. `kind` is that of its slot; `forward` is set when it is part of another one after all."""
    nbytes: int
    kind: str = "temp"
    number: int = -1                    # position among the buffers of its kind, for in, out and const
    region: "Region | None" = None      # the loop body it belongs to
    first: int = 1 << 60
    last: int = -1
    offset: int = 0
    forward: "Ref | None" = None
    takes_over: "Buffer | None" = None  # a buffer whose last reader is this one's first writer, in place


@record
class Ref:
    """An address: `offset` bytes into a buffer, and bytes per loop variable."""
    buffer: Buffer
    offset: int = 0
    strides: tuple[tuple[str, int], ...] = ()

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
    """A loop body or branch: what it touches of the outside stays alive until it ends."""
    parent: "Region | None"
    touched: set[Buffer] = field(default_factory=set)


def place(buffers: Iterable[Buffer]) -> int:
    """Give offsets to temporary buffers; the size of the arena."""
    temps = [b for b in buffers if b.kind == "temp" and b.forward is None and b.last >= 0]
    temps.sort(key=lambda b: (b.first, -b.nbytes))
    alive: list[tuple[int, int, Buffer]] = []        # (offset, end, buffer), by offset
    top = 0
    for buffer in temps:
        alive = [x for x in alive if x[2].last >= buffer.first]
        heir = buffer.takes_over
        if heir is not None:
            at = next((i for i, x in enumerate(alive) if x[2] is heir), None)
            if at is not None:
                start, end, _ = alive[at]
                buffer.offset = start
                alive[at] = (start, end, buffer)
                continue
        align = HUGE if buffer.nbytes >= HUGE else ALIGN
        best, cursor, fit = None, 0, 1 << 62
        for start, end, _ in alive:
            begin = -(-cursor // align) * align
            if start - begin >= buffer.nbytes and start - cursor < fit:
                best, fit = begin, start - cursor
            cursor = max(cursor, end)
        if best is None:
            best = -(-cursor // align) * align
        buffer.offset = best
        end = best + -(-max(buffer.nbytes, 1) // ALIGN) * ALIGN
        top = max(top, end)
        alive.append((best, end, buffer))
        alive.sort(key=lambda x: x[0])
    return top
