"""Limits on GPU kernels, of which there are none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def artificial_shared_memory_limit(limit: int) -> Iterator[None]:
    """Context manager: GPU kernels that are compiled in the block use at most `limit` bytes of shared memory, which holds for the none
    that there are.

    >>> from weft.experimental.mosaic.gpu.core import artificial_shared_memory_limit
    >>> with artificial_shared_memory_limit(1 << 16): pass
    """
    yield
