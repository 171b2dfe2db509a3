"""Costs: what communication and computation are weighed against, and the record of each collective of a program.

Bytes that a device sends are those of ring algorithms, as compilers of this kind count (`bytes` of `ir.collective_spec`).
The weights are a `CostModel`, which the backend states.
"""

from __future__ import annotations

from typing import Any

from weft._engine.util.record import record


@record
class CostModel:
    """What takes as long as sending one byte to another device. The defaults are those of virtual devices."""

    latency: int = 64  # bytes that could be sent while a collective starts: of two equal plans the shorter wins
    flops_per_byte: int = 1024
    repeated_flops_per_byte: int = 16  # the same where devices that hold different parts of a sum would all compute the whole of it
    repeated_latency: int = (
        1 << 19
    )  # of a collective that gathers an operand for that, where one reduces all sums together
    local_bytes_per_byte: int = 16  # of memory traffic


DEFAULT = CostModel()


#: why a collective is there. A value has another layout than it needs: as `operand` of an operation, by a `constraint`, as
#: `output` of the program, as argument (`enters`) or result (`leaves`) of a `shard_map`, as carry of a `loop` or result of a
#: branch, as argument of a callback (`read`). Or: the terms of a `sum` or of another `reduction` are on several devices; an
#: operation works `along` a split dim, or needs rows at the `edges` of other blocks; the user's shard_map `asked` for it.
CAUSES = (
    "operand",
    "constraint",
    "output",
    "enters",
    "leaves",
    "loop",
    "read",
    "sum",
    "reduction",
    "along",
    "edges",
    "asked",
)


@record
class Why:
    """Why a collective is there: one of `CAUSES`, in words, and the equation of the global program."""

    cause: str
    text: str
    eqn: Any = None


@record
class CollectiveRecord:
    """One collective of a partitioned program: what it is, what it costs, which line caused it and why.

    `shape` and `dtype` are those of the local operand; `count` is how often it runs (trip counts of outer scans; once in
    each iteration of a while loop, whose number is not known, if it is `open_ended`). A move between layouts has both, `before`
    and `after`, the variable whose `value` is moved, and its number if it is an `argument` of the program. One that combines
    several has their records as `parts`; shape, line and cause are then those of the first.
    """

    kind: str
    axes: tuple[Any, ...]
    bytes_per_device: int
    shape: tuple[int, ...]
    dtype: Any
    source: Any
    reason: str
    count: int = 1
    parts: tuple[CollectiveRecord, ...] = ()
    cause: str = ""
    eqn: Any = None
    before: Any = None
    after: Any = None
    value: Any = None
    argument: int | None = None
    open_ended: bool = False

    @property
    def sources(self) -> tuple[Any, ...]:
        """The lines that caused it, each once."""
        return tuple(dict.fromkeys(r.source for r in self.parts or (self,) if r.source is not None))

    def __str__(self) -> str:
        line = f" at {', '.join(map(str, self.sources))}" if self.sources else ""
        times = f" x{self.count}" if self.count != 1 else ""
        operands = ", ".join(f"{r.dtype}{list(r.shape)}" for r in self.parts or (self,))
        return (
            f"{self.kind}{times} over {', '.join(map(str, self.axes))} of {operands}, "
            f"{self.bytes_per_device} bytes{line}: {self.reason}"
        )
