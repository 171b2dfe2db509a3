"""Collective operations on values of several processes. In a single process values are returned unchanged, without waiting.

In:   trees of arrays; every process makes the same call.
Out:  the same values as NumPy arrays in each process, or arrays whose shards are divided among processes.
Laws: before an exchange the processes compare the name of the call and the types of the values; an error reports both
      sides. Gathered values keep their dtypes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft._engine import processes
from weft._engine.api.callbacks import effects_barrier
from weft._engine.api.execute import move_to_layout, to_array
from weft._engine.api.placement.device_put import device_put
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray
from weft._engine.runtime import array_assembly
from weft._engine.runtime.array import Array
from weft._engine.runtime.device import Device
from weft._engine.util import errors, tree
from weft._engine.util.errors import describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import guard_all, user_frame

P = PartitionSpec

__all__ = [
    "P", "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array", "host_local_array_to_global_array", "live_devices",
    "process_allgather", "reached_preemption_sync_point", "sync_global_devices",
]  # fmt: skip


class ProcessFailureError(errors.ProcessFailureError):
    """The error of processes that failed inside a `live_devices` context; `failed_devices` is the set of their devices."""

    def __init__(self, failed_devices: set[Device]) -> None:
        ranks = tuple(sorted({d.process_index for d in failed_devices}))
        facts = f"processes {list(ranks)} failed inside of the block, with {quantity(len(failed_devices), 'device')}."
        super().__init__(f"live_devices: {facts}", ranks)
        self.failed_devices = failed_devices

    def __reduce__(self) -> tuple[type, tuple[set[Device]]]:
        return type(self), (self.failed_devices,)


def _describe_types(values: Sequence[Any], structure: Any) -> str:
    """Return a description of the types of values, which must be equal in all processes."""
    types = [
        x.aval.str_short() if type(x) is Array else f"{x.dtype}{list(x.shape)}" for x in values
    ]
    return f"{', '.join(types)} in {structure}"


def _is_global(x: Any) -> bool:
    return type(x) is Array and x._spec.by_process is not None


def _values(in_tree: Any) -> tuple[list[Any], Any]:
    """Return the leaves of a tree, global arrays unchanged and others as NumPy arrays, and its structure."""
    leaves, structure = tree.tree_flatten(in_tree)
    return [x if _is_global(x) else np.asarray(x) for x in leaves], structure


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """Return the values of the source process (process 0, if `is_source` is None) in every process, as NumPy arrays.

    All processes pass trees of the same shapes and dtypes. ValueError unless exactly one process is the source.

    >>> broadcast_one_to_all({"seed": 3})
    {'seed': array(3)}
    """
    api = "broadcast_one_to_all"
    if processes.current() is None:
        if is_source is not None and not is_source:
            raise ValueError(
                f"{api}: no process is the source; is_source is False in the only one."
            )
        return tree.tree_map(np.asarray, in_tree)
    from weft._engine.runtime import exchange

    leaves, structure = tree.tree_flatten(in_tree)
    values = [np.asarray(x) for x in leaves]
    flags = exchange.agree(
        api,
        _describe_types(values, structure),
        "0" if is_source is None else str(int(bool(is_source)) + 1),
    )
    sources = [
        rank for rank, flag in enumerate(flags) if flag == "2" or (flag == "0" and rank == 0)
    ]
    if len(sources) != 1:
        raise ValueError(
            describe(
                api,
                "there must be one source.",
                [("processes with is_source=True", str(sources or "none"))],
                user_frame(),
                "One process passes is_source=True and the others False, or all leave it out.",
            )
        )
    return tree.tree_unflatten(structure, [exchange.broadcast(x, sources[0], api) for x in values])


def sync_global_devices(name: str) -> None:
    """Wait until every process has called this with `name`. AssertionError if a process passes another name."""
    effects_barrier()
    if processes.current() is None:
        return
    from weft._engine.runtime import exchange

    names = exchange.agree("sync_global_devices", "", str(name))
    other = next((rank for rank, theirs in enumerate(names) if theirs != str(name)), None)
    if other is not None:
        raise AssertionError(
            f"sync_global_devices: sync_global_devices name mismatch ({str(name)!r}): process {other} is at "
            f"{names[other]!r}."
        )


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """Return the values of all processes, as NumPy arrays stacked along a new first dim, or joined along the first one if `tiled`.

    A global array, with devices of several processes, is returned whole; ValueError for one unless `tiled`. Scalars are
    always stacked.

    >>> process_allgather(np.ones(2)).shape, process_allgather(np.ones(2), tiled=True).shape
    ((1, 2), (2,))
    """
    api = "process_allgather"
    values, structure = _values(in_tree)
    if any(_is_global(x) for x in values) and not tiled:
        first = next(x for x in values if _is_global(x))
        raise ValueError(
            f"{api}: {first.aval.str_short()} is a global array, which has one value for all processes.\n"
            "  Gathering global non-fully-addressable arrays only supports tiled=True."
        )
    if processes.current() is None:
        return tree.tree_unflatten(structure, [x if tiled else x[None] for x in values])
    from weft._engine.runtime import exchange

    exchange.agree(api, f"{_describe_types(values, structure)}{', tiled' * tiled}")

    def gather(x: Any) -> np.ndarray:
        if _is_global(x):
            return exchange.gather_value(x, api)
        gathered_leaf = exchange.all_gather(x, api)
        return (
            gathered_leaf.reshape(-1, *gathered_leaf.shape[2:])
            if tiled and x.ndim
            else gathered_leaf
        )

    return tree.tree_unflatten(structure, [gather(x) for x in values])


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise AssertionError if values differ among processes: in number, shape, dtype or content.

    Global arrays are compared in their replicas on different processes.
    """
    if processes.current() is None:
        tree.tree_map(np.asarray, in_tree)
        return
    from weft._engine.runtime import exchange

    values, structure = _values(in_tree)
    copies = [x._numpy() if _is_global(x) and x._spec.held is None else x for x in values]
    mine = [exchange.digest([x]) for x in copies if not _is_global(x)]
    replies = exchange.agree(
        "assert_equal", "", "\n".join([_describe_types(values, structure), *mine])
    )
    different = [rank for rank, theirs in enumerate(replies) if theirs != replies[0]]
    if not different:
        return
    difference = _difference(
        [theirs.split("\n")[0] for theirs in replies], different, copies, in_tree
    )
    if not difference:
        return
    prefix = f"{fail_message}. " if fail_message else ""
    raise AssertionError(
        f"{prefix}assert_equal: processes {different} differ from process 0.\n    {difference}"
    )


def _difference(heads: list[str], different: list[int], copies: list, in_tree: Any) -> str:
    """Return a description of the difference between processes, or "" if only the text of equal numbers differs."""
    from weft._engine.runtime import exchange

    if any(head != heads[0] for head in heads):
        return "\n    ".join(f"process {rank}: {heads[rank]}" for rank in (0, *different[:3]))
    gathered = [exchange.all_gather(x, "assert_equal") for x in copies if not _is_global(x)]
    if all(_same(row, stacked[0]) for stacked in gathered for row in stacked):
        return ""
    return f"Expected: {[stacked[0] for stacked in gathered]}; got: {in_tree}."


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.all((a == b) | ((a != a) & (b != b))))


def reached_preemption_sync_point(step_id: int) -> bool:
    """Return True if all processes should save their state at this step, because one of them received SIGTERM.

    All processes call this at every step, starting at the same step. After the signal they agree on the next step that
    none of them has passed; at this step it returns True in all of them. Then the program saves, and exits with the status
    `weft.distributed.PREEMPTED`, which launchers and schedulers distinguish from a failure. From the first call on,
    SIGTERM does not end a process. A single process without a launcher may also call it.

    Raises RuntimeError for a first call outside of the main thread, ProcessFailureError if some processes never call it.

    >>> reached_preemption_sync_point(3)
    False
    """
    from weft._engine.processes import preemption

    return preemption.get_preemption(processes.current()).is_save_step(int(step_id))


@contextlib.contextmanager
def live_devices(devices: Sequence[Device]) -> Iterator[list[Device]]:
    """Yield the devices whose processes are alive; ProcessFailureError at the end if one of them failed inside the block.

    All live processes enter the block together, and leave it together.

    RuntimeError in a single process without `initialize`; ValueError without a device of this process.
    """
    shared = processes.current()
    if shared is None:
        raise RuntimeError(
            "live_devices: Distributed JAX not initialized.\n  Call weft.distributed.initialize first."
        )
    if not any(d.is_addressable for d in devices):
        raise ValueError(
            f"live_devices: No devices provided that this process drives, got {list(devices)!r:.80}."
        )
    before = _failed_processes_at_barrier(shared)
    alive = sorted((d for d in devices if d.process_index not in before), key=lambda d: d.id)
    failure: BaseException | None = None
    try:
        yield alive
    except Exception as error:
        failure = error
    lost = _failed_processes_at_barrier(shared)
    failed = {d for d in alive if d.process_index in lost}
    if failed:
        raise ProcessFailureError(failed) from failure
    if failure is not None:
        raise failure


def _failed_processes_at_barrier(shared: Any) -> set[int]:
    """Return the failed or departed processes after the others have arrived; after a failure, do not wait for others."""
    from weft._engine.runtime import exchange

    if shared.client.failure is None and not shared.client.leaving:
        with contextlib.suppress(ProcessFailureError):
            exchange.agree("live_devices", "")
            return set()
    failure = shared.client.failure
    return {*shared.client.leaving, *([failure["rank"]] if failure is not None else [])}


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Return global arrays assembled from each process's data, sharded over the mesh by `pspecs`, a prefix of the tree of arrays.

    If processes split a dim, each passes its part, and the dim of the global array is the sum. Global arrays are unchanged.

    >>> mesh = weft.make_mesh((1,), ("x",))
    >>> host_local_array_to_global_array(np.arange(4), mesh, P("x")).sharding.spec
    P('x',)
    """
    api = "host_local_array_to_global_array"

    def place(x: Any, spec: Any) -> Array:
        sharding = NamedSharding(global_mesh, _spec(api, spec))
        if _is_global(x):
            return x
        if sharding.is_fully_addressable:
            return device_put(x, sharding)
        local = to_array(x)
        aval = ShapedArray(array_assembly.global_shape_of(sharding, local.shape), local.dtype)
        return array_assembly.assemble_local_data(api, local._numpy(), aval, sharding)

    return _place_globally(place, local_inputs, pspecs)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Return this process's part of arrays sharded over the mesh by `pspecs`: arrays on its own devices, `global_mesh.local_mesh`.

    In a single process these are the whole arrays. An array with another sharding is resharded first, by all processes.
    """
    api = "global_array_to_host_local_array"

    def place(x: Any, spec: Any) -> Array:
        sharding = NamedSharding(global_mesh, _spec(api, spec))
        if sharding.is_fully_addressable:
            return device_put(x, sharding)
        if not _is_global(x):
            return to_array(x)
        placed = move_to_layout(x, sharding)
        local = NamedSharding(global_mesh.local_mesh, spec)
        target = ArraySpec(
            ShapedArray(array_assembly.local_shape_of(sharding, x.shape), x.dtype), local, True
        )
        return Array(target, target.backend.put(array_assembly.read_local_part(placed), target))

    return _place_globally(place, global_inputs, pspecs)


def _place_globally(place: Any, inputs: Any, pspecs: Any) -> Any:
    specs = tree.broadcast_prefix(
        pspecs, inputs, is_leaf=lambda x: x is None or isinstance(x, PartitionSpec)
    )
    leaves, structure = tree.tree_flatten(inputs)
    return tree.tree_unflatten(structure, [place(x, spec) for x, spec in zip(leaves, specs)])


def _spec(name: str, spec: Any) -> PartitionSpec:
    if not isinstance(spec, PartitionSpec):
        raise ValueError(
            f"{name}: pspecs must have a PartitionSpec for every array, `P()` for a replicated array; got {spec!r}."
        )
    return spec


guard_all(globals())
