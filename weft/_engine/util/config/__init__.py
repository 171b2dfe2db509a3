"""Settings: each with a default, an environment variable and per-thread overrides.

In:  `WEFT_<NAME>` or `JAX_<NAME>` in the environment, `config.update`, attribute assignment, context managers.
Out: `config.<name>`, an ordinary attribute read, and `config.trace_key()`, which differs if a setting differs that
     affects tracing.

Each statement declares one setting completely. `setting` has the mechanism.
"""

from __future__ import annotations

import os
import re
from typing import Any

from weft._engine import cpython
from weft._engine.util.checks import Checks as Checks, canonical, parse_checks as parse_checks
from weft._engine.util.config.setting import (
    Config as Config,
    Override as Override,
    Setting as Setting,
    SettingOverride,
    config as config,
    declared,
    define_context,
    frozen as frozen,
    known_settings as known_settings,
    make_user_context as make_user_context,
    resolve as resolve,
    value_from_environment,
)


def _xla_flag(name: str) -> str:
    """Return the value of a flag in the environment variable `XLA_FLAGS`; the last occurrence counts."""
    flags = os.environ.get("XLA_FLAGS")
    values = re.findall(rf"(?:^|\s)--?{name}(?:=|\s+)(\S+)", flags) if flags else ()
    return values[-1] if values else ""


_traced = {"in_trace_key": True}

# semantics of programs
enable_x64 = define_context(
    "enable_x64",
    False,
    "Keep 64-bit dtypes instead of truncating them to 32 bits.",
    True,
    **_traced,
)
numpy_dtype_promotion = define_context(
    "numpy_dtype_promotion",
    "standard",
    "The rules of dtype promotion: strict, or by the standard lattice.",
    choices=("standard", "strict"),
    **_traced,
)
numpy_rank_promotion = define_context(
    "numpy_rank_promotion",
    "allow",
    "Allow, warn about, or raise for operands of different rank.",
    choices=("allow", "warn", "raise"),
    **_traced,
)
default_matmul_precision = define_context(
    "default_matmul_precision", None,
    "The precision of matmuls without one. The name of a dot algorithm, such as BF16_BF16_F32_X3, selects it; "
    "other names are recorded, and the products are as precise as their dtypes.",
    kind=str, **_traced,
    choices=("default", "high", "highest", "fastest", "bfloat16", "bfloat16_3x", "tensorfloat32", "float32", "float64",
             "ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
             "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
             "BF16_BF16_F32_X9", "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64"))  # fmt: skip
default_device = define_context(
    "default_device", None, "The device of arrays without an explicit placement.", **_traced
)
default_prng_impl = define_context(
    "default_prng_impl", "threefry2x32", "The random number generator of new keys.", **_traced
)
enable_custom_prng = define_context(
    "enable_custom_prng", False, "Return typed keys from PRNGKey.", True, **_traced
)
legacy_prng_key = define_context(
    "legacy_prng_key",
    "allow",
    "Allow, warn about, or raise for raw keys in random functions.",
    choices=("allow", "warn", "error"),
    **_traced,
)
threefry_partitionable = define_context(
    "threefry_partitionable", True, "Index random bits by their global position.", True, **_traced
)
define_context("random_seed_offset", 0, "An integer that is added to the seeds of keys.", **_traced)
define_context(
    "high_dynamic_range_gumbel",
    False,
    "Draw Gumbel samples in the mode 'high' by default.",
    **_traced,
)
softmax_custom_jvp = define_context(
    "softmax_custom_jvp",
    True,
    "Accepted without effect: the derivative is stable.",
    True,
    **_traced,
)
allow_f16_reductions = define_context(
    "allow_f16_reductions",
    True,
    "Accepted without effect: sums of 16 bits add in float32.",
    True,
    **_traced,
)
define_context(
    "jax_api",
    None,
    "The JAX version, such as '0.10', whose behavior applies where versions differ; by default the older behavior.",
    kind=str,
    **_traced,
)
define_context("array", True, "Accepted for old programs; there is one array type.")
define_context(
    "explicit_x64_dtypes",
    "warn",
    "An explicit 64-bit dtype while enable_x64 is off: allow it, truncate it with a warning, or raise.",
    choices=("allow", "warn", "error"),
    **_traced,
)

# execution of programs
define_context(
    "cpython_internals",
    True,
    "Rely on memory layouts, reference counts and bytecode of CPython; read once, from the environment.",
)
if not config.cpython_internals:
    cpython.forbid()
define_context("disable_jit", False, "Run jitted functions op by op.", **_traced)
define_context(
    "disable_bwd_checks",
    False,
    "Accept cotangents from rules of custom_vjp whose shapes differ from the arguments' shapes.",
    **_traced,
)
define_context(
    "export_calling_convention_version",
    10,
    "The format version of exported programs; weft.export rejects unknown versions.",
)
define_context(
    "xla_metadata",
    (),
    "Attributes of traced operations, as pairs of key and value; `set_xla_metadata` sets them.",
    kind=tuple,
    **_traced,
)
define_context(
    "compiler_options",
    (),
    "Options for the compiler of a PJRT plugin, as pairs; `jit(compiler_options=...)` sets them.",
    kind=tuple,
    **_traced,
)
no_tracing = define_context(
    "no_tracing", False, "Raise instead of tracing a function for compilation.", True
)
no_execution = define_context("no_execution", False, "Raise instead of running a program.", True)
define_context("use_shardy_partitioner", True, "Accepted; there is one partitioner.")
remove_size_one_mesh_axis_from_type = define_context(
    "remove_size_one_mesh_axis_from_type",
    False,
    "Omit mesh axes of size 1 from types.",
    True,
    **_traced,
)
auto_pcast = define_context(
    "auto_pcast",
    True,
    "Cast operands of one operation that vary over different manual axes.",
    True,
    **_traced,
)
define_context("use_direct_linearize", True, "Accepted; there is one linearization.")
define_context(
    "num_cpu_devices",
    -1,
    "The number of virtual devices of this process, unless the environment sets it.",
)
define_context(
    "platforms",
    None,
    "The platforms that a program expects, separated by commas; one that is missing is an error.",
    kind=str,
)
define_context(
    "cuda_visible_devices", "all", "The NVIDIA GPUs of this process: numbers with commas.", kind=str
)
define_context(
    "rocm_visible_devices", "all", "The AMD GPUs of this process: numbers with commas.", kind=str
)
define_context(
    "oneapi_visible_devices",
    "all",
    "The Intel GPUs of this process: numbers with commas.",
    kind=str,
)
define_context(
    "pjrt_client_create_options",
    None,
    "Options of the clients of PJRT plugins: a dict, or NAME:VALUE pairs with semicolons.",
    kind=object,
)
define_context("platform_name", "", "Accepted without effect: JAX ignores it too; see platforms.")
define_context("xla_backend", "", "Accepted without effect: JAX ignores it too; see platforms.")
define_context(
    "cpu_enable_async_dispatch",
    True,
    "Return from calls before long programs end; see the page on asynchronous dispatch.",
)
define_context(
    "async_dispatch_bytes",
    -1,
    "The minimal estimated work of programs that run asynchronously, in bytes of memory traffic; -1: the machine's default.",
)
define_context(
    "cpu_collectives_implementation",
    "gloo",
    "Accepted without effect: processes exchange data by shared memory and MPI.",
    optional=True,
)
define_context(
    "disable_most_optimizations",
    False,
    "Accepted without effect: there is one level of optimization.",
    **_traced,
)
_guard: dict[str, Any] = {
    "kind": str,
    "choices": ("allow", "log", "disallow", "log_explicit", "disallow_explicit"),
}
transfer_guard_host_to_device = define_context(
    "transfer_guard_host_to_device",
    None,
    "The guard of transfers from the host to a device.",
    **_guard,
)
transfer_guard_device_to_device = define_context(
    "transfer_guard_device_to_device",
    None,
    "The guard of transfers between devices.",
    **_guard,
)
transfer_guard_device_to_host = define_context(
    "transfer_guard_device_to_host", None, "Accepted; the CPU's memory is the host's.", **_guard
)
define_context(
    "transfer_guard", None, "The guard of transfers whose specific guard is not set.", **_guard
)
transfer_guard = SettingOverride(
    "transfer_guard",
    doc="Allow, log or disallow implicit transfers, or all transfers, of every kind.",
    others=(
        "transfer_guard_host_to_device",
        "transfer_guard_device_to_device",
        "transfer_guard_device_to_host",
    ),
)

# several processes
define_context(
    "heartbeat_timeout", 10.0, "Seconds of silence after which another process counts as failed."
)
define_context(
    "collective_timeout",
    600.0,
    "Seconds to wait in a collective for live processes that neither join it nor report progress.",
)


def _process_transport(value: Any) -> str:
    choices = ("auto", "shared_memory", "mpi")
    if value == "tcp":
        raise ValueError(
            "config.process_transport: transport 'tcp' is not supported. Use 'auto': shared memory within a host and MPI "
            "between hosts, which also starts without a launcher."
        )
    if value not in choices:
        raise ValueError(
            f"config.process_transport must be one of {', '.join(map(repr, choices))}, got {value!r}"
        )
    return value


define_context(
    "process_transport",
    "auto",
    "The transport between processes: shared memory within a host and MPI between hosts (auto), or only "
    "one of them.",
    convert=_process_transport,
)

# the cache of compiled programs on disk
define_context("enable_compilation_cache", True, "Keep compiled programs on disk.")
define_context(
    "compilation_cache_dir",
    None,
    "The folder of compiled programs; WEFT_CACHE_DIR takes precedence.",
    kind=str,
)
define_context(
    "compilation_cache_max_size",
    -1,
    "The maximal size of compiled programs on disk in bytes; -1: the limit of `weft cache limit`, or 1 GiB.",
)
define_context(
    "persistent_cache_min_compile_time_secs", 1.0, "Accepted without effect: all programs are kept."
)
define_context(
    "persistent_cache_min_entry_size_bytes", 0, "Accepted without effect: all programs are kept."
)
define_context(
    "raise_persistent_cache_errors",
    False,
    "Accepted without effect: unreadable programs are compiled again.",
)

# checks and reports
debug_nans = define_context(
    "debug_nans", False, "Raise at the operation that computes a NaN.", True, **_traced
)
debug_infs = define_context(
    "debug_infs", False, "Raise at the operation that computes an infinity.", True, **_traced
)
check_static_indices = define_context(
    "check_static_indices",
    False,
    "Raise for a constant index that is out of bounds.",
    True,
    **_traced,
)
debug_key_reuse = define_context(
    "debug_key_reuse", False, "Raise when a random key is used a second time.", True, **_traced
)
enable_checks = define_context(
    "enable_checks",
    False,
    "Accepted without effect: verify checks programs after every stage.",
    True,
)
check_tracer_leaks = define_context(
    "check_tracer_leaks",
    False,
    "Raise if a tracer is still referenced after its transformation ends.",
    True,
)
checking_leaks = check_tracer_leaks
define_context(
    "log_checkpoint_residuals",
    False,
    "Log the residuals of functions under checkpoint as warnings.",
)
config.define(
    "progress",
    None,
    kind=bool,
    doc="Show a line on standard error while the program waits for more than 2 seconds; by default, if that is a terminal.",
)
log_compiles = define_context(
    "log_compiles",
    False,
    "Log tracing, lowering and compilation as warnings, with times.",
    True,
)
explain_cache_misses = define_context(
    "explain_cache_misses",
    False,
    "Log the reasons for tracing a function again, and for misses of the cache on disk.",
    True,
)
define_context(
    "logging_level",
    "NOTSET",
    "The minimal level of the log messages of weft that are shown.",
    optional=True,
    choices=("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
)
define_context(
    "debug_log_modules", "", "Loggers whose debug messages are shown, separated by commas."
)
define_context("distributed_debug", False, "Accepted without effect: errors name the failure.")
define_context(
    "traceback_filtering",
    "auto",
    "'off' shows weft's own frames in tracebacks.",
    choices=("off", "tracebackhide", "remove_frames", "quiet_remove_frames", "auto"),
)
define_context(
    "traceback", "", "'full' shows weft's own frames in tracebacks.", choices=("", "full")
)
define_context(
    "tracer_error_num_traceback_frames", 5, "Accepted without effect: errors name one line."
)
define_context("pprint_use_color", True, "Accepted without effect: texts have no colors.")
define_context(
    "backend",
    None,
    "The backend of programs whose arguments are uncommitted: cpu, reference, or a registered backend; by default the first "
    "of `platforms`, otherwise an accelerator whose plugin is installed, otherwise cpu.",
    kind=str,
    **_traced,
)
define_context(
    "check",
    "",
    "The checks of compiled programs, separated by commas: types, maps, memory, stages, values or values:N%.",
    convert=canonical,
    **_traced,
)
define_context(
    "verify",
    False,
    "Check the types of a program after every stage of compilation; the same as types in check.",
)
if value_from_environment(declared["verify"]):
    config.update("verify", True)
define_context(
    "dump", _xla_flag("xla_dump_to"), "The folder for numbered files of every stage of compilation."
)
define_context(
    "captured_constants_warn_bytes",
    2_000_000_000,
    "Warn if the closed-over arrays of a program have at least this size in bytes; -1: never.",
)
define_context(
    "disallow_mesh_context_manager",
    False,
    "Raise if a mesh is entered as a context manager; use set_mesh.",
)
define_context(
    "dump_ir_to",
    "",
    "The folder for the texts of programs before compilation.",
)
define_context(
    "dump_ir_modes",
    "stablehlo",
    "The kinds of texts for dump_ir_to: stablehlo, jaxpr, or both, separated by a comma.",
)
define_context(
    "include_debug_info_in_dumps", True, "Write source lines into the StableHLO of dump_ir_to."
)

# kernels
pallas_enable_debug_checks = define_context(
    "pallas_enable_debug_checks",
    False,
    "Make pallas.debug_check check its condition.",
    True,
    **_traced,
)
pallas_poison_buffers = define_context(
    "pallas_poison_buffers", False, "Accepted; memory without a value holds NaN in any case.", True
)

# options without effect, by reason; any value is accepted
thread_guard = define_context(
    "thread_guard", False, "Accepted; arrays may be used from any thread.", True, kind=object
)
array_garbage_collection_guard = define_context(
    "array_garbage_collection_guard", None, "Accepted; arrays need no collector to be freed."
)
_WITHOUT_EFFECT: dict[str, dict[str, Any]] = {
    "there are no devices or runtimes of this kind": {
        "backend_target": "", "bcoo_cusparse_lowering": False, "mock_gpu_topology": "", "mock_num_gpu_processes": 0,
        "mosaic_allow_hlo": False, "ragged_dot_use_gpu_pallas_triton_lowering": False, "ragged_dot_use_ragged_dot_instruction": True,
        "threefry_gpu_kernel_lowering": False, "use_magma": "auto", "use_emit_pipeline_primitive": False,
        "pallas_use_mosaic_gpu": True, "pallas_verbose_errors": False,
        "send_traceback_to_runtime": "off", "experimental_unsafe_xla_runtime_errors": False, "xla_profile_version": 0},
    "processes start and exchange data in other ways (weft.distributed)": {
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
    "programs on disk are indexed by their structure, and checked": {
        "compilation_cache_check_contents": False, "compilation_cache_expect_pgle": False,
        "compilation_cache_include_metadata_in_key": False, "persistent_cache_enable_xla_caches": "none",
        "remove_custom_partitioning_ptr_from_cache_key": False},
    "texts have one form": {
        "hlo_source_file_canonicalization_regex": None, "include_full_tracebacks_in_locations": True, "source_url_schema": None,
        "traceback_in_locations_limit": 100, "captured_constants_report_frames": 0, "use_simplified_jaxpr_constants": False},
    "it selects one of two implementations, and there is one": {
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
        define_context(_name, _default, f"Accepted without effect: {_reason}.", kind=object)


def disable_jit(disable: bool = True) -> Override:
    """Return a context manager that runs jitted functions op by op. Raises ValueError for a value that is not a bool.

    >>> with disable_jit():
    ...     config.disable_jit
    True
    """
    return Override(disable_jit=disable)


# ---- virtual devices

MAX_DEVICES = 512


def num_virtual_devices() -> int:
    """Return the number of virtual devices of this process: from the environment, otherwise the configuration, otherwise 1."""
    return requested_devices() or 1


def requested_devices() -> int | None:
    """Return the number of CPU devices set by the environment, or otherwise by the configuration; None if neither sets it."""
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
    """Return the version in the setting `jax_api` as a tuple of numbers; empty if it is not set. Raise ValueError if it is no version.

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
