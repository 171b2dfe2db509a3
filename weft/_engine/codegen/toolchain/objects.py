"""Objects: machine code of modules, from memory, from disk, or newly compiled by several threads.

In:   requests: a key (see `cache.key`), and a function that writes the module's text, called only
      if needed.
Out:  `take(request)`: the object. `prepare(requests)` compiles missing objects in parallel, for
      later calls of `take`. `image(requests)`: several objects linked together, cached on disk as
      one image.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from weft._engine.codegen.toolchain import loader, target
from weft._engine.util import cache


class ObjectRequest(NamedTuple):
    """A request for the object of a module. A `quick` module is not optimized, because little time
    is spent in it."""

    key: str
    text: Callable[[], str]
    quick: bool = False


_prepared: dict[str, bytes] = {}


def prepare(
    requests: Iterable[ObjectRequest], threads: int, meanwhile: Callable[[], object] | None = None
) -> None:
    """Compile the modules that are neither prepared nor on disk, optimized modules first, on up to
    `threads` threads.

    If anything is compiled, the caller runs `meanwhile` once no module is left for it.
    """
    optimized_first = sorted(requests, key=lambda request: request.quick)
    missing = {request.key: request for request in optimized_first if not is_there(request)}
    if missing:
        modules = [(request.text, request.quick) for request in missing.values()]
        for request, data in zip(
            missing.values(), target.emit_objects(modules, target.current(), threads, meanwhile)
        ):
            keep(request, data)


def is_there(request: ObjectRequest) -> bool:
    """Return whether a module is prepared or on disk."""
    return request.key in _prepared or cache.has(request.key)


def keep(request: ObjectRequest, data: bytes) -> None:
    """Store the object of a module for `take` and on disk."""
    _prepared[request.key] = data
    cache.write_later(request.key, lambda: data)


def take(request: ObjectRequest) -> bytes:
    """Return the object of a module, compiled if necessary; a prepared one is removed."""
    data = _prepared.pop(request.key, None)
    if data is None:
        data = cache.read(request.key)
    if data is None:
        compiled = data = target.emit_object(request.text(), target.current(), request.quick)
        cache.write_later(request.key, lambda: compiled)
    return data


def image(requests: Sequence[ObjectRequest]) -> loader.Image | None:
    """Return modules linked together, each after the modules it refers to; None if `loader` does
    not support them."""
    key = cache.key("image", *[request.key for request in requests])
    data = cache.read(key)
    if data is not None:
        return loader.Image(*marshal.loads(data))
    try:
        linked = (
            loader.link([take(request) for request in requests])
            if loader.supports_machine()
            else None
        )
    except loader.UnsupportedObjectError:
        return None
    if linked is not None:
        cache.write_later(key, lambda: marshal.dumps(tuple(linked)))
    return linked
