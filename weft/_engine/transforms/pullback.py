"""`Pullback`: the function that `vjp` returns, from cotangents of results to cotangents of arguments; it is a pytree of its residuals.

In:   the residuals (values that the backward pass needs), and which of them are leaves of the arguments of the function.
Out:  a callable. Its `args_res` are the residuals that are arguments, which users may replace; `opaque_residuals` are the residuals
      that the forward pass computed. Arguments that `saveable_args` excludes are not stored and must be restored before the call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft._engine.core.stage import stage
from weft._engine.core.trace import eval_trace, set_trace, typeof
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.util import tree
from weft._engine.util.dtypes import float0
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft._engine.util.trees.narrowing import is_tuple, is_tuple_or_list


@tree.register_static
@record
class NotNeeded:
    """The placeholder in `args_res` for an argument that the backward pass does not need."""


@tree.register_static
@record
class NotSaveable:
    """The placeholder in `args_res` for an argument that `saveable_args` excludes; it must be restored before the call."""


_PLACEHOLDER_TYPES = (NotNeeded, NotSaveable)


#: the function, the tree of its arguments, and per residual its index among the leaves of the arguments (None: computed)
Static = tuple[Callable[..., Any], Any, tuple[int | None, ...]]


class Pullback:
    """The function that `vjp` returns, from cotangents of results to cotangents of arguments; a pytree of its residuals."""

    def __init__(
        self,
        function: Callable[..., Any],
        in_tree: Any,
        origins: Sequence[int | None],
        residuals: Sequence[Any],
    ):
        """Create the pullback that calls `function(residuals, ct, accumulators)`.

        Residual k is leaf `origins[k]` of the arguments, or was computed if that is None. `function.cotangents` is the tree of the
        types of the results, whose cotangents the function takes.
        """
        self.static = (function, in_tree, tuple(origins))
        self._residuals = residuals
        self._args_res: list[Any] | None = None

    def __call__(self, *cts: Any, accumulators: tuple[Any, ...] | None = None) -> Any:
        if len(cts) != 1:
            name = self.static[0].__name__
            raise TypeError(
                f"vjp: the pullback of vjp applied to {name} was called with {quantity(len(cts), 'argument')}. It takes one: a "
                "cotangent with "
                f"the structure of the result of {name}."
            )
        return self.static[0](self._checked_residuals(), cts[0], accumulators)

    def __repr__(self) -> str:
        function: Any = self.static[0]
        return f"Pullback({function.__name__}: {function.cotangents} -> {self.static[1]})"

    def with_refs(self, *accumulators: Any) -> Callable[..., Any]:
        """Return the function that adds cotangents of arguments to references instead of returning them.

        `accumulators` has one entry per leaf of the arguments: a reference with the cotangent's shape and dtype, `ad.GradValue()` to
        return the cotangent, or `ad.DontWant()` to omit it. Raise ValueError for another structure, shape or dtype.

        >>> total = weft.new_ref(0.0)
        >>> weft.vjp(wnp.sin, 0.0)[1].with_refs(total)(3.0)
        (GradRef(),)
        >>> total
        Ref(3., dtype=float32)
        """
        return functools.partial(self, accumulators=accumulators)

    @property
    def args_res(self) -> list[Any]:
        """The arguments that the backward pass needs: a list with one entry per argument, a value or nested tuples of values.

        `NotNeeded()` replaces values that are not needed, and `NotSaveable()` values that were not saved. The list and its entries
        may be assigned.

        >>> weft.vjp(wnp.multiply, wnp.ones(1), wnp.zeros(1))[1].args_res
        [Array([1.], dtype=float32), Array([0.], dtype=float32)]
        """
        if self._args_res is None:
            _, in_tree, origins = self.static
            leaves: list[Any] = [NotNeeded()] * in_tree.num_leaves
            for k, x in zip(origins, self._residuals):
                if k is not None:
                    leaves[k] = x
            remaining = iter(leaves)
            self._args_res = [
                _as_tuples(child, remaining) for child in tree.treedef_children(in_tree)
            ]
        return self._args_res

    @args_res.setter
    def args_res(self, values: Sequence[Any]) -> None:
        self._args_res = list(values)

    @property
    def opaque_residuals(self) -> list[Any]:
        """The residuals that the forward pass computed."""
        return [x for k, x in zip(self.static[2], self._residuals) if k is None]

    @property
    def structured_residuals(self) -> dict[Any, Any]:
        """Named residuals of rules: always empty, because weft has no such rules."""
        return {}

    @property
    def jaxpr(self) -> Jaxpr:
        """The program of the backward pass, from the residuals and the cotangents of the results to the cotangents of the arguments.

        >>> print(weft.vjp(lambda x: 2 * x, 1.0)[1].jaxpr)
        { lambda ; a:f32[]. let b:f32[] = mul 2.0:f32[] a in (b,) }
        """
        function: Any = self.static[0]
        avals, structure = tree.tree_flatten(function.cotangents)
        residuals = self._checked_residuals()

        def backward(*values: Any) -> list[Any]:
            cotangents = function(
                values[: len(residuals)],
                tree.tree_unflatten(structure, values[len(residuals) :]),
                None,
            )
            return [ct for ct in tree.tree_leaves(cotangents) if typeof(ct).dtype != float0]

        with set_trace(eval_trace):
            return stage(
                backward,
                [*map(typeof, residuals), *[aval.to_ct_aval() for aval in avals]],
                function.__name__,
            )

    def replace(
        self,
        *,
        args_res: Sequence[Any] | None = None,
        opaque_residuals: Sequence[Any] | None = None,
    ) -> Pullback:
        """Return a copy of the pullback with other residuals."""
        computed = iter(self.opaque_residuals if opaque_residuals is None else opaque_residuals)
        new = Pullback(
            *self.static,
            [
                next(computed) if k is None else x
                for k, x in zip(self.static[2], self.current_residuals())
            ],
        )
        if args_res is not None:
            new.args_res = args_res
        return new

    def current_residuals(self) -> Sequence[Any]:
        """Return the residuals with the current entries of `args_res`."""
        if self._args_res is None:
            return self._residuals
        _, in_tree, origins = self.static
        children = tree.treedef_children(in_tree)
        if len(self._args_res) != len(children):
            raise ValueError(
                f"vjp: args_res has {quantity(len(self._args_res), 'entry')}, but the function has {quantity(len(children), 'argument')}."
            )
        leaves = [
            x for child, value in zip(children, self._args_res) for x in _leaves_of(child, value)
        ]
        return [x if k is None else leaves[k] for k, x in zip(origins, self._residuals)]

    def _checked_residuals(self) -> Sequence[Any]:
        residuals = self.current_residuals()
        absent = [
            k
            for k, x in zip(self.static[2], residuals)
            if k is not None and (x is None or isinstance(x, _PLACEHOLDER_TYPES))
        ]
        if absent:
            paths = tree.tree_flatten_with_path(
                tree.tree_unflatten(self.static[1], range(self.static[1].num_leaves))
            )[0]
            names = ", ".join(f"args{tree.keystr(paths[k][0])}" for k in dict.fromkeys(absent))
            raise ValueError(
                f"vjp: the backward pass needs arguments that are not-saveable or were removed: {names}. Restore them "
                "before the call, as in f_vjp.args_res[0] = value, or f_vjp = f_vjp.replace(args_res=[...])."
            )
        return residuals


def _flatten(pullback: Pullback) -> tuple[tuple[Any, ...], Static]:
    return tuple(pullback.current_residuals()), pullback.static


def _unflatten(static: Static, residuals: Iterable[Any]) -> Pullback:
    return Pullback(*static, list(residuals))


tree.register_pytree_node(Pullback, _flatten, _unflatten)


def _as_tuples(structure: Any, leaves: Iterator[Any]) -> Any:
    """Return the next leaves in nested tuples, which follow the children of `structure`."""
    if tree.treedef_is_leaf(structure):
        return next(leaves)
    return tuple([_as_tuples(child, leaves) for child in tree.treedef_children(structure)])


def _leaves_of(structure: Any, value: Any) -> list[Any]:
    """Return the leaves of `value`, a tree with the given structure or nested tuples that follow it.

    `NotNeeded`, `NotSaveable` or None may replace a subtree; they are repeated for its leaves.
    """
    if tree.treedef_is_leaf(structure):
        return [value]
    if value is None or isinstance(value, _PLACEHOLDER_TYPES):
        return [value] * structure.num_leaves
    leaves, actual = tree.tree_flatten(value, is_leaf=lambda x: isinstance(x, _PLACEHOLDER_TYPES))
    if actual == structure:
        return leaves
    children = tree.treedef_children(structure)
    if not is_tuple_or_list(value) or len(value) != len(children):
        raise ValueError(
            f"vjp: an entry of args_res must have the structure of its argument, {structure}, got {actual}."
            f"{tree.describe_difference(structure, actual, 'argument', 'entry')}"
        )
    return [x for child, part in zip(children, value) for x in _leaves_of(child, part)]


def saveable_leaves(saveable: Any, structure: Any, path: str = "saveable_args") -> list[bool]:
    """Return for each leaf of a tree whether it may be saved. `saveable` is a bool, or nested tuples of bools that follow `structure`.

    >>> saveable_leaves((True, False), tree.tree_structure((1, {"a": 2, "b": 3})))
    [True, False, False]
    """
    if isinstance(saveable, bool):
        return [saveable] * structure.num_leaves
    if not is_tuple(saveable):
        raise ValueError(
            f"vjp: saveable_args must be a tuple-tree of bools; {path} is {saveable!r}."
        )
    if tree.treedef_is_leaf(structure):
        raise ValueError(
            f"vjp: {path} is a tuple, but the arguments have a leaf there. Pass a bool."
        )
    children = tree.treedef_children(structure)
    if len(children) != len(saveable):
        raise ValueError(
            f"vjp: the number of children differs: {path} has {len(saveable)}, the arguments have {len(children)} there."
        )
    return [
        x
        for i, (s, child) in enumerate(zip(saveable, children))
        for x in saveable_leaves(s, child, f"{path}[{i}]")
    ]
