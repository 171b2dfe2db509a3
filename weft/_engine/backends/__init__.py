"""Backends, which run the local program of each device. All code above this package works with any of them.

In:   a local program with explicit collectives, the axes of its mesh, and the layout of its arguments and results
      (`base.LocalProgram`).
Out:  a `base.LoadedLocalProgram`, which takes and returns buffers. A backend also lists its devices, transfers values to and from them,
      provides the partitioner's costs of communication (`cost_model`), and identifies everything that its code depends on (`cache_key`).
How:  `WEFT_BACKEND` (or `config.backend`) names the default; `jit(..., backend=...)` chooses one for a function; `register` adds one.
Laws: a buffer belongs to the backend that created it, and is opaque to all other code. Any program runs on any backend, with equal results
      up to rounding. No pass above depends on which backend it is.
Next: `base` defines the interface; `cpu` is the compiler for this machine; `reference` computes with NumPy, device by device; `pjrt`
      drives accelerators through plugins.
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
    """Import the module that locates PJRT plugins."""
    from weft._engine.backends.pjrt import plugins

    return plugins


def describe_plugins() -> list[str]:
    """Return a line for each PJRT plugin: its platform and path, and its devices or the reason why it is not used."""
    base.find_accelerators()
    return load_plugins().describe_plugins() if base.has_plugins() else []


register("cpu", _cpu)
register("reference", _reference)
