"""The names of `jax.extend.backend`: the available backends, and their caches of compiled programs.

Next to read: `weft._engine.backends`, which creates them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._engine import backends as _backends
from weft._engine.api.arrays import clear_caches
from weft._engine.backends.base import Backend
from weft._engine.backends.pjrt.plugins import register_plugin as register_plugin
from weft._engine.runtime.array import default_sharding
from weft._engine.runtime.device import Device
from weft._engine.util.refusals import refusal


def get_backend(platform: str | Backend | None = None) -> Backend:
    """Return the backend of a platform, or the default backend for None. Raise RuntimeError if it is not available.

    >>> get_backend().platform
    'cpu'
    """
    return platform if isinstance(platform, Backend) else _backends.get(platform)


def backends() -> dict[str, Backend]:
    """Return the backends in use, by name.

    >>> list(backends())
    ['cpu']
    """
    backend = get_backend()
    return {backend.platform: backend}


def get_default_device() -> Device:
    """Return the default placement: the device of arrays without an explicit one.

    >>> get_default_device() == weft.devices()[0]
    True
    """
    return default_sharding().device


def clear_in_memory_compilation_cache() -> None:
    """Drop all compiled programs in memory; those on disk stay."""
    clear_caches()


def clear_backends(_crash: bool = False) -> None:
    """Drop all compiled programs in memory. Devices stay because arrays refer to them."""
    clear_caches()


def backend_xla_version(platform: str | None = None) -> int | None:
    """Return None: weft does not use XLA."""
    return None


def register_backend_cache(cache: Any, for_what: str) -> None:
    """Call `cache.cache_clear()` whenever compiled programs are dropped."""
    from weft._engine.util.dispatch_state import on_clear_caches

    on_clear_caches(cache.cache_clear)


def register_backend_factory(name: str, factory: Callable, **_options: Any) -> None:
    """Raise NotImplementedError: backends of other runtimes are not supported."""
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
    """Raise NotImplementedError: XLA's compile options are not supported."""
    raise refusal(__name__, "get_compile_options")
