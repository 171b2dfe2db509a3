"""Transfer guards: the settings `transfer_guard` and `transfer_guard_*` for transfers to a device, or between devices.

In:   a value that is about to be moved, and its destination. Transfers by `device_put` are explicit; all others are implicit.
Out:  nothing, a record of the logger `weft.transfers`, or a `DeviceRuntimeError`.
Laws: CPU devices hold values in host memory, so reading them is not a transfer: `transfer_guard_device_to_host` is accepted and has no
      effect.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from weft._engine.util.config import config
from weft._engine.util.errors import DeviceRuntimeError
from weft._engine.util.events import report


class _TransferContext(threading.local):
    #: guard levels that permit the current transfers of this thread
    passing: tuple = (None, "allow")


_here = _TransferContext()


class AllowTransfers:
    """A context that permits transfers under guards of the levels `passing`."""

    def __init__(self, passing: tuple):
        self._passing = passing

    def __enter__(self) -> None:
        self._outer, _here.passing = _here.passing, self._passing

    def __exit__(self, *exc_info: object) -> None:
        _here.passing = self._outer


EXPLICIT = (None, "allow", "log", "disallow")
# for values that are part of a program, or that stay where they are
NO_TRANSFER = (*EXPLICIT, "log_explicit", "disallow_explicit")


def has_guard() -> bool:
    """Return whether any guard is set."""
    return bool(
        config.transfer_guard_host_to_device
        or config.transfer_guard_device_to_device
        or config.transfer_guard
    )


def to_device(aval: Any, sharding: Any) -> None:
    """Check the guard of a transfer from the host to `sharding`."""
    _check(
        "host-to-device",
        config.transfer_guard_host_to_device or config.transfer_guard,
        aval,
        sharding,
    )


def between_devices(specs: Sequence[Any], targets: Sequence[Any]) -> None:
    """Check the guards of moves of arrays from `specs` to `targets`, if their devices differ. Resharding on the same devices is free."""
    for have, target in zip(specs, targets):
        if have.sharding.device_set != target.sharding.device_set:
            _check(
                "device-to-device",
                config.transfer_guard_device_to_device or config.transfer_guard,
                have.aval,
                target.sharding,
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
