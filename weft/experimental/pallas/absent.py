"""Names of machines that are not there: they can be imported, and say why they cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Absent:
    """A name that has no meaning here: calling it, or asking it for anything, raises NotImplementedError."""
    __slots__ = ("_name", "_why")

    def __init__(self, name: str, why: str):
        self._name, self._why = name, why

    def _refuse(self) -> NotImplementedError:
        return NotImplementedError(f"{self._name}: {self._why}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._refuse()

    def __repr__(self) -> str:
        return f"<{self._name}: {self._why}>"


def absent(module: str, names: str, why: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a module all of whose names are absent."""
    listed = names.split()

    def load(name: str) -> Any:
        if name not in listed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return Absent(f"{module}.{name}", why)

    return load, lambda: sorted(listed)
