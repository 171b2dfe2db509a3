"""The import hook behind `install_as_jax`: `jax` and its modules, with the objects of weft.

In:  `import jax.x`, `from jax.x import y`, `jax.x.y`; or an import of the packages that `weft shim
     install` writes.
Out: stand-in modules whose names are looked up in weft on first use. Assigning to such a name
     changes only the stand-in, never weft. A JAX name that weft refuses is an object that raises
     NotImplementedError when it is used; an unknown name raises AttributeError.

Next to read: `names` (the weft module of a name), `inside` (the names of `jax._src` that libraries
use).
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from weft._engine import hooks
from weft._engine.util.config import api_version, config
from weft._engine.util.events import report_jax
from weft._engine.util.lazy import missing_name
from weft.compat import missing, names

if TYPE_CHECKING:
    from importlib.abc import Loader

JAX_VERSION = "0.10.2"  # the version that the tables of names describe

_MISSING = object()


def install_as_jax(generation: str | None = None) -> None:
    """Make `import jax` import weft in this process; a second call has no effect.

    `generation` is the JAX version that the program was written for, such as "0.4.30" or "0.10".
    It sets `weft.config.jax_api`, which selects the behavior where versions differ (`make_mesh`
    makes Explicit axes from 0.9 on), and `jax.__version__`. Raises RuntimeError if the real JAX is
    already imported, since its modules cannot be replaced; ValueError for an invalid generation.
    """
    loaded = sys.modules.get("jax")
    if loaded is not None and not isinstance(loaded, JaxModule):
        raise RuntimeError(
            "compat.install_as_jax: another package named 'jax' is already imported"
            f" (from {getattr(loaded, '__file__', None) or 'memory'}).\n"
            "  Call weft.compat.install_as_jax() before the first `import jax`, or start the program with `weft run`."
        )
    if generation is not None:
        config.update("jax_api", generation)
        api_version()
    _add_finder()


def become_jax(module: str, version: str) -> None:
    """Turn the package `module`, "jax" or "jaxlib", whose file Python is running, into the stand-in
    of that name.

    The files that `weft shim install` writes call it. The version sets `weft.config.jax_api`,
    unless it was set before.
    """
    if config.jax_api is None:
        config.update("jax_api", version)
    _add_finder()
    package = sys.modules[module]
    package.__class__ = JaxModule
    _namespace(package).update(_versions())


def is_shim(file: str) -> bool:
    """Return True if the file of a package `jax` or `jaxlib` was written by `weft shim install`."""
    try:
        with open(file, errors="replace") as opened:
            return "weft shim install" in opened.readline()
    except OSError:
        return False


def installed_shim() -> bool:
    """Return True if the `jax` package of this environment is weft's shim."""

    spec = PathFinder.find_spec("jax")
    return spec is not None and spec.origin is not None and is_shim(spec.origin)


def _add_finder() -> None:
    report_jax(True)
    if _finder() is None:
        sys.meta_path.insert(0, JaxFinder())


def uninstall() -> None:
    """Undo `install_as_jax`: remove the hook and the stand-in modules; objects that a program holds
    stay valid."""
    report_jax(False)
    finder = _finder()
    if finder is not None:
        sys.meta_path.remove(finder)
    for name in [name for name, module in sys.modules.items() if isinstance(module, JaxModule)]:
        del sys.modules[name]


def _finder() -> "JaxFinder | None":
    return next((finder for finder in sys.meta_path if isinstance(finder, JaxFinder)), None)


class JaxModule(ModuleType):
    """A stand-in for a JAX module, which looks names up in weft one at a time; `vars(module)` loads
    all public names."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        self._offered()
        return _namespace(self)

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self._offered()
        if name.startswith("__") and not name.startswith("__array_"):
            # dunder names of the array API are looked up like other names
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self
            )
        value = _look_up(self.__name__, name)
        if value is _MISSING:
            value = _refuse(self.__name__, name)
        if value is _MISSING:
            raise _missing_attribute(self.__name__, name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a name. An imported submodule does not replace an object of the same name:
        `roofline.roofline` is a function."""
        if isinstance(value, ModuleType):
            own = _same_named_object(self.__name__, name)
            value = value if own is _MISSING else own
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self._offered(), *_namespace(self)})

    def _offered(self) -> list[str]:
        """Return the public names of this module, without refused names; submodules are
        included."""
        module = self.__name__
        listed = {*names.public_names().get(module, ()), *names.ELSEWHERE.get(module, ())}
        below = {
            known.removeprefix(f"{module}.")
            for known in names.known_modules()
            if known.startswith(f"{module}.")
        }
        listed |= {name for name in below if "." not in name and is_offered(f"{module}.{name}")}
        return sorted(filter(self._load, listed))

    def _load(self, name: str) -> bool:
        """Load a name unless it is refused; return True if weft has it."""
        return _look_up(self.__name__, name) is not _MISSING and hasattr(self, name)


def _namespace(module: ModuleType) -> dict[str, Any]:
    """Return the names that a module has loaded, without loading others."""
    return vars(ModuleType)["__dict__"].__get__(module)


class ConfigModule(JaxModule):
    """`jax.config`: an object in the current JAX, a module in older ones, so `from jax.config
    import config` works too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattr__(name)
        config = _config()
        return config if name == "config" else getattr(config, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            setattr(_config(), name, value)


class JaxFinder:
    """The finder and loader of the stand-in modules. (The base classes of `importlib.abc` would
    only add 20 ms to the start.)"""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in names.PACKAGES:
            return None
        if is_offered(fullname):
            return ModuleSpec(fullname, cast("Loader", self), origin="weft", is_package=True)
        module, _, name = fullname.rpartition(".")
        # The errors have no `name`, so that `from jax.x import y` passes them on instead of
        # replacing their message.
        if fullname in names.known_modules():
            raise ModuleNotFoundError(f"weft does not have the module {fullname} yet")
        if names.is_internal(fullname):
            raise ModuleNotFoundError(_why_internal(fullname))
        if names.is_known(module, name):
            raise ImportError(_why_missing(module, name))
        if module in names.public_names() and (question := hooks.suggest_name(module, name)):
            raise ModuleNotFoundError(f"cannot import name {name!r} from {module!r}. {question}")
        return None

    def create_module(self, spec: ModuleSpec) -> JaxModule:
        module = ConfigModule(spec.name) if spec.name == "jax.config" else JaxModule(spec.name)
        if spec.name in _VERSIONED:
            _namespace(module).update(_versions())
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"The names of {module.__name__}, provided by weft."


_VERSIONED = ("jax", "jax.lib", "jax.version", "jaxlib", "jaxlib.version")


def _versions() -> dict[str, Any]:
    numbers = (*(api_version() or tuple(map(int, JAX_VERSION.split(".")))), 0)[:3]
    return {"__version__": ".".join(map(str, numbers)), "__version_info__": numbers}


def is_offered(module: str) -> bool:
    """Return True if the JAX module `module` can be imported: weft has this module, names for it,
    or a reason to refuse its names."""
    if module in _VERSIONED or module == "jax.config":
        return True
    if module not in names.known_modules():
        return False
    if _weft_module(module) is not None or (
        names.is_internal(module) and module in names.ELSEWHERE
    ):
        return True  # libraries import internal modules whose names they use only in rare cases
    if any(names.ELSEWHERE.get(module, {}).values()) or any(map(is_offered, names.same_as(module))):
        return True
    if missing.why_module(module) is not None:
        return True
    below = [known for known in names.known_modules() if known.startswith(f"{module}.")]
    return module not in names.public_names() and any(is_offered(known) for known in below)


def _look_up(module: str, name: str) -> Any:
    fullname = f"{module}.{name}"
    if fullname == "jax.config":
        return _config()
    if is_offered(fullname):
        own = _same_named_object(module, name)
        return importlib.import_module(fullname) if own is _MISSING else own
    for place in places(module, name):
        value = _load(place)
        if value is not _MISSING:
            return value
    for public in names.same_as(module):
        value = _look_up(public, name)
        if value is not _MISSING:
            return value
    return _MISSING


def places(module: str, name: str) -> list[str]:
    """Return where the object of a JAX name may be in weft, as "module:name", in the order of the search."""
    listed = [names.ELSEWHERE.get(module, {}).get(name, "")]
    module_of_weft = _weft_module(module)
    if module_of_weft is not None and (module != "jax" or names.is_known(module, name)):
        listed.insert(0, f"{module_of_weft}:{name}")
    return list(filter(None, listed))


def _refuse(module: str, name: str) -> Any:
    """Return the object of a refused name, which raises NotImplementedError with the reason when it
    is used."""
    for place in (module, *names.same_as(module)):
        if name in names.public_names().get(place, ()) or name in names.ELSEWHERE.get(place, ()):
            return _MISSING if missing.why(place, name) is None else missing.refuse(place, name)
    return _MISSING


def _same_named_object(module: str, name: str) -> Any:
    """Return the object of the module `module` that has the same name as one of its submodules, if
    any."""
    module_of_weft = (
        _weft_module(module)
        if module != "jax" and name in names.public_names().get(module, ())
        else None
    )
    return _MISSING if module_of_weft is None else _load(f"{module_of_weft}:{name}")


def _load(candidate: str) -> Any:
    """Return the object of the first of the space-separated `module:name`s if all exist; modules do
    not count as names."""
    values = []
    for place in candidate.split():
        module_of_weft, _, name = place.partition(":")
        value = (
            getattr(importlib.import_module(module_of_weft), name, _MISSING)
            if _spec(module_of_weft)
            else _MISSING
        )
        if value is _MISSING or isinstance(value, ModuleType):
            return _MISSING
        values.append(value)
    return values[0]


def _weft_module(module: str) -> str | None:
    """Return the weft module of the same name if it is public, else None."""
    module_of_weft = "weft" + module.removeprefix("jax")
    package = module_of_weft.removeprefix("weft.").partition(".")[0]
    inside = {"ad"}  # packages of weft that only share their name with JAX's modules
    return None if package in inside or _spec(module_of_weft) is None else module_of_weft


def _spec(module_of_weft: str) -> ModuleSpec | None:
    try:
        spec = importlib.util.find_spec(module_of_weft)
        return None if spec is None or spec.origin is None else spec
    except ModuleNotFoundError:  # of a parent package
        return None


def _config() -> Any:

    return config


def _why_missing(module: str, name: str) -> str:
    if names.is_internal(module):
        return _why_internal(f"{module}.{name}")
    if names.is_known(module, name):
        return f"weft does not have {module}.{name} yet"
    return f"module {module!r} has no attribute {name!r}"


def _missing_attribute(module: str, name: str) -> AttributeError:
    if names.is_internal(module) or names.is_known(module, name):
        return AttributeError(_why_missing(module, name), name=name, obj=sys.modules.get(module))
    return missing_name(module, name)


def _why_internal(fullname: str) -> str:
    return (
        f"weft does not have {fullname}: it is internal to JAX, not a public name."
        " (weft.compat.inside lists the internal names that libraries use and weft answers.)"
    )
