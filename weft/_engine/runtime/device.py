"""Queries of devices, over all backends.

In:   the name of a backend; without one, `config.backend`.
Out:  `Device` objects; the same objects for the life of the process.
Next: `backends.base` defines `Device`.
"""

from __future__ import annotations

from typing import Any

from weft._engine import backends
from weft._engine.backends.base import Device
from weft._engine.util.config import config
from weft._engine.util.messages.quantities import quantity


def devices(backend: Any = None) -> list[Device]:
    """Return all devices of a backend, in all processes. Raises RuntimeError for an unknown `backend`.

    >>> first = devices()[0]
    >>> first.platform, first.device_kind, first.id
    ('cpu', 'cpu', 0)
    """
    return backends.get(backend).devices()


def local_devices(
    process_index: int | None = None, backend: Any = None, host_id: int | None = None
) -> list[Device]:
    """Return the devices of one process (this one by default).

    Raises ValueError for a process that does not exist, RuntimeError for an unknown `backend`.

    >>> local_devices() == devices()
    True
    """
    client = backends.get(backend)
    rank = host_id if process_index is None else process_index
    rank = client.process_index() if rank is None else rank
    if rank not in process_indices(backend):
        raise ValueError(
            f"Unknown process_index {rank}: this job has {quantity(process_count(backend), 'process')}."
        )
    return [d for d in client.devices() if d.process_index == rank]


def device_count(backend: Any = None) -> int:
    """Return the number of devices of all processes. Raises RuntimeError for an unknown `backend`.

    >>> device_count() == len(devices())
    True
    """
    return len(devices(backend))


def local_device_count(backend: Any = None) -> int:
    """Return the number of devices of this process. Raises RuntimeError for an unknown `backend`.

    >>> local_device_count() == len(local_devices())
    True
    """
    return len(local_devices(backend=backend))


def process_index(backend: Any = None) -> int:
    """Return the number of this process among the processes that share the devices."""
    return backends.get(backend).process_index()


def process_count(backend: Any = None) -> int:
    """Return the number of processes that share the devices."""
    return backends.get(backend).process_count()


def process_indices(backend: Any = None) -> list[int]:
    """Return the numbers of all processes."""
    return list(range(process_count(backend)))


host_id, host_count, host_ids = process_index, process_count, process_indices


def default_backend() -> str:
    """Return the name of the backend that runs programs without placed arguments.

    >>> default_backend()
    'cpu'
    """
    return backends.get().platform


def default_device() -> Device:
    """Return the device of uncommitted arrays.

    It is `config.default_device`, or the first device of the platform that it names, or of the default backend.
    """
    chosen = config.default_device
    return chosen if isinstance(chosen, Device) else local_devices(backend=chosen)[0]
