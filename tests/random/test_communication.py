"""Bits whose counters are cut in halves: the words that devices exchange, and that a layout does not change them."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.sharding import NamedSharding, P


@pytest.mark.parametrize(
    "size, spec, words", [(64, P("a"), 32), (64, P(("b", "a")), 16), (12, P("a"), 0), (25, P(), 0)]
)
def test_halves_are_exchanged(size, spec, words):
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    key = weft.random.key(3)
    draw = lambda key, x: weft.random.bits(key, x.shape) + x
    x = np.arange(size, dtype=np.uint32)
    with weft.threefry_partitionable(False):
        whole = draw(key, wnp.asarray(x))
        f = weft.jit(draw)
        placed = weft.device_put(x, NamedSharding(mesh, spec))
        np.testing.assert_array_equal(f(key, placed), whole)
        np.testing.assert_array_equal(weft.jit(draw, backend="reference")(key, placed), whole)
        sent = f.lower(key, placed).compile().stages.collectives
    with weft.threefry_partitionable(True):
        assert not weft.jit(draw).lower(key, placed).compile().stages.collectives
    assert {r.kind for r in sent} <= {"ppermute"}
    assert sum(r.bytes_per_device for r in sent) == 4 * words
    if words:
        assert len(sent) == 4


def test_keys_of_many_draws():
    with weft.threefry_partitionable(False):
        keys = weft.random.split(weft.random.key(0), 3)
        one_by_one = [weft.random.bits(k, (7,)) for k in keys]
        np.testing.assert_array_equal(
            weft.vmap(lambda k: weft.random.bits(k, (7,)))(keys), np.stack(one_by_one)
        )


RATES = np.array([0.5, 2.0, 20.0, 3.0], np.float32)
TRIALS = np.array([5.0, 40.0, 100.0, 3.0], np.float32)


@pytest.mark.parametrize("spec", [P(), P("i")], ids=["shared", "split"])
@pytest.mark.parametrize(
    "draw",
    [
        weft.random.gamma,
        weft.random.loggamma,
        weft.random.poisson,
        weft.random.chisquare,
        weft.random.dirichlet,
        lambda key, a: weft.random.beta(key, a, 2 * a),
        lambda key, a: weft.random.f(key, a, 2 * a),
        lambda key, a: weft.random.binomial(key, TRIALS[: a.size], a / (a + 1)),
        lambda key, a: weft.random.t(key, a, a.shape),
        lambda key, a: weft.random.multinomial(key, 20.0, a / a.sum()),
        lambda key, a: weft.random.generalized_normal(key, 2.0, (3,)),
    ],
    ids="gamma loggamma poisson chisquare dirichlet beta f binomial t multinomial generalized_normal".split(),
)
def test_each_device_draws_by_a_key_of_its_own(draw, spec):
    mesh = weft.make_mesh((2,), ("i",), devices=weft.devices()[:2])
    keys = weft.random.split(weft.random.key(7), 2)
    mapped = weft.shard_map(
        lambda k, a: draw(k[0], a), mesh=mesh, in_specs=(P("i"), spec), out_specs=P("i")
    )
    parts = [RATES, RATES] if spec == P() else np.split(RATES, 2)
    expected = wnp.concatenate([draw(key, wnp.asarray(part)) for key, part in zip(keys, parts)])
    np.testing.assert_allclose(weft.jit(mapped)(keys, RATES), expected, rtol=1e-5)
