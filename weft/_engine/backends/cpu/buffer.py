"""Buffers: the memory of arrays.

In:   a number of bytes, or a NumPy array to adopt.
Out:  `Buffer`, an owner of 64-byte-aligned memory with an address for native code and NumPy views that keep it alive.
Laws: blocks of 1 MiB and more begin on a 2 MiB boundary and ask for huge pages; freed blocks are kept for reuse up to
      WEFT_BUFFER_CACHE_BYTES (default: an eighth of the memory), so that repeated outputs of one size touch no new
      pages; memory is not cleared; live and peak bytes count what was asked for. All calls hold the GIL.

Memory comes from a heap: `PythonHeap` needs nothing but the standard library; `use_native` installs the one in native
code that compiled dispatch also calls. Blocks go back to the heap they came from.
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
from weft._engine.util.errors import OutOfMemoryError, limit_text
from weft._engine.util.state import clearing
from weft._engine.util.threads import held_over_forks

# The native heap (codegen/runtime/heap.ll) has the same: blocks of either are used in the same way.
ALIGNMENT = 64
_LARGE = 1 << 20
_HUGE_PAGE = 2 << 20
_PAGE = mmap.PAGESIZE


class Heap(Protocol):
    """Where buffers take their memory from: `take(nbytes)` gives the owner of a new block, which is freed with it, or None when there
    is no memory; `trim()` gives all cached blocks back to the system. Bytes that are alive, were at most, and are cached."""

    def take(self, nbytes: int, /) -> object: ...

    def trim(self) -> None: ...

    peak: int

    @property
    def live(self) -> int: ...

    @property
    def cached(self) -> int: ...


def cache_limit() -> int:
    """Bytes of freed blocks that are kept: WEFT_BUFFER_CACHE_BYTES, else an eighth of the machine's memory."""
    text = os.environ.get("WEFT_BUFFER_CACHE_BYTES", "").strip()
    if not text:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8
    if not text.isdigit():
        raise ValueError(
            f"WEFT_BUFFER_CACHE_BYTES must be a number of bytes, got {text!r}; 0 keeps nothing"
        )
    return int(text)


class _Block:
    """One mapping or allocation of the Python heap."""

    __slots__ = ("capacity", "memory", "nbytes", "ptr")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.nbytes = 0
        if capacity < _LARGE:
            self.memory: Any = bytearray(
                capacity + ALIGNMENT
            )  # ctypes would make a type for each size
            self.ptr = _up(ctypes.addressof(ctypes.c_char.from_buffer(self.memory)), ALIGNMENT)
            return
        self.memory = mmap.mmap(
            -1, capacity + _HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )  # shared memory takes no huge pages
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
    """Blocks from ctypes and mmap, sorted by capacity when free."""

    def __init__(self) -> None:
        self._used: dict[int, _Block] = {}
        self._free: dict[int, list[_Block]] = {}
        self.live = self.peak = self.cached = 0
        self._limit: int | None = None  # of the cache; looked up at the first `free`
        self._lock = held_over_forks(
            threading.RLock()
        )  # a collection inside `alloc` may call `free` on the same thread

    def take(self, nbytes: int) -> _Lease | None:
        lease = _Lease(self)
        lease.ptr = self.alloc(nbytes)
        return lease if lease.ptr else None

    def alloc(self, nbytes: int) -> int:
        capacity = _capacity(nbytes)
        with self._lock:
            waiting = self._free.get(capacity)
            if waiting:
                block = waiting.pop()
                self.cached -= capacity
            else:
                block = self._make(capacity)
                if block is None:
                    return 0
            block.nbytes = nbytes
            self._used[block.ptr] = block
            self.live += nbytes
            self.peak = max(self.peak, self.live)
            return block.ptr

    def _make(self, capacity: int) -> _Block | None:
        for _ in range(2):
            try:
                return _Block(capacity)
            except (MemoryError, OSError, OverflowError, ValueError):
                self.trim()  # then once more, without the cache
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
        """Keep no freed blocks from now on: new ones come from another heap."""
        self._limit = 0
        self.trim()


class _Lease:
    """The owner of a block of the Python heap."""

    __slots__ = ("heap", "ptr")

    def __init__(self, heap: PythonHeap) -> None:
        self.heap, self.ptr = heap, 0

    def __del__(self) -> None:
        if (
            self.ptr and cache_limit is not None
        ):  # module globals go first when the interpreter ends
            self.heap.free(self.ptr)


def _counter(name: str) -> Any:
    """A number that native code keeps."""
    return property(
        lambda heap: heap._counters[name].value,
        lambda heap, value: setattr(heap._counters[name], "value", value),
    )


class NativeHeap:
    """The heap in native code; `addresses` holds the functions and counters of `codegen.runtime.heap.symbols()`."""

    def __init__(self, addresses: Mapping[str, int]) -> None:
        # PYFUNCTYPE: the GIL is held during the call, which is what keeps the native free lists whole.
        self.take = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int64)(addresses["weft_new_block"])
        self.trim = ctypes.PYFUNCTYPE(None)(addresses["weft_heap_trim"])
        self._counters = {
            name: ctypes.c_int64.from_address(addresses[f"weft_heap_{name}"])
            for name in ("live", "peak", "cached", "limit")
        }
        self._counters["limit"].value = cache_limit()

    live, peak, cached = map(_counter, ("live", "peak", "cached"))


_heaps: list[Heap] = [
    PythonHeap()
]  # the last one allocates new buffers; earlier ones take their blocks back


def use_native(addresses: Mapping[str, int]) -> None:
    """Take new buffers from the native heap at `addresses` (`codegen.runtime.heap.symbols()`) from now on; once is enough."""
    if any(isinstance(heap, NativeHeap) for heap in _heaps):
        return
    before = _heaps[-1]
    _heaps.append(NativeHeap(addresses))
    if isinstance(before, PythonHeap):
        before.retire()


def allocated_bytes() -> int:
    """Bytes in buffers that are alive.

    >>> before = allocated_bytes()
    >>> b = Buffer(1000)
    >>> allocated_bytes() - before >= b.nbytes
    True
    """
    return sum(heap.live for heap in _heaps)


def peak_bytes() -> int:
    """Most bytes that were alive at one time since the start or the last `reset_peak`."""
    return sum(heap.peak for heap in _heaps)


def reset_peak() -> None:
    """Let `peak_bytes` begin again from what is alive now."""
    for heap in _heaps:
        heap.peak = heap.live


def cached_bytes() -> int:
    """Bytes of freed blocks kept for reuse."""
    return sum(heap.cached for heap in _heaps)


@clearing
def trim() -> None:
    """Give freed blocks back to the system."""
    for heap in _heaps:
        heap.trim()


def fill(target: np.ndarray, view: np.ndarray) -> None:
    """Copy `view` into the dense array `target` of its shape and dtype."""
    if view.nbytes >= _LARGE:
        from weft._engine.codegen.library import (
            strided_copy,
        )  # which a process with small arrays does without

        if strided_copy.copy(target.ctypes.data, view):
            return
    target[...] = view


def block_address(block: object) -> int:
    """The address of the memory of a block of the native heap, of which native code holds but the object in its header."""
    return id(block) + ALIGNMENT


def address(held: Any) -> int:
    """The address of the memory of a buffer, or of a block."""
    return held.ptr if type(held) is Buffer else block_address(held)


def new_block(nbytes: int) -> object | None:
    """A block of the native heap; None if there is no memory, or no such heap."""
    return _heaps[-1].take(nbytes) if isinstance(_heaps[-1], NativeHeap) else None


class Buffer:
    """An owner of `nbytes` bytes at address `ptr`, aligned to 64 bytes.

    >>> x = Buffer(24).view("f4", (2, 3))
    >>> x.shape, x.ctypes.data % 64
    ((2, 3), 0)
    """

    __slots__ = (
        "__weakref__",
        "_owner",
        "nbytes",
        "ptr",
    )  # and no `__del__`: an interrupt inside of one would be lost

    def __init__(self, nbytes: int) -> None:
        owner = _heaps[-1].take(nbytes) if nbytes >= 0 else None
        if owner is None:
            _no_memory(nbytes)
        self._owner = owner
        self.ptr = owner.ptr if isinstance(owner, _Lease) else block_address(owner)
        self.nbytes = nbytes

    @classmethod
    def from_numpy(cls, array: np.ndarray, copy: bool = False) -> Buffer:
        """Return a buffer that holds the elements of `array` in row-major order.

        It shares the array's memory, and keeps the array alive, when that is dense and aligned and `copy` is false.
        """
        dense = array.flags.c_contiguous and array.dtype.isnative
        if dense and not copy and array.ctypes.data % ALIGNMENT == 0 and array.nbytes:
            return cls._borrow(array.ctypes.data, array.nbytes, array)
        buffer = cls(array.nbytes)
        if array.nbytes:
            native = array.dtype.newbyteorder("=")
            fill(
                buffer.view(native, array.shape),
                array if array.dtype.isnative else array.astype(native),
            )
        return buffer

    @classmethod
    def _borrow(cls, ptr: int, nbytes: int, owner: object) -> Buffer:
        buffer = cls.__new__(cls)
        buffer._owner, buffer.ptr, buffer.nbytes = owner, ptr, nbytes
        return buffer

    @classmethod
    def of_block(cls, block: object, nbytes: int) -> Buffer:
        """The buffer over a block of the native heap."""
        return cls._borrow(block_address(block), nbytes, block)

    def owns_memory(self) -> bool:
        """Return whether no view, slice or other array reads the memory of this buffer."""
        return isinstance(self._owner, _Lease) or self.block() is not None or self._owns_numpy()

    def block(self) -> Any:
        """The block of the native heap that this is all of, and that nothing else holds, as queued programs may; else None."""
        is_sole = block_address(self._owner) == self.ptr and is_held_at_most(self._owner, 1)
        return self._owner if is_sole else None

    def _owns_numpy(self) -> bool:
        """Whether the memory is that of a NumPy array that is not used elsewhere: creation functions make such arrays, or views of them."""
        if type(self._owner) is not np.ndarray or not is_held_at_most(self._owner, 1):
            return False
        array: Any = self._owner
        while array.base is not None:
            if type(array.base) is not np.ndarray or not is_held_at_most(array.base, 1):
                return False
            array = array.base
        return bool(array.flags.owndata and array.flags.writeable)

    def copy(self) -> Buffer:
        """Return a buffer of its own with the same bytes."""
        other = Buffer(self.nbytes)
        ctypes.memmove(other.ptr, self.ptr, self.nbytes)
        return other

    def slice(self, offset: int, nbytes: int) -> Buffer:
        """Return a buffer over a part of this one, which it keeps alive; it is as aligned as `offset` is."""
        self._check(offset, nbytes, "slice")
        return Buffer._borrow(self.ptr + offset, nbytes, self)

    def view(self, dtype: Any, shape: Sequence[int], offset: int = 0) -> np.ndarray:
        """Return a writable dense NumPy array over the memory; it keeps the buffer alive."""
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
    """The type of so many bytes, which would be garbage in a cycle as soon as the last view is gone."""
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
    """Return the size class: multiples of 64 up to 4 KiB, then four to each octave, whole pages from 1 MiB on."""
    if nbytes <= 4096:
        return max(_up(nbytes, ALIGNMENT), ALIGNMENT)
    if nbytes >= _LARGE:
        return _up(nbytes, _PAGE)
    return _up(nbytes, 1 << (nbytes - 1).bit_length() - 3)
