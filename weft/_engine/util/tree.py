"""Pytrees: nested containers, processed as a list of leaves and a structure.

In:  nested tuples, lists, dicts, namedtuples, None and registered types; all other values are leaves.
Out: leaves, structures (`PyTreeDef`), mapped and reduced trees, key paths, and messages about differences of trees.
Invariants: the children of a dict are in the order of its sorted keys, the children of an `OrderedDict` in its own order; None
is a node without children.
Next: `treedef` has the structure class and the registry, `keypath` the keys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from weft._engine.util.trees.code import are_plain_names, compile_constructor
from weft._engine.util.trees.differences import describe_difference, prefix_errors
from weft._engine.util.trees.keypath import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyEntry,
    KeyPath,
    SequenceKey,
    keystr,
)
from weft._engine.util.trees.treedef import (
    IsLeaf,
    NodeType,
    PyTreeDef,
    flatten,
    flatten_again,
    flatten_with_path,
    is_standard,
    node_type,
    register,
    remember,
)

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "KeyEntry", "KeyPath", "Partial", "PyTreeDef", "SequenceKey",
    "all_leaves", "broadcast_prefix", "build_tree", "default_registry", "describe_difference", "flatten_one_level",
    "flatten_one_level_with_keys", "is_tree_node", "keystr", "prefix_errors", "register_dataclass",
    "register_pytree_node", "register_pytree_node_class", "register_pytree_with_keys",
    "register_pytree_with_keys_class", "register_static", "static", "tree_all", "tree_broadcast", "tree_flatten",
    "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_with_path", "tree_reduce",
    "tree_reduce_associative", "tree_structure", "tree_transpose", "tree_unflatten", "treedef_children",
    "treedef_is_leaf", "treedef_tuple",
]  # fmt: skip

T = TypeVar("T")
Typ = TypeVar("Typ", bound=type)

tree_flatten = flatten
tree_flatten_with_path = flatten_with_path


class _Unset:
    def __repr__(self) -> str:
        return "<no value given>"


_UNSET = _Unset()


# ---- flattening and rebuilding


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """Return the leaves of a tree, left to right.

    >>> tree_leaves({'b': 1, 'a': (2, None, [3])})
    [2, 3, 1]
    """
    return flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> PyTreeDef:
    """Return the structure of a tree. Values for which `is_leaf(x)` is true are leaves.

    Raises ValueError for dicts whose keys cannot be sorted.

    >>> tree_structure({'b': 1, 'a': (2, None)})
    PyTreeDef({'a': (*, None), 'b': *})
    """
    return flatten(tree, is_leaf)[1]


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """Rebuild a tree from its structure and its leaves in order.

    >>> tree_unflatten(tree_structure((0, [0])), [1, 2])
    (1, [2])
    """
    return treedef.unflatten(leaves)


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """Return (key path, leaf) for each leaf.

    >>> [(keystr(path), leaf) for path, leaf in tree_leaves_with_path({'w': [1, 2]})]
    [("['w'][0]", 1), ("['w'][1]", 2)]
    """
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def build_tree(treedef: PyTreeDef, xs: Any) -> Any:
    """Rebuild a tree from nested iterables that have the arities of `treedef`."""
    return treedef.from_iterable_tree(xs)


# ---- over all leaves


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Apply `f` to each leaf of `tree` and the values at the same position in each tree of `rest`.

    The structure of `tree` must be a prefix of each tree of `rest`, which may have subtrees at its leaves.
    Raises ValueError if the structures differ.

    >>> tree_map(lambda x, y: (x, y), {'a': 1, 'b': 2}, {'a': 10, 'b': (20, 30)})
    {'a': (1, 10), 'b': (2, (20, 30))}
    """
    leaves, treedef = flatten_again(tree) if is_leaf is None else flatten(tree, is_leaf)
    if not rest:
        mapped = treedef.unflatten([*map(f, leaves)])
    else:
        columns = _columns("tree_map", tree, treedef, rest, is_leaf)
        mapped = treedef.unflatten([*map(f, leaves, *columns)])  # columns are as long as leaves
    if is_leaf is None:
        remember(tree, treedef)
    return mapped


def tree_map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Like `tree_map`, with `f(path, leaf, *rest_leaves)`.

    >>> tree_map_with_path(lambda path, x: keystr(path) + f' is {x}', {'a': 1})
    {'a': "['a'] is 1"}
    """
    pairs, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = _columns(
        "tree_map_with_path", tree, treedef, rest, None if is_leaf_takes_path else is_leaf
    )
    return treedef.unflatten(
        [f(path, x, *xs) for (path, x), *xs in zip(pairs, *columns, strict=True)]
    )


def _columns(
    api: str, tree: Any, treedef: PyTreeDef, rest: tuple[Any, ...], is_leaf: IsLeaf | None
) -> list[list[Any]]:
    columns = []
    for position, other in enumerate(rest, 1):
        leaves_of_other = treedef.match(other)
        if leaves_of_other is not None:
            columns.append(leaves_of_other)
            continue
        try:
            if type(other) is type(tree) and not treedef.is_leaf and is_leaf is None:
                # otherwise deeper values may not be valid trees
                try:
                    leaves, other_def = flatten(other)
                except (
                    ValueError
                ):  # values below the leaves of the first tree need not be valid trees
                    leaves, other_def = [], None
                if other_def == treedef:
                    # the usual case, which is faster than walking both trees together
                    columns.append(leaves)
                    continue
            columns.append(treedef.flatten_up_to(other))
        except ValueError as error:
            where = "tree" if len(rest) == 1 else f"tree {position} of {len(rest)} after the first"
            names = {"prefix_name": "tree", "full_name": f"rest[{position - 1}]"}
            facts = prefix_errors(tree, other, is_leaf, **names) or f"  {error}"
            raise ValueError(
                f"{api}: pytree structure error: the other {where} does not fit the first.\n{facts}"
            ) from None
    return columns


def tree_all(tree: Any, *, is_leaf: IsLeaf | None = None) -> bool:
    """Return whether all leaves are true.

    >>> tree_all([True, {'a': 1}]), tree_all((True, [0])), tree_all(None)
    (True, False, True)
    """
    return all(tree_leaves(tree, is_leaf))


def tree_reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = _UNSET,
    is_leaf: IsLeaf | None = None,
) -> Any:
    """Fold the leaves from left to right.

    >>> tree_reduce(lambda total, x: total + x, [1, (2, 3)])
    6
    """
    leaves = tree_leaves(tree, is_leaf)
    return (
        functools.reduce(function, leaves)
        if initializer is _UNSET
        else functools.reduce(function, leaves, initializer)
    )


def tree_reduce_associative(
    operation: Callable[[Any, Any], Any],
    tree: Any,
    *,
    identity: Any = _UNSET,
    is_leaf: IsLeaf | None = None,
) -> Any:
    """Fold the leaves pairwise, in logarithmic depth, for an associative operation.

    >>> tree_reduce_associative(lambda x, y: f'({x}{y})', ['a', ['b', 'c'], 'd'])
    '((ab)(cd))'
    """
    level = tree_leaves(tree, is_leaf)
    if not level:
        if identity is _UNSET:
            raise TypeError("tree_reduce_associative: a tree without leaves requires `identity`")
        return identity
    while len(level) > 1:
        paired = [operation(x, y) for x, y in zip(level[::2], level[1::2], strict=False)]
        level = paired + level[len(paired) * 2 :]
    return level[0]


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf | None = None) -> bool:
    """Return whether all elements are leaves (None is a node).

    >>> all_leaves([1, 2]), all_leaves([1, (2,)]), all_leaves([None])
    (True, False, False)
    """
    if is_leaf is None:
        return all(node_type(type(x)) is None for x in iterable)
    return all(is_leaf(x) or node_type(type(x)) is None for x in iterable)


# ---- structures


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """Return the structures of the children of the root."""
    return treedef.children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Return whether a structure is a single node: a leaf, or a node without children.

    >>> treedef_is_leaf(tree_structure(1)), treedef_is_leaf(tree_structure([1]))
    (True, False)
    """
    if not isinstance(treedef, PyTreeDef):
        raise TypeError(
            f"treedef_is_leaf: `treedef` must be a PyTreeDef, got {type(treedef).__name__}."
        )
    return treedef.num_nodes == 1


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """Return the structure of a tuple of trees, from the structure of each.

    >>> treedef_tuple([tree_structure([1]), tree_structure(2)])
    PyTreeDef(([*], *))
    """
    return PyTreeDef.from_node_data_and_children((tuple, None), treedefs)


def tree_transpose(
    outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any
) -> Any:
    """Turn an outer tree of inner trees into an inner tree of outer trees.

    Nodes of registered types may have other children with the same number of leaves, as a cache that holds the leaves and the
    structure of a tree has.

    >>> tree_transpose(tree_structure([0, 0]), tree_structure((0, 0, 0)), [(1, 2, 3), (4, 5, 6)])
    ([1, 4], [2, 5], [3, 6])
    """
    leaves, treedef = flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = tree_structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    inner_size, outer_size = inner_treedef.num_leaves, outer_treedef.num_leaves
    if inner_size == 0 or outer_size == 0:
        raise ValueError("tree_transpose: outer and inner structures need at least one leaf each")
    expected = outer_treedef.compose(inner_treedef)
    if treedef != expected and not (
        treedef.num_leaves == expected.num_leaves and _fits(treedef, expected)
    ):
        raise TypeError(
            "tree_transpose: Mismatch: the tree is not an outer tree of inner trees as given.\n"
            f"    tree      {treedef}\n    expected  {expected}"
            f"{describe_difference(treedef, expected, 'tree', 'expected')}"
        )
    rows = [leaves[i : i + inner_size] for i in range(0, len(leaves), inner_size)]
    return inner_treedef.unflatten(
        [outer_treedef.unflatten(column) for column in zip(*rows, strict=True)]
    )


def _fits(treedef: PyTreeDef, expected: PyTreeDef) -> bool:
    """Return whether structures are equal, ignoring the children of nodes of registered types."""
    node, expected_node = treedef.node_data(), expected.node_data()
    if node is None or expected_node is None or node[0] is not expected_node[0]:
        return node is expected_node
    if not is_standard(node[0]):
        return treedef.num_leaves == expected.num_leaves
    parts, others = treedef.children(), expected.children()
    return node == expected_node and len(parts) == len(others) and all(map(_fits, parts, others))


# ---- prefixes


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """Repeat each leaf of `prefix_tree` for all leaves of `full_tree` below it; return them as a list.

    `is_leaf` applies to the prefix only: the result has an entry for each leaf of `full_tree`, flattened without `is_leaf`.

    >>> broadcast_prefix((1, 2), ('a', ['b', 'c']))
    [1, 2, 2]
    """
    leaves, treedef = flatten(prefix_tree, is_leaf)
    try:
        subtrees = treedef.flatten_up_to(full_tree)
    except ValueError as error:
        facts = prefix_errors(prefix_tree, full_tree, is_leaf)
        count = facts.count("\n  at ") + facts.startswith("  at ")
        rule = "pytree structure error: a tree does not fit its prefix."
        raise ValueError(
            f"{rule} Mismatch details ({count} found):\n{facts}" if facts else f"{rule}\n  {error}"
        ) from None
    result: list[Any] = []
    for leaf, subtree in zip(leaves, subtrees, strict=True):
        result.extend([leaf] * flatten(subtree)[1].num_leaves)
    return result


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Return a tree with the structure of `full_tree`: each leaf of `prefix_tree`, repeated for all leaves below it.

    >>> tree_broadcast({'a': 1, 'b': 2}, {'a': [0, 0], 'b': 0})
    {'a': [1, 1], 'b': 2}
    """
    leaves = broadcast_prefix(prefix_tree, full_tree, is_leaf)
    return tree_structure(full_tree).unflatten(leaves)


# ---- registration


def register_pytree_node(
    nodetype: type[T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Hashable]],
    unflatten_func: Callable[[Any, Iterable[Any]], T],
    flatten_with_keys_func: Callable[[T], tuple[Iterable[tuple[Any, Any]], Hashable]] | None = None,
) -> None:
    """Register `nodetype` as a pytree node: `flatten_func(x) -> (children, aux)`, `unflatten_func(aux, children) -> x`.

    >>> class Pair:
    ...     def __init__(self, x, y): self.x, self.y = x, y
    >>> register_pytree_node(Pair, lambda p: ((p.x, p.y), None), lambda aux, children: Pair(*children))
    >>> tree_leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """
    register(
        NodeType(nodetype, flatten_func, unflatten_func, flatten_with_keys=flatten_with_keys_func)
    )


def register_pytree_node_class(cls: Typ) -> Typ:
    """Register the decorated class as a pytree node with its methods `tree_flatten()` and `tree_unflatten(aux, children)`."""
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)
    return cls


def register_pytree_with_keys(
    nodetype: type[T],
    flatten_with_keys: Callable[[T], tuple[Iterable[tuple[Any, Any]], Hashable]],
    unflatten_func: Callable[[Any, Iterable[Any]], T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Hashable]] | None = None,
) -> None:
    """Register `nodetype` as a pytree node whose children have keys for key paths."""

    def flatten_without_keys(value: T) -> tuple[Iterable[Any], Hashable]:
        pairs, aux = flatten_with_keys(value)
        return [child for _, child in pairs], aux

    register_pytree_node(
        nodetype, flatten_func or flatten_without_keys, unflatten_func, flatten_with_keys
    )


def register_pytree_with_keys_class(cls: Typ) -> Typ:
    """Register the decorated class as a pytree node with its methods `tree_flatten_with_keys` and `tree_unflatten` (and `tree_flatten`)."""
    flatten_func = (lambda x: x.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    register_pytree_with_keys(
        cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten, flatten_func
    )
    return cls


def register_static(cls: Typ) -> Typ:
    """Register the decorated class as a pytree node without leaves; the value itself is static data, compared with `==` and hashed.

    >>> @register_static
    ... class Mode(str): pass
    >>> tree_leaves([Mode('train'), 1])
    [1]
    """
    register_pytree_node(
        cls, lambda value: ((), value), lambda value, children: value, lambda value: ((), value)
    )
    return cls


def static(**kwargs: Any) -> Any:
    """Declare a dataclass field that is static data for `register_dataclass`; takes the arguments of `dataclasses.field`.

    An entry "static" in `metadata` is not changed.
    """
    metadata = {"static": True, **(kwargs.pop("metadata", None) or {})}
    import dataclasses

    return dataclasses.field(metadata=metadata, **kwargs)


def register_dataclass(
    nodetype: Typ,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Typ:
    """Register a dataclass as a pytree node: `data_fields` are children, `meta_fields` static data.

    Without the lists, all fields are children except fields with `metadata={'static': True}` (see `static`).

    >>> import dataclasses
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     w: float
    ...     name: str = static()
    >>> tree_map(lambda x: 2 * x, Layer(3.0, 'first'))
    Layer(w=6.0, name='first')
    """
    data, meta = _dataclass_fields(nodetype, data_fields, meta_fields, drop_fields)
    get_data, get_meta = _getter(data), _getter(meta)
    data_keys = [GetAttrKey(name) for name in data]
    are_plain = are_plain_names((*data, *meta))
    constructor: list[Callable[[Any, Sequence[Any]], Any]] = []

    def unflatten(aux: tuple[Any, ...], children: Sequence[Any]) -> Any:
        if len(children) != len(data):
            raise ValueError(
                f"register_dataclass: {nodetype.__name__} has {len(data)} children, got {len(children)}."
            )
        if not are_plain:
            return nodetype(**dict(zip((*data, *meta), (*children, *aux))))
        if not constructor:  # on first use, because programs use few of the registered types
            constructor.append(compile_constructor(nodetype, data, meta))
        return constructor[0](aux, children)

    register(
        NodeType(
            nodetype,
            lambda x: (get_data(x), get_meta(x)),
            unflatten,
            keys=lambda aux, n: data_keys,
            fields=(data, meta) if are_plain else None,
        )
    )
    return nodetype


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda x: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda x: (get(x),)


def _dataclass_fields(
    nodetype: type, data: Sequence[str] | None, meta: Sequence[str] | None, drop: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    api = f"register_dataclass({nodetype.__name__})"
    if (data is None) != (meta is None):
        raise TypeError(
            f"{api}: data_fields and meta_fields must both be specified, or neither. Got data_fields={data} and "
            f"meta_fields={meta}."
        )
    import dataclasses

    if not dataclasses.is_dataclass(nodetype):
        if data is None or meta is None:
            raise TypeError(
                f"{api}: data_fields and meta_fields are required when the class is not a dataclass"
            )
        return tuple(data), tuple(meta)
    fields = {f.name: f for f in dataclasses.fields(nodetype) if f.init and f.name not in drop}
    if data is None or meta is None:
        static = [name for name, f in fields.items() if f.metadata.get("static", False)]
        return tuple(name for name in fields if name not in static), tuple(static)
    _check_fields(api, set(fields), data, meta)
    return tuple(data), tuple(meta)


def _check_fields(api: str, names: set[str], data: Sequence[str], meta: Sequence[str]) -> None:
    """Raise ValueError unless the user's lists contain exactly the fields of the dataclass."""
    listed = {*data, *meta}
    if len(listed) != len(data) + len(meta):
        twice = {name for name in listed if [*data, *meta].count(name) > 1}
        raise ValueError(
            f"{api}: data_fields and meta_fields must not overlap, nor name a field twice. Overlapping fields: {twice!r}."
        )
    if missing := sorted(names - listed):
        raise ValueError(
            f"{api}: data_fields and meta_fields must include all dataclass fields that drop_fields leaves. Missing fields: "
            f"{set(missing)!r}."
        )
    if unexpected := sorted(listed - names):
        raise ValueError(
            f"{api}: data_fields and meta_fields must include all dataclass fields with init=True that drop_fields leaves, "
            f"and no others. Unexpected fields: {set(unexpected)!r}."
        )


# ---- one level at a time


def is_tree_node(typ: type) -> bool:
    """Return whether values of this type are nodes.

    >>> is_tree_node(dict), is_tree_node(int)
    (True, False)
    """
    return node_type(typ) is not None


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Hashable]:
    """Return (children, static data) of the root node. The children are the result of its type's flatten function: a list for a list.

    Raises ValueError for a leaf.

    >>> flatten_one_level({'a': (1, 2)})
    (((1, 2),), ('a',))
    >>> flatten_one_level([1, 2])
    ([1, 2], None)
    """
    kind, node = type(tree), _root_node(tree)
    if kind is list:
        return list(tree), None
    children, aux = node.flatten_checked(tree)
    if kind in (tuple, dict) or not is_standard(kind):
        return children, aux
    return (
        (list(children), kind)
        if node.is_sequence
        else (list(children) if children else children, aux)
    )


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Hashable]:
    """Return ((key, child) pairs, static data) of the root node. Raises ValueError for a leaf."""
    keys, children, _ = _root_node(tree).children_with_keys(tree)
    return tuple(zip(keys, children, strict=True)), flatten_one_level(tree)[1]


def _root_node(tree: Any) -> NodeType:
    node = node_type(type(tree))
    if node is None:
        raise ValueError(
            f"can't tree-flatten type: {type(tree)}, whose values are leaves without children."
        )
    return node


class PyTreeRegistry:
    """The registry of node types; there is only one."""

    flatten = staticmethod(flatten)
    flatten_with_path = staticmethod(flatten_with_path)
    register_node = staticmethod(register_pytree_node)
    is_node = staticmethod(is_tree_node)

    def flatten_one_level(self, tree: Any) -> tuple[Iterable[Any], Hashable] | None:
        """Return the function `flatten_one_level` of the tree, or None for a leaf."""
        return flatten_one_level(tree) if is_tree_node(type(tree)) else None

    def flatten_one_level_with_keys(
        self, tree: Any
    ) -> tuple[Iterable[tuple[Any, Any]], Hashable] | None:
        """Return the function `flatten_one_level_with_keys` of the tree, or None for a leaf."""
        return flatten_one_level_with_keys(tree) if is_tree_node(type(tree)) else None


default_registry = PyTreeRegistry()


# ---- partial application


class _OpaqueCallable:
    """A wrapper of a `functools.partial` that keeps `Partial` from merging its bound arguments."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "function"), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, _OpaqueCallable) else other)

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return f"_Opaque({self.function!r})"


class Partial(functools.partial):
    """A `functools.partial` that is a pytree: its bound arguments are children, its function static data.

    >>> add_one = Partial(lambda x, y: x + y, 1)
    >>> tree_leaves(add_one), add_one(2)
    ([1], 3)
    """

    __module__ = "weft.tree_util"

    def __new__(cls, func: Callable[..., Any], /, *args: Any, **kw: Any) -> Partial:
        # functools.partial merges a partial of a partial, but the inner arguments must stay static here.
        inner = _OpaqueCallable(func) if isinstance(func, functools.partial) else func
        return super().__new__(cls, inner, *args, **kw)


def register_partial(kind: type[Partial]) -> None:
    """Register a subclass of `Partial` as a pytree node whose children are its bound arguments."""
    register(
        NodeType(
            kind,
            lambda partial: ((partial.args, partial.keywords), partial.func),
            lambda func, children: kind(func, *children[0], **children[1]),
            keys=lambda func, n: [GetAttrKey("args"), GetAttrKey("keywords")],
        )
    )


register_partial(Partial)
