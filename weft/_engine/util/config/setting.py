"""The mechanism of settings: declarations, the object `config` that holds the values, and overrides.

A setting may be named bare, or with the prefix `weft_` or `jax_`. The shared value is a class attribute and an override an
attribute of the thread's own namespace, so that Python's own attribute lookup finds the right one.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from weft._engine.util.checks import Checks, parse_checks, with_types
from weft._engine.util.record import record
from weft._engine.util.state import guard, new_epoch
from weft._engine.util.threads import held_over_forks

_TRUE = frozenset(("1", "true", "yes", "on", "y", "t"))
_FALSE = frozenset(("0", "false", "no", "off", "n", "f", ""))


@record
class Setting:
    """What is known about one setting: its type, or the values it may take, and whether it may be None."""

    name: str
    default: Any
    kind: type
    choices: tuple[Any, ...]
    optional: bool
    doc: str
    convert: Callable[[Any], Any] | None = None
    in_trace_key: bool = False

    def check(self, value: Any) -> Any:
        """Return the value in its proper type, or raise."""
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
        if self.kind is Hashable:  # a tuple may hold what is not
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
        if not isinstance(value, str):  # a member of an enumeration goes by its name
            value = str(getattr(value, "name", value)).lower()
        if value in self.choices:
            return value
        raise ValueError(f"config.{self.name} is one of {self._menu()}, got {value!r}")

    def _type_error(self, got: str) -> TypeError:
        kind = self.kind.__name__
        return TypeError(f"config.{self.name} takes a value of type {kind}, got {got}")

    def parse(self, text: str) -> Any:
        """Return the value that an environment variable's text stands for."""
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
#: settings that cannot be changed any more
settled: set[str] = set()
_lock = held_over_forks(threading.RLock())
_keys: dict[
    tuple[Any, ...], tuple[Any, ...]
] = {}  # equal trace keys are one object, compared by identity
_UNSET = object()
_PREFIXES = ("weft_", "jax_")


class _Alias(str):
    """The attribute of that name under another one. A string, which the collector need not go over: there are 264."""

    __slots__ = ()

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else getattr(instance, self)


class Config(threading.local):
    """All settings. Reading is an attribute; `update` changes one for all threads.

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
        """Declare a setting; its first value is that of `WEFT_<NAME>`, else `JAX_<NAME>`, else the default."""
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
            # Prefixed names are descriptors, not __getattr__: its mere presence would double the cost of every read.
            for prefix in _PREFIXES:
                setattr(Config, prefix + name, _Alias(name))
            declared[name] = (
                setting  # only now: other threads ask for the values of all names that they find here
            )
            if in_trace_key:
                _trace_names.append(name)
            Config._version += 1

    def update(self, name: str, value: Any) -> None:
        """Change a setting for all threads; an override that is active in this thread stays in force until its block ends."""
        bare, value = _checked_value(name, value)
        if bare in settled and value != getattr(self, bare):
            raise RuntimeError(
                f"config.{bare}: the jax_{bare} config should be updated before backends are "
                "initialized, which "
                "the first operation and the first question for devices do."
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

    def differing(self, key: tuple[Any, ...], other: tuple[Any, ...]) -> list[tuple[str, Any, Any]]:
        """The settings in which two trace keys differ, with both values."""
        return [(name, a, b) for name, a, b in zip(_trace_names, key, other) if a != b]

    def as_traced(self, key: tuple[Any, ...]) -> Override:
        """Set every setting that changes tracing, within a block, to what it was when `trace_key` gave `key`."""
        return Override(**dict(zip(_trace_names, key)))

    @property
    def values(self) -> dict[str, Any]:
        """All settings and their values in this thread."""
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
        """The selected checks of compiled programs; test `config.check` first where speed matters."""
        return parse_checks(self.check)

    @property
    def verify(self) -> bool:
        """Whether `check` has types."""
        return self.checks.types

    @property
    def x64_enabled(self) -> bool:
        """Another name of `enable_x64`."""
        return self.enable_x64

    def parse_flags_with_absl(self) -> None:
        """Take settings from the command line, as `--jax_enable_x64=true`; absl's flags count as parsed then.

        Raises absl's error for a value that a setting does not take, ImportError where there are such flags and no absl.
        """
        from weft._engine.util.config import command_line

        command_line.parse(self, known_settings())

    def config_with_absl(self) -> None:
        """Make a flag of each setting for a program that is run by `absl.app.run`, which parses them."""
        from weft._engine.util.config import command_line

        command_line.follow(self, known_settings())


def _checked_value(name: str, value: Any) -> tuple[str, Any]:
    """Return the name of the setting to change and its new value; `verify` changes `check`."""
    bare = resolve(name)
    value = declared[bare].check(value)
    return ("check", with_types(config.check, value)) if bare == "verify" else (bare, value)


def known_settings() -> tuple[Setting, ...]:
    """What is known about every setting."""
    return tuple(declared.values())


def resolve(name: str) -> str:
    """Return the bare name of a setting.

    >>> resolve('jax_enable_x64'), resolve('weft_enable_x64'), resolve('enable_x64')
    ('enable_x64', 'enable_x64', 'enable_x64')
    """
    if name in declared:
        return name
    for prefix in _PREFIXES:
        bare = name.removeprefix(prefix)
        if bare in declared:
            return bare
    import difflib  # for this error alone

    near = difflib.get_close_matches(name.removeprefix("weft_").removeprefix("jax_"), declared, n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise AttributeError(f"weft.config has no setting {name!r}.{hint}")


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
    """Override settings in this thread for a block, or for the calls of a decorated function."""

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


class Context:
    """The public function that overrides a setting for a block: `with enable_x64(True): ...`.

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
        """The setting's value in this thread."""
        return config.read(self.__name__)

    def get_global(self) -> Any:
        """The value in threads that do not override it."""
        return getattr(Config, self.__name__)

    def set_global(self, value: Any) -> None:
        """Change the setting for all threads, as `config.update` does."""
        for name in self._names:
            config.update(name, value)

    def __repr__(self) -> str:
        return f"<context manager {self.__name__}>"


def make_user_context(default_value: Any = None) -> Context:
    """A setting of the program's own, that functions which are traced may read: for another value they are traced again.

    Make it once, where the module is imported: what was traced before is traced again. TypeError for values that cannot be hashed.

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
    return Context(name, doc="A setting of the program's own, made by `make_user_context`.")


_user_contexts = itertools.count()


def define_context(name: str, default: Any, doc: str, block: Any = _UNSET, **facts: Any) -> Context:
    """Declare a setting; its context manager, called without a value, sets it to `block`."""
    config.define(name, default, doc=doc, **facts)
    value = facts.get("choices", [default])[0] if block is _UNSET else block
    return Context(
        name,
        block,
        f"""{doc}

    Used as `with {name}(value):`, or to decorate a function. Raises ValueError for a value that the setting cannot have.

    >>> with weft.{name}({value!r}):
    ...     weft.{name}.value
    {value!r}
    """,
    )
