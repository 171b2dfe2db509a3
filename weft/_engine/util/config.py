"""Settings: each with a default, an environment variable and per-thread overrides.

In:  `WEFT_<NAME>` or `JAX_<NAME>` in the environment, `config.update`, attribute assignment, context managers.
Out: `config.<name>`, an ordinary attribute read, and `config.trace_key()`, which changes with every setting that
     changes what tracing gives.

A setting may be named bare, or with the prefix `weft_` or `jax_`. The shared value is a class attribute and an override an
attribute of the thread's own namespace, so that Python's own attribute lookup finds the right one.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from weft._engine.util.checks import Checks, canonical, parse_checks, with_types
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

    def check(self, value: Any) -> Any:
        """Return the value in its proper type, or raise."""
        if self.convert is not None:
            return self.convert(value)
        if value is None and self.optional:
            return None
        if self.kind is bool:
            if isinstance(value, str):
                return self.parse(value)
            if getattr(value, "ndim", 0) == 0 and value in (0, 1):
                return bool(value)
            raise ValueError(f"config.{self.name} is true or false, got {value!r}")
        if self.choices:
            if not isinstance(value, str):  # a member of an enumeration goes by its name
                value = str(getattr(value, "name", value)).lower()
            if value not in self.choices:
                raise ValueError(f"config.{self.name} is one of {self._menu()}, got {value!r}")
            return value
        if self.kind in (int, float):
            if isinstance(value, bool) or not isinstance(value, (int, self.kind)):
                raise TypeError(
                    f"config.{self.name} takes a value of type {self.kind.__name__}, got {value!r}"
                )
            return self.kind(value)
        if self.kind is object or isinstance(value, self.kind):
            if self.kind is Hashable:  # a tuple may hold what is not
                hash(value)
            return value
        raise TypeError(
            f"config.{self.name} takes a value of type {self.kind.__name__}, got {value!r:.80} of {type(value)}"
        )

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
        if self.kind in (int, float):
            try:
                return self.kind(text)
            except ValueError:
                kind = self.kind.__name__
                raise ValueError(
                    f"config.{self.name} takes a value of type {kind}, got {text!r}"
                ) from None
        return self.check(text)

    def _menu(self) -> str:
        options = [repr(choice) for choice in self.choices] + ["None"] * self.optional
        return ", ".join(options)


_settings: dict[str, Setting] = {}
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
        if name in _settings:
            raise ValueError(f"config.{name} is already defined")
        if kind is None:
            kind = object if default is None else type(default)
        setting = Setting(
            name, default, kind, tuple(choices), optional or default is None, doc, convert
        )
        with _lock:
            if not isinstance(getattr(Config, name, None), property):
                setattr(Config, name, _from_environment(setting))
            # Prefixed names are descriptors, not __getattr__: its mere presence would double the cost of every read.
            for prefix in _PREFIXES:
                setattr(Config, prefix + name, _Alias(name))
            _settings[name] = (
                setting  # only now: other threads ask for the values of all names that they find here
            )
            if in_trace_key:
                _trace_names.append(name)
            Config._version += 1

    def update(self, name: str, value: Any) -> None:
        """Change a setting for all threads; an override that is active in this thread stays in force until its block ends."""
        setting, value = _checked_value(name, value)
        if setting.name in settled and value != getattr(self, setting.name):
            raise RuntimeError(
                f"config.{setting.name}: the jax_{setting.name} config should be updated before backends are "
                "initialized, which "
                "the first operation and the first question for devices do."
            )
        with _lock:
            setattr(Config, setting.name, value)
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
        return {name: getattr(self, name) for name in list(_settings)}

    def __setattr__(self, name: str, value: Any) -> None:
        self.update(name, value)

    def __repr__(self) -> str:
        changed = {
            name: value for name, value in self.values.items() if value != _settings[name].default
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
        from weft._engine.util import command_line

        command_line.parse(self, known_settings())

    def config_with_absl(self) -> None:
        """Make a flag of each setting for a program that is run by `absl.app.run`, which parses them."""
        from weft._engine.util import command_line

        command_line.follow(self, known_settings())


def _checked_value(name: str, value: Any) -> tuple[Setting, Any]:
    """Return the setting to change and its new value; `verify` changes `check`."""
    setting = _settings[resolve(name)]
    value = setting.check(value)
    if setting.name == "verify":
        return _settings["check"], with_types(config.check, value)
    return setting, value


def known_settings() -> tuple[Setting, ...]:
    """What is known about every setting."""
    return tuple(_settings.values())


def resolve(name: str) -> str:
    """Return the bare name of a setting.

    >>> resolve('jax_enable_x64'), resolve('weft_enable_x64'), resolve('enable_x64')
    ('enable_x64', 'enable_x64', 'enable_x64')
    """
    if name in _settings:
        return name
    for prefix in _PREFIXES:
        bare = name.removeprefix(prefix)
        if bare in _settings:
            return bare
    import difflib  # for this error alone

    near = difflib.get_close_matches(
        name.removeprefix("weft_").removeprefix("jax_"), _settings, n=3
    )
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise AttributeError(f"weft.config has no setting {name!r}.{hint}")


def _from_environment(setting: Setting) -> Any:
    for prefix in ("WEFT_", "JAX_"):
        variable = prefix + setting.name.upper()
        text = os.environ.get(variable)
        if text is not None:
            try:
                return setting.parse(text)
            except (TypeError, ValueError) as error:
                raise ValueError(f"environment variable {variable}: {error}") from None
    return setting.default


def _xla_flag(name: str) -> str:
    """Return what `XLA_FLAGS` in the environment says about one of its flags; the last word counts."""
    given = os.environ.get("XLA_FLAGS")
    found = re.findall(rf"(?:^|\s)--?{name}(?:=|\s+)(\S+)", given) if given else ()
    return found[-1] if found else ""


config = Config()


class Override:
    """Override settings in this thread for a block, or for the calls of a decorated function."""

    __slots__ = ("_saved", "_values")

    def __init__(self, **values: Any) -> None:
        checked = [_checked_value(name, value) for name, value in values.items()]
        self._values = {setting.name: value for setting, value in checked}
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


# ---- the settings: each statement is all that is known of one, and gives its context manager


class Context:
    """The public function that overrides a setting for a block: `with enable_x64(True): ...`.

    >>> with enable_x64():
    ...     config.enable_x64
    True
    >>> enable_x64.value
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


def _define(name: str, default: Any, doc: str, block: Any = _UNSET, **facts: Any) -> Context:
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


_traced = {"in_trace_key": True}

# what programs mean
enable_x64 = _define(
    "enable_x64", False, "Keep 64-bit dtypes instead of cutting them to 32 bits.", True, **_traced
)
numpy_dtype_promotion = _define(
    "numpy_dtype_promotion",
    "standard",
    "How dtypes are promoted: strictly, or by NumPy's lattice.",
    choices=("standard", "strict"),
    **_traced,
)
numpy_rank_promotion = _define(
    "numpy_rank_promotion",
    "allow",
    "Allow, warn about, or raise for operands of different rank.",
    choices=("allow", "warn", "raise"),
    **_traced,
)
default_matmul_precision = _define(
    "default_matmul_precision", None, "The precision that products state where they are given none; they are as precise as their dtypes.",
    kind=str, **_traced,
    choices=("default", "high", "highest", "fastest", "bfloat16", "bfloat16_3x", "tensorfloat32", "float32", "float64",
             "ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
             "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
             "BF16_BF16_F32_X9", "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64"))  # fmt: skip
default_device = _define(
    "default_device", None, "The device of arrays that are not placed otherwise.", **_traced
)
default_prng_impl = _define(
    "default_prng_impl", "threefry2x32", "The random number generator of new keys.", **_traced
)
enable_custom_prng = _define(
    "enable_custom_prng", False, "Give typed keys for old-style seeds.", True, **_traced
)
legacy_prng_key = _define(
    "legacy_prng_key",
    "allow",
    "Allow, warn about, or raise for raw keys in random functions.",
    choices=("allow", "warn", "error"),
    **_traced,
)
threefry_partitionable = _define(
    "threefry_partitionable", True, "Index random bits by their global position.", True, **_traced
)
_define("random_seed_offset", 0, "Added to the seeds of keys.", **_traced)
_define(
    "high_dynamic_range_gumbel",
    False,
    "Draw Gumbel samples in the mode 'high' where no mode is given.",
    **_traced,
)
softmax_custom_jvp = _define(
    "softmax_custom_jvp",
    True,
    "Accepted without effect: the derivative is stable.",
    True,
    **_traced,
)
allow_f16_reductions = _define(
    "allow_f16_reductions",
    True,
    "Accepted without effect: sums of 16 bits add in float32.",
    True,
    **_traced,
)
_define(
    "jax_api",
    None,
    "The JAX version, as '0.10', whose meaning a name has where versions differ; by default the older one.",
    kind=str,
    **_traced,
)
_define("array", True, "Accepted for old programs; there is one array type.")
_define(
    "explicit_x64_dtypes",
    "warn",
    "Where a 64-bit dtype is asked for and enable_x64 is off: allow it, or cut it with a warning.",
    choices=("allow", "warn", "error"),
    **_traced,
)

# how programs run
_define("disable_jit", False, "Run jitted functions op by op.", **_traced)
_define(
    "disable_bwd_checks",
    False,
    "Take cotangents from rules of custom_vjp whose shapes are not those of the arguments.",
    **_traced,
)
_define(
    "export_calling_convention_version",
    10,
    "The form of exported programs; weft.export refuses versions that it does not know.",
)
_define(
    "xla_metadata",
    (),
    "Attributes of the operations that are traced, as pairs of key and value; `set_xla_metadata` sets them.",
    kind=tuple,
    **_traced,
)
_define(
    "compiler_options",
    (),
    "Options for the compiler of a PJRT plugin, as pairs; `jit(compiler_options=...)` sets them.",
    kind=tuple,
    **_traced,
)
no_tracing = _define(
    "no_tracing", False, "Raise where a function would be traced to be compiled.", True
)
no_execution = _define("no_execution", False, "Raise where a program would run.", True)
_define("use_shardy_partitioner", True, "Accepted; there is one partitioner.")
remove_size_one_mesh_axis_from_type = _define(
    "remove_size_one_mesh_axis_from_type",
    False,
    "Whether types leave out mesh axes of one device.",
    True,
    **_traced,
)
auto_pcast = _define(
    "auto_pcast",
    True,
    "Whether operands of one operation that vary over different manual axes are cast.",
    True,
    **_traced,
)
_define("use_direct_linearize", True, "Accepted; there is one linearization.")
_define(
    "num_cpu_devices",
    -1,
    "The number of virtual devices of this process, if the environment does not say.",
)
_define(
    "platforms",
    None,
    "The platforms that a program expects, separated by commas; one that is missing is an error.",
    kind=str,
)
_define(
    "cuda_visible_devices", "all", "The NVIDIA GPUs of this process: numbers with commas.", kind=str
)
_define(
    "rocm_visible_devices", "all", "The AMD GPUs of this process: numbers with commas.", kind=str
)
_define(
    "oneapi_visible_devices",
    "all",
    "The Intel GPUs of this process: numbers with commas.",
    kind=str,
)
_define(
    "pjrt_client_create_options",
    None,
    "Options of the clients of PJRT plugins: a dict, or NAME:VALUE pairs with semicolons.",
    kind=object,
)
_define("platform_name", "", "Accepted without effect: JAX ignores it too; see platforms.")
_define("xla_backend", "", "Accepted without effect: JAX ignores it too; see platforms.")
_define(
    "cpu_enable_async_dispatch",
    True,
    "Let long programs run while their callers go on; see the page on asynchronous dispatch.",
)
_define(
    "async_dispatch_bytes",
    -1,
    "The estimated work, in bytes of memory traffic, from which programs do so; -1 for the machine's.",
)
_define(
    "cpu_collectives_implementation",
    "gloo",
    "Accepted without effect: processes exchange data by shared memory and MPI.",
    optional=True,
)
_define(
    "disable_most_optimizations",
    False,
    "Accepted without effect: there is one level of optimization.",
    **_traced,
)
_guard: dict[str, Any] = {
    "kind": str,
    "choices": ("allow", "log", "disallow", "log_explicit", "disallow_explicit"),
}
transfer_guard_host_to_device = _define(
    "transfer_guard_host_to_device", None, "The guard of values that become arrays.", **_guard
)
transfer_guard_device_to_device = _define(
    "transfer_guard_device_to_device", None, "The guard of moves to other devices.", **_guard
)
transfer_guard_device_to_host = _define(
    "transfer_guard_device_to_host", None, "Accepted; the CPU's memory is the host's.", **_guard
)
_define("transfer_guard", None, "The guard of transfers whose own guard is not set.", **_guard)
transfer_guard = Context(
    "transfer_guard",
    doc="Allow, log or refuse implicit transfers, or all, of every kind.",
    others=(
        "transfer_guard_host_to_device",
        "transfer_guard_device_to_device",
        "transfer_guard_device_to_host",
    ),
)

# more than one process
_define(
    "heartbeat_timeout", 10.0, "Seconds of silence after which another process counts as failed."
)
_define(
    "collective_timeout",
    600.0,
    "Seconds to wait in a collective for processes that live but do not come and report no progress.",
)


def _process_transport(value: Any) -> str:
    choices = ("auto", "shared_memory", "mpi")
    if value == "tcp":
        raise ValueError(
            "config.process_transport: there is no transport 'tcp' any more. 'auto' uses shared memory within a host and MPI "
            "between hosts, which starts without a launcher, too."
        )
    if value not in choices:
        raise ValueError(
            f"config.process_transport is one of {', '.join(map(repr, choices))}, got {value!r}"
        )
    return value


_define(
    "process_transport",
    "auto",
    "How processes exchange data: by shared memory within a host and by MPI between hosts (auto), or by "
    "one of them alone.",
    convert=_process_transport,
)

# compiled programs kept on disk
_define("enable_compilation_cache", True, "Keep compiled programs on disk.")
_define(
    "compilation_cache_dir",
    None,
    "The folder of compiled programs; WEFT_CACHE_DIR goes before it.",
    kind=str,
)
_define(
    "compilation_cache_max_size",
    -1,
    "The most bytes that compiled programs take on disk; -1 for 1 GiB.",
)
_define(
    "persistent_cache_min_compile_time_secs", 1.0, "Accepted without effect: all programs are kept."
)
_define(
    "persistent_cache_min_entry_size_bytes", 0, "Accepted without effect: all programs are kept."
)
_define(
    "raise_persistent_cache_errors",
    False,
    "Accepted without effect: what cannot be read is compiled.",
)

# checks and reports
debug_nans = _define("debug_nans", False, "Raise where a NaN first appears.", True, **_traced)
debug_infs = _define("debug_infs", False, "Raise where an infinity first appears.", True, **_traced)
check_static_indices = _define(
    "check_static_indices",
    False,
    "Raise where an index that is known while tracing is out of bounds.",
    True,
    **_traced,
)
debug_key_reuse = _define(
    "debug_key_reuse", False, "Raise where a random key is used for a second time.", True, **_traced
)
enable_checks = _define(
    "enable_checks",
    False,
    "Accepted without effect: verify checks programs after every stage.",
    True,
)
check_tracer_leaks = _define(
    "check_tracer_leaks",
    False,
    "Raise when a transformation ends and one of its tracers lives on.",
    True,
)
checking_leaks = check_tracer_leaks
_define(
    "log_checkpoint_residuals",
    False,
    "Log as warnings what functions under checkpoint keep for the backward pass.",
)
log_compiles = _define(
    "log_compiles",
    False,
    "Log as warnings what is traced, lowered and compiled, and how long it takes.",
    True,
)
explain_cache_misses = _define(
    "explain_cache_misses",
    False,
    "Say why a function is traced once more, or not found on disk.",
    True,
)
_define(
    "logging_level",
    "NOTSET",
    "The least level of weft's reports that are shown.",
    optional=True,
    choices=("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
)
_define(
    "debug_log_modules", "", "Loggers whose reports for debugging are shown, separated by commas."
)
_define("distributed_debug", False, "Accepted without effect: processes say what fails.")
_define(
    "traceback_filtering",
    "auto",
    "'off' shows weft's own frames in tracebacks.",
    choices=("off", "tracebackhide", "remove_frames", "quiet_remove_frames", "auto"),
)
_define("traceback", "", "'full' shows weft's own frames in tracebacks.", choices=("", "full"))
_define("tracer_error_num_traceback_frames", 5, "Accepted without effect: errors name one line.")
_define("pprint_use_color", True, "Accepted without effect: texts have no colours.")
_define(
    "backend",
    None,
    "What runs programs whose arguments are not placed: cpu, reference, or a registered backend; by default the first "
    "of `platforms`, else an accelerator whose plugin is installed, else cpu.",
    kind=str,
    **_traced,
)
_define(
    "check",
    "",
    "The checks of compiled programs, separated by commas: types, maps, memory, stages, values or values:N%.",
    convert=canonical,
    **_traced,
)
_define(
    "verify",
    False,
    "Check the types of a program after every stage of compilation; the same as types in check.",
)
if _from_environment(_settings["verify"]):
    config.update("verify", True)
_define(
    "dump", _xla_flag("xla_dump_to"), "The folder for numbered files of every stage of compilation."
)
_define(
    "captured_constants_warn_bytes",
    2_000_000_000,
    "The bytes of closed-over arrays of a program from which it warns; -1: never.",
)
_define(
    "disallow_mesh_context_manager",
    False,
    "Raise where a mesh is entered as a context manager; use set_mesh.",
)
_define(
    "dump_ir_to",
    "",
    "The folder for the text of every program that is compiled, before it is compiled.",
)
_define(
    "dump_ir_modes",
    "stablehlo",
    "The texts that dump_ir_to asks for: stablehlo, jaxpr, or both, separated by a comma.",
)
_define("include_debug_info_in_dumps", True, "Write source lines into the StableHLO of dump_ir_to.")

# kernels
pallas_enable_debug_checks = _define(
    "pallas_enable_debug_checks",
    False,
    "Make pallas.debug_check check its condition.",
    True,
    **_traced,
)
pallas_poison_buffers = _define(
    "pallas_poison_buffers", False, "Accepted; memory without a value holds NaN in any case.", True
)

# accepted options by the reason why nothing depends on them; any value will do
thread_guard = _define(
    "thread_guard", False, "Accepted; arrays may be used from any thread.", True, kind=object
)
array_garbage_collection_guard = _define(
    "array_garbage_collection_guard", None, "Accepted; arrays need no collector to be freed."
)
_WITHOUT_EFFECT: dict[str, dict[str, Any]] = {
    "there are no devices or runtimes of this kind": {
        "backend_target": "", "bcoo_cusparse_lowering": False, "mock_gpu_topology": "", "mock_num_gpu_processes": 0,
        "mosaic_allow_hlo": False, "ragged_dot_use_gpu_pallas_triton_lowering": False, "ragged_dot_use_ragged_dot_instruction": True,
        "threefry_gpu_kernel_lowering": False, "use_magma": "auto", "use_emit_pipeline_primitive": False,
        "pallas_use_mosaic_gpu": True, "pallas_verbose_errors": False,
        "send_traceback_to_runtime": "off", "experimental_unsafe_xla_runtime_errors": False, "xla_profile_version": 0},
    "processes start and exchange data in ways of their own (weft.distributed)": {
        "check_proxy_envs": True, "cpu_get_global_topology_timeout_minutes": 5, "cpu_get_local_topology_timeout_minutes": 2,
        "cross_host_transfer_socket_address": "", "cross_host_transport_addresses": "", "cross_host_transfer_timeout_seconds": None,
        "cross_host_transfer_transfer_size": None, "enable_preemption_service": True, "enable_recoverability": False,
        "force_dcn_cross_host_transfers": False, "share_binary_between_hosts": False, "share_binary_between_hosts_timeout_ms": 1_200_000,
        "sort_devices_by_process_index": True, "debug_leaked_clients_on_clear_backends": False},
    "the compiler has one level of optimization and takes no profiles": {
        "compiler_detailed_logging_min_ops": 10, "compiler_enable_remat_pass": True, "enable_pgle": False, "pgle_profiling_runs": 3,
        "pgle_aggregation_percentile": 90, "exec_time_optimization_effort": 0.0, "memory_fitting_effort": 0.0,
        "memory_fitting_level": "O2", "optimization_level": "UNKNOWN", "embedded_constants_max_bytes": 32,
        "eager_constant_folding": False},
    "programs on disk are found by their structure, and checked": {
        "compilation_cache_check_contents": False, "compilation_cache_expect_pgle": False,
        "compilation_cache_include_metadata_in_key": False, "persistent_cache_enable_xla_caches": "none",
        "remove_custom_partitioning_ptr_from_cache_key": False},
    "texts have one form": {
        "hlo_source_file_canonicalization_regex": None, "include_full_tracebacks_in_locations": True, "source_url_schema": None,
        "traceback_in_locations_limit": 100, "captured_constants_report_frames": 0, "use_simplified_jaxpr_constants": False},
    "it chooses between two ways of computing the same, and there is one": {
        "custom_vjp3": False, "remat3": False, "scan3": False, "vjp3": False, "dynamic_shapes": False, "refs_to_pins": False,
        "data_dependent_tracing_fallback": False, "host_callback_inlining": False, "jit_pjit_api_merge": True, "remat_opt_barrier": True,
        "enable_memories": False, "parallel_functions_output_gda": False, "pmap_no_rank_reduction": True, "pmap_shmap_merge": False,
        "sharding_in_types": False, "spmd_mode": "allow_jit", "varying_axes_in_types": True, "check_vma": False,
        "mutable_array_checks": True, "disable_vmap_shmap_error": False},
    "exports have one format, and TensorFlow is not a target": {
        "export_ignore_forward_compatibility": False, "serialization_version": 0,
        "jax2tf_associative_scan_reductions": False, "jax2tf_default_native_serialization": True},
    "it belongs to an experimental interface that weft lacks; debug_nans and checkify check values": {
        "error_checking_behavior_divide": "ignore", "error_checking_behavior_nan": "ignore", "error_checking_behavior_oob": "ignore"},
}  # fmt: skip
for _reason, _options in _WITHOUT_EFFECT.items():
    for _name, _default in _options.items():
        _define(_name, _default, f"Accepted without effect: {_reason}.", kind=object)


def disable_jit(disable: bool = True) -> Override:
    """Run jitted functions op by op within a block. Raises ValueError for a value that is not a bool.

    >>> with disable_jit():
    ...     config.disable_jit
    True
    """
    return Override(disable_jit=disable)


# ---- virtual devices

MAX_DEVICES = 512


def num_virtual_devices() -> int:
    """Return how many virtual devices this process has: the environment says, else the configuration, else 1."""
    return requested_devices() or 1


def requested_devices() -> int | None:
    """Return the number of CPU devices that the environment or else the configuration sets; None if neither does."""
    text = os.environ.get("WEFT_NUM_DEVICES")
    if text:
        return _device_count(text, "WEFT_NUM_DEVICES")
    text = _xla_flag("xla_force_host_platform_device_count")
    if text:
        return _device_count(text, "XLA_FLAGS=--xla_force_host_platform_device_count")
    if config.num_cpu_devices != -1:
        return _device_count(config.num_cpu_devices, "config.num_cpu_devices")
    return None


def _device_count(value: str | int, origin: str) -> int:
    try:
        count = int(value)
    except ValueError:
        count = 0
    if not 1 <= count <= MAX_DEVICES:
        raise ValueError(
            f"{origin} is {value!r}; the number of virtual devices is between 1 and {MAX_DEVICES}"
        )
    return count


def api_version() -> tuple[int, ...]:
    """The version that `jax_api` sets, as numbers; none where it is not set. ValueError if it is not a version.

    >>> api_version()
    ()
    """
    text = config.jax_api
    if text is None:
        return ()
    parts = text.partition("+")[0].split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):
        raise ValueError(f"config.jax_api is a version such as '0.4.30' or '0.10', got {text!r}")
    return tuple(map(int, parts))
