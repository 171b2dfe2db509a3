"""The identity of a machine: equal for processes that can share memory."""

from __future__ import annotations

import contextlib
import os
import socket


def machine() -> str:
    """Return an identifier that is equal for all processes that can share memory.

    It names the host, its boot, and the namespaces of processes and shared memory.
    """
    boot = ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    namespaces = [_read_link(f"/proc/self/ns/{kind}") for kind in ("pid", "ipc")]
    return " ".join((socket.gethostname(), boot, *namespaces))


def _read_link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""
