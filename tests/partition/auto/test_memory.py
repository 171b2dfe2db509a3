"""Memory in automatic sharding: estimates, caps, and forms that are dropped and made again."""

import itertools
import re

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.partition.auto import within_memory
from weft._engine.partition.auto.known_layouts import known_layouts
from weft._engine.partition.partition import ValueLayouts, partition_with_layouts
from weft.errors import ShardingError
from weft.tools.automatic.device_memory import device_peak
from weft.tools.automatic.value_storage import storage_of


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


@pytest.fixture(scope="module")
def wide_plan(mesh):
    """The plan of layers with large parameters and a small batch, within some bytes."""

    def plan(memory, **sizes):
        args = deep_args(struct, **sizes)
        return weft.auto.shardings(
            deep_step, *args, mesh=mesh, donate_argnums=0, machine="h100", memory=memory
        )

    return plan


def smallest_peak(error):
    return int(re.search("found is ([0-9,]+) B", str(error.value))[1].replace(",", ""))


def test_smallest_peak_is_that_of_any_layout(wide_plan):
    sizes = {"depth": 1, "batch": 64}
    with pytest.raises(ShardingError, match="largest blocks then are float32") as error:
        wide_plan(1000, **sizes)
    assert smallest_peak(error) <= wide_plan(300_000, **sizes).peak


def test_error_names_blocks_without_a_search(wide_plan):
    with pytest.raises(ShardingError, match=r"largest blocks then are float32\["):
        wide_plan(1_300_000, depth=1, batch=512, width=256, hidden=2048)


def test_price_falls_with_the_limit(wide_plan):
    limits = [2.6e6, 3.25e6]
    plans = [wide_plan(n, depth=1, batch=256, width=256) for n in limits]
    assert all(plan.peak <= n for plan, n in zip(plans, limits))
    prices = [plan.cost.price for plan in plans]
    assert prices == sorted(prices, reverse=True)
    assert "costs" in plans[1].why("x")  # the next best layout may cost more than any that fits


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


def adam_step(state, x):
    """A step of Adam on layers whose state outweighs the activations of a device."""
    params, means, squares = state

    def loss(params):
        h = x
        for up, down in params:
            h = h + wnp.tanh(h @ up) @ down
        return (h * h).mean()

    grads = weft.grad(loss)(params)
    means = weft.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, grads)
    squares = weft.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, squares, grads)
    update = lambda p, m, v: p - 0.01 * m / (wnp.sqrt(v) + 1e-3)
    return weft.tree.map(update, params, means, squares), means, squares


def adam_args(make, depth=3, batch=2048, width=256, hidden=1024):
    layers = lambda: [(make(width, hidden), make(hidden, width)) for _ in range(depth)]
    return (layers(), layers(), layers()), make(batch, width)


@pytest.fixture(scope="module")
def adam(mesh):
    options = {"mesh": mesh, "donate_argnums": 0, "machine": "h100"}
    return weft.auto.shardings(adam_step, *adam_args(struct), **options)


@pytest.fixture(scope="module")
def limit(adam):
    return 0.85 * adam.compare()["FSDP"].peak


@pytest.fixture(scope="module")
def tight(limit, mesh):
    options = {"mesh": mesh, "donate_argnums": 0, "machine": "h100"}
    return weft.auto.shardings(adam_step, *adam_args(struct), memory=limit, **options)


def test_tight_limit_gathers_parameters_twice(tight, limit):
    """ZeRO-3: the state is split at rest, parameters are gathered for each pass, gradients are reduced and split."""
    parameters = weft.tree.leaves(adam_args(struct)[0][0])
    assert tight.peak <= limit
    state = weft.tree.leaves(tight.in_shardings[0])
    assert len(state) == 3 * len(parameters) and all(s.spec for s in state)
    counts = tight.cost.collectives
    dropped = [v for forms in tight.decision.solution.dropped.values() for v, _ in forms]
    assert dropped and counts["reduce_scatter"] == len(parameters)
    assert counts["all_gather"] >= len(parameters) + 3  # those of the last layer are used at once
    assert set(counts) == {"all_gather", "reduce_scatter"}


def test_tight_plan_computes_the_same(tight):
    random = np.random.default_rng(0)
    uniform = lambda *shape: (random.random(shape) - 0.4).astype(np.float32) * 0.1
    args = adam_args(uniform)
    expected = weft.jit(adam_step)(*args)
    weft.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        tight.jit()(*tight.place(args)),
        expected,
    )


def test_price_of_memory_ends_in_zero_3(adam):
    curve = adam.price_of_memory(points=3)
    assert curve[0] == (adam.peak, adam.cost.price)
    assert all(b[0] < a[0] and b[1] > a[1] for a, b in itertools.pairwise(curve))
    assert curve[-1][0] < adam.compare()["FSDP"].peak


def test_zero_1_gathers_each_parameter_once(adam, mesh):
    """Parameters are updated where their optimizer's state is."""
    program, prices = adam.decision.program, adam.decision.prices
    graph, given = adam.decision.optimizer.graph, adam.decision.given_specs
    _, zero_1, *_ = known_layouts(graph, given, mesh, prices.model)
    specs = zero_1.in_specs, zero_1.out_specs
    result = partition_with_layouts(program, mesh, *specs, zero_1.layouts, prices.model)
    count = len(weft.tree.leaves(adam_args(struct)[0][0]))
    assert result.counts == {"reduce_scatter": count, "all_gather": count}


def test_impossible_limit_on_two_axes():
    options = {"mesh": weft.make_mesh((4, 2), ("x", "y")), "donate_argnums": 0}
    args = deep_args(struct, depth=1)
    plan = weft.auto.shardings(deep_step, *args, **options)
    with pytest.raises(ShardingError, match="smallest peak found is") as error:
        weft.auto.shardings(deep_step, *args, memory=1000, **options)
    assert smallest_peak(error) <= plan.peak


def test_high_estimates_do_not_hide_a_cheaper_plan():
    """A plan that fits in less memory is found within more memory, too."""
    options = {"mesh": weft.make_mesh((4, 2), ("x", "y")), "donate_argnums": 0, "machine": "h100"}
    plan = weft.auto.shardings(deep_step, *deep_args(struct, depth=1), memory=2.75e6, **options)
    assert plan.peak <= 2.4e6 and set(plan.cost.collectives) == {"psum"}


def test_work_ends_the_search_on_two_axes(monkeypatch):
    """The number of integer programs decides, so that plans do not depend on the load of the machine."""

    def steps_left(most):
        monkeypatch.setattr(within_memory, "MOST_STEPS", most)
        mesh = weft.make_mesh((4, 2), ("x", "y"))
        args = struct(512, 128), struct(128, 1024), struct(1024, 128)
        f = lambda x, up, down: wnp.tanh(x @ up) @ down
        return weft.auto.shardings(f, *args, mesh=mesh, memory=1.3e6).decision.optimizer.steps_left

    most = within_memory.MOST_STEPS
    assert 0 <= steps_left(most) < most - 2
    assert steps_left(1) <= 0


@pytest.mark.parametrize("with_bias", [False, True], ids=["product", "epilogue"])
def test_storage_has_what_kernels_store(with_bias):
    def f(w, x):
        h = x @ w
        h = wnp.tanh(h + 1) if with_bias else h
        return (h * h).sum() + (h @ w.T).sum()

    program = simplify(weft.make_jaxpr(f)(struct(64, 64), struct(128, 64)))
    storage = storage_of(program)
    stored = [v for v in storage.lifetimes if v.aval.nbytes > 1000]
    first = program.eqns[2].outvars[0] if with_bias else program.eqns[0].outvars[0]
    assert first in stored
    assert all(v not in storage.lifetimes for v in program.invars)
    assert all(0 < begin <= end <= storage.end for begin, end in storage.lifetimes.values())
