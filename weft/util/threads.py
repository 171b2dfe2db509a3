"""How many threads the user lets a process have."""

from __future__ import annotations

import os


def wanted() -> int:
    """WEFT_NUM_THREADS, else the CPUs that this process may use.

    >>> wanted() >= 1
    True
    """
    text = os.environ.get("WEFT_NUM_THREADS", "").strip()
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if text.isdigit() and int(text) >= 1:
        return int(text)
    raise ValueError(f"WEFT_NUM_THREADS must be a positive integer, got {text!r}; unset it to use every CPU")
