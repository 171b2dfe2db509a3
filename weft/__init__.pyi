"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from typing import Any
from weft import (
    ad, api_util, auto, compat, core, custom_batching, custom_derivatives, data, debug,
    distributed, dtypes, errors, example_libraries, experimental, export, extend, ffi,
    flatten_util, image, interpreters, lax, monitoring, nn, numpy, ops, profiler, random, ref,
    scipy, segment_ops, sharding, stages, test_util, tools, tree, tree_util, typing,
)
from weft._engine.api.arrays import (
    Array, ShapeDtypeStruct, block_until_ready, clear_caches, closure_convert, copy_to_host_async,
    device_get, ensure_compile_time_eval, eval_jaxpr, eval_shape, make_jaxpr, named_call,
    named_scope,
)
from weft._engine.api.autodiff import (
    custom_gradient, fwd_and_bwd, grad, hessian, jacfwd, jacobian, jacrev, jvp, linear_transpose,
    linearize, value_and_grad, vjp,
)
from weft._engine.api.callbacks import effects_barrier, pure_callback
from weft._engine.api.checkpointing import checkpoint_policies, remat
from weft._engine.api.explicit import reshard
from weft._engine.api.jit import jit
from weft._engine.api.placement.assembly import (
    make_array_from_callback, make_array_from_process_local_data,
    make_array_from_single_device_arrays,
)
from weft._engine.api.placement.device_put import device_put, device_put_replicated, device_put_sharded
from weft._engine.api.pmap import pmap
from weft._engine.api.refs import empty_ref, free_ref, freeze, new_ref, typeof
from weft._engine.api.shard_map import shard_map, smap
from weft._engine.api.vmap import vmap
from weft._engine.control.custom_rules import custom_jvp, custom_vjp
from weft._engine.control.ref import Ref
from weft._engine.ir.mesh import AUTO
from weft._engine.runtime.array import Shard
from weft._engine.runtime.device import (
    Device, default_backend, device_count, devices, host_count, host_id, host_ids,
    local_device_count, local_devices, process_count, process_index, process_indices,
)
from weft._engine.runtime.live_arrays import live_arrays
from weft._engine.util.config import (
    allow_f16_reductions, check_tracer_leaks, checking_leaks, config, debug_infs, debug_key_reuse,
    debug_nans, default_device, default_matmul_precision, default_prng_impl, disable_jit,
    enable_checks, enable_custom_prng, enable_x64, explain_cache_misses, legacy_prng_key,
    log_compiles, make_user_context, no_execution, no_tracing, numpy_dtype_promotion,
    numpy_rank_promotion, remove_size_one_mesh_axis_from_type, softmax_custom_jvp,
    threefry_partitionable, transfer_guard, transfer_guard_device_to_device,
    transfer_guard_device_to_host, transfer_guard_host_to_device,
)
from weft._engine.util.dtypes import float0
from weft._version import __version__
from weft.sharding import (
    Mesh, NamedSharding, P, PartitionSpec, PositionalSharding, make_mesh, set_mesh,
)
from weft.tools.explain import explain
from weft.tools.info import print_environment_info

checkpoint: Any

__all__ = [
    "AUTO", "Array", "Device", "Mesh", "NamedSharding", "P", "PartitionSpec", "PositionalSharding",
    "Ref", "ShapeDtypeStruct", "Shard", "__version__", "ad", "allow_f16_reductions", "api_util",
    "auto", "block_until_ready", "check_tracer_leaks", "checking_leaks", "checkpoint",
    "checkpoint_policies", "clear_caches", "closure_convert", "compat", "config",
    "copy_to_host_async", "core", "custom_batching", "custom_derivatives", "custom_gradient",
    "custom_jvp", "custom_vjp", "data", "debug", "debug_infs", "debug_key_reuse", "debug_nans",
    "default_backend", "default_device", "default_matmul_precision", "default_prng_impl",
    "device_count", "device_get", "device_put", "device_put_replicated", "device_put_sharded",
    "devices", "disable_jit", "distributed", "dtypes", "effects_barrier", "empty_ref",
    "enable_checks", "enable_custom_prng", "enable_x64", "ensure_compile_time_eval", "errors",
    "eval_jaxpr", "eval_shape", "example_libraries", "experimental", "explain",
    "explain_cache_misses", "export", "extend", "ffi", "flatten_util", "float0", "free_ref",
    "freeze", "fwd_and_bwd", "grad", "hessian", "host_count", "host_id", "host_ids", "image",
    "interpreters", "jacfwd", "jacobian", "jacrev", "jit", "jvp", "lax", "legacy_prng_key",
    "linear_transpose", "linearize", "live_arrays", "local_device_count", "local_devices",
    "log_compiles", "make_array_from_callback", "make_array_from_process_local_data",
    "make_array_from_single_device_arrays", "make_jaxpr", "make_mesh", "make_user_context",
    "monitoring", "named_call", "named_scope", "new_ref", "nn", "no_execution", "no_tracing",
    "numpy", "numpy_dtype_promotion", "numpy_rank_promotion", "ops", "pmap",
    "print_environment_info", "process_count", "process_index", "process_indices", "profiler",
    "pure_callback", "random", "ref", "remat", "remove_size_one_mesh_axis_from_type", "reshard",
    "scipy", "segment_ops", "set_mesh", "shard_map", "sharding", "smap", "softmax_custom_jvp",
    "stages", "test_util", "threefry_partitionable", "tools", "transfer_guard",
    "transfer_guard_device_to_device", "transfer_guard_device_to_host",
    "transfer_guard_host_to_device", "tree", "tree_util", "typeof", "typing", "value_and_grad",
    "vjp", "vmap",
]
