"""Stacking: the program of one device is mapped over the axes of the mesh, on the storage blocks of arrays.

In:   a local Jaxpr with collectives, and the spec (axes per dim) of every input and output.
Out:  a Jaxpr without collectives on storage shapes [splits..., local dims...].
Law:  a value that does not vary over an axis has no dim for it, and is computed once for all devices along the axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import BatchAxis
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ir.jaxpr import Jaxpr, Var
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import reshape, transpose
from weft._engine.ops.slicing import slice as slice_op
from weft._engine.partition.combine import separate_reductions
from weft._engine.transforms.batch import batch_flat, to_dim

Spec = tuple[tuple[str, ...], ...]


def stack(
    local: Jaxpr,
    axes: Sequence[tuple[str, int]],
    in_specs: Sequence[Spec],
    out_specs: Sequence[Spec],
    out_blocks: Sequence[tuple[int, ...] | None] = (),
) -> Jaxpr:
    """Return `local` mapped over the mesh `axes` (name, size), from and to storage blocks according to the specs.

    A result that is whole on all devices is stored in `out_blocks` blocks per dim, unless that is None.
    """
    local = separate_reductions(local)

    def run(*blocks: Any) -> list[Any]:
        return on_blocks(local, axes, in_specs, out_specs, out_blocks, blocks)

    return stage(run, block_types(local.invars, in_specs, axes), local.name)


def on_blocks(
    local: Jaxpr,
    axes: Sequence[tuple[str, int]],
    in_specs: Sequence[Spec],
    out_specs: Sequence[Spec],
    out_blocks: Sequence[tuple[int, ...] | None],
    blocks: Sequence[Any],
) -> list[Any]:
    """Apply `local`, mapped over `axes`, to the storage blocks of its arguments; return the storage blocks of its results."""
    blocks_of = (*out_blocks, *[None] * (len(out_specs) - len(out_blocks)))
    names, sizes = [name for name, _ in axes], dict(axes)
    args = [from_storage(x, spec, names, sizes) for x, spec in zip(blocks, in_specs)]
    varying = [frozenset(a for dim in spec for a in dim) for spec in in_specs]
    spec_axes = [frozenset(a for dim in spec for a in dim) for spec in out_specs]

    def evaluated(*xs: Any) -> list[Any]:
        return evaluate(local, *xs)

    outs = mapped_over(evaluated, list(axes), varying, spec_axes)(*args)
    return [
        to_storage(x, spec, names, sizes) if blocks is None else _into_blocks(x, blocks)
        for x, spec, blocks in zip(outs, out_specs, blocks_of)
    ]


def block_types(
    variables: Sequence[Var], specs: Sequence[Spec], axes: Sequence[tuple[str, int]]
) -> list[ShapedArray]:
    """Return the types of the storage blocks of variables of one device."""
    return [
        v.aval.update(
            shape=_splits(spec, v.aval.ndim, dict(axes)) + v.aval.shape,
            sharding=None,
            vma=frozenset(),
        )
        for v, spec in zip(variables, specs)
    ]


def _splits(spec: Spec, ndim: int, sizes: Mapping[Any, int]) -> tuple[int, ...]:
    spec = tuple(spec) + ((),) * (ndim - len(spec))
    return tuple(math.prod(sizes[a] for a in dim) for dim in spec)


def mapped_over(
    fun: Callable[..., Any],
    axes: list[tuple[str, int]],
    varying: Sequence[frozenset[Any]],
    kept_axes: Sequence[frozenset[Any]],
) -> Callable[..., Any]:
    """Return `fun` mapped over `axes`, the first outermost; an argument has a leading dim per axis over which it varies, in order."""
    if not axes:
        return fun
    (name, size), inner_axes = axes[0], axes[1:]
    inner = mapped_over(fun, inner_axes, varying, kept_axes)
    axis = BatchAxis(size, name, of_mesh=True)

    def mapped(*args: Any) -> list[Any]:
        outs, dims = batch_flat(inner, axis, args, [0 if name in v else None for v in varying])
        return [_final_dim(o, d, axis, name in w) for o, d, w in zip(outs, dims, kept_axes)]

    return mapped


def _final_dim(x: Any, dim: int | None, axis: BatchAxis, is_kept: bool) -> Any:
    """Return an output with the axis as dim 0 if the spec has it; otherwise one of its equal rows."""
    if is_kept:
        return to_dim(x, dim, axis, 0)
    if dim is None:
        return x
    shape = typeof(x).shape
    row = slice_op(x, [0] * len(shape), [1 if d == dim else n for d, n in enumerate(shape)])
    return reshape(row, shape[:dim] + shape[dim + 1 :])


def from_storage(block: Any, spec: Spec, names: Sequence[Any], sizes: Mapping[Any, int]) -> Any:
    """Convert [splits..., local...] to [mesh axes in mesh order..., local...]."""
    order = [a for dim in spec for a in dim]
    shape = typeof(block).shape
    local = shape[len(shape) // 2 :]
    x = reshape(block, tuple(sizes[a] for a in order) + local)
    present = [a for a in names if a in order]
    if present == order:
        return x
    n = len(order)
    return transpose(x, tuple(order.index(a) for a in present) + tuple(range(n, n + len(local))))


def to_storage(x: Any, spec: Spec, names: Sequence[Any], sizes: Mapping[Any, int]) -> Any:
    """Convert [mesh axes in mesh order..., local...] to [splits..., local...]."""
    order = [a for dim in spec for a in dim]
    have = [a for a in names if a in order]
    n = len(order)
    shape = typeof(x).shape
    local = shape[n:]
    if have != order:
        x = transpose(x, tuple(have.index(a) for a in order) + tuple(range(n, len(shape))))
    return reshape(x, _splits(spec, len(local), sizes) + local)


def _into_blocks(x: Any, blocks: tuple[int, ...]) -> Any:
    """Convert [dims...] to [blocks..., dims of a block...]."""
    pairs = [n for size, k in zip(typeof(x).shape, blocks) for n in (k, size // k)]
    rank = len(blocks)
    return transpose(reshape(x, tuple(pairs)), (*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)))
