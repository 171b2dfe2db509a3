"""Conversion of functions of trees to functions of their leaves, and the names of these leaves.

In:   a user function, and the arguments of one call.
Out:  a `FlatFunction` for `core.stage` and the transforms to run; after it has run, the structure of its results is known.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from weft._engine.core.trace import typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.util import dtypes, tree
from weft._engine.util.source import positional_names


def check_static_argnums(static: Iterable[int], n_args: int) -> None:
    """Raise ValueError unless a call with `n_args` positional arguments has all positions in `static`."""
    if not all(-n_args <= k < n_args for k in static):
        raise ValueError(
            f"static_argnums={tuple(static)} names an argument that a call with {n_args} positional arguments lacks."
        )


def check_argnames(argnames: str | Iterable[str], api: str, parameter: str) -> tuple[str, ...]:
    """Return one name or several as a tuple; raise TypeError if one is not a string."""
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"{api}: {parameter} must be strings, got {wrong[0]!r:.60}.")
    return names


class FlatFunction:
    """The function `fun` of the `leaves` of its arguments.

    Positional arguments at `static` are fixed. `is_leaf` marks further leaves, of arguments and of results; or `flatten` flattens their
    trees.

    >>> flat = FlatFunction(lambda x, y, n: {"sum": x + n * y}, (1, 2, 10), static=(2,))
    >>> flat.leaves, flat.unflatten(flat(3, 4))
    ([1, 2], {'sum': 43})
    """

    __slots__ = ("fun", "leaves", "in_tree", "out_tree", "_n_args", "_static", "_flatten")

    def __init__(
        self,
        fun: Callable,
        args: Sequence,
        kwargs: dict | None = None,
        static: int | Sequence[int] = (),
        is_leaf: Callable | None = None,
        flatten: Callable | None = None,
    ):
        static = (static,) if isinstance(static, int) else static
        check_static_argnums(static, len(args))
        self.fun = fun
        self._flatten = flatten or functools.partial(tree.tree_flatten, is_leaf=is_leaf)
        self._n_args = len(args)
        self._static = {k % len(args): args[k] for k in static}
        dynamic = tuple(x for i, x in enumerate(args) if i not in self._static)
        self.leaves, self.in_tree = self._flatten((dynamic, kwargs or {}))
        self.out_tree: Any = None

    def __call__(self, *leaves) -> list:
        dynamic, kwargs = tree.tree_unflatten(self.in_tree, leaves)
        values = iter(dynamic)
        args = [self._static[i] if i in self._static else next(values) for i in range(self._n_args)]
        results, self.out_tree = self._flatten(self.fun(*args, **kwargs))
        return results

    def unflatten(self, results: Sequence) -> Any:
        """Return the tree that `fun` would return with `results` as its leaves."""
        return tree.tree_unflatten(self.out_tree, results)

    @property
    def statics(self) -> tuple:
        """The fixed arguments, by position."""
        return tuple(self._static.items())

    def names(self) -> list[str]:
        """Return the names of the leaves."""
        args, kwargs = tree.tree_unflatten(self.in_tree, self.leaves)
        return argument_names(signature_of(self.fun), args, kwargs, self._static)


def signature_of(fun: Callable) -> inspect.Signature | None:
    """Return the signature of a function; None if it is unknown."""
    try:
        return inspect.signature(fun)
    except (ValueError, TypeError):
        return None


def argument_names(
    signature: inspect.Signature | None,
    args: Sequence,
    kwargs: dict,
    left_out: Collection[int] = (),
) -> list[str]:
    """Return the names of the leaves of arguments by their key paths; `args` lacks the arguments at the positions `left_out`.

    >>> argument_names(signature_of(lambda params, *xs: 0), ({"up": [1, 2]}, 3), {"scale": 4})
    ["params['up'][0]", "params['up'][1]", 'xs[0]', 'scale']
    """
    parameters = signature.parameters.values() if signature is not None else ()
    named = positional_names(signature) if signature is not None else []
    varargs_name = next((p.name for p in parameters if p.kind == p.VAR_POSITIONAL), "args")
    n = len(args) + len(left_out)
    absent = {k % n for k in left_out}
    positions = [i for i in range(n) if i not in absent]
    roots = [
        (named[i] if i < len(named) else f"{varargs_name}[{i - len(named)}]", x)
        for i, x in zip(positions, args)
    ]
    roots += [(k, kwargs[k]) for k in sorted(kwargs)]
    return [
        root + tree.keystr(path)
        for root, x in roots
        for path, _ in tree.tree_flatten_with_path(x)[0]
    ]


def aval_of(x) -> ShapedArray:
    """Return the type of a value, or of any object with a shape and a dtype."""
    if hasattr(x, "shape") and hasattr(x, "dtype") and not hasattr(type(x), "aval"):
        return ShapedArray(
            tuple(x.shape), dtypes.canonicalize_dtype(x.dtype), getattr(x, "weak_type", False)
        )
    return typeof(x)
