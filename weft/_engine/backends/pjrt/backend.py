"""The backend of a PJRT plugin: GPUs, TPUs and other devices, driven through XLA's C API.

In:   local programs and array specs.
Out:  devices, buffers on them, and programs that the plugin compiles from StableHLO.
Laws: a program is compiled as one replica of the local program on each device of its mesh.
Next: `plugins` finds the plugins, `client` calls them, `hlo.replica_program` writes the text.
"""

from __future__ import annotations

import atexit
import marshal
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from weft._engine import processes
from weft._engine.backends.array_spec import ArraySpec, from_blocks, to_blocks
from weft._engine.backends.base import (
    Backend,
    Device,
    DeviceMemory,
    DeviceMemorySpace,
    LoadedLocalProgram,
    LocalProgram,
    Stage,
)
from weft._engine.backends.host_calls import MeshHostCall
from weft._engine.backends.pjrt import buffers
from weft._engine.backends.pjrt.buffers import HostCopy, ShardBuffers
from weft._engine.backends.pjrt.c_api import PluginLibrary
from weft._engine.backends.pjrt.callbacks import PluginCalls
from weft._engine.backends.pjrt.client import DeviceDescription, PjrtClient
from weft._engine.backends.pjrt.compile_options import encode_compile_options
from weft._engine.backends.pjrt.program import (
    PjrtProgram,
    ProgramFacts,
    facts_of,
    find_unsplit_results,
)
from weft._engine.backends.xla_flags import check_are_options
from weft._engine.hlo.replica_program import replica_program_text
from weft._engine.hooks import PENDING_BUFFER_TYPES
from weft._engine.ir.jaxpr import Eqn
from weft._engine.util import cache
from weft._engine.util.config import config

PENDING_BUFFER_TYPES.add(ShardBuffers)

#: the plugins' platform name -> DLPack's device type
_DLPACK_DEVICES = {"cpu": 1, "cuda": 2, "rocm": 10, "oneapi": 14}


class PjrtDevice(Device):
    """A device of a plugin; the plugin's attributes of the device, such as `coords`, are attributes here."""

    __slots__ = ("_facts",)

    client: PluginBackend

    def __init__(self, facts: DeviceDescription, client: PluginBackend) -> None:
        super().__init__(facts.id, client, facts.process_index, facts.local_hardware_id)
        self._facts = facts

    @property
    def device_kind(self) -> str:
        """The model of the device, such as `NVIDIA H100 80GB HBM3`."""
        return self._facts.kind

    def __getattr__(self, name: str) -> Any:
        attributes = object.__getattribute__(self, "_facts").attributes
        if name not in attributes:
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}. Attributes from its plugin: "
                f"{', '.join(sorted(attributes)) or 'none'}."
            )
        value = attributes[name]
        return tuple(value) if isinstance(value, list) else value

    def __repr__(self) -> str:
        details = ""
        if "core_on_chip" in self._facts.attributes:
            places = f"coords={self.coords}, core_on_chip={self.core_on_chip}"
            details = f", process_index={self.process_index}, {places}"
        return f"{self.client.plugin_name.capitalize()}Device(id={self.id}{details})"

    def __str__(self) -> str:
        return f"{self.client.plugin_name}:{self.id}"

    def addressable_memories(self) -> list[DeviceMemorySpace]:
        """Return the memory spaces that the plugin lists for the device."""
        return [DeviceMemorySpace(self, kind) for kind in self._facts.memories]

    def default_memory(self) -> DeviceMemorySpace:
        """Return the memory space of new arrays."""
        return DeviceMemorySpace(self, self._facts.default_kind)


class PluginBackend(Backend):
    """The base class of plugin backends: for attached devices, or for a topology."""

    plugin_name: str  # e.g. `cuda`, whose devices have the platform `gpu`


class PjrtBackend(PluginBackend):
    """A backend of the attached devices of one plugin."""

    exchanges_values = True

    def __init__(self, platform: str, library: PluginLibrary, options: dict[str, Any]) -> None:
        super().__init__()
        self.platform = platform
        self.client = PjrtClient(library, options)
        job = processes.current()
        if job is not None:
            raise NotImplementedError(
                f"The PJRT plugin {library.name!r} runs in one process; this program has "
                f"{job.size}. Several processes need the plugin's key-value callbacks. "
                "WEFT_PLATFORMS=cpu runs them on the CPU."
            )
        self.plugin_name = library.name
        self.platform_version = self.client.platform_version
        self.lowering_platform = self.client.platform_name
        self.dlpack_kind = _DLPACK_DEVICES.get(self.lowering_platform)
        self.host_calls = PluginCalls(library, self.lowering_platform)
        self._running: list[int] = []  # events of programs with effects
        self._running_lock = threading.Lock()
        #: programs that must not overlap with others, with the events of their runs; keeps their callbacks alive
        self._serial: list[tuple[PjrtProgram, list[int]]] = []
        self.serial_lock = threading.Lock()
        atexit.register(self.wait_for_effects, True)

    runtime_type = "pjrt"

    def check_environment(self) -> None:
        """Do nothing: the plugin itself reads XLA_FLAGS."""

    def check_compiler_options(self, api: str, options: Mapping[str, Any] | None) -> None:
        check_are_options(api, options)  # the plugin checks names and values

    def _make_devices(self) -> Iterator[Device]:
        for facts in self.client.devices.values():
            yield PjrtDevice(facts, self)

    def memory_stats(self, device: Device) -> dict[str, int] | None:
        """Return the plugin's counters of a device's memory; None if it has none."""
        return self.client.memory_stats(device.id)

    def serialize_topology(self) -> bytes:
        return self.client.serialize_topology()

    # ---- memory
    def put(self, value: np.ndarray, spec: ArraySpec, copy: bool = True) -> ShardBuffers:
        return buffers.put_blocks(self.client, to_blocks(value, spec), spec)

    def get(self, buffer: ShardBuffers, spec: ArraySpec) -> np.ndarray:
        return from_blocks(self.get_blocks(buffer, spec), spec).reshape(spec.global_shape)

    def put_blocks(self, blocks: np.ndarray, spec: ArraySpec) -> ShardBuffers:
        return buffers.put_blocks(self.client, blocks, spec)

    def get_blocks(self, buffer: ShardBuffers, spec: ArraySpec) -> np.ndarray:
        copy = buffer.host_copy or HostCopy(buffer, spec)
        buffer.host_copy = None
        return copy.blocks()

    def start_copy_to_host(self, buffer: ShardBuffers, spec: ArraySpec) -> None:
        if buffer.host_copy is None:
            for copy in list(HostCopy.unfinished):
                copy.finish_if_ready()
            buffer.host_copy = HostCopy(buffer, spec)

    def shard(
        self, buffer: ShardBuffers, spec: ArraySpec, position: tuple[int, ...], local: ArraySpec
    ) -> ShardBuffers:
        if len(local.splits) != len(spec.splits):  # a single term of an unreduced array
            return super().shard(buffer, spec, position, local)
        (device,) = local.sharding.device_assignment
        return buffer.part(spec.sharding.device_assignment.index(device))

    def move(self, buffer: ShardBuffers, have: ArraySpec, want: ArraySpec) -> ShardBuffers | None:
        return buffers.move(buffer, have, want)

    def device_memory(self, buffer: ShardBuffers, spec: ArraySpec) -> DeviceMemory | None:
        kind = self.dlpack_kind
        if kind is None or buffer.count != 1:
            return None
        buffer.wait()
        (pointer,) = buffer.pointers()
        number = spec.sharding.device_assignment[0].local_hardware_id
        address = self.client.address_of_buffer(pointer)
        return DeviceMemory(address, kind, 0 if kind == 1 else number, buffer)

    def from_device_memory(self, memory: DeviceMemory, spec: ArraySpec) -> ShardBuffers:
        (device,) = spec.sharding.device_assignment
        pointer = self.client.view(
            memory.address, spec.local_shape, spec.storage_dtype, device.id, memory.owner
        )
        return buffers.own(self.client, [pointer])

    def wait(self, contents: Any) -> None:
        contents.wait()

    def is_ready(self, contents: Any) -> bool:
        return contents.is_ready()

    def add_running(self, program: PjrtProgram, events: list[int]) -> None:
        """Record the events of an execution that must be waited for."""
        if program.is_serial:
            self._serial.append((program, events))
            return
        with self._running_lock:
            self._running += events

    def wait_for_serial(self) -> BaseException | None:
        """Wait for serial executions; return the last error, which their results also raise."""
        running, self._serial = self._serial, []
        events = [event for _, events in running for event in events]
        return self.client.library.wait_for_all(events, is_raised=False)

    def wait_for_effects(self, raising: bool) -> None:
        # a program that calls back must not wait for itself; a forked process has no plugin
        if self.host_calls.is_inside or not self.client.library.functions:
            return
        with self._running_lock:
            events, self._running = self._running, []
        error = self.client.library.wait_for_all(events, is_raised=False)
        with self.serial_lock:
            error = self.wait_for_serial() or error
        if raising:
            self.host_calls.raise_unseen()
            if error is not None and not self.host_calls.is_failure(str(error)):
                raise error

    # ---- programs
    def compile(self, program: LocalProgram, lowered: None, stage: Stage) -> LoadedLocalProgram:

        calls: list[MeshHostCall] = []

        def call_host(eqn: Eqn) -> int:
            calls.append(self.host_calls.add(eqn, program.mesh))
            return calls[-1].number

        platform = self.lowering_platform
        text = stage("write StableHLO", replica_program_text, program, call_host, platform)
        overrides = dict(config.compiler_options)
        if platform == "cpu":  # maxima and minima must propagate NaNs
            overrides.setdefault("xla_cpu_enable_fast_min_max", False)
        options = encode_compile_options(program.device_ids, overrides)
        loaded = stage("compile by the plugin", self.client.compile, text, options)
        return PjrtProgram(self, loaded, facts_of(program), find_unsplit_results(program), calls)

    def load(self, code: bytes, lowered: Callable[[], None], write: Any) -> LoadedLocalProgram:
        *fields, executable = marshal.loads(code)
        return PjrtProgram(self, self.client.load(executable), ProgramFacts(*fields))

    def cache_key(self) -> str | None:
        kinds = [device.kind for device in self.client.devices.values()]
        library = self.client.library
        file = os.stat(library.path)
        versions = library.version, self.platform_version, file.st_size, file.st_mtime_ns
        flags = [os.environ.get(name) for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
        lowering = cache.fingerprint(("hlo",))
        return cache.digest(repr((library.name, versions, kinds, flags, lowering)).encode())
