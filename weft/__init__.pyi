"""What `import weft` offers, for type checkers; `tests/face/test_stub.py` keeps it in step with the lazy table."""

from weft import (
    api as api,
    compat as compat,
    debug as debug,
    dtypes as dtypes,
    errors as errors,
    experimental as experimental,
    flatten_util as flatten_util,
    image as image,
    lax as lax,
    nn as nn,
    numpy as numpy,
    ops as ops,
    profiler as profiler,
    random as random,
    scipy as scipy,
    segment_ops as segment_ops,
    sharding as sharding,
    stages as stages,
    test_util as test_util,
    tools as tools,
    tree as tree,
    tree_util as tree_util,
    typing as typing,
)
from weft.api.arrays import (
    ShapeDtypeStruct as ShapeDtypeStruct,
    block_until_ready as block_until_ready,
    clear_caches as clear_caches,
    closure_convert as closure_convert,
    copy_to_host_async as copy_to_host_async,
    device_get as device_get,
    device_put as device_put,
    device_put_replicated as device_put_replicated,
    device_put_sharded as device_put_sharded,
    ensure_compile_time_eval as ensure_compile_time_eval,
    eval_jaxpr as eval_jaxpr,
    eval_shape as eval_shape,
    make_array_from_callback as make_array_from_callback,
    make_array_from_process_local_data as make_array_from_process_local_data,
    make_array_from_single_device_arrays as make_array_from_single_device_arrays,
    make_jaxpr as make_jaxpr,
    named_call as named_call,
    named_scope as named_scope,
)
from weft.api.autodiff import (
    custom_gradient as custom_gradient,
    fwd_and_bwd as fwd_and_bwd,
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    jvp as jvp,
    linear_transpose as linear_transpose,
    linearize as linearize,
    value_and_grad as value_and_grad,
    vjp as vjp,
)
from weft.api.callbacks import (
    effects_barrier as effects_barrier,
    pure_callback as pure_callback,
)
from weft.api.checkpointing import (
    checkpoint as checkpoint,
    checkpoint_policies as checkpoint_policies,
    remat as remat,
)
from weft.api.explicit import reshard as reshard
from weft.api.jit import jit as jit
from weft.api.pmap import pmap as pmap
from weft.api.shard_map import (
    shard_map as shard_map,
    smap as smap,
)
from weft.api.vmap import vmap as vmap
from weft.control.custom_rules import (
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
)
from weft.core.trace import typeof as typeof
from weft.runtime.array import Array as Array
from weft.runtime.device import (
    Device as Device,
    default_backend as default_backend,
    device_count as device_count,
    devices as devices,
    local_device_count as local_device_count,
    local_devices as local_devices,
    process_count as process_count,
    process_index as process_index,
    process_indices as process_indices,
)
from weft.runtime.live import live_arrays as live_arrays
from weft.sharding import (
    Mesh as Mesh,
    NamedSharding as NamedSharding,
    P as P,
    PartitionSpec as PartitionSpec,
    PositionalSharding as PositionalSharding,
    make_mesh as make_mesh,
    set_mesh as set_mesh,
)
from weft.tools.explain import (
    explain as explain,
)
from weft.util.config import (
    allow_f16_reductions as allow_f16_reductions,
    check_tracer_leaks as check_tracer_leaks,
    checking_leaks as checking_leaks,
    config as config,
    debug_infs as debug_infs,
    debug_key_reuse as debug_key_reuse,
    debug_nans as debug_nans,
    default_device as default_device,
    default_matmul_precision as default_matmul_precision,
    default_prng_impl as default_prng_impl,
    disable_jit as disable_jit,
    enable_checks as enable_checks,
    enable_custom_prng as enable_custom_prng,
    enable_x64 as enable_x64,
    explain_cache_misses as explain_cache_misses,
    legacy_prng_key as legacy_prng_key,
    log_compiles as log_compiles,
    no_execution as no_execution,
    no_tracing as no_tracing,
    numpy_dtype_promotion as numpy_dtype_promotion,
    numpy_rank_promotion as numpy_rank_promotion,
    softmax_custom_jvp as softmax_custom_jvp,
    threefry_partitionable as threefry_partitionable,
    transfer_guard as transfer_guard,
    transfer_guard_device_to_device as transfer_guard_device_to_device,
    transfer_guard_device_to_host as transfer_guard_device_to_host,
    transfer_guard_host_to_device as transfer_guard_host_to_device,
)
from weft.util.dtypes import (
    float0 as float0,
)

__version__: str
