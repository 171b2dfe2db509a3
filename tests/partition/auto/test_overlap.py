"""Overlap: which collectives run behind computation, and the price of programs whose collectives do."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from benchmarks.automatic.measure import compare, make_mesh, trace
from benchmarks.automatic.programs import PROGRAMS
from weft import lax
from weft._engine.ir.jaxpr import subjaxprs
from weft._engine.partition.auto.machine_rates import MACHINES
from weft._engine.partition.auto.overlap import hideable_values
from weft._engine.partition.auto.partitioning import LayoutSearch
from weft._engine.partition.auto.realized import price_of
from weft._engine.partition.partition import PartitionRequest
from weft._engine.util.record import replace

X, W = np.ones((8, 16), np.float32), np.ones((16, 16), np.float32)
H100 = MACHINES["h100"]


def analyze(f, *args):
    """The program of a function, and its hideable variables."""
    jaxpr = weft.make_jaxpr(f)(*args)
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return jaxpr, hideable_values(jaxpr)


def are_hideable(variables, found):
    return [v in found for v in variables]


def test_parameters_of_later_products_are_ready_early():
    program, found = analyze(lambda x, a, b, c: wnp.tanh(wnp.tanh(x @ a) @ b) @ c, X, W, W, W)
    assert are_hideable(program.invars, found) == [False, False, True, True]


def test_activations_and_last_result_are_critical():
    program, found = analyze(lambda x, a, b: wnp.tanh(x @ a) @ b, X, W, W)
    assert not {v for eqn in program.eqns for v in eqn.outvars} & found


def test_gradients_are_needed_late():
    def loss(params, x):
        return ((wnp.tanh(x @ params[0]) @ params[1]) ** 2).sum()

    def step(params, x):
        return [p - 0.1 * g for p, g in zip(params, weft.grad(loss)(params, x))]

    program, found = analyze(step, [W, W], X)
    assert are_hideable(program.outvars, found) == [True, True]
    products = [e for e in program.eqns if e.primitive.name == "dot_general"]
    gradients = [e.outvars[0] in found for e in products if e.outvars[0].aval.shape == (16, 16)]
    assert gradients == [True, True]


def test_programs_without_independent_products_hide_nothing():
    assert not analyze(lambda x, w: x @ w, X, W)[1]
    assert not analyze(lambda x: wnp.tanh(x).sum(0), X)[1]


def test_calls_are_part_of_the_program():
    first, second = weft.jit(lambda x, a: wnp.tanh(x @ a)), weft.jit(lambda x, b: wnp.sin(x @ b))
    program, found = analyze(lambda x, a, b: second(first(x, a), b), X, W, W)
    assert are_hideable(program.invars, found) == [False, False, True]


def test_carried_values_of_a_loop_are_on_the_critical_path():
    def body(x, w):
        y = wnp.tanh(x @ w[0])
        return y @ w[1], y.sum(0)

    stacked = np.ones((4, 16, 16), np.float32)
    program, found = analyze(lambda x, w: lax.scan(body, x, w), X, (stacked, stacked))
    assert are_hideable(program.invars, found) == [False] * 3  # the loop is the only product
    ((_, inner),) = subjaxprs(program.eqns[-1].params)
    assert are_hideable(inner.invars, found) == [False, False, True]
    assert are_hideable(inner.outvars, found) == [False, True]


@pytest.mark.parametrize("name, sizes", [("transformer-2", (8,)), ("moe", (8,))])
def test_model_prices_what_the_program_costs(name, sizes):
    comparison = compare(PROGRAMS[name](), sizes, "h100")
    assert comparison.model == pytest.approx(comparison.realized.price, rel=2e-3)


def decide(machine, name="mlp-large-batch", sizes=(8,)):
    program, mesh = PROGRAMS[name](), make_mesh(sizes)
    jaxpr = trace(program, mesh)
    ties = tuple((i, i) for i in range(program.state))
    open_specs = (None,) * len(jaxpr.invars), (None,) * len(jaxpr.outvars)
    request = PartitionRequest(jaxpr, mesh, *open_specs)
    return LayoutSearch(mesh, machine, ties=ties).decide(request)


def test_price_falls_with_the_overlap_and_work_bounds_it():
    decisions = [decide(replace(H100, overlap=share)) for share in (0.0, 0.5, 1.0)]
    prices = [d.price for d in decisions]
    assert prices[0] > prices[1] > prices[2]
    for d in decisions:
        assert d.price >= d.prices.of_records(d.result.records)
        assert d.solution.price == pytest.approx(d.price, rel=2e-3)
    little = replace(d.result, work=1e5)  # less than the collectives that can hide
    assert price_of(little, d.prices) == pytest.approx(d.prices.of_records(little.records))
