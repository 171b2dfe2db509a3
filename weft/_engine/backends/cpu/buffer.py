"""Buffers: the memory of arrays.

In:   a number of bytes, or a NumPy array to adopt.
Out:  `HostBuffer`, an owner of 64-byte-aligned memory with an address for native code and NumPy views that keep it alive.
Laws: blocks of 1 MiB and more begin on a 2 MiB boundary and request huge pages; freed blocks are cached up to
      WEFT_BUFFER_CACHE_BYTES (default: an eighth of the memory), so that repeated outputs of one size touch no new
      pages; memory is not cleared; live and peak bytes count requested sizes. All calls hold the GIL.

Memory comes from a heap: `PythonHeap` needs only the standard library; `use_native` installs the native heap, which
compiled dispatch also calls. Blocks return to the heap that allocated them.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from weft._engine.cpython.references import is_held_at_most
from weft._engine.util.dispatch_state import on_clear_caches
from weft._engine.util.errors import OutOfMemoryError, address_limit, limit_text
from weft._engine.util.threads import hold_during_fork

# The native heap (codegen/runtime/heap.ll) has the same values: blocks of both heaps are used alike.
ALIGNMENT = 64
_LARGE = 1 << 20
_HUGE_PAGE = 2 << 20
_PAGE = mmap.PAGESIZE


class Heap(Protocol):
    """An allocator of blocks: `take(nbytes)` returns the owner of a new block, which is freed with it, or None if there
    is no memory; `trim()` returns all cached blocks to the system.

    `live`, `peak` and `cached` are numbers of bytes, `largest` is the size of the largest block, and `allocations` the
    number of blocks since the start.
    """

    def take(self, nbytes: int, /) -> object: ...

    def trim(self) -> None: ...

    peak: int

    @property
    def live(self) -> int: ...

    @property
    def cached(self) -> int: ...

    @property
    def allocations(self) -> int: ...

    @property
    def largest(self) -> int: ...


def memory_limit() -> int:
    """Return the bytes of memory that this process may use: of the machine, its control group, or `ulimit -v`."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            limits.append(int(file.read()))
    except (OSError, ValueError):
        pass  # no control groups, or "max"
    return min([*limits, *address_limit()])


def cache_limit() -> int:
    """Return the maximum bytes of cached freed blocks: WEFT_BUFFER_CACHE_BYTES, else an eighth of the machine's memory."""
    text = os.environ.get("WEFT_BUFFER_CACHE_BYTES", "").strip()
    if not text:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8
    if not text.isdigit():
        raise ValueError(
            f"WEFT_BUFFER_CACHE_BYTES must be a number of bytes, got {text!r}; 0 disables the cache"
        )
    return int(text)


class _HeapBlock:
    """One mapping or allocation of the Python heap."""

    __slots__ = ("capacity", "memory", "nbytes", "ptr")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.nbytes = 0
        if capacity < _LARGE:
            # a ctypes array would need a new type for each size
            self.memory: Any = bytearray(capacity + ALIGNMENT)
            self.ptr = _up(ctypes.addressof(ctypes.c_char.from_buffer(self.memory)), ALIGNMENT)
            return
        # private, because shared memory gets no huge pages
        self.memory = mmap.mmap(-1, capacity + _HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.ptr = _up(base, _HUGE_PAGE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self.memory.madvise(
                    mmap.MADV_HUGEPAGE, _up(self.ptr - base, _PAGE), _up(capacity, _PAGE)
                )
            except OSError:
                pass  # a kernel without huge pages: slower, not wrong


class PythonHeap:
    """An allocator of blocks from bytearray and mmap; free blocks are cached by capacity."""

    def __init__(self) -> None:
        self._used: dict[int, _HeapBlock] = {}
        self._free: dict[int, list[_HeapBlock]] = {}
        self.live = self.peak = self.cached = self.allocations = self.largest = 0
        self._limit: int | None = None  # bytes of the cache; read at the first `free`
        # reentrant: a garbage collection inside `alloc` may call `free` on the same thread
        self._lock = hold_during_fork(threading.RLock())

    def take(self, nbytes: int) -> _PythonBlockOwner | None:
        lease = _PythonBlockOwner(self)
        lease.ptr = self.alloc(nbytes)
        return lease if lease.ptr else None

    def alloc(self, nbytes: int) -> int:
        capacity = _capacity(nbytes)
        with self._lock:
            free_blocks = self._free.get(capacity)
            if free_blocks:
                block = free_blocks.pop()
                self.cached -= capacity
            else:
                block = self._make(capacity)
                if block is None:
                    return 0
            block.nbytes = nbytes
            self._used[block.ptr] = block
            self.live += nbytes
            self.peak = max(self.peak, self.live)
            self.allocations += 1
            self.largest = max(self.largest, nbytes)
            return block.ptr

    def _make(self, capacity: int) -> _HeapBlock | None:
        for _ in range(2):
            try:
                return _HeapBlock(capacity)
            except (MemoryError, OSError, OverflowError, ValueError):
                self.trim()  # and retry without the cache
        return None

    def free(self, ptr: int) -> None:
        with self._lock:
            block = self._used.pop(ptr)
            self.live -= block.nbytes
            if self._limit is None:
                self._limit = cache_limit()
            if self.cached + block.capacity <= self._limit:
                self._free.setdefault(block.capacity, []).append(block)
                self.cached += block.capacity

    def trim(self) -> None:
        with self._lock:
            self._free.clear()
            self.cached = 0

    def retire(self) -> None:
        """Free all cached blocks and cache no more: new blocks come from another heap."""
        self._limit = 0
        self.trim()


class _PythonBlockOwner:
    """The owner of a block of the Python heap."""

    __slots__ = ("heap", "ptr")

    def __init__(self, heap: PythonHeap) -> None:
        self.heap, self.ptr = heap, 0

    def __del__(self) -> None:
        # module globals may be None when the interpreter ends
        if self.ptr and cache_limit is not None:
            self.heap.free(self.ptr)


def _counter(name: str) -> Any:
    """Return a property for a counter in native memory."""
    return property(
        lambda heap: heap._counters[name].value,
        lambda heap, value: setattr(heap._counters[name], "value", value),
    )


class NativeHeap:
    """The native heap; `addresses` has the functions and counters of `codegen.runtime.heap.symbols()`."""

    def __init__(self, addresses: Mapping[str, int]) -> None:
        # PYFUNCTYPE holds the GIL during the call, which protects the native free lists.
        self.take = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int64)(addresses["weft_new_block"])
        self.trim = ctypes.PYFUNCTYPE(None)(addresses["weft_heap_trim"])
        self._counters = {
            name: ctypes.c_int64.from_address(addresses[f"weft_heap_{name}"])
            for name in ("live", "peak", "allocations", "largest", "cached", "limit")
        }
        self._counters["limit"].value = cache_limit()

    live, peak, cached = map(_counter, ("live", "peak", "cached"))
    allocations, largest = map(_counter, ("allocations", "largest"))


#: the last one allocates new buffers; earlier ones take their blocks back
_heaps: list[Heap] = [PythonHeap()]


def use_native(addresses: Mapping[str, int]) -> None:
    """Allocate new buffers from the native heap at `addresses` (`codegen.runtime.heap.symbols()`); idempotent."""
    if any(isinstance(heap, NativeHeap) for heap in _heaps):
        return
    before = _heaps[-1]
    _heaps.append(NativeHeap(addresses))
    if isinstance(before, PythonHeap):
        before.retire()


def allocated_bytes() -> int:
    """Return the bytes of live buffers.

    >>> before = allocated_bytes()
    >>> b = HostBuffer(1000)
    >>> allocated_bytes() - before >= b.nbytes
    True
    """
    return sum(heap.live for heap in _heaps)


def peak_bytes() -> int:
    """Return the maximum of live bytes since the start or the last `reset_peak`."""
    return sum(heap.peak for heap in _heaps)


def reset_peak() -> None:
    """Restart `peak_bytes` from the bytes that are live now."""
    for heap in _heaps:
        heap.peak = heap.live


def cached_bytes() -> int:
    """Return the bytes of freed blocks that are cached for reuse."""
    return sum(heap.cached for heap in _heaps)


def memory_stats() -> dict[str, int]:
    """Return the statistics of the memory of buffers, by JAX's keys; a block counts with its requested size.

    >>> before, b = memory_stats(), HostBuffer(1000)
    >>> memory_stats()["num_allocs"] - before["num_allocs"]
    1
    """
    return {
        "num_allocs": sum(heap.allocations for heap in _heaps),
        "bytes_in_use": allocated_bytes(),
        "peak_bytes_in_use": peak_bytes(),
        "largest_alloc_size": max(heap.largest for heap in _heaps),
        "pool_bytes": allocated_bytes() + cached_bytes(),
        "bytes_limit": memory_limit(),
    }


@on_clear_caches
def trim() -> None:
    """Return all cached blocks to the system."""
    for heap in _heaps:
        heap.trim()


def fill(target: np.ndarray, view: np.ndarray) -> None:
    """Copy `view` into the dense array `target` of its shape and dtype."""
    if view.nbytes >= _LARGE:
        # imported here: processes with only small arrays do not need it
        from weft._engine.codegen.library import strided_copy

        if strided_copy.copy(target.ctypes.data, view):
            return
    target[...] = view


def block_address(block: object) -> int:
    """Return the address of the memory of a native heap block; native code refers to a block by the object in its header."""
    return id(block) + ALIGNMENT


def address(contents: Any) -> int:
    """Return the address of the memory of a buffer, or of a native heap block."""
    return contents.ptr if type(contents) is HostBuffer else block_address(contents)


def new_block(nbytes: int) -> object | None:
    """Return a block of the native heap; None if there is no memory or no native heap."""
    return _heaps[-1].take(nbytes) if isinstance(_heaps[-1], NativeHeap) else None


class HostBuffer:
    """An owner of `nbytes` bytes at address `ptr`, aligned to 64 bytes.

    >>> x = HostBuffer(24).view("f4", (2, 3))
    >>> x.shape, x.ctypes.data % 64
    ((2, 3), 0)
    """

    # no `__del__`: an interrupt inside of it would be lost
    __slots__ = ("__weakref__", "_owner", "nbytes", "ptr")

    def __init__(self, nbytes: int) -> None:
        owner = _heaps[-1].take(nbytes) if nbytes >= 0 else None
        if owner is None:
            _no_memory(nbytes)
        self._owner = owner
        self.ptr = owner.ptr if isinstance(owner, _PythonBlockOwner) else block_address(owner)
        self.nbytes = nbytes

    @classmethod
    def from_numpy(cls, array: np.ndarray, copy: bool = False) -> HostBuffer:
        """Return a buffer that holds the elements of `array` in row-major order.

        It shares the array's memory, and keeps the array alive, if that is dense and aligned and `copy` is false.
        """
        dense = array.flags.c_contiguous and array.dtype.isnative
        if dense and not copy and array.ctypes.data % ALIGNMENT == 0 and array.nbytes:
            return cls._share_memory(array.ctypes.data, array.nbytes, array)
        buffer = cls(array.nbytes)
        if array.nbytes:
            native = array.dtype.newbyteorder("=")
            fill(
                buffer.view(native, array.shape),
                array if array.dtype.isnative else array.astype(native),
            )
        return buffer

    @classmethod
    def _share_memory(cls, ptr: int, nbytes: int, owner: object) -> HostBuffer:
        buffer = cls.__new__(cls)
        buffer._owner, buffer.ptr, buffer.nbytes = owner, ptr, nbytes
        return buffer

    @classmethod
    def of_block(cls, block: object, nbytes: int) -> HostBuffer:
        """Return a buffer on a block of the native heap."""
        return cls._share_memory(block_address(block), nbytes, block)

    def owns_memory(self) -> bool:
        """Return whether no view, slice or other array reads the memory of this buffer."""
        return (
            isinstance(self._owner, _PythonBlockOwner)
            or self.block() is not None
            or self._owns_numpy()
        )

    def block(self) -> Any:
        """Return the native heap block that this buffer covers, if no other object holds it, such as a queued program; else None."""
        is_sole = block_address(self._owner) == self.ptr and is_held_at_most(self._owner, 1)
        return self._owner if is_sole else None

    def _owns_numpy(self) -> bool:
        """Return whether the memory is a NumPy array, or a view of one, that no other object holds; creation functions make these."""
        if type(self._owner) is not np.ndarray or not is_held_at_most(self._owner, 1):
            return False
        array: Any = self._owner
        while array.base is not None:
            if type(array.base) is not np.ndarray or not is_held_at_most(array.base, 1):
                return False
            array = array.base
        return bool(array.flags.owndata and array.flags.writeable)

    def copy(self) -> HostBuffer:
        """Return a new buffer with the same bytes."""
        other = HostBuffer(self.nbytes)
        ctypes.memmove(other.ptr, self.ptr, self.nbytes)
        return other

    def slice(self, offset: int, nbytes: int) -> HostBuffer:
        """Return a buffer on a part of this one, which it keeps alive; it is aligned as `offset` is."""
        self._check(offset, nbytes, "slice")
        return HostBuffer._share_memory(self.ptr + offset, nbytes, self)

    def view(self, dtype: Any, shape: Sequence[int], offset: int = 0) -> np.ndarray:
        """Return a writable dense NumPy array on the memory; it keeps the buffer alive."""
        dtype, shape = np.dtype(dtype), tuple(shape)
        nbytes = math.prod(shape) * dtype.itemsize
        self._check(offset, nbytes, "view")
        memory: Any = _bytes_type(nbytes).from_address(self.ptr + offset)
        memory.owner = self
        return np.ndarray(shape, dtype, memory)

    def _check(self, offset: int, nbytes: int, name: str) -> None:
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(
                f"Buffer.{name}: bytes {offset} to {offset + nbytes} reach outside the buffer of {self.nbytes} bytes"
            )

    def __repr__(self) -> str:
        return f"Buffer({self.nbytes} bytes at {self.ptr:#x})"


@functools.lru_cache(maxsize=256)
def _bytes_type(count: int) -> Any:
    """Return the ctypes array type of `count` bytes; it is cached because such types are cyclic garbage."""
    return ctypes.c_char * count


def _no_memory(nbytes: int) -> None:
    if nbytes < 0:
        raise ValueError(f"Buffer: the number of bytes must not be negative, got {nbytes}")
    raise OutOfMemoryError(
        f"cannot allocate {_pretty(nbytes)} for an array: {_pretty(allocated_bytes())} are in live "
        f"arrays and {_pretty(cached_bytes())} in the cache of freed ones; delete arrays, use a smaller or a sharded "
        f"shape, or lower WEFT_BUFFER_CACHE_BYTES.{limit_text()}"
    )


def _pretty(nbytes: int) -> str:
    value, unit = float(nbytes), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{nbytes} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _capacity(nbytes: int) -> int:
    """Return the size class: multiples of 64 up to 4 KiB, then four per power of two, whole pages from 1 MiB on."""
    if nbytes <= 4096:
        return max(_up(nbytes, ALIGNMENT), ALIGNMENT)
    if nbytes >= _LARGE:
        return _up(nbytes, _PAGE)
    return _up(nbytes, 1 << (nbytes - 1).bit_length() - 3)
