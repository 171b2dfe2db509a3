"""Conversion of functions of arrays to functions of TensorFlow tensors.

In:   a function of trees of arrays, and names for the unknown sizes of tensors.
Out:  a function of trees of tensors; TensorFlow can call, trace (`tf.function`), save and differentiate it.
How:  `weft.export` traces the function for the types of the tensors. Its StableHLO text becomes the module of one
      `XlaCallModule` operation, which TensorFlow's XLA compiles. The gradient of the operation is the exported VJP.
Laws: the first call imports TensorFlow. A program that calls a library or Python at run time (`custom_call`) is rejected:
      TensorFlow cannot run these calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np

from weft import export
from weft._engine.api.arrays import eval_shape
from weft._engine.api.jit import jit
from weft._engine.core.trace import typeof
from weft._engine.util import dtypes, tree
from weft._engine.util.source import api_boundary
from weft.export import DisabledSafetyCheck, Exported

__all__ = ["DisabledSafetyCheck", "PolyShape", "convert", "dtype_of_val", "eval_polymorphic_shape"]


class PolyShape(tuple):
    """The sizes of one argument: integers, names, None for a known size, and `...` for all remaining sizes.

    >>> print(PolyShape("b", None, ...))
    (b, _, ...)
    """

    __slots__ = ()

    def __new__(cls, *dim_specs: int | str | EllipsisType | None) -> PolyShape:
        return super().__new__(cls, dim_specs)

    def __str__(self) -> str:
        return f"({', '.join('_' if n is None else '...' if n is ... else str(n) for n in self)})"


@dataclass(frozen=True)
class _TensorType:
    """The type of a tensor. An unknown size is None."""

    shape: tuple[int | None, ...]
    dtype: np.dtype


@api_boundary
def convert(
    fun_jax: Callable[..., Any],
    *,
    polymorphic_shapes: Any = None,
    polymorphic_constraints: Sequence[str] = (),
    with_gradient: bool = True,
    enable_xla: bool = True,
    native_serialization: bool = True,
    native_serialization_platforms: Sequence[str] | None = None,
    native_serialization_disabled_checks: Sequence[DisabledSafetyCheck] = (),
) -> Callable[..., Any]:
    """Return `fun_jax` as a function of TensorFlow's tensors.

    `polymorphic_shapes` names the unknown sizes of positional arguments, as in `export.symbolic_args_specs`: one string or
    PolyShape for all arguments, or a prefix of their tree; None is a known shape. `polymorphic_constraints` relate the
    names. Without `with_gradient`, TensorFlow raises LookupError for the gradient of the result.

    Raises NotImplementedError for a program that calls a library or Python at run time, and for several platforms.
    """
    if not (enable_xla and native_serialization):
        raise NotImplementedError(
            "jax2tf.convert: enable_xla=False and native_serialization=False are not supported. "
            "A converted function is one XlaCallModule operation. Leave out these arguments."
        )
    platforms = tuple(native_serialization_platforms or (export.default_export_platform(),))
    unknown = set(platforms) - {"cpu", "cuda", "rocm", "tpu"}
    if unknown:
        raise ValueError(
            f"jax2tf.convert: native_serialization_platforms={platforms} has unknown platforms. "
            "The platforms are cpu, cuda, rocm and tpu."
        )
    if len(platforms) != 1:
        raise NotImplementedError(
            f"jax2tf.convert: a converted function runs on one platform, got {platforms}. Convert it for each platform."
        )
    checks = tuple(native_serialization_disabled_checks)

    def converted(*args: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        leaves, structure = tree.tree_flatten((args, kwargs))
        tensors = [_as_tensor(tf, x) for x in leaves]
        types = [
            _TensorType(tuple(x.shape.as_list()), np.dtype(x.dtype.as_numpy_dtype)) for x in tensors
        ]
        positional, named = tree.tree_unflatten(structure, types)
        specs = export.symbolic_args_specs(
            positional, _texts(polymorphic_shapes), polymorphic_constraints
        )
        traced = jit(lambda *args, **kwargs: fun_jax(*args, **kwargs))
        exported = export.export(traced, platforms=platforms, disabled_checks=checks)(
            *specs, **export.symbolic_args_specs(named, None)
        )
        call = _differentiable if with_gradient else _not_differentiable
        return tree.tree_unflatten(exported.out_tree, call(tf, exported, tensors))

    converted.__name__ = getattr(fun_jax, "__name__", "converted")
    converted.__doc__ = getattr(fun_jax, "__doc__", None)
    return converted


def _texts(shapes: Any) -> Any:
    return tree.tree_map(
        lambda spec: str(spec) if isinstance(spec, PolyShape) else spec,
        shapes,
        is_leaf=lambda x: x is None,
    )


def _as_tensor(tf: Any, x: Any) -> Any:
    """Convert `x` to a tensor of a dtype that weft arrays have: 64 bits are truncated when x64 is disabled."""
    tensor = tf.convert_to_tensor(x)
    dtype = dtypes.canonicalize_dtype(np.dtype(tensor.dtype.as_numpy_dtype))
    return tf.cast(tensor, tf.as_dtype(dtype))


def _call(tf: Any, exported: Exported, tensors: Sequence[Any]) -> list[Any]:
    """Return the results of an operation that runs an exported program."""
    from tensorflow.compiler.tf2xla.python import xla  # pyright: ignore[reportMissingImports]

    module = exported.mlir_module()
    foreign = sorted(set(re.findall(r"custom_call @([\w.]+)", module)))
    if foreign:
        raise NotImplementedError(
            f"jax2tf.convert: {exported.fun_name} calls {', '.join(foreign)} at run time, which TensorFlow does not have. "
            "Leave factorizations and callbacks outside of the converted function."
        )
    return xla.call_module(
        list(tensors),
        version=export.minimum_supported_calling_convention_version,
        module=module,
        Tout=[tf.as_dtype(a.dtype) for a in exported.out_avals],
        Sout=[[n if isinstance(n, int) else None for n in a.shape] for a in exported.out_avals],
        platforms=[platform.upper() for platform in exported.platforms],
    )


def _differentiable(tf: Any, exported: Exported, tensors: Sequence[Any]) -> list[Any]:
    """Return the results of an exported program. Their gradient is another exported operation, which is differentiable too."""
    inputs, outputs = (
        [dtypes.issubdtype(a.dtype, np.inexact) for a in avals]
        for avals in (exported.in_avals, exported.out_avals)
    )

    @tf.custom_gradient
    def run(*tensors: Any) -> tuple:
        def gradient(*cotangents: Any, variables: Any = None) -> list[Any]:
            of_floats = [ct for ct, is_float in zip(cotangents, outputs) if is_float]
            slopes = iter(_differentiable(tf, exported.vjp(), [*tensors, *of_floats]))
            return [next(slopes) if is_float else None for is_float in inputs]

        return _call(tf, exported, tensors), gradient

    return run(*tensors) if any(inputs) and any(outputs) else _call(tf, exported, tensors)


def _not_differentiable(tf: Any, exported: Exported, tensors: Sequence[Any]) -> list[Any]:
    message = (
        "jax2tf.convert: the function was converted without a gradient. Pass with_gradient=True."
    )
    return [
        tf.raw_ops.PreventGradient(input=x, message=message) for x in _call(tf, exported, tensors)
    ]


def eval_polymorphic_shape(
    fun_jax: Callable[..., Any], *, polymorphic_shapes: Any = None
) -> Callable[..., Any]:
    """Return a function that computes the types of the results of `fun_jax`, and their shapes as strings, from argument types.

    >>> eval_polymorphic_shape(lambda x: x.T, polymorphic_shapes="b, 3")(np.ones((2, 3), np.float32))
    (ShapeDtypeStruct(shape=(3, b), dtype=float32), '(3, b)')
    """

    def shapes(*args: Any) -> tuple[Any, Any]:
        types = eval_shape(fun_jax, *export.symbolic_args_specs(args, _texts(polymorphic_shapes)))
        return types, tree.tree_map(lambda x: str(x.shape), types)

    return shapes


def dtype_of_val(val: Any) -> Any:
    """Return TensorFlow's dtype of a tensor, a variable, an array or a number, truncated to 32 bits when x64 is disabled."""
    import tensorflow as tf

    dtype = (
        val.dtype.as_numpy_dtype if isinstance(val, (tf.Tensor, tf.Variable)) else typeof(val).dtype
    )
    return tf.as_dtype(dtypes.canonicalize_dtype(np.dtype(dtype)))
