"""Arrays assembled from the blocks of each process, without communication.

In:   a shape, a sharding, and the blocks on devices of this process.
Out:  arrays; the local shape of a global array, and the global shape of a local one.
Laws: a block that several devices hold is passed once. Every process passes its own blocks; that all blocks have one dtype is the caller's
      responsibility.
Next: `array` defines arrays, `backends.process_blocks` the blocks of each process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.backends.array_spec import ArraySpec, transpose, undo_transpose
from weft._engine.backends.process_blocks import blocks_by_process
from weft._engine.ir.shardings import Sharding
from weft._engine.ir.types import ShapedArray
from weft._engine.runtime.array import Array
from weft._engine.util.errors import describe
from weft._engine.util.messages.quantities import quantity

Position = tuple[int, ...]


def local_blocks(sharding: Sharding, ndim: int) -> dict[Position, Any]:
    """Return the blocks on devices of this process: position -> the first device that holds it."""
    devices: dict[Position, Any] = {}
    for device, position in zip(sharding.device_assignment, sharding.shard_of_device(ndim)):
        if device.is_addressable:
            devices.setdefault(position, device)
    return devices


def assemble_blocks(
    api: str,
    aval: ShapedArray,
    sharding: Sharding,
    parts: Mapping[Position, np.ndarray],
    order: tuple[int, ...] | None = None,
) -> Array:
    """Return the array of type `aval` with the local blocks `parts`, by position; its dims are stored in `order`.

    Raises ValueError if a block has another shape.
    """
    plain, spec = ArraySpec(aval, sharding, True), ArraySpec(aval, sharding, True, order)
    if not parts:
        return Array(spec, spec.backend.allocate(spec.stored))
    blocks = np.empty(spec.storage_shape, spec.storage_dtype)
    extra = (0,) * (len(spec.splits) - aval.ndim)
    for position, part in parts.items():
        if part.shape != plain.local_shape:
            raise ValueError(
                describe(
                    api,
                    f"Expected shard shape {plain.local_shape} doesn't match the single device array shape {part.shape}.",
                    [
                        ("global shape", str(aval.shape)),
                        ("sharding", repr(sharding)),
                        ("block", str(position)),
                    ],
                    None,
                    "Every block has the shape of the array, divided along each dim by the number of blocks.",
                )
            )
        whole = (*(position if order is None else [position[d] for d in order]), *extra)
        at = (
            whole
            if spec.held is None
            else tuple([mine.index(p) for mine, p in zip(spec.held, whole)])
        )
        blocks[at] = transpose(part, order)
    return Array(spec, spec.backend.put_blocks(blocks, spec.stored))


def only_dtype(api: str, values: Sequence[Any], dtype: Any) -> Any:
    """Return the dtype of an array whose parts have the dtypes `values`; `dtype` is the user's argument, or None."""
    if not values:
        if dtype is None:
            raise ValueError(
                f"{api}: this process has none of the sharding's devices, so the dtype is unknown.\n"
                "  If the Array has no addressable shards, `dtype` must be provided via the `dtype` argument to "
                f"`jax.{api}`."
            )
        return dtype
    if dtype is not None and dtype != values[0]:
        raise ValueError(
            f"{api}: dtype={dtype} was passed, but the parts are of type {values[0]}.\n"
            f"  If `dtype` is provided to `jax.{api}`, it must match the dtype of the addressable shards."
        )
    for other in values[1:]:
        if other != values[0]:
            raise ValueError(
                f"{api}: the parts have different dtypes: {values[0]} and {other}.\n"
                "  Input buffers to `Array` must have matching dtypes."
            )
    return values[0]


# ---- shapes of the local part of an array


def global_shape_of(sharding: Sharding, local_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the global shape of an array whose part on this process has `local_shape`."""
    splits, mine = _local_splits(sharding, len(local_shape))
    for dim, (size, k) in enumerate(zip(local_shape, mine)):
        if size % k:
            raise ValueError(
                f"the sharding splits dim {dim} into {quantity(splits[dim], 'block')}, {k} of them on this process, and {size} is not "
                f"divisible by {k} (local shape {tuple(local_shape)}, {sharding!r})."
            )
    return tuple([size // k * n for size, k, n in zip(local_shape, mine, splits)])


def local_shape_of(sharding: Sharding, global_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the part of an array of `global_shape` that this process holds."""
    local = sharding.shard_shape(global_shape)
    _, mine = _local_splits(sharding, len(local))
    return tuple([size * k for size, k in zip(local, mine)])


def _local_splits(sharding: Sharding, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    splits = sharding.splits(ndim)
    if sharding.is_fully_addressable:
        return splits, splits
    by_process = dict(blocks_by_process(sharding, ndim))
    mine = next((d.process_index for d in sharding.device_assignment if d.is_addressable), None)
    if mine is None:
        raise ValueError(
            f"this process has no device of {sharding!r}.\n  Every process that contributes or reads a part of an array must drive "
            "one of its devices."
        )
    return splits, tuple(map(len, by_process[mine]))


def assemble_local_data(
    api: str,
    value: np.ndarray,
    aval: ShapedArray,
    sharding: Sharding,
    order: tuple[int, ...] | None = None,
) -> Array:
    """Return the array of type `aval` from the data `value` of this process: along each dim the whole size, or the local blocks in order.

    The dims are stored in `order`.
    """
    local, process_shape = sharding.shard_shape(aval.shape), local_shape_of(sharding, aval.shape)
    for dim, (size, whole, mine) in enumerate(zip(value.shape, aval.shape, process_shape)):
        if size not in (whole, mine):
            raise ValueError(
                describe(
                    api,
                    f"dim {dim} of the data of this process has size {size}.",
                    [
                        ("local data", str(value.shape)),
                        ("global shape", str(aval.shape)),
                        ("held by this process", str(process_shape)),
                        ("sharding", repr(sharding)),
                    ],
                    None,
                    f"Each dimension has either the global size, here {whole}, or the size that this process holds, {mine}.",
                )
            )
    numbers = [sorted({p[d] for p in local_blocks(sharding, aval.ndim)}) for d in range(aval.ndim)]

    def part(position: Position) -> np.ndarray:
        at = [
            p if size == whole else mine.index(p)
            for p, size, whole, mine in zip(position, value.shape, aval.shape, numbers)
        ]
        return value[tuple([slice(k * n, (k + 1) * n) for k, n in zip(at, local)])]

    return assemble_blocks(
        api,
        aval,
        sharding,
        {position: part(position) for position in local_blocks(sharding, aval.ndim)},
        order,
    )


def read_local_part(array: Array) -> np.ndarray:
    """Return the part of an array that this process holds: along each dim the local blocks, in order."""
    spec = array._spec
    if spec.held is None:
        return array._numpy()
    if not spec.storage_bytes:
        return undo_transpose(
            np.empty(
                [len(mine) * n for mine, n in zip(spec.held, spec.local_shape)], spec.storage_dtype
            ),
            spec.order,
        )
    return undo_transpose(
        join_blocks(spec.backend.get_blocks(array._live(), spec.stored)), spec.order
    )


def join_blocks(blocks: np.ndarray) -> np.ndarray:
    """Return a grid of blocks, [splits..., block dims...], as one array."""
    n = blocks.ndim // 2
    order = [k for d in range(n) for k in (d, n + d)]
    return blocks.transpose(order).reshape(
        [blocks.shape[d] * blocks.shape[n + d] for d in range(n)]
    )


def make_local_blocks(
    sharding: Sharding, shape: Sequence[int], make: Callable[[tuple[slice, ...]], Any]
) -> dict[Position, Any]:
    """Return `make(index)` for every block on devices of this process, by position."""
    indices = sharding.addressable_devices_indices_map(shape)
    return {
        position: make(indices[device])
        for position, device in local_blocks(sharding, len(shape)).items()
    }
