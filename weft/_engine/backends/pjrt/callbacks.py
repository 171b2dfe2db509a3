"""Callbacks from programs of a plugin to Python, through XLA's foreign function interface (FFI).

In:   equations that the host evaluates: callbacks, and primitives that the plugin cannot lower.
Out:  `MeshHostCall`s; the custom calls of the program pass their numbers.
Laws: one handler serves the calls of all programs, in threads of the plugin. The fields of a call are
      valid until the handler returns; the memory of operands and results while the device waits.
Next: `backends.host_calls` defines the semantics of calls.
Source: xla/ffi/api/c_api.h, xla/pjrt/c/pjrt_c_api_ffi_extension.h
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.backends.host_calls import MeshHostCall, MeshHostCalls
from weft._engine.backends.pjrt.c_api import FFI_EXTENSION, PluginLibrary, struct, struct_type
from weft._engine.hlo.replicas import HOST_TARGET, refuse
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ir.types import ShapedArray
from weft._engine.util import dtypes

_Pointer = ctypes.c_void_p
_Function = ctypes.CFUNCTYPE(_Pointer, _Pointer)
#: FFI function -> its index in the table that follows the header
_PLACES = {
    "Error_Create": 0,
    "Stream_Get": 4,
    "Future_Create": 13,
    "Future_SetAvailable": 14,
}
_EXECUTE, _INTERNAL, _METADATA = 3, 13, 1
_POSITION = ShapedArray((), np.dtype(np.uint32))


class _Registration(ctypes.Structure):
    """The arguments of the function that registers a handler; unlike others they have no extensions field."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("name_size", ctypes.c_size_t),
        ("handler", _Pointer),
        ("platform", ctypes.c_char_p),
        ("platform_size", ctypes.c_size_t),
        ("traits", ctypes.c_int),
    ]


def _call(api: int, name: str, **values: Any) -> tuple[int | None, Any]:
    """Call a function of the FFI; return its error and its argument struct."""
    args = struct(f"FFI_{name}", **values)
    function = _Function(_read_address(api + 48 + 8 * _PLACES[name]))
    return function(ctypes.addressof(args)), args


def _read_address(at: int) -> int:
    """Return the address stored in memory at `at`; 0 if it is null."""
    return _Pointer.from_address(at).value or 0


def _error(api: int, text: str) -> int | None:
    message = ctypes.create_string_buffer(text.encode(errors="replace"))
    return _call(api, "Error_Create", message=ctypes.addressof(message), code=_INTERNAL)[0]


def _addresses(table: int | None, count: int) -> list[int | None]:
    """Return the data addresses of the first `count` operands or results."""
    buffers = (_Pointer * count).from_address(table) if count and table else ()
    return [struct_type("FFI_Buffer").from_address(buffer).data for buffer in buffers]


class FfiDeviceCall:
    """A device in the handler: its operands, results and state of waiting."""

    def __init__(self, fields: Any) -> None:
        number = ctypes.c_int64.from_address(_read_address(_read_address(fields.attributes) + 8))
        call = _calls[number.value]
        self.call: MeshHostCall = call
        self._fields, self._api, self._future = fields, fields.api, None
        self._copy, self._stream = call.calls.copy, None
        if self._copy is not copy_on_host:
            self._stream = _call(self._api, "Stream_Get", context=fields.context)[1].value
        types = [_POSITION] * call.has_position
        self._results = _addresses(fields.results, len(types) + len(call.result_types))
        types += call.operand_types
        values = [np.empty(aval.shape, aval.dtype) for aval in types]
        for value, address in zip(values, _addresses(fields.operands, len(values))):
            self._copy(value.ctypes.data, address, value.nbytes, self._stream)
        self._before, self.operands = values[: call.has_position], values[call.has_position :]
        self.position = int(self._before[0]) if call.has_position else 0

    def write(self, results: Sequence[np.ndarray]) -> None:
        """Write the results of the call, which follow the position."""
        for address, value in zip(self._results, [*self._before, *results]):
            value = np.ascontiguousarray(value)
            self._copy(address, value.ctypes.data, value.nbytes, self._stream)

    def wait(self) -> None:
        """Make the device wait for `resume` after the handler returns."""
        self._fields.future = self._future = _call(self._api, "Future_Create")[1].value

    def resume(self) -> None:
        """End `wait`; the device may run the rest of its program in this thread."""
        _call(self._api, "Future_SetAvailable", future=self._future)


def copy_on_host(to: int | None, source: int | None, size: int, stream: None) -> None:
    """Copy host memory."""
    ctypes.memmove(to or 0, source or 0, size)


def copy_on_cuda(to: int | None, source: int | None, size: int, stream: int | None) -> None:
    """Copy between the host and an NVIDIA GPU, after the work of its stream. Not tested on hardware."""
    try:  # `plugins.preload_nvidia_libraries` has loaded one of these
        runtime = ctypes.CDLL("libcudart.so.13")
    except OSError:
        runtime = ctypes.CDLL("libcudart.so.12")
    any_to_any = 4
    operands = _Pointer(to), _Pointer(source), ctypes.c_size_t(size), any_to_any
    failed = runtime.cudaMemcpyAsync(*operands, _Pointer(stream))
    failed = failed or runtime.cudaStreamSynchronize(_Pointer(stream))
    if failed:
        raise RuntimeError(f"A copy of {size} bytes for a callback failed: CUDA error {failed}.")


#: platform -> (its name in the FFI, the function that copies its memory)
_PLATFORMS: dict[str, tuple[str, Callable[..., None]]] = {
    "cpu": ("Host", copy_on_host),
    "cuda": ("CUDA", copy_on_cuda),
}


class PluginCalls(MeshHostCalls):
    """The host calls of the programs of one plugin."""

    def __init__(self, library: PluginLibrary, platform: str) -> None:
        super().__init__()
        self._library, self._platform = library, platform
        self._name, self.copy = _PLATFORMS.get(platform, ("", copy_on_host))
        library.find_exception = self.find_exception

    def add(self, eqn: Eqn, mesh: Sequence[tuple[Any, int]]) -> MeshHostCall:
        """Return the host call of an equation; raise NotImplementedError if the plugin does not support it."""
        library, call = self._library, MeshHostCall(self, eqn, mesh)
        types = [aval.dtype for aval in (*call.operand_types, *call.result_types)]
        narrow = [str(dtype) for dtype in types if dtypes.itemsize_bits(dtype) < 8]
        reasons = {
            "has no FFI extension": FFI_EXTENSION not in library.extensions,
            f"is for {self._platform}, whose memory weft does not read": not self._name,
            f"packs numbers of {''.join(narrow[:1])}, which weft does not unpack": bool(narrow),
        }
        for reason in [reason for reason, holds in reasons.items() if holds]:
            named = repr(eqn.params.get("callback", eqn.primitive.name))
            refuse(eqn, f"{named} runs on the host, but PJRT plugin {library.name!r} {reason}.")
        if library.path not in _registered:
            self._register()
            _registered.add(library.path)
        _calls[call.number] = call
        return call

    def _register(self) -> None:
        """Register the handler for the custom calls of the plugin's programs."""
        handler, size = ctypes.cast(_handler, _Pointer).value, _Registration.traits.offset + 4
        names = [word for x in (HOST_TARGET, self._name) for word in (x.encode(), len(x))]
        args = _Registration(size, *names[:2], handler, *names[2:])
        extension = self._library.extensions[FFI_EXTENSION]
        register = _Function(_read_address(extension + 40))
        if error := register(ctypes.addressof(args)):
            raise self._library.error(error, "FFI_Register_Handler")


_calls: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
#: paths of plugins with which the handler is registered
_registered: set[str] = set()


@_Function
def _handler(address: int) -> int | None:
    """Handle a custom call of any program."""
    fields: Any = struct_type("FFI_CallFrame").from_address(address)
    if fields.extensions:  # XLA queries the FFI version of the handler
        extension: Any = struct_type("FFI_Extension").from_address(fields.extensions)
        if (extension.extensions or 0) & 0xFFFFFFFF == _METADATA:  # the kind
            ctypes.memmove(extension.metadata + 24, fields.api + 32, 8)
            return None
    try:
        failure = None
        if fields.stage == _EXECUTE:
            visit = FfiDeviceCall(fields)
            failure = visit.call.calls.visit(visit)
    except BaseException as error:  # a bug of weft or the plugin; C code cannot propagate it
        failure = f"{type(error).__name__}: {error}"
    return _error(fields.api, failure) if failure else None
