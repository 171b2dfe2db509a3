"""The heap of array buffers in native code, for compiled dispatch and for `backends.cpu.buffer`.

In:   nothing; compiled from `heap.ll` and `heap_memory.ll` on first use.
Out:  `block_types()`, the types of the objects that own blocks; `symbols()`: `weft_alloc(i64) ->
      ptr`, `weft_free(ptr)`, `weft_new_block(i64) -> object or None`, `weft_heap_trim()` and the
      i64 counters `weft_heap_live`, `weft_heap_peak`, `weft_heap_allocations`, `weft_heap_largest`,
      `weft_heap_cached`, `weft_heap_limit`;
      `backends.cpu.buffer.use_native` takes them.
Laws: callers hold the GIL; alignment, caching and counters are the same as in
      `weft._engine.backends.cpu.buffer`. Nothing is cached until `weft_heap_limit` is set.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain.native_library import LibraryModule, link, text_of
from weft._engine.util.user_code_suspension import suspended

_LIBC = ("aligned_alloc", "free", "mmap", "munmap", "madvise")
_MEMORY = (
    "weft_heap_list_alloc",
    "weft_heap_map_alloc",
    "weft_heap_map_free",
    "weft_heap_trim",
    "weft_heap_live",
    "weft_heap_peak",
    "weft_heap_allocations",
    "weft_heap_largest",
    "weft_heap_cached",
    "weft_heap_limit",
    "weft_heap_map_flags",
    "weft_heap_free_lists",
)
_BLOCKS = (
    "weft_alloc",
    "weft_free",
    "weft_new_block",
    "weft_block_dealloc",
    "weft_failed_dealloc",
    "weft_block_type",
    "weft_no_block",
)
PARTS = (
    LibraryModule("heap memory", lambda: text_of("heap_memory.ll"), _MEMORY, quick=True),
    LibraryModule("heap", lambda: text_of("heap.ll"), _BLOCKS),
)


def symbols() -> dict[str, int]:
    """Return name -> address of the heap's functions and counters; compiles them on the first call."""
    with suspended, pool.making:  # a process has one heap
        return _build_heap_module()


@functools.cache
def _build_heap_module() -> dict[str, int]:
    addresses = link(
        PARTS,
        {"Py_DecRef": ctypes.cast(ctypes.pythonapi.Py_DecRef, ctypes.c_void_p).value or 0},
        _LIBC,
    )
    if sys.platform == "darwin":
        ctypes.c_int32.from_address(addresses["weft_heap_map_flags"]).value = 0x1002
    _types.extend(
        [
            _make_type(name, addresses[f"weft_{dealloc}_dealloc"])
            for name, dealloc in ((b"Block", "block"), (b"Pending", "block"), (b"Failed", "failed"))
        ]
    )
    ctypes.c_void_p.from_address(addresses["weft_block_type"]).value = id(_types[0])
    ctypes.c_void_p.from_address(addresses["weft_no_block"]).value = id(None)
    return addresses


class _HeapSlot(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("function", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basic_size", ctypes.c_int),
        ("item_size", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_HeapSlot)),
    ]


_TP_DEALLOC = 52  # slot number in the stable ABI
_DISALLOW_INSTANTIATION = 1 << 7


def block_types() -> tuple[type, ...]:
    """Return the types of block headers. A block is freed with the last reference to its header.

    The types are, in order: blocks with values, blocks that a queued program will write (see
    `queue.ll`), and blocks whose computation failed.
    """
    symbols()
    return tuple(_types)


def _make_type(name: bytes, dealloc: int) -> type:
    slots = (_HeapSlot * 2)((_TP_DEALLOC, dealloc), (0, None))
    spec = _Spec(b"weft." + name, object.__basicsize__, 0, _DISALLOW_INSTANTIATION, slots)
    make = ctypes.pythonapi.PyType_FromSpec
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p]
    block_type = make(ctypes.addressof(spec))
    _names.append(spec)  # the type refers to the name in the spec
    return block_type


_types: list[type] = []
_names: list[Any] = []
