"""The heap of array buffers in native code, for compiled dispatch and for `runtime.buffer`.

In:   nothing; compiled from `heap.ll` on first use.
Out:  `symbols()`: `weft_alloc(i64) -> ptr`, `weft_free(ptr)`, `weft_heap_trim()` and the i64 counters `weft_heap_live`,
      `weft_heap_peak`, `weft_heap_cached`, `weft_heap_limit`; `runtime.buffer.use_native` takes them.
Laws: callers hold the GIL; what `weft.runtime.buffer` says of alignment, caching and counting holds here too. The cache
      keeps nothing until somebody sets `weft_heap_limit`.
"""

from __future__ import annotations

import ctypes
import functools
import sys

from weft.codegen._link import Part, link, text_of

_EXPORTS = (
    "weft_alloc",
    "weft_free",
    "weft_heap_trim",
    "weft_heap_live",
    "weft_heap_peak",
    "weft_heap_cached",
    "weft_heap_limit",
    "weft_heap_map_flags",
)
_LIBC = ("aligned_alloc", "free", "mmap", "munmap", "madvise")


@functools.cache
def symbols() -> dict[str, int]:
    """Return name -> address of the heap's functions and counters; compiles them on the first call."""
    addresses = link([Part("heap", lambda: text_of("heap.ll"), _EXPORTS)], libc=_LIBC)
    if sys.platform == "darwin":
        ctypes.c_int32.from_address(addresses["weft_heap_map_flags"]).value = 0x1002
    return addresses
