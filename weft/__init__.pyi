"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import (
    Any, Concatenate, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, overload,
)
from weft import (
    ad, api_util, auto, compat, core, custom_batching, custom_derivatives, data, debug,
    distributed, dtypes, errors, example_libraries, experimental, export, extend, ffi,
    flatten_util, image, interpreters, lax, monitoring, nn, numpy, ops, profiler, random, ref,
    scipy, segment_ops, sharding, stages, test_util, tools, tree, tree_util, typing,
)
from weft._engine.api.arrays import (
    Array, ShapeDtypeStruct, clear_caches, closure_convert, device_get, ensure_compile_time_eval,
    eval_jaxpr, eval_shape, named_scope,
)
from weft._engine.api.autodiff import fwd_and_bwd, linear_transpose
from weft._engine.api.callbacks import effects_barrier, pure_callback
from weft._engine.api.checkpointing import checkpoint_policies
from weft._engine.api.explicit import reshard
from weft._engine.api.jit import JitFunction
from weft._engine.api.placement.device_put import device_put_replicated, device_put_sharded
from weft._engine.api.refs import empty_ref, free_ref, freeze, new_ref, typeof
from weft._engine.api.stages import Lowered, Traced
from weft._engine.control.ref import Ref
from weft._engine.ir.mesh import AUTO, AbstractMesh
from weft._engine.ir.shardings import Sharding
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
from weft.typing import ArrayLike, DTypeLike

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_S = TypeVar("_S")
_T = TypeVar("_T")
_Aux = TypeVar("_Aux")
_First = TypeVar("_First")
_Argument = TypeVar("_Argument", bound=Any)
class _KeepsSignature(Protocol):
    """A decorator whose result has the signature of the function."""

    def __call__(self, fun: Callable[_P, _R], /) -> Callable[_P, _R]: ...
class _Unused: ...
class _Jitted(JitFunction, Generic[_P, _R_co]):
    """A function that `jit` compiles."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...
    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...
    # a function of arguments of any number and type; mypy would otherwise bind it as one that takes none
    @overload
    def __get__(
        self: _Jitted[[_Unused, _Unused, _Unused, _Unused, _Unused, _Unused], Any],
        instance: Any,
        owner: Any = None,
        /,
    ) -> _Jitted[..., _R_co]: ...
    @overload
    def __get__(
        self: _Jitted[Concatenate[_T, _Q], _S], instance: _T, owner: type | None = None, /
    ) -> _Jitted[_Q, _S]: ...
    @overload
    def __get__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, instance: Any, owner: Any = None, /
    ) -> _Jitted[..., _R_co]: ...
    def trace(self, *args: _P.args, **kwargs: _P.kwargs) -> Traced: ...
    def lower(self, *args: _P.args, **kwargs: _P.kwargs) -> Lowered: ...
    def eval_shape(self, *args: Any, **kwargs: Any) -> Any: ...
    def clear_cache(self) -> None: ...
class _Jit(Protocol):
    """`jit` with its options, as a decorator."""

    def __call__(self, fun: Callable[_P, _R], /) -> _Jitted[_P, _R]: ...
@overload
def jit(
    fun: Callable[_P, _R],
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Device | None = None,
    backend: str | None = None,
    inline: bool = False,
    abstracted_axes: Any = None,
    compiler_options: dict[str, Any] | None = None,
) -> _Jitted[_P, _R]: ...
@overload
def jit(
    fun: None = None,
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Device | None = None,
    backend: str | None = None,
    inline: bool = False,
    abstracted_axes: Any = None,
    compiler_options: dict[str, Any] | None = None,
) -> _Jit: ...
class _Derivative(Generic[_First, _P, _S]):
    """A function of the arguments of the differentiated function; `argument` is the one that derivatives are of."""

    def __call__(self, argument: _First, /, *args: _P.args, **kwargs: _P.kwargs) -> _S: ...
@overload
def grad(
    fun: Callable[Concatenate[_Argument, _P], tuple[Any, _Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> _Derivative[_Argument, _P, tuple[_Argument, _Aux]]: ...
@overload
def grad(
    fun: Callable[Concatenate[_Argument, _P], Any],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> _Derivative[_Argument, _P, _Argument]: ...
@overload
def grad(
    fun: Callable[_P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[_P, Any]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[_Argument, _P], _R],
    argnums: Literal[0] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> _Derivative[_Argument, _P, tuple[_R, _Argument]]: ...
@overload
def value_and_grad(
    fun: Callable[_P, _R],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[_P, tuple[_R, Any]]: ...
def jacfwd(
    fun: Callable[_P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[_P, Any]: ...
def jacrev(
    fun: Callable[_P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[_P, Any]: ...
def jacobian(
    fun: Callable[_P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[_P, Any]: ...
def hessian(
    fun: Callable[_P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[_P, Any]: ...
@overload
def jvp(
    fun: Callable[..., tuple[_R, _Aux]],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: Literal[True],
) -> tuple[_R, _R, _Aux]: ...
@overload
def jvp(
    fun: Callable[..., _R],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: Literal[False] = False,
) -> tuple[_R, _R]: ...
@overload
def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool
) -> tuple[Any, ...]: ...
@overload
def vjp(
    fun: Callable[..., tuple[_R, _Aux]],
    *primals: Any,
    has_aux: Literal[True],
    reduce_axes: Sequence[Any] = (),
    saveable_args: Any = True,
) -> tuple[_R, Callable[..., Any], _Aux]: ...
@overload
def vjp(
    fun: Callable[..., _R],
    *primals: Any,
    has_aux: Literal[False] = False,
    reduce_axes: Sequence[Any] = (),
    saveable_args: Any = True,
) -> tuple[_R, Callable[..., Any]]: ...
@overload
def vjp(
    fun: Callable[..., Any],
    *primals: Any,
    has_aux: bool,
    reduce_axes: Sequence[Any] = (),
    saveable_args: Any = True,
) -> tuple[Any, ...]: ...
@overload
def linearize(
    fun: Callable[..., tuple[_R, _Aux]], *primals: Any, has_aux: Literal[True]
) -> tuple[_R, Callable[..., _R], _Aux]: ...
@overload
def linearize(
    fun: Callable[..., _R], *primals: Any, has_aux: Literal[False] = False
) -> tuple[_R, Callable[..., _R]]: ...
@overload
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool) -> tuple[Any, ...]: ...
def vmap(
    fun: Callable[_P, _R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable[_P, _R]: ...
def pmap(
    fun: Callable[_P, _R],
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence[Device] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
    global_arg_shapes: Any = None,
) -> _Jitted[_P, _R]: ...
@overload
def remat(
    fun: Callable[_P, _R],
    *,
    prevent_cse: Any = True,
    policy: Callable[..., Any] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    concrete: bool = False,
) -> Callable[_P, _R]: ...
@overload
def remat(
    fun: None = None,
    *,
    prevent_cse: Any = True,
    policy: Callable[..., Any] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    concrete: bool = False,
) -> _KeepsSignature: ...
class _Checkpoint:
    """The function `checkpoint`, and the names of the package `weft.checkpoint`."""

    @overload
    def __call__(
        self,
        fun: Callable[_P, _R],
        *,
        prevent_cse: Any = True,
        policy: Callable[..., Any] | None = None,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
        concrete: bool = False,
    ) -> Callable[_P, _R]: ...
    @overload
    def __call__(
        self,
        fun: None = None,
        *,
        prevent_cse: Any = True,
        policy: Callable[..., Any] | None = None,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
        concrete: bool = False,
    ) -> _KeepsSignature: ...
    def __getattr__(self, name: str) -> Any: ...
checkpoint: _Checkpoint
@overload
def shard_map(
    f: Callable[_P, _R],
    mesh: Mesh | AbstractMesh | None = None,
    in_specs: Any = ...,
    out_specs: Any = ...,
    check_rep: bool | None = None,
    auto: Collection[Any] = ...,
    *,
    axis_names: Collection[Any] = ...,
    check_vma: bool | None = None,
) -> Callable[_P, _R]: ...
@overload
def shard_map(
    f: None = None,
    mesh: Mesh | AbstractMesh | None = None,
    in_specs: Any = ...,
    out_specs: Any = ...,
    check_rep: bool | None = None,
    auto: Collection[Any] = ...,
    *,
    axis_names: Collection[Any] = ...,
    check_vma: bool | None = None,
) -> _KeepsSignature: ...
@overload
def smap(
    f: Callable[_P, _R], /, *, in_axes: Any = ..., out_axes: Any, axis_name: Any
) -> Callable[_P, _R]: ...
@overload
def smap(
    f: None = None, /, *, in_axes: Any = ..., out_axes: Any, axis_name: Any
) -> _KeepsSignature: ...
def named_call(fun: Callable[_P, _R], *, name: str | None = None) -> Callable[_P, _R]: ...
def custom_gradient(fun: Callable[_P, tuple[_R, Any]]) -> Callable[_P, _R]: ...
class _CustomFunction(Generic[_P, _R_co]):
    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        fun: Callable[_P, _R_co],
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...
    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...
    @overload
    def __get__(
        self: _CustomFunction[Concatenate[_T, _Q], _S], instance: _T, owner: type | None = None, /
    ) -> Callable[_Q, _S]: ...
    @overload
    def __get__(self, instance: Any, owner: Any = None, /) -> Callable[..., _R_co]: ...
class custom_jvp(_CustomFunction[_P, _R_co]):
    """A function with a custom forward-mode rule, which reverse mode uses too."""

    def defjvp(self, jvp: Callable[..., _R], symbolic_zeros: bool = False) -> Callable[..., _R]: ...
    def defjvps(self, *jvps: Callable[..., Any] | None) -> None: ...
class custom_vjp(_CustomFunction[_P, _R_co]):
    """A function with a custom reverse-mode rule: `fwd(*args) -> (out, residuals)`, `bwd(residuals, ct) -> cts of args`."""

    def defvjp(
        self,
        fwd: Callable[..., tuple[Any, Any]],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None: ...
def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Any = None,
    return_shape: bool = False,
    abstracted_axes: Any = None,
) -> Callable[..., Any]: ...
def block_until_ready(x: _T) -> _T: ...
def copy_to_host_async(x: _T) -> _T: ...
@overload
def device_put(
    x: ArrayLike,
    device: Any = None,
    *,
    src: Any = None,
    donate: Any = False,
    may_alias: bool | None = None,
) -> Array: ...
@overload
def device_put(
    x: _T,
    device: Any = None,
    *,
    src: Any = None,
    donate: Any = False,
    may_alias: bool | None = None,
) -> _T: ...
def make_array_from_callback(
    shape: Sequence[int],
    sharding: Sharding | Any,
    data_callback: Callable[..., Any],
    dtype: DTypeLike | None = None,
) -> Array: ...
def make_array_from_single_device_arrays(
    shape: Sequence[int],
    sharding: Sharding,
    arrays: Sequence[Array],
    *,
    dtype: DTypeLike | None = None,
) -> Array: ...
def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Any = None
) -> Any: ...

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
