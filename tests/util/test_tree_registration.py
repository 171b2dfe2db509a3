"""Registration of node types: classes, dataclasses, static nodes, `Partial`."""

import dataclasses
import pickle
from collections import namedtuple
from functools import partial

import numpy as np
import pytest

from tests.util.tree_cases import Layer, Pair, paths
from weft._engine.util import tree as T


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
