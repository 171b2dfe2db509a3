"""`experimental.random`: a generator with a state, in programs and outside."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental.random import stateful_rng


def test_draws_follow_the_seed_and_their_order():
    a, b = stateful_rng(3), stateful_rng(3)
    first = [a.normal(size=(2, 3)), a.integers(5, size=4), a.uniform(2, 3), a.random(2)]
    again = [b.normal(size=(2, 3)), b.integers(5, size=4), b.uniform(2, 3), b.random(2)]
    for x, y in zip(first, again):
        np.testing.assert_array_equal(x, y)
    assert ((first[1] >= 0) & (first[1] < 5)).all() and 2 <= first[2] < 3
    assert not np.array_equal(a.random(2), first[3])


def test_state_moves_inside_of_programs():
    rng = stateful_rng(0)
    closed, passed = weft.jit(lambda: rng.random()), weft.jit(lambda rng: rng.random())
    drawn = [float(closed()), float(closed()), float(passed(rng)), float(rng.random())]
    other = stateful_rng(0)
    np.testing.assert_array_equal(np.float32(drawn), [other.random() for _ in drawn])


def test_parts_are_independent():
    rng = stateful_rng(0)
    parts = rng.split(3)
    drawn = weft.vmap(lambda part: part.normal(size=2))(parts)
    assert drawn.shape == (3, 2) and len(np.unique(drawn)) == 6
    children = rng.spawn(2)
    assert float(children[0].random()) != float(children[1].random())
    with pytest.raises(ValueError, match="split into"):
        parts.key((2,))


def test_errors():
    with pytest.raises(TypeError, match="seed must be an integer"):
        stateful_rng(1.5)
    with pytest.raises(ValueError, match="a seed must be given"):
        weft.jit(lambda: stateful_rng().random())()
    assert wnp.isfinite(stateful_rng().random())
