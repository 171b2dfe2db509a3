"""The shape of a pytree, and how to take trees apart and put them together.

In:  any Python value; containers of registered types are nodes, everything else is a leaf.
Out: a list of leaves and a `PyTreeDef` that can rebuild the value from them.
Law: `unflatten(treedef, leaves)` equals the value that was flattened, for every registered type.

A structure is kept as a plain nested tuple, its *spec*: `None` for a leaf and `(type, aux, child specs)` for a node.
Plain tuples are built, compared and hashed by the interpreter itself, which makes flattening and cache lookups quick.
"""

from __future__ import annotations

import functools
import operator
import reprlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from weft._engine.util.record import record
from weft._engine.util.state import clearing
from weft._engine.util.trees.code import compile_builder, compile_matcher, compile_taker
from weft._engine.util.trees.keypath import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

IsLeaf = Callable[[Any], bool]
Spec = Any  # None (a leaf) or (type, aux, tuple of child specs)


@record(eq=False)
class NodeType:
    """How values of one container type are taken apart and rebuilt.

    `keys(aux, number of children)` gives the keys of types whose keys follow from aux, `label(aux, texts of the children)`
    the text of a node. Code written for a structure takes two kinds of types apart without these functions: subclasses of tuple whose
    items are the children (`is_sequence`), and those whose children and static data are attributes, and parameters of the class, by
    two tuples of names (`fields`).
    """

    type: type
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]]
    unflatten: Callable[[Any, Sequence[Any]], Any]
    keys: Callable[[Any, int], Sequence[Any]] | None = None
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Hashable]] | None = None
    label: Callable[[Any, list[str]], str] | None = None
    is_sequence: bool = False
    fields: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    def children_with_keys(self, value: Any) -> tuple[Sequence[Any], tuple[Any, ...], Any]:
        """Return (keys, children, aux) of one node."""
        if self.flatten_with_keys is not None:
            pairs, aux = self.flatten_with_keys(value)
            pairs = tuple(pairs)
            return [key for key, _ in pairs], tuple(child for _, child in pairs), aux
        children, aux = self.split(value)
        if self.keys is not None:
            return self.keys(aux, len(children)), children, aux
        return _index_keys(len(children)), children, aux

    def checked(self, value: Any) -> tuple[Iterable[Any], Any]:
        """Return what the flatten function gives for one node; ValueError where it is no pair."""
        parts = self.flatten(value)
        if type(parts) is not tuple or len(parts) != 2:
            raise ValueError(
                f"flatten function of {self.type.__name__} (to_iterable) should return a (children, aux_data) tuple, got "
                f"{parts!r}"
            )
        return parts

    def split(self, value: Any) -> tuple[tuple[Any, ...], Any]:
        """Return (children, aux) of one node, checking what a user's flatten function returned."""
        children, aux = self.checked(value)
        try:
            return tuple(children), aux
        except TypeError:
            raise ValueError(
                f"flatten function of {self.type.__name__} (to_iterable) should return a (children, aux_data) tuple where "
                f"'children' is iterable, got {children!r}"
            ) from None


class _NodeTypes(dict):
    """type -> NodeType, or None for leaves; an unseen type is a leaf unless it is a namedtuple, and is remembered."""

    def __missing__(self, type_: type) -> NodeType | None:
        node = _namedtuple_node(type_) if _is_namedtuple(type_) else None
        self[type_] = node
        return node


#: (value, leaves) -> spec; appends the leaves of the value
Flattener = Callable[[Any, list[Any]], Spec]


_node_types = _NodeTypes()
_flatteners: dict[type, Flattener | None] = {}  # in step with `_node_types`; None for leaves


def _unseen(type_: type) -> Flattener | None:
    """The flattener of a type that has none yet."""
    node = _node_types[type_]
    if node is None:
        flattener = None
    else:
        flattener = _sequence_flattener(type_) if node.is_sequence else _custom_flattener(node)
    _flatteners[type_] = flattener
    return flattener


def _is_namedtuple(type_: type) -> bool:
    return (
        issubclass(type_, tuple)
        and type_ is not tuple
        and isinstance(getattr(type_, "_fields", None), tuple)
    )


def _namedtuple_node(type_: Any) -> NodeType:
    keys = [GetAttrKey(name) for name in type_._fields]
    is_sequence = type_.__iter__ is tuple.__iter__
    fields = (
        tuple if is_sequence else lambda value: tuple(tuple.__iter__(value))
    )  # whatever iteration gives
    return NodeType(
        type_,
        lambda value: (fields(value), None),
        lambda aux, children: type_(*children),
        keys=lambda aux, n: keys,
        label=lambda aux, texts: f"CustomNode(namedtuple[{type_.__name__}], [{', '.join(texts)}])",
        is_sequence=is_sequence,
    )


def sorted_keys(keys: Iterable[Any], owner: str = "dict") -> list[Any]:
    """Keys of a dictionary node in the order of its children."""
    try:
        return sorted(keys)
    except TypeError as error:
        raise ValueError(
            f"a {owner} that is a pytree node needs keys that can be sorted together, got {list(keys)!r}: {error}"
        ) from None


# ---- quick flatteners
#
# The loop over children is in each of them, written out: it is the hottest loop of a call, and a helper or a comprehension around it would
# cost a third more. Statements of the form `list.append(x)`, and items of a plain dict, are what the interpreter specializes.


_WIDE = 16  # children of a node for which their types are looked at first


def _are_leaves(children: Iterable[Any]) -> bool:
    return not any(_node_types[cls] is not None for cls in {*map(type, children)})


def _sequence_flattener(kind: type) -> Flattener:
    rules = _flatteners

    def flatten(value: Sequence[Any], leaves: list[Any]) -> Spec:
        specs: list[Spec] = []
        if len(value) > _WIDE and _are_leaves(value):
            leaves += value
            return kind, None, (None,) * len(value)
        for x in value:
            try:
                rule = rules[type(x)]
            except KeyError:
                rule = _unseen(type(x))
            if rule is None:
                leaves.append(x)
                specs.append(None)
            else:
                specs.append(rule(x, leaves))
        return kind, None, tuple(specs)

    return flatten


def _flatten_dict(value: dict[Any, Any], leaves: list[Any]) -> Spec:
    rules, specs = _flatteners, []
    given = tuple(value)
    keys, items = _key_orders.get(given) or _key_order(given)
    values = items(value)
    if len(given) > _WIDE and _are_leaves(values):
        leaves += values
        return dict, keys, (None,) * len(given)
    for x in values:
        try:
            rule = rules[type(x)]
        except KeyError:
            rule = _unseen(type(x))
        if rule is None:
            leaves.append(x)
            specs.append(None)
        else:
            specs.append(rule(x, leaves))
    return dict, keys, tuple(specs)


_Order = tuple[tuple[Any, ...], Callable[[dict[Any, Any]], Iterable[Any]]]
_key_orders: dict[
    tuple[str, ...], _Order
] = {}  # keys as they come -> sorted, and what gives their values


def _key_order(given: tuple[Any, ...]) -> _Order:
    """Sort keys, and remember the order of strings: other keys may be equal without being the same (1 and True)."""
    keys = tuple(sorted_keys(given))
    items = (
        operator.itemgetter(*keys) if len(keys) > 1 else lambda value: [value[key] for key in keys]
    )
    if all(type(key) is str for key in given):
        if (
            len(_key_orders) >= 4096
        ):  # programs that make up keys without end must not fill the memory
            _key_orders.clear()
        _key_orders[given] = keys, items
    return keys, items


_NONE_SPEC = (type(None), None, ())


def _custom_flattener(node: NodeType) -> Flattener:
    type_, split, rules = node.type, node.split, _flatteners
    take = node.flatten if node.fields is None else compile_taker(*node.fields)

    def flatten(value: Any, leaves: list[Any]) -> Spec:
        parts = take(value)
        children, aux = (
            parts
            if type(parts) is tuple and len(parts) == 2 and type(parts[0]) is tuple
            else split(value)
        )
        specs: list[Spec] = []
        for x in children:
            try:
                rule = rules[type(x)]
            except KeyError:
                rule = _unseen(type(x))
            if rule is None:
                leaves.append(x)
                specs.append(None)
            else:
                specs.append(rule(x, leaves))
        return type_, aux, tuple(specs)

    return flatten


def _flatten_until(node: NodeType, value: Any, leaves: list[Any], is_leaf: IsLeaf) -> Spec:
    types, specs = _node_types, []
    if node.is_sequence:
        children, aux = value, None
    else:
        parts = node.flatten(value)
        children, aux = (
            parts
            if type(parts) is tuple and len(parts) == 2 and type(parts[0]) is tuple
            else node.split(value)
        )
    for x in children:
        if is_leaf(x) or (below := types[type(x)]) is None:
            leaves.append(x)
            specs.append(None)
        else:
            specs.append(_flatten_until(below, x, leaves, is_leaf))
    return node.type, aux, tuple(specs)


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], PyTreeDef]:
    """Take a tree apart into its leaves, left to right, and its structure.

    `is_leaf(x)` says where to stop early. Raises ValueError for dicts whose keys cannot be sorted.

    >>> flatten({'b': 1, 'a': (2, None)})
    ([2, 1], PyTreeDef({'a': (*, None), 'b': *}))
    """
    if (is_leaf is not None and is_leaf(tree)) or (node := _node_types[type(tree)]) is None:
        return [tree], PyTreeDef(None, 1)
    leaves: list[Any] = []
    if is_leaf is not None:
        spec = _flatten_until(node, tree, leaves, is_leaf)
    else:
        rule: Any = _flatteners.get(type(tree)) or _unseen(type(tree))
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
    types = _node_types

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
    return _node_types[type_].unflatten(aux, tuple(values))


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
    node = _node_types[type_]
    if node is not None and node.label is not None:
        return node.label(aux, texts)
    return f"CustomNode({type_.__name__}[{aux}], [{', '.join(texts)}])"


class PyTreeDef:
    """The structure of a pytree: its nodes, their types and static data, without the leaves.

    Two structures are equal when types, static data and positions of leaves are; equal ones hash equal.

    >>> leaves, treedef = flatten([1, (2, None)])
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
        self._code: _Code | None = None

    @staticmethod
    def from_spec(spec: Spec) -> PyTreeDef:
        """Wrap a spec, counting its leaves."""
        return PyTreeDef(spec, _count_leaves(spec))

    @staticmethod
    def from_node_data_and_children(
        node_data: tuple[type, Any] | None, children: Iterable[PyTreeDef]
    ) -> PyTreeDef:
        """Build a structure from what `node_data` and `children` return."""
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
        """Number of nodes, leaves included."""
        return _count_nodes(self.spec)

    @property
    def is_leaf(self) -> bool:
        """Whether the structure is a single leaf."""
        return self.spec is None

    def is_builtin(self) -> bool:
        """Whether all its nodes are tuples, lists, dicts and None."""
        return _is_builtin(self.spec)

    def node_data(self) -> tuple[type, Any] | None:
        """Return (type, static data) of the root, or None for a leaf."""
        if self.spec is None:
            return None
        type_, aux, _ = self.spec
        return type_, list(aux) if type_ is dict else aux

    def children(self) -> list[PyTreeDef]:
        """Return the structures one step below the root."""
        return [] if self.spec is None else [PyTreeDef.from_spec(child) for child in self.spec[2]]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Rebuild a tree of this structure from its leaves in order."""
        if type(leaves) is not list and type(leaves) is not tuple:
            leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"{self} takes {self.num_leaves} leaves, got {len(leaves)}")
        if self.spec is None:
            return leaves[0]
        code = self._code or _code_of(self)
        return _build(self.spec, iter(leaves)) if code is None else code.build(leaves, self.spec)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Return the subtrees of `tree` at the leaves of this structure.

        >>> flatten([0, 0])[1].flatten_up_to([1, (2, 3)])
        [1, (2, 3)]
        """
        found: list[Any] | None = self.match(tree)
        if found is None:
            found = []
            _flatten_up_to(self.spec, tree, found.append)
        return found

    def match(self, tree: Any) -> list[Any] | None:
        """What `flatten_up_to` gives, or None where it has to be asked: trees of another structure, and structures that are used seldom,
        which have no code of their own."""
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
        """Fold from the leaves up: `f_leaf(leaf)`, then `f_node(child results, node data)` for each node."""
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
            return _node_types[type_].unflatten(aux, built)

        return visit(self.spec, tree)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not PyTreeDef:
            return NotImplemented
        try:
            return self.num_leaves == other.num_leaves and self.spec == other.spec
        except ValueError as error:  # an array among the static data, most likely
            rule = "exception raised while checking equality of metadata fields: static data of pytree nodes must compare to true or false"
            raise ValueError(f"{rule}: {error}\n  in {self}") from None

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            try:
                value = self._hash = hash(self.spec)
            except (
                TypeError
            ):  # static data without a hash: structures that differ in it alone share one
                value = self._hash = hash(self.num_leaves)
        return value

    def __repr__(self) -> str:
        return f"PyTreeDef({_text(self.spec)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PyTreeDef, (self.spec, self.num_leaves)

    def serialize_using_proto(self) -> bytes:
        """The structure as bytes, from which `deserialize_using_proto` makes it again; ValueError if it has nodes of other types than
        lists, tuples, dicts of string keys and None."""
        from weft._engine.util.trees import plain  # what most programs do without

        return plain.to_bytes(self.spec)

    @staticmethod
    def deserialize_using_proto(registry: Any, data: bytes) -> "PyTreeDef":
        """The structure that `serialize_using_proto` wrote; ValueError for other bytes.

        >>> written = PyTreeDef.from_node_data_and_children((tuple, None), [LEAF, LEAF]).serialize_using_proto()
        >>> PyTreeDef.deserialize_using_proto(None, written)
        PyTreeDef((*, *))
        """
        from weft._engine.util.trees import plain

        return PyTreeDef.from_spec(plain.from_bytes(data))


_USES_BEFORE_CODE = 16
_MOST_LEAVES = 1000
_MOST_KEPT = 512  # programs that make up structures without end must not fill the memory

_codes: dict[Spec, _Code] = {}  # of structures that were used often
_uses_of: dict[int, int] = {}  # hash of a structure -> how often its code was asked for


@clearing
def _forget() -> None:
    _codes.clear()
    _last_codes.clear()
    _uses_of.clear()


def _no_match(_tree: Any) -> None:
    return None


class _Code:
    """The functions written for one structure, each when it is first called."""

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
        self.build = compile_builder(self.treedef.spec, _node_types) or (
            lambda leaves, spec: _build(spec, iter(leaves))
        )
        return self.build(leaves, spec)

    def _first_match(self, name: str, identical: bool, tree: Any) -> list[Any] | None:
        found = compile_matcher(self.treedef.spec, _node_types, identical) or _no_match
        setattr(self, name, found)
        return found(tree)

    def leaves(self, tree: Any) -> list[Any] | None:
        """The leaves of a tree of this very structure; None for others, also where a leaf became a tree."""
        leaves = self.match_identical(tree)
        return (
            None
            if leaves is None or any(map(_node_types.__getitem__, {*map(type, leaves)}))
            else leaves
        )

    def paths(self) -> list[tuple[Any, ...]] | None:
        """The key path of each leaf; None where functions of the user's give the keys, which may look at the values."""
        if self._paths is None:
            self._paths = (_paths(self.treedef.spec, ()),)
        return self._paths[0]


def _paths(spec: Spec, path: tuple[Any, ...]) -> list[tuple[Any, ...]] | None:
    if spec is None:
        return [path]
    type_, aux, children = spec
    node = _node_types[type_]
    if node.flatten_with_keys is not None:
        return None
    keys = _index_keys(len(children)) if node.keys is None else node.keys(aux, len(children))
    below = [_paths(child, (*path, key)) for key, child in zip(keys, children, strict=True)]
    return None if None in below else [path for paths in below if paths for path in paths]


_last_codes: dict[
    type, _Code
] = {}  # type of a tree -> the code of the structure that was last taken apart and put together again


def flatten_again(tree: Any) -> tuple[list[Any], PyTreeDef]:
    """What `flatten` gives, quicker for a tree of the structure that the last one of its type had, if `remember` was told of it."""
    code = _last_codes.get(type(tree))
    if code is not None and (leaves := code.leaves(tree)) is not None:
        return leaves, code.treedef
    leaves, treedef = flatten(tree)
    if (
        code is not None and treedef == code.treedef
    ):  # static data are made anew for every tree: to look for the same ones is in vain
        code.match_identical = _no_match
    return leaves, treedef


def remember(tree: Any, treedef: PyTreeDef) -> None:
    """Keep the structure of a tree for `flatten_again`, if it has code of its own and is not small, where that is no quicker."""
    if treedef._code is not None and treedef.num_leaves > 8:
        _last_codes[type(tree)] = treedef._code


def _code_of(treedef: PyTreeDef) -> _Code | None:
    """The code of a structure, which equal ones share, once it was asked for often enough."""
    spec, number, uses = treedef.spec, None, 0
    try:
        code = _codes.get(spec)
        if code is None:
            number = hash(spec)
            uses = _uses_of[number] = _uses_of.get(number, 0) + 1
    except (TypeError, ValueError):
        # static data that cannot be hashed or compared: this structure has code of its own
        code, number = None, None
        uses = treedef._uses = treedef._uses + 1
    if code is None:
        threshold = _USES_BEFORE_CODE + treedef.num_leaves // 2  # code costs some 30 µs a leaf
        if uses < threshold or treedef.num_leaves > _MOST_LEAVES:
            if len(_uses_of) > 8 * _MOST_KEPT:
                _uses_of.clear()
            return None
        code = _Code(treedef)
        if number is not None:
            if len(_codes) >= _MOST_KEPT:
                _codes.clear()
            _codes[spec] = code
    treedef._code = code
    return code


LEAF = PyTreeDef(None, 1)


#: kinds of nodes as messages call them
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
    if not _is_namedtuple(expected):
        return f"Custom node type mismatch: expected {expected.__name__}, got {_brief(value)}."
    if not _is_namedtuple(type(value)):
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
        parts, other_aux = _node_types[type_].split(value)
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


# ---- registration


def node_type(type_: type) -> NodeType | None:
    """Return how values of `type_` are taken apart, or None if they are leaves."""
    return _node_types[type_]


def register(node: NodeType, flattener: Flattener | None = None) -> None:
    """Make a type a pytree node; each type can be registered once."""
    if node.type in _registered:
        raise ValueError(f"{node.type!r} is already registered as a pytree node")
    _registered.add(node.type)
    _node_types[node.type] = node
    if flattener is not None:
        _flatteners[node.type] = flattener
    else:  # made when it is needed: many types are registered that no program uses
        _flatteners.pop(node.type, None)


_registered: set[type] = set()


@functools.lru_cache(maxsize=256)
def _index_keys(n: int) -> list[Any]:
    return [FlattenedIndexKey(i) for i in range(n)]


@functools.lru_cache(maxsize=256)
def _sequence_keys(aux: Any, n: int) -> list[Any]:
    return [SequenceKey(i) for i in range(n)]


def _dict_keys(keys: tuple[Any, ...], n: int) -> list[Any]:
    """Made once for keys that are strings."""
    found = _key_entries.get(keys)
    if found is None:
        found = [DictKey(key) for key in keys]
        if all(type(key) is str for key in keys):
            if len(_key_entries) >= 4096:
                _key_entries.clear()
            _key_entries[keys] = found
    return found


_key_entries: dict[tuple[str, ...], list[Any]] = {}


def _split_dict(value: dict[Any, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    given = tuple(value)
    keys, items = _key_orders.get(given) or _key_order(given)
    return tuple(items(value)), keys


def _split_defaultdict(value: defaultdict[Any, Any]) -> tuple[tuple[Any, ...], Any]:
    keys = tuple(sorted_keys(value, "defaultdict"))
    return tuple([value[key] for key in keys]), (value.default_factory, keys)


def _tuple_label(aux: Any, texts: list[str]) -> str:
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _list_label(aux: Any, texts: list[str]) -> str:
    return f"[{', '.join(texts)}]"


def _dict_label(aux: Any, texts: list[str]) -> str:
    return "{" + ", ".join([f"{key!r}: {text}" for key, text in zip(aux, texts, strict=True)]) + "}"


def _build_dict(keys: tuple[Any, ...], children: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(keys, children, strict=True))


register(
    NodeType(
        tuple, lambda x: (x, None), lambda aux, c: tuple(c), _sequence_keys, label=_tuple_label
    ),
    _sequence_flattener(tuple),
)
register(
    NodeType(
        list, lambda x: (tuple(x), None), lambda aux, c: list(c), _sequence_keys, label=_list_label
    ),
    _sequence_flattener(list),
)
register(NodeType(dict, _split_dict, _build_dict, _dict_keys, label=_dict_label), _flatten_dict)
register(
    NodeType(
        type(None),
        lambda x: ((), None),
        lambda aux, c: None,
        _sequence_keys,
        label=lambda aux, texts: "None",
    ),
    lambda value, leaves: _NONE_SPEC,
)
register(
    NodeType(
        OrderedDict,
        lambda x: (tuple(x.values()), tuple(x)),
        lambda keys, c: OrderedDict(zip(keys, c, strict=True)),
        _dict_keys,
    )
)
register(
    NodeType(
        defaultdict,
        _split_defaultdict,
        lambda aux, c: defaultdict(aux[0], zip(aux[1], c, strict=True)),
        lambda aux, n: _dict_keys(aux[1], n),
    )
)

_STANDARD = frozenset(_registered)


def is_standard(type_: type) -> bool:
    """Whether a type is a node without anyone's registration: Python's containers, namedtuples among them."""
    return type_ in _STANDARD or (type_ not in _registered and node_type(type_) is not None)
