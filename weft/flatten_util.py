"""Conversion between a tree of arrays and one vector."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.util.dtypes import result_type
from weft._engine.util.record import record
from weft._engine.util.source import guard_all
from weft.tree_util import tree_flatten, tree_unflatten


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the leaves of `pytree` as one vector, and the function that converts such a vector back to such a tree.

    The vector has the promoted dtype of all leaves. The inverse restores the shape and dtype of each leaf. If all leaves
    have one dtype, the restored leaves have the dtype of the given vector instead.

    Leaves may be ShapeDtypeStructs; then the vector is also a ShapeDtypeStruct.

    >>> vector, back = ravel_pytree({"a": np.ones((2, 2), np.float32), "b": np.float32(3)})
    >>> vector.shape
    (5,)
    >>> back(vector)["a"].shape
    (2, 2)
    """
    leaves, treedef = tree_flatten(pytree)
    arrays: list[Any] = [
        leaf if type(leaf) is ShapeDtypeStruct else wnp.asarray(leaf) for leaf in leaves
    ]
    shapes = [array.shape for array in arrays]
    dtypes = [array.dtype for array in arrays]
    dtype = result_type(*dtypes) if dtypes else np.dtype(np.float32)
    unravel = _Unravel(treedef, tuple(shapes), tuple(dtypes), dtype)
    if any(type(leaf) is ShapeDtypeStruct for leaf in leaves):
        return ShapeDtypeStruct((sum(map(math.prod, shapes)),), dtype), unravel
    vector = (
        wnp.concatenate([wnp.ravel(array).astype(dtype) for array in arrays])
        if arrays
        else wnp.zeros(0, dtype)
    )
    return vector, unravel


@record
class _Unravel:
    """The inverse of `ravel_pytree`. Instances of equal structures, shapes and dtypes are equal, so that it can be a static argument."""

    treedef: Any
    shapes: tuple
    dtypes: tuple
    dtype: Any

    def __call__(self, flat: Any) -> Any:
        """Return the tree of a vector. Raise ValueError for another shape, and TypeError for another dtype unless all leaves share one."""
        sizes = [math.prod(shape) for shape in self.shapes]
        if flat.shape != (sum(sizes),):
            raise ValueError(
                f"ravel_pytree: the vector to unravel has shape {flat.shape}, the raveled tree had {(sum(sizes),)}."
            )
        one_dtype = len(set(self.dtypes)) == 1
        if flat.dtype != self.dtype and not one_dtype:
            raise TypeError(
                f"ravel_pytree: unravel got a vector of dtype {flat.dtype.name}, but expected dtype {self.dtype.name}."
            )
        parts = wnp.split(flat, np.cumsum(sizes)[:-1]) if sizes else []
        parts = [part.reshape(shape) for part, shape in zip(parts, self.shapes)]
        rebuilt = (
            parts if one_dtype else [part.astype(kind) for part, kind in zip(parts, self.dtypes)]
        )
        return tree_unflatten(self.treedef, rebuilt)


guard_all(globals())
