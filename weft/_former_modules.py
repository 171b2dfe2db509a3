"""Former names of engine modules, as stored in pickles and exported programs.

In:   a former module name such as `weft.ir.mesh`.
Out:  a spec whose loader returns the present module, `weft._engine.ir.mesh`, if it exists. A former package gets an
      empty module that forwards attributes; sharing the package's path would execute its files twice.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from weft._engine import hooks

_ENGINE = "weft._engine."
#: renamed modules of the engine that have picklable classes
_RENAMED = {
    "control.hitypes": "control.hijax_types",
    "core.scalars": "core.typed_scalars",
    "partition.auto.machine": "partition.auto.machine_rates",
}


class _FormerModuleLoader:
    """A loader of an engine module under its former name."""

    def __init__(self, current: str):
        self.current = current

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.current)
        self._spec = module.__spec__
        if hasattr(module, "__path__"):
            forwarding = ModuleType(spec.name, module.__doc__)
            forwarding.__path__ = []
            forwarding.__getattr__ = lambda name: getattr(module, name)  # type: ignore[method-assign]
            self._spec = spec
            return forwarding
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # undo Python's replacement by the former spec


def find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module of the engine for its former name, or None.

    Raise ModuleNotFoundError for a public name that another module has.

    >>> find_spec("weft.ir.mesh").loader.current
    'weft._engine.ir.mesh'
    >>> find_spec("weft.no_such_module")
    """
    inner = name.removeprefix(_ENGINE).removeprefix("weft.")
    current = _ENGINE + _RENAMED.get(inner, inner)
    if current == name or not _exists(current):
        module, _, misplaced = name.rpartition(".")
        is_name = name.startswith(_ENGINE) or hasattr(sys.modules.get(module), misplaced)
        question = "" if is_name else hooks.suggest_name(module, misplaced)
        if question:  # without a `name`, `from weft.x import y` passes the error on
            raise ModuleNotFoundError(
                f"cannot import name {misplaced!r} from {module!r}. {question}"
            )
        return None
    return ModuleSpec(name, _FormerModuleLoader(current))  # type: ignore[arg-type]


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def current_name(name: str) -> str:
    """Return the present name of a module of weft.

    >>> current_name("weft.ir.mesh"), current_name("weft.numpy"), current_name("os.path")
    ('weft._engine.ir.mesh', 'weft.numpy', 'os.path')
    """
    spec = importlib.util.find_spec(name) if name.startswith("weft.") else None
    return name if spec is None else getattr(spec.loader, "current", spec.name)
