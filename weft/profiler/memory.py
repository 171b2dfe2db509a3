"""Live memory per virtual device, in the format of pprof.

A virtual device counts the memory that a real device would need: its shard of every live array,
including replicas, although the virtual devices of a process share one copy. Samples have the
labels `device` and `kind`; their stack is the type of the arrays.
"""

from __future__ import annotations

import os
from collections import Counter

from weft._engine.runtime.live_arrays import device_memory
from weft.profiler import pprof


def device_memory_profile(backend: str | None = None) -> bytes:
    """Return the memory of live arrays on each device, as a gzipped profile for `pprof` and
    compatible tools.

    >>> import gzip, weft, weft.numpy as wnp
    >>> x = wnp.ones(12345)
    >>> b"float32[12345]" in gzip.decompress(device_memory_profile())
    True
    """
    counts: Counter = Counter()
    sizes: Counter = Counter()
    for device, array, nbytes in device_memory(backend):
        key = (f"{device.platform}:{device.id}", array.aval.str_short())
        counts[key] += 1
        sizes[key] += nbytes
    samples = [
        pprof.Sample((what,), (counts[key], sizes[key]), {"kind": "buffer", "device": name})
        for key in sorted(counts)
        for name, what in [key]
    ]
    return pprof.encode([("allocations", "count"), ("space", "bytes")], samples, "space")


def save_device_memory_profile(filename: str | os.PathLike, backend: str | None = None) -> None:
    """Write `device_memory_profile()` to a file; `go tool pprof -tags FILE` shows the bytes of each device."""
    with open(filename, "wb") as file:
        file.write(device_memory_profile(backend))
