"""The PJRT C API: its functions, the structs that they take, and how to call them.

In:   the path of a plugin, a shared library that exports `GetPjrtApi`.
Out:  `PluginLibrary`, whose `call(function, field=value, ...)` returns the struct with its outputs.
Laws: `FUNCTIONS` is the order of the table of function pointers; later versions append to it.
      A struct begins with its size and a list of extensions; later versions add fields at its end.
      Errors of the plugin become `DeviceRuntimeError`; this module destroys events and errors.
Source: xla/pjrt/c/pjrt_c_api.h of version 0.81 and the CHANGELOG in the same folder.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft._engine import hooks
from weft._engine.backends.pjrt.native import native_calls
from weft._engine.util.errors import DeviceRuntimeError, OutOfMemoryError
from weft._engine.util.source import warn_user

OLDEST = (0, 81)

#: functions in the order of the table; weft does not use later ones
FUNCTIONS = """
Error_Destroy Error_Message Error_GetCode Plugin_Initialize Plugin_Attributes Event_Destroy
Event_IsReady Event_Error Event_Await Event_OnReady Client_Create Client_Destroy
Client_PlatformName Client_ProcessIndex Client_PlatformVersion Client_Devices
Client_AddressableDevices Client_LookupDevice Client_LookupAddressableDevice
Client_AddressableMemories Client_Compile Client_DefaultDeviceAssignment
Client_BufferFromHostBuffer DeviceDescription_Id DeviceDescription_ProcessIndex
DeviceDescription_Attributes DeviceDescription_Kind DeviceDescription_DebugString
DeviceDescription_ToString Device_GetDescription Device_IsAddressable Device_LocalHardwareId
Device_AddressableMemories Device_DefaultMemory Device_MemoryStats Memory_Id Memory_Kind
Memory_DebugString Memory_ToString Memory_AddressableByDevices Executable_Destroy Executable_Name
Executable_NumReplicas Executable_NumPartitions Executable_NumOutputs
Executable_SizeOfGeneratedCodeInBytes Executable_GetCostAnalysis Executable_OutputMemoryKinds
Executable_OptimizedProgram Executable_Serialize LoadedExecutable_Destroy
LoadedExecutable_GetExecutable LoadedExecutable_AddressableDevices LoadedExecutable_Delete
LoadedExecutable_IsDeleted LoadedExecutable_Execute Executable_DeserializeAndLoad
LoadedExecutable_Fingerprint Buffer_Destroy Buffer_ElementType Buffer_Dimensions
Buffer_UnpaddedDimensions Buffer_DynamicDimensionIndices Buffer_GetMemoryLayout
Buffer_OnDeviceSizeInBytes Buffer_Device Buffer_Memory Buffer_Delete Buffer_IsDeleted
Buffer_CopyToDevice Buffer_ToHostBuffer Buffer_IsOnCpu Buffer_ReadyEvent Buffer_UnsafePointer
Buffer_IncreaseExternalReferenceCount Buffer_DecreaseExternalReferenceCount
Buffer_OpaqueDeviceMemoryDataPointer CopyToDeviceStream_Destroy CopyToDeviceStream_AddChunk
CopyToDeviceStream_TotalBytes CopyToDeviceStream_GranuleSize CopyToDeviceStream_CurrentBytes
TopologyDescription_Create TopologyDescription_Destroy TopologyDescription_PlatformName
TopologyDescription_PlatformVersion TopologyDescription_GetDeviceDescriptions
TopologyDescription_Serialize TopologyDescription_Attributes Compile
Executable_OutputElementTypes Executable_OutputDimensions Buffer_CopyToMemory
Client_CreateViewOfDeviceBuffer Executable_Fingerprint Client_TopologyDescription
Executable_GetCompiledMemoryStats Memory_Kind_Id ExecuteContext_Create ExecuteContext_Destroy
Buffer_CopyRawToHost AsyncHostToDeviceTransferManager_Destroy
AsyncHostToDeviceTransferManager_TransferData Client_CreateBuffersForAsyncHostToDevice
AsyncHostToDeviceTransferManager_RetrieveBuffer AsyncHostToDeviceTransferManager_Device
AsyncHostToDeviceTransferManager_BufferCount AsyncHostToDeviceTransferManager_BufferSize
AsyncHostToDeviceTransferManager_SetBufferError AsyncHostToDeviceTransferManager_AddMetadata
Client_DmaMap Client_DmaUnmap Client_CreateUninitializedBuffer Client_UpdateGlobalProcessInfo
TopologyDescription_Deserialize
""".split()

#: the fields of the arguments of each function, and of other structs, after size and extensions.
#: `*` is a pointer, `z` a size, `i` an int, `q` an int64, `b` a bool; a field that came after the
#: struct itself has the version that introduced it (0.N as @N)
STRUCTS = {
    name: fields.split()
    for name, _, fields in (
        line.partition(" ")
        for line in """
Error_Destroy error*
Error_Message error* text* text_size:z
Error_GetCode error* code:i
Plugin_Initialize
Event_Destroy event*
Event_IsReady event* is_ready:b
Event_Await event*
Client_Create options* num_options:z get* get_arg* put* put_arg* client* try_get*@61 try_get_arg*@61
Client_Destroy client*
Client_PlatformName client* text* text_size:z
Client_PlatformVersion client* text* text_size:z
Client_ProcessIndex client* index:i
Client_Devices client* devices* num_devices:z
Client_AddressableDevices client* devices* num_devices:z
Client_TopologyDescription client* topology*
Client_Compile client* program* options* options_size:z executable*
Client_BufferFromHostBuffer client* data* type:i dims* num_dims:z byte_strides* num_strides:z \
semantics:i device* memory* layout* done* buffer*
Client_CreateViewOfDeviceBuffer client* pointer* dims* num_dims:z type:i layout* device* \
on_delete* on_delete_arg* stream:q buffer* memory*@66
Device_GetDescription device* description*
Device_IsAddressable device* is_addressable:b
Device_LocalHardwareId device* number:i
Device_AddressableMemories device* memories* num_memories:z
Device_DefaultMemory device* memory*
Device_MemoryStats device* bytes_in_use:q peak_bytes_in_use:q peak_bytes_in_use_is_set:b \
num_allocs:q num_allocs_is_set:b largest_alloc_size:q largest_alloc_size_is_set:b bytes_limit:q \
bytes_limit_is_set:b bytes_reserved:q bytes_reserved_is_set:b peak_bytes_reserved:q \
peak_bytes_reserved_is_set:b bytes_reservable_limit:q bytes_reservable_limit_is_set:b \
largest_free_block_bytes:q largest_free_block_bytes_is_set:b pool_bytes:q pool_bytes_is_set:b \
peak_pool_bytes:q peak_pool_bytes_is_set:b
Memory_Kind memory* text* text_size:z
DeviceDescription_Id description* id:i
DeviceDescription_ProcessIndex description* index:i
DeviceDescription_Kind description* text* text_size:z
DeviceDescription_ToString description* text* text_size:z
DeviceDescription_Attributes description* num_attributes:z attributes*
Executable_Destroy executable*
Executable_NumOutputs executable* number:z
Executable_SizeOfGeneratedCodeInBytes executable* number:q
Executable_GetCostAnalysis executable* num_attributes:z attributes*
Executable_OptimizedProgram executable* program*
Executable_Serialize executable* text* text_size:z owner* deleter*
Executable_GetCompiledMemoryStats executable* generated_code:q argument:q output:q alias:q temp:q \
host_generated_code:q host_argument:q host_output:q host_alias:q host_temp:q peak:q@72 total:q@90
LoadedExecutable_Destroy executable*
LoadedExecutable_GetExecutable loaded* executable*
LoadedExecutable_Execute executable* options* arguments* num_devices:z num_args:z results* events* \
device*
Executable_DeserializeAndLoad client* text* text_size:z executable* options*@71 options_size:z@71
Buffer_Destroy buffer*
Buffer_IsDeleted buffer* is_deleted:b
Buffer_ReadyEvent buffer* event*
Buffer_UnsafePointer buffer* pointer:q
Buffer_OpaqueDeviceMemoryDataPointer buffer* pointer*
Buffer_IncreaseExternalReferenceCount buffer*
Buffer_DecreaseExternalReferenceCount buffer*
Buffer_OnDeviceSizeInBytes buffer* number:z
Buffer_ToHostBuffer buffer* layout* data* data_size:z event*
Buffer_CopyToDevice buffer* device* copy*
Buffer_CopyToMemory buffer* memory* copy*
TopologyDescription_Create text* text_size:z options* num_options:z topology*
TopologyDescription_Destroy topology*
TopologyDescription_PlatformName topology* text* text_size:z
TopologyDescription_PlatformVersion topology* text* text_size:z
TopologyDescription_GetDeviceDescriptions topology* descriptions* num_descriptions:z
TopologyDescription_Attributes topology* attributes* num_attributes:z
TopologyDescription_Serialize topology* text* text_size:z owner* deleter*
TopologyDescription_Deserialize text* text_size:z topology*
Compile topology* program* options* options_size:z client* executable*
Program text* text_size:z format* format_size:z
NamedValue name* name_size:z kind:i value:q value_size:z
ExecuteOptions send* recv* num_send:z num_recv:z launch_id:i kept* num_kept:z context*@64 \
call_location*@76 num_tasks:z@78 task_ids*@78 incarnation_ids*@78
TiledLayout order* order_size:z tile_dims* tile_dim_sizes* num_tiles:z
FFI_CallFrame api* context* stage:i operands_size:z operands_extensions* num_operands:q \
operand_kinds* operands* results_size:z results_extensions* num_results:q result_kinds* results* \
attributes_size:z attributes_extensions* num_attributes:q attribute_kinds* attribute_names* \
attributes* future*
FFI_Extension next* metadata*
FFI_Buffer type:i data* rank:q dims*
FFI_Error_Create message* code:i
FFI_Future_Create value*
FFI_Future_SetAvailable future*
FFI_Stream_Get context* value*
""".replace("\\\n", "")
        .strip()
        .splitlines()
    )
}

CODES = """OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS
PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL
UNAVAILABLE DATA_LOSS UNAUTHENTICATED""".split()

#: element types by number; None if weft has no such type
ELEMENT_TYPES = [
    None if name == "_" else name
    for name in """_ bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64
bfloat16 complex64 complex128 float8_e5m2 float8_e4m3fn float8_e4m3b11fnuz float8_e5m2fnuz
float8_e4m3fnuz int4 uint4 _ int2 uint2 float8_e4m3 float8_e3m4 float8_e8m0fnu
float4_e2m1fn""".split()
]
ELEMENT_NUMBERS = {name: i for i, name in enumerate(ELEMENT_TYPES) if name}

#: the kind of the FFI extension
FFI_EXTENSION = 5

_KINDS = {
    "*": ctypes.c_void_p,
    "z": ctypes.c_size_t,
    "i": ctypes.c_int,
    "q": ctypes.c_int64,
    "b": ctypes.c_bool,
}


@functools.cache
def struct_type(name: str) -> type[ctypes.Structure]:
    """Return the ctypes type of a struct of the table."""
    fields: list[tuple[str, Any]] = [
        ("struct_size", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
    ]
    for field in STRUCTS[name]:
        label, _, kind = field.partition("@")[0].rstrip("*").partition(":")
        fields.append((label, _KINDS[kind or "*"]))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def struct(name: str, /, **values: Any) -> Any:
    """Return a struct of the table with its size set.

    >>> struct("Error_Message").struct_size
    40
    """
    kind = struct_type(name)
    last = getattr(kind, kind._fields_[-1][0])
    size = last.offset + last.size  # without the padding at the end
    return kind(struct_size=size, **values)


class _PjrtMemoryLayout(ctypes.Structure):
    """A layout as a dim order, the first of PJRT's two kinds."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("tiled", struct_type("TiledLayout")),
        ("kind", ctypes.c_int),
    ]


def text_of(struct_pointer: Any) -> str:
    """Return the text that a struct points to."""
    return ctypes.string_at(struct_pointer.text, struct_pointer.text_size).decode(errors="replace")


def pointers(address: int | None, count: int) -> list[int]:
    """Return the pointers of an array of the plugin."""
    return list((ctypes.c_void_p * count).from_address(address)) if count and address else []


def bytes_buffer(text: str | bytes) -> Any:
    """Return memory that holds a text, without a zero at the end."""
    data = text.encode() if isinstance(text, str) else text
    return ctypes.create_string_buffer(data, len(data))


@functools.cache
def row_major_layout(ndim: int) -> Any:
    """Return the row-major layout of arrays of this rank; None if every layout of that rank is row-major."""
    if ndim < 2:
        return None
    order = (ctypes.c_int64 * ndim)(*reversed(range(ndim)))
    tiled = struct("TiledLayout", order=ctypes.addressof(order), order_size=ndim)
    layout = _PjrtMemoryLayout(_PjrtMemoryLayout.kind.offset + 4, None, tiled, 0)
    layout.kept = order
    return layout


#: type of a scalar -> (kind, encoder); bool precedes int, its base class
_ENCODERS: dict[type, tuple[int, Callable[[Any], int]]] = {
    bool: (4, int),
    int: (1, int),
    float: (3, lambda x: int(np.float32(x).view(np.uint32))),
}


class NamedValues:
    """A C array of options for the plugin, and the memory that it points to."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.count = len(options)
        self._kept: list[Any] = []
        structs = [self._value(name, value) for name, value in options.items()]
        self.array = (struct_type("NamedValue") * max(len(structs), 1))(*structs)
        self.address = ctypes.addressof(self.array)

    def _value(self, name: str, value: Any) -> Any:
        kind, encoded, size = self._content(name, value)
        key = bytes_buffer(name)
        self._kept.append(key)
        return struct(
            "NamedValue",
            name=ctypes.addressof(key),
            name_size=len(key),
            kind=kind,
            value=encoded,
            value_size=size,
        )

    def _content(self, name: str, value: Any) -> tuple[int, int, int]:
        """Return the kind of a value, its encoding (the number itself or an address), and its size."""
        for scalar, (kind, encode) in _ENCODERS.items():
            if isinstance(value, scalar):
                return kind, encode(value), 1
        if isinstance(value, str):
            content = bytes_buffer(value)
        elif isinstance(value, (list, tuple)) and all(isinstance(x, int) for x in value):
            content = (ctypes.c_int64 * len(value))(*value)
        else:
            raise TypeError(
                f"option {name!r} of a PJRT plugin must be a string, a number, a bool or a list of integers, got {value!r}"
            )
        self._kept.append(content)
        return (0 if isinstance(value, str) else 2), ctypes.addressof(content), len(content)


#: kind of a value -> function that decodes it from its struct
_DECODERS: dict[int, Callable[[Any], Any]] = {
    0: lambda x: ctypes.string_at(x.value, x.value_size).decode(errors="replace"),
    1: lambda x: x.value,
    2: lambda x: (
        list((ctypes.c_int64 * x.value_size).from_address(x.value)) if x.value_size else []
    ),
    3: lambda x: float(np.uint32(x.value & 0xFFFFFFFF).view(np.float32)),
    4: lambda x: bool(x.value & 1),
}


def read_named_values(address: int | None, count: int) -> dict[str, Any]:
    """Return the named values of the plugin as a dict."""
    values: dict[str, Any] = {}
    kind = struct_type("NamedValue")
    for i in range(count if address else 0):
        x: Any = kind.from_address((address or 0) + i * ctypes.sizeof(kind))
        name = ctypes.string_at(x.name, x.name_size).decode()
        values[name] = _DECODERS[x.kind](x)
    return values


class PluginLibrary:
    """A loaded plugin. `version` is its C API's version; `functions` maps names of `FUNCTIONS` to callables."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        try:
            library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
            get_api = library.GetPjrtApi
        except (OSError, AttributeError) as error:
            is_foreign = "No such file" in str(error) and os.path.isfile(path)
            raise DeviceRuntimeError(
                f"PJRT plugin {name!r}: {path} cannot be loaded: {error}"
                + is_foreign * ". The file exists; it may be for another processor."
            ) from None
        get_api.restype = ctypes.c_void_p
        api = get_api()
        size, extension = (ctypes.c_size_t * 2).from_address(api)
        self.version: tuple[int, int] = tuple((ctypes.c_int * 2).from_address(api + 32))  # type: ignore[assignment]
        if self.version[0] != OLDEST[0] or self.version < OLDEST:
            raise DeviceRuntimeError(
                f"PJRT plugin {name!r}: {path} has version {'.'.join(map(str, self.version))} of the C API; weft "
                f"supports version {OLDEST[0]}, from {'.'.join(map(str, OLDEST))} on.\n"
                "  Install a supported version of the plugin, or a newer weft."
            )
        kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        # the table follows the size, the extensions, and the version struct
        count = min((size - 40) // 8, len(FUNCTIONS))
        self.addresses = dict(zip(FUNCTIONS, pointers(api + 40, count)))
        self.functions = {
            name: kind(address) for name, address in self.addresses.items() if address
        }
        self.extensions = dict(_extensions(extension))
        self.native = native_calls()
        self.find_exception: Callable[[str], BaseException | None] = lambda text: None
        self.is_open = True  # until the interpreter exits; False in forked processes
        atexit.register(setattr, self, "is_open", False)
        os.register_at_fork(
            before=functools.partial(warn_user, _FORK_WARNING, RuntimeWarning),
            after_in_child=self._leave,
        )
        self.call("Plugin_Initialize")

    def _leave(self) -> None:
        """Forbid calls in a forked process, which has none of the plugin's threads."""
        self.is_open = False
        self.functions.clear()

    def call(self, function: str, /, **values: Any) -> Any:
        """Call a function and return its struct; raise DeviceRuntimeError with the plugin's code and message."""
        error, args = self._call_unchecked(function, **values)
        if error:
            raise self.error(error, function)
        return args

    def _call_unchecked(self, function: str, /, **values: Any) -> tuple[int | None, Any]:
        """Call a function and return its error and its struct."""
        args = struct(function, **values)
        if function not in self.functions:
            reason = f"has no {function}" if self.functions else "does not work after os.fork()"
            raise NotImplementedError(f"PJRT plugin {self.name!r} {reason}.")
        return self.functions[function](ctypes.addressof(args)), args

    def call_if_supported(self, function: str, /, **values: Any) -> Any:
        """Return the struct of a call; None if the plugin lacks the function."""
        try:
            return self.call(function, **values)
        except RuntimeError as error:
            is_missing = isinstance(error, NotImplementedError)
            if is_missing or str(error).startswith("UNIMPLEMENTED"):
                return None
            raise

    def error(self, error: int, function: str, is_raised: bool = True) -> BaseException:
        """Return the exception for an error of the plugin, and destroy the error.

        If it `is_raised` to the user, it is the exception that `find_exception` returns for the text, if any.
        """
        text = text_of(self._call_unchecked("Error_Message", error=error)[1])
        code: int = self._call_unchecked("Error_GetCode", error=error)[1].code
        self._call_unchecked("Error_Destroy", error=error)
        named = CODES[code] if 0 <= code < len(CODES) else f"code {code}"
        exception = self.find_exception(text) if is_raised else None
        message = f"{named}: {text} (PJRT plugin {self.name}, {function})"
        if named == "RESOURCE_EXHAUSTED" or "Out of memory" in text:  # old plugins: INTERNAL
            return exception or OutOfMemoryError(message + hooks.describe_memory())
        return exception or DeviceRuntimeError(message)

    def wait(self, event: int | None) -> None:
        """Wait for an event and destroy it; raise its error."""
        error = self.wait_for_all([event] if event else [])
        if error is not None:
            raise error

    def wait_for_all(self, events: Sequence[int], is_raised: bool = True) -> BaseException | None:
        """Wait for events and destroy them; return the exception of the last error, as by `error`."""
        exception = None
        for event in events:
            error, _ = self._call_unchecked("Event_Await", event=event)
            self.call("Event_Destroy", event=event)
            if error:
                exception = self.error(error, "Event_Await", is_raised)
        return exception

    def is_ready(self, event: int) -> bool:
        """Return whether `wait` would return immediately."""
        return self.call("Event_IsReady", event=event).is_ready


_FORK_WARNING = (
    "os.fork() was called in a process with a PJRT plugin. The new process has none of the plugin's "
    "threads: do not use the plugin's arrays and devices there."
)


def _extensions(address: int) -> Iterator[tuple[int, int]]:
    """Yield the kind and address of each extension of a plugin."""
    while address:
        _, kind, following = (ctypes.c_size_t * 3).from_address(address)
        yield kind & 0xFFFFFFFF, address
        address = following


def element_number(dtype: np.dtype) -> int:
    """Return the number of an element type; raise TypeError if PJRT lacks it."""
    number = ELEMENT_NUMBERS.get(np.dtype(dtype).name)
    if number is None:
        raise TypeError(f"PJRT has no element type for {dtype}.")
    return number
