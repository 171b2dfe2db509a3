"""Native library modules: compiled once per machine, kept on disk, loaded for the life of the process.

In:   modules: a name, a function that writes the IR (called only if no object is on disk), the names to export;
      and addresses or libc names for what the texts declare.
Out:  addresses that stay valid to the very end: workers may still run this code while the interpreter shuts down.
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

_apart: dict[tuple[str, ...], threading.Thread] = {}  # who compiles what nobody waits for


class LibraryModule(NamedTuple):
    """A module of a library: a name that determines its text, what writes that, and the symbols it exports."""

    name: str
    text: Callable[[], str]
    exports: Sequence[str]
    quick: bool = False

    def as_draft(self) -> LibraryModule:
        """The module, not optimized: other code, of another name."""
        return self if self.quick else self._replace(name=f"{self.name} draft", quick=True)


def link(
    parts: Sequence[LibraryModule],
    imports: Mapping[str, int] | None = None,
    libc: Sequence[str] = (),
) -> dict[str, int]:
    """Return the addresses of all that `parts` export for the current target; nothing is ever unloaded.

    A part may import what those before it export. An object on disk is found by the part's name and the fingerprint of
    this code generator.
    """
    process = loader.process()
    known = {
        symbol: ctypes.cast(getattr(process, symbol), ctypes.c_void_p).value or 0 for symbol in libc
    }
    known |= imports or {}
    exports = [symbol for part in parts for symbol in part.exports]
    image = objects.image([request(part) for part in parts])
    if image is not None:
        code = _kept(loader.place(image, known.get))
        return {symbol: code[symbol] for symbol in exports}
    for part in parts:
        code = _kept(target.link(objects.take(request(part)), part.exports, known))
        known |= {symbol: code[symbol] for symbol in part.exports}
    return {symbol: known[symbol] for symbol in exports}


def _kept(code: Any) -> Any:
    """Linked code, which stays for good."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    return code


def text_of(name: str) -> str:
    """The text of a module of `codegen.runtime`."""
    with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "runtime", name)) as file:
        return file.read()


def request(part: LibraryModule) -> objects.ObjectRequest:
    """What to `objects.prepare` for a part to be linked soon."""
    return objects.ObjectRequest(_key(part), part.text, part.quick)


def are_at_hand(parts: Sequence[LibraryModule], wait: bool = False) -> bool:
    """Whether `parts` are linked in no time; if not, a thread begins to compile them, for which an ending process waits, or this call.

    Where that thread failed, the answer is yes, and linking raises the error.
    """
    names = tuple([part.name for part in parts])
    if names not in _apart:
        missing = [wanted for wanted in map(request, parts) if not objects.is_there(wanted)]
        if not missing:
            return True
        _apart[names] = threading.Thread(target=_compile_all, args=(missing,))
        _apart[names].start()
    if wait:
        _apart[names].join()
    return not _apart[names].is_alive()


def _compile_all(requests: Sequence[objects.ObjectRequest]) -> None:
    with contextlib.suppress(Exception):
        for wanted in requests:
            compile_apart(wanted)


def compile_apart(wanted: objects.ObjectRequest) -> None:
    """Compile a module while others may compile, too."""
    objects.keep(wanted, target.emit_apart(wanted.text(), wanted.quick))


def is_kept(part: LibraryModule) -> bool:
    """Whether a part is on disk."""
    return cache.has(_key(part))


def _key(part: LibraryModule) -> str:
    return cache.key(target.current().identity, "library", part.name)
