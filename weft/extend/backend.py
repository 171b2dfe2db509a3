"""Backends as `jax.extend.backend` names them: which there are, and what they compiled.

Next to read: `weft._engine.backends`, which makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._engine import backends as _backends
from weft._engine.api.arrays import clear_caches
from weft._engine.backends.base import Backend
from weft._engine.runtime.array import default_sharding
from weft._engine.runtime.device import Device
from weft._engine.util.refusals import refusal


def get_backend(platform: str | Backend | None = None) -> Backend:
    """The backend of a platform, the default one for None; RuntimeError for one that is not there.

    >>> get_backend().platform
    'cpu'
    """
    return platform if isinstance(platform, Backend) else _backends.get(platform)


def backends() -> dict[str, Backend]:
    """The backends that are in use, by their names.

    >>> list(backends())
    ['cpu']
    """
    found = get_backend()
    return {found.platform: found}


def get_default_device() -> Device:
    """The device that holds arrays which nobody places.

    >>> get_default_device() == weft.devices()[0]
    True
    """
    return default_sharding().device


def clear_in_memory_compilation_cache() -> None:
    """Forget compiled programs; those on disk stay."""
    clear_caches()


def clear_backends(_crash: bool = False) -> None:
    """Forget compiled programs. Devices stay: arrays hold them."""
    clear_caches()


def backend_xla_version(platform: str | None = None) -> int | None:
    """None: no XLA runs here."""
    return None


def register_backend_cache(cache: Any, for_what: str) -> None:
    """Have `cache.cache_clear()` called when compiled programs are forgotten."""
    from weft._engine.util.state import clearing

    clearing(cache.cache_clear)


def register_backend_factory(name: str, factory: Callable, **_options: Any) -> None:
    """A backend of another runtime: NotImplementedError."""
    raise refusal(__name__, "register_backend_factory")


def get_compile_options(
    num_replicas: int,
    num_partitions: int,
    device_assignment: Any = None,
    env_options_overrides: Any = None,
    fdo_profile: Any = None,
    detailed_logging: bool = True,
    backend: Any = None,
) -> Any:
    """XLA's options of compilation: NotImplementedError."""
    raise refusal(__name__, "get_compile_options")
