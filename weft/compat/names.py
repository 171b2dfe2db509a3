"""The table of the weft module for each JAX name.

The first rule needs no table: `jax.numpy.sin` is `weft.numpy.sin`, `jax.tree` is `weft.tree`.
`ELSEWHERE` lists names that differ in weft, including names of older versions. `public_names()`
lists all names of the current JAX, so that a name that weft lacks can be distinguished from a
misspelling. The names of `jax._src` are in `inside`.
"""

import os
from functools import cache

from weft.compat import inside

PACKAGES = ("jax", "jaxlib")  # packages with stand-in modules
_INSIDE = "jax._src"
_HELPERS = "weft.compat.helpers"

#: helpers of JAX that several of its modules expose
_EXPOSED = {
    "Array": "weft._engine.runtime.array:Array",
    "debug_info": "weft.api_util:debug_info",
    "map": f"{_HELPERS}:safe_map",
    "promote_dtypes_inexact": "weft._engine.numpy.promote:promote_dtypes_inexact",
    "ravel_pytree": "weft.flatten_util:ravel_pytree",
    "safe_map": f"{_HELPERS}:safe_map",
    "safe_zip": f"{_HELPERS}:safe_zip",
    "sigmoid": "weft.nn:sigmoid",
    "split_list": f"{_HELPERS}:split_list",
    "tanh": "weft.numpy:tanh",
    "unzip2": f"{_HELPERS}:unzip2",
    "zip": f"{_HELPERS}:safe_zip",
    **{
        name: f"weft.tree_util:{name}"
        for name in (
            "register_pytree_node",
            "tree_flatten",
            "tree_structure",
            "tree_unflatten",
            "treedef_is_leaf",
        )
    },
}


def _exposed(names: str) -> dict[str, str]:
    return {name: _EXPOSED[name] for name in names.split()}


# JAX module -> {name: "weft module:name"}. A second place after a space must exist too; an empty string marks a name of
# JAX that weft does not have yet.
ELSEWHERE: dict[str, dict[str, str]] = {
    "jax": {
        **{
            name: f"weft._engine.util.config:{name}"
            for name in ("array_garbage_collection_guard", "auto_pcast", "thread_guard")
        },
        "P": "weft.sharding:PartitionSpec",
        "ad": f"{_HELPERS}:ad",
        "memory": f"{_HELPERS}:memory",
        "NamedSharding": "weft.sharding:NamedSharding",
        "tree_map": "weft.tree_util:tree_map",
        "tree_leaves": "weft.tree_util:tree_leaves",
        "tree_flatten": "weft.tree_util:tree_flatten",
        "tree_unflatten": "weft.tree_util:tree_unflatten",
        "tree_structure": "weft.tree_util:tree_structure",
        "tree_multimap": "weft.tree_util:tree_map",
        "device_put_sharded": "weft._engine.api.placement.device_put:device_put_sharded",
        "device_put_replicated": "weft._engine.api.placement.device_put:device_put_replicated",
        "host_count": "weft._engine.runtime.device:process_count",
        "host_id": "weft._engine.runtime.device:process_index",
        "make_mesh": "weft.sharding:make_mesh",
        "checkpoint": "weft._engine.api.checkpointing:checkpoint",
        "ds": "weft._engine.control.ref_index:ds",
        "ArrayRef": "weft._engine.control.ref:Ref",
        "array_ref": "weft._engine.api.refs:new_ref",
        "xla_computation": "",
    },
    "jax.numpy": {
        "ndarray": "weft._engine.runtime.array:Array",
        "DeviceArray": "weft._engine.runtime.array:Array",
        "alltrue": "weft.numpy:all",
        "cumproduct": "weft.numpy:cumprod",
        "in1d": "weft.compat.older:in1d",
        "product": "weft.numpy:prod",
        "round_": "weft.numpy:round",
        "row_stack": "weft.numpy:vstack",
        "sometrue": "weft.numpy:any",
        "trapz": "weft.numpy:trapezoid",
    },
    "jax.ad_checkpoint": {
        "checkpoint": "weft._engine.api.checkpointing:checkpoint",
        "remat": "weft._engine.api.checkpointing:remat",
        "checkpoint_policies": "weft._engine.api.checkpointing:checkpoint_policies",
        "checkpoint_name": "weft._engine.api.checkpointing:checkpoint_name",
        "print_saved_residuals": "weft._engine.api.checkpointing:print_saved_residuals",
        **{
            name: f"weft._engine.api.checkpointing:{name}"
            for name in ("Offloadable", "Recompute", "Saveable")
        },
    },
    "jax.core": {
        "axis_frame": "weft._engine.core.trace:axis_env_size",
        "ensure_compile_time_eval": "weft._engine.api.arrays:ensure_compile_time_eval",
        "eval_jaxpr": "weft._engine.api.arrays:eval_jaxpr",
        "full_lower": "weft.compat.older:full_lower",
        "get_aval": "weft._engine.core.trace:typeof",
        "is_constant_dim": "weft.compat.older:is_constant_dim",
        "is_constant_shape": "weft.compat.older:is_constant_shape",
        "pytype_aval_mappings": "weft.interpreters.xla:pytype_aval_mappings",
        "raise_to_shaped": "weft.compat.older:raise_to_shaped",
    },
    "jax.dlpack": {
        "from_dlpack": f"{_HELPERS}:from_dlpack",
        "is_supported_dtype": "weft._engine.runtime.array:is_supported_dtype",
    },
    "jax.errors": {
        "ConcretizationTypeError": "weft._engine.util.errors:ConcretizationTypeError",
        "NonConcreteBooleanIndexError": "weft._engine.util.errors:NonConcreteBooleanIndexError",
        "TracerArrayConversionError": "weft._engine.util.errors:TracerArrayConversionError",
        "TracerBoolConversionError": "weft._engine.util.errors:TracerBoolConversionError",
        "TracerIntegerConversionError": "weft._engine.util.errors:TracerIntegerConversionError",
        "UnexpectedTracerError": "weft._engine.util.errors:UnexpectedTracerError",
        "KeyReuseError": "weft._engine.util.errors:KeyReuseError",
    },
    "jax.example_libraries.stax": {
        name: f"weft.nn:{name}"
        for name in """
        elu gelu leaky_relu log_softmax relu selu sigmoid softmax softplus standardize""".split()
    },
    "jax.experimental": {
        "PartitionSpec": "weft.sharding:PartitionSpec",
        "io_callback": "weft._engine.api.callbacks:io_callback",
        "enable_x64": "weft._engine.util.config:enable_x64",
        "disable_x64": "weft.compat.older:disable_x64",
    },
    "jax.experimental.array_serialization.serialization": {
        name: f"weft.experimental.array_serialization.serialization:{name}"
        for name in (
            "AsyncManager",
            "GlobalAsyncCheckpointManager",
            "GlobalAsyncCheckpointManagerBase",
            "async_deserialize",
            "async_serialize",
            "get_tensorstore_spec",
            "is_remote_storage",
            "run_deserialization",
            "run_serialization",
        )
    },
    "jax.experimental.compilation_cache.compilation_cache": {
        "reset_cache": "weft.compat.older:reset_cache",
        "set_cache_dir": "weft.compat.older:set_cache_dir",
    },
    "jax.experimental.colocated_python.func": {},
    "jax.experimental.colocated_python.serialization": {},
    "jax.experimental.jet": _exposed("""
        register_pytree_node safe_zip tree_flatten tree_structure tree_unflatten treedef_is_leaf unzip2"""),
    "jax.experimental.multihost_utils": _exposed("safe_zip tree_flatten tree_unflatten"),
    "jax.experimental.ode": _exposed(
        "map promote_dtypes_inexact ravel_pytree safe_map safe_zip zip"
    ),
    "jax.experimental.rnn": {
        **_exposed("Array sigmoid tanh"),
        "Shape": f"{_HELPERS}:Shape",
        "custom_vjp": "weft._engine.control.custom_rules:custom_vjp",
    },
    "jax.experimental.scheduling_groups": _exposed("""
        debug_info map safe_map safe_zip split_list tree_flatten tree_unflatten unzip2 zip"""),
    "jax.experimental.transfer": {"TYPE_CHECKING": "typing:TYPE_CHECKING"},
    "jax.interpreters.mlir": dict.fromkeys(
        ("AxisContext", "ConstantHandler", "custom_call", "func", "ir"), ""
    ),
    "jax.extend.ifrt_programs": {"ifrt_programs": "weft.extend.ifrt_programs:ifrt_programs"},
    "jax.experimental.mosaic.gpu.core": {
        "artificial_shared_memory_limit": "weft.experimental.mosaic.gpu.core:artificial_shared_memory_limit",
    },
    "jax.experimental.key_reuse._core": {
        name: f"weft.experimental.key_reuse:{name}"
        for name in """
        Forward KeyReuseError KeyReuseSignature Sink Source assert_consumed assert_unconsumed check_key_reuse consume consume_p
        function_type_signature jaxpr_type_signature key_reuse_signatures""".split()
    },
    "jax.experimental.maps": {"Mesh": "weft.sharding:Mesh", "xmap": ""},
    "jax.experimental.pjit": {
        "AUTO": "weft._engine.ir.mesh:AUTO",
        "pjit": "weft.compat.older:pjit weft._engine.api.jit:jit",
        "with_sharding_constraint": "weft.lax:with_sharding_constraint",
        "FROM_GDA": "",
    },
    "jax.experimental.shard": {
        "reshard": "weft.sharding:reshard",
        "auto_axes": "weft.sharding:auto_axes",
        "explicit_axes": "weft.sharding:explicit_axes",
    },
    "jax.experimental.shard_map": {"shard_map": "weft._engine.api.shard_map:shard_map"},
    **{
        f"jax.experimental.pallas.ops.{module}": {
            name: f"weft.experimental.pallas.ops.{module}:{name}" for name in kernels.split()
        }
        for module, kernels in {
            "gpu.attention": "BlockSizes mha",
            "tpu.megablox": "gmm tgmm",
            "tpu.flash_attention": "BlockSizes DEFAULT_MASK_VALUE SegmentIds flash_attention mha_reference",
            "tpu.splash_attention": """
                                   BlockSizes CausalMask FullMask LocalMask Mask MultiHeadMask NumpyMask QKVLayout SegmentIds
                                   make_causal_mask make_local_attention_mask make_masked_mha_reference make_masked_mqa_reference
                                   make_random_mask make_splash_mha make_splash_mha_single_device make_splash_mqa
                                   make_splash_mqa_single_device""",
            "tpu.splash_attention.splash_attention_kernel": """
                                   BlockSizes DEFAULT_MASK_VALUE QKVLayout SegmentIds SplashAttentionKernel attention_reference
                                   make_attention_reference make_masked_mha_reference make_masked_mqa_reference make_splash_mha
                                   make_splash_mha_single_device make_splash_mqa make_splash_mqa_single_device""",
            "tpu.splash_attention.splash_attention_mask": """
                                   CausalMask ChunkedCausalMask FullMask LocalMask LogicalAnd LogicalOr Mask MultiHeadMask NumpyMask
                                   make_causal_mask make_chunk_attention_mask make_local_attention_mask make_random_mask""",
        }.items()
    },
    **{
        f"jax.experimental.sparse.{module}": {}
        for module in "ad api bcsr coo csr test_util transform util".split()
    },
    "jax.experimental.sparse.bcoo": {
        name: f"weft.experimental.sparse:{name}"
        for name in """
        bcoo_broadcast_in_dim bcoo_concatenate bcoo_conv_general_dilated bcoo_dot_general bcoo_dot_general_sampled bcoo_dynamic_slice
        bcoo_gather bcoo_multiply_dense bcoo_multiply_sparse bcoo_reduce_sum bcoo_reshape bcoo_rev bcoo_slice bcoo_squeeze bcoo_transpose
        """.split()
    },
    "jax.experimental.sparse.random": {"random_bcoo": "weft.experimental.sparse:random_bcoo"},
    "jax.lib.xla_bridge": {"get_backend": "weft.compat.inside_objects:get_backend"},
    "jax.nn": {"normalize": "weft.nn:standardize"},
    "jax.ops": {
        "segment_max": "weft.segment_ops:segment_max",
        "segment_min": "weft.segment_ops:segment_min",
        "segment_prod": "weft.segment_ops:segment_prod",
        "segment_sum": "weft.segment_ops:segment_sum",
    },
    "jax.scipy.linalg": {"tril": "weft.numpy:tril", "triu": "weft.numpy:triu"},
    "jax.sharding": {"PositionalSharding": "weft.sharding:PositionalSharding"},
}


ELSEWHERE.update(
    {
        f"{_INSIDE}.{module}": inside.NAMES.get(module, {})
        for module in {*inside.SAME_AS, *inside.NAMES}
    }
)
ELSEWHERE.update({f"jaxlib.{module}": names for module, names in inside.JAXLIB.items()})


def is_internal(module: str) -> bool:
    """Return True if a module, or a name in it, is internal to JAX.

    >>> is_internal("jax._src.core"), is_internal("jaxlib.xla_client"), is_internal("jax.core")
    (True, True, False)
    """
    return module == _INSIDE or module.startswith((f"{_INSIDE}.", "jaxlib."))


def same_as(module: str) -> tuple[str, ...]:
    """Return the public modules of JAX whose names the internal module `module` also has."""
    return inside.SAME_AS.get(module.removeprefix(f"{_INSIDE}."), ()) if is_internal(module) else ()


@cache
def public_names() -> dict[str, frozenset[str]]:
    """Return the public names of the current JAX, by module.

    >>> "sin" in public_names()["jax.numpy"]
    True
    """
    names: dict[str, list[str]] = {}
    module = ""
    with open(os.path.join(os.path.dirname(__file__), "public_names.txt")) as file:
        lines = file.read().splitlines()
    for line in lines:
        if line.startswith("  "):
            names[module] += line.split()
        elif not line.startswith("#"):
            module = line.rstrip(":")
            names[module] = []
    return {module: frozenset(listed) for module, listed in names.items()}


@cache
def known_modules() -> frozenset[str]:
    """Return all JAX modules that programs may import, including packages without names of their
    own."""
    listed = {*public_names(), *ELSEWHERE}
    parents = {module[:i] for module in listed for i, letter in enumerate(module) if letter == "."}
    return frozenset(listed | parents)


def is_known(module: str, name: str) -> bool:
    """Return True if `module` of the current or an older JAX has `name`."""
    return (
        name in public_names().get(module, ())
        or name in ELSEWHERE.get(module, ())
        or f"{module}.{name}" in known_modules()
    )
