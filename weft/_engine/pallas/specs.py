"""Descriptions of a kernel's operands: block specs, grids, memory spaces, scratch memory.

In:   the arguments of users.
Out:  records. `blocks` converts them to mappings of arrays to blocks.
Laws: there is one memory, so a memory space is only a name; calling it gives a type of scratch
      memory.
"""

from __future__ import annotations

import enum
import json
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.ir.types import ShapedArray
from weft._engine.util.record import record

# ---- dims of blocks


@record
class Blocked:
    """A dim that is split into blocks of `block_size`.

    The index map returns the block number. A plain integer means the same.

    >>> weft.experimental.pallas.Blocked(8)
    Blocked(block_size=8)
    """

    __module__ = "weft.experimental.pallas"

    block_size: int


@record
class Element:
    """A dim with blocks of `block_size` elements: the index map returns the first element.
    `padding` elements, before and after, are outside the array: on input their values are
    unspecified, on output they are dropped.

    >>> weft.experimental.pallas.Element(8, (0, 2)).padding
    (0, 2)
    """

    __module__ = "weft.experimental.pallas"

    block_size: int
    padding: tuple[int, int] = (0, 0)


@record
class Squeezed:
    """A dim with blocks of one element, absent from the kernel's reference. None means the same.

    >>> weft.experimental.pallas.Squeezed()
    Squeezed()
    """

    __module__ = "weft.experimental.pallas"


@record
class BoundedSlice:
    """A dim with blocks of at most `block_size` elements.

    The index map returns a `ds`. The reference always has `block_size` elements from the start of the `ds`, including those after its end.

    >>> weft.experimental.pallas.BoundedSlice(8).block_size
    8
    """

    __module__ = "weft.experimental.pallas"

    block_size: int


squeezed = Squeezed()
BlockDim = Element | Squeezed | Blocked | BoundedSlice


def block_dim(dim: Any) -> BlockDim:
    """Return a user's description of a block dim as a `BlockDim`.

    Raise ValueError for other values.
    """
    if dim is None:
        return squeezed
    if isinstance(dim, (Blocked, Element, Squeezed, BoundedSlice)):
        return dim
    try:
        return Blocked(operator.index(dim))
    except TypeError:
        raise ValueError(
            f"BlockSpec: a dim of a block is an integer, None, Blocked, Element, Squeezed or BoundedSlice, got {dim!r} of "
            f"type {type(dim).__name__}."
        ) from None


def block_size(dim: BlockDim) -> int:
    """Return the number of array elements of a block along a dim."""
    return 1 if isinstance(dim, Squeezed) else dim.block_size


# ---- specs


class RevisitMode(enum.Enum):
    """The choice whether a block that was just used is fetched again; it has no effect."""

    __module__ = "weft.experimental.pallas"

    ANY = "any"
    IMMEDIATE = "immediate"


@record
class Buffered:
    """The number of buffers of a pipeline for an operand.

    It has no effect, since there is no pipeline.

    >>> weft.experimental.pallas.Buffered(2).buffer_count
    2
    """

    __module__ = "weft.experimental.pallas"

    buffer_count: int
    use_lookahead: bool = False
    revisit: RevisitMode | None = None


class NoBlockSpec:
    """The default for specs that are not given."""

    def __repr__(self) -> str:
        return "NoBlockSpec"


no_block_spec = NoBlockSpec()


class BlockSpec:
    """The block of an array for each iteration of the grid.

    `block_shape` has an entry per dim: an integer, None (the block has one element and its
    reference lacks the dim), or `Blocked`, `Element`, `Squeezed`, `BoundedSlice`. `index_map` takes
    the grid indices, then references to the prefetched scalars, and returns one number per dim.
    Without a shape, the block is the whole array; without a map, it is the first block.
    `memory_space` and `pipeline_mode` have no effect.

    >>> from weft.experimental import pallas as pl
    >>> pl.BlockSpec((8, 128), lambda i, j: (i, j)).block_shape
    (8, 128)
    """

    __module__ = "weft.experimental.pallas"

    __slots__ = ("block_shape", "index_map", "memory_space", "pipeline_mode")

    def __init__(
        self,
        block_shape: Sequence[Any] | None = None,
        index_map: Callable[..., Any] | None = None,
        pipeline_mode: Buffered | None = None,
        *,
        memory_space: Any = None,
    ):
        self.block_shape, self.index_map = block_shape, index_map
        self.memory_space, self.pipeline_mode = memory_space, pipeline_mode

    def replace(self, **changes: Any) -> BlockSpec:
        """Return a spec with some attributes replaced."""
        old = {name: getattr(self, name) for name in self.__slots__}
        if unknown := changes.keys() - old.keys():
            raise TypeError(
                f"BlockSpec.replace: there is no attribute {min(unknown)!r}; there are {', '.join(old)}."
            )
        return BlockSpec(**(old | changes))

    def _key(self) -> tuple:
        shape = self.block_shape
        return (
            (shape if shape is None else tuple(shape)),
            self.index_map,
            self.memory_space,
            self.pipeline_mode,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"BlockSpec({self.block_shape!r}, {self.index_map!r}, memory_space={self.memory_space!r})"


class GridSpec:
    """A grid, the specs of inputs and outputs, and scratch memory, in one object.

    `grid` is an integer or a tuple; its entries are integers, or pairs of a name and an integer.

    >>> from weft.experimental import pallas as pl
    >>> pl.GridSpec(grid=(("rows", 4), 2)).grid
    (4, 2)
    """

    __module__ = "weft.experimental.pallas"

    __slots__ = ("grid", "grid_names", "in_specs", "out_specs", "scratch_shapes")
    num_scalar_prefetch = 0

    def __init__(
        self,
        grid: Any = (),
        in_specs: Any = no_block_spec,
        out_specs: Any = no_block_spec,
        scratch_shapes: Any = (),
    ):
        entries = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
        named = [isinstance(e, tuple) and len(e) == 2 for e in entries]
        self.grid = tuple([e[1] if is_named else e for e, is_named in zip(entries, named)])
        self.grid_names = tuple([e[0] if is_named else None for e, is_named in zip(entries, named)])
        if in_specs is not no_block_spec and not isinstance(in_specs, (tuple, list)):
            raise ValueError(
                f"`in_specs` must be a tuple or a list, with one entry per argument of the kernel's call, got {in_specs!r}."
            )
        self.in_specs = in_specs if in_specs is no_block_spec else tuple(in_specs)
        self.out_specs = tuple(out_specs) if isinstance(out_specs, list) else out_specs
        self.scratch_shapes = (
            tuple(scratch_shapes) if isinstance(scratch_shapes, list) else scratch_shapes
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(grid={self.grid})"


# ---- memory


@record
class MemoryRef:
    """A type of scratch memory: a shape and a dtype in a memory space.

    A `semaphore` is a counter that starts at 0.

    >>> from weft.experimental.pallas import tpu as pltpu
    >>> pltpu.VMEM((8, 128), wnp.float32).shape
    (8, 128)
    """

    __module__ = "weft.experimental.pallas"

    inner_aval: ShapedArray
    memory_space: Any = None
    semaphore: bool = False

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.inner_aval.dtype)

    def get_array_aval(self) -> ShapedArray:
        """Return the type of the array."""
        return self.inner_aval


class _Space(enum.Enum):
    """Common part of the memory spaces of all machines."""

    def __call__(self, shape: Sequence[int], dtype: Any) -> MemoryRef:
        return MemoryRef(ShapedArray(tuple(shape), dtype), self)

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


class MemorySpace(_Space):
    """Names of memory spaces, which have no effect.

    There is one memory. Calling a name with a shape and a dtype gives a type of scratch memory.
    """

    __module__ = "weft.experimental.pallas"

    ANY = "any"
    ERROR = "error"
    INDEX = "index"
    KEY = "key"
    HOST = "host"
    DEFAULT = "default"


ANY = MemorySpace.ANY
HOST = MemorySpace.HOST
SEMAPHORE_TYPE = ShapedArray((), np.int32)


def scratch_type(x: Any) -> tuple[ShapedArray, bool]:
    """Return the type of scratch memory, and True if it is a semaphore, which starts at 0."""
    if hasattr(x, "as_scratch"):
        x = x.as_scratch()
    if isinstance(x, MemoryRef):
        return x.inner_aval, x.semaphore
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return ShapedArray(tuple(x.shape), x.dtype), False
    raise TypeError(
        f"scratch memory is given by a memory space that is called with a shape and a dtype, got {x!r} of type "
        f"{type(x).__name__}."
    )


# ---- costs


@record
class CostEstimate:
    """The cost of a kernel, for information only.

    >>> weft.experimental.pallas.CostEstimate(flops=10, transcendentals=0, bytes_accessed=80).flops
    10
    """

    __module__ = "weft.experimental.pallas"

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0

    def to_json(self) -> bytes:
        """Return the numbers as JSON."""

        names = ("flops", "transcendentals", "bytes_accessed", "remote_bytes_transferred")
        return json.dumps({name: getattr(self, name) for name in names}).encode()
