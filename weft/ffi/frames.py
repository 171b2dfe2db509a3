"""Call frames of XLA's typed FFI: the structures in memory that a native function gets, as the header of the convention states them (0.3).

In:   the address of a function, the arrays of operands and results, and attributes.
Out:  the function has run; an error that it reports is raised.
Law:  what structures point to lives until the function has returned.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.util.errors import DeviceRuntimeError

_P = ctypes.c_void_p
_EXECUTE = 3  # the stage of a call that computes

#: numbers of dtypes in the convention
DTYPES = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9, "float16": 10,
    "float32": 11, "float64": 12, "complex64": 15, "bfloat16": 16, "complex128": 18,
    "float8_e5m2": 19, "float8_e4m3fn": 20, "float8_e4m3b11fnuz": 23, "float8_e5m2fnuz": 24,
    "float8_e4m3fnuz": 25, "float8_e4m3": 28, "float8_e3m4": 29, "float8_e8m0fnu": 33,
}  # fmt: skip
_ERRORS = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
_ARRAY, _DICTIONARY, _SCALAR, _STRING = 1, 2, 3, 4  # kinds of attributes
_BUFFER = 1  # the kind of an argument or a result


# ---- structures


def _structure(name: str, *fields: tuple[str, Any], sized: bool = True) -> Any:
    """A C structure; most begin with their size and a pointer to extensions."""
    head = [("struct_size", ctypes.c_size_t), ("extension_start", _P)] if sized else []
    return type(name, (ctypes.Structure,), {"_fields_": [*head, *fields]})


_Version = _structure("ApiVersion", ("major", ctypes.c_int), ("minor", ctypes.c_int))
_TABLE = (
    "error_create",
    "error_get_message",
    "error_destroy",
    "handler_register",
    "stream_get",
    "type_register",
    "execution_context_get",
    "state_set",
    "state_get",
    "device_memory_allocate",
    "device_memory_free",
    "thread_pool_schedule",
    "thread_pool_num_threads",
    "future_create",
    "future_set_available",
    "future_set_error",
    "run_id_get",
    "device_ordinal_get",
)
_Api = _structure(
    "Api", ("version", _Version), ("internal_api", _P), *[(name, _P) for name in _TABLE]
)
_ErrorCreate = _structure("ErrorCreate", ("message", ctypes.c_char_p), ("code", ctypes.c_int))
_ErrorMessage = _structure("ErrorMessage", ("error", _P), ("message", _P))
_ErrorDestroy = _structure("ErrorDestroy", ("error", _P))
_Buffer = _structure(
    "Buffer", ("dtype", ctypes.c_int), ("data", _P), ("rank", ctypes.c_int64), ("dims", _P)
)
_Values = _structure("Values", ("size", ctypes.c_int64), ("types", _P), ("values", _P))
_Attrs = _structure("Attrs", ("size", ctypes.c_int64), ("types", _P), ("names", _P), ("values", _P))
_Span = _structure("ByteSpan", ("ptr", ctypes.c_char_p), ("len", ctypes.c_size_t), sized=False)
_Scalar = _structure("Scalar", ("dtype", ctypes.c_int), ("value", _P), sized=False)
_Array = _structure(
    "Array", ("dtype", ctypes.c_int), ("size", ctypes.c_size_t), ("data", _P), sized=False
)
_Frame = _structure(
    "CallFrame",
    ("api", _P),
    ("context", _P),
    ("stage", ctypes.c_int),
    ("args", _Values),
    ("rets", _Values),
    ("attrs", _Attrs),
    ("future", _P),
)


def _size(kind: Any) -> int:
    """The size that a structure states: up to the end of its last field, without padding; of a frame up to its attributes."""
    last = getattr(kind, "attrs" if kind is _Frame else kind._fields_[-1][0])
    return last.offset + last.size


class _Frames:
    """Makes structures, and keeps alive what they point to while a function is called."""

    def __init__(self) -> None:
        self.alive: list[Any] = []

    def keep(self, thing: Any) -> int:
        """The address of a ctypes object."""
        self.alive.append(thing)
        return ctypes.addressof(thing)

    def new(self, kind: Any, **fields: Any) -> Any:
        frame = kind(**fields)
        if hasattr(frame, "struct_size"):
            frame.struct_size = _size(kind)
        return frame

    def table(self, ctype: Any, values: Sequence[Any]) -> int | None:
        return self.keep((ctype * len(values))(*values)) if values else None

    def buffers(self, arrays: Sequence[np.ndarray]) -> Any:
        addresses = []
        for x in arrays:
            dims = self.table(ctypes.c_int64, x.shape)
            self.alive.append(x)
            addresses.append(
                self.keep(
                    self.new(
                        _Buffer,
                        dtype=DTYPES[x.dtype.name],
                        data=x.ctypes.data,
                        rank=x.ndim,
                        dims=dims,
                    )
                )
            )
        kinds = self.table(ctypes.c_int, [_BUFFER] * len(arrays))
        return self.new(_Values, size=len(arrays), types=kinds, values=self.table(_P, addresses))

    def attributes(self, attrs: Mapping[str, Any]) -> Any:
        """Attributes, in the order of their names."""
        kinds, names, addresses = [], [], []
        for name in sorted(attrs):
            kind, address = self.attribute(name, attrs[name])
            kinds.append(kind)
            names.append(self.keep(self.span(name)))
            addresses.append(address)
        return self.new(
            _Attrs,
            size=len(kinds),
            types=self.table(ctypes.c_int, kinds),
            names=self.table(_P, names),
            values=self.table(_P, addresses),
        )

    def span(self, text: str) -> Any:
        data = text.encode()
        return self.new(_Span, ptr=data, len=len(data))

    def attribute(self, name: str, value: Any) -> tuple[int, int]:
        if isinstance(value, str):
            return _STRING, self.keep(self.span(value))
        if isinstance(value, Mapping):
            return _DICTIONARY, self.keep(self.attributes(value))
        values = np.ascontiguousarray(value)
        self.alive.append(values)
        number = DTYPES.get(values.dtype.name)
        if number is None:
            raise TypeError(
                f"ffi_call: attribute {name!r} is a number, a string, a one-dimensional array of numbers or a dict of such, "
                f"got {value!r}."
            )
        if np.ndim(value) == 0:
            return _SCALAR, self.keep(self.new(_Scalar, dtype=number, value=values.ctypes.data))
        return _ARRAY, self.keep(
            self.new(_Array, dtype=number, size=values.size, data=values.ctypes.data)
        )


# ---- errors

# errors that functions have made: code and message
_failures: dict[int, tuple[int, ctypes.Array]] = {}
_last = [0]


@ctypes.CFUNCTYPE(_P, _P)
def _error_create(address: int) -> int:
    call = _ErrorCreate.from_address(address)
    _last[0] += 1
    _failures[_last[0]] = (call.code, ctypes.create_string_buffer(call.message or b""))
    return _last[0]


@ctypes.CFUNCTYPE(None, _P)
def _error_get_message(address: int) -> None:
    call = _ErrorMessage.from_address(address)
    call.message = ctypes.addressof(_failures[call.error][1])


@ctypes.CFUNCTYPE(None, _P)
def _error_destroy(address: int) -> None:
    _failures.pop(_ErrorDestroy.from_address(address).error, None)


_api = _Frames().new(
    _Api,
    error_create=ctypes.cast(_error_create, _P),
    error_get_message=ctypes.cast(_error_get_message, _P),
    error_destroy=ctypes.cast(_error_destroy, _P),
)
_api.version = _Frames().new(_Version, major=0, minor=3)


# ---- calls


def invoke(
    name: str,
    function: Callable[[int], int | None],
    arrays: Sequence[np.ndarray],
    outs: Sequence[np.ndarray],
    attributes: Mapping[str, Any],
) -> None:
    """Call a native function once."""
    frames = _Frames()
    frame = frames.new(
        _Frame,
        api=ctypes.addressof(_api),
        stage=_EXECUTE,
        args=frames.buffers(arrays),
        rets=frames.buffers(outs),
        attrs=frames.attributes(attributes),
    )
    error = function(ctypes.addressof(frame))
    if error:
        code, message = _failures.pop(
            error,
            (
                2,
                ctypes.create_string_buffer(
                    b"an error that was not made by the table of the call frame"
                ),
            ),
        )
        raise DeviceRuntimeError(
            f"{_ERRORS[code]}: {message.value.decode(errors='replace')} (in the native function {name!r})"
        )
