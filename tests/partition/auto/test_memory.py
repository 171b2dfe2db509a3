"""Memory in automatic sharding: estimates, caps, and forms that are dropped and made again."""

import itertools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.partition.partition import ValueLayouts, partition_with_layouts
from weft.errors import ShardingError
from weft.tools.automatic.device_memory import device_peak


def struct(*shape):
    return weft.ShapeDtypeStruct(shape, np.float32)


def encode_and_decode(w, x):
    return wnp.sin(wnp.tanh(wnp.cos(x @ w)) * 2).sum(1, keepdims=True) + x @ w.T


@pytest.mark.parametrize("is_dropped", [False, True], ids=["kept", "dropped"])
def test_dropped_form_is_made_again(is_dropped):
    mesh = weft.make_mesh((8,), ("x",))
    program = simplify(weft.make_jaxpr(encode_and_decode)(struct(64, 64), struct(128, 64)))
    w = program.invars[0]
    first = next(eqn for eqn in program.eqns if w in eqn.invars)
    dropped = {first: [(w, ((), ()))]} if is_dropped else {}
    layouts = {v: (("x",), ()) for eqn in program.eqns for v in eqn.outvars if v.aval.ndim == 2}
    layouts |= {v: ((), ("x",)) for eqn in program.eqns for v in eqn.outvars if v.aval == w.aval}
    rows = (("x",), ())
    result = partition_with_layouts(
        program, mesh, [rows, rows], [rows], ValueLayouts(layouts, dropped)
    )
    gathers = [eqn for eqn in simplify(result.jaxpr).eqns if eqn.primitive.name == "all_gather"]
    assert len(gathers) == result.counts["all_gather"] == 1 + is_dropped


def deep_step(params, x):
    """Forward and backward of layers whose parameters outweigh the activations."""

    def loss(params):
        h = x
        for up, down in params:
            h = h + wnp.tanh(h @ up) @ down
        return (h * h).mean()

    return weft.tree.map(lambda p, g: p - 0.1 * g, params, weft.grad(loss)(params))


def deep_args(make, depth=3, batch=2048, width=128, hidden=1024):
    return [(make(width, hidden), make(hidden, width)) for _ in range(depth)], make(batch, width)


@pytest.fixture(scope="module")
def mesh():
    return weft.make_mesh((8,), ("x",))


@pytest.fixture(scope="module")
def free(mesh):
    return weft.auto.shardings(deep_step, *deep_args(struct), mesh=mesh, donate_argnums=0)


def test_peak_is_that_of_a_device(free):
    """One process for each device: nothing is shared, and the program is scheduled, not compiled."""
    devices = weft.distributed.planned_devices(8)
    planned = weft.sharding.Mesh(np.array(devices), ("x",))
    plan = weft.auto.shardings(deep_step, *deep_args(struct), mesh=planned, donate_argnums=0)
    compiled = plan.jit().lower(*deep_args(struct)).compile()
    stats = compiled.memory_analysis()
    total = (
        stats.argument_size_in_bytes
        + stats.output_size_in_bytes
        + stats.temp_size_in_bytes
        - stats.alias_size_in_bytes
    )
    assert plan.peak == free.peak
    assert plan.peak == pytest.approx(total, rel=0.03)


def test_limit_is_kept_by_other_layouts(free, mesh):
    limit = 0.96 * free.peak
    plan = weft.auto.shardings(
        deep_step, *deep_args(struct), mesh=mesh, donate_argnums=0, memory=limit
    )
    assert plan.peak <= limit < free.peak
    assert plan.cost.price >= free.cost.price * 0.999
    assert plan.peak == device_peak(plan.decision.result, plan.decision.donated)


def test_limited_plan_computes_the_same(free, mesh):
    random = np.random.default_rng(0)
    uniform = lambda *shape: (random.random(shape) - 0.5).astype(np.float32) * 0.1
    args = deep_args(uniform)
    plan = weft.auto.shardings(
        deep_step, *deep_args(struct), mesh=mesh, donate_argnums=0, memory=0.96 * free.peak
    )
    expected = weft.jit(deep_step)(*args)
    weft.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        plan.jit()(*plan.place(args)),
        expected,
    )


def test_impossible_limit_names_the_smallest_peak(mesh):
    with pytest.raises(
        ShardingError, match=r"no layout holds at most 1,000 B.* smallest peak"
    ) as error:
        weft.auto.shardings(
            deep_step, *deep_args(struct), mesh=mesh, donate_argnums=0, memory=1000, seconds=5
        )
    assert "float32[" in str(error.value)


def test_price_of_memory_rises(free):
    curve = free.price_of_memory(points=3)
    assert curve[0] == (free.peak, free.cost.price)
    assert len(curve) > 1
    assert all(b[0] < a[0] and b[1] >= 0.999 * a[1] for a, b in itertools.pairwise(curve))


def test_saved_plan_keeps_dropped_forms(free, mesh, tmp_path):
    plan = weft.auto.shardings(
        deep_step, *deep_args(struct), mesh=mesh, donate_argnums=0, memory=0.96 * free.peak
    )
    plan.save(tmp_path / "plan.json")
    loaded = weft.auto.load(tmp_path / "plan.json", mesh)
    assert loaded.layout_plan == plan.layout_plan
    report = weft.explain(loaded.jit(deep_step), *deep_args(struct))
    assert (report.bytes, report.counts) == (plan.cost.bytes_sent, plan.cost.collectives)
