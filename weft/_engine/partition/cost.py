"""Costs of communication and computation, and the record of each collective of a program.

The bytes that a device sends are counted for ring algorithms, as is usual in compilers (`bytes` of `ir.collective_spec`). The weights
are a `CostModel`, which the backend defines.
"""

from __future__ import annotations

from typing import Any

from weft._engine.util.record import record


@record
class CostModel:
    """The amounts of work that take as long as sending one byte to another device. The defaults are for virtual devices."""

    latency: int = 64  # latency of a collective in bytes; of two equal plans the shorter is cheaper
    flops_per_byte: int = 1024
    # `flops_per_byte` of a reduction that devices with different terms would all compute as a whole
    repeated_flops_per_byte: int = 16
    # latency of gathering an operand for such a reduction, if one collective could reduce all sums
    repeated_latency: int = 1 << 19
    local_bytes_per_byte: int = 16  # bytes of memory traffic


DEFAULT = CostModel()


#: causes of collectives. A value must have another layout: as an `operand` of an op, by a `constraint`, as an `output` of the
#: program, as an argument (`enters`) or result (`leaves`) of a `shard_map`, as the carry of a `loop` or the result of a branch,
#: as an argument of a callback (`read`). Or the terms of a `sum` or another `reduction` are on several devices; an op computes
#: `along` a split dim, or needs rows at the `edges` of other blocks; or the user's shard_map calls it (`asked`).
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
    """The reason for a collective: one of `CAUSES`, a text, and the equation of the global program."""

    cause: str
    text: str
    eqn: Any = None


@record
class CollectiveRecord:
    """One collective of a partitioned program: its kind, cost, source line and cause.

    `shape` and `dtype` describe the local operand; `count` is the number of runs (the product of the trip counts of outer scans; if
    `open_ended`, the number in one iteration of a while loop, whose trip count is unknown). A move between layouts has the layouts
    `before` and `after`, the moved variable (`value`), and its number if it is an `argument` of the program. A combined collective
    has the records of its `parts`, and the shape, line and cause of the first part.
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
        """The source lines that caused the collective, each once."""
        return tuple(dict.fromkeys(r.source for r in self.parts or (self,) if r.source is not None))

    def __str__(self) -> str:
        line = f" at {', '.join(map(str, self.sources))}" if self.sources else ""
        times = f" x{self.count}" if self.count != 1 else ""
        operands = ", ".join(f"{r.dtype}{list(r.shape)}" for r in self.parts or (self,))
        return (
            f"{self.kind}{times} over {', '.join(map(str, self.axes))} of {operands}, "
            f"{self.bytes_per_device} bytes{line}: {self.reason}"
        )
