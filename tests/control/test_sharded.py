"""Loops and branches over arrays on eight devices: same values, carries stay where they are, collectives only where needed."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.control.laws import close
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P, make_mesh


@pytest.fixture(scope="module")
def mesh():
    return make_mesh((4, 2), ("a", "b"))


def put(mesh, spec, *shape, seed=0, scale=1.0):
    value = (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)
    return value, weft.device_put(value, NamedSharding(mesh, spec))


def layers(x, ws):
    return lax.scan(lambda c, w: (wnp.tanh(c @ w), c.sum()), x, ws)


LAYOUTS = [
    (P("a"), P()),
    (P("a", "b"), P()),
    (P("a"), P(None, None, "b")),
    (P("a", "b"), P(None, "b")),
    (P(), P("a")),
]


@pytest.mark.parametrize("specs", LAYOUTS, ids=str)
def test_scan_and_its_gradient(mesh, specs):
    (x, xd), (ws, wsd) = put(mesh, specs[0], 16, 8), put(mesh, specs[1], 4, 8, 8, seed=1, scale=0.3)
    close(weft.jit(layers)(xd, wsd), layers(x, ws))
    close(layers(xd, wsd), layers(x, ws))
    loss = lambda x, ws: (layers(x, ws)[0] ** 2).sum()
    want = weft.grad(loss, argnums=(0, 1))(x, ws)
    close(weft.jit(weft.grad(loss, argnums=(0, 1)))(xd, wsd), want)
    close(weft.grad(loss, argnums=(0, 1))(xd, wsd), want)


def test_a_batch_stays_split_without_collectives(mesh):
    _, x = put(mesh, P("a"), 16, 8)
    _, ws = put(mesh, P(), 4, 8, 8, seed=1, scale=0.3)
    compiled = (
        weft.jit(lambda x, ws: lax.scan(lambda c, w: (wnp.tanh(c @ w), None), x, ws)[0])
        .lower(x, ws)
        .compile()
    )
    assert compiled.runtime_executable().stages.collectives == []
    assert compiled(x, ws).sharding.is_equivalent_to(NamedSharding(mesh, P("a")), 2)


def test_collectives_in_a_loop_are_counted_per_step(mesh):
    _, x = put(mesh, P("a"), 16, 8)
    _, ws = put(mesh, P(None, None, "b"), 4, 8, 8, seed=1, scale=0.3)
    compiled = (
        weft.jit(lambda x, ws: lax.scan(lambda c, w: (wnp.tanh(c @ w), None), x, ws)[0])
        .lower(x, ws)
        .compile()
    )
    records = compiled.runtime_executable().stages.collectives
    assert records and all(r.count == 4 for r in records)


@pytest.mark.parametrize("spec", [P("a"), P("a", "b"), P(None, "b"), P(("a", "b"))], ids=str)
def test_while_whose_condition_reads_all_shards(mesh, spec):
    x, xd = put(mesh, spec, 16, 8)
    f = lambda x: lax.while_loop(
        lambda s: (s[1] ** 2).sum() < 1e4,
        lambda s: (s[0] + 1, s[1] * 2 + wnp.roll(s[1], 1, 0)),
        (0, x),
    )
    close(weft.jit(f)(xd), f(x))
    assert weft.jit(f)(xd)[1].sharding.is_equivalent_to(NamedSharding(mesh, spec), 2)


def test_examples_of_a_split_batch_stop_by_themselves(mesh):
    x, xd = put(mesh, P(("a", "b")), 16, 8)
    f = weft.vmap(
        lambda x: lax.while_loop(
            lambda s: (s[1] ** 2).sum() < 100, lambda s: (s[0] + 1, s[1] * 2), (0, x)
        )
    )
    close(weft.jit(f)(xd), f(x))


@pytest.mark.parametrize("index", [0, 1, 2])
def test_switch(mesh, index):
    x, xd = put(mesh, P("a", "b"), 8, 8)
    f = lambda i, x: lax.switch(
        i, [wnp.sin, lambda x: x @ x, lambda x: wnp.broadcast_to(x.max(0), (8, 8))], x
    )
    close(weft.jit(f)(index, xd), f(index, x))
    close(
        weft.jit(weft.grad(lambda x: (f(index, x) ** 2).sum()))(xd),
        weft.grad(lambda x: (f(index, x) ** 2).sum())(x),
        1e-3,
    )


def test_a_random_walk_does_not_depend_on_the_layout(mesh):
    x, xd = put(mesh, P("a", "b"), 16, 8)

    def walk(key, x):
        def step(state, _):
            key, x = state
            key, sub = weft.random.split(key)
            return (key, x + weft.random.normal(sub, x.shape)), x.mean()

        return lax.scan(step, (key, x), None, length=4)[0][1]

    close(weft.jit(walk)(weft.random.key(0), xd), weft.jit(walk)(weft.random.key(0), x), 1e-6)


def test_a_donated_carry_keeps_its_memory(mesh):
    x, xd = put(mesh, P("a"), 16, 8)
    step = weft.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: wnp.sin(c), x), donate_argnums=0)
    close(step(xd), np.sin(np.sin(np.sin(x))))
    assert xd.is_deleted()


def test_a_loop_that_runs_no_time_costs_nothing(mesh):
    x, xd = put(mesh, P(), 16, 8)

    def f(x):
        y = lax.fori_loop(0, 0, lambda i, c: c**3 * 0.1, x)
        return weft.shard_map(
            lambda block: block / 2, mesh=mesh, in_specs=P(("a", "b")), out_specs=P(("a", "b"))
        )(y)

    close(weft.jit(f)(xd), x / 2)
