"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ops.indexing import GatherScatterMode
from weft._engine.runtime.array import Array
from weft.typing import ArrayLike

def segment_max(data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = None, indices_are_sorted: bool = False, unique_indices: bool = False, bucket_size: int | None = None, mode: str | GatherScatterMode | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""The maxima of the rows of each segment."""
def segment_min(data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = None, indices_are_sorted: bool = False, unique_indices: bool = False, bucket_size: int | None = None, mode: str | GatherScatterMode | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""The minima of the rows of each segment."""
def segment_prod(data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = None, indices_are_sorted: bool = False, unique_indices: bool = False, bucket_size: int | None = None, mode: str | GatherScatterMode | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""The products of the rows of each segment."""
def segment_sum(data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = None, indices_are_sorted: bool = False, unique_indices: bool = False, bucket_size: int | None = None, mode: str | GatherScatterMode | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""The sums of the rows of each segment."""

__all__ = [
    "segment_max", "segment_min", "segment_prod", "segment_sum",
]
