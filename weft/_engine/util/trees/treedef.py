"""Pytree structures: flattening of trees into leaves, and rebuilding from leaves.

In:  any Python value; containers of registered types are nodes, all other values are leaves.
Out: a list of leaves and a `PyTreeDef` that can rebuild the value from them.
Law: `unflatten(treedef, leaves)` equals the value that was flattened, for every registered type.

A structure is a plain nested tuple, its *spec*: `None` for a leaf and `(type, aux, child specs)` for a node. The interpreter
itself builds, compares and hashes plain tuples, which makes flattening and cache lookups fast.
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft._engine.util.dispatch_state import on_clear_caches
from weft._engine.util.messages.notebook import NotebookDisplay
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.trees.code import compile_builder, compile_matcher
from weft._engine.util.trees.node_types import (
    IsLeaf,
    NodeType as NodeType,
    Spec,
    flatten_until,
    flatteners,
    index_keys,
    is_namedtuple,
    is_standard as is_standard,
    node_type as node_type,
    node_types,
    register as register,
    unseen_flattener,
)


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], PyTreeDef]:
    """Flatten a tree into its leaves, left to right, and its structure.

    Values for which `is_leaf(x)` is true are leaves. Raises ValueError for dicts whose keys cannot be sorted.

    >>> flatten({'b': 1, 'a': (2, None)})
    ([2, 1], PyTreeDef({'a': (*, None), 'b': *}))
    """
    if (is_leaf is not None and is_leaf(tree)) or (node := node_types[type(tree)]) is None:
        return [tree], PyTreeDef(None, 1)
    leaves: list[Any] = []
    if is_leaf is not None:
        spec = flatten_until(node, tree, leaves, is_leaf)
    else:
        rule: Any = flatteners.get(type(tree)) or unseen_flattener(type(tree))
        spec = rule(tree, leaves)
    return leaves, PyTreeDef(spec, len(leaves))


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[tuple[Any, ...], Any]], PyTreeDef]:
    """Like `flatten`, with the key path of each leaf."""
    if (
        is_leaf is None
        and (code := _last_codes.get(type(tree))) is not None
        and (paths := code.paths()) is not None
    ):
        leaves = code.leaves(tree)
        if leaves is not None:
            return [*zip(paths, leaves)], code.treedef
    pairs: list[tuple[tuple[Any, ...], Any]] = []
    types = node_types

    def visit(value: Any, path: tuple[Any, ...]) -> Spec:
        stop = is_leaf is not None and (
            is_leaf(path, value) if is_leaf_takes_path else is_leaf(value)
        )
        if stop or (node := types[type(value)]) is None:
            pairs.append((path, value))
            return None
        keys, children, aux = node.children_with_keys(value)
        if is_leaf is not None:
            return (
                node.type,
                aux,
                tuple([visit(x, (*path, key)) for key, x in zip(keys, children, strict=True)]),
            )
        specs: list[Spec] = []
        for key, x in zip(keys, children, strict=True):
            if types[type(x)] is None:
                pairs.append(((*path, key), x))
                specs.append(None)
            else:
                specs.append(visit(x, (*path, key)))
        return node.type, aux, tuple(specs)

    treedef = PyTreeDef(visit(tree, ()), len(pairs))
    if is_leaf is None and treedef.spec is not None and _code_of(treedef) is not None:
        remember(tree, treedef)
    return pairs, treedef


def _build(spec: Spec, leaves: Iterator[Any]) -> Any:
    type_, aux, children = spec
    if type_ is dict:
        built = {}
        for key, child in zip(aux, children):
            built[key] = next(leaves) if child is None else _build(child, leaves)
        return built
    values: list[Any] = []
    add = values.append
    for child in children:
        add(next(leaves) if child is None else _build(child, leaves))
    if type_ is tuple:
        return tuple(values)
    if type_ is list:
        return values
    return node_types[type_].unflatten(aux, tuple(values))


def _is_builtin(spec: Spec) -> bool:
    return spec is None or (
        spec[0] in (tuple, list, dict, type(None)) and all(map(_is_builtin, spec[2]))
    )


def _count_nodes(spec: Spec) -> int:
    return (
        1
        if spec is None
        else 1 + sum([1 if child is None else _count_nodes(child) for child in spec[2]])
    )


def _count_leaves(spec: Spec) -> int:
    return (
        1
        if spec is None
        else sum([1 if child is None else _count_leaves(child) for child in spec[2]])
    )


def _text(spec: Spec) -> str:
    if spec is None:
        return "*"
    type_, aux, children = spec
    texts = [_text(child) for child in children]
    node = node_types[type_]
    if node is not None and node.label is not None:
        return node.label(aux, texts)
    return f"CustomNode({type_.__name__}[{aux}], [{', '.join(texts)}])"


class PyTreeDef(NotebookDisplay):
    """The structure of a pytree: its nodes, their types and static data, without the leaves.

    Two structures are equal when types, static data and positions of leaves are; equal ones hash equal.

    >>> leaves, treedef = weft.tree.flatten([1, (2, None)])
    >>> treedef
    PyTreeDef([*, (*, None)])
    >>> treedef.unflatten('ab')
    ['a', ('b', None)]
    """

    __module__ = "weft.tree_util"

    __slots__ = ("_code", "_hash", "_uses", "num_leaves", "spec")

    def __init__(self, spec: Spec, num_leaves: int) -> None:
        self.spec = spec
        self.num_leaves = num_leaves
        self._hash = None
        self._uses = 0
        self._code: _StructureFunctions | None = None

    @staticmethod
    def from_spec(spec: Spec) -> PyTreeDef:
        """Return the structure of a spec."""
        return PyTreeDef(spec, _count_leaves(spec))

    @staticmethod
    def from_node_data_and_children(
        node_data: tuple[type, Any] | None, children: Iterable[PyTreeDef]
    ) -> PyTreeDef:
        """Return a structure from its node data and children, the results of the methods of these names."""
        if node_data is None:
            return LEAF
        type_, aux = node_data
        children = tuple(children)
        for child in children:
            if not isinstance(child, PyTreeDef):
                raise TypeError(
                    f"the `treedefs` of children must be structures of trees (PyTreeDef), got {child!r:.80}."
                )
        aux = tuple(aux) if type_ is dict else aux
        spec = (type_, aux, tuple([child.spec for child in children]))
        return PyTreeDef(spec, sum([child.num_leaves for child in children]))

    @property
    def num_nodes(self) -> int:
        """Number of nodes, including leaves."""
        return _count_nodes(self.spec)

    @property
    def is_leaf(self) -> bool:
        """True if the structure is a single leaf."""
        return self.spec is None

    def is_builtin(self) -> bool:
        """True if all nodes are tuples, lists, dicts and None."""
        return _is_builtin(self.spec)

    def node_data(self) -> tuple[type, Any] | None:
        """Return (type, static data) of the root, or None for a leaf."""
        if self.spec is None:
            return None
        type_, aux, _ = self.spec
        return type_, list(aux) if type_ is dict else aux

    def children(self) -> list[PyTreeDef]:
        """Return the structures of the children of the root."""
        return [] if self.spec is None else [PyTreeDef.from_spec(child) for child in self.spec[2]]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Rebuild a tree of this structure from its leaves in order."""
        if type(leaves) is not list and type(leaves) is not tuple:
            leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"{self} takes {quantity(self.num_leaves, 'leaf')}, got {len(leaves)}")
        if self.spec is None:
            return leaves[0]
        code = self._code or _code_of(self)
        return _build(self.spec, iter(leaves)) if code is None else code.build(leaves, self.spec)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Return the subtrees of `tree` at the leaves of this structure.

        >>> flatten([0, 0])[1].flatten_up_to([1, (2, 3)])
        [1, (2, 3)]
        """
        leaves_of_tree: list[Any] | None = self.match(tree)
        if leaves_of_tree is None:
            leaves_of_tree = []
            _flatten_up_to(self.spec, tree, leaves_of_tree.append)
        return leaves_of_tree

    def match(self, tree: Any) -> list[Any] | None:
        """Return the result of `flatten_up_to`, or None if that method must be called.

        It must be called for trees of another structure, and for structures without generated code, which are rarely used.
        """
        if self.spec is None:
            return [tree]
        code = self._code or _code_of(self)
        return None if code is None else code.match(tree)

    def compose(self, inner: PyTreeDef) -> PyTreeDef:
        """Return this structure with each leaf replaced by `inner`."""

        def graft(spec: Spec) -> Spec:
            return (
                inner.spec
                if spec is None
                else (spec[0], spec[1], tuple([graft(child) for child in spec[2]]))
            )

        return PyTreeDef(graft(self.spec), self.num_leaves * inner.num_leaves)

    def walk(
        self,
        f_node: Callable[[Any, Any], Any],
        f_leaf: Callable[[Any], Any] | None,
        leaves: Iterable[Any],
    ) -> Any:
        """Fold a tree from the leaves to the root: `f_leaf(leaf)`, then `f_node(child results, node data)` for each node."""
        next_leaf = iter(leaves).__next__

        def visit(spec: Spec) -> Any:
            if spec is None:
                leaf = next_leaf()
                return leaf if f_leaf is None else f_leaf(leaf)
            return f_node(
                tuple([visit(child) for child in spec[2]]),
                list(spec[1]) if spec[0] is dict else spec[1],
            )

        return visit(self.spec)

    def from_iterable_tree(self, tree: Any) -> Any:
        """Rebuild a tree of this structure from nested iterables of the same arity."""

        def visit(spec: Spec, value: Any) -> Any:
            if spec is None:
                return value
            type_, aux, children = spec
            values = list(value) if value is not None else []
            if len(values) != len(children):
                raise ValueError(
                    f"a {type_.__name__} node takes {len(children)} children, got {len(values)}"
                )
            built = tuple([visit(child, x) for child, x in zip(children, values, strict=True)])
            return node_types[type_].unflatten(aux, built)

        return visit(self.spec, tree)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not PyTreeDef:
            return NotImplemented
        try:
            return self.num_leaves == other.num_leaves and self.spec == other.spec
        except ValueError as error:  # probably an array in the static data
            rule = "exception raised while checking equality of metadata fields: static data of pytree nodes must compare to true or false"
            raise ValueError(f"{rule}: {error}\n  in {self}") from None

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            try:
                value = self._hash = hash(self.spec)
            except (
                TypeError
            ):  # unhashable static data: structures with equal numbers of leaves have equal hashes
                value = self._hash = hash(self.num_leaves)
        return value

    def __repr__(self) -> str:
        return f"PyTreeDef({_text(self.spec)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PyTreeDef, (self.spec, self.num_leaves)

    def serialize_using_proto(self) -> bytes:
        """Return the structure as bytes for `deserialize_using_proto`.

        Raise ValueError for nodes other than lists, tuples, dicts with string keys and None.
        """
        from weft._engine.util.trees import plain  # rarely used

        return plain.to_bytes(self.spec)

    @staticmethod
    def deserialize_using_proto(registry: Any, data: bytes) -> "PyTreeDef":
        """Return the structure from the bytes of `serialize_using_proto`; raise ValueError for other bytes.

        >>> written = PyTreeDef.from_node_data_and_children((tuple, None), [LEAF, LEAF]).serialize_using_proto()
        >>> PyTreeDef.deserialize_using_proto(None, written)
        PyTreeDef((*, *))
        """
        from weft._engine.util.trees import plain

        return PyTreeDef.from_spec(plain.from_bytes(data))


_USES_BEFORE_CODE = 16
_MOST_LEAVES = 1000
_MOST_KEPT = 512  # bounds the memory of programs that generate structures

_codes: dict[Spec, _StructureFunctions] = {}  # generated code of frequently used structures
_uses_of: dict[int, int] = {}  # hash of a structure -> the number of its uses


@on_clear_caches
def _forget() -> None:
    _codes.clear()
    _last_codes.clear()
    _uses_of.clear()


def _no_match(_tree: Any) -> None:
    return None


class _StructureFunctions:
    """The functions generated for one structure, each on its first call."""

    __slots__ = ("_paths", "build", "match", "match_identical", "treedef")

    def __init__(self, treedef: PyTreeDef) -> None:
        self.treedef = treedef
        self.build: Callable[[Sequence[Any], Spec], Any] = self._first_build
        self.match: Callable[[Any], list[Any] | None] = functools.partial(
            self._first_match, "match", False
        )
        self.match_identical: Callable[[Any], list[Any] | None] = functools.partial(
            self._first_match, "match_identical", True
        )
        self._paths: tuple[list[tuple[Any, ...]] | None] | None = None

    def _first_build(self, leaves: Sequence[Any], spec: Spec) -> Any:
        self.build = compile_builder(self.treedef.spec, node_types) or (
            lambda leaves, spec: _build(spec, iter(leaves))
        )
        return self.build(leaves, spec)

    def _first_match(self, name: str, identical: bool, tree: Any) -> list[Any] | None:
        matcher = compile_matcher(self.treedef.spec, node_types, identical) or _no_match
        setattr(self, name, matcher)
        return matcher(tree)

    def leaves(self, tree: Any) -> list[Any] | None:
        """Return the leaves of a tree of exactly this structure; None for other trees, including trees with a node in place of a leaf."""
        leaves = self.match_identical(tree)
        return (
            None
            if leaves is None or any(map(node_types.__getitem__, {*map(type, leaves)}))
            else leaves
        )

    def paths(self) -> list[tuple[Any, ...]] | None:
        """Return the key path of each leaf; None if user functions compute keys, which may depend on values."""
        if self._paths is None:
            self._paths = (_paths(self.treedef.spec, ()),)
        return self._paths[0]


def _paths(spec: Spec, path: tuple[Any, ...]) -> list[tuple[Any, ...]] | None:
    if spec is None:
        return [path]
    type_, aux, children = spec
    node = node_types[type_]
    if node.flatten_with_keys is not None:
        return None
    keys = index_keys(len(children)) if node.keys is None else node.keys(aux, len(children))
    below = [_paths(child, (*path, key)) for key, child in zip(keys, children, strict=True)]
    return None if None in below else [path for paths in below if paths for path in paths]


# type of a tree -> the code of the structure that was last flattened and rebuilt
_last_codes: dict[type, _StructureFunctions] = {}


def flatten_again(tree: Any) -> tuple[list[Any], PyTreeDef]:
    """Return the result of `flatten`; faster for a tree of the structure last passed to `remember` for its type."""
    code = _last_codes.get(type(tree))
    if code is not None and (leaves := code.leaves(tree)) is not None:
        return leaves, code.treedef
    leaves, treedef = flatten(tree)
    if code is not None and treedef == code.treedef:
        # every tree has new static data, so identity tests would always fail
        code.match_identical = _no_match
    return leaves, treedef


def remember(tree: Any, treedef: PyTreeDef) -> None:
    """Keep the structure of a tree for `flatten_again` if it has generated code and more than 8 leaves, so that this is faster."""
    if treedef._code is not None and treedef.num_leaves > 8:
        _last_codes[type(tree)] = treedef._code


def _code_of(treedef: PyTreeDef) -> _StructureFunctions | None:
    """Return the generated code of a structure, shared by equal structures; None until the structure is used often enough."""
    spec, number, uses = treedef.spec, None, 0
    try:
        code = _codes.get(spec)
        if code is None:
            number = hash(spec)
            uses = _uses_of[number] = _uses_of.get(number, 0) + 1
    except (TypeError, ValueError):
        # static data that cannot be hashed or compared: the code is not shared
        code, number = None, None
        uses = treedef._uses = treedef._uses + 1
    if code is None:
        threshold = _USES_BEFORE_CODE + treedef.num_leaves // 2  # generating takes 30 µs per leaf
        if uses < threshold or treedef.num_leaves > _MOST_LEAVES:
            if len(_uses_of) > 8 * _MOST_KEPT:
                _uses_of.clear()
            return None
        code = _StructureFunctions(treedef)
        if number is not None:
            if len(_codes) >= _MOST_KEPT:
                _codes.clear()
            _codes[spec] = code
    treedef._code = code
    return code


LEAF = PyTreeDef(None, 1)


#: names of node types in messages
_NODE_WORDS = {tuple: "tuple", list: "list", dict: "dict", type(None): "None"}


def _brief(value: Any) -> str:
    text = reprlib.repr(value)
    return (
        text
        if type(value) in _NODE_WORDS or isinstance(value, (int, float))
        else f"{type(value).__name__} {text}"
    )


def _another_type(expected: type, value: Any) -> str:
    if expected in _NODE_WORDS:
        return f"Expected {_NODE_WORDS[expected]}, got {_brief(value)}."
    if not is_namedtuple(expected):
        return f"Custom node type mismatch: expected {expected.__name__}, got {_brief(value)}."
    if not is_namedtuple(type(value)):
        return f"Expected named tuple, got {_brief(value)}. It is {expected.__name__} in the other tree."
    return f"Named tuple type mismatch: expected {expected.__name__}, got {_brief(value)}."


def _flatten_up_to(spec: Spec, value: Any, append: Callable[[Any], None]) -> None:
    type_, aux, children = spec
    if type(value) is not type_:
        raise ValueError(_another_type(type_, value))
    if type_ is tuple or type_ is list:
        parts = value
    elif type_ is dict and len(value) == len(aux) and all(map(value.__contains__, aux)):
        parts = [value[key] for key in aux]
    else:
        parts, other_aux = node_types[type_].split(value)
        if other_aux != aux:
            if type_ is dict:
                raise ValueError(
                    f"Dict key mismatch; expected keys: {list(aux)}; dict: {_brief(value)}."
                )
            raise ValueError(
                f"{type_.__name__} nodes differ in their static data: expected {aux!r}, got {other_aux!r}."
            )
    if len(parts) != len(children):
        word = _NODE_WORDS.get(type_, type_.__name__)
        raise ValueError(
            f"{word.capitalize()} arity mismatch: {len(parts)} != {len(children)}; {word}: {_brief(value)}."
        )
    for child, part in zip(children, parts, strict=True):
        if child is None:
            append(part)
        else:
            _flatten_up_to(child, part, append)
