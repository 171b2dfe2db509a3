"""Calls of Python functions from programs: `pure_callback`, `io_callback`, and the basis of the debug callbacks.

In:   a user function of trees, called with arrays while a program runs (compiled or not).
Out:  for the first two, its results as values of the program; they must have the declared types.
Laws: the function runs in the thread that called the program, never concurrently with it; an exception in it stops the
      program and is raised in the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine import backends
from weft._engine.core.trace import Tracer, eval_trace, manual_axes, set_trace, typeof
from weft._engine.ir.shardings import Sharding
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import callback as ops
from weft._engine.ops.collectives import axis_index
from weft._engine.ops.keys import generator_of, random_unwrap, random_wrap
from weft._engine.runtime.array import from_numpy
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import describe
from weft._engine.util.source import api_boundary, user_frame


class HostFunction:
    """A user function as a callback: called with flat arrays, it rebuilds the arguments and flattens the results.

    Two are equal if they call the same function with the same structure and static values, so that equal programs stay equal.
    """

    __slots__ = ("_key", "api", "fun", "in_tree", "keys", "results", "slots", "statics")

    def __init__(
        self, api: str, fun: Callable, leaves: Sequence, in_tree: Any, results: Any = None
    ):
        self.api, self.fun, self.in_tree, self.results = api, fun, in_tree, results
        dynamic = [_is_array(x) for x in leaves]
        self.slots = [i for i, d in enumerate(dynamic) if d]
        self.statics = tuple((i, x) for i, (x, d) in enumerate(zip(leaves, dynamic)) if not d)
        self.keys = {
            i: generator_of(leaves[i])
            for i in self.slots
            if dtypes.is_extended(typeof(leaves[i]).dtype)
        }
        self._key: tuple = (api, fun, in_tree, self.statics, results, tuple(self.keys.items()))
        try:
            hash(self._key)
        except TypeError:  # a static value or the function is unhashable: equal only to itself
            self._key = (id(self),)

    def operands(self, leaves: Sequence) -> list:
        """Return the leaves that are values of the program; random keys as their key data."""
        return [random_unwrap(leaves[i]) if i in self.keys else leaves[i] for i in self.slots]

    def __call__(self, position: tuple, *arrays: np.ndarray) -> list:
        with set_trace(eval_trace):
            args, kwargs = self.arguments(arrays)
            out = self.fun(*args, **kwargs)
        return [] if self.results is None else self._check_results(out)

    def arguments(self, arrays: Sequence[np.ndarray]) -> tuple[tuple, dict]:
        """Return `(args, kwargs)` of the user function; arrays are copies, because it may keep them."""
        leaves: list = [None] * (len(self.slots) + len(self.statics))
        for i, x in zip(self.slots, arrays):
            array = from_numpy(np.asarray(x), ShapedArray(x.shape, x.dtype))
            leaves[i] = random_wrap(array, self.keys[i]) if i in self.keys else array
        for i, x in self.statics:
            leaves[i] = x
        return tree.tree_unflatten(self.in_tree, leaves)

    def _check_results(self, out: Any) -> list[np.ndarray]:
        """Return the results as NumPy arrays, as many as declared; their container types do not matter."""
        leaves, structure = tree.tree_flatten(out)
        if structure.num_leaves != self.results.num_leaves:
            raise TypeError(
                f"{self.api}: {self!r} returned a result of structure {structure}, but {self.results} was declared."
                f"{tree.describe_difference(self.results, structure, 'declared', 'returned')}"
            )
        values = [np.asarray(x) for x in leaves]
        return [v.astype(dtypes.canonicalize_dtype(v.dtype), copy=False) for v in values]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostFunction) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<function {_name(self.fun)}>"


def _name(fun: Callable) -> str:
    return (
        getattr(fun, "__qualname__", None) or getattr(fun, "__name__", None) or type(fun).__name__
    )


def _is_array(x: Any) -> bool:
    try:
        typeof(x)
    except TypeError:
        return False
    return True


def bind_observer(
    primitive: Any,
    function: HostFunction,
    leaves: Sequence,
    ordered: bool,
    partitioned: bool,
    **params,
) -> None:
    """Bind a callback that only reads values; inside shard_map each device calls it, with its own position."""
    operands, axes = function.operands(leaves), manual_axes()
    if axes:
        operands, params = [*map(axis_index, axes), *operands], {**params, "axes": axes}
    primitive.bind(
        *operands, callback=function, ordered=bool(ordered), partitioned=bool(partitioned), **params
    )


def _flatten_result_types(
    api: str, result_shape_dtypes: Any
) -> tuple[Any, tuple[ShapedArray, ...]]:
    """Return structure and types of the declared results."""
    leaves, structure = tree.tree_flatten(result_shape_dtypes)
    for x in leaves:
        if not hasattr(x, "shape") or not hasattr(x, "dtype"):
            raise TypeError(
                describe(
                    api,
                    f"result_shape_dtypes has a leaf {x!r} without shape and dtype.",
                    (),
                    user_frame(),
                    "The program knows the results of a callback only from this declaration.",
                    "Use weft.ShapeDtypeStruct(shape, dtype).",
                )
            )
        if dtypes.is_extended(x.dtype):
            raise TypeError(
                describe(
                    api,
                    f"result_shape_dtypes has a leaf of random keys, {x!r}.",
                    (),
                    user_frame(),
                    "Callbacks return arrays of numbers.",
                    "Declare the type of random.key_data(keys), and use random.wrap_key_data on the result.",
                )
            )
        if dtypes.canonicalize_dtype(x.dtype) != x.dtype:
            raise ValueError(
                describe(
                    api,
                    f"result_shape_dtypes cannot specify 64-bit types, such as {x.dtype}.",
                    (),
                    user_frame(),
                    "64-bit types are disabled, so no result of a program has one.",
                    "Declare a type of 32 bits, or set weft.config.update('enable_x64', True).",
                )
            )
    return structure, tuple(ShapedArray(tuple(x.shape), x.dtype) for x in leaves)


@api_boundary
def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Sharding | None = None,
    vmap_method: str | None = None,
    vectorized: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Return the results of the Python function `callback(*args, **kwargs)`, computed on the host while the program runs.

    `result_shape_dtypes` declares their shapes and dtypes. The function must be pure: it may be called once, several times
    or, if its results are unused, not at all. `vmap_method` selects how `vmap` calls it: "sequential" (once per example),
    "expand_dims" or "broadcast_all" (once, on operands with an additional leading dim, of size 1 or repeated where they are not
    mapped). It has no derivative; wrap it in `custom_jvp` or `custom_vjp`.
    Raises ValueError for another `vmap_method` and NotImplementedError under `vmap` without one; errors of `callback` become
    CallbackErrors.

    >>> x = wnp.arange(3.0)
    >>> weft.jit(lambda x: weft.pure_callback(np.cumsum, x, x) + 1)(x).tolist()
    [1.0, 2.0, 4.0]
    """
    if vectorized is not None:
        if vmap_method is not None:
            raise ValueError("pure_callback: pass vmap_method or the older vectorized, not both.")
        vmap_method = "legacy_vectorized" if vectorized else "sequential"
    if vmap_method is not None and vmap_method not in ops.VMAP_METHODS:
        raise ValueError(
            f"pure_callback: vmap_method must be one of {', '.join(map(repr, ops.VMAP_METHODS))} or None, got "
            f"{vmap_method!r}."
        )
    _check_callable("pure_callback", callback)
    promised = _flatten_result_types("pure_callback", result_shape_dtypes)
    leaves, in_tree = tree.tree_flatten((args, kwargs))
    function = HostFunction("pure_callback", callback, leaves, in_tree, promised[0])
    outs = ops.pure_callback_p.bind(
        *function.operands(leaves),
        callback=function,
        result_avals=promised[1],
        vmap_method=vmap_method,
        sharding=sharding,
    )
    return tree.tree_unflatten(promised[0], outs)


@api_boundary
def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Sharding | None = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Return the results of the Python function `callback(*args, **kwargs)`, which may have effects: it is called exactly once.

    Unlike `pure_callback` the call is kept if its results are unused, and calls follow the order of the program, `ordered`
    or not. Under `vmap` it is called once per example; ordered calls of mapped values raise ValueError there, because the examples
    are not ordered.
    An exception in `callback`, or a result of another shape or dtype, becomes a CallbackError.

    >>> from weft.experimental import io_callback
    >>> seen = []
    >>> f = weft.jit(lambda x: io_callback(lambda v: seen.append(float(v)), None, x))
    >>> f(1.0); f(2.0); seen
    [1.0, 2.0]
    """
    _check_callable("io_callback", callback)
    promised = _flatten_result_types("io_callback", result_shape_dtypes)
    leaves, in_tree = tree.tree_flatten((args, kwargs))
    function = HostFunction("io_callback", callback, leaves, in_tree, promised[0])
    outs = ops.io_callback_p.bind(
        *function.operands(leaves),
        callback=function,
        result_avals=promised[1],
        ordered=bool(ordered),
        sharding=sharding,
    )
    return tree.tree_unflatten(promised[0], outs)


def debug_callback(
    callback: Callable[..., Any],
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> None:
    """Call `callback(*args, **kwargs)` with the runtime values of the arguments."""
    _check_callable("debug.callback", callback)
    leaves, in_tree = tree.tree_flatten((args, kwargs))
    function = HostFunction("debug.callback", callback, leaves, in_tree)
    bind_observer(ops.debug_callback_p, function, leaves, ordered, partitioned)


def _check_callable(api: str, callback: Any) -> None:
    if not callable(callback):
        raise TypeError(f"{api}: the callback must be callable, got {callback!r}.")


def effects_barrier() -> None:
    """Wait until all callbacks of programs called so far are done; raise the error of one if it was not raised yet.

    >>> effects_barrier()
    """
    backends.wait_for_effects(raising=True)


def known_sharding(value: Any) -> Sharding | None:
    """Return the sharding of a concrete array; None for a traced value."""
    return None if isinstance(value, Tracer) else getattr(value, "sharding", None)
