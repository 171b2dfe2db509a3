"""Settings: declared flags with a default, an environment variable and per-thread overrides.

In:  `WEFT_<NAME>` or `JAX_<NAME>` in the environment, `config.update`, attribute assignment, context managers.
Out: `config.<name>`, an ordinary attribute read, and `config.trace_key()`, which changes with every flag that
     changes what tracing gives.

A flag may be named bare, or with the prefix `weft_` or `jax_`. The shared value is a class attribute and an override an
attribute of the thread's own namespace, so that Python's attribute lookup finds the right one without code of ours.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from weft.util.state import guard, new_epoch

_TRUE = frozenset(("1", "true", "yes", "on", "y", "t"))
_FALSE = frozenset(("0", "false", "no", "off", "n", "f", ""))


class Flag:
    """What is known about one setting: its type, or the values it may take, and whether it may be None."""

    __slots__ = ("choices", "default", "doc", "kind", "name", "optional")

    def __init__(
        self, name: str, default: Any, kind: type, choices: tuple[Any, ...], optional: bool, doc: str
    ) -> None:
        self.name = name
        self.default = default
        self.kind = kind
        self.choices = choices
        self.optional = optional
        self.doc = doc

    def check(self, value: Any) -> Any:
        """Return the value in its proper type, or raise."""
        if value is None and self.optional:
            return None
        if self.kind is bool:
            if isinstance(value, str):
                return self.parse(value)
            if value in (0, 1):
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
                raise TypeError(f"config.{self.name} takes a value of type {self.kind.__name__}, got {value!r}")
            return self.kind(value)
        if self.kind is object or isinstance(value, self.kind):
            return value
        raise TypeError(f"config.{self.name} takes a value of type {self.kind.__name__}, got {value!r}")

    def parse(self, text: str) -> Any:
        """Return the value that an environment variable's text stands for."""
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
                raise ValueError(f"config.{self.name} takes a value of type {kind}, got {text!r}") from None
        return self.check(text)

    def _menu(self) -> str:
        options = [repr(choice) for choice in self.choices] + ["None"] * self.optional
        return ", ".join(options)


_flags: dict[str, Flag] = {}
_traced: list[str] = []
_listeners: dict[str, list[Callable[[Any], None]]] = {}
_lock = threading.RLock()
_keys: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # equal trace keys are one object, compared by identity
_UNSET = object()
_PREFIXES = ("weft_", "jax_")


class _Alias(str):
    """The attribute of that name under another one. A string, which the collector need not go over: there are 264."""
    __slots__ = ()

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else getattr(instance, self)


class Config(threading.local):
    """All settings. Reading is an attribute; `update` sets a flag for all threads.

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
    ) -> None:
        """Declare a flag; its first value is that of `WEFT_<NAME>`, else `JAX_<NAME>`, else the default."""
        if name in _flags:
            raise ValueError(f"config.{name} is already defined")
        if kind is None:
            kind = object if default is None else type(default)
        flag = Flag(name, default, kind, tuple(choices), optional or default is None, doc)
        with _lock:
            _flags[name] = flag
            if in_trace_key:
                _traced.append(name)
            setattr(Config, name, _from_environment(flag))
            # Prefixed names are descriptors, not __getattr__: its mere presence would double the cost of every read.
            for prefix in _PREFIXES:
                setattr(Config, prefix + name, _Alias(name))
            Config._version += 1

    def update(self, name: str, value: Any) -> None:
        """Set a flag for all threads; an override that is active in this thread stays in force until its block ends."""
        flag = _flags[resolve(name)]
        value = flag.check(value)
        for listener in _listeners.get(flag.name, ()):
            listener(value)  # may refuse by raising
        with _lock:
            setattr(Config, flag.name, value)
            Config._version += 1
            new_epoch()

    def read(self, name: str) -> Any:
        """Return a flag by any of its names."""
        return getattr(self, resolve(name))

    def on_change(self, name: str, listener: Callable[[Any], None]) -> None:
        """Call `listener(new value)` before `update` sets a flag; it may raise to refuse."""
        _listeners.setdefault(resolve(name), []).append(listener)

    def trace_key(self) -> tuple[Any, ...]:
        """Return every flag value that changes tracing, as one hashable tuple; equal keys are one object."""
        version, key = self._key
        return key if version == Config._version else self._new_key()

    def _new_key(self) -> tuple[Any, ...]:
        version = Config._version
        key = tuple([getattr(self, name) for name in _traced])
        key = _keys.setdefault(key, key)
        threading.local.__setattr__(self, "_key", (version, key))
        return key

    def as_traced(self, key: tuple[Any, ...]) -> Override:
        """Set every flag that changes tracing, within a block, to what it was when `trace_key` gave `key`."""
        return Override(**dict(zip(_traced, key)))

    @property
    def values(self) -> dict[str, Any]:
        """All flags and their values in this thread."""
        return {name: getattr(self, name) for name in _flags}

    def __setattr__(self, name: str, value: Any) -> None:
        self.update(name, value)

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.values.items() if value != _flags[name].default}
        return f"Config({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    @property
    def x64_enabled(self) -> bool:
        """Another name of `enable_x64`."""
        return self.enable_x64

    def parse_flags_with_absl(self) -> None:
        """Accepted for old programs; there are no command-line flags."""

    config_with_absl = parse_flags_with_absl


def resolve(name: str) -> str:
    """Return the bare name of a flag.

    >>> resolve('jax_enable_x64'), resolve('weft_enable_x64'), resolve('enable_x64')
    ('enable_x64', 'enable_x64', 'enable_x64')
    """
    if name in _flags:
        return name
    for prefix in _PREFIXES:
        bare = name.removeprefix(prefix)
        if bare in _flags:
            return bare
    import difflib  # for this error alone

    near = difflib.get_close_matches(name.removeprefix("weft_").removeprefix("jax_"), _flags, n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise AttributeError(f"weft.config has no flag {name!r}.{hint}")


def _from_environment(flag: Flag) -> Any:
    for prefix in ("WEFT_", "JAX_"):
        variable = prefix + flag.name.upper()
        text = os.environ.get(variable)
        if text is not None:
            try:
                return flag.parse(text)
            except (TypeError, ValueError) as error:
                raise ValueError(f"environment variable {variable}: {error}") from None
    return flag.default


def _xla_flag(name: str) -> str:
    """Return what `XLA_FLAGS` in the environment says about one of its flags; the last word counts."""
    given = os.environ.get("XLA_FLAGS")
    found = re.findall(rf"(?:^|\s)--?{name}(?:=|\s+)(\S+)", given) if given else ()
    return found[-1] if found else ""


config = Config()


class Override:
    """Set flags in this thread for a block, or for the calls of a decorated function."""

    __slots__ = ("_saved", "_values")

    def __init__(self, **values: Any) -> None:
        self._values = {name: _flags[resolve(name)].check(value) for name, value in values.items()}
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


# ---- the flags

_PRECISIONS = (
    "default", "high", "highest", "fastest", "bfloat16", "bfloat16_3x", "tensorfloat32", "float32", "float64",
    "ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9", "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64",
)  # fmt: skip

_define = config.define

# what programs mean
_define("enable_x64", False, in_trace_key=True, doc="64-bit dtypes are kept instead of being cut to 32 bits")
_define("numpy_dtype_promotion", "standard", choices=("standard", "strict"), in_trace_key=True)
_define("numpy_rank_promotion", "allow", choices=("allow", "warn", "raise"), in_trace_key=True)
_define("default_matmul_precision", None, kind=str, choices=_PRECISIONS, in_trace_key=True)
_define("default_device", None, kind=object, in_trace_key=True)
_define("default_prng_impl", "threefry2x32", in_trace_key=True)
_define("enable_custom_prng", False, in_trace_key=True, doc="old-style seeds give new-style typed keys")
_define("legacy_prng_key", "allow", choices=("allow", "warn", "error"))
_define("threefry_partitionable", True, in_trace_key=True, doc="random bits are indexed by global position")
_define("random_seed_offset", 0, in_trace_key=True)
_define("high_dynamic_range_gumbel", False, in_trace_key=True)
_define("softmax_custom_jvp", True, in_trace_key=True)
_define("allow_f16_reductions", True, in_trace_key=True)
_define("jax_api", None, kind=str, in_trace_key=True, doc="which generation's meaning is taken where names changed it")
_define("array", True, doc="accepted for old programs; there is one array type")
_define("explicit_x64_dtypes", "warn", choices=("allow", "warn", "error"))

# how programs run
_define("disable_jit", False, in_trace_key=True)
_define("no_tracing", False)
_define("no_execution", False)
_define("use_shardy_partitioner", True, doc="accepted; there is one partitioner")
_define("remove_size_one_mesh_axis_from_type", False, in_trace_key=True)
_define("auto_pcast", True, in_trace_key=True)
_define("use_direct_linearize", True, doc="accepted; there is one linearization")
_define("num_cpu_devices", -1, doc="virtual devices of this process, if the environment does not say")
_define("platforms", None, kind=str)
_define("platform_name", "")
_define("xla_backend", "")
_define("cpu_enable_async_dispatch", True)
_define("cpu_collectives_implementation", "gloo", optional=True)
_define("disable_most_optimizations", False, in_trace_key=True)
for _guard in ("", "_host_to_device", "_device_to_device", "_device_to_host"):
    _define(
        f"transfer_guard{_guard}",
        None,
        kind=str,
        choices=("allow", "log", "disallow", "log_explicit", "disallow_explicit"),
    )

# compiled programs kept on disk
_define("enable_compilation_cache", True)
_define("compilation_cache_dir", None, kind=str)
_define("compilation_cache_max_size", -1)
_define("persistent_cache_min_compile_time_secs", 1.0)
_define("persistent_cache_min_entry_size_bytes", 0)
_define("raise_persistent_cache_errors", False)

# checks and reports
_define("debug_nans", False, in_trace_key=True)
_define("debug_infs", False, in_trace_key=True)
_define("debug_key_reuse", False, in_trace_key=True)
_define("enable_checks", False)
_define("check_tracer_leaks", False)
_define("log_compiles", False)
_define("explain_cache_misses", False)
_define("logging_level", "NOTSET", optional=True)
_define("debug_log_modules", "")
_define("distributed_debug", False)
_define("traceback_filtering", "auto", choices=("off", "tracebackhide", "remove_frames", "quiet_remove_frames", "auto"))
_define("traceback", "", choices=("", "full"), doc="'full' shows weft's own frames in tracebacks")
_define("tracer_error_num_traceback_frames", 5)
_define("pprint_use_color", True)
_define("engine", "native", choices=("native", "numpy"), in_trace_key=True, doc="what runs compiled programs")
_define("verify", False, doc="check the program after every stage")
_define("dump", _xla_flag("xla_dump_to"), doc="folder for numbered files of every stage")
_define("dump_ir_to", "")

# Known to programs, without meaning here: what they steer does not exist in this system, or has only one form.
_WITHOUT_MEANING = {
    "array_garbage_collection_guard": None, "backend_target": "", "bcoo_cusparse_lowering": False,
    "captured_constants_report_frames": 0, "captured_constants_warn_bytes": 2_000_000_000, "check_proxy_envs": True,
    "check_static_indices": False, "compilation_cache_check_contents": False, "compilation_cache_expect_pgle": False,
    "compilation_cache_include_metadata_in_key": False, "compiler_detailed_logging_min_ops": 10,
    "compiler_enable_remat_pass": True, "cpu_get_global_topology_timeout_minutes": 5,
    "cpu_get_local_topology_timeout_minutes": 2, "cross_host_transfer_socket_address": "",
    "cross_host_transport_addresses": "", "cuda_visible_devices": "all", "data_dependent_tracing_fallback": False,
    "debug_leaked_clients_on_clear_backends": False, "disable_bwd_checks": False, "disable_vmap_shmap_error": False,
    "disallow_mesh_context_manager": False, "dump_ir_modes": "stablehlo", "dynamic_shapes": False,
    "eager_constant_folding": False, "embedded_constants_max_bytes": 32, "enable_memories": False, "enable_pgle": False,
    "enable_preemption_service": True, "enable_recoverability": False, "exec_time_optimization_effort": 0.0,
    "experimental_unsafe_xla_runtime_errors": False, "export_calling_convention_version": 10,
    "export_ignore_forward_compatibility": False, "force_dcn_cross_host_transfers": False,
    "hlo_source_file_canonicalization_regex": None, "host_callback_inlining": False,
    "include_debug_info_in_dumps": True, "include_full_tracebacks_in_locations": True, "jit_pjit_api_merge": True,
    "log_checkpoint_residuals": False, "memory_fitting_effort": 0.0, "memory_fitting_level": "O2",
    "mock_gpu_topology": "", "mock_num_gpu_processes": 0, "mutable_array_checks": True, "oneapi_visible_devices": "all",
    "optimization_level": "UNKNOWN", "parallel_functions_output_gda": False,
    "persistent_cache_enable_xla_caches": "none", "pgle_profiling_runs": 3, "pjrt_client_create_options": None,
    "pmap_no_rank_reduction": True, "pmap_shmap_merge": False, "ragged_dot_use_ragged_dot_instruction": True,
    "refs_to_pins": False, "remat_opt_barrier": True, "rocm_visible_devices": "all", "send_traceback_to_runtime": "off",
    "serialization_version": 0, "sharding_in_types": False, "share_binary_between_hosts": False,
    "share_binary_between_hosts_timeout_ms": 1_200_000, "sort_devices_by_process_index": True,
    "source_url_schema": None, "spmd_mode": "allow_jit", "thread_guard": False, "threefry_gpu_kernel_lowering": False,
    "traceback_in_locations_limit": 100, "use_magma": "auto", "use_simplified_jaxpr_constants": False,
    "varying_axes_in_types": True, "vjp3": False, "xla_profile_version": 0,
}  # fmt: skip
for _name, _default in _WITHOUT_MEANING.items():
    _define(_name, _default, kind=object, doc="accepted for programs that set it; nothing depends on it")


# ---- context managers


class Context:
    """The public function that overrides one flag for a block: `with enable_x64(True): ...`.

    >>> with enable_x64():
    ...     config.enable_x64
    True
    >>> enable_x64.value
    False
    """

    def __init__(self, flags: str, default: Any = _UNSET, doc: str = "") -> None:
        self._flags = tuple(flags.split())
        self._default = default
        self.__name__ = self._flags[0]
        self.__doc__ = doc

    def __call__(self, new_val: Any = _UNSET) -> Override:
        value = self._default if new_val is _UNSET else new_val
        if value is _UNSET:
            raise TypeError(f"{self.__name__}() needs a value")
        return Override(**dict.fromkeys(self._flags, value))

    @property
    def value(self) -> Any:
        """The flag's value in this thread."""
        return config.read(self._flags[0])

    def __repr__(self) -> str:
        return f"<context manager {self.__name__}>"


enable_x64 = Context("enable_x64", True, "Keep 64-bit dtypes within a block.")
numpy_rank_promotion = Context(
    "numpy_rank_promotion", doc="'allow', 'warn' about, or 'raise' for operands of different rank within a block."
)
numpy_dtype_promotion = Context(
    "numpy_dtype_promotion", doc="Choose 'standard' or 'strict' dtype promotion within a block."
)
default_matmul_precision = Context(
    "default_matmul_precision", doc="Set the precision of matrix products that do not name one, within a block."
)
default_device = Context("default_device", doc="Set the device of arrays not placed otherwise, within a block.")
default_prng_impl = Context("default_prng_impl", doc="Set the random number generator of new keys within a block.")
enable_custom_prng = Context("enable_custom_prng", True, "Make old-style seeds give typed keys within a block.")
legacy_prng_key = Context("legacy_prng_key", doc="'allow', 'warn' about, or 'error' on old-style keys within a block.")
threefry_partitionable = Context("threefry_partitionable", True, "Choose the layout of random bits within a block.")
softmax_custom_jvp = Context("softmax_custom_jvp", True, "Choose the derivative rule of softmax within a block.")
allow_f16_reductions = Context("allow_f16_reductions", True, "Allow reductions in 16-bit floats within a block.")

_disable_jit = Context("disable_jit", True)


def disable_jit(disable: bool = True) -> Override:
    """Run jitted functions op by op within a block.

    >>> with disable_jit():
    ...     config.disable_jit
    True
    """
    return _disable_jit(disable)


no_tracing = Context("no_tracing", True, "Raise when anything would be traced anew, within a block.")
no_execution = Context("no_execution", True, "Raise when a program would run, within a block.")
auto_pcast = Context("auto_pcast", True, "Insert casts of varying manual axes where they are needed, within a block.")
remove_size_one_mesh_axis_from_type = Context(
    "remove_size_one_mesh_axis_from_type", True, "Leave mesh axes of size 1 out of array types within a block."
)

debug_nans = Context("debug_nans", True, "Raise where a NaN first appears, within a block.")
debug_infs = Context("debug_infs", True, "Raise where an infinity first appears, within a block.")
debug_key_reuse = Context("debug_key_reuse", True, "Raise where a random key is used twice, within a block.")
enable_checks = Context("enable_checks", True, "Turn on internal checks within a block.")
check_tracer_leaks = Context(
    "check_tracer_leaks", True, "Raise when a transformation ends and one of its tracers lives on, within a block."
)
checking_leaks = check_tracer_leaks
log_compiles = Context("log_compiles", True, "Log every trace and compilation within a block.")
explain_cache_misses = Context("explain_cache_misses", True, "Log why a function was traced again, within a block.")
thread_guard = Context("thread_guard", True, "Accepted; arrays may be used from any thread.")

transfer_guard = Context(
    "transfer_guard transfer_guard_host_to_device transfer_guard_device_to_device transfer_guard_device_to_host",
    doc="Set the guard of all kinds of transfers within a block.",
)
transfer_guard_host_to_device = Context("transfer_guard_host_to_device", doc="Guard transfers from the host.")
transfer_guard_device_to_device = Context("transfer_guard_device_to_device", doc="Guard transfers between devices.")
transfer_guard_device_to_host = Context("transfer_guard_device_to_host", doc="Guard transfers to the host.")
array_garbage_collection_guard = Context(
    "array_garbage_collection_guard", doc="Accepted; arrays need no collector to be freed."
)


# ---- virtual devices

MAX_DEVICES = 512


def num_virtual_devices() -> int:
    """Return how many virtual devices this process brings: the environment says, else the configuration, else 1."""
    text = os.environ.get("WEFT_NUM_DEVICES")
    if text:
        return _device_count(text, "WEFT_NUM_DEVICES")
    text = _xla_flag("xla_force_host_platform_device_count")
    if text:
        return _device_count(text, "XLA_FLAGS=--xla_force_host_platform_device_count")
    if config.num_cpu_devices != -1:
        return _device_count(config.num_cpu_devices, "config.num_cpu_devices")
    return 1


def _device_count(value: str | int, origin: str) -> int:
    try:
        count = int(value)
    except ValueError:
        count = 0
    if not 1 <= count <= MAX_DEVICES:
        raise ValueError(f"{origin} is {value!r}; the number of virtual devices is between 1 and {MAX_DEVICES}")
    return count
