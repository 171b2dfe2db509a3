"""Modules loaded on first use: of packages that only forward names, and of those that state what a registry keeps.

In:   module -> its public names, in one string; `new=old` for what the module calls `old`. Names of the package itself are submodules.
Out:  `attach` gives `__getattr__` and `__dir__` of the module that forwards (PEP 562); `tables` keeps the names. `loader` loads modules
      one by one, for `ir.registry`.
Next: `tools.stubs` writes the same for type checkers.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from weft.util.import_guard import import_module

#: module -> public name -> (module, its name there, or "" for a submodule)
tables: dict[str, dict[str, tuple[str, str]]] = {}


def attach(package: str, names_of: dict[str, str], others: str = "", guards: bool = False
           ) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of module `package`; for names that are not listed, `find` of module `others` is asked.
    With `guards`, functions name what they were given when they fail.

    >>> load, names = attach(__name__, {"math": "pi root=sqrt"})
    >>> names(), load("root")(9.0)
    (['pi', 'root'], 3.0)
    """
    table = tables[package] = {}
    for module, names in names_of.items():
        for name, _, old in [entry.partition("=") for entry in names.split()]:
            table[name] = (f"{package}.{name}", "") if module == package else (module, old or name)

    def load(name: str) -> Any:
        if name in table:
            where, old = table[name]
            module = import_module(where)
            value = getattr(module, old) if old else module
        elif name == "__all__":
            value = sorted(table)
        else:
            value = import_module(others).find(name) if others and name[0] != "_" else None
        if value is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if guards:
            from weft.util.source import guarded
            value = guarded(value, package, name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(table)


def loader(package: str, path: Iterable[str], stated_by: Mapping[str, str] | None = None) -> Callable[[str | None], Iterator[ModuleType]]:
    """A function that loads modules of `package`, whose `__path__` is `path`, and yields each when it is loaded: given a name the one
    that `stated_by` lists for it, if any, given None all of them in alphabetical order.

    >>> import json
    >>> load = loader("json", json.__path__, {"loads": "decoder"})
    >>> [module.__name__ for module in load("loads")], [*load("dumps")]
    (['json.decoder'], [])
    >>> next(load(None)).__name__
    'json.decoder'
    """
    listed = stated_by or {}

    def load(name: str | None) -> Iterator[ModuleType]:
        modules = [found.name for found in pkgutil.iter_modules(path)] if name is None else [listed[name]] if name in listed else []
        for module in modules:
            yield import_module(f"{package}.{module}")

    return load
