"""Derivatives of functions with respect to sparse or dense arguments.

In:   a function, and arguments; some of them are sparse.
Out:  derivatives of the data, with the indices of the arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft._engine.api.autodiff import check_argnums
from weft._engine.util import tree
from weft.experimental.sparse.base import is_sparse
from weft.experimental.sparse.bcoo import BCOO


def _derivative(transform: Callable, name: str, doc: str) -> Callable:
    """Return a transformation, of functions of arrays, extended to functions with sparse arguments; it differentiates their data."""

    def derived(
        fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
    ) -> Callable:
        if not isinstance(has_aux, (int, np.bool_)):
            raise TypeError(f"{name}: `has_aux` must be True or False, got {has_aux!r:.60}.")

        @functools.wraps(fun)
        def run(*args: Any, **others: Any) -> Any:
            numbers = check_argnums(argnums, len(args), name)
            leaves, treedef = tree.tree_flatten([args[i] for i in numbers], is_leaf=is_sparse)
            data = [leaf.data if is_sparse(leaf) else leaf for leaf in leaves]

            def of_data(data: list) -> Any:
                whole = list(args)
                sparse = [
                    _replace(leaf, each) if is_sparse(leaf) else each
                    for leaf, each in zip(leaves, data)
                ]
                for i, value in zip(numbers, tree.tree_unflatten(treedef, sparse)):
                    whole[i] = value
                return fun(*whole, **others)

            derivatives = transform(of_data, has_aux=has_aux, **kwargs)(data)
            return _rewrap(name, derivatives, leaves, treedef, isinstance(argnums, int), has_aux)

        return run

    derived.__name__ = derived.__qualname__ = name
    derived.__doc__ = doc
    return derived


def _replace(mat: Any, data: Any) -> Any:
    children, static = mat.tree_flatten()
    return type(mat).tree_unflatten(static, (data, *children[1:]))


def _rewrap(
    name: str, results: Any, leaves: list, treedef: Any, single: bool, has_aux: bool
) -> Any:
    def wrap(derivatives: list) -> Any:
        new_leaves = [
            _with_leading(leaf, each) if is_sparse(leaf) else each
            for leaf, each in zip(leaves, derivatives)
        ]
        back = tree.tree_unflatten(treedef, new_leaves)
        return back[0] if single else tuple(back)

    if name == "value_and_grad":
        value, derivatives = results
        return value, wrap(derivatives)
    if name == "grad":
        return (wrap(results[0]), results[1]) if has_aux else wrap(results)
    outs, aux = results if has_aux else (results, None)
    count = len(leaves)
    wrapped = tree.tree_map(
        wrap, outs, is_leaf=lambda node: isinstance(node, list) and len(node) == count
    )
    return (wrapped, aux) if has_aux else wrapped


def _with_leading(mat: Any, data: Any) -> Any:
    """Return derivatives of the data as a sparse array; the result dims of a Jacobian come first, as batch dims."""
    more = data.ndim - mat.data.ndim
    if not more:
        return _replace(mat, data)
    lead = data.shape[:more]
    indices = wnp.broadcast_to(mat.indices, (*lead, *mat.indices.shape))
    return BCOO(
        (data, indices),
        shape=(*lead, *mat.shape),
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


_SPARSE = " with respect to arguments that may be sparse: the derivative is sparse with the same indices. See `weft.{}`."
grad = _derivative(
    weft.grad,
    "grad",
    "The gradient"
    + _SPARSE.format("grad")
    + """

    >>> from weft.experimental import sparse
    >>> sparse.grad(lambda m: (m @ wnp.array([1., 2.])).sum())(sparse.eye(2)).data.tolist()
    [1.0, 2.0]
    """,
)
value_and_grad = _derivative(
    weft.value_and_grad,
    "value_and_grad",
    "The value and the gradient" + _SPARSE.format("value_and_grad"),
)
jacfwd = _derivative(
    weft.jacfwd, "jacfwd", "The Jacobian by forward mode" + _SPARSE.format("jacfwd")
)
jacrev = _derivative(
    weft.jacrev, "jacrev", "The Jacobian by reverse mode" + _SPARSE.format("jacrev")
)
jacobian = jacrev
