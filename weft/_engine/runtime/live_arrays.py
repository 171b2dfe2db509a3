"""The live arrays of this process, and their memory on each device.

Creating an array records nothing: the arrays are found through the garbage collector.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator

from weft._engine import backends
from weft._engine.backends.base import Device
from weft._engine.runtime.array import Array


def live_arrays(platform: str | None = None) -> list[Array]:
    """Return all arrays of this process that are alive and not deleted; with `platform`, only arrays of that backend.

    >>> x = wnp.ones(3)
    >>> any(x is y for y in weft.live_arrays())
    True
    """
    backend = None if platform is None else backends.get(platform)
    # not gc.get_objects: it would hold tuples that another thread is still creating
    known = gc.get_referrers(Array)
    # an array under construction has no buffer yet
    arrays = [x for x in known if type(x) is Array and getattr(x, "_buffer", None) is not None]
    return [x for x in arrays if backend in (None, x._spec.backend)]


def describe_largest() -> str:
    """Return a table of the largest arrays on devices with their own memory, for errors; "" if there are none."""
    sizes = []
    for x in live_arrays():
        spec = x._spec
        if spec.backend.exchanges_values:
            nbytes = math.prod(spec.local_shape) * spec.storage_dtype.itemsize
            sizes.append(
                (
                    nbytes,
                    f"{x.aval.str_short()} on {', '.join(map(str, spec.sharding.device_assignment[:8]))}",
                )
            )
    rows = [
        f"    {nbytes / 2**20:10.1f} MiB  {what}"
        for nbytes, what in sorted(sizes, reverse=True)[:5]
        if nbytes
    ]
    return (
        "\n".join(["", "  The largest live arrays, on each of their devices:", *rows])
        if rows
        else ""
    )


def device_memory(platform: str | None = None) -> Iterator[tuple[Device, Array, int]]:
    """Yield (device, array, bytes) as if every device had its own memory; a shared block counts once per device."""
    seen: set[tuple] = set()
    for x in live_arrays(platform):
        spec = x._spec
        nbytes = spec.nbytes
        for split in spec.splits:
            nbytes //= split or 1
        for holder in spec.sharding.device_assignment:
            key = (holder, spec.backend.identity(x._checked_buffer()), spec.splits)
            if nbytes and key not in seen:
                seen.add(key)
                yield holder, x, nbytes
