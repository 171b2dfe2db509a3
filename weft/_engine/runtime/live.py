"""Which arrays are alive, and what they hold on which device.

Nothing is written down when an array is made: the garbage collector knows all arrays there are.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator

from weft._engine import backends
from weft._engine.backends.base import Device
from weft._engine.runtime.array import Array


def live_arrays(platform: str | None = None) -> list[Array]:
    """All arrays of this process that are alive and not deleted; with `platform`, those of that backend.

    >>> x = wnp.ones(3)
    >>> any(x is y for y in weft.live_arrays())
    True
    """
    wanted = None if platform is None else backends.get(platform)
    known = gc.get_referrers(
        Array
    )  # not all objects: a tuple that another thread is making must not be held by this one meanwhile
    arrays = [
        x for x in known if type(x) is Array and getattr(x, "_buffer", None) is not None
    ]  # one that is being made has none yet
    return [x for x in arrays if wanted in (None, x._spec.backend)]


def describe_largest() -> str:
    """Describe the largest arrays on devices with memories of their own, for errors; an empty text if there are none."""
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
    """What devices hold, as devices with memories of their own would: (device, array, bytes), a shared block once."""
    seen: set[tuple] = set()
    for x in live_arrays(platform):
        spec = x._spec
        nbytes = spec.nbytes
        for split in spec.splits:
            nbytes //= split or 1
        for holder in spec.sharding.device_assignment:
            key = (holder, spec.backend.identity(x._held()), spec.splits)
            if nbytes and key not in seen:
                seen.add(key)
                yield holder, x, nbytes
