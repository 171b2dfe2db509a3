"""Callbacks of compiled programs that write their results in place.

In:   a function of a context, the buffers of the results and the buffers of the arguments; it returns nothing.
Out:  a function of arrays for use in programs.
See `weft.pure_callback` for functions that return their results.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft._engine.api.callbacks import io_callback
from weft._engine.core.trace import typeof
from weft._engine.util import tree
from weft._engine.util.errors import DeviceRuntimeError


class ExecutionStage(enum.IntEnum):
    """The stage at which a callback is called: always the execution of the program."""

    INSTANTIATE = 0
    PREPARE = 1
    INITIALIZE = 2
    EXECUTE = 3


class ExecutionContext:
    """The context of a callback's call."""

    __slots__ = ()
    stage = property(lambda self: ExecutionStage.EXECUTE, doc="The stage of the program.")

    @property
    def stream(self) -> int:
        """The stream of a GPU. Raises JaxRuntimeError: a CPU has no streams."""
        raise DeviceRuntimeError(
            "UNIMPLEMENTED: ExecutionContext.stream: XLA FFI GPU context is not available: buffers are on the CPU, "
            "which has no streams. Work on their memory by np.asarray(buffer); the program waits for the callback."
        )


class Buffer:
    """The memory of an argument or a result, for NumPy and DLPack; a write to a result's buffer sets the result.

    >>> from weft.experimental.buffer_callback import Buffer
    >>> Buffer(np.ones(2), True).shape, np.asarray(Buffer(np.ones(2), True)).tolist()
    ((2,), [1.0, 1.0])
    """

    __slots__ = ("_values", "writeable")

    def __init__(self, values: np.ndarray, writeable: bool):
        self._values, self.writeable = values, writeable

    shape = property(lambda self: self._values.shape, doc="Sizes of dims.")
    dtype = property(lambda self: self._values.dtype, doc="Element type.")
    ndim = property(lambda self: self._values.ndim, doc="Number of dims.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._values, dtype, copy=copy)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._values.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._values.__dlpack_device__()


def buffer_callback(
    callback: Callable[..., None],
    result_shape_dtypes: object,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_output_aliases: dict[int, int] | None = None,
    command_buffer_compatible: bool = False,
) -> Callable:
    """Return a function of arrays that calls `callback(context, out, *args)`, which writes to the buffers in `out`, a tree
    like `result_shape_dtypes`.

    `input_output_aliases` maps the number of an argument to the number of a result with the same type: the two share one
    buffer, whose initial content is a copy of the argument. ValueError for invalid numbers and for different types. See
    `weft.pure_callback` for `vmap_method` and for errors.

    >>> from weft.experimental.buffer_callback import buffer_callback
    >>> def double(context, out, x): np.asarray(out)[...] = 2 * np.asarray(x)
    >>> weft.jit(buffer_callback(double, weft.ShapeDtypeStruct((2,), "float32")))(wnp.ones(2)).tolist()
    [2.0, 2.0]
    """
    aliases = dict(input_output_aliases or {})

    def run(*args: Any, **kwargs: Any) -> Any:
        flat, structure = tree.tree_flatten((args, kwargs))
        batch = (
            np.shape(flat[0])[: np.ndim(flat[0]) - ranks[0]]
            if vmap_method in ("expand_dims", "broadcast_all") and flat
            else ()
        )
        outs = [
            np.zeros((*batch, *each.shape), each.dtype)
            for each in tree.tree_leaves(result_shape_dtypes)
        ]
        flat = list(map(np.asarray, flat))
        for operand, result in aliases.items():
            outs[result][...] = flat[operand]
            flat[operand] = outs[result]
        given_args, given_kwargs = tree.tree_unflatten(structure, [Buffer(x, False) for x in flat])
        out_structure = tree.tree_structure(result_shape_dtypes)
        callback(
            ExecutionContext(),
            tree.tree_unflatten(out_structure, [Buffer(out, True) for out in outs]),
            *given_args,
            **given_kwargs,
        )
        return tree.tree_unflatten(out_structure, outs)

    ranks: list[int] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = tree.tree_leaves((args, kwargs))
        _check_aliases(aliases, leaves, tree.tree_leaves(result_shape_dtypes))
        ranks[:] = [np.ndim(x) for x in leaves]
        if has_side_effect:
            return io_callback(run, result_shape_dtypes, *args, **kwargs)
        return weft.pure_callback(
            run, result_shape_dtypes, *args, vmap_method=vmap_method, **kwargs
        )

    return call


def _check_aliases(aliases: dict[int, int], args: Sequence, results: Sequence) -> None:
    """Raise ValueError unless each aliased argument and result exist and have the same type."""
    for operand, out in aliases.items():
        for what, number, values in (("input", operand, args), ("output", out, results)):
            if not 0 <= number < len(values):
                raise ValueError(
                    f"buffer_callback: input_output_aliases contains the mapping '{operand}:{out}' with {what} index {number} "
                    f"outside the range [0, {len(values)}). Arguments and results are numbered from 0, in the order of their "
                    "leaves."
                )
        aval, result = typeof(args[operand]), results[out]
        if (aval.shape, aval.dtype) != (tuple(result.shape), result.dtype):
            raise ValueError(
                f"buffer_callback: input_output_aliases contains the mapping '{operand}:{out}' referring to an input of type "
                f"{aval.str_short()} and an output of type {np.dtype(result.dtype).name}{list(result.shape)}. A buffer has "
                "one type: cast or reshape the argument first."
            )
