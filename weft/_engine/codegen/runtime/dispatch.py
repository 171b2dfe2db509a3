"""Native dispatch: the machine code behind calling a compiled function.

In:   the classes whose objects it reads (Array, Buffer, the jitted function) and the offsets of
      their slots.
Out:  `Dispatcher.descriptor`, a native method for `__call__`, and the length of cache entries.
      Arrays get a native destructor.
Laws: offsets come from `cpython.layouts`, which checks them on live objects. If a check fails (on
      another interpreter), there is no descriptor, and calls take the equivalent Python path.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

from weft._engine.codegen.runtime import heap, pool, queue, symbols
from weft._engine.codegen.toolchain.native_library import LibraryModule, link, text_of
from weft._engine.cpython import layouts

_PYTHON = (
    "PyObject_Vectorcall",
    "PyObject_CallNoArgs",
    "PyType_GenericAlloc",
    "PyLong_AsVoidPtr",
    "PyDict_GetItem",
    "PyDict_Copy",
    "PyDict_Next",
    "PyDict_SetItem",
    "PyDict_Size",
    "PyList_New",
    "PyTuple_New",
    "PyTuple_Size",
    "PyTuple_GetItem",
    "Py_IncRef",
    "Py_DecRef",
    "_Py_Dealloc",
    "PyObject_GC_Track",
    "PyObject_GC_UnTrack",
    "PyObject_GC_Del",
    "PyObject_ClearWeakRefs",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyFloat_AsDouble",
    "PyLong_AsLongLong",
    "PyErr_Occurred",
    "PyErr_Clear",
    "PyBool_Type",
    "PyFloat_Type",
    "PyLong_Type",
    "_Py_TrueStruct",
    "PyDict_Type",
    "PyList_Type",
    "PyTuple_Type",
    "_Py_NoneStruct",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "Py_AddPendingCall",
    "PyObject_CallFunctionObjArgs",
    "PyErr_CheckSignals",
)
_LIBC = (
    "syscall",
    "pthread_self",
    "pthread_create",
    "pthread_detach",
    "pthread_sigmask",
    "sigdelset",
    "sigfillset",
    "malloc",
    "free",
    "memcpy",
)
_EXPORTS = (
    "weft_call",
    "weft_array_dealloc",
    "weft_queue_post",
    "weft_queue_room",
    "weft_queue_wait",
    "weft_queue_reap",
    "weft_queue_is_mine",
    "weft_queue_forked",
    "weft_queue_posted",
    "weft_queue_done",
    "weft_queue_effects",
    "weft_queue_limit",
    "weft_queue_ends",
)
_FASTCALL_KEYWORDS = 0x0082
ENTRY_WORDS = 25
ENTRY_CODE = 4  # index of the word that holds the address of the program's code


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class DispatchOffsets(NamedTuple):
    """Parameters of the native code: slot offsets by their names in its text, and the classes of
    arrays and buffers."""

    offsets: tuple[tuple[str, int], ...]
    array: type
    buffer: type

    def part(self) -> LibraryModule:
        name = "dispatch-" + "-".join(f"{key}{offset}" for key, offset in self.offsets)
        return LibraryModule(name, self._text, _EXPORTS)

    def _text(self) -> str:
        body = text_of("dispatch.ll") + text_of("trees.ll") + text_of("queue.ll")
        for key, offset in self.offsets:
            body = body.replace(f"${key}", str(offset))
        return body


def find_places(array: Any, buffer: Any, jitted: Any) -> DispatchOffsets | None:
    """Return the slot offsets of the classes of three sample objects; None if a slot is not where
    it is expected.

    The objects have the slots `_spec _buffer _view _parts`, `ptr _owner` and `_cell _slow`.
    """
    slots = {
        "SPEC": (array, "_spec"),
        "BUFFER": (array, "_buffer"),
        "VALUE": (array, "_view"),
        "PARTS": (array, "_parts"),
        "PTR": (buffer, "ptr"),
        "OWNER": (buffer, "_owner"),
        "CELL": (jitted, "_cell"),
        "SLOW": (jitted, "_slow"),
    }
    offsets = {
        "TUPLE": tuple.__basicsize__,
        "LIST": layouts.LIST_ITEMS,
        "WEAK": type(array).__weakrefoffset__,
        "FUTEX": pool.futex(),
    }
    for key, (sample, name) in slots.items():
        offset = layouts.checked_slot_offset(sample, name)
        if offset is None:
            return None
        offsets[key] = offset
    return DispatchOffsets(tuple(sorted(offsets.items())), type(array), type(buffer))


class Dispatcher:
    """The native `__call__` method of one class of jitted functions."""

    def __init__(self, addresses: dict[str, int], owner: type):
        self.addresses = addresses
        self._definition = _MethodDef(b"__call__", addresses["weft_call"], _FASTCALL_KEYWORDS, None)
        make = ctypes.pythonapi.PyDescr_NewMethod
        make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p]
        self.descriptor = make(owner, ctypes.addressof(self._definition))


@functools.cache
def code(places: DispatchOffsets, state_address: int) -> dict[str, int] | None:
    """Link the native code for these offsets and install its destructor of arrays; return None if
    that is not possible."""
    destructor = layouts.deallocator(places.array)
    if destructor is None or queue.current() is not None:  # a process has one queue
        return None
    python = {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
        for name in _PYTHON
    }
    block, pending, failed = heap.block_types()
    imports = {
        **python,
        **heap.symbols(),
        "ARRAY_T": id(places.array),
        "BUFFER_T": id(places.buffer),
        "BLOCK_T": id(block),
        "PENDING_T": id(pending),
        "FAILED_T": id(failed),
        "STATE": state_address,
        "FAILURE_OF": id(queue.failure_of),
        "STOPPED": id(queue.STOPPED),
        "weft_runner": ctypes.addressof(symbols.runner),
    }
    addresses = link([places.part()], imports, _LIBC)
    destructor.value = addresses["weft_array_dealloc"]
    queue.open_queue(addresses, pending, failed)
    return addresses
