"""Every primitive by its name: what `core.primitive` registers and the text of programs is read with."""

import importlib
import pkgutil
from typing import Any

registry: dict[str, Any] = {}

_ROOMS = ("weft.ops", "weft.control")   # named, not imported: they stand above, and register what they hold as they load


def find(name: str) -> Any:
    """The primitive called `name`, or None. Rooms of operations that no program has needed yet are loaded to look for it."""
    if name not in registry:
        for floor in _ROOMS:
            for room in pkgutil.iter_modules(importlib.import_module(floor).__path__, floor + "."):
                importlib.import_module(room.name)
    return registry.get(name)
