"""Devices: the virtual devices of this process, and what can be asked of them.

In:   `config`'s number of virtual devices, read once, when the first device is asked for.
Out:  `Device` objects; one per virtual device, the same objects for the life of the process.
"""

from __future__ import annotations

import threading
from typing import Any

from weft.util import config

PLATFORM = "cpu"


class Memory:
    """A memory space of a device."""
    __slots__ = ("device", "kind")

    def __init__(self, device: Device, kind: str):
        self.device = device
        self.kind = kind

    def addressable_by_devices(self) -> list[Device]:
        """The devices that can read and write it."""
        return [self.device]

    def __repr__(self) -> str:
        return f"Memory({self.device!r}, kind={self.kind!r})"


class Client:
    """The engine that drives the devices of one platform."""
    __slots__ = ()
    platform = PLATFORM
    platform_version = "weft"
    runtime_type = "weft"

    def devices(self) -> list[Device]:
        return devices()

    def local_devices(self) -> list[Device]:
        return local_devices()

    def device_count(self) -> int:
        return device_count()

    def process_index(self) -> int:
        return process_index()

    def __repr__(self) -> str:
        return f"Client(platform={self.platform!r})"


class Device:
    """A virtual device: one slot of a mesh, computing on the threads of its process.

    >>> first = devices()[0]
    >>> first, str(first), first.platform, first.device_kind
    (CpuDevice(id=0), 'TFRT_CPU_0', 'cpu', 'cpu')
    """
    __slots__ = ("__weakref__", "id", "local_hardware_id", "process_index")

    platform = PLATFORM
    device_kind = PLATFORM

    def __init__(self, id: int, process_index: int = 0, local_hardware_id: int | None = None):
        self.id = id
        self.process_index = process_index
        self.local_hardware_id = id if local_hardware_id is None else local_hardware_id

    @property
    def host_id(self) -> int:
        """The process that drives the device, under its older name."""
        return self.process_index

    task_id = host_id

    @property
    def is_addressable(self) -> bool:
        """Whether this process drives the device."""
        return self.process_index == process_index()

    @property
    def client(self) -> Client:
        """The engine that drives the device."""
        return _client

    def memory_stats(self) -> dict[str, int] | None:
        """None: the devices of a process share its memory. `runtime.buffer` counts what all of them hold."""
        return None

    def addressable_memories(self) -> list[Memory]:
        """The memory spaces that the device can use."""
        return [Memory(self, kind) for kind in ("device", "pinned_host", "unpinned_host")]

    def default_memory(self) -> Memory:
        """The memory space in which arrays are made."""
        return Memory(self, "device")

    def memory(self, kind: str) -> Memory:
        """The memory space named `kind`."""
        for space in self.addressable_memories():
            if space.kind == kind:
                return space
        raise ValueError(f"device {self!r} has no memory of kind {kind!r}")

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return f"TFRT_CPU_{self.id}"

    def __reduce__(self) -> tuple:
        return _device_of_id, (self.id,)


_client = Client()
_lock = threading.Lock()
_devices: tuple[Device, ...] = ()


def _all_devices() -> tuple[Device, ...]:
    global _devices
    if not _devices:
        with _lock:
            if not _devices:
                _devices = tuple(Device(i) for i in range(config.num_virtual_devices()))
    return _devices


def _device_of_id(id: int) -> Device:
    found = _all_devices()
    if id >= len(found):
        raise ValueError(f"device {id} does not exist: this process has {len(found)} devices.\n"
                         "  Set WEFT_NUM_DEVICES before the first use of weft.")
    return found[id]


def check_backend(backend: Any) -> None:
    """RuntimeError unless `backend` is None or names the platform there is."""
    if backend not in (None, PLATFORM) and not isinstance(backend, Client):
        raise RuntimeError(f"Unknown backend: {backend!r} requested, but no platforms that are instances of {backend} "
                           f"are present. Platforms present are: {PLATFORM}")


def devices(backend: str | None = None) -> list[Device]:
    """All devices of all processes. Raises RuntimeError for an unknown `backend`.

    >>> first = devices()[0]
    >>> first.platform, first.device_kind, first.id
    ('cpu', 'cpu', 0)
    """
    check_backend(backend)
    return list(_all_devices())


def local_devices(process_index: int | None = None, backend: str | None = None,
                  host_id: int | None = None) -> list[Device]:
    """The devices of one process (this one by default).

    Raises ValueError for a process there is not, RuntimeError for an unknown `backend`.

    >>> local_devices() == devices()
    True
    """
    check_backend(backend)
    wanted = host_id if process_index is None else process_index
    wanted = _process_index() if wanted is None else wanted
    if wanted not in process_indices():
        raise ValueError(f"Unknown process_index {wanted}: there are {process_count()} processes.")
    return [d for d in _all_devices() if d.process_index == wanted]


def device_count(backend: str | None = None) -> int:
    """Number of devices of all processes. Raises RuntimeError for an unknown `backend`.

    >>> device_count() == len(devices())
    True
    """
    check_backend(backend)
    return len(_all_devices())


def local_device_count(backend: str | None = None) -> int:
    """Number of devices of this process. Raises RuntimeError for an unknown `backend`.

    >>> local_device_count() == len(local_devices())
    True
    """
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """Number of this process among all that share the devices."""
    check_backend(backend)
    return 0


_process_index = process_index


def process_count(backend: str | None = None) -> int:
    """Number of processes that share the devices."""
    check_backend(backend)
    return 1


def process_indices(backend: str | None = None) -> list[int]:
    """Numbers of all processes."""
    return list(range(process_count(backend)))


host_id, host_count, host_ids = process_index, process_count, process_indices


def default_backend() -> str:
    """Name of the platform on which programs run."""
    return PLATFORM


def default_device() -> Device:
    """Where uncommitted arrays live: `config.default_device`, else the first device."""
    chosen = config.config.default_device
    return chosen if isinstance(chosen, Device) else devices()[0]
