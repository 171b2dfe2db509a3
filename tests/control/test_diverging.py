"""Branches and loops that only some devices of a shard_map run: values, gradients, and errors."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util.errors import ShardingError
from weft.sharding import Mesh, PartitionSpec as P

N = 4
MESH = Mesh(np.array(weft.devices()[:N]), ("i",))
A = np.arange(N * N, dtype=np.float32).reshape(N, N) / 10
W = np.cos(A * 3)


def twice(c, w):
    return lax.scan(lambda c, _: (wnp.sin(c @ w), None), c, None, length=2)[0]


#: programs of one device: its number, its block, and what all devices have alike
PROGRAMS = {
    "operands": lambda i, a, w: lax.cond(i > 1, lambda a, w: a @ w, lambda a, w: a * 2, a, w),
    "closed over": lambda i, a, w: lax.cond(i > 1, lambda: a @ w, lambda: a * 2),
    "alike inside": lambda i, a, w: (
        a * lax.cond(i > 1, lambda w: wnp.sin(w).sum(), lambda w: w[0, 0] * 3, w)
    ),
    "scan": lambda i, a, w: lax.cond(i > 1, lambda a: twice(a, w), lambda a: a * 2, a),
    "scan of what is alike": lambda i, a, w: lax.cond(
        i > 1, lambda: a * twice(w, w)[:1], lambda: a * w[0]
    ),
    "checkpoint": lambda i, a, w: lax.cond(
        i > 1, lambda w: weft.checkpoint(twice)(a, w), lambda w: a, w
    ),
    "jit": lambda i, a, w: lax.cond(i > 1, lambda w: weft.jit(twice)(a, w), lambda w: a, w),
    "nested": lambda i, a, w: lax.cond(
        i > 1,
        lambda w: lax.cond(a[0, 0] > 1, lambda w: a @ w, lambda w: a - w[:1], w),
        lambda w: a * w[0],
        w,
    ),
    "cast inside": lambda i, a, w: lax.cond(
        i > 1, lambda w: a @ lax.pvary(w, "i"), lambda w: a * w[0], w
    ),
    "switch": lambda i, a, w: lax.switch(
        i, [lambda a, w, k=k: a * w[0, k] for k in range(3)], a, w
    ),
    "constants": lambda i, a, w: a * lax.cond(i > 1, lambda: 1.0, lambda: 2.0),
}


def on_mesh(program, **options):
    return weft.shard_map(
        lambda a, w: program(lax.axis_index("i"), a, w),
        mesh=MESH,
        in_specs=(P("i"), P()),
        out_specs=P("i"),
        **options,
    )


def one_by_one(program):
    """Return the same program as a `vmap` over blocks, where types have no varying axes."""

    def whole(a, w):
        return weft.vmap(lambda a: program(lax.axis_index("i"), a[None], w)[0], axis_name="i")(a)

    return whole


def loss(f):
    return lambda a, w: (1.7 * wnp.sin(f(a, w))).sum()


@pytest.mark.parametrize("transform", [lambda f: f, weft.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_the_blocks(name, transform):
    mapped, expected = on_mesh(PROGRAMS[name]), one_by_one(PROGRAMS[name])
    np.testing.assert_allclose(transform(mapped)(A, W), expected(A, W), rtol=1e-5, atol=1e-5)
    for got, want in zip(
        transform(weft.grad(loss(mapped), (0, 1)))(A, W), weft.grad(loss(expected), (0, 1))(A, W)
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_types_change_no_gradient(name):
    synchronized, untold = (
        weft.grad(loss(on_mesh(PROGRAMS[name], check_vma=check)), (0, 1))(A, W)
        for check in (True, False)
    )
    for got, want in zip(synchronized, untold):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "program, api, collective",
    [
        (lambda i, a, w: lax.cond(i > 1, lambda: lax.psum(a, "i"), lambda: w[:1]), "cond", "psum"),
        (
            lambda i, a, w: lax.switch(i, [lambda: a, lambda: lax.ppermute(a, "i", [(0, 1)])]),
            "switch",
            "ppermute",
        ),
        (
            lambda i, a, w: lax.cond(
                i > 1,
                lambda: lax.scan(
                    lambda c, _: (c + lax.all_gather(c, "i").sum(0), None), a, None, length=2
                )[0],
                lambda: a,
            ),
            "cond",
            "all_gather",
        ),
        (
            lambda i, a, w: lax.while_loop(
                lambda c: c[0] < i,
                lambda c: (c[0] + 1, lax.pvary(lax.psum(c[1], "i"), "i")),
                (0 * i, a),
            )[1],
            "while_loop",
            "psum",
        ),
    ],
)
def test_a_collective_that_some_devices_would_wait_in_is_refused(program, api, collective):
    with pytest.raises(
        ShardingError,
        match=rf"{api}: {collective} over 'i' occurs where only some devices along(.|\n)*test_diverging",
    ):
        on_mesh(program)(A, W)


def test_a_collective_that_all_devices_reach_is_not():
    chosen = on_mesh(
        lambda i, a, w: lax.cond(lax.pmax(i, "i") > 1, lambda: lax.psum(a, "i"), lambda: w[:1]) + a
    )
    np.testing.assert_allclose(chosen(A, W), A.sum(0) + A, rtol=1e-6)
    counted = on_mesh(
        lambda i, a, w: lax.while_loop(lambda c: lax.pmax(c, "i").max() < 9, lambda c: c * 2, a + 1)
    )
    np.testing.assert_allclose(counted(A, W), (A + 1) * 4, rtol=1e-6)
