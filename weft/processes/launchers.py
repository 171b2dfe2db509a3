"""Which process this is, as the environment says it.

In:   what was given explicitly, environment variables.
Out:  `Found`: the coordinator's address, the number of processes and of this one; None for what nobody says.
"""

from __future__ import annotations

import os

from weft.util.record import record


@record
class Found:
    """Where the coordinator is, and which process this is of how many."""
    address: str | None = None
    size: int | None = None
    rank: int | None = None
    is_served: bool = False                     # the coordinator is the launcher's


def find(method: str | None = None, address: str | None = None, size: int | None = None, rank: int | None = None) -> Found:
    """What was given, completed by the environment."""
    named = Found(_text("COORDINATOR_ADDRESS"), _number("NUM_PROCESSES"), _number("PROCESS_ID"),
                  bool(os.environ.get("WEFT_COORDINATOR_SERVED")))
    served = named.is_served and address in (None, named.address)
    return Found(named.address if address is None else address, named.size if size is None else size,
                 named.rank if rank is None else rank, served)


def _text(name: str) -> str | None:
    return os.environ.get(f"WEFT_{name}") or os.environ.get(f"JAX_{name}") or None


def _number(name: str) -> int | None:
    text = _text(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise ValueError(f"the environment variable WEFT_{name} (or JAX_{name}) is a number, got {text!r}")
    return int(text)
