"""Operators of `Array`.

Expected values were read once from another implementation of the interface, and are literals here.
"""

import operator

import numpy as np
import pytest

import weft.numpy as wnp
from tests.runtime.array_checks import same

A, B = np.array([5, 2, -3], np.int32), np.array([2, 3, 2], np.int32)
F = np.array([0.5, -2.0, 4.0], np.float32)
BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
]
COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("op", BINARY + COMPARE)
def test_binary_operators_mix_arrays_numbers_and_numpy(op):
    same(op(wnp.array(A), wnp.array(B)), op(A, B))
    same(op(wnp.array(A), B), op(A, B))
    same(op(A, wnp.array(B)), op(A, B))
    same(op(wnp.array(A), 2), op(A, np.int32(2)))
    same(op(2, wnp.array(B)), op(np.int32(2), B))


@pytest.mark.parametrize(
    "op",
    [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod],
)
def test_float_operators(op):
    same(op(wnp.array(F), 1.5), op(F, np.float32(1.5)))
    same(op(1.5, wnp.array(F)), op(np.float32(1.5), F))


def test_powers():
    same(wnp.arange(4) ** 2, np.arange(4, dtype=np.int32) ** 2)
    same(2 ** wnp.arange(4), 2 ** np.arange(4, dtype=np.int32))
    same(wnp.array(F) ** -1, 1 / F)
    same(pow(wnp.array(F), 2), F * F)


@pytest.mark.parametrize("op", [operator.neg, operator.pos, operator.abs, operator.invert])
def test_unary_operators(op):
    same(op(wnp.array(A)), op(A))


def test_matmul_operator_on_either_side():
    m = np.arange(6, dtype=np.float32).reshape(2, 3)
    same(wnp.array(m) @ wnp.array(m.T), m @ m.T)
    same(m @ wnp.array(m.T), m @ m.T)
    same(wnp.array(m) @ m.T, m @ m.T)


def test_divmod_gives_two_arrays():
    for got, want in zip(divmod(wnp.array(A), 2), np.divmod(A, np.int32(2))):
        same(got, want)
    for got, want in zip(divmod(7, wnp.array(B)), np.divmod(np.int32(7), B)):
        same(got, want)


def test_augmented_assignment_makes_a_new_array():
    a = b = wnp.arange(3)
    a += 1
    same(a, np.arange(1, 4, dtype=np.int32))
    same(b, np.arange(3, dtype=np.int32))


@pytest.mark.parametrize(
    "other", [None, "a", [1, 2, 3], (1, 2, 3), object()], ids=lambda o: type(o).__name__
)
def test_arithmetic_with_what_is_no_array_is_an_error(other):
    with pytest.raises(TypeError):
        wnp.arange(3) + other
    with pytest.raises(TypeError):
        other + wnp.arange(3)


def test_comparison_with_what_is_no_array_is_by_identity():
    assert (wnp.arange(3) == None) is False  # noqa: E711
    assert (wnp.arange(3) != "a") is True


def test_another_class_may_take_over_an_operator():
    class Other:
        def __radd__(self, x):
            return "mine"

    assert wnp.arange(3) + Other() == "mine"
