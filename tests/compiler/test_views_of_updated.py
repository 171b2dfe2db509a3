"""An update may be written in place only if it reads no other view of its operand."""

import numpy as np
import pytest

import weft
from weft import lax, numpy as wnp
from weft._engine.util.config import Override

MAKERS = {
    "argument": lambda a: a,
    "elementwise": wnp.sin,
    "running sum": lambda a: wnp.cumsum(a, 1),
    "sort": lambda a: wnp.sort(a, 1),
    "matmul": lambda a: a @ a,
    "update": lambda a: a.at[0].set(1.0),
}
UPDATES = {
    "add shifted": lambda v: v.at[1:].add(v[:-1]),
    "set shifted": lambda v: v.at[1:].set(v[:-1]),
    "set shifted back": lambda v: v.at[:-1].set(v[1:]),
    "multiply reversed": lambda v: v.at[:].multiply(v[::-1]),
    "set transposed": lambda v: v.at[:].set(v.swapaxes(1, 2)),
    "slice of itself": lambda v: lax.dynamic_update_slice_in_dim(v, v[:2], 1, 0),
    "scatter rows of itself": lambda v: v.at[np.array([2, 0])].set(v[:2]),
    "in a loop": lambda v: lax.fori_loop(0, 3, lambda i, c: c.at[1:].add(c[:-1]), v),
}


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_view_of_what_is_updated_keeps_its_value(maker, update):
    x = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float32)
    f = lambda a: UPDATES[update](MAKERS[maker](a))
    with Override(backend="reference"):
        want = np.asarray(weft.jit(f)(x))
    for donated in ((), (0,)):
        got = weft.jit(lambda a: f(a), donate_argnums=donated)(wnp.asarray(x))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
