"""Adapters from functions of pytrees to functions of leaves, for authors of transformations: the names of `jax.api_util`.

In:   wrapped functions (`weft.extend.linear_util`), tree structures, argument numbers.
Out:  wrapped functions of flat values, and functions that return the structure of their results after a run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from weft._engine.api.flat import argument_names, aval_of, signature_of
from weft._engine.ir.jaxpr import DebugInfo
from weft._engine.ir.types import ShapedArray
from weft._engine.util import tree
from weft._engine.util.source import function_name
from weft.extend.linear_util import WrappedFun, transformation2, transformation_with_aux2


def safe_map(f: Callable, *sequences: Sequence) -> list:
    """Return `list(map(f, *sequences))`. Raise ValueError if the sequences differ in length.

    >>> safe_map(max, [1, 5], [3, 4])
    [3, 5]
    """
    lists = [list(s) for s in sequences]
    for i, other in enumerate(lists[1:], 2):
        if len(other) != len(lists[0]):
            how = "longer" if len(other) > len(lists[0]) else "shorter"
            raise ValueError(
                f"safe_map() argument {i} is {how} than argument 1: {len(other)} and {len(lists[0])}."
            )
    return [f(*xs) for xs in zip(*lists)]


def flatten_fun(
    fun: WrappedFun, in_tree: Any, **options: Any
) -> tuple[WrappedFun, Callable[[], Any]]:
    """Return a function of the leaves of `(args, kwargs)`, with structure `in_tree`, that returns the leaves of
    `fun(*args, **kwargs)`; and a function that returns the structure of the results."""
    return transformation_with_aux2(_flatten, fun, in_tree, True, **options)


def flatten_fun_nokwargs(
    fun: WrappedFun, in_tree: Any, **options: Any
) -> tuple[WrappedFun, Callable[[], Any]]:
    """Adapt `fun(*args)` like `flatten_fun`; `in_tree` is the structure of `args`.

    >>> from weft.extend.linear_util import wrap_init
    >>> flat, out_tree = flatten_fun_nokwargs(wrap_init(lambda x, y: {"sum": x + y}), weft.tree.structure((1, 2)))
    >>> flat.call_wrapped(1, 2), out_tree()
    ([3], PyTreeDef({'sum': *}))
    """
    return transformation_with_aux2(_flatten, fun, in_tree, False, **options)


def _flatten(f: Callable, store: Any, in_tree: Any, has_kwargs: bool, *leaves: Any) -> list:
    args = tree.tree_unflatten(in_tree, leaves)
    args, kwargs = args if has_kwargs else (args, {})
    out, structure = tree.tree_flatten(f(*args, **kwargs))
    store.store(structure)
    return out


def argnums_partial(
    f: WrappedFun,
    dyn_argnums: int | Sequence[int],
    args: Sequence,
    require_static_args_hashable: bool = True,
) -> tuple[WrappedFun, tuple]:
    """Return `f` as a function of the arguments at `dyn_argnums` with the others fixed, and the values of these arguments.

    Raises ValueError if a fixed argument is not hashable.

    >>> from weft.extend.linear_util import wrap_init
    >>> less, args = argnums_partial(wrap_init(lambda x, y: x + y), 0, (1, 2))
    >>> args, less.call_wrapped(5)
    ((1,), 7)
    """
    numbers = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    numbers = tuple(i % len(args) for i in numbers)
    fixed = tuple(
        _HashableArgument(x, require_static_args_hashable)
        for i, x in enumerate(args)
        if i not in numbers
    )
    return transformation2(_with_fixed, f, numbers, fixed, len(args)), tuple(
        args[i] for i in numbers
    )


class _HashableArgument:
    """A fixed argument; hashable values are compared by value."""

    __slots__ = ("value",)

    def __init__(self, value: Hashable, hashable: bool):
        self.value = value
        if hashable:
            try:
                hash(value)
            except TypeError:
                raise ValueError(
                    "argnums_partial: an argument that is fixed must have a hash, got "
                    f"{value!r} of type {type(value)}."
                ) from None

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            return id(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _HashableArgument):
            return False
        return self.value is other.value or (
            type(self.value) is type(other.value) and self.value == other.value
        )


def _with_fixed(
    f: Callable, numbers: tuple, fixed: tuple, count: int, *args: Any, **kwargs: Any
) -> Any:
    dynamic_args, others = dict(zip(numbers, args)), iter(fixed)
    return f(
        *[dynamic_args[i] if i in dynamic_args else next(others).value for i in range(count)],
        **kwargs,
    )


def flatten_axes(
    name: str, treedef: Any, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False
) -> list:
    """Return the leaves of `axis_tree`, a prefix of a tree of structure `treedef`, repeated for the leaves below; None is a leaf.

    Raises ValueError, with `name` in its message, if `axis_tree` is not a prefix.

    >>> flatten_axes("in_axes", weft.tree.structure((1, {"a": 2, "b": 3})), (0, None))
    [0, None, None]
    """
    whole = tree.tree_unflatten(treedef, [object()] * treedef.num_leaves)
    try:
        return tree.broadcast_prefix(axis_tree, whole, is_leaf=lambda x: x is None)
    except ValueError as error:
        raise ValueError(
            f"{name} specification must be a tree prefix of the corresponding value: {error}"
        ) from None


def donation_vector(
    donate_argnums: Sequence[int], donate_argnames: Sequence[str], in_tree: Any, kws: bool = True
) -> tuple[bool, ...]:
    """Return a tuple with True for each donated leaf of `(args, kwargs)`.

    >>> donation_vector((0,), (), weft.tree.structure(((1, 2), {})))
    (True, False)
    """
    args, kwargs = in_tree.children() if kws else (in_tree, None)
    flags = [
        i in donate_argnums
        for i, child in enumerate(args.children())
        for _ in range(child.num_leaves)
    ]
    if kwargs is not None:
        names = tree.tree_unflatten(kwargs, range(kwargs.num_leaves))
        flags += [name in donate_argnames for name in names for _ in tree.tree_leaves(names[name])]
    return tuple(flags)


def rebase_donate_argnums(
    donate_argnums: Sequence[int], static_argnums: Sequence[int]
) -> tuple[int, ...]:
    """Return the numbers of the donated arguments after static arguments are removed.

    >>> rebase_donate_argnums((1, 2), (0,))
    (0, 1)
    """
    return tuple(
        d - sum(s < d for s in static_argnums)
        for d in sorted(donate_argnums)
        if d not in static_argnums
    )


def shaped_abstractify(x: Any) -> ShapedArray:
    """Return the type of a value, or of any object with a shape and a dtype. Raise TypeError if `x` is not array-like.

    >>> shaped_abstractify(3.0)
    ShapedArray(float32[], weak_type=True)
    """
    return aval_of(x)


def debug_info(
    traced_for: str,
    fun: Callable,
    args: Sequence,
    kwargs: dict,
    *,
    static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (),
    result_paths_thunk: Any = None,
    sourceinfo: str | None = None,
    signature: inspect.Signature | None = None,
) -> DebugInfo:
    """Return the debug info of a program traced from `fun(*args, **kwargs)`: its source line and argument names.

    >>> debug_info("jit", lambda x, y: x, (1, (2, 3)), {}).arg_names
    ('x', 'y[0]', 'y[1]')
    """
    code = getattr(fun, "__code__", None)
    where = sourceinfo or (
        f"{function_name(fun)} at {code.co_filename}:{code.co_firstlineno}"
        if code is not None
        else function_name(fun)
    )
    static = {i % len(args) for i in static_argnums} if args else set()
    dynamic = [x for i, x in enumerate(args) if i not in static]
    named = {k: v for k, v in kwargs.items() if k not in static_argnames}
    return DebugInfo(
        traced_for,
        where,
        tuple(argument_names(signature or signature_of(fun), dynamic, named, static)),
        result_paths_thunk,
    )
