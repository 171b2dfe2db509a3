"""The client of a PJRT plugin: devices and their memories, buffers, compiled programs.

In:   a `PluginLibrary` and the options of its client.
Out:  `PjrtClient`, which copies arrays to devices and compiles programs; `CompiledProgram` and `LoadedProgram`,
      which own the plugin's executables and free them.
Laws: all functions may be called from several threads. Nothing is freed once the interpreter exits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.backends.pjrt.c_api import (
    NamedValues,
    PluginLibrary,
    bytes_buffer,
    element_number,
    pointers,
    read_named_values,
    row_major_layout,
    struct,
    text_of,
)

#: host buffer semantics: the plugin copies the array before the call returns
_IMMUTABLE_ONLY_DURING_CALL = 0


class DeviceDescription:
    """A device as its plugin describes it; `memories` maps each kind to its memory space, or None."""

    default_kind = "device"

    def __init__(self, library: PluginLibrary, description: int) -> None:
        listed = library.call("DeviceDescription_Attributes", description=description)
        self.attributes = read_named_values(listed.attributes, listed.num_attributes)
        self.id: int = library.call("DeviceDescription_Id", description=description).id
        process = library.call("DeviceDescription_ProcessIndex", description=description)
        self.process_index: int = process.index
        self.kind = text_of(library.call("DeviceDescription_Kind", description=description))
        self.local_hardware_id = self.id
        self.memories = dict.fromkeys(("device", "pinned_host", "unpinned_host"))


class AttachedDevice(DeviceDescription):
    """A device of a client, with its address and its memories."""

    def __init__(self, library: PluginLibrary, device: int) -> None:
        description = library.call("Device_GetDescription", device=device).description
        super().__init__(library, description)
        self.pointer = device
        number = library.call("Device_LocalHardwareId", device=device).number
        self.local_hardware_id = number if number >= 0 else self.id
        listed = library.call("Device_AddressableMemories", device=device)
        spaces = pointers(listed.memories, listed.num_memories)
        kinds = [text_of(library.call("Memory_Kind", memory=space)) for space in spaces]
        self.memories = dict(zip(kinds, spaces))
        default = library.call("Device_DefaultMemory", device=device).memory
        self.default_kind = kinds[spaces.index(default)]


#: (address, id of the owner) -> the object that owns memory of another library
_owners: dict[tuple[int, int], Any] = {}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
def _release_owner(address: int, owner_id: int) -> None:
    _owners.pop((address, owner_id), None)


_forget_owner = ctypes.cast(_release_owner, ctypes.c_void_p).value


class PjrtClient:
    """A connection to the devices of a plugin."""

    def __init__(self, library: PluginLibrary, options: dict[str, Any]) -> None:
        self.library = library
        values = NamedValues(options)
        self.pointer: int = library.call(
            "Client_Create", options=values.address, num_options=values.count
        ).client
        self.platform_name = text_of(library.call("Client_PlatformName", client=self.pointer))
        self.platform_version = text_of(library.call("Client_PlatformVersion", client=self.pointer))
        listed = library.call("Client_AddressableDevices", client=self.pointer)
        devices = [
            AttachedDevice(library, device)
            for device in pointers(listed.devices, listed.num_devices)
        ]
        self.devices = {device.id: device for device in devices}

    # ---- buffers, by their pointers; `buffers.ShardBuffers` owns them
    def memory(self, device_id: int, kind: str) -> int:
        """Return a memory space; raise ValueError if the device has none of that kind."""
        memories = self.devices[device_id].memories
        if kind not in memories:
            raise ValueError(
                f"device {device_id} of PJRT plugin {self.library.name!r} has no memory of kind "
                f"{kind!r}. It has {', '.join(map(repr, memories))}."
            )
        return memories[kind]

    def put(self, value: np.ndarray, device_id: int, memory_kind: str) -> int:
        """Copy an array to a new buffer on a device; the array may change after this call.

        Values of float0 have no bytes; programs take them as bools, so zeros are copied.
        """
        if not value.dtype.itemsize:
            value = np.zeros(value.shape, bool)
        value = np.ascontiguousarray(value).reshape(value.shape)  # NumPy makes 0-d arrays 1-d
        dims = (ctypes.c_int64 * max(value.ndim, 1))(*value.shape)
        copied = self.library.call(
            "Client_BufferFromHostBuffer",
            client=self.pointer,
            data=value.ctypes.data,
            type=element_number(value.dtype),
            dims=ctypes.addressof(dims),
            num_dims=value.ndim,
            semantics=_IMMUTABLE_ONLY_DURING_CALL,
            memory=self.memory(device_id, memory_kind),
        )
        self.library.call("Event_Destroy", event=copied.done)
        return copied.buffer

    def copy(self, buffer: int, device_id: int, memory_kind: str) -> int:
        """Copy a buffer to a memory space of a device of this client."""
        memory = self.memory(device_id, memory_kind)
        return self.library.call("Buffer_CopyToMemory", buffer=buffer, memory=memory).copy

    def start_copy_to_host(self, buffer: int, target: np.ndarray) -> int:
        """Start a copy to a C-contiguous array; return the event of its completion."""
        layout = row_major_layout(target.ndim)
        return self.library.call(
            "Buffer_ToHostBuffer",
            buffer=buffer,
            layout=layout and ctypes.addressof(layout),
            data=target.ctypes.data,
            data_size=target.nbytes,
        ).event

    def view(
        self, address: int, shape: Sequence[int], dtype: np.dtype, device_id: int, owner: Any
    ) -> int:
        """Return a buffer on memory that `owner` keeps alive until the buffer is freed."""
        dims = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        _owners[address, id(owner)] = owner
        return self.library.call(
            "Client_CreateViewOfDeviceBuffer",
            client=self.pointer,
            pointer=address,
            dims=ctypes.addressof(dims),
            num_dims=len(shape),
            type=element_number(dtype),
            device=self.devices[device_id].pointer,
            on_delete=_forget_owner,
            on_delete_arg=id(owner),
        ).buffer

    def wait_for_buffer(self, buffer: int) -> None:
        """Wait for the value; raise DeviceRuntimeError if the program that computes it failed."""
        self.library.wait(self.library.call("Buffer_ReadyEvent", buffer=buffer).event)

    def is_buffer_ready(self, buffer: int) -> bool:
        """Return whether the value is computed."""
        event = self.library.call("Buffer_ReadyEvent", buffer=buffer).event
        try:
            return self.library.is_ready(event)
        finally:
            self.library.call("Event_Destroy", event=event)

    def address_of_buffer(self, buffer: int) -> int:
        """Return the address of the memory on the device."""
        return self.library.call("Buffer_UnsafePointer", buffer=buffer).pointer

    def memory_stats(self, device_id: int) -> dict[str, int] | None:
        """Return the plugin's counters of a device's memory, in bytes or counts; None if it has none."""
        stats = self.library.call_if_supported(
            "Device_MemoryStats", device=self.devices[device_id].pointer
        )
        names = [name for name, _ in stats._fields_[3:]] if stats else []
        names = [x for x in names if f"{x}_is_set" not in names or getattr(stats, f"{x}_is_set")]
        return {x: getattr(stats, x) for x in names if not x.endswith("_is_set")} or None

    def serialize_topology(self) -> bytes:
        """Return the serialized description of the devices in the plugin's format."""
        described = self.library.call("Client_TopologyDescription", client=self.pointer)
        return _serialize(
            self.library, "TopologyDescription_Serialize", topology=described.topology
        )

    # ---- programs
    def compile(self, text: str, options: bytes) -> LoadedProgram:
        """Compile a module, as MLIR text, with a serialized CompileOptionsProto."""
        executable = _compile(self.library, "Client_Compile", text, options, client=self.pointer)
        return LoadedProgram(self, executable)

    def load(self, code: bytes) -> LoadedProgram:
        """Load a program serialized by `CompiledProgram.serialize`."""
        serialized = bytes_buffer(code)
        loaded = self.library.call(
            "Executable_DeserializeAndLoad",
            client=self.pointer,
            text=ctypes.addressof(serialized),
            text_size=len(code),
        )
        return LoadedProgram(self, loaded.executable)


class PjrtTopology:
    """The target of a plugin's compiler: a set of devices, which may not be attached."""

    def __init__(
        self, library: PluginLibrary, text: str | bytes, options: dict[str, Any] | None
    ) -> None:
        """Describe devices by a name and options; without options, `text` is the result of `serialize`."""
        self.library = library
        encoded, values = bytes_buffer(text), NamedValues(options or {})
        function, inputs = "TopologyDescription_Deserialize", {}
        if options is not None:
            function = "TopologyDescription_Create"
            inputs = {"options": values.address, "num_options": values.count}
        address = ctypes.addressof(encoded)
        self.pointer = library.call(
            function, text=address, text_size=len(encoded), **inputs
        ).topology
        call_args = {"topology": self.pointer}
        self.platform_version = text_of(
            library.call("TopologyDescription_PlatformVersion", **call_args)
        )
        listed = library.call("TopologyDescription_GetDeviceDescriptions", **call_args)
        descriptions = pointers(listed.descriptions, listed.num_descriptions)
        self.devices = [DeviceDescription(library, description) for description in descriptions]

    def compile(self, text: str, options: bytes) -> CompiledProgram:
        """Compile a module, as MLIR text, with a serialized CompileOptionsProto."""
        executable = _compile(self.library, "Compile", text, options, topology=self.pointer)
        return CompiledProgram(self.library, executable)

    def serialize(self) -> bytes:
        """Return the serialized description in the plugin's format."""
        return _serialize(self.library, "TopologyDescription_Serialize", topology=self.pointer)

    def __del__(self) -> None:
        if self.library.is_open and hasattr(self, "pointer"):
            self.library.call("TopologyDescription_Destroy", topology=self.pointer)


def _serialize(library: PluginLibrary, function: str, **target: int) -> bytes:
    """Call a function of the plugin that serializes an object; return the bytes."""
    serialized = library.call(function, **target)
    code = ctypes.string_at(serialized.text, serialized.text_size)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(serialized.deleter)(serialized.owner)
    return code


def _compile(
    library: PluginLibrary, function: str, text: str, options: bytes, **target: int
) -> int:
    """Compile for a client or a topology; return the address of the executable."""
    code, form, serialized = map(bytes_buffer, (text, "mlir", options))
    program = struct(
        "Program",
        text=ctypes.addressof(code),
        text_size=len(code),
        format=ctypes.addressof(form),
        format_size=len(form),
    )
    return library.call(
        function,
        program=ctypes.addressof(program),
        options=ctypes.addressof(serialized),
        options_size=len(options),
        **target,
    ).executable


#: irregular names: field of the plugin's struct -> name in `CompiledMemoryStats`
_MEMORY_NAMES = {"peak": "peak_memory_in_bytes", "total": "total_allocation_bytes"}


class CompiledProgram:
    """A compiled program, perhaps for devices that are not attached: costs, memory and text."""

    def __init__(self, library: PluginLibrary, pointer: int) -> None:
        self.library = library
        self.pointer = pointer

    def __del__(self) -> None:
        if self.library.is_open:
            self.library.call("Executable_Destroy", executable=self.pointer)

    def _report(self, function: str) -> Any:
        return self.library.call_if_supported(f"Executable_{function}", executable=self.pointer)

    def cost(self) -> dict[str, Any] | None:
        """Return the plugin's estimates, such as `flops` and `bytes accessed`; None if it has none."""
        estimates = self._report("GetCostAnalysis")
        return estimates and read_named_values(estimates.attributes, estimates.num_attributes)

    def memory(self) -> dict[str, int] | None:
        """Return bytes by use, under the names of `CompiledMemoryStats`; None if the plugin reports none."""
        stats = self._report("GetCompiledMemoryStats")
        names = [name for name, _ in stats._fields_[3:]] if stats else []
        return {
            _MEMORY_NAMES.get(x, f"{x}_size_in_bytes"): getattr(stats, x) for x in names
        } or None

    def optimized_program(self) -> tuple[str, bytes]:
        """Return the format of the optimized program, and its bytes."""
        program = struct("Program")
        call_args = {"executable": self.pointer, "program": ctypes.addressof(program)}
        self.library.call("Executable_OptimizedProgram", **call_args)  # returns the size
        code = ctypes.create_string_buffer(program.text_size)
        program.text = ctypes.addressof(code)
        self.library.call("Executable_OptimizedProgram", **call_args)
        return ctypes.string_at(program.format, program.format_size).decode(), code.raw

    def serialize(self) -> bytes:
        """Return the serialized program for `PjrtClient.load`."""
        return _serialize(self.library, "Executable_Serialize", executable=self.pointer)


class LoadedProgram:
    """A program on the devices of a client."""

    def __init__(self, client: PjrtClient, pointer: int) -> None:
        self.client = client
        self.pointer = pointer
        library = client.library
        executable = library.call("LoadedExecutable_GetExecutable", loaded=pointer).executable
        self.compiled = CompiledProgram(library, executable)
        self.num_results: int = library.call("Executable_NumOutputs", executable=executable).number

    def __del__(self) -> None:
        if self.client.library.is_open:
            self.client.library.call("LoadedExecutable_Destroy", executable=self.pointer)
