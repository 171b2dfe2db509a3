"""Pytrees: flattening and unflattening, structures as objects, laws of random trees."""

import pickle
from collections import OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.util.tree_cases import IDS, TREES, Layer, Pair, Point
from weft._engine.util import tree as T
from weft._engine.util.trees.treedef import PyTreeDef


@pytest.mark.parametrize("tree, text, leaves", TREES, ids=IDS)
def test_flatten_print_and_rebuild(tree, text, leaves):
    flat, treedef = T.tree_flatten(tree)
    assert flat == leaves
    assert str(treedef) == f"PyTreeDef({text})"
    assert treedef.num_leaves == len(leaves)
    rebuilt = treedef.unflatten(flat)
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
    """If all children are leaves, they are not inspected one by one."""
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


@pytest.mark.parametrize("leaves", [[1], [1, 2, 3], []])
def test_unflatten_wants_the_exact_number_of_leaves(leaves):
    with pytest.raises(ValueError, match=rf"takes 2 leaves, got {len(leaves)}"):
        T.tree_unflatten(T.tree_structure((0, 0)), leaves)


def test_unflatten_takes_any_iterable():
    assert T.tree_unflatten(T.tree_structure((0, [0])), (x for x in "ab")) == ("a", ["b"])


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


def test_one_level():
    assert T.flatten_one_level({"b": 1, "a": (2,)}) == (((2,), 1), ("a", "b"))
    assert T.flatten_one_level(None) == ((), None)
    assert T.flatten_one_level_with_keys([1]) == (((T.SequenceKey(0), 1),), None)
    with pytest.raises(ValueError, match=r"tree-flatten type: .*int"):
        T.flatten_one_level(1)
    assert T.is_tree_node(Pair)
    assert not T.is_tree_node(str)
    assert T.default_registry.flatten([1])[0] == [1]


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
