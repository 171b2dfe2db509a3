"""Layout ops: the laws, the factors of reshapes, and the errors."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.harness.laws import Case, check_all, run
from weft._engine.core.stage import stage
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import layout as l
from weft._engine.util.errors import ShapeError

X = np.random.default_rng(0).normal(size=(4, 6, 5))
FLAT = ((0,),)


def case(name, fn, x, expect):
    return Case(name, fn, (x,), expect, linear=FLAT)


CASES = [
    case(
        "broadcast",
        lambda x: l.broadcast_in_dim(x, (2, 4, 3, 6, 5), (1, 3, 4)),
        X,
        lambda x: np.broadcast_to(x[None, :, None], (2, 4, 3, 6, 5)),
    ),
    case(
        "broadcast size 1",
        lambda x: l.broadcast_in_dim(x, (4, 3, 5), (0, 1, 2)),
        X[:, :1],
        lambda x: np.broadcast_to(x, (4, 3, 5)),
    ),
    case(
        "broadcast rank 0",
        lambda x: l.broadcast_in_dim(x, (2, 3), ()),
        np.float64(2.0),
        lambda x: np.full((2, 3), x),
    ),
    case("broadcast leading", lambda x: l.broadcast(x, (2,)), X, lambda x: np.stack([x, x])),
    case("expand_dims", lambda x: l.expand_dims(x, (0, 2)), X, lambda x: x[None, :, None]),
    case("reshape merge", lambda x: l.reshape(x, (24, 5)), X, lambda x: x.reshape(24, 5)),
    case("reshape split", lambda x: l.reshape(x, (2, 2, 6, 5)), X, lambda x: x.reshape(2, 2, 6, 5)),
    case("reshape both", lambda x: l.reshape(x, (8, 3, 5)), X, lambda x: x.reshape(8, 3, 5)),
    case("reshape unmatched", lambda x: l.reshape(x, (3, 40)), X, lambda x: x.reshape(3, 40)),
    case("reshape flat", lambda x: l.reshape(x, (120,)), X, np.ravel),
    case("reshape to rank 0", lambda x: l.reshape(x, ()), X[:1, :1, :1], lambda x: x.reshape(())),
    case(
        "reshape after dimensions",
        lambda x: l.reshape(x, (30, 4), (1, 2, 0)),
        X,
        lambda x: x.transpose(1, 2, 0).reshape(30, 4),
    ),
    case("collapse", lambda x: l.collapse(x, 0, 2), X, lambda x: x.reshape(24, 5)),
    case("transpose", lambda x: l.transpose(x, (2, 0, 1)), X, lambda x: x.transpose(2, 0, 1)),
    case("rev", lambda x: l.rev(x, (0, 2)), X, lambda x: x[::-1, :, ::-1]),
    case("squeeze", lambda x: l.squeeze(x, (1,)), X[:, :1], lambda x: x[:, 0]),
    case("squeeze negative", lambda x: l.squeeze(x, (-1, 0)), X[:1, :, :1], lambda x: x[0, :, 0]),
    case(
        "empty",
        lambda x: l.reshape(l.transpose(x, (2, 1, 0)), (0, 7)),
        X[:, :0],
        lambda x: np.zeros((0, 7)),
    ),
    Case("full_like", lambda x: l.full_like(x, 3), (X,), lambda x: np.full_like(x, 3)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_laws(case):
    check_all(case)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.uint8, np.complex64])
def test_iota(dtype):
    (got,) = run(lambda: l.broadcasted_iota(dtype, (2, 3), 1), [])
    np.testing.assert_array_equal(got, np.array([[0, 1, 2]] * 2, dtype))
    assert got.dtype == dtype


def test_iota_tells_its_offset_factor():
    (eqn,) = stage(lambda: [l.broadcasted_iota(np.int32, (2, 3), 1)], []).eqns
    rule = eqn.primitive.factors([], [eqn.outvars[0].aval], **eqn.params)
    assert rule.outs == (((0,), (1,)),) and rule.special == {1: "offset"}


@pytest.mark.parametrize(
    "source, target, ins, outs, special",
    [
        ((64,), (4, 16), [(0, 1)], [(0,), (1,)], {}),
        ((4, 16), (64,), [(0,), (1,)], [(0, 1)], {}),
        ((6, 4), (4, 6), [(0, 1), (2, 3)], [(0, 2), (1, 3)], None),
        ((2, 3), (3, 2), [(0,), (2,)], [(1,), (3,)], {0, 1, 2, 3}),
        ((1, 8, 1), (8,), [(), (0,), ()], [(0,)], {}),
        ((), (1, 1), [], [(), ()], {}),
    ],
    ids=str,
)
def test_factors_of_reshapes(source, target, ins, outs, special):
    b = RuleBuilder()
    got_ins, got_outs, got_special = l.match_dims(b, source, target)
    product = lambda dims: tuple(int(np.prod([b.sizes[f] for f in d], dtype=int)) for d in dims)
    assert product(got_ins) == source and product(got_outs) == target
    if special is None:  # a common major factor, then dims that do not match
        assert got_ins[0][0] == got_outs[0][0] and b.sizes[got_ins[0][0]] == 2 and got_special
        return
    if special == {0, 1, 2, 3}:
        assert len(got_special) == 4
        return
    assert (got_ins, got_outs, got_special) == (ins, outs, special)


def aval(*shape):
    return ShapedArray(shape, np.float32)


@pytest.mark.parametrize(
    "fn, message",
    [
        (lambda x: l.reshape(x, (5,)), r"reshape: total size must not change"),
        (lambda x: l.transpose(x, (0, 0)), "isn't a permutation"),
        (lambda x: l.rev(x, (2,)), "out of bounds"),
        (lambda x: l.squeeze(x, (0,)), "not of size 1"),
        (lambda x: l.broadcast_in_dim(x, (4, 3), (0, 1)), "do not fit"),
        (lambda x: l.broadcast_in_dim(x, (3, 2), (1, 1)), "must be different"),
        (lambda x: l.broadcast_in_dim(x, (2, 3), (0,)), "one result dim per operand dim"),
        (lambda x: l.expand_dims(x, (0, 0)), "duplicate"),
    ],
)
def test_errors(fn, message):
    with pytest.raises(ShapeError, match=message):
        stage(lambda x: [fn(x)], [aval(2, 3)])


def test_nothing_is_recorded_for_identities():
    identity = lambda x: l.reshape(
        l.transpose(l.broadcast_in_dim(x, (2, 3), (0, 1)), (0, 1)), (2, 3)
    )
    jaxpr = stage(lambda x: [identity(x)], [aval(2, 3)])
    assert not jaxpr.eqns


def test_dims_may_change_their_order():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    want = np.broadcast_to(x.T[:, None], (3, 4, 2))
    np.testing.assert_array_equal(l.broadcast_in_dim(x, (3, 4, 2), (2, 0)), want)
    np.testing.assert_array_equal(
        weft.grad(lambda x: (l.broadcast_in_dim(x, (3, 4, 2), (2, 0)) * want).sum())(x), 4 * x
    )


@pytest.mark.parametrize(
    "fill, dtype, weak",
    [
        (1, None, True),
        (1.5, None, True),
        (True, None, False),
        (np.float32(1), None, False),
        (1, np.int32, False),
        (1, np.float16, False),
        (weft.numpy.asarray(1.0), None, True),
        (weft.numpy.asarray(1.0), np.float32, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("jit", [False, True])
def test_filled_arrays_are_weakly_typed_by_what_fills_them(fill, dtype, weak, jit):
    make = lambda: l.full((2,), fill, dtype)
    x = weft.jit(make)() if jit else make()
    assert (x.weak_type, x.dtype) == (
        weak,
        np.dtype(dtype) if dtype is not None else weft.numpy.asarray(fill).dtype,
    )
    like = lambda x: l.full_like(x, 3)
    assert (weft.jit(like) if jit else like)(x).weak_type is weak and not l.full_like(
        x, 3, np.float32
    ).weak_type
