"""Limits on GPU kernels; weft compiles none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def artificial_shared_memory_limit(limit: int) -> Iterator[None]:
    """Limit the shared memory of GPU kernels compiled in the context to `limit` bytes; without effect, because weft has no
    GPU kernels.

    >>> from weft.experimental.mosaic.gpu.core import artificial_shared_memory_limit
    >>> with artificial_shared_memory_limit(1 << 16): pass
    """
    yield
