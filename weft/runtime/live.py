"""Which arrays are alive, and what they hold on which device.

Nothing is written down when an array is made: the garbage collector knows all arrays there are.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

from weft.runtime import device
from weft.runtime.array import Array


def live_arrays(platform: str | None = None) -> list[Array]:
    """All arrays of this process that are alive and not deleted.

    >>> import weft, weft.numpy as wnp
    >>> x = wnp.ones(3)
    >>> any(x is y for y in weft.live_arrays())
    True
    """
    device.check_backend(platform)
    return [x for x in gc.get_objects() if type(x) is Array and x._buffer is not None]


def device_memory() -> Iterator[tuple[device.Device, Array, int]]:
    """What devices hold, as devices with memories of their own would: (device, array, bytes), a shared block once."""
    seen: set[tuple] = set()
    for x in live_arrays():
        spec = x._spec
        nbytes = spec.nbytes
        for split in spec.splits:
            nbytes //= split or 1
        for holder in spec.sharding.device_assignment:
            key = (holder.id, x._live().ptr, spec.splits)
            if nbytes and key not in seen:
                seen.add(key)
                yield holder, x, nbytes
