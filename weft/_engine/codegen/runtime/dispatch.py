"""Native dispatch: the machine code behind calling a compiled function.

In:   the classes whose objects it reads (Array, Buffer, the jitted function) and the offsets of their slots.
Out:  `Dispatcher.descriptor`, a native method for `__call__`, and the length of cache entries. Arrays get a native destructor.
Laws: offsets come from the classes' member descriptors, or are known, and are checked on live objects. If a check fails (another
      interpreter), there is no descriptor, and only the equivalent Python path is used.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, NamedTuple

from weft._engine.codegen.runtime import heap, pool, queue, symbols
from weft._engine.codegen.toolchain.native_library import LibraryModule, link, text_of

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
_LIST_ITEMS = 24  # of a list: the address of its items
_TYPE_NAME, _TYPE_BASIC_SIZE, _TYPE_ITEM_SIZE, _TYPE_DEALLOC = (
    24,
    32,
    40,
    48,
)  # of a class, in bytes
ENTRY_WORDS = 25
ENTRY_CODE = 4  # the word that holds the address of the program's code


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


def slot_offset(cls: type, name: str) -> int | None:
    """Byte offset of slot `name` in objects of `cls`, or None if it is not known.

    A member descriptor holds a pointer to its PyMemberDef, whose third word is the offset. Builds without a GIL (`t` in their
    ABI flags) have another object header, and dispatch counts on the lock.
    """
    member = next(base.__dict__[name] for base in cls.__mro__ if name in base.__dict__)
    if (
        type(member).__name__ != "member_descriptor"
        or sys.implementation.name != "cpython"
        or "t" in sys.abiflags
    ):
        return None
    words = (ctypes.c_void_p * 8).from_address(id(member))
    definition = words[5]  # refcount, type, d_type, d_name, d_qualname, d_member
    if not definition:
        return None
    return ctypes.c_ssize_t.from_address(definition + 16).value


def _holds(instance: Any, offset: int | None, expected: Any) -> bool:
    """Whether the slot at `offset` of a live object is the object `expected`."""
    return (
        offset is not None
        and 16 <= offset < 1024
        and ctypes.c_void_p.from_address(id(instance) + offset).value == id(expected)
    )


_word = ctypes.c_ssize_t.from_address


def _objects_are_as_expected() -> bool:
    """Whether counts, types, sizes and items are where native code reads and writes them."""
    sample, other = [object(), object()], object()
    pair = tuple(sample)
    held = ctypes.c_int32.from_address(id(other)).value
    again = [other, other]
    counted = ctypes.c_int32.from_address(id(other)).value == held + len(again)
    items = (id(pair) + tuple.__basicsize__, _word(id(sample) + _LIST_ITEMS).value)
    return (
        counted
        and all(_word(id(x) + 8).value == id(type(x)) for x in (other, sample, pair))
        and all(
            _word(id(x) + 16).value == len(x)
            and [_word(at + 8 * i).value for i in range(len(x))] == list(map(id, x))
            for x, at in zip((pair, sample), items)
        )
    )


def _deallocator(cls: type) -> Any:
    """The word of `cls`, a class of Python with slots, that holds its destructor; None if it is not where it should be."""

    class Another:
        __slots__ = ("slot",)

    at = id(cls)
    sizes = _word(at + _TYPE_BASIC_SIZE).value, _word(at + _TYPE_ITEM_SIZE).value
    if (
        sizes != (cls.__basicsize__, cls.__itemsize__)
        or ctypes.string_at(_word(at + _TYPE_NAME).value) != cls.__name__.encode()
    ):
        return None
    ours, usual, builtin = [_word(id(c) + _TYPE_DEALLOC) for c in (cls, Another, object)]
    return ours if ours.value == usual.value != builtin.value else None


class Places(NamedTuple):
    """What the native code is written for: where slots are, by the names in its text, and the classes of arrays and buffers."""

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


def find_places(array: Any, buffer: Any, jitted: Any) -> Places | None:
    """The places in the classes of three sample objects (with slots `_spec _buffer _value _parts`, `ptr _owner`, `_cell _slow`);
    None where one is not as expected."""
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
    found = {
        "TUPLE": tuple.__basicsize__,
        "LIST": _LIST_ITEMS,
        "WEAK": type(array).__weakrefoffset__,
        "FUTEX": pool.futex(),
    }
    for key, (sample, name) in slots.items():
        offset = slot_offset(type(sample), name)
        if offset is None or not _holds(sample, offset, getattr(sample, name)):
            return None
        found[key] = offset
    return (
        Places(tuple(sorted(found.items())), type(array), type(buffer))
        if _objects_are_as_expected()
        else None
    )


class Dispatcher:
    """The native method for one class of jitted functions."""

    def __init__(self, addresses: dict[str, int], owner: type):
        self.addresses = addresses
        self._definition = _MethodDef(b"__call__", addresses["weft_call"], _FASTCALL_KEYWORDS, None)
        make = ctypes.pythonapi.PyDescr_NewMethod
        make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p]
        self.descriptor = make(owner, ctypes.addressof(self._definition))


@functools.cache
def code(places: Places, state_address: int) -> dict[str, int] | None:
    """Link the native code for these places, and let it take over the destructor of arrays; None if that is not where it should be."""
    destructor = _deallocator(places.array)
    if destructor is None or queue.current() is not None:  # there is one queue
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
