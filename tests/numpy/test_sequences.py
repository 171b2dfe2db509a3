"""Sequences other than list and tuple, and objects with `__array__` inside lists, in place of
arrays."""

from collections import UserList, deque

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import tree_util


@tree_util.register_pytree_node_class
class Blocks:
    """A pytree of arrays that reports their shapes."""

    def __init__(self, parts):
        self.parts = list(parts)

    shape = property(lambda self: tuple(p.shape for p in self.parts))

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, i):
        return self.parts[i]

    def tree_flatten(self):
        return self.parts, None

    @classmethod
    def tree_unflatten(cls, _, parts):
        return cls(parts)


class BlockArray(Blocks):
    """Blocks that also have an array's properties."""

    dtype = property(lambda self: self.parts[0].dtype)
    ndim = property(lambda self: tuple(p.ndim for p in self.parts))


tree_util.register_pytree_node(
    BlockArray, lambda x: (x.parts, None), lambda _, parts: BlockArray(parts)
)


class Iterable:
    def __init__(self, parts):
        self.parts = parts

    def __iter__(self):
        return iter(self.parts)


class Matrix:
    """An object that NumPy can read."""

    def __array__(self, dtype=None, copy=None):
        return np.eye(2, dtype=dtype)

    def __len__(self):
        return 2


JOINS = {
    "concatenate": (4,),
    "stack": (2, 2),
    "hstack": (4,),
    "vstack": (2, 2),
    "dstack": (1, 2, 2),
    "column_stack": (2, 2),
}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("sort", [Blocks, BlockArray, Iterable, UserList, deque])
def test_joins_take_any_sequence(join, sort):
    parts = [wnp.ones(2), wnp.zeros(2)]
    result = getattr(wnp, join)(sort(parts))
    np.testing.assert_array_equal(result, getattr(np, join)([np.ones(2), np.zeros(2)]))
    assert result.shape == JOINS[join]


def test_joins_take_sequences_of_tracers():
    def f(x, y):
        return (wnp.concatenate(Blocks([x, 2 * y])) ** 2).sum()

    x, y = wnp.ones(2), wnp.arange(3.0)
    grads = weft.jit(weft.grad(f, (0, 1)))(x, y)
    np.testing.assert_allclose(grads[0], 2 * np.ones(2))
    np.testing.assert_allclose(grads[1], 8 * np.arange(3.0))


@pytest.mark.parametrize(
    "arrays",
    [{0: np.ones(2)}, {1.0, 2.0}, iter([np.ones(2)]), "ab", 3],
    ids=["dict", "set", "iterator", "str", "int"],
)
def test_joins_refuse_what_is_no_sequence(arrays):
    with pytest.raises(TypeError, match="must be a sequence of arrays"):
        wnp.concatenate(arrays)


@pytest.mark.parametrize("make", [wnp.array, wnp.asarray])
@pytest.mark.parametrize("value, shape", [
    ([Matrix(), Matrix()], (2, 2, 2)), ((Matrix(),), (1, 2, 2)), ([[Matrix()], [Matrix()]], (2, 1, 2, 2)),
    ([Matrix(), np.eye(2)], (2, 2, 2)), ([Matrix(), [[1, 0], [0, 1]]], (2, 2, 2)),
], ids=["list", "tuple", "nested", "with array", "with list"])  # fmt: skip
def test_lists_may_hold_objects_with_array_method(make, value, shape):
    result = make(value)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.broadcast_to(np.eye(2), shape))
    assert make(value, dtype="int8").dtype == np.int8


def test_lists_may_mix_objects_and_tracers():
    result = weft.jit(lambda x: wnp.asarray([Matrix(), x, wnp.zeros((2, 2))]))(wnp.ones((2, 2)))
    np.testing.assert_array_equal(result, [np.eye(2), np.ones((2, 2)), np.zeros((2, 2))])


@pytest.mark.parametrize("sort", [Blocks, BlockArray, UserList, deque])
def test_arrays_are_made_of_sequences(sort):
    np.testing.assert_array_equal(wnp.asarray(sort([wnp.ones(2), wnp.zeros(2)])), [[1, 1], [0, 0]])
    np.testing.assert_array_equal(wnp.asarray([UserList([1, 2])]), [[1, 2]])


@pytest.mark.parametrize("value", [[object()], [{1: 2}], {1, 2}, ["a"]])
def test_other_objects_are_refused(value):
    with pytest.raises(TypeError):
        wnp.asarray(value)


class Wrapped(Blocks):
    shape = property(lambda self: self.parts[0].shape)


tree_util.register_pytree_node(Wrapped, lambda x: (x.parts, None), lambda _, parts: Wrapped(parts))


def test_vectorize_accepts_pytrees_of_the_signature_shape():
    f = wnp.vectorize(
        lambda n: Wrapped([wnp.zeros((3, 1)).at[n[0]].set(1.0)]), signature="(n)->(m,1)"
    )
    result = f(wnp.array([[1], [2]]))
    assert type(result) is Wrapped and result.shape == (2, 3, 1)
    np.testing.assert_array_equal(result.parts[0][:, :, 0], np.eye(3)[[1, 2]])


def test_vectorize_takes_other_pytrees_for_a_result_without_dims():
    first, second = wnp.vectorize(lambda n: (n, {"a": 2 * n}), signature="()->(),()")(wnp.arange(3))
    assert first.tolist() == [0, 1, 2] and second["a"].tolist() == [0, 2, 4]


def test_vectorize_checks_the_shape_of_a_pytree():
    with pytest.raises(ValueError, match="does not match core dimensions"):
        wnp.vectorize(lambda n: Wrapped([n]), signature="(n)->()")(wnp.ones((2, 3)))
