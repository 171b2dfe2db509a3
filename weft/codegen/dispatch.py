"""Native dispatch: the machine code behind calling a compiled function.

In:   the classes whose objects it reads (Array, Buffer, the jitted function) and where their slots lie.
Out:  `call_descriptor`, a native method for `__call__`, and the layout of cache entries.
Laws: slot offsets are found through the classes' member descriptors and checked on live objects; where the check fails
      (another interpreter) there is no descriptor, and the Python path, which does the same, serves alone.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from weft.codegen import heap
from weft.codegen._link import Part, link, text_of

_PYTHON = (
    "PyObject_Vectorcall", "PyObject_CallNoArgs", "PyType_GenericAlloc", "PyCapsule_New", "PyLong_AsVoidPtr", "PyDict_GetItem",
    "PyDict_New", "PyDict_SetItem", "PyDict_Size", "PyList_New", "PyList_Size", "PyList_GetItem", "PyList_SetItem", "PyTuple_New",
    "PyTuple_Size", "PyTuple_GetItem", "PyTuple_SetItem", "Py_IncRef", "Py_DecRef", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyFloat_AsDouble", "PyLong_AsLongLong", "PyErr_Occurred", "PyErr_Clear",
    "PyCapsule_Type", "PyBool_Type", "PyFloat_Type",
    "PyLong_Type", "_Py_TrueStruct", "PyDict_Type", "PyList_Type", "PyTuple_Type", "_Py_NoneStruct",
)
_FASTCALL_KEYWORDS = 0x0082
ENTRY_WORDS = 24


class _MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


def slot_offset(cls: type, name: str) -> int | None:
    """Byte offset of slot `name` in objects of `cls`, or None if it cannot be told.

    A member descriptor holds a pointer to its PyMemberDef, whose third word is the offset. Builds without a GIL (`t` in their
    ABI flags) have another object header, and dispatch counts on the lock.
    """
    member = next(base.__dict__[name] for base in cls.__mro__ if name in base.__dict__)
    if type(member).__name__ != "member_descriptor" or sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return None
    words = (ctypes.c_void_p * 8).from_address(id(member))
    definition = words[5]                       # refcount, type, d_type, d_name, d_qualname, d_member
    if not definition:
        return None
    return ctypes.c_ssize_t.from_address(definition + 16).value


def _holds(instance: Any, offset: int | None, expected: Any) -> bool:
    """Whether the slot at `offset` of a live object is the object `expected`."""
    return offset is not None and 16 <= offset < 1024 and ctypes.c_void_p.from_address(id(instance) + offset).value == id(expected)


@functools.cache
def _capsule_keeps_pointer_at_16() -> bool:
    api = ctypes.pythonapi
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    capsule = api.PyCapsule_New(0x1230, None, None)
    return ctypes.c_void_p.from_address(id(capsule) + 16).value == 0x1230


class Dispatcher:
    """The native method for one trio of classes."""

    def __init__(self, addresses: dict[str, int], owner: type):
        self.addresses = addresses
        self._definition = _MethodDef(b"__call__", addresses["weft_call"], _FASTCALL_KEYWORDS, None)
        make = ctypes.pythonapi.PyDescr_NewMethod
        make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p]
        self.descriptor = make(owner, ctypes.addressof(self._definition))


def make_dispatcher(array: Any, buffer: Any, jitted: Any, state_address: int) -> Dispatcher | None:
    """The dispatcher for the classes of three sample objects (with slots `_spec _buffer`, `ptr _owner`,
    `_cell _slow`), or None."""
    offsets = {
        "SPEC": (array, "_spec"), "BUFFER": (array, "_buffer"), "PTR": (buffer, "ptr"), "OWNER": (buffer, "_owner"),
        "CELL": (jitted, "_cell"), "SLOW": (jitted, "_slow"),
    }
    found = {}
    for key, (sample, name) in offsets.items():
        offset = slot_offset(type(sample), name)
        if not _holds(sample, offset, getattr(sample, name)):
            return None
        found[key] = offset
    if not _capsule_keeps_pointer_at_16():
        return None

    def text() -> str:
        body = text_of("dispatch.ll")
        for key, offset in found.items():
            body = body.replace(f"${key}", str(offset))
        return body

    python = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _PYTHON}
    native = heap.symbols()
    imports = {**python, "weft_alloc": native["weft_alloc"], "weft_free": native["weft_free"], "ARRAY_T": id(type(array)),
               "BUFFER_T": id(type(buffer)), "STATE": state_address}
    name = "dispatch-" + "-".join(f"{k}{v}" for k, v in sorted(found.items()))
    return Dispatcher(link([Part(name, text, ("weft_call", "weft_capsule_free"))], imports), type(jitted))
