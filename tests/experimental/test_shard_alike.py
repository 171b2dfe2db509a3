"""`shard_alike`: two values have one sharding, propagated from either of them."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental.shard_alike import shard_alike
from weft.sharding import NamedSharding, PartitionSpec as P

X = np.arange(16.0, dtype=np.float32).reshape(8, 2)


def laid(*spec):
    mesh = weft.make_mesh((2, 2), ("a", "b"), devices=weft.devices()[:4])
    return weft.device_put(X, NamedSharding(mesh, P(*spec)))


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("first", [True, False])
def test_the_sharding_of_one_is_that_of_the_other(wrap, first):
    x = laid("a", "b")
    fun = lambda x: (
        shard_alike(x, wnp.arange(16.0).reshape(8, 2))[1]
        if first
        else shard_alike(wnp.ones((8, 2)), x * x)[0]
    )
    out = wrap(fun)(x)
    assert out.sharding.is_equivalent_to(x.sharding, 2)
    np.testing.assert_array_equal(out, X if first else np.ones((8, 2)))


def test_trees_derivatives_and_vmap():
    x = laid("a", None)
    a, b = weft.jit(lambda x: shard_alike({"u": x}, {"u": wnp.zeros((8, 2))}))(x)
    assert b["u"].sharding.is_equivalent_to(x.sharding, 2) and a["u"].sharding.is_equivalent_to(
        x.sharding, 2
    )
    grad = weft.jit(
        weft.grad(lambda x: wnp.sum(shard_alike(x, wnp.arange(16.0).reshape(8, 2))[0] ** 2))
    )(x)
    np.testing.assert_array_equal(grad, 2 * X)
    rows, same = weft.jit(weft.vmap(lambda row: shard_alike(row, wnp.ones(2))))(x)
    np.testing.assert_array_equal(same, np.ones((8, 2)))
    assert same.sharding.is_equivalent_to(rows.sharding, 2)


def test_what_does_not_match_is_refused():
    with pytest.raises(ValueError, match="shapes of `x` and `y` should match"):
        shard_alike(X, X.T)
    with pytest.raises(ValueError, match="trees of one structure"):
        shard_alike((X,), [X])
