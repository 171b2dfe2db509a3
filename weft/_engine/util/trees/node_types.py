"""Types of pytree nodes: their flatten and unflatten functions, and specialized flatteners.

A structure is a plain nested tuple, its *spec*: `None` for a leaf and `(type, aux, child specs)` for a node; see `treedef`.
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from weft._engine.util.record import record
from weft._engine.util.trees.code import compile_taker
from weft._engine.util.trees.keypath import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

IsLeaf = Callable[[Any], bool]
Spec = Any  # None (a leaf) or (type, aux, tuple of child specs)


@record(eq=False)
class NodeType:
    """The flatten and unflatten functions of one container type.

    `keys(aux, number of children)` returns the keys if they follow from aux, `label(aux, texts of the children)` the text of a node.
    Code generated for a structure does not call these functions for two kinds of types: subclasses of tuple whose items are the
    children (`is_sequence`), and classes whose children and static data are attributes and parameters, named by two tuples
    (`fields`).
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
        return index_keys(len(children)), children, aux

    def flatten_checked(self, value: Any) -> tuple[Iterable[Any], Any]:
        """Return the result of the flatten function for one node; raise ValueError if it is not a pair."""
        parts = self.flatten(value)
        if type(parts) is not tuple or len(parts) != 2:
            raise ValueError(
                f"flatten function of {self.type.__name__} (to_iterable) should return a (children, aux_data) tuple, got "
                f"{parts!r}"
            )
        return parts

    def split(self, value: Any) -> tuple[tuple[Any, ...], Any]:
        """Return (children, aux) of one node, after checking the result of a user's flatten function."""
        children, aux = self.flatten_checked(value)
        try:
            return tuple(children), aux
        except TypeError:
            raise ValueError(
                f"flatten function of {self.type.__name__} (to_iterable) should return a (children, aux_data) tuple where "
                f"'children' is iterable, got {children!r}"
            ) from None


class _NodeTypes(dict):
    """type -> NodeType, or None for leaves. An unregistered type is a leaf unless it is a namedtuple; it is added on first use."""

    def __missing__(self, type_: type) -> NodeType | None:
        node = _namedtuple_node(type_) if is_namedtuple(type_) else None
        self[type_] = node
        return node


#: (value, leaves) -> spec; appends the leaves of the value to `leaves`
Flattener = Callable[[Any, list[Any]], Spec]


node_types = _NodeTypes()
flatteners: dict[type, Flattener | None] = {}  # the flatteners of `node_types`; None for leaves


def unseen_flattener(type_: type) -> Flattener | None:
    """Add and return the flattener of a type that has none yet; None for leaves."""
    node = node_types[type_]
    if node is None:
        flattener = None
    else:
        flattener = _sequence_flattener(type_) if node.is_sequence else _custom_flattener(node)
    flatteners[type_] = flattener
    return flattener


def is_namedtuple(type_: type) -> bool:
    return (
        issubclass(type_, tuple)
        and type_ is not tuple
        and isinstance(getattr(type_, "_fields", None), tuple)
    )


def _namedtuple_node(type_: Any) -> NodeType:
    keys = [GetAttrKey(name) for name in type_._fields]
    is_sequence = type_.__iter__ is tuple.__iter__
    # even if `__iter__` is overridden
    fields = tuple if is_sequence else lambda value: tuple(tuple.__iter__(value))
    return NodeType(
        type_,
        lambda value: (fields(value), None),
        lambda aux, children: type_(*children),
        keys=lambda aux, n: keys,
        label=lambda aux, texts: f"CustomNode(namedtuple[{type_.__name__}], [{', '.join(texts)}])",
        is_sequence=is_sequence,
    )


def sorted_keys(keys: Iterable[Any], owner: str = "dict") -> list[Any]:
    """Return the keys of a dictionary node in the order of its children. `owner` is the type in the error message."""
    try:
        return sorted(keys)
    except TypeError as error:
        raise ValueError(
            f"a {owner} that is a pytree node needs keys that can be sorted together, got {list(keys)!r}: {error}"
        ) from None


# ---- specialized flatteners
#
# Each flattener has its own loop over children: this is the hottest loop of a call, and a helper or a comprehension would cost a third
# more. The interpreter specializes statements of the form `list.append(x)` and items of a plain dict.


_WIDE = 16  # minimal number of children; all their types are then tested before the loop


def _are_leaves(children: Iterable[Any]) -> bool:
    return not any(node_types[cls] is not None for cls in {*map(type, children)})


def _sequence_flattener(kind: type) -> Flattener:
    rules = flatteners

    def flatten(value: Sequence[Any], leaves: list[Any]) -> Spec:
        specs: list[Spec] = []
        if len(value) > _WIDE and _are_leaves(value):
            leaves += value
            return kind, None, (None,) * len(value)
        for x in value:
            try:
                rule = rules[type(x)]
            except KeyError:
                rule = unseen_flattener(type(x))
            if rule is None:
                leaves.append(x)
                specs.append(None)
            else:
                specs.append(rule(x, leaves))
        return kind, None, tuple(specs)

    return flatten


def _flatten_dict(value: dict[Any, Any], leaves: list[Any]) -> Spec:
    rules, specs = flatteners, []
    unsorted = tuple(value)
    keys, items = _key_orders.get(unsorted) or _key_order(unsorted)
    values = items(value)
    if len(unsorted) > _WIDE and _are_leaves(values):
        leaves += values
        return dict, keys, (None,) * len(unsorted)
    for x in values:
        try:
            rule = rules[type(x)]
        except KeyError:
            rule = unseen_flattener(type(x))
        if rule is None:
            leaves.append(x)
            specs.append(None)
        else:
            specs.append(rule(x, leaves))
    return dict, keys, tuple(specs)


_Order = tuple[tuple[Any, ...], Callable[[dict[Any, Any]], Iterable[Any]]]
# keys in the order of a dict -> (sorted keys, function that returns their values)
_key_orders: dict[tuple[str, ...], _Order] = {}


def _key_order(keys: tuple[Any, ...]) -> _Order:
    """Sort keys; cache the order if all are strings, since other keys may be equal but of different types (1 and True)."""
    sorted_ = tuple(sorted_keys(keys))
    items = (
        operator.itemgetter(*sorted_)
        if len(sorted_) > 1
        else lambda value: [value[key] for key in sorted_]
    )
    if all(type(key) is str for key in keys):
        if len(_key_orders) >= 4096:  # bounds the memory of programs that generate keys
            _key_orders.clear()
        _key_orders[keys] = sorted_, items
    return sorted_, items


_NONE_SPEC = (type(None), None, ())


def _custom_flattener(node: NodeType) -> Flattener:
    type_, split, rules = node.type, node.split, flatteners
    take_parts = node.flatten if node.fields is None else compile_taker(*node.fields)

    def flatten(value: Any, leaves: list[Any]) -> Spec:
        parts = take_parts(value)
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
                rule = unseen_flattener(type(x))
            if rule is None:
                leaves.append(x)
                specs.append(None)
            else:
                specs.append(rule(x, leaves))
        return type_, aux, tuple(specs)

    return flatten


def flatten_until(node: NodeType, value: Any, leaves: list[Any], is_leaf: IsLeaf) -> Spec:
    types, specs = node_types, []
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
            specs.append(flatten_until(below, x, leaves, is_leaf))
    return node.type, aux, tuple(specs)


# ---- registration


def node_type(type_: type) -> NodeType | None:
    """Return the NodeType of `type_`, or None if its values are leaves."""
    return node_types[type_]


def register(node: NodeType, flattener: Flattener | None = None) -> None:
    """Make a type a pytree node; each type can be registered once."""
    if node.type in _registered:
        raise ValueError(f"{node.type!r} is already registered as a pytree node")
    _registered.add(node.type)
    node_types[node.type] = node
    if flattener is not None:
        flatteners[node.type] = flattener
    else:  # created on first use, because programs use few of the registered types
        flatteners.pop(node.type, None)


_registered: set[type] = set()


@functools.lru_cache(maxsize=256)
def index_keys(n: int) -> list[Any]:
    return [FlattenedIndexKey(i) for i in range(n)]


@functools.lru_cache(maxsize=256)
def _sequence_keys(aux: Any, n: int) -> list[Any]:
    return [SequenceKey(i) for i in range(n)]


def _dict_keys(keys: tuple[Any, ...], n: int) -> list[Any]:
    """Return the key path entries of a dict; cached for keys that are strings."""
    entries = _key_entries.get(keys)
    if entries is None:
        entries = [DictKey(key) for key in keys]
        if all(type(key) is str for key in keys):
            if len(_key_entries) >= 4096:
                _key_entries.clear()
            _key_entries[keys] = entries
    return entries


_key_entries: dict[tuple[str, ...], list[Any]] = {}


def _split_dict(value: dict[Any, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    unsorted = tuple(value)
    keys, items = _key_orders.get(unsorted) or _key_order(unsorted)
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
    """Return whether a type is a node without registration by the user: Python's containers, including namedtuples."""
    return type_ in _STANDARD or (type_ not in _registered and node_type(type_) is not None)
