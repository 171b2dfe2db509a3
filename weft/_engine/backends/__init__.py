"""Backends: what runs the program of each device. Everything above this room works with any of them.

In:   a local program with explicit collectives, the axes of its mesh, and how its arguments and results are laid out
      (`base.LocalProgram`).
Out:  a `base.Loaded`, which takes and gives buffers. A backend also says which devices there are, puts values on them and gets
      them back, states for the partitioner what communication costs (`cost_model`), and names all that its code depends on (`cache_key`).
How:  `WEFT_BACKEND` (or `config.backend`) names the default; `jit(..., backend=...)` chooses one for a function; `register` adds one.
Laws: a buffer belongs to the backend that made it, and is opaque to all others. Any program runs on any backend, with equal results
      up to rounding. No pass above asks which backend it is.
Next: `base` states the interface; `cpu` is the compiler for this machine; `reference` computes with NumPy, device by device; `pjrt` drives
      accelerators through plugins.
"""

from __future__ import annotations

from typing import Any

from weft._engine.backends import base
from weft._engine.backends.base import (
    Backend,
    device_of_dlpack,
    get,
    names,
    prepare,
    register,
    wait_for_effects,
)

__all__ = ["Backend", "device_of_dlpack", "get", "names", "prepare", "register", "wait_for_effects"]


def _cpu() -> Backend:
    from weft._engine.backends.cpu import CpuBackend

    return CpuBackend()


def _reference() -> Backend:
    from weft._engine.backends.reference import ReferenceBackend

    return ReferenceBackend()


def load_plugins() -> Any:
    """Import the module that finds PJRT plugins."""
    from weft._engine.backends.pjrt import plugins

    return plugins


def describe_plugins() -> list[str]:
    """Return a line for each PJRT plugin: its platform and path, and its devices or why it is not used."""
    base.find_accelerators()
    return load_plugins().describe_plugins() if base.has_plugins() else []


register("cpu", _cpu)
register("reference", _reference)
