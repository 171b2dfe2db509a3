"""Functions of users turned into programs: jit, grad, vmap and their kin."""

import importlib

from weft.api.arrays import (
                             ShapeDtypeStruct,
                             block_until_ready,
                             clear_caches,
                             closure_convert,
                             copy_to_host_async,
                             device_get,
                             device_put,
                             device_put_replicated,
                             device_put_sharded,
                             ensure_compile_time_eval,
                             eval_jaxpr,
                             eval_shape,
                             make_array_from_callback,
                             make_array_from_process_local_data,
                             make_array_from_single_device_arrays,
                             make_jaxpr,
                             named_call,
                             named_scope,
)
from weft.api.autodiff import (
                             custom_gradient,
                             fwd_and_bwd,
                             grad,
                             hessian,
                             jacfwd,
                             jacobian,
                             jacrev,
                             jvp,
                             linear_transpose,
                             linearize,
                             value_and_grad,
                             vjp,
)
from weft.api.callbacks import effects_barrier, pure_callback
from weft.api.checkpointing import (
                             checkpoint,
                             checkpoint_name,
                             checkpoint_policies,
                             print_saved_residuals,
                             remat,
)
from weft.api.explicit import reshard
from weft.api.jit import jit
from weft.api.pmap import pmap
from weft.api.shard_map import shard_map, smap
from weft.api.vmap import vmap
from weft.control.custom_rules import custom_jvp, custom_vjp
from weft.core.trace import typeof
from weft.runtime.array import Array
from weft.runtime.live import live_arrays
from weft.util.config import disable_jit

__all__ = [
    "Array", "ShapeDtypeStruct", "block_until_ready", "checkpoint", "checkpoint_name", "checkpoint_policies", "clear_caches",
    "closure_convert",
    "copy_to_host_async",
    "custom_gradient", "custom_jvp", "custom_vjp", "device_get", "device_put", "device_put_replicated", "device_put_sharded", "disable_jit",
    "effects_barrier",
    "ensure_compile_time_eval", "eval_jaxpr", "eval_shape", "fwd_and_bwd", "grad", "hessian", "jacfwd", "jacobian", "jacrev", "jit", "jvp",
    "linear_transpose", "linearize", "live_arrays", "make_array_from_callback", "make_array_from_process_local_data",
    "make_array_from_single_device_arrays", "make_jaxpr", "named_call", "named_scope", "pmap", "print_saved_residuals", "pure_callback",
    "remat", "reshard",
    "shard_map", "smap", "typeof", "value_and_grad",
    "vjp", "vmap",
]

# The one hook upward: arrays and tracers get their operators and methods from the numpy face, whichever module was asked for.
importlib.import_module("weft.numpy")
