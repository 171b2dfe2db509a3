"""Key paths of pytrees."""

import pickle
from collections import OrderedDict, defaultdict

import pytest

from tests.util.tree_cases import TREES, Keyed, Layer, Pair, Point, paths
from weft._engine.util import tree as T


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
    entries = paths([1, (2, (3,))], is_leaf=lambda path, x: len(path) == 1, is_leaf_takes_path=True)
    assert entries == {"[0]": 1, "[1]": (2, (3,))}


def test_keys_of_different_kinds_have_different_hashes():
    assert hash(T.FlattenedIndexKey(1)) != hash(T.SequenceKey(1))
    assert hash(T.FlattenedIndexKey(1)) == hash(T.FlattenedIndexKey(1))
