"""The guards of transfers: what the settings `transfer_guard` and its kin say when values move to a device, or between devices.

In:   a value that is about to be moved, and where it goes. What `device_put` moves is moved explicitly; all else is implicit.
Out:  nothing, a record of the logger `weft.transfers`, or a `DeviceRuntimeError`.
Laws: values of the CPU's devices are in the memory of the host, so reading them is no transfer: `transfer_guard_device_to_host` is
      accepted, and never has anything to say.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from weft._engine.util.config import config
from weft._engine.util.errors import DeviceRuntimeError
from weft._engine.util.events import report


class _Here(threading.local):
    passing: tuple = (None, "allow")  # the levels that allow the current transfers of this thread


_here = _Here()


class Passing:
    """Guards of the levels `passing` let the transfers of this block pass."""

    def __init__(self, passing: tuple):
        self._passing = passing

    def __enter__(self) -> None:
        self._outer, _here.passing = _here.passing, self._passing

    def __exit__(self, *exc_info: object) -> None:
        _here.passing = self._outer


EXPLICIT = (None, "allow", "log", "disallow")
NO_TRANSFER = (
    *EXPLICIT,
    "log_explicit",
    "disallow_explicit",
)  # what is part of a program, or stays where it was


def guarded() -> bool:
    """Whether any guard is set."""
    return bool(
        config.transfer_guard_host_to_device
        or config.transfer_guard_device_to_device
        or config.transfer_guard
    )


def to_device(aval: Any, sharding: Any) -> None:
    """A value of the host becomes an array."""
    _check(
        "host-to-device",
        config.transfer_guard_host_to_device or config.transfer_guard,
        aval,
        sharding,
    )


def between_devices(specs: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Arrays of layouts `specs` are moved to other devices where `wanted` says so; another layout on the same ones is computed."""
    for have, want in zip(specs, wanted):
        if have.sharding.device_set != want.sharding.device_set:
            _check(
                "device-to-device",
                config.transfer_guard_device_to_device or config.transfer_guard,
                have.aval,
                want.sharding,
            )


def _check(kind: str, level: str | None, aval: Any, sharding: Any) -> None:
    if level in _here.passing or level is None:
        return
    if level.startswith("log"):
        report("transfers", True, "%s transfer: aval=%s, dst_sharding=%s", kind, aval, sharding)
        return
    raise DeviceRuntimeError(
        f"INVALID_ARGUMENT: Disallowed {kind} transfer: aval={aval!r}, dst_sharding={sharding}\n"
        "  A transfer guard forbids it. Move values with weft.device_put, or change the guard (weft.transfer_guard)."
    )
