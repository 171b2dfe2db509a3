"""A tree of arrays as one vector, and back."""

from collections.abc import Callable
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.tree_util import tree_flatten, tree_unflatten
from weft.util.dtypes import result_type
from weft.util.source import guard_all


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the leaves of `pytree` as one vector, and the function that makes such a tree of such a vector.

    The vector has the dtype that all leaves promote to; going back, every leaf takes its own shape and dtype again.

    >>> vector, back = ravel_pytree({"a": np.ones((2, 2), np.float32), "b": np.float32(3)})
    >>> vector.shape
    (5,)
    >>> back(vector)["a"].shape
    (2, 2)
    """
    leaves, treedef = tree_flatten(pytree)
    arrays = [wnp.asarray(leaf) for leaf in leaves]
    shapes = [array.shape for array in arrays]
    dtypes = [array.dtype for array in arrays]
    dtype = result_type(*dtypes) if dtypes else np.dtype(np.float32)
    vector = wnp.concatenate([wnp.ravel(array).astype(dtype) for array in arrays]) if arrays else wnp.zeros(0, dtype)
    ends = np.cumsum([array.size for array in arrays])

    def unravel(flat: Any) -> Any:
        if flat.shape != vector.shape:
            raise ValueError(f"ravel_pytree: the vector to unravel has shape {flat.shape}, the raveled tree had {vector.shape}.")
        parts = wnp.split(flat, ends[:-1]) if shapes else []
        rebuilt = [part.reshape(shape).astype(kind) for part, shape, kind in zip(parts, shapes, dtypes)]
        return tree_unflatten(treedef, rebuilt)

    return vector, unravel


guard_all(globals())
