"""Device grids: the place of each device in a mesh of a given shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine import processes
from weft._engine.ir.mesh import AxisType, Mesh, meshes_without_axis_types
from weft._engine.runtime import torus_topology
from weft._engine.runtime.device import Device, devices
from weft._engine.util.errors import ShardingError
from weft._engine.util.jax_versions import jax_behavior
from weft._engine.util.messages.quantities import quantity

#: device kind -> `fn(mesh_shape, devices, contiguous_submeshes=...)`, which arranges devices of this kind or returns None;
#: `create_device_mesh` uses it before its own rules
device_kind_handler_dict: dict[str, Callable[..., np.ndarray | None]] = {}


#: device kinds whose physical axes `make_mesh` splits
_SPLIT_AXES = ("TPU v5 lite", "TPU v5e")


def create_device_mesh(
    mesh_shape: int | Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """Return an array of all devices (or of `devices`) of shape `mesh_shape`, with neighbors near each other.

    Virtual devices share one memory and are equally near, so their order is kept. GPUs are in the order of their ids. TPUs that fill a
    grid are placed by their links: whole axes of a torus, or factors of them with `allow_split_physical_axes`, form a dim of the mesh; the
    chips of a tray or of a plane form a ring. Raises NotImplementedError if whole axes cannot form the mesh.

    >>> create_device_mesh((2, 1), all_devices()[:2]).shape
    (2, 1)
    """
    shape = (mesh_shape,) if isinstance(mesh_shape, int) else tuple(mesh_shape)
    if not all(isinstance(n, (int, np.integer)) for n in shape):
        raise ValueError(
            f"create_device_mesh: mesh_shape should be a sequence of ints, got {mesh_shape!r}.\n  It has one size per dim."
        )
    chosen = all_devices() if devices is None else list(devices)
    if math.prod(shape) != len(chosen):
        raise ShardingError(
            f"create_device_mesh: Number of devices {len(chosen)} must equal the product of mesh_shape {shape}.\n"
            f"  The grid uses every device once. Give mesh sizes that multiply to {len(chosen)}, or pass devices=..."
        )
    handler = (
        device_kind_handler_dict.get(getattr(chosen[-1], "device_kind", "")) if chosen else None
    )
    grid = handler and handler(shape, chosen, contiguous_submeshes=contiguous_submeshes)
    if grid is not None:
        return grid
    platform = getattr(chosen[-1], "platform", "") if chosen else ""
    if platform == "gpu":
        chosen = sorted(chosen, key=lambda device: device.id)
    placed = (
        torus_topology.place_devices(chosen, shape, allow_split_physical_axes)
        if platform == "tpu"
        else None
    )
    return _grid(chosen, shape) if placed is None else placed


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """Return a grid whose dims multiply an inner size, within a granule, and an outer one, between granules, which is major.

    A granule is a process if `process_is_granule`. Otherwise it is the set of devices with one `slice_index`, if devices have it; all
    processes of one partition, if `weft.distributed.initialize` got a `partition_index`; else a process. Granules are in order of their
    number, or of their first devices without `should_sort_granules_by_key`.
    Raises ShardingError if the outer sizes do not match the number of granules, or the inner sizes the devices of each.

    >>> create_hybrid_device_mesh((2, 1), (1, 1), all_devices()[:2]).shape
    (2, 1)
    """
    if not isinstance(process_is_granule, (bool, np.bool_)):
        raise TypeError(
            f"create_hybrid_device_mesh: `process_is_granule` must be True or False, got {process_is_granule!r:.60}."
        )
    chosen = all_devices() if devices is None else list(devices)
    groups: dict[int, list] = {}
    for d in chosen:
        groups.setdefault(_granule(d, process_is_granule), []).append(d)
    if math.prod(dcn_mesh_shape) != len(groups):
        raise ShardingError(
            f"create_hybrid_device_mesh: Number of slices {len(groups)} must equal the product of dcn_mesh_shape "
            f"{tuple(dcn_mesh_shape)}.\n  Each granule, a process or a partition, has a place in the outer grid."
        )
    granules = [groups[key] for key in (sorted(groups) if should_sort_granules_by_key else groups)]
    blocks = [
        create_device_mesh(mesh_shape, granule, allow_split_physical_axes=allow_split_physical_axes)
        for granule in granules
    ]
    nested = np.empty(tuple(dcn_mesh_shape), object)
    for where, block in zip(np.ndindex(nested.shape), blocks):
        nested[where] = block
    return np.block(nested.tolist()) if nested.ndim else blocks[0]


def _granule(device: Any, process_is_granule: bool) -> int:
    """Return the number of the granule of a device; raise TypeError for an object that is not a device."""
    if not hasattr(device, "process_index"):
        raise TypeError(
            f"create_hybrid_device_mesh: `devices` must be a sequence of devices, got the entry {device!r:.60}."
        )
    if process_is_granule:
        return device.process_index
    if (part := getattr(device, "slice_index", None)) is not None:
        return part
    shared = processes.current()
    partition = None if shared is None else shared.partitions[device.process_index]
    return device.process_index if partition is None else partition


def all_devices() -> list[Device]:
    """Return every device, in order of id."""
    return devices()


def _grid(chosen: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    flat = np.empty(len(chosen), object)
    flat[:] = chosen
    return flat.reshape(shape)


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[Any],
    axis_types: tuple[AxisType, ...] | None = None,
    *,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """Return a mesh of the first devices that fill `axis_shapes`.

    Its axes are automatic unless `axis_types` says otherwise, or explicit if `weft.config.jax_api` is "0.9" or newer. On TPU v5e, parts of
    physical axes may form a dim.

    >>> make_mesh((1, 1), ('x', 'y')).shape_tuple
    (('x', 1), ('y', 1))
    """
    shape = (axis_shapes,) if isinstance(axis_shapes, int) else tuple(axis_shapes)
    chosen = all_devices() if devices is None else list(devices)
    need = math.prod(shape)
    if need > len(chosen):
        raise ShardingError(
            f"make_mesh: Number of devices {len(chosen)} must be >= the product of mesh_shape {shape}.\n"
            f"  A mesh of {quantity(need, 'place')} needs {quantity(need, 'device')}. Use smaller sizes, or start Python with more "
            f"virtual devices: WEFT_NUM_DEVICES={need}, or `weft run --devices {need} program.py`."
        )
    if axis_types is None and jax_behavior().explicit_make_mesh:
        axis_types = (AxisType.Explicit,) * len(shape)
    split = any(getattr(d, "device_kind", "") in _SPLIT_AXES for d in chosen[:1])
    grid = create_device_mesh(shape, chosen[:need], allow_split_physical_axes=split)
    mesh = Mesh(grid, axis_names, axis_types=axis_types)
    if axis_types is None:
        meshes_without_axis_types.add(mesh)
    else:
        # equal meshes are one object; the last call decides
        meshes_without_axis_types.discard(mesh)
    return mesh
