"""Descriptions of collectives between processes, and their semantics in NumPy.

In:   the kind, the dtype, the number of elements, the reduction, the participating ranks.
Out:  `CollectivePlan`, and `evaluate`, which computes the output of each rank of a group from the inputs of all.
Laws: reductions combine in the order of the group, so that every rank has the same bits. Buffers are contiguous: the result of an
      all_gather is [group, count], the input of a reduce_scatter [group, count] (count: the elements of the result), both sides of an
      all_to_all are [group, count / group]. In a permute a rank without a source gets zeros. A broadcast sends from the group's first rank.
Next: `transport` defines how plans are executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np

from weft._engine.util.record import record


class CollectiveKind(StrEnum):
    """The kind of a collective: its effect on the elements of the ranks."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    PERMUTE = "permute"
    BROADCAST = "broadcast"

    @property
    def reduces(self) -> bool:
        """True if an operation combines the elements of the ranks."""
        return self in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER)


def _product(a: Any, b: Any) -> Any:
    return a & b if a.dtype == bool else a * b


#: reduction name -> function that combines two arrays
OPS: dict[str, Any] = {
    "sum": lambda a, b: a | b if a.dtype == bool else a + b,
    "prod": _product,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@record
class CollectivePlan:
    """One collective between processes, as every participating rank describes it.

    `count` is the number of elements of a rank's input, but of its output in a reduce_scatter.
    `origin` is the user's line or the API call that runs the collective, for reports.
    """

    kind: CollectiveKind
    dtype: str
    count: int
    op: str | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    origin: str = ""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "kind", CollectiveKind(self.kind))
        except ValueError:
            raise ValueError(
                f"CollectivePlan: kind must be one of {', '.join(CollectiveKind)}, got {self.kind!r}"
            ) from None
        self._check_op()
        self._check_members()

    def _check_op(self) -> None:
        is_known = self.op in OPS if self.kind.reduces else self.op is None
        if not is_known:
            raise ValueError(
                f"CollectivePlan: {self.kind} with op={self.op!r}; reductions have one of {', '.join(OPS)}, others None"
            )
        is_bitwise = self.op in ("and", "or", "xor")
        if (is_bitwise and self.dtype.startswith(("float", "bfloat"))) or (
            self.op not in (None, "sum", "prod") and self.dtype.startswith("complex")
        ):
            raise ValueError(f"CollectivePlan: {self.dtype} has no reduction {self.op}")

    def _check_members(self) -> None:
        if len({len(group) for group in self.groups}) > 1:
            raise ValueError(f"CollectivePlan: groups differ in size: {self.groups}")
        members = [rank for group in self.groups for rank in group]
        if len(set(members)) != len(members):
            raise ValueError(f"CollectivePlan: a rank is in more than one group: {self.groups}")
        if self.kind is CollectiveKind.ALL_TO_ALL and self.groups and self.count % self.group_size:
            raise ValueError(
                f"CollectivePlan: all_to_all of {self.count} elements in groups of {self.group_size}"
            )
        sources, targets = (
            {source for source, _ in self.pairs},
            {target for _, target in self.pairs},
        )
        if min(len(sources), len(targets)) < len(self.pairs):
            raise ValueError(f"CollectivePlan: a rank sends or receives twice: {self.pairs}")

    def group_of(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that take part with `rank`, itself among them; () if it takes no part."""
        groups = self.groups
        if self.kind is CollectiveKind.PERMUTE:
            groups = (tuple(sorted({rank for pair in self.pairs for rank in pair})),)
        return next((group for group in groups if rank in group), ())

    @property
    def numpy_dtype(self) -> np.dtype:
        """The NumPy dtype of the elements."""
        import ml_dtypes  # noqa: F401  registers the names of small floats with NumPy

        return np.dtype(self.dtype)

    @property
    def group_size(self) -> int:
        """The number of ranks in a group."""
        return len(self.groups[0]) if self.groups else 0

    @property
    def input_count(self) -> int:
        """The number of elements in a rank's input."""
        return (
            self.count * self.group_size
            if self.kind is CollectiveKind.REDUCE_SCATTER
            else self.count
        )

    @property
    def output_count(self) -> int:
        """The number of elements in a rank's output."""
        return (
            self.count * self.group_size if self.kind is CollectiveKind.ALL_GATHER else self.count
        )

    def __str__(self) -> str:
        op = f" {self.op}" if self.op else ""
        return f"{self.kind}{op} of {self.dtype}[{self.input_count}]"


def reduce(op: str, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Combine the parts in their order; small floats are accumulated in 32 bits."""
    dtype = parts[0].dtype
    is_small_float = dtype.name.startswith(("float", "bfloat")) and dtype.itemsize < 4
    acc_dtype = np.float32 if op in ("sum", "prod") and is_small_float else dtype
    total = parts[0].astype(acc_dtype)
    for part in parts[1:]:
        total = OPS[op](total, part.astype(acc_dtype))
    return total.astype(dtype)


def evaluate(
    plan: CollectivePlan, group: Sequence[int], inputs: dict[int, np.ndarray], rank: int
) -> np.ndarray:
    """Return the output of `rank` for the flat inputs `inputs[rank]` of the ranks of its group.

    >>> plan = CollectivePlan("all_reduce", "int32", 2, "sum", ((0, 1),))
    >>> evaluate(plan, (0, 1), {0: np.array([1, 2]), 1: np.array([3, 4])}, 1)
    array([4, 6])
    """
    here = list(group).index(rank)
    parts = [inputs[member] for member in group if member in inputs]
    match plan.kind:
        case CollectiveKind.ALL_REDUCE:
            return reduce(plan.op or "", parts)
        case CollectiveKind.ALL_GATHER:
            return np.concatenate(parts)
        case CollectiveKind.REDUCE_SCATTER:
            return reduce(plan.op or "", [part.reshape(len(group), -1)[here] for part in parts])
        case CollectiveKind.ALL_TO_ALL:
            return np.concatenate([part.reshape(len(group), -1)[here] for part in parts])
        case CollectiveKind.BROADCAST:
            return inputs[group[0]]
    source = next((source for source, target in plan.pairs if target == rank), None)
    return np.zeros(plan.count, plan.numpy_dtype) if source is None else inputs[source]
