"""`weft.auto.measure`: time small programs on the present devices, and fit a `Machine` to the times.

In:   a mesh of devices of this process.
Out:  a `Machine`: rates of matmuls and of memory, bandwidth and latency of collectives.
How:  each program repeats one operation on all devices at once. Devices that share cores or memory thus have their share.
Next: `machine_fit` fits the rates.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft._engine.api.jit import jit
from weft._engine.api.placement.device_put import device_put
from weft._engine.api.shard_map import shard_map
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.partition.auto.machine_rates import MACHINES, CollectiveKind, Machine, this_cpu
from weft._engine.runtime.device import devices
from weft._engine.util.dtype_table import as_dtype
from weft._engine.util.record import record, replace
from weft.tools.automatic.machine_fit import (
    CollectiveTime,
    MachineTimes,
    MatmulTime,
    StreamTime,
    fit_machine,
)

#: seconds that repetitions of an operation take, and how often these are timed
SECONDS, ROUNDS = 2e-3, 3
#: maximal number of repetitions
MOST_REPETITIONS = 1 << 14


@record
class MeasuredSizes:
    """Sizes on one device: bytes of collectives and of memory traffic, rows of matrices."""

    collectives: tuple[int, ...]
    streams: tuple[int, ...]
    matmuls: tuple[int, ...]


#: of devices that share the cores of a processor, and of accelerators
_CPU_SIZES = MeasuredSizes((1 << 8, 1 << 14, 1 << 20), (1 << 10, 1 << 22), (128, 256))
_ACCELERATOR_SIZES = MeasuredSizes((1 << 10, 1 << 20, 1 << 26), (1 << 12, 1 << 28), (2048, 4096))
#: by platform: the preset with the constants that are not measured; for other platforms, the processor
_ACCELERATORS = {"gpu": "h100", "tpu": "tpu-v5e"}
#: dtypes of the matmuls
_DTYPES = ("float32", "bfloat16")


def measure(mesh: Mesh | None = None) -> Machine:
    """Time small programs on the devices of `mesh`, by default all devices, and return the machine that fits the times.

    Timed are all-reduce, all-gather, all-to-all and permute along each axis of the mesh, matmuls in float32 and bfloat16,
    and an elementwise op that is limited by memory. This takes a few seconds. All axes are inside one node, so the machine
    has one bandwidth and one latency for them. Constants that are not measured (the network between nodes, the tiles of
    matmuls, `overlap`) come from the platform's preset: "cpu", "h100" or "tpu-v5e".

    The times depend on what else runs on the machine. Use one measurement for all plans that are compared: `repr` of the
    machine is an expression that makes it again.

    Raises `TypeError` for a mesh without devices, `ValueError` for a single device, and `NotImplementedError` for devices of
    several processes.

    >>> machine = weft.auto.measure(weft.make_mesh((4,), ("x",)))
    >>> machine.link_bandwidth > 0 and machine.flops("float32") > 0
    True
    """
    grid = _device_grid(mesh)
    first = grid.devices.flat[0]
    sizes = _ACCELERATOR_SIZES if first.platform in _ACCELERATORS else _CPU_SIZES
    collectives = [
        _time_collective(grid, axis, kind, nbytes)
        for axis, count in grid.shape.items()
        if count > 1
        for kind in _COLLECTIVES
        for nbytes in sizes.collectives
    ]
    matmuls = [_time_matmul(grid, size, dtype) for dtype in _DTYPES for size in sizes.matmuls]
    streams = [_time_stream(grid, nbytes) for nbytes in sizes.streams]
    return fit_machine(MachineTimes(collectives, matmuls, streams), _unmeasured_constants(grid))


def _device_grid(mesh: Mesh | None) -> Mesh:
    """Return the mesh with automatic axes; an error if its devices cannot be timed."""
    if mesh is None:
        mesh = Mesh(np.array(devices(), object), ("devices",))
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f"weft.auto.measure: mesh must be a Mesh of devices, got {type(mesh).__name__}. Programs run on the devices; make "
            "a mesh with weft.make_mesh(shape, names), or use a preset for devices that are not attached."
        )
    if mesh.size < 2:
        raise ValueError(
            "weft.auto.measure: the mesh has 1 device. Collectives need at least 2 devices; virtual devices of the processor "
            "are made by WEFT_NUM_DEVICES=8."
        )
    if not all(d.is_addressable for d in mesh.devices.flat):
        raise NotImplementedError(
            "weft.auto.measure: the mesh has devices of other processes. Measure a mesh of the devices of one process, and "
            "state network_bandwidth and network_latency in a Machine."
        )
    return Mesh(mesh.devices, mesh.axis_names)


def _unmeasured_constants(mesh: Mesh) -> Machine:
    """Return a machine with the memory and the number of devices; the rates come from a preset."""
    first = mesh.devices.flat[0]
    preset = _ACCELERATORS.get(first.platform)
    base = this_cpu() if preset is None else MACHINES[preset]
    stats = first.memory_stats() or {}
    memory = stats.get("bytes_limit", base.memory)
    if preset is None:
        memory = base.memory * base.devices_per_node / mesh.size
    return replace(base, name="measured", memory=memory, devices_per_node=mesh.size)


# ---- programs


def _time_collective(mesh: Mesh, axis: Any, kind: CollectiveKind, nbytes: int) -> CollectiveTime:
    """Return the seconds of a collective whose buffer has at least `nbytes` bytes."""
    count = mesh.shape[axis]
    length = -(-nbytes // (4 * count)) * count  # each device has a block of equal size
    values = _random((mesh.size * length,), "float32")
    collective = _COLLECTIVES[kind]
    seconds = _seconds(mesh, lambda x: collective(x, axis, count), values)
    names = list(mesh.axis_names)
    stride = math.prod(mesh.shape[a] for a in names[names.index(axis) + 1 :])
    return CollectiveTime(kind, 4 * length, count, stride, seconds)


def _all_reduce(x: Any, axis: Any, count: int) -> Any:
    return lax.psum(x, axis) * np.float32(1 / count)


def _all_gather(x: Any, axis: Any, count: int) -> Any:
    return lax.all_gather(x[: x.shape[0] // count], axis, tiled=True)


def _all_to_all(x: Any, axis: Any, count: int) -> Any:
    return lax.all_to_all(x, axis, 0, 0, tiled=True)


def _permute(x: Any, axis: Any, count: int) -> Any:
    return lax.ppermute(x, axis, [(i, (i + 1) % count) for i in range(count)])


_COLLECTIVES: dict[CollectiveKind, Callable[[Any, Any, int], Any]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "collective_permute": _permute,
}


def _time_matmul(mesh: Mesh, size: int, dtype: str) -> MatmulTime:
    """Return the seconds of a product on each device. The factor is a rotation, so that values keep their size."""
    values = _random((mesh.size * size, size), dtype)
    rotation, _ = np.linalg.qr(_random((size, size), "float32"))
    factor = rotation.astype(values.dtype)
    seconds = _seconds(mesh, lambda x, w: lax.dot(x, w), values, factor)
    return MatmulTime(size, dtype, seconds)


def _time_stream(mesh: Mesh, nbytes: int) -> StreamTime:
    """Return the seconds of a kernel on each device that reads and writes `nbytes` in total."""
    values = _random((mesh.size * nbytes // 8,), "float32")
    return StreamTime(nbytes, _seconds(mesh, lambda x: x * 0.5 + 0.25, values))


def _random(shape: tuple[int, ...], dtype: str) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(as_dtype(dtype))


def _seconds(mesh: Mesh, step: Callable[..., Any], values: Any, *constants: Any) -> float:
    """Return the seconds of `step` on all devices at once; `values` are split over all axes, `constants` are whole."""
    split, whole = PartitionSpec(mesh.axis_names), PartitionSpec()

    def repeat(times: Any, x: Any, *constants: Any) -> Any:
        return lax.fori_loop(0, times, lambda _, x: step(x, *constants), x)

    specs = whole, split, *(whole for _ in constants)
    program = jit(shard_map(repeat, mesh, specs, split, check_vma=False))
    x, *operands = (
        device_put(a, NamedSharding(mesh, spec)) for a, spec in zip((values, *constants), specs[1:])
    )

    def run(times: int) -> float:
        start = time.perf_counter()
        program(np.int32(times), x, *operands).block_until_ready()
        return time.perf_counter() - start

    run(1)  # compiles
    times, elapsed = 1, run(1)
    while elapsed < SECONDS and times < MOST_REPETITIONS:
        times = min(MOST_REPETITIONS, max(2 * times, round(times * SECONDS / elapsed)))
        elapsed = run(times)
    return min(elapsed, *(run(times) for _ in range(ROUNDS - 1))) / times
