"""The interface of a backend: its devices, the memory of arrays on them, and the programs that it runs.

In:   from the rest of the system: an array spec and a value, or the local program.
Out:  buffers, NumPy arrays, and `LoadedLocalProgram` programs.
Laws: a backend implements `put`, `get` and `compile`; all other methods have a default here that is correct for any backend, and that a
      backend may override with a faster one. A buffer is opaque: only the methods of its backend look inside.
Next: `backends.reference` is the shortest implementation; docs/adding-a-backend.md builds one in a page.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine import hooks, processes
from weft._engine.backends.array_spec import (
    ArraySpec,
    from_blocks,
    to_blocks,
    update_process_blocks,
)
from weft._engine.backends.xla_flags import check_environment, check_options
from weft._engine.ir import mesh
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.specs import Spec
from weft._engine.util.config import config, frozen, num_virtual_devices
from weft._engine.util.errors import UnknownBackendError
from weft._engine.util.jax_versions import jax_behavior
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft._engine.util.threads import hold_during_fork
from weft._engine.util.user_code_suspension import suspended

if TYPE_CHECKING:
    from weft._engine.partition.cost import CostModel

#: an array's memory; opaque outside of its backend
Buffer = Any
#: stage(title, run, *args) runs `run(*args)` as the stage `title` of a compilation, which is measured, checked and dumped
Stage = Callable[..., Any]


@record
class BlockLayout:
    """The layout of an argument or a result of a local program: its array spec, and the mesh axes that split each dim.

    A result whose sharding mesh axes cannot express is computed whole on every device, and stored split into `blocks` per dim.
    """

    spec: ArraySpec
    dims: Spec
    blocks: tuple[int, ...] | None = None


@record
class LocalProgram:
    """The program that every device runs, with explicit collectives over the `mesh` axes (name, size). Without axes it has none.

    `device_ids` has the devices in the order of the mesh. `owners` has the process of each device of a mesh over several processes; it is
    None for other meshes.
    """

    name: str
    jaxpr: Jaxpr
    mesh: tuple[tuple[Any, int], ...]
    ins: tuple[BlockLayout, ...]
    outs: tuple[BlockLayout, ...]
    donated: tuple[int, ...]  # numbers of the arguments whose memory results may reuse
    device_ids: tuple[int, ...] = (0,)
    owners: np.ndarray | None = None


@record
class DispatchCandidate:
    """A call of a jitted function that took the Python path, for `LoadedLocalProgram.speed_up`."""

    executable: Any
    array_type: type
    args: tuple
    kwargs: dict
    static_nums: tuple[int, ...]
    static_names: tuple[str, ...]
    out_tree: Any
    is_first: bool  # of this function with arguments of these types


@record
class DeviceMemory:
    """Row-major memory on a device, with DLPack's device numbers; `owner` keeps it alive."""

    address: int
    device_type: int
    device_id: int
    owner: Any


class LoadedLocalProgram:
    """A program that is ready to run."""

    kernel_count = 0  # number of kernels that a call runs
    temporary_bytes = 0  # memory of a call in addition to arguments and results
    constant_bytes = 0
    #: the type of values in arrays that are buffers already and need not be adopted
    buffer_type: type | None = None
    module = ""  # the Python module of the jitted function, for reports; "" if unknown
    #: result number -> number of the argument whose memory it reuses
    aliases: Mapping[int, int] = {}

    def start(
        self, buffers: list[Any], array_type: type, check: Callable | None = None
    ) -> list[Any] | None:
        """Queue the program on the contents of arrays; return the contents of its results, or None if running it now is better. After the
        run, `check(argument buffers, result buffers)` is called; an exception that it raises is the program's failure."""
        return None

    def run(self, buffers: list[Buffer]) -> list[Buffer]:
        """Return the results for these arguments. Several threads may call it at once."""
        raise NotImplementedError(f"{type(self).__name__}.run")

    def cost(self) -> dict[str, float] | None:
        """Return the backend's estimates for one device under XLA's names (`flops`, `bytes accessed`); None if it has none."""
        return None

    def memory(self) -> dict[str, int] | None:
        """Return the bytes of a call on one device under the names of `CompiledMemoryStats`; None if the backend has no record."""
        return None

    def text(self) -> str | None:
        """Return the optimized program of one device as HLO; None if weft's own stages show it."""
        return None

    def store(self, write: Callable[[Callable[[], bytes | None]], None]) -> None:
        """Store what `Backend.load` needs by `write(make)`, if possible: now, and again when better code is available."""

    def speed_up(self, function: Any, call: DispatchCandidate) -> bool:
        """Let later calls of `function` like this one bypass Python, if possible; return True if a later attempt may succeed."""
        return False


class RemoteProgram(LoadedLocalProgram):
    """A program on devices of other processes only: its results have no shard in this process."""

    def __init__(self, out_specs: Sequence[ArraySpec]):
        self.out_specs = out_specs

    def run(self, buffers: list[Buffer]) -> list[Buffer]:
        return [spec.backend.allocate(spec) for spec in self.out_specs]


def are_all_remote(devices: Iterable[Device]) -> bool:
    """Return whether other processes drive all of the devices."""
    shared = processes.current()
    return shared is not None and all(d.process_index != shared.rank for d in devices)


class DeviceMemorySpace:
    """A memory space of a device."""

    __slots__ = ("device", "kind")

    def __init__(self, device: Device, kind: str):
        self.device = device
        self.kind = kind

    def addressable_by_devices(self) -> list[Device]:
        """Return the devices that can read and write it."""
        return [self.device]

    def __repr__(self) -> str:
        return f"Memory({self.device!r}, kind={self.kind!r})"


class Device:
    """One device of a backend: a slot of a mesh.

    >>> import weft
    >>> first = weft.devices("cpu")[0]
    >>> first, str(first), first.platform, first.device_kind
    (CpuDevice(id=0), 'cpu:0', 'cpu', 'cpu')
    """

    __module__ = "weft"

    __slots__ = ("__weakref__", "client", "id", "local_hardware_id", "process_index")

    def __init__(
        self, id: int, client: Backend, process_index: int = 0, local_hardware_id: int | None = None
    ):
        self.id = id
        self.client = client  # the backend that drives the device
        self.process_index = process_index
        self.local_hardware_id = id if local_hardware_id is None else local_hardware_id

    @property
    def platform(self) -> str:
        """The name of the backend's platform."""
        return self.client.platform

    device_kind = platform

    @property
    def host_id(self) -> int:
        """The process that drives the device; the former name of `process_index`."""
        return self.process_index

    task_id = host_id

    @property
    def is_addressable(self) -> bool:
        """Whether this process drives the device."""
        return self.process_index == self.client.process_index()

    def memory_stats(self) -> dict[str, int] | None:
        """Return the backend's memory statistics of the device, or None."""
        return self.client.memory_stats(self)

    def addressable_memories(self) -> list[DeviceMemorySpace]:
        """Return the memory spaces that the device can use."""
        return [
            DeviceMemorySpace(self, kind) for kind in ("device", "pinned_host", "unpinned_host")
        ]

    def default_memory(self) -> DeviceMemorySpace:
        """Return the memory space of new arrays."""
        return DeviceMemorySpace(self, "device")

    def memory(self, kind: str) -> DeviceMemorySpace:
        """Return the memory space named `kind`; raise ValueError if there is none."""
        spaces = {space.kind: space for space in self.addressable_memories()}
        if kind not in spaces:
            raise ValueError(f"device {self!r} has no memory of kind {kind!r}")
        return spaces[kind]

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"

    def __str__(self) -> str:
        return self.older_name if jax_behavior().long_device_names else f"{self.platform}:{self.id}"

    @property
    def older_name(self) -> str:
        """The text of the device in programs for JAX before 0.9, and in `print` inside of an eager `shard_map`."""
        return f"{self.client.device_prefix}_{self.id}"

    def __reduce__(self) -> tuple:
        return _device_of_id, (self.id, self.platform)


def _device_of_id(id: int, platform: str) -> Device:
    devices = get(platform).devices()
    device = (
        devices[id]
        if id < len(devices) and devices[id].id == id
        else next((d for d in devices if d.id == id), None)
    )
    if device is None:
        raise ValueError(
            f"device {id} does not exist: this process has {quantity(len(devices), 'device')}.\n"
            "  Set WEFT_NUM_DEVICES before the first use of weft."
        )
    return device


class Backend:
    """A driver of one kind of device. Subclasses set `platform` and define `put`, `get` and `compile`."""

    platform = ""
    #: the platform of programs in StableHLO, for exports and `platform_dependent`: cpu, cuda, rocm, tpu
    lowering_platform = "cpu"
    platform_version = runtime_type = "weft"
    #: whether its devices have separate memories and exchange values without the host
    exchanges_values = False
    #: DLPack's number of its kind of devices, if these have separate memories
    dlpack_kind: int | None = None
    #: whether the shards of an array are contiguous in one memory of all devices, so that a program can rearrange them
    is_one_memory = False
    #: whether arrays have values that `get` reads; devices that are only described have none
    has_values = True

    def __init__(self) -> None:
        self._devices: tuple[Device, ...] = ()
        self._lock = hold_during_fork(threading.RLock())

    def __repr__(self) -> str:
        return f"Client(platform={self.platform!r})"

    # ---- devices
    @property
    def device_prefix(self) -> str:
        """The prefix of a device's `str` in older versions of JAX."""
        return self.platform.upper()

    def devices(self) -> list[Device]:
        """Return all devices, which stay the same for the life of the process; by default as many virtual ones as configured."""
        if not self._devices:
            self.check_environment()
            check_platforms()
            with suspended, self._lock:
                if not self._devices:
                    self._devices = tuple(self._make_devices())
        return list(self._devices)

    def check_environment(self) -> None:
        """Check XLA_FLAGS: warn of flags without effect; raise ValueError for an invalid value."""
        check_environment()

    def check_compiler_options(self, api: str, options: Mapping[str, Any] | None) -> None:
        """Check `compiler_options`: warn of options without effect; raise DeviceRuntimeError for a name or value that XLA refuses."""
        check_options(api, options)

    def _make_devices(self) -> Iterator[Device]:
        """Yield the virtual devices of all processes, with consecutive ids."""
        shared = processes.current()
        frozen["num_cpu_devices"] = num_virtual_devices()
        counts = (num_virtual_devices(),) if shared is None else shared.local_counts
        for rank, count in enumerate(counts):
            first = sum(counts[:rank])
            yield from (Device(first + i, self, rank, i) for i in range(count))

    def keep_devices_of(self, left: Sequence[int], mine: int, first_numbers: Sequence[int]) -> None:
        """Keep only the devices of the processes `left`, in the order of their new numbers; this process had the number `mine`.

        Ids stay. The devices of this process stay the same objects; the devices of other survivors are replaced. Former device objects of other
        processes get the process index -1 - first_numbers[former index], which no process has.
        """
        have = self._devices
        survivors = [
            Device(d.id, self, left.index(d.process_index), d.local_hardware_id)
            for d in have
            if d.process_index in left
        ]
        own = {d.id: d for d in have if d.process_index == mine}
        for device in have:
            device.process_index = (
                left.index(mine) if device.id in own else -1 - first_numbers[device.process_index]
            )
        self._devices = tuple([own.get(d.id, d) for d in survivors])

    def local_devices(self) -> list[Device]:
        """Return the devices that this process drives."""
        return [d for d in self.devices() if d.is_addressable]

    def device_count(self) -> int:
        """Return the number of devices of all processes."""
        return len(self.devices())

    def process_index(self) -> int:
        """Return the number of this process among the processes that share the devices."""
        shared = processes.current()
        return 0 if shared is None else shared.rank

    def process_count(self) -> int:
        """Return the number of processes that share the devices."""
        shared = processes.current()
        return 1 if shared is None else shared.size

    def host_of(self, rank: int) -> int:
        """Return the number of the host of a process; hosts are numbered in order of their first processes."""
        shared = processes.current()
        return 0 if shared is None else list(dict.fromkeys(shared.hosts)).index(shared.hosts[rank])

    def memory_stats(self, device: Device) -> dict[str, int] | None:
        """Return statistics of the device's memory by JAX's keys, or None if the backend has none."""
        return None

    def serialize_topology(self) -> bytes:
        """Return the serialized description of the devices in their plugin's format."""
        raise NotImplementedError(
            f"TopologyDescription.serialize: {self.platform} devices have no PJRT plugin, which defines the format "
            "of the bytes. Devices of plugins and of get_topology_desc have one."
        )

    # ---- memory
    def put(self, value: np.ndarray, spec: ArraySpec, copy: bool = True) -> Buffer:
        """Return the buffer of an array with the global value `value` and the given array spec. Without `copy` it may share memory."""
        raise NotImplementedError(f"{type(self).__name__}.put")

    def get(self, buffer: Buffer, spec: ArraySpec) -> np.ndarray:
        """Return the global value of a buffer."""
        raise NotImplementedError(f"{type(self).__name__}.get")

    def string_backend(self) -> "Backend":
        """Return the backend that stores arrays of strings on these devices; raise TypeError if there is none."""
        raise TypeError(
            f"String arrays can only be on CPU devices, not on devices of {self}. Put them there: "
            "device_put(x, weft.devices('cpu')[0])."
        )

    def allocate(self, spec: ArraySpec) -> Buffer:
        """Return a buffer with undefined values."""
        return self.put(np.empty(spec.global_shape, spec.storage_dtype), spec, copy=False)

    def view(self, buffer: Buffer, spec: ArraySpec) -> np.ndarray | None:
        """Return the global value as a view of the buffer, or None if its memory has another form."""
        return None

    def scalar_reader(self, dtype: np.dtype) -> Callable[[Buffer], bool | int | float] | None:
        """Return a function that reads a scalar of this dtype from the contents of an array; None if only `get` can."""
        return None

    def put_blocks(self, blocks: np.ndarray, spec: ArraySpec) -> Buffer:
        """Return the buffer of an array from the grid of its shards `blocks`, [splits..., local dims...]."""
        return self.put(from_blocks(blocks, spec).reshape(spec.global_shape), spec)

    def get_blocks(self, buffer: Buffer, spec: ArraySpec) -> np.ndarray:
        """Return the grid of shards, [splits..., local dims...]."""
        return to_blocks(self.get(buffer, spec), spec)

    def shard(
        self, buffer: Buffer, spec: ArraySpec, position: tuple[int, ...], local: ArraySpec
    ) -> Buffer:
        """Return the buffer of the shard at `position` of the grid, as a separate array; it may share memory."""
        return self.put(self.get_blocks(buffer, spec)[position], local)

    def same_memory(self, have: ArraySpec, want: ArraySpec) -> bool:
        """Return whether a buffer of the layout `have` is also valid for `want`; both have one type and are on this backend."""
        return have.sharding.is_equivalent_to(want.sharding, have.aval.ndim)

    def move(self, buffer: Buffer, have: ArraySpec, want: ArraySpec) -> Buffer | None:
        """Copy a buffer of the layout `have` to the layout `want` on devices of this backend; return None if the host must do it."""
        return None

    def start_copy_to_host(self, buffer: Buffer, spec: ArraySpec) -> None:
        """Start a copy to the host, which `get` completes."""

    def device_memory(self, buffer: Buffer, spec: ArraySpec) -> DeviceMemory | None:
        """Return the memory of an array on one device, for DLPack; None if other libraries take its NumPy value."""
        return None

    def from_device_memory(self, memory: DeviceMemory, spec: ArraySpec) -> Buffer:
        """Return a buffer on memory of another library, which stays alive until the buffer is freed."""
        raise NotImplementedError(
            f"{type(self).__name__} does not import memory of other libraries."
        )

    def adopt(self, contents: Any, spec: ArraySpec) -> Buffer:
        """Return the buffer for the contents of an array; only native dispatch creates arrays with other contents."""
        return contents

    def wait(self, contents: Any) -> None:
        """Wait until the contents of an array are computed; raise the error of a failed computation."""

    def is_ready(self, contents: Any) -> bool:
        """Return whether `wait` would return immediately."""
        return True

    def wait_for_effects(self, raising: bool) -> None:
        """Wait for the programs called so far that call Python; if `raising`, raise an error of one that was not raised yet."""

    def identity(self, contents: Any) -> Any:
        """Return a key of the memory: two arrays with equal keys share memory."""
        return id(contents)

    # ---- programs
    @property
    def cost_model(self) -> CostModel:
        """The costs of communication and of repeated work, for the partitioner."""
        from weft._engine.partition.cost import CostModel  # a program from disk needs none

        return CostModel()

    def lower(self, program: LocalProgram, stage: Stage) -> Any:
        """Return the backend's own stages of a program, for reports and `compile`; None if it has none."""
        return None

    def compile(self, program: LocalProgram, lowered: Any, stage: Stage) -> LoadedLocalProgram:
        """Return a local program ready to run; `lowered` is the result of `lower`."""
        raise NotImplementedError(f"{type(self).__name__}.compile")

    def schedule(self, program: LocalProgram, lowered: Any) -> Any:
        """Return the schedule of a program, whose steps have their equations, for profiles; None if the backend has no schedule.

        `lowered` are the backend's own stages of the program."""
        return None

    def with_records(
        self, loaded: LoadedLocalProgram, scheduled: Any, receive: Callable[[Any], None]
    ) -> LoadedLocalProgram:
        """Return a loaded program with records of the steps of `scheduled`, which is from `schedule`.

        Each call passes its `StepRecords` to `receive`, in the thread of the call."""
        raise NotImplementedError(f"{type(self).__name__}.with_records")

    def load(
        self,
        code: bytes,
        lowered: Callable[[], Any],
        write: Callable[[Callable[[], bytes | None]], None],
    ) -> LoadedLocalProgram:
        """Return a program that `LoadedLocalProgram.store` stored; any error counts as a cache miss. `lowered()` recomputes the stages."""
        raise NotImplementedError(f"{type(self).__name__}.load")

    def cache_key(self) -> str | None:
        """Return a key of everything except the program and the sources that compiled code depends on; None disables the disk cache."""
        return None

    def enter_compilation(self) -> contextlib.AbstractContextManager:
        """Return a context that is entered while a program is compiled, from its first stage on."""
        return contextlib.nullcontext()


# ---- all backends


def device_of_dlpack(kind: int, number: int) -> Device | None:
    """Return the device with these DLPack numbers, among the backends in use; None if there is none."""
    devices = [
        device
        for backend in {*_backends.values()}
        if backend.dlpack_kind == kind
        for device in backend.devices()
    ]
    return next((device for device in devices if device.local_hardware_id == number), None)


def wait_for_effects(raising: bool = False) -> None:
    """Call `wait_for_effects` of all backends in use."""
    for backend in {*_backends.values()}:
        backend.wait_for_effects(raising)


_factories: dict[str, Callable[[], Backend]] = {}
_backends: dict[str, Backend] = {}


def register(name: str, make: Callable[[], Backend]) -> None:
    """Register `name` for the backend that `make()` returns on first use; raise ValueError if the name is taken."""
    if name in _factories:
        raise ValueError(
            f"backends.register: there is a backend called {name!r} already; choose another name."
        )
    _factories[name] = functools.cache(make)


def default_abstract_device() -> mesh.AbstractDevice:
    """Return the kind of the default backend's devices as an abstract device."""
    first = get().devices()[0]
    return mesh.AbstractDevice(first.device_kind, None, first.platform)


def keep_devices_of(left: Sequence[int], mine: int, first_numbers: Sequence[int]) -> None:
    """Call `keep_devices_of` of all backends in use, and update all array specs."""
    for backend in {*_backends.values()}:
        backend.keep_devices_of(left, mine, first_numbers)
    update_process_blocks()


def have_devices() -> bool:
    """Return whether a backend has created its devices, which then stay the same."""
    return any(backend._devices for backend in list(_backends.values()))


def names() -> list[str]:
    """Return the names of all backends.

    >>> names()[:2]
    ['cpu', 'reference']
    """
    return list(_factories)


#: platform name -> the plugins that it may stand for
_ALIASES = {"gpu": ("cuda", "rocm", "oneapi")}
_defaults: dict[tuple[str | None, str | None], str] = {}
#: held while plugins are located and backends are created, each once
_making = hold_during_fork(threading.RLock())
_accelerators_are_known = False


def find_accelerators() -> None:
    """Register the PJRT plugins that are installed or named by the environment; fast if there are none."""
    global _accelerators_are_known
    if _accelerators_are_known:
        return
    with _making:
        if _accelerators_are_known:
            return
        named = os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS") or os.environ.get("TPU_LIBRARY_PATH")
        if named or any(importlib.util.find_spec(package) for package in ("jax_plugins", "libtpu")):
            hooks.load_plugins().register_installed()
        _accelerators_are_known = True


def has_plugins() -> bool:
    """Return whether there are backends other than the CPU and the reference."""
    return len(_factories) > 2


def describe_versions() -> dict[str, str]:
    """Return the version of each plugin whose devices a program of this process may use, by platform."""
    find_accelerators()
    if not has_plugins():
        return {}
    versions = hooks.load_plugins().find_versions()
    return {
        name: version
        for name, version in versions.items()
        if config.backend in (None, name) and _is_chosen(name)
    }


def names_of(platform: str) -> tuple[str, ...]:
    """Return the names of the backends that a platform name may mean, in order of preference."""
    return _ALIASES.get(platform, (platform,))


def set_alias(backend: Backend, platforms: Sequence[str]) -> None:
    """Let platform names mean `backend` in this process, in place of the backends that they mean otherwise."""
    for name in platforms:
        _backends[name] = backend


def get_host() -> Backend:
    """Return the CPU backend of this machine, even if the setting `platforms` hides its devices."""
    return _backends.get("cpu") or _factories["cpu"]()


def prepare() -> None:
    """Let the CPU backend prepare what most programs need, if it is the default platform.

    Plugins are not loaded: the settings that choose platforms and their options may still change.
    """
    chosen = config.backend or (config.platforms or "").partition(",")[0]
    if not chosen:
        find_accelerators()
    if chosen == "cpu" or not (chosen or has_plugins()):
        get_host()


def _find(name: str) -> str | None:
    """Return the registered name for a platform name, or None. Plugins of other packages are run when they are named."""
    candidates = names_of(name)
    if not any(candidate in _factories for candidate in candidates):
        find_accelerators()
    with _making:
        if not any(candidate in _factories for candidate in candidates):
            hooks.load_plugins().register_third_party()
    return next((candidate for candidate in candidates if candidate in _factories), None)


def _is_chosen(name: str) -> bool:
    """Return whether the setting `platforms` allows a backend: it lists device platforms; the reference is for tests."""
    return (
        not config.platforms
        or name == "reference"
        or name in map(_find, config.platforms.split(","))
    )


def check_platforms() -> None:
    """Check the setting `platforms`.

    Raise RuntimeError for a platform that is unknown or absent. As in JAX, CUDA may be absent if others are listed.
    """
    requested = config.platforms.split(",") if config.platforms else []
    for name in requested:
        if _find(name) is None and (name != "cuda" or requested == ["cuda"]):
            raise RuntimeError(
                f"Unable to initialize backend {name!r}: Backend {name!r} is not in the list of known backends: {names()}. "
                "(set JAX_PLATFORMS='' to automatically choose an available backend)\n"
                f"  The platform has no PJRT plugin. {hooks.load_plugins().install_advice(name)}"
            )


def default_platform() -> str:
    """Return the name of the default backend.

    It is `config.backend`, else the first present platform of `config.platforms`, else an accelerator whose plugin works, else the CPU.

    Raises RuntimeError if both settings are set.
    """
    key = config.backend, config.platforms
    name = _defaults.get(key)
    if name is None:
        with _making:
            name = _defaults[key] = _choose_default(*key)
    return name


def _choose_default(backend: str | None, platforms: str | None) -> str:
    if backend and platforms:
        raise RuntimeError(
            f"config.backend is {backend!r} and config.platforms is {platforms!r}: both choose the default backend.\n"
            "  Set one of WEFT_BACKEND and WEFT_PLATFORMS (or JAX_PLATFORMS); platforms chooses devices."
        )
    if backend:
        return backend
    if platforms:
        check_platforms()
        return next(filter(None, map(_find, platforms.split(","))))
    find_accelerators()
    if has_plugins():
        return hooks.load_plugins().default_platform() or "cpu"
    return "cpu"


def get(backend: str | Backend | None = None) -> Backend:
    """Return the backend of that name, or the default for None; raise RuntimeError if there is none."""
    name = default_platform() if backend is None else backend
    if not isinstance(name, str):
        if not isinstance(name, Backend):
            raise TypeError(
                f"`backend` must be the name of a backend or a backend, got {name!r:.80}."
            )
        return name
    client = _backends.get(name)
    if client is None:
        platform, name = name, _find(name) or name
        if name not in _factories or not _is_chosen(name):
            advice = (
                "\n  GPUs and TPUs need the vendor's plugin, which an extra of weft-arrays such as cuda13 installs."
                if platform in ("gpu", "cuda", "rocm", "tpu")
                else ""
            )
            raise UnknownBackendError(
                f"Unknown backend: {name!r} requested, but no platforms that are instances of {name} are present. "
                f"Platforms present are: {', '.join(filter(_is_chosen, _factories))}{advice}"
            )
        with _making:
            client = _backends.get(name) or _backends.setdefault(name, _factories[name]())
            _backends[platform] = client
    return client
