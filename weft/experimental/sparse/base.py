"""The base class of all sparse formats, its operators, and the inference of batch dims.

In:   arrays of data and of indices, the leaves of a tree; and the shape of the dense array.
Laws: an entry whose index is out of range is padding and has no effect. Entries with equal indices are added.
Next: `bcoo`, the format with all operations; the others use it, or gathers and scatters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import weft.numpy as wnp
from weft._engine import hooks
from weft._engine.ops.families import canonical_dims
from weft._engine.util.tree import register_pytree_node

#: `sparsify`, set by the module `transform` to avoid an import cycle
apply: list[Callable] = []


class JAXSparse:
    """A sparse array: the base class of all formats.

    >>> from weft.experimental import sparse
    >>> isinstance(sparse.eye(3), sparse.JAXSparse)
    True
    """

    __slots__ = ("shape",)
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100

    shape: tuple[int, ...]
    data: Any

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        register_pytree_node(cls, lambda array: array.tree_flatten(), cls.tree_unflatten)

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]):
        self.shape = tuple(int(size) for size in shape)

    def tree_flatten(self) -> tuple[tuple, Any]:
        """Return the arrays and the static data."""
        raise NotImplementedError(f"{type(self).__name__}.tree_flatten")

    @classmethod
    def tree_unflatten(cls, static: Any, children: Iterable[Any]) -> Any:
        """The inverse of `tree_flatten`."""
        raise NotImplementedError(f"{cls.__name__}.tree_unflatten")

    # ---- facts
    size = property(
        lambda self: math.prod(self.shape), doc="Number of elements of the array that it means."
    )
    ndim = property(lambda self: len(self.shape), doc="Number of dims.")
    dtype = property(lambda self: self.data.dtype, doc="Element type.")
    nse = property(
        lambda self: self.data.shape[0], doc="Number of specified elements, padding included."
    )

    @property
    def T(self) -> Any:
        """The transpose."""
        return self.transpose()

    def todense(self) -> Any:
        """The dense array."""
        raise NotImplementedError(f"{type(self).__name__}.todense")

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """The array with its dims permuted."""
        raise NotImplementedError(f"{type(self).__name__}.transpose")

    def block_until_ready(self) -> Any:
        """Wait for the arrays and return self."""
        for leaf in self.tree_flatten()[0]:
            leaf.block_until_ready()
        return self

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        """Return the sum over dims: see `weft.numpy.sum`."""
        return self._sparsify(lambda x: wnp.sum(x, *args, **kwargs), self)

    def __repr__(self) -> str:
        try:
            sizes, dtype = f"nse={self.nse}", self.dtype.name
            for name in ("n_batch", "n_dense"):
                if getattr(self, name, 0):
                    sizes += f", {name}={getattr(self, name)}"
        except (
            AttributeError,
            IndexError,
        ):  # leaves that are not arrays, as in a tree of specs, or are inconsistent
            return f"{type(self).__name__}(<invalid>)"
        return f"{type(self).__name__}({dtype}[{', '.join(map(str, self.shape))}], {sizes})"

    # ---- operators: the operators of dense arrays, sparsified
    def _sparsify(self, fun: Any, *arrays: Any) -> Any:
        return hooks.sparsify(fun)(*arrays)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __neg__(self) -> Any:
        return self._sparsify(wnp.negative, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._sparsify(wnp.abs, self)

    def __matmul__(self, other: Any) -> Any:
        return self._sparsify(wnp.matmul, self, _operand(other))

    def __rmatmul__(self, other: Any) -> Any:
        return self._sparsify(wnp.matmul, _operand(other), self)

    def __mul__(self, other: Any) -> Any:
        return self._sparsify(wnp.multiply, self, _operand(other))

    def __rmul__(self, other: Any) -> Any:
        return self._sparsify(wnp.multiply, _operand(other), self)

    def __truediv__(self, other: Any) -> Any:
        return self._sparsify(wnp.divide, self, _operand(other))

    def __add__(self, other: Any) -> Any:
        return self._sparsify(wnp.add, self, _operand(other))

    def __radd__(self, other: Any) -> Any:
        return self._sparsify(wnp.add, _operand(other), self)

    def __sub__(self, other: Any) -> Any:
        return self._sparsify(wnp.subtract, self, _operand(other))

    def __rsub__(self, other: Any) -> Any:
        return self._sparsify(wnp.subtract, _operand(other), self)

    def __pow__(self, other: Any) -> Any:
        return self._sparsify(lambda x: wnp.power(x, other), self)

    def __getitem__(self, index: Any) -> Any:
        return self._sparsify(lambda x: x[index], self)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} is sparse and does not become a dense array by itself. Call its todense()."
        )

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))


def is_sparse(value: Any) -> bool:
    """Return True if a value is a sparse array of any format."""
    return isinstance(value, JAXSparse)


def _operand(value: Any) -> Any:
    return value if isinstance(value, JAXSparse) else wnp.asarray(value)


def axes_of(ndim: int, axes: Sequence[int] | None) -> tuple[int, ...]:
    """Return `axes` as a permutation, by default the reversed order."""
    return tuple(range(ndim))[::-1] if axes is None else canonical_dims("transpose", axes, ndim)


def dims_of(data: Any, indices: Any) -> tuple[int | None, int | None]:
    """Return the numbers of dims of the data and of the indices, None for a value that is not an array."""
    return getattr(data, "ndim", None), getattr(indices, "ndim", None)


def _fits(sizes: tuple[int, ...], others: Iterable[tuple[int, ...]]) -> bool:
    """Return True if each of `others` has these sizes, or 1 in their places."""
    return all(
        len(other) == len(sizes) and all(a in (1, b) for a, b in zip(other, sizes))
        for other in others
    )


def mapped_shape(
    shape: tuple[int, ...],
    before: tuple[int | None, int | None],
    data: Any,
    indices: Any,
    entry: int,
) -> tuple[int, ...]:
    """Return the shape of an array whose data and indices lost or gained a batch dim, as under `vmap`.


    `entry` is the number of index dims after the batch dims. The batch dim follows from the remaining sizes; if several
    match, it is the first one.
    """
    (ndim, ndim_indices), (now, now_indices) = before, dims_of(data, indices)
    if ndim is None or now is None or now == ndim:
        return shape
    batch, count, batch_sizes = (), 0, []
    if (
        ndim_indices is not None
        and now_indices is not None
        and now_indices - ndim_indices == now - ndim
    ):
        batch, count = shape[: ndim_indices - entry], now_indices - entry
        batch_sizes = [tuple(each.shape[:count]) for each in (data, indices)]

    for k in range(len(batch)) if now == ndim - 1 else ():
        rest = batch[:k] + batch[k + 1 :]
        if _fits(rest, batch_sizes):
            return rest + shape[len(batch) :]
    for k in range(count) if now == ndim + 1 else ():
        if _fits(batch, [sizes[:k] + sizes[k + 1 :] for sizes in batch_sizes]):
            return (*shape[:k], max(sizes[k] for sizes in batch_sizes), *shape[k:])
    return shape[ndim - now :] if now < ndim else (*data.shape[: now - ndim], *shape)
