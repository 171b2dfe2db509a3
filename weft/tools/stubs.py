"""Stubs of the modules that load their names lazily, for type checkers: `python -m weft.tools.stubs` writes them.

In:   the tables of public names: of `util.lazy`, of `weft` and of `weft.numpy`.
Out:  a `.pyi` next to each module with the same names. tests/public/test_stub.py fails when one is
      outdated.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import weft
from weft import numpy as wnp
from weft._engine.util import lazy

_HEAD = '"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""\n# ruff: noqa: I001\n# fmt: off\n\n'
#: for modules of the engine that have other names, too
_OTHERS = "\nfrom typing import Any\n\ndef __getattr__(name: str) -> Any: ...  # pyright: ignore[reportIncompleteStub]  # on purpose\n"
_WIDTH = 100


def stubs() -> dict[Path, str]:
    """Return the text of every stub, by path."""
    root = Path(weft.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if "import attach\n" in path.read_text():
            importlib.import_module(
                ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(
                    ".__init__"
                )
            )
    tables = {
        "weft": _of_weft(),
        "weft.numpy": _of_numpy(),
        **{name: table for name, table in lazy.tables.items() if name in sys.modules},
    }
    return {
        Path(str(sys.modules[name].__file__)).with_suffix(".pyi"): _HEAD
        + _text(table)
        + _OTHERS * (name in lazy.open_tables and name.startswith("weft._engine."))
        for name, table in tables.items()
    }


def _of_weft() -> dict[str, tuple[str, str]]:
    """Return the names of `weft` without unimplemented ones. To type checkers, a callable package
    is not a module."""
    here = vars(weft)
    functions = {
        name: (module, name) for name, module in here["_LAZY_NAMES"].items() if hasattr(weft, name)
    }
    there = [name for name in here["_SUBMODULES"] if hasattr(weft, name)]
    submodules = {
        name: ("Any" if callable(getattr(weft, name)) else f"weft.{name}", "") for name in there
    }
    return {**functions, **submodules, "__version__": ("weft._version", "__version__")}


def _of_numpy() -> dict[str, tuple[str, str]]:
    here = vars(wnp)
    sources = {
        name: (f"weft._engine.numpy.{module}", name)
        for name, (module, _) in here["_LAZY_NAMES"].items()
    }
    sources |= {name: (f"weft.numpy.{name}", "") for name in here["_SUBMODULES"]}
    return sources | {
        name: _origin(name, getattr(wnp, name)) for name in wnp.__all__ if name not in sources
    }


def _origin(name: str, value: Any) -> tuple[str, str]:
    """Return the defining module and name of a class or function; for other values, the type and an
    empty name."""
    if value is None or isinstance(value, float):
        return "None" if value is None else "float", ""
    value = getattr(value, "__wrapped__", value)  # the function inside an API guard
    for module in (getattr(value, "__module__", None), "weft._engine.util.dtypes"):
        stated = getattr(value, "__name__", name) if isinstance(value, type) else name
        if (
            module != "weft.numpy"
            and str(module).startswith("weft.")
            and getattr(sys.modules.get(str(module)), stated, None) is value
        ):
            return str(module), stated
    return "Any", ""


def _text(table: dict[str, tuple[str, str]]) -> str:
    imports: dict[str, list[str]] = {}
    values = []
    for name, (module, old) in sorted(table.items()):
        if old:
            imports.setdefault(module, []).append(name if old == name else f"{old} as {name}")
        elif "." in module:
            imports.setdefault(module.rpartition(".")[0], []).append(name)
        else:
            values.append(f"{name}: {module}\n")
            imports.update({"typing": ["Any"]} if module == "Any" else {})
    lines = [
        f"from {module} import {_wrap(names, '()')}" for module, names in sorted(imports.items())
    ]
    offered = _wrap([f'"{name}"' for name in sorted(table)], "[]")
    return "".join([*lines, "\n", *values, "\n" * bool(values), f"__all__ = {offered}"])


def _wrap(names: list[str], brackets: str) -> str:
    if brackets == "()" and sum(map(len, names)) < _WIDTH // 2:
        return ", ".join(names) + "\n"
    whole = ", ".join([name.replace(" ", "\0") for name in names])  # break lines between names only
    lines = textwrap.fill(
        whole, _WIDTH - 1, initial_indent="    ", subsequent_indent="    "
    ).replace("\0", " ")
    return f"{brackets[0]}\n{lines},\n{brackets[1]}\n"


if __name__ == "__main__":
    for stub, text in stubs().items():
        stub.write_text(text)
