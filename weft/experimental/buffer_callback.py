"""Python functions inside of programs that write their results in place.

In:   a function of a context, of the buffers of the results and of those of the arguments, which returns nothing.
Out:  a function of arrays for use in programs.
See `weft.pure_callback` for functions that return their results.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.api.callbacks import io_callback
from weft.util import tree


class ExecutionStage(enum.IntEnum):
    """When a callback is called: here always when the program runs."""
    INSTANTIATE = 0
    PREPARE = 1
    INITIALIZE = 2
    EXECUTE = 3


class ExecutionContext:
    """What a callback is told of its call."""
    __slots__ = ()
    stage = property(lambda self: ExecutionStage.EXECUTE, doc="The stage of the program.")

    @property
    def stream(self) -> int:
        """The stream of a GPU. NotImplementedError: a CPU has none."""
        raise NotImplementedError("ExecutionContext.stream: buffers are on the CPU, which has no streams.")


class Buffer:
    """The memory of an argument or a result, for NumPy and DLPack: writing to that of a result sets it.

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
    __array_interface__ = property(lambda self: self._values.__array_interface__)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._values, dtype, copy=copy)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._values.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._values.__dlpack_device__()


def buffer_callback(callback: Callable[..., None], result_shape_dtypes: object, *, has_side_effect: bool = False,
                    vmap_method: str | None = None, input_output_aliases: dict[int, int] | None = None,
                    command_buffer_compatible: bool = False) -> Callable:
    """A function of arrays that calls `callback(context, out, *args)`, which writes to the buffers in `out`, a tree like
    `result_shape_dtypes`.

    With `input_output_aliases` a result begins as a copy of an argument. See `weft.pure_callback` for `vmap_method` and for errors.

    >>> from weft.experimental.buffer_callback import buffer_callback
    >>> def double(context, out, x): np.asarray(out)[...] = 2 * np.asarray(x)
    >>> weft.jit(buffer_callback(double, weft.ShapeDtypeStruct((2,), "float32")))(wnp.ones(2)).tolist()
    [2.0, 2.0]
    """
    aliases = dict(input_output_aliases or {})

    def run(*args: Any, **kwargs: Any) -> Any:
        flat, structure = tree.tree_flatten((args, kwargs))
        batch = np.shape(flat[0])[:np.ndim(flat[0]) - ranks[0]] if vmap_method in ("expand_dims", "broadcast_all") and flat else ()
        outs = [np.zeros((*batch, *each.shape), each.dtype) for each in tree.tree_leaves(result_shape_dtypes)]
        for given, made in aliases.items():
            outs[made][...] = flat[given]
        given_args, given_kwargs = tree.tree_unflatten(structure, [Buffer(np.asarray(x), False) for x in flat])
        out_structure = tree.tree_structure(result_shape_dtypes)
        callback(ExecutionContext(), tree.tree_unflatten(out_structure, [Buffer(out, True) for out in outs]), *given_args, **given_kwargs)
        return tree.tree_unflatten(out_structure, outs)

    ranks: list[int] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        ranks[:] = [np.ndim(x) for x in tree.tree_leaves((args, kwargs))]
        if has_side_effect:
            return io_callback(run, result_shape_dtypes, *args, **kwargs)
        return weft.pure_callback(run, result_shape_dtypes, *args, vmap_method=vmap_method, **kwargs)

    return call
