"""What a compiled program does, as data and as text: its collectives, and what each of them costs and comes from.

In:  a compiled function, as `weft.jit(f).lower(*args).compile()` gives it.
Out: one `Collective` for each communication of the program of one device, in program order.
"""

from collections.abc import Sequence
from typing import Any

from weft.util.record import record


@record
class Collective:
    """One communication between devices. `bytes` counts what one device sends in a call, all `count` runs of it."""

    kind: str
    axes: tuple[str, ...]
    bytes: int
    count: int
    source: str
    reason: str


def collectives(compiled: Any) -> list[Collective]:
    """The collectives of a compiled function, in program order."""
    return [
        Collective(
            record.kind,
            tuple(map(str, record.axes)),
            record.bytes_per_device * record.count,
            record.count,
            ", ".join(map(str, record.sources)),
            record.reason,
        )
        for record in compiled.stages.collectives
    ]


def as_table(records: Sequence[Collective]) -> str:
    """The records as aligned lines, and their sum.

    >>> print(as_table([Collective("psum", ("model",), 1024, 1, "train.py:7", "a sum over a split dim")]))
    psum  over model  1,024 B  train.py:7  (a sum over a split dim)
    1 collective, 1,024 B sent by each device
    """
    cells = [(r.kind, f"over {', '.join(r.axes)}", f"{r.bytes:,} B", r.source, f"({r.reason})") for r in records]
    widths = [max(map(len, column)) for column in zip(*cells)]
    right = 2  # numbers are aligned to the right
    lines = []
    for row in cells:
        padded = [c.rjust(w) if i == right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(padded).rstrip())
    n_runs = sum(r.count for r in records)
    lines.append(f"{n_runs} collective{'s'[: n_runs != 1]}, {sum(r.bytes for r in records):,} B sent by each device")
    return "\n".join(lines)
