"""weft: NumPy-like programs on global arrays that are split into shards on many devices.

Examples in docstrings assume `import numpy as np, weft, weft.numpy as wnp` and `from weft import lax`.

Every public name is loaded on first use (PEP 562), so `import weft` costs a few milliseconds and imports neither
NumPy nor LLVM. `_NAMES_OF` lists the public names of each module; a submodule is loaded by its own name.

>>> weft.__version__.count(".")
2
"""

import importlib
import sys

from weft._version import __version__ as __version__

if not sys.platform.startswith("linux"):
    raise ImportError(
        f"weft runs on Linux, and this Python runs on {sys.platform}: use a Linux container, a virtual machine, "
        "or on Windows the Windows Subsystem for Linux (WSL 2)."
    )

TYPE_CHECKING = False  # type checkers read it as True; importing typing for it would double the cost of `import weft`
if TYPE_CHECKING:
    from typing import Any

# module -> its public names; names of JAX that weft lacks are listed under their future module
_NAMES_OF = {
    "weft._engine.api.jit": "jit",
    "weft._engine.api.autodiff": """
        grad value_and_grad vjp jvp linearize linear_transpose fwd_and_bwd jacfwd jacrev jacobian hessian
        custom_gradient
    """,
    "weft._engine.api.vmap": "vmap",
    "weft._engine.api.pmap": "pmap",
    "weft._engine.api.shard_map": "shard_map smap",
    "weft._engine.api.checkpointing": "remat checkpoint_policies",
    "weft._engine.api.explicit": "reshard",
    "weft._engine.api.callbacks": "effects_barrier pure_callback",
    "weft._engine.api.arrays": """
        closure_convert make_jaxpr eval_shape eval_jaxpr ensure_compile_time_eval named_call named_scope
        device_get block_until_ready copy_to_host_async Array ShapeDtypeStruct clear_caches
    """,
    "weft._engine.api.placement.device_put": "device_put device_put_sharded device_put_replicated",
    "weft._engine.api.placement.assembly": """
        make_array_from_callback make_array_from_process_local_data make_array_from_single_device_arrays
    """,
    "weft._engine.control.custom_rules": "custom_jvp custom_vjp",
    "weft._engine.api.refs": "empty_ref free_ref freeze new_ref typeof",
    "weft._engine.control.ref": "Ref",
    "weft._engine.runtime.array": "Shard",
    "weft._engine.runtime.live_arrays": "live_arrays",
    "weft._engine.runtime.device": """
        Device devices local_devices device_count local_device_count default_backend
        process_index process_count process_indices host_id host_ids host_count
    """,
    "weft._engine.ir.mesh": "AUTO",
    "weft.sharding": "NamedSharding PositionalSharding Mesh PartitionSpec P make_mesh set_mesh",
    "weft._engine.util.config": """
        config disable_jit enable_x64 enable_checks enable_custom_prng default_device default_matmul_precision
        default_prng_impl numpy_dtype_promotion numpy_rank_promotion debug_nans debug_infs debug_key_reuse
        checking_leaks check_tracer_leaks make_user_context log_compiles explain_cache_misses legacy_prng_key threefry_partitionable
        softmax_custom_jvp allow_f16_reductions no_tracing no_execution remove_size_one_mesh_axis_from_type
        transfer_guard transfer_guard_device_to_device transfer_guard_device_to_host transfer_guard_host_to_device
    """,
    "weft._engine.util.dtypes": "float0",
    "weft.tools.explain": "explain",
    "weft.tools.info": "print_environment_info",
}

_LAZY_NAMES = {name: module for module, names in _NAMES_OF.items() for name in names.split()}

_SUBMODULES = frozenset(
    "ad api_util auto checkpoint compat core custom_batching custom_derivatives data debug distributed dtypes errors example_libraries "
    "experimental export extend ffi flatten_util image interpreters lax monitoring nn numpy ops profiler random ref scipy segment_ops "
    "sharding stages test_util tools tree tree_util typing".split()
)


class LazyModule(type(importlib)):
    """A module that loads each public name on first use; `vars(module)` loads all names in `dir(module)`."""

    @property
    def __dict__(self) -> "dict[str, Any]":  # type: ignore[override]
        for name in self.__dir__():
            hasattr(self, name)  # names that weft lacks are left out
        return _own_names(self)

    def __dir__(self) -> "list[str]":
        return _own_names(self)["__dir__"]()

    def __reduce__(self) -> "tuple[Any, tuple[str]]":
        # function serializers such as cloudpickle recognize only plain Python modules
        return importlib.import_module, (self.__name__,)


#: return the names loaded so far, without loading others
_own_names = vars(type(importlib))["__dict__"].__get__


def __getattr__(name: str) -> "Any":
    """Load a public name or a public submodule on first use."""
    module = _LAZY_NAMES.get(name)
    if module is not None:
        value = _load(module, name)
    elif name in _SUBMODULES:
        value = _load(f"weft.{name}", None)
    else:
        raise importlib.import_module("weft._engine.util.lazy").missing_name(__name__, name)
    globals()[name] = value
    return value


def _load(module: str, name: str | None) -> "Any":
    missing = AttributeError(
        f"weft does not have the public name weft.{name or module.removeprefix('weft.')} yet"
    )
    try:
        lazy = importlib.import_module("weft._engine.util.lazy")
        loaded_module = lazy.import_module(module)
    except ModuleNotFoundError as error:
        if error.name in (module, module.rpartition(".")[0]):
            raise missing from None
        raise
    if name is not None and not hasattr(loaded_module, name):
        raise missing
    if name is None:
        return loaded_module
    from weft._engine.util.source import guard

    value = guard(getattr(loaded_module, name), __name__, name)
    lazy.report_module(value, __name__)
    return value


def __dir__() -> list[str]:
    return sorted({"__version__", *_LAZY_NAMES, *_SUBMODULES})


class _FormerModuleFinder:
    """The last finder on `sys.meta_path`: finds modules by the former names in old pickles."""

    @staticmethod
    def find_spec(name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if not name.startswith("weft."):
            return None
        return importlib.import_module("weft._former_modules").find_spec(name)


sys.modules[__name__].__class__ = LazyModule
sys.meta_path.append(_FormerModuleFinder)
