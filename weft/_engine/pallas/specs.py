"""What a kernel is told about its operands: block specs, grids, memory spaces, scratch memory.

In:   what users write.
Out:  records of it. `blocks` turns them into mappings of arrays to blocks.
Laws: there is one memory, so that a memory space is a name; what it is called with is a type of scratch memory.
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
    """A dim that is cut into blocks of `block_size`: the index map gives the number of the block. A plain integer means the same.

    >>> weft.experimental.pallas.Blocked(8)
    Blocked(block_size=8)
    """

    __module__ = "weft.experimental.pallas"

    block_size: int


@record
class Element:
    """A dim of which a block has `block_size` elements: the index map gives the first. `padding` elements, before and after, are
    not in the array: those of an input have no particular value, those of an output are dropped.

    >>> weft.experimental.pallas.Element(8, (0, 2)).padding
    (0, 2)
    """

    __module__ = "weft.experimental.pallas"

    block_size: int
    padding: tuple[int, int] = (0, 0)


@record
class Squeezed:
    """A dim of which a block has one element, and which its reference lacks. None means the same.

    >>> weft.experimental.pallas.Squeezed()
    Squeezed()
    """

    __module__ = "weft.experimental.pallas"


@record
class BoundedSlice:
    """A dim of which a block has at most `block_size` elements: the index map gives a `ds`. The reference has `block_size` elements
    from its start on, those behind its end included.

    >>> weft.experimental.pallas.BoundedSlice(8).block_size
    8
    """

    __module__ = "weft.experimental.pallas"

    block_size: int


squeezed = Squeezed()
BlockDim = Element | Squeezed | Blocked | BoundedSlice


def block_dim(dim: Any) -> BlockDim:
    """A dim of a block as users write it; ValueError for anything else."""
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
    """The elements of an array that a block has along a dim."""
    return 1 if isinstance(dim, Squeezed) else dim.block_size


# ---- specs


class RevisitMode(enum.Enum):
    """Whether a block that was just used is fetched again; both mean the same here."""

    __module__ = "weft.experimental.pallas"

    ANY = "any"
    IMMEDIATE = "immediate"


@record
class Buffered:
    """How many buffers a pipeline has for an operand; there is no pipeline here, so that it changes nothing.

    >>> weft.experimental.pallas.Buffered(2).buffer_count
    2
    """

    __module__ = "weft.experimental.pallas"

    buffer_count: int
    use_lookahead: bool = False
    revisit: RevisitMode | None = None


class NoBlockSpec:
    """Stands for specs that were not given."""

    def __repr__(self) -> str:
        return "NoBlockSpec"


no_block_spec = NoBlockSpec()


class BlockSpec:
    """Which block of an array an iteration of the grid sees.

    `block_shape` has an entry per dim: an integer, None (the block has one element and its reference lacks the dim), or `Blocked`,
    `Element`, `Squeezed`, `BoundedSlice`. `index_map` takes the indices of the grid, then references to the prefetched scalars, and gives
    one number per dim. Without a shape the block is the array, without a map it is the first one. `memory_space` and `pipeline_mode`
    change nothing here.

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
        """A spec with some attributes replaced."""
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
    """A type of scratch memory: a shape and a dtype in a memory space; `semaphore` counts, and begins at 0.

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
        """The type of the array."""
        return self.inner_aval


class _Space(enum.Enum):
    """What the memory spaces of all machines share."""

    def __call__(self, shape: Sequence[int], dtype: Any) -> MemoryRef:
        return MemoryRef(ShapedArray(tuple(shape), dtype), self)

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


class MemorySpace(_Space):
    """Names of memory, which say nothing here: there is one. Called with a shape and a dtype, a name gives a type of scratch memory."""

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
    """The type of scratch memory, and whether it is a semaphore, which begins at 0."""
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
    """What a kernel costs; nothing here asks for it.

    >>> weft.experimental.pallas.CostEstimate(flops=10, transcendentals=0, bytes_accessed=80).flops
    10
    """

    __module__ = "weft.experimental.pallas"

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0

    def to_json(self) -> bytes:
        """The numbers as JSON."""

        names = ("flops", "transcendentals", "bytes_accessed", "remote_bytes_transferred")
        return json.dumps({name: getattr(self, name) for name in names}).encode()
