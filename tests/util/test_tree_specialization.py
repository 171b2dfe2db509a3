"""Functions specialized to frequent pytree structures equal the general ones."""

import numpy as np
import pytest

from tests.util.tree_cases import IDS, TREES, Layer, Pair, Probe, Typed, call_specialized
from weft._engine.util import tree as T


@pytest.mark.parametrize("tree, text, leaves", TREES, ids=IDS)
def test_structures_that_are_used_often_rebuild_the_same(tree, text, leaves):
    treedef = T.tree_structure(tree)
    for _ in range(40):
        rebuilt = treedef.unflatten(leaves)
        assert rebuilt == tree
        assert type(rebuilt) is type(tree)
    with pytest.raises(ValueError, match=r"lea(f|ves), got"):
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


def test_static_data_that_are_made_anew_are_looked_for_once():
    """If the data are equal but never identical, the user's functions run as often as for a tree
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
