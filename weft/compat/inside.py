"""The names of `jax._src`, JAX's internal modules, that known libraries use, and their counterparts
in weft.

In:  the name of a module below `jax._src`.
Out: `SAME_AS`: public modules with the same names; `NAMES`: places in weft of the other names.
     `JAXLIB`: the same for `jaxlib`.
Law: a name is added to this table when a widely used library needs it. Other names are refused with
     a reason.

Next to read: `inside_objects` (objects that only these names need), `names` (the public names).
"""

from weft.interpreters import stablehlo_ops

#: module below jax._src -> the public modules whose names it also has
SAME_AS: dict[str, tuple[str, ...]] = {
    "ad_checkpoint": ("jax.ad_checkpoint",),
    "ad_util": ("jax.interpreters.ad", "jax.custom_derivatives"),
    "api": ("jax",),
    "api_util": ("jax.api_util",),
    "array": ("jax",),
    "checkify": ("jax.experimental.checkify",),
    "config": ("jax",),
    "core": ("jax.core", "jax.extend.core"),
    "custom_batching": ("jax.custom_batching",),
    "custom_derivatives": ("jax.custom_derivatives",),
    "debugging": ("jax.debug",),
    "distributed": ("jax.distributed",),
    "dtypes": ("jax.dtypes",),
    "errors": ("jax.errors",),
    "flatten_util": ("jax.flatten_util",),
    "interpreters.ad": ("jax.interpreters.ad",),
    "interpreters.batching": ("jax.interpreters.batching",),
    "interpreters.mlir": ("jax.interpreters.mlir",),
    "interpreters.partial_eval": ("jax.interpreters.partial_eval",),
    "interpreters.pxla": ("jax.interpreters.pxla",),
    "interpreters.xla": ("jax.interpreters.xla",),
    "lax.control_flow": ("jax.lax",),
    "lax.lax": ("jax.lax",),
    "lib.xla_client": ("jaxlib.xla_client",),
    "linear_util": ("jax.extend.linear_util",),
    "mesh": ("jax.sharding",),
    "monitoring": ("jax.monitoring",),
    "named_sharding": ("jax.sharding",),
    "numpy.lax_numpy": ("jax.numpy",),
    "numpy.ufuncs": ("jax.numpy",),
    "pjit": ("jax", "jax.sharding"),
    "prng": ("jax.extend.random", "jax.random"),
    "random": ("jax.random",),
    "sharding": ("jax.sharding",),
    "sharding_impls": ("jax.sharding",),
    "source_info_util": ("jax.extend.source_info_util",),
    "test_util": ("jax.test_util",),
    "tree_util": ("jax.tree_util",),
    "typing": ("jax.typing",),
    "xla_bridge": ("jax.extend.backend",),
}

_OBJECTS = "weft.compat.inside_objects"

#: module below jax._src -> {name: "weft module:name"}; an empty string marks a name that weft does
#: not have yet
NAMES: dict[str, dict[str, str]] = {
    "ad_util": {"stop_gradient_p": "weft._engine.ops.arithmetic:stop_gradient_p"},
    "api": {"_dtype": "weft._engine.util.dtypes:dtype_of"},
    "api_util": {"infer_argnums_and_argnames": f"{_OBJECTS}:infer_argnums_and_argnames"},
    "array": {"ArrayImpl": "weft._engine.runtime.array:Array"},
    "compiler": {"backend_compile_and_load": f"{_OBJECTS}:backend_compile_and_load"},
    "config": {"config": "weft._engine.util.config:config"},
    "core": {"physical_aval": "weft._engine.transforms.key_physicalization:physical_aval"},
    "dispatch": {"wait_for_tokens": "weft._engine.api.callbacks:effects_barrier"},
    "distributed": {
        "global_state": f"{_OBJECTS}:global_state",
        "GlobalState": f"{_OBJECTS}:State",
        "State": f"{_OBJECTS}:State",
    },
    "dtypes": {
        "DType": "numpy:dtype",
        "ExtendedDType": "weft._engine.util.dtype_table:ExtendedDType",
        "TypePromotionError": "weft._engine.util.errors:TypePromotionError",
        "dtype": "weft._engine.util.dtypes:dtype_of",
        "finfo": "weft._engine.util.dtypes:finfo",
        "iinfo": "weft._engine.util.dtypes:iinfo",
        "supports_inf": f"{_OBJECTS}:supports_inf",
        "to_complex_dtype": "weft._engine.util.dtypes:to_complex_dtype",
    },
    "earray": {"EArray": ""},
    "interpreters.ad": {"CustomVJPException": "weft._engine.util.errors:CustomVJPException"},
    "literals": {
        "TypedComplex": "weft._engine.core.typed_scalars:TypedComplex",
        "TypedFloat": "weft._engine.core.typed_scalars:TypedFloat",
        "TypedInt": "weft._engine.core.typed_scalars:TypedInt",
        "TypedNdArray": f"{_OBJECTS}:TypedNdArray",
    },
    "lib.mlir.dialects.hlo": {
        name: f"weft.interpreters.stablehlo_ops:{name}" for name in stablehlo_ops.NAMES
    },
    "numpy.einsum": {"_einsum": f"{_OBJECTS}:einsum_by_path"},
    "numpy.util": {
        "promote_dtypes_complex": "weft._engine.numpy.promote:promote_dtypes_complex",
        "promote_dtypes_inexact": "weft._engine.numpy.promote:promote_dtypes_inexact",
    },
    "pjit": {"jit_p": "weft._engine.control.call:jit_p"},
    "public_test_util": {"check_close": f"{_OBJECTS}:check_close"},
    "random.threefry2x32": {
        name: f"{_OBJECTS}:{name}"
        for name in ("threefry_fold_in", "threefry_random_bits", "threefry_seed", "threefry_split")
    },
    "source_info_util": {"Frame": f"{_OBJECTS}:Frame", "user_frame": f"{_OBJECTS}:frame_of"},
    "state.indexing": {"Slice": "weft._engine.control.ref_index:Slice"},
    "state.types": {"AbstractRef": "weft._engine.control.ref:AbstractRef"},
    "traceback_util": {
        "_exclude_paths": f"{_OBJECTS}:excluded_paths",
        "api_boundary": f"{_OBJECTS}:api_boundary",
        "UnfilteredStackTrace": "weft._engine.util.source:UnfilteredStackTrace",
        "filter_traceback": "weft._engine.util.source:without_internal_frames",
        "include_frame": f"{_OBJECTS}:include_frame",
        "register_exclusion": f"{_OBJECTS}:register_exclusion",
    },
    "tree_util": {
        "BuiltInKeyEntry": f"{_OBJECTS}:BuiltInKeyEntry",
        "_registry": f"{_OBJECTS}:pytree_registry",
        "prefix_errors": f"{_OBJECTS}:prefix_errors",
    },
    "util": {
        "HashablePartial": f"{_OBJECTS}:HashablePartial",
        **{
            name: f"weft.compat.helpers:{name}"
            for name in ("safe_map", "safe_zip", "split_list", "unzip2")
        },
    },
    "xla_bridge": {
        "_backends": f"{_OBJECTS}:backends",
        "get_backend": f"{_OBJECTS}:get_backend",
        "register_plugin": "weft._engine.backends.pjrt.plugins:register_plugin",
    },
}

#: module below jaxlib -> {name: "weft module:name"}
JAXLIB: dict[str, dict[str, str]] = {
    "_jax": {"PjitFunction": "weft._engine.api.jit:JitFunction"},
    "xla_client": {
        "Device": "weft._engine.backends.base:Device",
        "XlaRuntimeError": "weft.errors:JaxRuntimeError",
    },
}
