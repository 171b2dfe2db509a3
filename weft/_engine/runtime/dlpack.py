"""Exchange of memory by DLPack for dtypes that NumPy does not export: bfloat16, and floats of 8 bits.

In:   an object with `__dlpack__`, a NumPy array, or memory on a device.
Out:  a NumPy array on the same memory, or a capsule. Through NumPy such dtypes pass as unsigned integers; the type in the capsule is
      replaced. Capsules of device memory are created here.
Source: the layout of `DLManagedTensor` and the type codes in dlpack.h (version 1.0).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine import backends
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import DeviceMemory
from weft._engine.ir.shardings import SingleDeviceSharding
from weft._engine.ir.types import ShapedArray
from weft._engine.util import dtypes

#: dtype name -> DLPack type code
_CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
_UNSIGNED = 1
#: byte offset of the tensor in the two kinds of capsules, and of the type's code and bits in a tensor
_TENSOR = {b"dltensor": 0, b"dltensor_versioned": 32}
_TYPE = 20


def _type_of(capsule: Any) -> Any:
    """Return the code and the bits of a capsule's type as a writable array."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p,
        [ctypes.py_object],
    )
    api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = (
        ctypes.c_void_p,
        [ctypes.py_object, ctypes.c_char_p],
    )
    name = api.PyCapsule_GetName(capsule)
    return (ctypes.c_uint8 * 2).from_address(
        api.PyCapsule_GetPointer(capsule, name) + _TENSOR[name] + _TYPE
    )


class _IntegerExporter:
    """An exporter of an object's memory as integers where NumPy lacks its dtype, whose name is then in `dtype`."""

    def __init__(self, x: Any) -> None:
        self.x, self.dtype = x, None

    def __dlpack__(self, **options: Any) -> Any:
        try:
            capsule = self.x.__dlpack__(**options)
        except TypeError:  # the exporter predates DLPack 1.0
            capsule = self.x.__dlpack__()
        type_bytes = _type_of(capsule)
        self.dtype = next((name for name, code in _CODES.items() if code == type_bytes[0]), None)
        if self.dtype is not None:
            type_bytes[0] = _UNSIGNED
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


def to_numpy(x: Any) -> np.ndarray:
    """Return a NumPy array on the memory of an object with `__dlpack__`."""
    source = _IntegerExporter(x)
    value = np.from_dlpack(source)
    if source.dtype is None:
        return value
    return value.view(dtypes.as_dtype(source.dtype))


def capsule_of(value: np.ndarray, **options: Any) -> Any:
    """Return a DLPack capsule of the memory of a NumPy array."""
    code = _CODES.get(value.dtype.name)
    if code is None:
        return value.__dlpack__(**options)
    capsule = value.view(f"u{value.dtype.itemsize}").__dlpack__(**options)
    _type_of(capsule)[0] = code
    return capsule


# ---- memory on devices

#: kind of a NumPy dtype -> DLPack type code
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class _ManagedTensor(ctypes.Structure):
    """The C structure `DLManagedTensor`; its context is its own address."""

    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("delete", ctypes.c_void_p)]


#: tensors that other libraries hold: address -> the objects that keep their memory alive
_exported: dict[int, tuple] = {}


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _delete(address: int) -> None:
    _exported.pop(address, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _delete_unused(capsule: int) -> None:
    """Free the tensor of a capsule that no library has taken."""
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    if api.PyCapsule_IsValid(capsule, b"dltensor"):
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", api)
        )
        _delete(get(capsule, b"dltensor"))


def capsule_of_device_memory(memory: DeviceMemory, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return a capsule of row-major memory on a device; raise BufferError for a dtype that DLPack lacks."""
    code = _CODES.get(dtype.name, _KINDS.get(dtype.kind))
    if code is None:
        raise BufferError(f"__dlpack__: DLPack has no type for {dtype.name}.")
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    managed = _ManagedTensor(
        _Tensor(
            memory.address,
            memory.device_type,
            memory.device_id,
            len(shape),
            code,
            8 * dtype.itemsize,
            1,
            ctypes.addressof(extents),
        )
    )
    address = ctypes.addressof(managed)
    managed.context, managed.delete = address, ctypes.cast(_delete, ctypes.c_void_p).value
    _exported[address] = managed, extents, memory.owner
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return new(address, b"dltensor", ctypes.cast(_delete_unused, ctypes.c_void_p).value)


class _ImportedTensor:
    """A tensor of another library, released when nothing uses its memory any more."""

    def __init__(self, capsule: Any) -> None:
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = (
            ctypes.c_void_p,
            [ctypes.py_object, ctypes.c_char_p],
        )
        self.managed = _ManagedTensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
        api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
        api.PyCapsule_SetName(capsule, _USED)  # the capsule no longer owns the tensor

    def __del__(self) -> None:
        if self.managed.delete:
            delete: Callable = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.managed.delete)
            delete(ctypes.addressof(self.managed))


_USED = b"used_dltensor"


def import_device_memory(x: Any) -> tuple[ArraySpec, Any] | None:
    """Return the array spec and the buffer of an array on the device memory of an object with `__dlpack__`; None for host memory.

    Raises ValueError if no backend drives the device, BufferError for memory that is not row-major.
    """
    kind, number = x.__dlpack_device__()
    if kind == 1:
        return None
    device = backends.device_of_dlpack(kind, number)
    if device is None:
        raise ValueError(
            f"from_dlpack: no backend drives device {number} of DLPack's kind {kind}. Copy the array to the host first."
        )
    imported = _ImportedTensor(x.__dlpack__())
    tensor = imported.managed.tensor
    shape = tuple((ctypes.c_int64 * tensor.ndim).from_address(tensor.shape)) if tensor.ndim else ()
    strides = (
        list((ctypes.c_int64 * tensor.ndim).from_address(tensor.strides))
        if tensor.strides and tensor.ndim
        else None
    )
    dtype = _dtype_of(tensor.type_code, tensor.type_bits)
    if strides not in (
        None,
        [
            stride // dtype.itemsize
            for stride in np.empty(shape, np.dtype(f"V{dtype.itemsize}")).strides
        ],
    ):
        raise BufferError(
            f"from_dlpack: the memory of shape {shape} with strides {strides} is not row-major. Pass a contiguous copy."
        )
    spec = ArraySpec(ShapedArray(shape, dtype), SingleDeviceSharding(device), True)
    memory = DeviceMemory(tensor.data + tensor.byte_offset, kind, number, imported)
    return spec, spec.backend.from_device_memory(memory, spec)


def _dtype_of(code: int, bits: int) -> np.dtype:
    """Return the dtype of a DLPack type."""
    name = next((name for name, number in _CODES.items() if number == code), None)
    if name is not None:
        return dtypes.as_dtype(name)
    kind = next(kind for kind, number in _KINDS.items() if number == code)
    return np.dtype(bool if kind == "b" else f"{kind}{bits // 8}")
