"""Bits whose counters are cut in halves: the words that devices exchange, and that a layout does not change them."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.sharding import NamedSharding, P


@pytest.mark.parametrize("size, spec, words", [
    (64, P("a"), 32), (64, P(("b", "a")), 16), (12, P("a"), 0), (25, P(), 0)])
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
        np.testing.assert_array_equal(weft.vmap(lambda k: weft.random.bits(k, (7,)))(keys), np.stack(one_by_one))
