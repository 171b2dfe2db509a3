"""Library parts of native code: compiled once per machine, kept on disk, loaded for the life of the process.

In:   a name, a function that writes the IR text (called only when no object is on disk), the names to export, and
      addresses or libc names for what the text declares.
Out:  addresses that stay valid to the very end: workers may still run this code while the interpreter shuts down.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence

from weft.codegen import cache, objects, target


def link(
    name: str,
    text: Callable[[], str],
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    libc: Sequence[str] = (),
) -> dict[str, int]:
    """Return the addresses of `exports` of the library part `name` for the current target; nothing is ever unloaded.

    An object on disk is found by `name` and the fingerprint of this code generator, so `name` must determine the text.
    """
    data = objects.take(order(name, text))
    process = ctypes.CDLL(None)
    known = {symbol: ctypes.cast(getattr(process, symbol), ctypes.c_void_p).value or 0 for symbol in libc}
    tracker = target.link(data, exports, {**known, **(imports or {})})
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(tracker))
    return {symbol: tracker[symbol] for symbol in exports}


def text_of(name: str) -> str:
    """The text of a module that lies beside this file."""
    with open(os.path.join(os.path.dirname(__file__), name)) as file:
        return file.read()


def order(name: str, text: Callable[[], str]) -> objects.Order:
    """What to `objects.prepare` for a library part to be linked soon."""
    return objects.Order(_key(name), text)


def is_kept(name: str) -> bool:
    """Whether the library part `name` lies on disk."""
    return cache.has(_key(name))


def _key(name: str) -> str:
    return cache.key(target.current().identity, "library", name)
