"""What programs of several processes agree on. With one process it agrees with itself: values stay, and nobody waits.

In:  trees of arrays, and the mesh of all processes.
Out: the same values as NumPy arrays, or as arrays sharded over the mesh. More than one process raises NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.api.arrays import device_put
from weft.api.callbacks import effects_barrier
from weft.ir.mesh import Mesh
from weft.ir.shardings import NamedSharding
from weft.ir.specs import PartitionSpec
from weft.runtime import device
from weft.runtime.device import Device
from weft.util import tree
from weft.util.source import guard_all

P = PartitionSpec

__all__ = [
    "P", "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array", "host_local_array_to_global_array", "live_devices",
    "process_allgather", "reached_preemption_sync_point", "sync_global_devices",
]  # fmt: skip


def _alone(name: str) -> None:
    if device.process_count() > 1:
        raise NotImplementedError(f"multihost_utils.{name} for {device.process_count()} processes")


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The values of the source process (process 0, if `is_source` is None) in every process, as NumPy arrays.

    >>> broadcast_one_to_all({"seed": 3})
    {'seed': array(3)}
    """
    _alone("broadcast_one_to_all")
    if is_source is not None and not is_source:
        raise ValueError("broadcast_one_to_all: no process is the source; is_source is False in the only one.")
    return tree.tree_map(np.asarray, in_tree)


def sync_global_devices(name: str) -> None:
    """Wait until every process has reached the place called `name`."""
    _alone("sync_global_devices")
    effects_barrier()


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The values of all processes, as NumPy arrays stacked along a new first dim, or joined along the first one if `tiled`.

    A global array, one that lies on devices of every process, is given whole.

    >>> process_allgather(np.ones(2)).shape, process_allgather(np.ones(2), tiled=True).shape
    ((1, 2), (2,))
    """
    _alone("process_allgather")

    def gather(x: Any) -> np.ndarray:
        values = np.asarray(x)
        return values if tiled and values.ndim else values[None]

    return tree.tree_map(gather, in_tree)


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise AssertionError if the values differ among processes."""
    _alone("assert_equal")
    tree.tree_map(np.asarray, in_tree)


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes should save their state at this step, because one of them is about to be stopped. RuntimeError where nobody
    would know: without a service that watches over processes."""
    raise RuntimeError(f"reached_preemption_sync_point({step_id}): preemption sync manager has not been initialized.\n"
                       "  There is one process, and no service that tells when it is to be stopped.")


def live_devices(devices: Sequence[Device]) -> list[Device]:
    """Those of the devices whose processes are alive."""
    _alone("live_devices")
    return list(devices)


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Arrays made of what each process holds, sharded over the mesh by `pspecs`, a prefix of the tree of arrays.

    >>> mesh = weft.make_mesh((1,), ("x",))
    >>> host_local_array_to_global_array(np.arange(4), mesh, P("x")).sharding.spec
    P('x',)
    """
    _alone("host_local_array_to_global_array")
    specs = tree.broadcast_prefix(pspecs, local_inputs, is_leaf=lambda x: x is None or isinstance(x, PartitionSpec))
    leaves, structure = tree.tree_flatten(local_inputs)
    placed = [device_put(x, NamedSharding(global_mesh, _spec("host_local_array_to_global_array", spec))) for x, spec in zip(leaves, specs)]
    return tree.tree_unflatten(structure, placed)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """What this process holds of arrays that are sharded over the mesh by `pspecs`: all of it, if there is one process."""
    _alone("global_array_to_host_local_array")
    specs = tree.broadcast_prefix(pspecs, global_inputs, is_leaf=lambda x: x is None or isinstance(x, PartitionSpec))
    leaves, structure = tree.tree_flatten(global_inputs)
    placed = [device_put(x, NamedSharding(global_mesh, _spec("global_array_to_host_local_array", spec))) for x, spec in zip(leaves, specs)]
    return tree.tree_unflatten(structure, placed)


def _spec(name: str, spec: Any) -> PartitionSpec:
    if not isinstance(spec, PartitionSpec):
        raise ValueError(f"{name}: pspecs has a PartitionSpec for every array, `P()` for one that all devices hold whole; got {spec!r}.")
    return spec


guard_all(globals())
