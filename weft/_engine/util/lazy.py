"""Lazy loading of modules: for packages that only forward names, and for modules with entries of a registry.

In:   module -> its public names, in one string; `new=old` for a name that the module calls `old`. Names listed for the package
      itself are submodules.
Out:  `attach` returns `__getattr__` and `__dir__` of the forwarding module (PEP 562) and makes it a `LazyModule`, whose `vars` has all
      names; `tables` has the names. `loader` loads modules one by one, for `ir.registry`. `import_module` imports a module without
      interruption by user code; `install` adds a finder at the front of `sys.meta_path` that does the same for `import`.
Laws: - From the creation of a module to its last statement, user code is suspended in this thread; other threads wait for
        Python's lock of the module. Users' finders and a user's `__import__` see imports of weft only if Python's own finders
        do not find the module.
      - A module is executed once, even if user code imports it at the beginning of its import, or raises an exception at the end.
      - Audit hooks and replaced methods of Python's own loaders still run.
Next: `tools.stubs` writes the names for type checkers.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from weft._engine import hooks
from weft._engine.util.source import guard
from weft._engine.util.user_code_suspension import has_signals, is_suspended, suspended

if TYPE_CHECKING:  # the stub of the package lists public names only

    class LazyModule(ModuleType): ...

else:
    from weft import LazyModule

#: module -> public name -> (module, its name there, or "" for a submodule)
tables: dict[str, dict[str, tuple[str, str]]] = {}
#: modules with further names that are not in their tables
open_tables: set[str] = set()


def attach(
    package: str, names_of: dict[str, str], others: str = "", guards: bool = False
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of module `package`; names that are not listed are looked up by `find` of module `others`.
    With `guards`, functions have an `api_boundary` (see `util.source`).

    >>> load, names = attach(__name__, {"math": "pi root=sqrt"})
    >>> names(), load("root")(9.0)
    (['pi', 'root'], 3.0)
    """
    table = tables[package] = {}
    if others:
        open_tables.add(package)
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
            raise missing_name(package, name)
        if guards:
            value = guard(value, package, name)
        report_module(value, package)
        setattr(sys.modules[package], name, value)
        return value

    sys.modules[package].__class__ = LazyModule
    return load, lambda: sorted(table)


def missing_name(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module does not have, with the place of a public name if it is in another module.

    >>> missing_name("weft.numpy", "softmax")
    AttributeError("module 'weft.numpy' has no attribute 'softmax'. Did you mean weft.nn.softmax?")
    """
    message = f"module {module!r} has no attribute {name!r}"
    question = hooks.suggest_name(module, name)
    if question:
        return AttributeError(f"{message}. {question}")
    # Python itself suggests names of the same module.
    return AttributeError(message, name=name, obj=sys.modules.get(module))


def report_module(value: Any, module: str) -> None:
    """Set the `__module__` of a function of the engine to the public module from which users import it.

    Classes set their public module themselves, because pickled objects contain it.
    """
    is_function = isinstance(value, FunctionType) or "__module__" in getattr(value, "__dict__", ())
    is_class = isinstance(value, (type, ModuleType))
    if is_function and not is_class and str(value.__module__).startswith("weft._engine."):
        value.__module__ = module


def loader(
    package: str, path: Iterable[str], stated_by: Mapping[str, str] | None = None
) -> Callable[[str | None], Iterator[ModuleType]]:
    """Return a function that loads modules of `package`, whose `__path__` is `path`, and yields each loaded module.

    For a name it loads the module in `stated_by`, if any; for None it loads all modules in alphabetical order.

    >>> import json
    >>> load = loader("json", json.__path__, {"loads": "decoder"})
    >>> [module.__name__ for module in load("loads")], [*load("dumps")]
    (['json.decoder'], [])
    >>> next(load(None)).__name__
    'json.decoder'
    """
    listed = stated_by or {}

    def load(name: str | None) -> Iterator[ModuleType]:
        modules = (
            [submodule.name for submodule in pkgutil.iter_modules(path)]
            if name is None
            else [listed[name]]
            if name in listed
            else []
        )
        for module in modules:
            yield import_module(f"{package}.{module}")

    return load


# ---- imports without interruption by user code

#: packages that functions of weft import lazily
_PACKAGES = frozenset(
    "weft llvmlite ml_dtypes opt_einsum scipy dataclasses logging traceback".split()
)
_FINDERS = (BuiltinImporter, FrozenImporter, PathFinder)
#: complete modules whose imports an exception of a signal handler may have ended; Python removes them and imports them again
_interrupted: dict[str, ModuleType] = {}


class _SuspendingLoader:
    """The loader of one module; it suspends user code from the creation of the module to its last statement.

    It remains the loader of the module's spec, because Python continues with that spec if user code imports the module in between.
    """

    def __init__(self, loader: Any):
        self._loader = loader
        self._complete: ModuleType | None = None
        self._is_entered = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module if user code has imported it since the search began; otherwise create it."""
        if sys._getframe(2).f_code.co_name != "_load_unlocked":
            # the module may be executed much later, or never
            return self._loader.create_module(spec)
        suspended.__enter__()
        stay_first()
        self._complete = _interrupted.pop(spec.name, None) or sys.modules.get(spec.name)
        if self._complete is None:
            self._is_entered = True
            return self._loader.create_module(spec)
        suspended.__exit__()
        return self._complete

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, unless it is complete."""
        if module is self._complete:
            return
        if not self._is_entered:
            suspended.__enter__()
        self._is_entered = False
        module.__loader__ = self._loader
        name = module.__name__
        try:
            self._loader.exec_module(module)
            self._complete = module
            if has_signals():
                _interrupted[name] = module
        finally:
            suspended.__exit__()
        _interrupted.pop(name, None)


class ImportGuard:
    """A finder for the packages above, and for all modules imported while their modules are executed."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec from the other finders, with a loader that suspends user code."""
        is_listed = name.partition(".")[0] in _PACKAGES
        if target is not None or not (is_listed or is_suspended()):
            return None
        spec = _find(name, path)
        if is_listed and spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _SuspendingLoader(spec.loader)  # type: ignore[assignment]  # importlib.abc loads slowly
        return spec


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Search with Python's own finders first, because a user's finder may call programs."""
    for finder in _FINDERS if path is None else (PathFinder,):
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec
    for other in sys.meta_path[:]:
        find = (
            None if other is ImportGuard or other in _FINDERS else getattr(other, "find_spec", None)
        )
        spec = find and find(name, path, None)
        if spec is not None:
            return spec
    return None


def import_module(name: str) -> ModuleType:
    """Import a module with user code suspended, also while Python acquires the module's lock.

    Before Python 3.13, a second import by the same thread at that point raises KeyError in `importlib`."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        return module
    with suspended:
        return importlib.import_module(name)


def scipy_module(name: str) -> Any:
    """Import and return a module of SciPy, which few functions need; raise ImportError with
    instructions if SciPy is not installed."""
    try:
        return importlib.import_module(f"scipy.{name}")
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "scipy":
            raise
        raise ImportError(
            f"this function needs scipy.{name}, and SciPy is not installed: run `pip install scipy`. "
            "A slim installation of weft leaves it out.",
            name="scipy",
        ) from None


def install() -> None:
    """Add `ImportGuard` to `sys.meta_path`, for all later imports."""
    for finder in [
        finder for finder in sys.meta_path if getattr(finder, "__module__", None) == __name__
    ]:
        sys.meta_path.remove(finder)  # of an earlier import of weft
    sys.meta_path.insert(0, ImportGuard)  # type: ignore[arg-type]  # importlib.abc loads slowly


def stay_first() -> None:
    """Move `ImportGuard` before finders that were inserted later; these see all imports except imports from the packages above."""
    if sys.meta_path[0] is not ImportGuard:
        install()
