"""Objects: machine code of modules, from memory, from disk, or compiled now, several in parallel.

In:   requests: a key (see `cache.key`), and a function that writes the module's text, called only if needed.
Out:  `take(request)`: the object. `prepare(requests)` compiles missing ones in parallel for `take` to find.
      `image(requests)`: several linked together, kept on disk as such.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from weft._engine.codegen.toolchain import loader, target
from weft._engine.util import cache


class ObjectRequest(NamedTuple):
    """A module that is wanted; `quick` for code in which little time is spent: it is not optimized."""

    key: str
    text: Callable[[], str]
    quick: bool = False


_prepared: dict[str, bytes] = {}


def prepare(
    requests: Iterable[ObjectRequest], threads: int, meanwhile: Callable[[], object] | None = None
) -> None:
    """Compile the modules that are neither prepared nor on disk, on up to `threads` threads; give what takes long first.

    What is to be done `meanwhile` is done while others still compile, if anything is compiled at all.
    """
    optimized_first = sorted(requests, key=lambda request: request.quick)
    wanted = {request.key: request for request in optimized_first if not is_there(request)}
    if wanted:
        modules = [(request.text, request.quick) for request in wanted.values()]
        for request, data in zip(
            wanted.values(), target.emit_objects(modules, target.current(), threads, meanwhile)
        ):
            keep(request, data)


def is_there(request: ObjectRequest) -> bool:
    """Whether a module need not be compiled."""
    return request.key in _prepared or cache.has(request.key)


def keep(request: ObjectRequest, data: bytes) -> None:
    """Have the object of a module ready for `take`."""
    _prepared[request.key] = data
    cache.later(request.key, lambda: data)


def take(request: ObjectRequest) -> bytes:
    """The object of a module; a prepared one is handed out once."""
    data = _prepared.pop(request.key, None)
    if data is None:
        data = cache.read(request.key)
    if data is None:
        made = data = target.emit_object(request.text(), target.current(), request.quick)
        cache.later(request.key, lambda: made)
    return data


def image(requests: Sequence[ObjectRequest]) -> loader.Image | None:
    """Modules linked together, each after those that it names; None where our linker cannot do it."""
    key = cache.key("image", *[request.key for request in requests])
    data = cache.read(key)
    if data is not None:
        return loader.Image(*marshal.loads(data))
    try:
        made = loader.link([take(request) for request in requests]) if loader.works_here() else None
    except loader.Unsupported:
        return None
    if made is not None:
        cache.later(key, lambda: marshal.dumps(tuple(made)))
    return made
