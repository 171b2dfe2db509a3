"""Maps, reductions, transposition and prefixes of pytrees."""

from collections import OrderedDict

import pytest

from tests.util.tree_cases import Keyed, Pair, Point
from weft._engine.util import tree as T


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
    ({"a": 1}, OrderedDict(a=1), ["dict with keys 'a'", "OrderedDict of length 1"]),
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
    assert "dict with 21 keys, among them 'extra'" in message
    assert "(without 'extra')" in message


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
