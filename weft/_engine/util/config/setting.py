"""The mechanism of settings: declarations, the object `config` that holds the values, and overrides.

The name of a setting may have the prefix `weft_` or `jax_`. The value for all threads is a class attribute, and an override is an
attribute in the namespace of the thread, so that Python's attribute lookup returns the right one.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from weft._engine.util.checks import Checks, parse_checks, with_types
from weft._engine.util.dispatch_state import guard, new_epoch
from weft._engine.util.record import record
from weft._engine.util.threads import hold_during_fork

_TRUE = frozenset(("1", "true", "yes", "on", "y", "t"))
_FALSE = frozenset(("0", "false", "no", "off", "n", "f", ""))


@record
class Setting:
    """The declaration of one setting: its type or choices, whether it may be None, and its description."""

    name: str
    default: Any
    kind: type
    choices: tuple[Any, ...]
    optional: bool
    doc: str
    convert: Callable[[Any], Any] | None = None
    in_trace_key: bool = False

    def check(self, value: Any) -> Any:
        """Return the value, converted to the setting's type; raise TypeError or ValueError if it is invalid."""
        if self.convert is not None:
            return self.convert(value)
        if value is None and self.optional:
            return None
        if self.kind is bool:
            return self._check_bool(value)
        if self.choices:
            return self._check_choice(value)
        if self.is_number:
            if isinstance(value, bool) or not isinstance(value, (int, self.kind)):
                raise self._type_error(repr(value))
            return self.kind(value)
        if self.kind is not object and not isinstance(value, self.kind):
            raise self._type_error(f"{value!r:.80} of {type(value)}")
        if self.kind is Hashable:  # a tuple may contain unhashable values
            hash(value)
        return value

    @property
    def is_number(self) -> bool:
        """True if values are integers, or floats."""
        return self.kind is int or self.kind is float

    def _check_bool(self, value: Any) -> bool:
        if isinstance(value, str):
            return self.parse(value)
        if getattr(value, "ndim", 0) == 0 and value in (0, 1):
            return bool(value)
        raise ValueError(f"config.{self.name} is true or false, got {value!r}")

    def _check_choice(self, value: Any) -> str:
        if not isinstance(value, str):  # a member of an enumeration stands for its name
            value = str(getattr(value, "name", value)).lower()
        if value in self.choices:
            return value
        raise ValueError(f"config.{self.name} is one of {self._menu()}, got {value!r}")

    def _type_error(self, got: str) -> TypeError:
        kind = self.kind.__name__
        return TypeError(f"config.{self.name} takes a value of type {kind}, got {got}")

    def parse(self, text: str) -> Any:
        """Return the value for the text of an environment variable."""
        if self.convert is not None:
            return self.convert(text)
        if self.kind is bool:
            word = text.strip().lower()
            if word in _TRUE or word in _FALSE:
                return word in _TRUE
            raise ValueError(f"config.{self.name} is true or false, got {text!r}")
        if self.optional and text.strip().lower() in ("", "none"):
            return None
        if self.is_number:
            try:
                return self.kind(text)
            except ValueError:
                raise ValueError(str(self._type_error(repr(text)))) from None
        return self.check(text)

    def _menu(self) -> str:
        options = [repr(choice) for choice in self.choices] + ["None"] * self.optional
        return ", ".join(options)


declared: dict[str, Setting] = {}
_trace_names: list[str] = []
#: settings that can no longer be changed, with the values in force
frozen: dict[str, Any] = {}
_lock = hold_during_fork(threading.RLock())
# equal trace keys are one object, compared by identity
_keys: dict[tuple[Any, ...], tuple[Any, ...]] = {}
_UNSET = object()
_PREFIXES = ("weft_", "jax_")


class _Alias(str):
    """A descriptor for another name of a setting. It is a string, which the garbage collector does not traverse: there are 264."""

    __slots__ = ()

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else getattr(instance, self)


class Config(threading.local):
    """All settings, as attributes. `update` changes a setting for all threads.

    >>> config.update('jax_log_compiles', False)
    >>> config.log_compiles, config.jax_log_compiles, config.weft_log_compiles
    (False, False, False)
    """

    _version = 0
    _key: tuple[int, tuple[Any, ...]] = (-1, ())

    def define(
        self,
        name: str,
        default: Any,
        *,
        kind: type | None = None,
        choices: Sequence[Any] = (),
        optional: bool = False,
        in_trace_key: bool = False,
        doc: str = "",
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        """Declare a setting; its initial value is from `WEFT_<NAME>`, otherwise `JAX_<NAME>`, otherwise the default."""
        if name in declared:
            raise ValueError(f"config.{name} is already defined")
        if kind is None:
            kind = object if default is None else type(default)
        setting = Setting(
            name,
            default,
            kind,
            tuple(choices),
            optional or default is None,
            doc,
            convert,
            in_trace_key,
        )
        with _lock:
            if not isinstance(getattr(Config, name, None), property):
                setattr(Config, name, value_from_environment(setting))
            # Prefixed names are descriptors; a method __getattr__ would double the cost of every read.
            for prefix in _PREFIXES:
                setattr(Config, prefix + name, _Alias(name))
            # last, because other threads read the values of all names in this table
            declared[name] = setting
            if in_trace_key:
                _trace_names.append(name)
            Config._version += 1

    def update(self, name: str, value: Any) -> None:
        """Change a setting for all threads; an active override in this thread applies until its block ends."""
        bare, value = _checked_value(name, value)
        if bare in frozen and value not in (frozen[bare], getattr(self, bare)):
            raise RuntimeError(
                f"config.{bare}: the jax_{bare} config should be updated before backends are "
                "initialized, which the first operation and the first call of `devices()` do. "
                "Start a new Python session and update it there first, or set the environment variable "
                f"WEFT_{bare.upper()}."
            )
        with _lock:
            setattr(Config, bare, value)
            Config._version += 1
            new_epoch()

    def read(self, name: str) -> Any:
        """Return a setting by any of its names."""
        return getattr(self, resolve(name))

    def trace_key(self) -> tuple[Any, ...]:
        """Return the values of all settings that change tracing, as one hashable tuple; equal keys are one object."""
        version, key = self._key
        return key if version == Config._version else self._new_key()

    def _new_key(self) -> tuple[Any, ...]:
        version = Config._version
        key = tuple([getattr(self, name) for name in _trace_names])
        key = _keys.setdefault(key, key)
        threading.local.__setattr__(self, "_key", (version, key))
        return key

    def find_differences(
        self, key: tuple[Any, ...], other: tuple[Any, ...]
    ) -> list[tuple[str, Any, Any]]:
        """Return (name, value in `key`, value in `other`) of each setting that differs between two trace keys."""
        return [(name, a, b) for name, a, b in zip(_trace_names, key, other) if a != b]

    def as_traced(self, key: tuple[Any, ...]) -> Override:
        """Return an override of all settings that affect tracing with their values at the time when `trace_key` returned `key`."""
        return Override(**dict(zip(_trace_names, key)))

    @property
    def values(self) -> dict[str, Any]:
        """Return all settings and their values in this thread."""
        return {name: getattr(self, name) for name in list(declared)}

    def __setattr__(self, name: str, value: Any) -> None:
        self.update(name, value)

    def __repr__(self) -> str:
        changed = {
            name: value for name, value in self.values.items() if value != declared[name].default
        }
        return f"Config({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    @property
    def checks(self) -> Checks:
        """The selected checks of compiled programs. Testing `config.check` first is faster."""
        return parse_checks(self.check)

    @property
    def verify(self) -> bool:
        """True if the setting `check` contains "types"."""
        return self.checks.types

    @property
    def x64_enabled(self) -> bool:
        """Another name of `enable_x64`."""
        return self.enable_x64

    def parse_flags_with_absl(self) -> None:
        """Set settings by the command line, as `--jax_enable_x64=true`; afterwards absl's flags count as parsed.

        Raises absl's error for an invalid value, and ImportError if there are such flags and absl is not installed.
        """
        from weft._engine.util.config import command_line

        command_line.parse(self, known_settings())

    def config_with_absl(self) -> None:
        """Define a flag for each setting, for a program that is run by `absl.app.run`, which parses them."""
        from weft._engine.util.config import command_line

        command_line.follow(self, known_settings())


def _checked_value(name: str, value: Any) -> tuple[str, Any]:
    """Return the name of the setting to change and its checked value; `verify` changes `check`."""
    bare = resolve(name)
    value = declared[bare].check(value)
    return ("check", with_types(config.check, value)) if bare == "verify" else (bare, value)


def known_settings() -> tuple[Setting, ...]:
    """Return the declarations of all settings."""
    return tuple(declared.values())


def resolve(name: str) -> str:
    """Return the name of a setting without its prefix; raise AttributeError for an unknown name.

    >>> resolve('jax_enable_x64'), resolve('weft_enable_x64'), resolve('enable_x64')
    ('enable_x64', 'enable_x64', 'enable_x64')
    """
    if name in declared:
        return name
    for prefix in _PREFIXES:
        bare = name.removeprefix(prefix)
        if bare in declared:
            return bare
    import difflib  # only needed here

    near = difflib.get_close_matches(name.removeprefix("weft_").removeprefix("jax_"), declared, n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise AttributeError(f"config has no setting {name!r}.{hint}")


def value_from_environment(setting: Setting) -> Any:
    for prefix in ("WEFT_", "JAX_"):
        variable = prefix + setting.name.upper()
        text = os.environ.get(variable)
        if text is not None:
            try:
                return setting.parse(text)
            except (TypeError, ValueError) as error:
                raise ValueError(f"environment variable {variable}: {error}") from None
    return setting.default


config = Config()


class Override:
    """A context manager or decorator that overrides settings in this thread."""

    __slots__ = ("_saved", "_values")

    def __init__(self, **values: Any) -> None:
        self._values = dict(_checked_value(name, value) for name, value in values.items())
        self._saved: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        own = vars(config)
        saved = {name: own.get(name, _UNSET) for name in self._values}
        saved["_key"] = own.get("_key", _UNSET)
        self._saved.append(saved)
        guard[0] += 1
        own.update(self._values)
        own["_key"] = (-1, ())

    def __exit__(self, *exc_info: object) -> None:
        own = vars(config)
        guard[0] -= 1
        for name, value in self._saved.pop().items():
            if value is _UNSET:
                own.pop(name, None)
            else:
                own[name] = value

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        values = self._values

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with Override(**values):
                return function(*args, **kwargs)

        return call


class SettingOverride:
    """A public function that returns a context manager for a setting: `with enable_x64(True): ...`.

    >>> with weft.enable_x64():
    ...     weft.config.enable_x64
    True
    >>> weft.enable_x64.value
    False
    """

    def __init__(
        self, name: str, default: Any = _UNSET, doc: str = "", others: tuple[str, ...] = ()
    ) -> None:
        self._names = (name, *others)
        self._default = default
        self.__name__ = name
        self.__doc__ = doc

    def __call__(self, new_val: Any = _UNSET) -> Override:
        value = self._default if new_val is _UNSET else new_val
        if value is _UNSET:
            raise TypeError(f"{self.__name__}() needs a value")
        return Override(**dict.fromkeys(self._names, value))

    @property
    def value(self) -> Any:
        """The value of the setting in this thread."""
        return config.read(self.__name__)

    def get_global(self) -> Any:
        """Return the value in threads without an override."""
        return getattr(Config, self.__name__)

    def set_global(self, value: Any) -> None:
        """Change the setting for all threads, as `config.update` does."""
        for name in self._names:
            config.update(name, value)

    def __repr__(self) -> str:
        return f"<context manager {self.__name__}>"


def make_user_context(default_value: Any = None) -> SettingOverride:
    """Create a setting of the user's program that traced functions may read; they are traced again for another value.

    Create it once, when the module is imported, because functions traced before are traced again. Raises TypeError for unhashable
    values.

    >>> gain = weft.make_user_context(1.0)
    >>> f = weft.jit(lambda x: gain.value * x)
    >>> with gain(3.0):
    ...     float(f(2.0))
    6.0
    >>> float(f(2.0))
    2.0
    """
    hash(default_value)
    with _lock:
        name = f"user_context_{next(_user_contexts)}"
        config.define(name, default_value, kind=Hashable, in_trace_key=True)
    return SettingOverride(
        name, doc="A setting of the user's program, created by `make_user_context`."
    )


_user_contexts = itertools.count()


def define_context(
    name: str, default: Any, doc: str, block: Any = _UNSET, **facts: Any
) -> SettingOverride:
    """Declare a setting and return its context manager, which sets it to `block` if it is called without a value."""
    config.define(name, default, doc=doc, **facts)
    value = facts.get("choices", [default])[0] if block is _UNSET else block
    return SettingOverride(
        name,
        block,
        f"""{doc}

    Use it as `with {name}(value):`, or as a decorator. Raises ValueError for an invalid value.

    >>> with weft.{name}({value!r}):
    ...     weft.{name}.value
    {value!r}
    """,
    )
