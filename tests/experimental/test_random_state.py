"""`experimental.random`: a generator with a state, in programs and outside."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental.random import StatefulPRNG, stateful_rng


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
    for wrap in (weft.jit, weft.grad, weft.vmap):
        with pytest.raises(TypeError, match="When used within transformed code"):
            wrap(lambda x: x + stateful_rng().random())(wnp.ones(3) if wrap is weft.vmap else 1.0)
    with pytest.raises(ValueError, match="Expected base_key to be a typed PRNG key"):
        StatefulPRNG(weft.random.PRNGKey(0), weft.new_ref(0))
    with pytest.raises(ValueError, match="Expected counter to be a scalar integer ref"):
        StatefulPRNG(weft.random.key(0), 0)
    rng = stateful_rng(0)
    for run in (lambda x: x + rng.random(), weft.jit(lambda x: x + rng.random())):
        with pytest.raises(ValueError, match="vmapped value on an unbatched array reference"):
            weft.vmap(run)(wnp.ones(3))
    with pytest.raises(ValueError, match="vmapped value on an unbatched array reference"):
        weft.vmap(lambda r, x: r.random() + x, (None, 0))(rng, wnp.ones(3))
    assert wnp.isfinite(stateful_rng().random())
