"""Pytrees: structures, mapping, prefixes, key paths, registration."""

import dataclasses
import pickle
from collections import OrderedDict, defaultdict, deque, namedtuple
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

from weft._engine.util import tree as T
from weft._engine.util.trees.treedef import PyTreeDef

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


@pytest.mark.parametrize("tree, text, leaves", TREES, ids=IDS)
def test_flatten_print_and_rebuild(tree, text, leaves):
    found, treedef = T.tree_flatten(tree)
    assert found == leaves
    assert str(treedef) == f"PyTreeDef({text})"
    assert treedef.num_leaves == len(leaves)
    rebuilt = treedef.unflatten(found)
    assert rebuilt == tree
    assert type(rebuilt) is type(tree)


@pytest.mark.parametrize("tree, text, leaves", TREES, ids=IDS)
def test_structure_is_a_value(tree, text, leaves):
    treedef = T.tree_structure(tree)
    again = T.tree_structure(T.tree_map(lambda x: x, tree))
    assert treedef == again
    assert hash(treedef) == hash(again)
    copy = pickle.loads(pickle.dumps(treedef))
    assert copy == treedef
    assert copy.unflatten(leaves) == tree
    assert PyTreeDef.from_node_data_and_children(treedef.node_data(), treedef.children()) == treedef
    assert treedef.num_nodes == 1 + sum(child.num_nodes for child in treedef.children())


def test_structures_differ_by_type_static_data_keys_and_shape():
    different = [(0, 0), [0, 0], Point(0, 0), {"a": 0, "b": 0}, {"a": 0, "c": 0}, (0, (0,)), (0, None), (0,), None,
                 Pair(0, 0), Pair(0, 0, "u"), OrderedDict(a=0, b=0), OrderedDict(b=0, a=0), defaultdict(int, a=0, b=0),
                 defaultdict(list, a=0, b=0), Layer(0, 0, "x"), Layer(0, 0, "y"), 0]  # fmt: skip
    structures = [T.tree_structure(tree) for tree in different]
    assert len(set(structures)) == len(different)
    assert all(
        (a == b) == (i == j) for i, a in enumerate(structures) for j, b in enumerate(structures)
    )
    assert structures[0] != 3


def test_static_data_that_cannot_be_compared():
    arrays = [T.tree_structure([Pair(0, 0, np.arange(3))]) for _ in range(2)]
    assert hash(arrays[0]) == hash(arrays[1])
    with pytest.raises(ValueError, match="must compare to true or false"):
        assert arrays[0] == arrays[1]


def test_dict_children_are_sorted_by_key():
    assert T.tree_structure({"a": 1, "b": 2}) == T.tree_structure({"b": 1, "a": 2})
    assert list(T.tree_map(lambda x: x, {"b": 1, "a": 2})) == ["a", "b"]
    assert list(T.tree_map(lambda x: x, OrderedDict(b=1, a=2))) == ["b", "a"]


def test_defaultdict_keeps_its_factory():
    tree = T.tree_map(lambda x: x + 1, defaultdict(lambda: 7, a=1))
    assert tree["a"] == 2
    assert tree["missing"] == 7


def test_keys_that_cannot_be_sorted():
    with pytest.raises(ValueError, match="sorted together"):
        T.tree_leaves({1: 1, "a": 2})


def test_types_that_are_not_registered_are_leaves():
    for leaf in (deque([1]), {1, 2}, object(), float, iter([1])):
        assert T.tree_leaves(leaf) == [leaf]


def test_a_type_seen_as_a_leaf_can_still_be_registered():
    class Late:
        pass

    late = Late()
    assert T.tree_leaves([late]) == [late]
    T.register_pytree_node(Late, lambda x: ((1, 2), None), lambda aux, children: Late())
    assert T.tree_leaves([late]) == [1, 2]


def test_a_namedtuple_can_be_registered_with_rules_of_its_own():
    Special = namedtuple("Special", "data meta")
    assert T.tree_leaves(Special(1, 2)) == [1, 2]
    T.register_pytree_node(
        Special, lambda s: ((s.data,), s.meta), lambda meta, children: Special(children[0], meta)
    )
    assert T.tree_leaves(Special(1, 2)) == [1]


def test_none_is_a_node_unless_is_leaf_says_otherwise():
    assert T.tree_leaves([1, None]) == [1]
    assert T.tree_leaves([1, None], is_leaf=lambda x: x is None) == [1, None]
    assert T.tree_map(lambda x, y: (x, y), [1, None], [2, 3], is_leaf=lambda x: x is None) == [
        (1, 2),
        (None, 3),
    ]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 300])
@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        lambda xs: dict(zip(map(str, range(300)), xs)),
        namedtuple("Wide", [f"f{i}" for i in range(300)]),
    ],
)
@pytest.mark.parametrize("other", [None, (1, {"a": 2}), "leaf"])
def test_wide_nodes_are_flattened_as_narrow_ones(make, other, count):
    """Where all children are leaves, they are not inspected one by one."""
    if hasattr(make, "_fields"):
        count, make = 300, make._make
    for at in (None, 0, count - 1):
        value = make([other if i == at else i for i in range(count)])
        leaves, treedef = T.tree_flatten(value)
        assert (leaves, treedef) == T.tree_flatten(value, is_leaf=lambda x: False)
        assert treedef.num_leaves == len(leaves) and T.tree_unflatten(treedef, leaves) == value


def test_is_leaf_stops_at_nodes():
    tree = [1, (2, 3), {"a": (4,)}]
    assert T.tree_leaves(tree, is_leaf=lambda x: isinstance(x, tuple)) == [1, (2, 3), (4,)]
    assert T.tree_leaves(tree, is_leaf=lambda x: True) == [tree]


# ---- unflatten


@pytest.mark.parametrize("leaves", [[1], [1, 2, 3], []])
def test_unflatten_wants_the_exact_number_of_leaves(leaves):
    with pytest.raises(ValueError, match=rf"takes 2 leaves, got {len(leaves)}"):
        T.tree_unflatten(T.tree_structure((0, 0)), leaves)


def test_unflatten_takes_any_iterable():
    assert T.tree_unflatten(T.tree_structure((0, [0])), (x for x in "ab")) == ("a", ["b"])


@pytest.mark.parametrize("tree, text, leaves", TREES, ids=IDS)
def test_structures_that_are_used_often_rebuild_the_same(tree, text, leaves):
    treedef = T.tree_structure(tree)
    for _ in range(40):
        rebuilt = treedef.unflatten(leaves)
        assert rebuilt == tree
        assert type(rebuilt) is type(tree)
    with pytest.raises(ValueError, match="leaves, got"):
        treedef.unflatten([*leaves, 0])
    first, second = treedef.unflatten(leaves), treedef.unflatten(leaves)
    assert first is not second or not isinstance(tree, (list, dict, Pair))


@pytest.mark.parametrize("tree, text, leaves", TREES, ids=IDS)
def test_specialized_structures_flatten_trees_equally(tree, text, leaves):
    others = [other for other, its_text, _ in TREES if its_text not in (text, "*")]
    treedef = T.tree_structure(tree)
    for _ in range(20 + len(leaves)):
        assert treedef.flatten_up_to(tree) == leaves
    assert (
        treedef.match(tree) == leaves == T.tree_structure(tree).match(tree)
    )  # structures that are equal share it
    wider = treedef.unflatten([[leaf, leaf] for leaf in leaves])
    assert treedef.flatten_up_to(wider) == treedef.match(wider) == [[leaf, leaf] for leaf in leaves]
    for other in others if text != "*" else ():
        assert treedef.match(other) is None
        with pytest.raises(ValueError):
            treedef.flatten_up_to(other)


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


@pytest.mark.parametrize("tree, text, leaves", TREES, ids=IDS)
def test_trees_that_are_mapped_often_are_mapped_the_same(tree, text, leaves):
    wide = [tree] * 9
    pairs, treedef = T.tree_flatten_with_path(wide)
    assert call_specialized(T.tree_map, lambda x: x, wide) == wide
    assert call_specialized(T.tree_map, lambda x, y: (x, y), wide, wide) == treedef.unflatten(
        [(leaf, leaf) for _, leaf in pairs]
    )
    assert call_specialized(T.tree_flatten_with_path, wide) == (pairs, treedef)
    assert [T.tree_map(lambda x: x, [other] * 9) for other, _, _ in TREES] == [
        [other] * 9 for other, _, _ in TREES
    ]
    assert T.tree_map(lambda x: [x], [*wide, 1]) == [
        *treedef.unflatten([[leaf] for _, leaf in pairs]),
        [1],
    ]


@pytest.mark.parametrize(
    "first, then", [(1, True), (True, 1), (0.0, -0.0), ((1,), (True,)), (1, 2)]
)
def test_trees_keep_their_own_static_data(first, then):
    """With equal but distinct static data, structures are equal, and unflattening restores the
    original data."""
    for make in (lambda data: [Pair(1, 2, data)] * 9, lambda data: [Layer(1, 2, data)] * 9):
        call_specialized(T.tree_map, lambda x: x, make(first))
        [rebuilt, *_] = T.tree_map(lambda x: x, make(then))
        assert repr(vars(rebuilt)) == repr(vars(make(then)[0]))
    call_specialized(T.tree_map, lambda x: x, [{first: 1}] * 9)
    assert repr(T.tree_map(lambda x: x, [{then: 1}] * 9)) == repr([{then: 1}] * 9)


def test_leaves_that_became_trees_are_taken_apart():
    call_specialized(T.tree_map, lambda x: x, {"a": list(range(9))})
    assert T.tree_map(lambda x: -x, {"a": [*range(8), {"b": 8}]}) == {
        "a": [*range(0, -8, -1), {"b": -8}]
    }
    assert T.tree_map(lambda x: -x, {"a": [*range(8), None]}) == {"a": [*range(0, -8, -1), None]}
    assert T.tree_flatten_with_path({"a": [*range(8), (8,)]})[0][-1] == (
        (T.DictKey("a"), T.SequenceKey(8), T.SequenceKey(0)),
        8,
    )


def test_the_users_functions_run_once_for_each_tree():
    treedef = T.tree_structure([Probe(1), Probe(2)])
    for _ in range(20):
        treedef.flatten_up_to([Probe(1), Probe(2)])
    Probe.taken = 0
    assert treedef.flatten_up_to([Probe(3), Probe([4])]) == [3, [4]]
    assert Probe.taken == 2
    with pytest.raises(
        ValueError, match=r"Probe nodes differ in their static data: expected \(1, 'a'\), got 3"
    ):
        treedef.flatten_up_to([Probe(3), Probe(4, 3)])
    with pytest.raises(RuntimeError, match="told to"):
        treedef.flatten_up_to([Probe(3), Probe(4, fails=True)])
    assert T.tree_map(lambda x, y: (x, y), [Probe(1), Probe(2)], [Probe(3), Probe([4])])[1].x == (
        2,
        [4],
    )


def test_static_data_that_cannot_be_compared_or_hashed():
    for aux, other in (([1], [1]), (np.arange(3), np.arange(3))):
        treedef = T.tree_structure(Probe(1, aux))
        for _ in range(40):
            assert T.tree_structure(Probe(1, aux)).match(Probe(1, aux)) is None
            assert treedef.unflatten([2]).aux is aux
        assert treedef.match(Probe(2, aux)) == [2]
        assert treedef.match(Probe(2, other)) == (
            [2] if aux is not other and type(aux) is list else None
        )


def test_a_static_value_that_equals_another_stays_what_it_is():
    for value in (1, True):
        for _ in range(40):
            assert T.tree_map(lambda x, y: x + y, Layer(1, 2, value), Layer(1, 2, 1)).name is value
            assert (
                next(iter(T.tree_map(lambda x: [x], {value: (Probe(1, value), Typed(2))}))) is value
            )
            assert (
                T.tree_map(lambda x: [x], {value: (Probe(1, value), Typed(2))})[1][0].aux is value
            )


def test_structures_too_deep_or_too_wide_for_a_builder():
    deep = 0
    for _ in range(300):
        deep = [deep]
    wide = list(range(5000))
    for tree in (deep, wide):
        leaves, treedef = T.tree_flatten(tree)
        for _ in range(40):
            assert treedef.unflatten(leaves) == tree
            assert treedef.flatten_up_to(tree) == leaves


def test_unflatten_gives_custom_nodes_a_tuple_of_children():
    seen = []

    class Probe:
        pass

    T.register_pytree_node(
        Probe, lambda p: ([1, 2], None), lambda aux, children: seen.append(children)
    )
    T.tree_map(lambda x: x, Probe())
    assert seen == [(1, 2)]


# ---- map, reduce and friends


def test_map_over_several_trees():
    assert T.tree_map(
        lambda x, y, z: x + y * z, {"a": 1, "b": [2]}, {"a": 3, "b": [4]}, {"b": [5], "a": 6}
    ) == {
        "a": 19,
        "b": [22],
    }


def test_rest_trees_may_go_deeper():
    assert T.tree_map(lambda x, y: y, (0, {"a": 0}), ([1, 2], {"a": None})) == ([1, 2], {"a": None})
    assert T.tree_map(lambda x, y: y, 0, {1: 1, "a": 2}) == {
        1: 1,
        "a": 2,
    }  # not flattened, so keys need no order


MISMATCHES = [
    ((1, 2), (1, 2, 3), ["at first:", "tuple of length 2", "tuple of length 3"]),
    ((1, 2), [1, 2], ["at first:", "tuple of length 2", "list of length 2"]),
    ({"a": 1}, {"b": 1}, ["dict with keys 'a'", "dict with keys 'b'"]),
    ({"a": [1, (2, 3)]}, {"a": [1, (2,)]}, ["at first['a'][1]:"]),
    (None, 3, ["None", "a leaf of type int"]),
    ((1, None), (1, [2]), ["at first[1]:", "None", "list of length 1"]),
    (Point(1, 2), (1, 2), ["Point of length 2", "tuple of length 2"]),
    (Point((1,), 2), Point([1], 2), ["at first.x:"]),
    ({"a": 1}, OrderedDict(a=1), ["dict of length 1", "OrderedDict of length 1"]),
    (
        OrderedDict(a=1, b=2),
        OrderedDict(b=1, a=2),
        ["static data ('a', 'b')", "static data ('b', 'a')"],
    ),
    (Pair(1, 2, "s"), Pair(1, 2, "t"), ["static data 's'", "static data 't'"]),
    (Keyed(1, [2]), Keyed(1, [2, 3]), ["at first.b:"]),
    (Pair(1, [2]), Pair(1, 2), ["at first[<flat index 1>]:"]),
]


@pytest.mark.parametrize("first, other, words", MISMATCHES)
def test_trees_that_do_not_fit(first, other, words):
    message = T.prefix_errors(first, other, prefix_name="first", full_name="other")
    for word in words:
        assert word in message
    with pytest.raises(
        ValueError, match="tree_map: pytree structure error: the other tree does not fit the first"
    ):
        T.tree_map(lambda x, y: x, first, other)
    with pytest.raises(ValueError):
        T.tree_structure(first).flatten_up_to(other)
    with pytest.raises(
        ValueError,
        match=r"pytree structure error: .*does not fit its prefix\. Mismatch details \(1 found\)",
    ):
        T.broadcast_prefix(first, other)


def test_the_message_says_which_tree_does_not_fit():
    with pytest.raises(ValueError, match="tree 2 of 2 after the first"):
        T.tree_map(lambda *xs: xs, (1, 2), (3, 4), (5,))


def test_every_place_of_mismatch_is_reported():
    message = T.prefix_errors({"a": (1, 2), "b": [1]}, {"a": (1,), "b": (1,)})
    assert "at prefix['a']" in message
    assert "at prefix['b']" in message


def test_a_prefix_gives_no_message():
    assert T.prefix_errors((1, {"a": 2}), ([1, 2], {"a": None})) == ""


def test_many_keys_are_shortened_to_those_that_differ():
    keys = [f"k{i:02}" for i in range(20)]
    message = T.prefix_errors(dict.fromkeys([*keys, "extra"]), dict.fromkeys(keys))
    assert "only here: 'extra'" in message
    assert "'k05'" not in message


def test_reduce_all_and_all_leaves():
    tree = {"a": 1, "b": (2, [3, None])}
    assert T.tree_reduce(lambda x, y: x + y, tree) == 6
    assert T.tree_reduce(lambda x, y: x + y, tree, 10) == 16
    assert T.tree_reduce(lambda x, y: x + y, tree, initializer=10) == 16
    assert T.tree_reduce(lambda x, y: x + [y], (1, (2,)), []) == [1, 2]
    with pytest.raises(TypeError):
        T.tree_reduce(lambda x, y: x, [])
    assert T.tree_all({"a": True, "b": [1]})
    assert not T.tree_all({"a": True, "b": [0]})
    assert not T.tree_all([], is_leaf=lambda x: True)
    assert T.all_leaves([1, "a", object()])
    assert not T.all_leaves([1, None])
    assert T.all_leaves([(1,)], is_leaf=lambda x: isinstance(x, tuple))


@pytest.mark.parametrize("n", range(1, 9))
def test_associative_reduction_keeps_the_order(n):
    letters = "abcdefgh"[:n]
    assert T.tree_reduce_associative(lambda x, y: x + y, list(letters)) == letters


def test_associative_reduction_of_nothing():
    assert T.tree_reduce_associative(max, [], identity=0) == 0
    with pytest.raises(TypeError, match="identity"):
        T.tree_reduce_associative(max, [])


def test_transpose():
    outer, inner = T.tree_structure({"a": 0, "b": 0}), T.tree_structure((0, [0]))
    tree = {"a": (1, [2]), "b": (3, [4])}
    assert T.tree_transpose(outer, inner, tree) == ({"a": 1, "b": 3}, [{"a": 2, "b": 4}])
    assert T.tree_transpose(outer, None, tree) == ({"a": 1, "b": 3}, [{"a": 2, "b": 4}])
    with pytest.raises(TypeError, match="Mismatch"):
        T.tree_transpose(outer, T.tree_structure([0, 0]), tree)
    with pytest.raises(ValueError, match="at least one leaf"):
        T.tree_transpose(outer, T.tree_structure(()), tree)


# ---- structures as objects


def test_flatten_up_to():
    treedef = T.tree_structure({"a": 0, "b": (0, None)})
    assert treedef.flatten_up_to({"b": ([1, 2], None), "a": {"x": 3}}) == [{"x": 3}, [1, 2]]
    assert T.tree_structure(0).flatten_up_to((1, 2)) == [(1, 2)]


def test_compose_and_tuples():
    outer, inner = T.tree_structure((0, [0])), T.tree_structure({"a": 0, "b": None})
    composed = outer.compose(inner)
    assert composed == T.tree_structure(({"a": 0, "b": None}, [{"a": 0, "b": None}]))
    assert composed.num_leaves == 2
    both = T.treedef_tuple([outer, inner])
    assert both == T.tree_structure(((0, [0]), {"a": 0, "b": None}))
    assert T.treedef_children(both) == [outer, inner]
    assert T.treedef_is_leaf(T.tree_structure(1))
    assert not T.treedef_is_leaf(both)


def test_walk_folds_from_the_leaves_up():
    leaves, treedef = T.tree_flatten([1, (2, 3)])
    assert treedef.walk(lambda children, data: sum(children), lambda x: 10 * x, leaves) == 60
    assert treedef.walk(lambda children, data: children, None, leaves) == (1, (2, 3))


def test_build_tree_from_nested_iterables():
    treedef = T.tree_structure((0, {"a": [0, 0], "b": None}))
    assert T.build_tree(treedef, [1, [[2, 3], None]]) == (1, {"a": [2, 3], "b": None})
    with pytest.raises(ValueError, match="takes 2 children, got 1"):
        T.build_tree(treedef, [1, [[2], None]])


def test_one_level_of_each_container():
    Pair = namedtuple("Pair", "x y")
    assert T.flatten_one_level(Pair(1, (2,))) == ([1, (2,)], Pair)
    assert T.flatten_one_level(OrderedDict(b=1, a=2)) == ([1, 2], ("b", "a"))
    assert T.flatten_one_level(defaultdict(int, a=2)) == ([2], (int, ("a",)))
    assert T.flatten_one_level((1, [2])) == ((1, [2]), None) and T.flatten_one_level([1]) == (
        [1],
        None,
    )


class Cached:
    """A node that holds the leaves of a tree and its structure."""

    def __init__(self, tree):
        self.leaves, self.structure = T.tree_flatten(tree)

    def __eq__(self, other):
        return (self.leaves, self.structure) == (other.leaves, other.structure)


T.register_pytree_node(
    Cached,
    lambda c: (c.leaves, c.structure),
    lambda structure, leaves: Cached(T.tree_unflatten(structure, leaves)),
)


@pytest.mark.parametrize(
    "outer, tree, transposed",
    [
        (
            Cached({"a": 0, "b": 0}),
            Cached({"a": [1, 2], "b": [3, 4]}),
            [Cached({"a": 1, "b": 3}), Cached({"a": 2, "b": 4})],
        ),
        ((0, Cached((0,))), ([1, 2], Cached(([3, 4],))), [(1, Cached((3,))), (2, Cached((4,)))]),
    ],
)
def test_transpose_of_nodes_that_take_their_children_apart(outer, tree, transposed):
    assert T.tree_transpose(T.tree_structure(outer), T.tree_structure([0, 0]), tree) == transposed


@pytest.mark.parametrize(
    "tree",
    [
        Cached({"a": [1, 2], "b": 3}),
        {"a": [1, 2], "b": [3, 4]},
        (Cached([1, 2]), Cached([3, 4])),
        Cached([1, 2, 3, 4, 5]),
    ],
)
def test_what_does_not_transpose(tree):
    with pytest.raises(TypeError, match="Mismatch"):
        T.tree_transpose(T.tree_structure(Cached({"a": 0, "b": 0})), T.tree_structure([0, 0]), tree)


def test_one_level():
    assert T.flatten_one_level({"b": 1, "a": (2,)}) == (((2,), 1), ("a", "b"))
    assert T.flatten_one_level(None) == ((), None)
    assert T.flatten_one_level_with_keys([1]) == (((T.SequenceKey(0), 1),), None)
    with pytest.raises(ValueError, match=r"tree-flatten type: .*int"):
        T.flatten_one_level(1)
    assert T.is_tree_node(Pair)
    assert not T.is_tree_node(str)
    assert T.default_registry.flatten([1])[0] == [1]


# ---- prefixes


def test_broadcast_prefix():
    assert T.broadcast_prefix(1, {"a": [0, 0], "b": None}) == [1, 1]
    assert T.broadcast_prefix((1, None), ((0, 0), None)) == [1, 1]
    assert T.broadcast_prefix((1, None), (0, [0, 0]), is_leaf=lambda x: x is None) == [
        1,
        None,
        None,
    ]
    assert T.broadcast_prefix((1, None), ((None, 0), None), is_leaf=lambda x: x is None) == [1]
    assert T.tree_broadcast((1, {"a": 2}), ([0, 0], {"a": (0, None)})) == ([1, 1], {"a": (2, None)})


# ---- key paths


def paths(tree, **kwargs):
    return {T.keystr(path): leaf for path, leaf in T.tree_leaves_with_path(tree, **kwargs)}


def test_key_paths():
    tree = [
        1,
        {"b": Point(2, 3), "a": OrderedDict(z=4)},
        Pair(5, 6),
        Keyed(7, 8),
        Layer(9, 10),
        defaultdict(int, q=11),
    ]
    assert paths(tree) == {
        "[0]": 1, "[1]['a']['z']": 4, "[1]['b'].x": 2, "[1]['b'].y": 3, "[2][<flat index 0>]": 5,
        "[2][<flat index 1>]": 6, "[3].a": 7, "[3].b": 8, "[4].w": 9, "[4].b": 10, "[5]['q']": 11,
    }  # fmt: skip
    assert paths(5) == {"": 5}


def test_paths_and_leaves_agree_with_plain_flattening():
    for tree, _, _ in TREES:
        pairs, treedef = T.tree_flatten_with_path(tree)
        leaves, expected = T.tree_flatten(tree)
        assert ([leaf for _, leaf in pairs], treedef) == (leaves, expected)


def test_keys_as_values():
    assert repr(T.DictKey("a")) == "DictKey(key='a')"
    assert str(T.GetAttrKey("a")) == ".a"
    assert {T.SequenceKey(1): 2}[T.SequenceKey(1)] == 2
    assert T.SequenceKey(1) != T.FlattenedIndexKey(1)
    assert (
        T.SequenceKey(idx=1).idx,
        T.GetAttrKey(name="w").name,
        T.FlattenedIndexKey(key=2).key,
    ) == (1, "w", 2)
    assert pickle.loads(pickle.dumps(T.GetAttrKey("w"))) == T.GetAttrKey("w")
    with pytest.raises(AttributeError):
        T.DictKey("a").key = "b"
    with pytest.raises(AttributeError):
        T.DictKey("a").other = "b"
    match T.DictKey("x"):
        case T.DictKey(key):
            assert key == "x"
    path = (T.SequenceKey(0), T.DictKey("w"), T.GetAttrKey("m"), T.FlattenedIndexKey(2))
    assert T.keystr(path) == "[0]['w'].m[<flat index 2>]"
    assert T.keystr(path, simple=True, separator="/") == "0/w/m/2"


def test_map_with_path_and_is_leaf_by_path():
    assert T.tree_map_with_path(
        lambda p, x, y: (T.keystr(p), x, y), {"a": [1]}, {"a": [(2, 3)]}
    ) == {"a": [("['a'][0]", 1, (2, 3))]}
    found = paths([1, (2, (3,))], is_leaf=lambda path, x: len(path) == 1, is_leaf_takes_path=True)
    assert found == {"[0]": 1, "[1]": (2, (3,))}


# ---- registration


def test_a_type_is_registered_once():
    for type_ in (Pair, dict, tuple, type(None), Layer):
        with pytest.raises(ValueError, match="already registered"):
            T.register_pytree_node(type_, lambda x: ((), None), lambda aux, children: None)


@pytest.mark.parametrize(
    "result, word", [(3, "got 3"), ((3, 4), "iterable, got 3"), ([1, 2], "got"), ((1, 2, 3), "got")]
)
def test_flatten_functions_that_return_something_else(result, word):
    class Wrong:
        pass

    T.register_pytree_node(Wrong, lambda x: result, lambda aux, children: None)
    with pytest.raises(
        ValueError, match=rf"flatten function of Wrong .*\(children, aux_data\) tuple.*{word}"
    ):
        T.tree_leaves(Wrong())


def test_class_decorator():
    @T.register_pytree_node_class
    class Box:
        def __init__(self, value):
            self.value = value

        def tree_flatten(self):
            return (self.value,), "aux"

        @classmethod
        def tree_unflatten(cls, aux, children):
            assert aux == "aux"
            return cls(*children)

    assert T.tree_map(lambda x: x + 1, Box(1)).value == 2


def test_static_nodes_have_no_leaves():
    @T.register_static
    class Name(str):
        pass

    leaves, treedef = T.tree_flatten({"name": Name("x"), "w": 1})
    assert leaves == [1]
    assert treedef.unflatten([2])["name"] == "x"
    assert treedef != T.tree_structure({"name": Name("y"), "w": 1})


def test_dataclass_fields_named_or_inferred():
    @dataclasses.dataclass
    class Record:
        data: int
        mode: str
        cached: int = 0
        derived: int = dataclasses.field(default=5, init=False)

    with pytest.raises(ValueError, match="'cached'"):
        T.register_dataclass(Record, data_fields=["data"], meta_fields=["mode"])
    with pytest.raises(ValueError, match="'nothing'"):
        T.register_dataclass(
            Record, data_fields=["data", "cached"], meta_fields=["mode", "nothing"]
        )
    with pytest.raises(ValueError, match=r"must not overlap.*{.data.}"):
        T.register_dataclass(Record, data_fields=["data", "cached"], meta_fields=["mode", "data"])
    with pytest.raises(TypeError, match="both"):
        T.register_dataclass(Record, data_fields=["data"])
    T.register_dataclass(Record, data_fields=["data"], meta_fields=["mode"], drop_fields=["cached"])
    mapped = T.tree_map(lambda x: x + 1, Record(1, "m", 9))
    assert (mapped.data, mapped.mode, mapped.cached) == (2, "m", 0)


def test_a_plain_class_as_dataclass_needs_its_fields():
    class Plain:
        def __init__(self, a):
            self.a = a

    with pytest.raises(TypeError, match="required"):
        T.register_dataclass(Plain)
    T.register_dataclass(Plain, ["a"], [])
    assert paths(Plain(3)) == {".a": 3}


def test_dataclass_without_children():
    @T.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class OnlyStatic:
        name: str = T.static()

    assert T.tree_leaves(OnlyStatic("a")) == []
    assert T.tree_map(lambda x: x, OnlyStatic("a")) == OnlyStatic("a")


# ---- Partial


def add(x, y, z=0):
    return x + y + z


def test_partial_is_a_tree_of_its_arguments():
    f = T.Partial(add, 1, z=2)
    assert f(3) == 6
    leaves, treedef = T.tree_flatten(f)
    assert leaves == [1, 2]
    assert treedef.unflatten([10, 20])(3) == 33
    assert T.tree_structure(T.Partial(add, 5, z=6)) == treedef
    assert T.tree_structure(T.Partial(max, 5, z=6)) != treedef
    assert pickle.loads(pickle.dumps(f))(3) == 6


@pytest.mark.parametrize("inner", [partial(add, 1), T.Partial(add, 1)])
def test_arguments_of_a_wrapped_partial_stay_static(inner):
    f = T.Partial(inner, 2)
    assert f(3) == 6
    assert T.tree_leaves(f) == [2]
    assert T.tree_map(lambda x: x * 10, f)(3) == 24


# ---- random trees

trees = st.recursive(
    st.integers(0, 9) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
        | st.tuples(inner, inner).map(lambda xy: Point(*xy))
        | st.tuples(inner, inner).map(lambda xy: Pair(*xy))
    ),
    max_leaves=12,
)


@given(trees)
def test_laws_of_random_trees(tree):
    leaves, treedef = T.tree_flatten(tree)
    assert treedef.unflatten(leaves) == tree
    assert treedef.flatten_up_to(tree) == leaves
    assert [leaf for _, leaf in T.tree_leaves_with_path(tree)] == leaves
    assert len({T.keystr(path) for path, _ in T.tree_leaves_with_path(tree)}) == len(leaves)
    assert T.tree_structure(tree, is_leaf=lambda x: False) == treedef
    assert T.prefix_errors(tree, tree) == ""
    assert T.broadcast_prefix(tree, tree) == leaves
    assert T.tree_map(lambda x, y: x - y, tree, tree) == treedef.unflatten([0] * len(leaves))
    assert pickle.loads(pickle.dumps(treedef)) == treedef


@given(trees, trees)
def test_prefix_messages_agree_with_flattening(prefix, full):
    message = T.prefix_errors(prefix, full)
    if message:
        with pytest.raises(ValueError):
            T.broadcast_prefix(prefix, full)
    else:
        assert len(T.broadcast_prefix(prefix, full)) == len(T.tree_leaves(full))


def test_cycles_end_in_an_error():
    tree = []
    tree.append(tree)
    with pytest.raises(RecursionError):
        T.tree_leaves(tree)


def test_tree_map_passes_subtrees_below_leaves_of_the_first():
    unsortable = {1: "a", "b": 2}
    got = T.tree_map(lambda x, y: (x, y), {"p": 1, "q": 2}, {"p": unsortable, "q": 3})
    assert got == {"p": (1, unsortable), "q": (2, 3)}


def test_trees_below_the_leaves_of_the_first_may_be_endless():
    class Node:
        def __init__(self):
            self.next = None

    T.register_pytree_node(Node, lambda n: ((n.next,), None), lambda _, children: Node())
    ring = Node()
    ring.next = ring
    assert T.tree_map(
        lambda a, b: b, (ring, 1), (ring, 2), is_leaf=lambda x: isinstance(x, Node)
    ) == (ring, 2)


def test_structures_as_bytes():
    for value in (1, None, [1, [2], (3,), {"a": 4, "b": None}], {1: [(), {}]}, ()):
        structure = T.tree_structure(value)
        assert (
            PyTreeDef.deserialize_using_proto(T.default_registry, structure.serialize_using_proto())
            == structure
        )
    with pytest.raises(ValueError, match=r"OrderedDict.*cannot be written as bytes"):
        T.tree_structure(OrderedDict(a=1)).serialize_using_proto()
    with pytest.raises(ValueError):
        PyTreeDef.deserialize_using_proto(None, b"no structure")


Other = namedtuple("Other", "x y")


class Custom:
    def __init__(self, *parts):
        self.parts = parts


T.register_pytree_node(
    Custom, lambda custom: (list(custom.parts), None), lambda aux, children: Custom(*children)
)


@pytest.mark.parametrize("first, other, words", [
    (Point(1, 2), (1, 2), "Expected named tuple"), (Point(1, 2), Other(1, 2), "Named tuple type mismatch"),
    (Custom(1), (1,), "Custom node type mismatch"), ((1,), Custom(1), "Expected tuple"),
])  # fmt: skip
def test_messages_name_the_kind_of_node_expected(first, other, words):
    with pytest.raises(ValueError, match=words):
        T.tree_structure(first).flatten_up_to(other)


def test_one_level_gives_children_as_they_are_kept():
    assert T.flatten_one_level([1, (2,)]) == ([1, (2,)], None)
    assert T.flatten_one_level((1, 2)) == ((1, 2), None)
    assert T.flatten_one_level(Custom(1, 2)) == ([1, 2], None)
    children = [1, 2]
    T.flatten_one_level(children)[0].append(3)
    assert children == [1, 2]
    with pytest.raises(ValueError, match="can't tree-flatten type: <class 'int'>"):
        T.flatten_one_level(1)


@pytest.mark.parametrize("leaf", [1, 2.0, "text", np.ones(2), object()])
def test_registry_gives_none_for_a_leaf(leaf):
    assert T.default_registry.flatten_one_level(leaf) is None
    assert T.default_registry.flatten_one_level_with_keys(leaf) is None


def test_registry_flattens_nodes():
    assert (
        T.default_registry.flatten_one_level({"a": 1})
        == T.flatten_one_level({"a": 1})
        == ((1,), ("a",))
    )
    assert T.default_registry.flatten_one_level(None) == ((), None)
    point = namedtuple("point", "a b")
    keyed, aux = T.default_registry.flatten_one_level_with_keys(point(1, 2))
    assert keyed == ((T.GetAttrKey("a"), 1), (T.GetAttrKey("b"), 2)) and aux is point


def test_walk_gives_the_keys_of_dicts_as_a_list():
    seen = []
    T.tree_structure({"b": 1, "a": (2,)}).walk(
        lambda children, data: seen.append(data), None, [1, 2]
    )
    assert seen == [None, ["a", "b"]]


def test_keys_of_different_kinds_have_different_hashes():
    assert hash(T.FlattenedIndexKey(1)) != hash(T.SequenceKey(1))
    assert hash(T.FlattenedIndexKey(1)) == hash(T.FlattenedIndexKey(1))


def test_a_wrapped_partial_equals_what_it_wraps():
    function = partial(print, 1)
    wrapped = T.Partial(function, 2).func
    assert wrapped == function and function == wrapped and wrapped != partial(print, 1)
    assert hash(wrapped) == hash(function)


def test_metadata_of_a_field_may_say_that_it_is_not_static():
    assert T.static(metadata={"static": False, "unit": "m"}).metadata == {
        "static": False,
        "unit": "m",
    }
    assert T.static(default=3, metadata={"unit": "m"}).metadata == {"static": True, "unit": "m"}


def test_static_data_that_are_made_anew_are_looked_for_once():
    """Where the data are equal but never identical, the user's functions run as often as for a tree
    that is flattened once."""
    make = lambda: [Probe(1, (len("ab"), "a")) for _ in range(9)]
    for _ in range(2):
        call_specialized(T.tree_map, lambda x: x, make())
        T.tree_map(lambda x: x, make())
    Probe.taken = 0
    T.tree_flatten(make())
    alone = Probe.taken
    T.tree_map(lambda x: x, make())
    assert Probe.taken == 2 * alone > 0
