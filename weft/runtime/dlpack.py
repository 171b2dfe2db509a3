"""Exchange of memory by DLPack for dtypes that NumPy does not pass on: bfloat16, and floats of 8 bits.

In:   an object with `__dlpack__`, or a NumPy array.
Out:  a NumPy array on the same memory, or a capsule of it. NumPy handles them as unsigned integers; the capsule's type is what changes.
Source: the layout of `DLManagedTensor` and the codes of types in dlpack.h (version 1.0).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

#: codes of types by the names of their dtypes
_CODES = {"bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11,
          "float8_e5m2": 12, "float8_e5m2fnuz": 13, "float8_e8m0fnu": 14}
_UNSIGNED = 1
#: where the tensor begins in the two kinds of capsules, and the code and bits of its type in a tensor
_TENSOR = {b"dltensor": 0, b"dltensor_versioned": 32}
_TYPE = 20


def _type_of(capsule: Any) -> Any:
    """The code and the bits of a capsule's type, which may be written."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = api.PyCapsule_GetName(capsule)
    return (ctypes.c_uint8 * 2).from_address(api.PyCapsule_GetPointer(capsule, name) + _TENSOR[name] + _TYPE)


class _AsIntegers:
    """An object's memory with a type that NumPy knows; `dtype` is what the object said, if that is another."""

    def __init__(self, x: Any) -> None:
        self.x, self.dtype = x, None

    def __dlpack__(self, **options: Any) -> Any:
        try:
            capsule = self.x.__dlpack__(**options)
        except TypeError:                                  # from before version 1.0
            capsule = self.x.__dlpack__()
        found = _type_of(capsule)
        self.dtype = next((name for name, code in _CODES.items() if code == found[0]), None)
        if self.dtype is not None:
            found[0] = _UNSIGNED
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


def to_numpy(x: Any) -> np.ndarray:
    """A NumPy array on the memory of an object with `__dlpack__`."""
    source = _AsIntegers(x)
    found = np.from_dlpack(source)
    if source.dtype is None:
        return found
    from weft.util import dtypes
    return found.view(dtypes.as_dtype(source.dtype))


def capsule_of(value: np.ndarray, **options: Any) -> Any:
    """A capsule of the memory of a NumPy array."""
    code = _CODES.get(value.dtype.name)
    if code is None:
        return value.__dlpack__(**options)
    capsule = value.view(f"u{value.dtype.itemsize}").__dlpack__(**options)
    _type_of(capsule)[0] = code
    return capsule
