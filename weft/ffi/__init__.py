"""Calls of native functions from programs, by the calling convention of XLA's typed FFI.

In:   the address of a function `XLA_FFI_Error* f(XLA_FFI_CallFrame*)`, as a capsule, and the types of its results.
Out:  `ffi_call`, an operation in programs: the function gets the buffers of operands and results, and attributes.
How:  the call is a callback of the program. It lays out a call frame in memory (`frames`) and calls the address. Errors are made by a
      table of functions that the frame points to; the table's other functions are null: streams, state, device memory, thread pools and
      futures have no counterpart here.
Laws: operands are row-major and read-only; results are new arrays, or copies of the operands that they alias. The call works in jit, vmap
      (by `vmap_method`), shard_map and loops; it has no derivative of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.api.callbacks import io_callback, pure_callback
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.core.trace import typeof
from weft._engine.ir.mesh import get_abstract_mesh
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.keys import random_unwrap, random_wrap
from weft._engine.util import dtypes, tree
from weft._engine.util.source import guard_all
from weft.ffi.frames import DTYPES, invoke

__all__ = ["ffi_call", "pycapsule", "register_ffi_target"]

_P = ctypes.c_void_p
_CAPSULE = b"xla._CUSTOM_CALL_TARGET"


# ---- targets

_targets: dict[str, Any] = {}


def pycapsule(funcptr: Any) -> Any:
    """A capsule with the address of a ctypes function, as `register_ffi_target` takes it.

    >>> handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda frame: None)
    >>> type(pycapsule(handler)).__name__
    'PyCapsule'
    """
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (_P, ctypes.c_char_p, _P)
    address = ctypes.cast(funcptr, _P).value
    if not address:
        raise ValueError("pycapsule: funcptr is a null pointer.")
    return make(address, _CAPSULE, None)


def register_ffi_target(
    name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any
) -> None:
    """Let `ffi_call(name, ...)` call a native function: a capsule, or a dict whose entry "execute" is one.

    Raises ValueError where the name is taken by another function, TypeError for what is not a capsule; NotImplementedError for platforms
    other than the CPU, for the untyped convention (`api_version=0`), and for functions of the other stages.
    """
    if platform.lower() not in ("cpu", "host"):
        raise NotImplementedError(
            f"register_ffi_target: platform {platform!r}; native functions are called on the CPU."
        )
    if api_version != 1:
        raise NotImplementedError(
            f"register_ffi_target: api_version={api_version}; functions have the typed convention, api_version=1."
        )
    stages = dict(fn) if isinstance(fn, Mapping) else {"execute": fn}
    if set(stages) != {"execute"}:
        raise NotImplementedError(
            f"register_ffi_target: stages {sorted(set(stages) - {'execute'})}; functions have the stage 'execute'."
        )
    address = _address(stages["execute"])
    known = _targets.get(name)
    if known is not None and known[0] != address:
        raise ValueError(
            f"register_ffi_target: {name!r} is registered already, with another function. Choose another name."
        )
    _targets[name] = (address, ctypes.CFUNCTYPE(_P, _P)(address), stages["execute"])


def _address(capsule: Any) -> int:
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError(
            f"register_ffi_target: fn is a capsule, as pycapsule makes of a ctypes function, got {capsule!r}."
        )
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer.restype, pointer.argtypes = _P, (ctypes.py_object, ctypes.c_char_p)
    return pointer(capsule, name(capsule))


# ---- calls


def _result_types(tree_of_types: Any) -> tuple[list[Any], Any]:
    """Return the types of results, and their tree; None and an empty tuple inside of it are no types."""

    def is_absent(x: Any) -> bool:
        return x is None or (type(x) is tuple and not x and x is not tree_of_types)

    types, structure = tree.tree_flatten(tree_of_types, is_absent)
    for i, x in enumerate(types):
        if not (hasattr(x, "shape") and hasattr(x, "dtype")):
            raise ValueError(
                f"ffi_call: All elements of result_shape_dtypes must have a shape and a dtype; at position {i} is {x!r}. Use "
                "ShapeDtypeStruct."
            )
    return types, structure


def _key_generators(types: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the generator of each type of random keys (None for others), and the types of their data."""
    impls = [x.dtype.impl if dtypes.is_extended(x.dtype) else None for x in types]
    data = [
        x if impl is None else ShapedArray((*x.shape, *impl.key_shape), np.uint32)
        for x, impl in zip(types, impls)
    ]
    return impls, data


def _wrap_keys(outs: Any, impls: list[Any]) -> Any:
    """Return a tree of results, with data of random keys as keys."""
    if not any(impls):
        return outs
    leaves, structure = tree.tree_flatten(outs)
    wrapped = [x if impl is None else random_wrap(x, impl) for x, impl in zip(leaves, impls)]
    return tree.tree_unflatten(structure, wrapped)


def _without_derivative(function: Callable[..., Any], target_name: str) -> Any:
    """Return a function whose derivative is refused."""
    called = custom_jvp(function)

    @called.defjvp
    def _(*_: Any) -> Any:
        raise ValueError(
            f"ffi_call: the call to `{target_name}` cannot be differentiated: nothing is known of the function. Put a "
            "custom_jvp or a custom_vjp around it."
        )

    return called


def _check_layouts(which: str, layouts: Any) -> None:
    for i, layout in enumerate(layouts or ()):
        if layout is None:
            continue
        order = tuple(layout.major_to_minor if hasattr(layout, "major_to_minor") else layout)
        if order != tuple(range(len(order))):
            raise NotImplementedError(
                f"ffi_call: {which}_layouts[{i}] is {order}; arrays are row-major."
            )


def _check_dtypes(target_name: str, avals: Sequence[Any]) -> None:
    for aval in avals:
        if np.dtype(aval.dtype).name not in DTYPES:
            raise TypeError(
                f"ffi_call: {target_name} has an operand or a result of dtype {aval.dtype}, which the convention lacks."
            )


def _result_memory(
    shape: tuple[int, ...], dtype: Any, arrays: Sequence[np.ndarray], source: int | None
) -> np.ndarray:
    """Return memory for a result; with the number of an operand, a copy of the operand."""
    if source is None:
        return np.empty(shape, dtype)
    return np.array(np.broadcast_to(arrays[source], shape))


def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Any = None,
    output_layouts: Any = None,
    input_output_aliases: Mapping[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None,
) -> Callable[..., Any]:
    """A function of arrays that calls the registered native function: `ffi_call(name, types)(*operands, **attributes)`.

    `result_shape_dtypes` is a tree of types (`ShapeDtypeStruct`), and the result a tree of arrays like it. Attributes are numbers, strings,
    arrays of numbers, and dicts of these; Python's integers and floats are 64 bits wide. Of random keys the function reads and writes the
    data, one more dim of uint32. `vmap_method` has the values of `pure_callback`. A result that aliases an operand begins as a copy of it. An
    error that the function reports becomes JaxRuntimeError.
    Raises ValueError for results that are not types, for derivatives, and for an unknown name (when it runs, where the mesh of the
    context is meant for devices of another platform: such programs are lowered here, and run there), NotImplementedError for layouts
    that are not row-major and for other conventions.
    """
    promised, structure = _result_types(result_shape_dtypes)
    if custom_call_api_version != 4 or legacy_backend_config is not None:
        raise NotImplementedError(
            f"ffi_call: custom_call_api_version={custom_call_api_version}; functions have the typed convention (4)."
        )
    _check_layouts("input", input_layouts)
    _check_layouts("output", output_layouts)
    impls, promised = _key_generators(promised)
    types = tree.tree_unflatten(structure, promised)
    aliases = {out: operand for operand, out in (input_output_aliases or {}).items()}

    def call(*args: Any, **attributes: Any) -> Any:
        args = tuple([random_unwrap(x) if dtypes.is_extended(typeof(x).dtype) else x for x in args])
        avals = [typeof(x) for x in args]
        _check_dtypes(target_name, (*avals, *promised))

        def run(*operands: Any) -> Any:
            arrays = [np.ascontiguousarray(x) for x in operands]
            batches = [x.shape[: x.ndim - a.ndim] for x, a in zip(arrays, avals)]
            lead = np.broadcast_shapes(*batches)
            outs = [
                _result_memory((*lead, *x.shape), x.dtype, arrays, aliases.get(i))
                for i, x in enumerate(promised)
            ]
            invoke(target_name, _find_target(target_name), arrays, outs, attributes)
            return tree.tree_unflatten(structure, outs)

        run.__dict__["target"] = target_name  # its name in texts of programs

        def called(*operands: Any) -> Any:
            device = get_abstract_mesh().abstract_device
            if device is None or device.platform == "cpu":
                _find_target(target_name)
            if has_side_effect:
                return io_callback(run, types, *operands)
            return pure_callback(run, types, *operands, vmap_method=vmap_method)

        return _wrap_keys(_without_derivative(called, target_name)(*args), impls)

    call.__name__ = f"ffi_call_{target_name}"
    return call


def _find_target(name: str) -> Any:
    """The function of that name; ValueError if there is none."""
    if name not in _targets:
        raise ValueError(
            f"ffi_call: no function is registered as {name!r}; register_ffi_target does that. "
            f"Registered are {sorted(_targets)}."
        )
    return _targets[name][1]


guard_all(globals())
