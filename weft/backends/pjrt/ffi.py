"""XLA's foreign function interface (FFI): the calls that programs make of a function of this process.

In:   the call frame with which a plugin calls a handler, in a thread of its own.
Out:  `HandlerFrame`, which has addresses of operands and results, errors, and futures.
Laws: the fields of a frame are valid until the handler returns; the memory of its operands and
      results, if it waits for others, until `complete`.
Source: xla/ffi/api/c_api.h, xla/pjrt/c/pjrt_c_api_ffi_extension.h
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from weft.backends.pjrt.c_api import FFI_EXTENSION, PluginLibrary, struct, struct_type

#: functions in the order of the table, which follow its header
FUNCTIONS = """Error_Create Error_GetMessage Error_Destroy Handler_Register Stream_Get Type_Register
ExecutionContext_Get State_Set State_Get DeviceMemory_Allocate DeviceMemory_Free
ThreadPool_Schedule ThreadPool_NumThreads Future_Create Future_SetAvailable Future_SetError
RunId_Get""".split()
#: offsets of the version and the first function in the table, and of the version in the metadata
_VERSION, _FIRST_FUNCTION, _ANSWER = 32, 48, 24
_METADATA_EXTENSION, _EXECUTE, _INTERNAL = 1, 3, 13

HandlerType = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _Registration(ctypes.Structure):
    """The arguments of the function that registers a handler; unlike others they have no extensions."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("name_size", ctypes.c_size_t),
        ("handler", ctypes.c_void_p),
        ("platform", ctypes.c_char_p),
        ("platform_size", ctypes.c_size_t),
        ("traits", ctypes.c_int),
    ]


def register_handler(library: PluginLibrary, name: str, platform: str, handler: Any) -> None:
    """Let custom calls of target `name` call `handler`, a `HandlerType` that is never freed."""
    address = ctypes.cast(handler, ctypes.c_void_p).value
    size = _Registration.traits.offset + 4
    args = _Registration(size, name.encode(), len(name), address, platform.encode(), len(platform))
    register = ctypes.c_void_p.from_address(library.extensions[FFI_EXTENSION] + 40).value
    error = HandlerType(register)(ctypes.addressof(args))
    if error:
        raise library.error(error, "FFI_Register_Handler")


class HandlerFrame:
    """A call of a handler by one device."""

    def __init__(self, address: int) -> None:
        self._fields: Any = struct_type("FFI_CallFrame").from_address(address)
        self._api: int = self._fields.api
        self._future: int | None = None

    def answer_metadata(self) -> bool:
        """Return whether the plugin asks for the version of the FFI, and answer."""
        address = self._fields.extensions
        while address:
            extension: Any = struct_type("FFI_Extension").from_address(address)
            if (extension.extensions or 0) & 0xFFFFFFFF == _METADATA_EXTENSION:  # its kind
                ctypes.memmove(extension.metadata + _ANSWER, self._api + _VERSION, 8)
                return True
            address = extension.next
        return False

    @property
    def is_execution(self) -> bool:
        """Whether the program runs: plugins may also call handlers while they prepare it."""
        return self._fields.stage == _EXECUTE

    @property
    def attribute(self) -> int:
        """The only attribute, an int64."""
        scalar = ctypes.c_void_p.from_address(self._fields.attributes).value or 0
        return ctypes.c_int64.from_address(ctypes.c_void_p.from_address(scalar + 8).value).value

    def _call(self, name: str, **values: Any) -> tuple[int | None, Any]:
        """Call a function of the FFI; return its error and its arguments."""
        args = struct(f"FFI_{name}", **values)
        address = self._api + _FIRST_FUNCTION + 8 * FUNCTIONS.index(name)
        function: Callable = HandlerType(ctypes.c_void_p.from_address(address).value)
        return function(ctypes.addressof(args)), args

    def _of_context(self, name: str) -> Any:
        error, found = self._call(name, context=self._fields.context)
        if error:
            self._call("Error_Destroy", error=error)
            raise RuntimeError(f"The plugin has no {name} for host callbacks.")
        return found.value

    def run_id(self) -> int:
        """Return the number of the execution, which is the same on all devices."""
        return self._of_context("RunId_Get")

    @functools.cached_property
    def stream(self) -> int | None:
        """The stream of a GPU on which the program runs."""
        return self._of_context("Stream_Get")

    def addresses(self, table: str, count: int) -> list[int | None]:
        """Return the addresses of the first `operands` or `results`."""
        buffers = (ctypes.c_void_p * count).from_address(getattr(self._fields, table)) if count else ()
        return [struct_type("FFI_Buffer").from_address(buffer).data for buffer in buffers]

    def error(self, text: str) -> int | None:
        """Return an error for the plugin."""
        message = ctypes.create_string_buffer(text.encode(errors="replace"))
        return self._call("Error_Create", message=ctypes.addressof(message), code=_INTERNAL)[0]

    def wait(self) -> None:
        """Have the device wait for `complete` once the handler returns."""
        self._future = self._call("Future_Create")[1].value
        self._fields.future = self._future

    def complete(self, failure: str | None) -> None:
        """End `wait`; the device may run the rest of its program in this thread."""
        if failure is None:
            self._call("Future_SetAvailable", future=self._future)
        else:
            self._call("Future_SetError", future=self._future, error=self.error(failure))
