"""Node types and pytrees of every kind."""

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
from typing import NamedTuple

from weft._engine.util import tree as T

Point = namedtuple("Point", "x y")


class Pair:
    def __init__(self, x, y, tag="t"):
        self.x, self.y, self.tag = x, y, tag

    def __eq__(self, other):
        return type(other) is Pair and (self.x, self.y, self.tag) == (other.x, other.y, other.tag)


T.register_pytree_node(
    Pair, lambda p: ((p.x, p.y), p.tag), lambda tag, children: Pair(*children, tag)
)


@T.register_pytree_with_keys_class
class Keyed:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten_with_keys(self):
        return ((T.GetAttrKey("a"), self.a), (T.GetAttrKey("b"), self.b)), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)

    def __eq__(self, other):
        return type(other) is Keyed and (self.a, self.b) == (other.a, other.b)


@T.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    b: object
    name: str = T.static(default="layer")


class SubPoint(Point):
    pass


class Typed(NamedTuple):
    left: object
    right: object = None


TREES = [
    (1, "*", [1]),
    (None, "None", []),
    ((), "()", []),
    ([], "[]", []),
    ({}, "{}", []),
    ((1,), "(*,)", [1]),
    ((1, 2), "(*, *)", [1, 2]),
    ([1, (2, None)], "[*, (*, None)]", [1, 2]),
    ({"b": 1, "a": 2}, "{'a': *, 'b': *}", [2, 1]),
    ({3: 1, 1: (2,)}, "{1: (*,), 3: *}", [2, 1]),
    (OrderedDict(z=1, y=2), "CustomNode(OrderedDict[('z', 'y')], [*, *])", [1, 2]),
    (defaultdict(list, q=1), "CustomNode(defaultdict[(<class 'list'>, ('q',))], [*])", [1]),
    (Point(1, (2, 3)), "CustomNode(namedtuple[Point], [*, (*, *)])", [1, 2, 3]),
    (SubPoint(1, 2), "CustomNode(namedtuple[SubPoint], [*, *])", [1, 2]),
    (Typed(1), "CustomNode(namedtuple[Typed], [*, None])", [1]),
    (Pair(1, [2]), "CustomNode(Pair[t], [*, [*]])", [1, 2]),
    (Keyed({"k": 1}, 2), "CustomNode(Keyed[None], [{'k': *}, *])", [1, 2]),
    (Layer(1, 2, "first"), "CustomNode(Layer[('first',)], [*, *])", [1, 2]),
    ("text", "*", ["text"]),
]
IDS = [text for _, text, _ in TREES]


class Probe:
    """A node that counts how often it is flattened, and fails on request."""

    taken = 0

    def __init__(self, x, aux=(1, "a"), fails=False):
        self.x, self.aux, self.fails = x, aux, fails

    def take(self):
        Probe.taken += 1
        if self.fails:
            raise RuntimeError("told to")
        return (child for child in (self.x, None)), self.aux


T.register_pytree_node(Probe, Probe.take, lambda aux, children: Probe(children[0], aux))


def call_specialized(f, *arguments):
    """Return the result of a call after specialized code exists for the structure of its trees."""
    for _ in range(60):
        f(*arguments)
    return f(*arguments)


def paths(tree, **kwargs):
    return {T.keystr(path): leaf for path, leaf in T.tree_leaves_with_path(tree, **kwargs)}
