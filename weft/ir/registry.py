"""Every primitive by its name: what `core.primitive` registers and the text of programs is read with."""

import importlib
import pkgutil
from typing import Any

_ROOMS = ("weft.ops", "weft.control")   # named, not imported: they stand above, and register what they hold as they load


class _Registry(dict[str, Any]):
    """Primitives by their names. Where one is not there, rooms of operations that no program has needed yet are loaded to look for it:
    rules and passes may ask for any by its name, and need not know who has loaded what."""

    def __missing__(self, name: str) -> Any:
        for floor in _ROOMS:
            for room in pkgutil.iter_modules(importlib.import_module(floor).__path__, floor + "."):
                importlib.import_module(room.name)
                if name in self:
                    return self[name]
        raise KeyError(name)


registry = _Registry()


def find(name: str) -> Any:
    """The primitive called `name`, or None."""
    try:
        return registry[name]
    except KeyError:
        return None
