"""Moves of arrays between shardings: by sharing memory, by copying, or by transfers between processes.

In:   an array, and a sharding.
Out:  the array in that layout; the grid of its shards as one array, and the inverse.
Laws: whether values travel between processes depends only on layouts, so that all processes decide alike.
Next: `exchange` transfers between processes; `api.execute` compiles copies of large arrays.
"""

from __future__ import annotations

from weft._engine.backends.array_spec import (
    ArraySpec,
    is_whole_everywhere,
    numbers_by_process,
    select_local_blocks,
    split_into_blocks,
)
from weft._engine.backends.process_blocks import blocks_by_process
from weft._engine.ir.shardings import Sharding
from weft._engine.ir.types import ShapedArray
from weft._engine.runtime.array import Array, default_sharding, put


def is_compatible(have: ArraySpec, want: ArraySpec) -> bool:
    """Return whether an array of the layout `have` can be used as `want` without moving it."""
    return have is want or (
        have.backend is want.backend
        and have.order == want.order
        and have.global_shape == want.global_shape
        and want.backend.same_memory(have.row_major, want.row_major)
    )


def change_layout(array: Array, spec: ArraySpec) -> Array:
    """Return `array` in the layout `spec`; memory is shared if layouts allow it. If it spans processes, all of them must call this.

    Raises ValueError if values of several processes would move to one.
    """
    have = array._spec
    if spec is have:
        return array
    if is_compatible(have, spec):
        return Array(spec, array._live())
    if have.has_terms or spec.has_terms:
        raise AssertionError(
            f"{array.aval.str_short()} needs a compiled program to become {spec.sharding}, because partial sums are added or made"
        )
    if not needs_transfer(have, spec):
        if have.backend is spec.backend and have.order == spec.order:
            moved = have.backend.move(array._live(), have.stored, spec.stored)
            if moved is not None:
                return Array(spec, moved)
        return put(array._numpy(), spec, copy=False)
    if have.order != spec.order:
        raise AssertionError(
            f"{array.aval.str_short()} needs a compiled program to change its dim order to {spec.order}"
        )
    from weft._engine.runtime.exchange import change_layout

    return Array(spec, change_layout(array._as_stored(), spec.stored)._live())


def needs_transfer(have: ArraySpec, want: ArraySpec) -> bool:
    """Return whether values of the layout `have` must travel between processes to get the layout `want`; all processes return the same.

    An array on devices of one process only is local to it: other processes have their own array with the same value.
    """
    if have.by_process is None:
        return False
    numbers = numbers_by_process(have)
    takers = {rank for rank, _ in blocks_by_process(want.stored.sharding, want.stored.aval.ndim)}
    return not (is_whole_everywhere(have, numbers) and takers <= set(numbers))


def as_blocks(array: Array) -> Array:
    """Return the grid of shards as one array, [splits..., local dims...], on the default device; memory is shared if possible."""
    spec = array._spec
    plain = ArraySpec(
        ShapedArray(spec.storage_shape, spec.storage_dtype, array.aval.weak_type),
        default_sharding(),
        False,
    )
    if plain.backend is spec.backend and spec.backend.is_one_memory:
        return Array(plain, array._live())
    return Array(plain, plain.backend.put(spec.backend.get_blocks(array._live(), spec), plain))


def all_blocks(array: Array, sharding: Sharding) -> Array:
    """Return the grid of shards that `array`, which is local, would have in the layout `sharding`, all on the default device."""
    spec = ArraySpec(array.aval, sharding, True)
    value = split_into_blocks(array._numpy(), spec.splits, spec.local_shape)
    plain = ArraySpec(
        ShapedArray(value.shape, spec.storage_dtype, array.aval.weak_type),
        default_sharding(),
        False,
    )
    return Array(plain, plain.backend.put(value, plain))


def of_blocks(blocks: Array, spec: ArraySpec) -> Array:
    """Return the array of layout `spec` whose grid of shards is `blocks`.

    `blocks` is an array on one device; it also has the shards of other processes.
    """
    if spec.by_process is not None:
        return Array(
            spec, spec.backend.put_blocks(select_local_blocks(blocks._numpy(), spec), spec)
        )
    if blocks._spec.backend is spec.backend and spec.backend.is_one_memory:
        return Array(spec, blocks._live())
    return Array(spec, spec.backend.put_blocks(blocks._numpy(), spec))
