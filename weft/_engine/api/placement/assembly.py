"""Arrays assembled from parts: from a callback, from one array per device, from the data of each process.

In:   a global shape, a sharding or Format, and the parts that this process has.
Out:  an array; every part is checked against the shard that it fills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.api.execute import to_array
from weft._engine.api.layouts import as_sharding
from weft._engine.api.placement.device_put import device_put, is_placement
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.formats import Format, Layout, order_of
from weft._engine.core.trace import Tracer, typeof
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.types import ShapedArray
from weft._engine.runtime import array_assembly, transfer_guards
from weft._engine.runtime.array import Array
from weft._engine.runtime.device import Device
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import UnexpectedTracerError, describe
from weft._engine.util.messages.quantities import quantity


def make_array_from_callback(
    shape, sharding: Sharding | Format, data_callback: Callable, dtype=None
) -> Array:
    """Return an array of global `shape` with the given sharding or Format.

    `data_callback(index)` returns each distinct shard of this process.

    `index` is a tuple of slices into the global array. `dtype` is needed if this process has none of the devices. Raises ValueError if a
    shard has another shape or dtype than required, UnexpectedTracerError for a traced value.

    >>> whole = np.arange(4.0, dtype=np.float32)
    >>> make_array_from_callback((4,), weft.sharding.SingleDeviceSharding(weft.devices()[0]), lambda index: whole[index])
    Array([0., 1., 2., 3.], dtype=float32)
    """
    api, shape = "make_array_from_callback", tuple(int(n) for n in shape)
    sharding, order = _placement_to_make(api, sharding, len(shape))
    whole = (slice(None),) * len(shape)
    shards = array_assembly.make_local_blocks(
        sharding,
        shape,
        lambda index: data_callback(whole if sharding.is_fully_replicated else index),
    )
    for part in shards.values():
        if isinstance(part, Tracer):
            raise UnexpectedTracerError(
                f"{api}: the callback returned a traced value, {part!r:.80}.\n"
                f"  jax.{api} cannot be called within a traced context."
            )
    if shards and dtypes.is_extended(typeof(next(iter(shards.values()))).dtype):
        keys = {position: to_array(part) for position, part in shards.items()}
        part_dtype = array_assembly.only_dtype(api, [x.dtype for x in keys.values()], dtype)
        values = {position: x._numpy() for position, x in keys.items()}
    else:
        expected = None if dtype is None else dtypes.canonicalize_dtype(dtype)
        arrays = {position: np.asarray(part) for position, part in shards.items()}
        part_dtypes = [dtypes.canonicalize_dtype(typeof(part).dtype) for part in shards.values()]
        part_dtype = array_assembly.only_dtype(api, part_dtypes, expected)
        values = {
            position: part.astype(part_dtype, copy=False) for position, part in arrays.items()
        }
    array = array_assembly.assemble_blocks(
        api, ShapedArray(shape, part_dtype), sharding, values, order
    )
    if transfer_guards.has_guard():
        transfer_guards.to_device(array.aval, sharding)
    return array


def _placement_to_make(
    api: str, placement: Any, ndim: int
) -> tuple[Sharding, tuple[int, ...] | None]:
    """Return the sharding of an array of `ndim` dims that is assembled from parts, and its dim order."""
    sharding, layout = (
        (placement.sharding, placement.layout)
        if isinstance(placement, Format)
        else (placement, None)
    )
    if layout is Layout.AUTO:
        raise TypeError(
            f"{api}: `Layout.AUTO` cannot be used in place of a device-local layout, got {placement}. No compiler chooses a layout "
            "when an array is assembled from parts. Pass a concrete layout, or the sharding alone."
        )
    if not isinstance(sharding, Sharding):
        raise TypeError(
            f"{api}: sharding should be an instance of `weft.sharding`. Got {placement!r:.80} of type {type(placement)}."
        )
    return sharding, order_of(layout, ndim, api)


def make_array_from_single_device_arrays(
    shape, sharding: Sharding, arrays: Sequence, *, dtype=None
) -> Array:
    """Return an array of global `shape` from one array per device of `sharding` that this process drives, in any order.

    `dtype` is needed if it drives none. Raises ValueError if an array is missing, has another shape or dtype, or is on several devices.

    >>> x = weft.device_put(wnp.ones(2), weft.devices()[0])
    >>> make_array_from_single_device_arrays((2,), x.sharding, [x])
    Array([1., 1.], dtype=float32)
    """
    api, shape = "make_array_from_single_device_arrays", tuple(int(n) for n in shape)
    _check_arrays(api, arrays)
    sharding, order = _placement_to_make(api, sharding, len(shape))
    for a in arrays:
        _check_single(api, a)
    local_devices = [d for d in sharding.device_assignment if d.is_addressable]
    if dtype is not None and not dtypes.is_extended(dtype):
        dtype = dtypes.canonicalize_dtype(dtype)
    aval = ShapedArray(shape, array_assembly.only_dtype(api, [a.dtype for a in arrays], dtype))
    by_device = {a.device: a for a in arrays}
    _check_one_each(api, arrays, local_devices, by_device)
    if any(not device.client.has_values for device in local_devices):
        spec = ArraySpec(aval, sharding, True, order)
        return Array(spec, spec.backend.allocate(spec.stored))
    values_by_device = {device: np.asarray(array._numpy()) for device, array in by_device.items()}
    if isinstance(sharding, NamedSharding) and sharding.unreduced:
        return _of_terms(api, aval, sharding, values_by_device)
    placed = array_assembly.local_blocks(sharding, len(shape))
    values = {position: values_by_device[device] for position, device in placed.items()}
    return array_assembly.assemble_blocks(api, aval, sharding, values, order)


def _check_one_each(
    api: str,
    arrays: Sequence[Array],
    local_devices: Sequence[Device],
    by_device: dict[Device, Array],
) -> None:
    """Raise ValueError unless there is one array on each of the devices `mine`."""
    missing = [d for d in local_devices if d not in by_device]
    if not missing and len(arrays) == len(local_devices):
        return
    raise ValueError(
        describe(
            api,
            f"no array is on {missing}."
            if missing
            else f"{quantity(len(arrays), 'array')} for {quantity(len(local_devices), 'device')}.",
            [
                ("devices of this process", str([d.id for d in local_devices])),
                ("arrays are on devices", str([a.device.id for a in arrays])),
            ],
            None,
            "There must be one array per addressable device of the sharding.",
        )
    )


def _check_arrays(api: str, arrays: Any) -> None:
    """Raise TypeError unless `arrays` is a sequence of arrays."""
    is_sequence = isinstance(arrays, Sequence) and not isinstance(arrays, Tracer)
    if not is_sequence or not all(isinstance(a, Array) for a in arrays):
        raise TypeError(
            f"{api}: jax.{api} `arrays` argument must be a list or tuple of arrays, but got {type(arrays)}: {arrays!r:.80}."
        )


def _check_single(api: str, a: Any) -> None:
    """Raise ValueError unless `a` is a concrete array on one device."""
    if isinstance(a, Tracer):
        raise ValueError(
            f"{api}: one of the arrays is traced, {a!r:.80}.\n  jax.{api} requires a list of concrete arrays as input."
        )
    if len(a.sharding.device_assignment) != 1:
        raise ValueError(
            f"{api}: {a.aval.str_short()} is on several devices.\n"
            "  When making an array from single-device arrays the input arrays must have one shard each. "
            f"An argument array had {len(a.sharding.device_assignment)} shard(s)."
        )


def _of_terms(
    api: str, aval: ShapedArray, sharding: NamedSharding, terms: dict[Any, np.ndarray]
) -> Array:
    """Return the array with unreduced axes whose term on each device is `terms[device]`."""
    memory = ShapedArray((sharding.num_terms, *aval.shape), aval.dtype)
    placed = array_assembly.local_blocks(sharding.storage_sharding, memory.ndim)
    stored = array_assembly.assemble_blocks(
        api,
        memory,
        sharding.storage_sharding,
        {position: terms[device][None] for position, device in placed.items()},
    )
    return Array(ArraySpec(aval, sharding, True), stored._live())


def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Any = None
) -> Any:
    """Return arrays from the data of this process: a tree of data, and shardings or Formats and shapes (or None) that are prefixes of it.

    Along each dim the data consists of the blocks on devices of this process, in the order of the global array, or is complete.
    Without `global_shape` the former holds for every dim, and the global shape is computed. With one process the data is the global array.
    Raises ValueError for data that does not fit, TypeError for an invalid sharding.

    >>> one = weft.sharding.SingleDeviceSharding(weft.devices()[0])
    >>> make_array_from_process_local_data(one, np.ones(2, np.float32)).committed
    True
    """
    api = "make_array_from_process_local_data"
    flat, structure = tree.tree_flatten(local_data)
    shardings = tree.broadcast_prefix(sharding, local_data, is_leaf=is_placement)
    shapes = tree.broadcast_prefix(
        global_shape, local_data, is_leaf=lambda x: x is None or _is_shape(x)
    )
    return tree.tree_unflatten(
        structure, [_from_local(api, *each) for each in zip(flat, shardings, shapes)]
    )


def _is_shape(x: Any) -> bool:
    return isinstance(x, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in x)


def _from_local(api: str, data: Any, placement: Any, global_shape: Any) -> Array:
    target = placement if isinstance(placement, Format) else as_sharding(placement, api)
    sharding, order = _placement_to_make(api, target, np.ndim(data))
    if sharding.is_fully_addressable:
        if global_shape is not None and tuple(global_shape) != np.shape(data):
            raise ValueError(
                f"{api}: this process drives all devices, so that the local data is the global array: shape "
                f"{np.shape(data)}, global_shape {tuple(global_shape)}.\n"
                "  global_shape should be None or equal to local_data.shape."
            )
        return device_put(data, target)
    array = to_array(data)
    shape = (
        array_assembly.global_shape_of(sharding, array.shape)
        if global_shape is None
        else tuple(global_shape)
    )
    if len(shape) != array.ndim:
        raise ValueError(
            f"{api}: local data of shape {array.shape} and global_shape {shape} differ in rank."
        )
    return array_assembly.assemble_local_data(
        api, array._numpy(), ShapedArray(shape, array.dtype), sharding, order
    )
