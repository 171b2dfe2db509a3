"""Trees as vectors and back."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.flatten_util import ravel_pytree

TREE = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": (np.float32(7), np.array([8, 9], np.int32)),
}


def test_there_and_back():
    vector, back = ravel_pytree(TREE)
    assert vector.dtype == np.float32
    np.testing.assert_array_equal(np.asarray(vector), [7, 8, 9, 0, 1, 2, 3, 4, 5])  # keys in order
    again = back(vector * 2)
    np.testing.assert_array_equal(np.asarray(again["w"]), TREE["w"] * 2)
    assert again["b"][0].shape == () and again["b"][1].dtype == np.int32
    np.testing.assert_array_equal(np.asarray(again["b"][1]), [16, 18])


def test_an_empty_tree():
    vector, back = ravel_pytree({})
    assert vector.shape == (0,) and back(vector) == {}


def test_a_vector_of_another_size_is_refused():
    _, back = ravel_pytree(TREE)
    with pytest.raises(ValueError, match=r"\(4,\)"):
        back(np.zeros(4, np.float32))


def test_unravelling_is_linear_for_derivatives():
    vector, back = ravel_pytree(TREE["w"])
    gradient = weft.grad(lambda v: (back(v) * TREE["w"]).sum())(vector)
    np.testing.assert_array_equal(np.asarray(gradient), np.arange(6))


def test_unravel_is_equal_for_equal_trees_and_checks_dtype():
    vector, back = ravel_pytree(TREE)
    assert back == ravel_pytree(TREE)[1] and hash(back) == hash(ravel_pytree(TREE)[1])
    with pytest.raises(TypeError, match="expected dtype float32"):
        back(vector < 3)


def test_leaves_of_one_dtype_come_back_in_that_of_the_vector():
    vector, back = ravel_pytree([TREE["w"], TREE["b"][0]])
    matrix, number = back(vector < 3)
    assert matrix.dtype == number.dtype == np.bool_
    np.testing.assert_array_equal(np.asarray(matrix), TREE["w"] < 3)


@pytest.mark.parametrize("transform", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_structs_are_raveled_to_a_struct(transform):
    def restored(tree):
        structs = weft.tree.map(lambda x: weft.ShapeDtypeStruct(x.shape, x.dtype), tree)
        vector, unravel = ravel_pytree(structs)
        assert (vector.shape, vector.dtype) == ((5,), np.float32)
        return unravel(wnp.arange(5.0))

    result = transform(restored)({"a": wnp.ones((2, 2), int), "b": wnp.ones(1)})
    assert (
        result["a"].tolist() == [[0, 1], [2, 3]]
        and result["a"].dtype == np.int32
        and result["b"].tolist() == [4.0]
    )
