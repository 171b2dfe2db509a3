"""Mappings of arrays to blocks: block specs applied to types.

In:   a `BlockSpec`, the type of an array, the grid.
Out:  `BlockMapping`: the block sizes, and the program of the index map; `BlockKernel`, the record of a
      kernel call.
Laws: an index map is traced once, to a program of the grid indices and the prefetched scalars. Dims
      that `vmap` adds lead the dims of arrays and of the grid; index maps and kernels do not see
      them.
Next: `loops`, which runs a kernel over its grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.control.ref import Ref
from weft._engine.control.ref_index import Slice
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.casting import convert_element_type
from weft._engine.pallas.specs import (
    BlockDim,
    BlockSpec,
    BoundedSlice,
    Element,
    Squeezed,
    block_dim,
    block_size,
)
from weft._engine.util.errors import describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft._engine.util.source import function_name, user_frame

#: the type of a grid index
INDEX = ShapedArray((), np.int32)


@record(eq=False)
class BlockMapping:
    """The block of an array, of type `aval`, for each iteration of the grid.

    `index` returns, for each of `dims`, the number of the block or of its first element. An array
    that is mapped by `vmap` has additional leading dims; `lead` has, for each, the grid axis
    (counting mapped axes) that indexes it.
    """

    aval: ShapedArray
    dims: tuple[BlockDim, ...]
    index: Jaxpr
    origin: str
    lead: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of array elements of a block along each dim."""
        return (*(1 for _ in self.lead), *map(block_size, self.dims))

    @property
    def block_aval(self) -> ShapedArray:
        """The type of a block in the kernel."""
        return ShapedArray(
            tuple([block_size(d) for d in self.dims if not isinstance(d, Squeezed)]),
            self.aval.dtype,
        )

    @property
    def padding(self) -> list[tuple[int, int]]:
        """The padding of the array with which every block is in bounds."""
        pads = [(0, 0)] * len(self.lead)
        for size, dim in zip(self.aval.shape[len(self.lead) :], self.dims):
            low, high = dim.padding if isinstance(dim, Element) else (0, 0)
            count, n = block_size(dim), size + low + high
            behind = (
                count
                if isinstance(dim, BoundedSlice)
                else max(-(-n // count) * count, count) - n
                if count
                else 0
            )
            pads.append((low, high + behind))
        return pads

    def mapped(self, size: int, is_mapped: bool) -> BlockMapping:
        """Return the mapping under one more `vmap`.

        Its axis comes first in the grid, and in the array if `is_mapped`.
        """
        lead = tuple([axis + 1 for axis in self.lead])
        if not is_mapped:
            return BlockMapping(self.aval, self.dims, self.index, self.origin, lead)
        return BlockMapping(
            self.aval.with_dim(0, size), self.dims, self.index, self.origin, (0, *lead)
        )


@record(eq=False)
class BlockKernel:
    """A kernel call.

    `body` takes the grid indices, the grid sizes, the prefetched scalars, the blocks of inputs and outputs, and scratch memory; it returns
    the new values of all but the indices and sizes.

    `grid` has None for traced sizes, which are the first operands of the call. Its first `mapped`
    axes were added by `vmap`. `aliases` are pairs of an input, counting prefetched scalars, and an
    output that starts with the input's value. `parallel` are the axes that the user declares to be
    independent. `blank` is the content of uninitialized memory: "nan" or "zero".
    """

    name: str
    grid: tuple[Any, ...]
    mapped: int
    body: Jaxpr
    scalars: int
    ins: tuple[BlockMapping, ...]
    outs: tuple[BlockMapping, ...]
    scratch: tuple[tuple[ShapedArray, bool], ...]
    aliases: tuple[tuple[int, int], ...] = ()
    parallel: frozenset[int] = frozenset()
    blank: str = "nan"

    def __repr__(self) -> str:
        return f"Kernel({self.name}, grid={self.grid})"


def place(fun: Callable) -> str:
    """Return a function's name and source location."""
    while (inner := getattr(fun, "func", None) or getattr(fun, "__wrapped__", None)) is not None:
        fun = inner
    code = getattr(fun, "__code__", None)
    name = function_name(fun)
    return name if code is None else f"{name} at {code.co_filename}:{code.co_firstlineno}"


def map_blocks(
    spec: Any, aval: ShapedArray, origin: str, grid: int, scalars: Sequence[ShapedArray]
) -> BlockMapping:
    """Return the mapping of a spec applied to an array. Raise ValueError if they do not fit."""
    if not isinstance(spec, BlockSpec):
        spec = BlockSpec()
    shape = aval.shape if spec.block_shape is None else spec.block_shape
    dims = tuple(map(block_dim, shape))
    if len(dims) != aval.ndim:
        raise ValueError(
            describe(
                "pallas_call",
                f"Block shape for {origin} (= {tuple(shape)}) must have the same number of dimensions as "
                f"the array shape {aval.shape}.",
                (),
                user_frame(),
                "A block has an entry per dim of its array.",
                "Write None for a dim of which a block has one element.",
            )
        )
    return BlockMapping(
        aval, dims, _stage_index_map(spec.index_map, dims, origin, grid, scalars), origin
    )


def _stage_index_map(
    index_map: Callable | None,
    dims: tuple[BlockDim, ...],
    origin: str,
    grid: int,
    scalars: Sequence[ShapedArray],
) -> Jaxpr:
    """Stage an index map."""
    avals = [INDEX] * grid + list(scalars)
    if index_map is None:
        return stage(lambda *_: [np.int32(0)] * len(dims), avals, "index_map")
    where = f"Index map function {place(index_map)} for {origin}"

    def run(*xs: Any) -> list:
        indices = index_map(*xs[:grid], *map(Ref.make, xs[grid:]))
        flat_indices = list(indices) if isinstance(indices, (tuple, list)) else [indices]
        if len(flat_indices) != len(dims):
            raise ValueError(
                describe(
                    "pallas_call",
                    f"{where} must return {quantity(len(dims), 'value')} to match block_shape={dims}. Currently "
                    f"returning {quantity(len(flat_indices), 'value')}.",
                    (),
                    user_frame(),
                )
            )
        return [
            _number(x, dim, f"{where}", i) for i, (x, dim) in enumerate(zip(flat_indices, dims))
        ]

    jaxpr = stage(run, avals, function_name(index_map))
    if jaxpr.consts:
        types = ", ".join([typeof(c).str_short() for c in jaxpr.consts])
        raise ValueError(
            describe(
                "pallas_call",
                f"{where} must not capture constants: it reads arrays of type {types}.",
                (),
                user_frame(),
                "An index map is a function of the grid.",
                "Pass arrays as prefetched scalars: PrefetchScalarGridSpec.",
            )
        )
    return jaxpr


def _number(x: Any, dim: BlockDim, where: str, i: int) -> Any:
    if isinstance(x, Slice):
        if not isinstance(dim, BoundedSlice):
            raise ValueError(
                f"{where} must return integer scalars. Output[{i}] is {x!r}, which is for dims of kind BoundedSlice."
            )
        x = x.start
    elif isinstance(dim, BoundedSlice):
        raise ValueError(
            f"{where} must return a ds for a dim of kind BoundedSlice. Output[{i}] is {x!r}."
        )
    aval = typeof(x)
    if aval.shape or aval.dtype.kind not in "iu":
        raise ValueError(f"{where} must return integer scalars. Output[{i}] has type {aval}.")
    return convert_element_type(x, np.int32) if aval.dtype != np.int32 or aval.weak_type else x
