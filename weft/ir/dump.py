"""Numbered stage files: `WEFT_DUMP=dir` writes every program after every stage, one folder per compiled function."""

from __future__ import annotations

import itertools
import os
import re

from weft.ir.text.jaxpr import jaxpr_text

_counter = itertools.count()
_folders: dict[int, str] = {}


def write(root: str, name: str, number: int, title: str, thing) -> None:
    """Write `thing` (a program, or what has a `text()`) as `<root>/<nnn>_<name>/<number>_<title>.txt`."""
    if number == 0:
        _folders[os.getpid()] = f"{next(_counter):04d}_{_clean(name)}"
    folder = os.path.join(root, _folders.get(os.getpid(), _clean(name)))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{number:02d}_{_clean(title)}.txt"), "w") as file:
        file.write(_text(thing))


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name) or "program"


def _text(thing) -> str:
    text = getattr(thing, "text", None)
    return text() if callable(text) else f"{jaxpr_text(thing) if hasattr(thing, 'eqns') else thing}\n"
