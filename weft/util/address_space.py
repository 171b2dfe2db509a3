"""Limits of the address space: what to say where the system refuses memory.

In:   the number of bytes that were asked for, and what for.
Out:  an `OutOfMemoryError` with both, the limit of the process if there is one, and advice.
"""

from __future__ import annotations

import errno

from weft.util.errors import OutOfMemoryError

try:
    import resource
except ImportError:                              # Windows has no such limits
    resource = None

_REFUSALS = ("failed to map segment", "cannot allocate memory", "cannot create cache", "cannot map zero-fill pages")


def limit_text() -> str:
    """Return a sentence on the limit of the address space, empty if there is none."""
    limit = -1 if resource is None else resource.getrlimit(resource.RLIMIT_AS)[0]
    if resource is None or limit == resource.RLIM_INFINITY:
        return ""
    return f" The process may have {limit} bytes of addresses (ulimit -v); raise that limit."


def refused(nbytes: int, purpose: str) -> OutOfMemoryError:
    """Return the error for `nbytes` of memory that the system did not give."""
    advice = limit_text() or " Free memory, or use a machine with more."
    return OutOfMemoryError(f"cannot allocate {nbytes} bytes for {purpose}.{advice}")


def is_refusal(error: OSError) -> bool:
    """Whether an error of the system, or of its loader of libraries, says that there is no memory."""
    return error.errno == errno.ENOMEM or any(text in str(error).lower() for text in _REFUSALS)
