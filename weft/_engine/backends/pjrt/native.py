"""Native functions that execute a program of a plugin and destroy its results.

In:   nothing; compiled from `plugin_calls.ll` on first use.
Out:  `execute`, `destroy` and `count_buffers`, called through ctypes; the first two release the GIL.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import NamedTuple

from weft._engine.codegen.toolchain.native_library import LibraryModule, link, text_of

_EXPORTS = ("weft_plugin_execute", "weft_plugin_destroy", "weft_plugin_count")
_PART = LibraryModule("plugin calls", lambda: text_of("plugin_calls.ll"), _EXPORTS, quick=True)


class ProgramCall(ctypes.Structure):
    """The constant arguments of `execute` for one program."""

    _fields_ = [
        ("execute", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("num_devices", ctypes.c_int64),
        ("num_args", ctypes.c_int64),
        ("num_results", ctypes.c_int64),
    ]


class NativeCalls(NamedTuple):
    """`execute(call, operands, outputs, events)` returns an error of the plugin or None;
    `destroy(function, buffers, number)`; `count_buffers(more)` returns the number of live buffers."""

    execute: Callable[..., int | None]
    destroy: Callable[..., None]
    count_buffers: Callable[[int], int]


@functools.cache
def native_calls() -> NativeCalls:
    """Return the native functions, compiled on the first call."""
    address = link([_PART])
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    execute = ctypes.CFUNCTYPE(pointer, pointer, pointer, pointer, pointer)
    destroy = ctypes.CFUNCTYPE(None, pointer, pointer, number)
    count = ctypes.PYFUNCTYPE(number, number)
    return NativeCalls(
        execute(address["weft_plugin_execute"]),
        destroy(address["weft_plugin_destroy"]),
        count(address["weft_plugin_count"]),
    )
