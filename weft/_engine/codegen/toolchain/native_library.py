"""Native library modules: compiled once per machine, cached on disk, never unloaded.

In:   modules: a name, a function that writes the IR (called only if no object is on disk), the
      names to export; and addresses or libc names for the declarations in the texts.
Out:  addresses that stay valid until the process ends: workers may still run this code during
      interpreter shutdown.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from weft._engine.codegen.toolchain import loader, objects, target
from weft._engine.util import cache

# threads of `start_compiling`, by module names
_compiling_threads: dict[tuple[str, ...], threading.Thread] = {}


class LibraryModule(NamedTuple):
    """A module of a library: a name that determines its text, the writer of the text, and the
    exported symbols."""

    name: str
    text: Callable[[], str]
    exports: Sequence[str]
    quick: bool = False

    def as_draft(self) -> LibraryModule:
        """Return the unoptimized variant of the module, which has another name."""
        return self if self.quick else self._replace(name=f"{self.name} draft", quick=True)


def link(
    parts: Sequence[LibraryModule],
    imports: Mapping[str, int] | None = None,
    libc: Sequence[str] = (),
) -> dict[str, int]:
    """Link modules for the current target and return the addresses of all exports; the code is
    never unloaded.

    A part may import the exports of earlier parts. An object on disk is found by the part's name
    and the fingerprint of this code generator.
    """
    process = loader.process()
    addresses = {
        symbol: ctypes.cast(getattr(process, symbol), ctypes.c_void_p).value or 0 for symbol in libc
    }
    addresses |= imports or {}
    exports = [symbol for part in parts for symbol in part.exports]
    image = objects.image([request(part) for part in parts])
    if image is not None:
        code = _keep_linked_code(loader.place(image, addresses.get))
        return {symbol: code[symbol] for symbol in exports}
    for part in parts:
        code = _keep_linked_code(target.link(objects.take(request(part)), part.exports, addresses))
        addresses |= {symbol: code[symbol] for symbol in part.exports}
    return {symbol: addresses[symbol] for symbol in exports}


def _keep_linked_code(code: Any) -> Any:
    """Keep linked code alive until the process ends, and return it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    return code


def text_of(name: str) -> str:
    """Return the text of a module of `codegen.runtime`."""
    with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "runtime", name)) as file:
        return file.read()


def request(part: LibraryModule) -> objects.ObjectRequest:
    """Return the object to `objects.prepare` before a part is linked."""
    return objects.ObjectRequest(_key(part), part.text, part.quick)


def start_compiling(parts: Sequence[LibraryModule], wait: bool = False) -> bool:
    """Return whether `parts` can be linked without compiling; else compile them in a thread.

    With `wait`, wait for that thread; process exit waits for it, too. After a failure of the thread
    the result is True, and linking raises the error.
    """
    names = tuple([part.name for part in parts])
    if names not in _compiling_threads:
        missing = [
            part_request
            for part_request in map(request, parts)
            if not objects.is_there(part_request)
        ]
        if not missing:
            return True
        _compiling_threads[names] = threading.Thread(target=_compile_all, args=(missing,))
        _compiling_threads[names].start()
    if wait:
        _compiling_threads[names].join()
    return not _compiling_threads[names].is_alive()


def _compile_all(requests: Sequence[objects.ObjectRequest]) -> None:
    with contextlib.suppress(Exception):
        for module_request in requests:
            compile_concurrently(module_request)


def compile_concurrently(request: objects.ObjectRequest) -> None:
    """Compile a module in a background thread; other threads may compile at the same time."""
    objects.keep(request, target.emit_in_background(request.text(), request.quick))


def is_on_disk(part: LibraryModule) -> bool:
    """Return whether a part is on disk."""
    return cache.has(_key(part))


def _key(part: LibraryModule) -> str:
    return cache.key(target.current().identity, "library", part.name)
