"""What functions cost, and functions of references outside of kernels."""

import pytest

import weft
import weft.numpy as wnp
from weft.experimental import pallas as pl


def test_costs_are_those_of_the_operations():
    x, m = wnp.ones(10), wnp.ones((8, 16))
    cost = lambda f, *args: (lambda c: (c.flops, c.transcendentals, c.bytes_accessed))(
        pl.estimate_cost(f, *args)
    )
    assert cost(lambda a, b: wnp.exp(a + b), x, x) == (10, 10, 120)
    assert cost(lambda a: a @ a.T, m) == (2 * 8 * 8 * 16, 0, 4 * (8 * 16 + 8 * 8))
    assert cost(weft.jit(lambda a: a + a * 2), x) == (20, 0, 80)
    assert cost(lambda a: a.reshape(16, 8).T, m) == (0, 0, 1024)
    assert cost(lambda a: a.sum(), m)[0] == 127
    assert cost(lambda a: weft.lax.fori_loop(0, 5, lambda i, c: c * 2 + 1, a), x)[0] >= 5 * 20
    assert cost(pl.run_state(lambda r: r[1].__setitem__(..., r[0][...] + 1)), (x, x)) == (
        10,
        0,
        160,
    )
    large = pl.estimate_cost(
        wnp.matmul,
        weft.ShapeDtypeStruct((400_000, 800_000), "bfloat16"),
        weft.ShapeDtypeStruct((800_000, 900_000), "bfloat16"),
    )
    assert (
        large.flops == 2 * 400_000 * 800_000 * 900_000
        and large.bytes_accessed == 2 * (4 * 8 + 8 * 9 + 4 * 9) * 10**10
    )


@pytest.mark.parametrize("transform", [lambda f: f, weft.jit])
def test_functions_of_references_give_what_those_hold_at_the_end(transform):
    def double_first(refs):
        refs["x"][0] = refs["x"][0] * refs["y"][...]
        refs["y"][...] = refs["x"][...].sum()

    x = wnp.arange(1.0, 4.0)
    out = transform(pl.run_state(double_first))({"x": x, "y": 2.0})
    assert out["x"].tolist() == [2, 2, 3] and out["y"] == 7 and x.tolist() == [1, 2, 3]
    assert transform(pl.run_state(lambda ref: ref.__setitem__(0, 5.0)))(x).tolist() == [5, 2, 3]
    assert transform(weft.grad(lambda x: pl.run_state(double_first)({"x": x, "y": 2.0})["y"]))(
        x
    ).tolist() == [2, 1, 1]
    assert transform(weft.vmap(pl.run_state(lambda ref: ref.__setitem__(..., ref[...] * 2))))(
        x
    ).tolist() == [2, 4, 6]
