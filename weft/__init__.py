"""weft: NumPy-like programs on global arrays that are woven from shards on many devices.

Every public name is loaded on first use (PEP 562), so `import weft` costs a few milliseconds and imports neither
NumPy nor LLVM. `_HOMES` says which module holds which name; a submodule is loaded by its own name.

>>> import weft
>>> weft.__version__.count(".")
2
"""

import importlib

from weft._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers read it as True; importing typing for it would double the cost of `import weft`
if TYPE_CHECKING:
    from typing import Any

# module -> the public names that live there
_NAMES_OF = {
    "weft.api": """
        jit grad value_and_grad vjp jvp linearize linear_transpose fwd_and_bwd vmap pmap shard_map smap
        jacfwd jacrev jacobian hessian checkpoint remat checkpoint_policies custom_jvp custom_vjp custom_gradient
        closure_convert make_jaxpr eval_shape disable_jit ensure_compile_time_eval named_call named_scope
        device_put device_get block_until_ready copy_to_host_async live_arrays clear_caches
        make_array_from_callback make_array_from_process_local_data make_array_from_single_device_arrays
        ShapeDtypeStruct Array Device Shard devices local_devices device_count local_device_count default_backend
        process_index process_count process_indices host_id host_count host_ids
        make_mesh set_mesh reshard typeof effects_barrier pure_callback
        default_device default_matmul_precision default_prng_impl numpy_dtype_promotion numpy_rank_promotion
        enable_x64 enable_checks enable_custom_prng debug_nans debug_infs debug_key_reuse checking_leaks
        check_tracer_leaks log_compiles explain_cache_misses legacy_prng_key threefry_partitionable
        transfer_guard transfer_guard_device_to_device transfer_guard_device_to_host transfer_guard_host_to_device
        print_environment_info
    """,
    "weft.sharding": "NamedSharding PositionalSharding Mesh PartitionSpec P",
    "weft.util.config": "config",
    "weft.util.dtypes": "float0",
    "weft.tools.explain": "explain",
}

_HOMES = {name: module for module, names in _NAMES_OF.items() for name in names.split()}

_SUBMODULES = frozenset(
    "api compat debug distributed dtypes errors experimental export lax nn numpy profiler random scipy sharding "
    "stages tools tree tree_util".split()
)


def __getattr__(name: str) -> "Any":
    """Load a public name or a public submodule on first use."""
    home = _HOMES.get(name)
    if home is not None:
        value = _load(home, name)
    elif name in _SUBMODULES:
        value = _load(f"weft.{name}", None)
    else:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    globals()[name] = value
    return value


def _load(home: str, name: str | None) -> "Any":
    try:
        module = importlib.import_module(home)
        return module if name is None else getattr(module, name)
    except ModuleNotFoundError as error:
        if error.name is None or not home.startswith(error.name):
            raise
    except AttributeError as error:
        if error.obj is not module or error.name != name:
            raise
    raise AttributeError(f"weft does not have the public name weft.{name or home.removeprefix('weft.')} yet")


def __dir__() -> list[str]:
    return sorted({"__version__", *_HOMES, *_SUBMODULES})
