"""Equal layers of a program are analyzed once."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.spmd.harness import specs_of
from tests.spmd.test_random_programs import MESHES, Program, random_spec
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ops import functions
from weft._engine.partition import partitioner, strategies
from weft._engine.partition.partition import partition
from weft._engine.partition.propagation import propagate
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P


def count_analyzed_equations(layers: int, monkeypatch) -> int:
    """Return the number of equations whose candidates were computed, in a training step with this
    many equal layers."""
    calls = []

    class Counted(strategies.Candidates):
        def __init__(self, *args):
            calls.append(1)
            super().__init__(*args)

    monkeypatch.setattr(partitioner, "Candidates", Counted)

    def loss(weights, x):
        for w in weights:
            x = x + wnp.tanh(x @ w)
        return (x * x).sum()

    mesh = Mesh(np.array(weft.devices()[:4]), ("a",))
    x = weft.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("a")))
    weights = weft.device_put([np.eye(16, dtype=np.float32)] * layers, NamedSharding(mesh, P()))
    weft.jit(weft.grad(loss)).lower(weights, x).compile()
    return len(calls)


def test_candidates_do_not_grow_with_the_number_of_layers(monkeypatch):
    few, many = (count_analyzed_equations(layers, monkeypatch) for layers in (6, 18))
    assert 0 < few == many


@pytest.mark.parametrize("seed", range(20))
def test_what_equal_layers_share_changes_nothing(seed, monkeypatch):
    """Without sharing between equations, the local program, its collectives and their recorded
    causes are equal."""
    rng = np.random.default_rng(seed)
    program, mesh = Program(rng), MESHES[int(rng.integers(len(MESHES)))]
    args = [typeof(np.zeros(shape, np.float32)) for shape in program.shapes]

    def layers(*xs):
        outs = []
        for _ in range(3):
            xs = [functions.tanh(x) for x in xs]
            outs += program.run(*xs)
        return outs

    jaxpr = stage(layers, args)
    ins, outs = (
        [random_spec(rng, mesh, a.aval.shape) for a in atoms]
        for atoms in (jaxpr.invars, jaxpr.outvars)
    )
    split = lambda: partition(
        jaxpr, mesh, specs_of(ins, jaxpr.invars), specs_of(outs, jaxpr.outvars)
    )
    shared = split()
    monkeypatch.setattr(propagate, "params_key", lambda params: None)
    apart = split()
    assert (shared.text(), shared.in_specs, shared.out_specs) == (
        apart.text(),
        apart.in_specs,
        apart.out_specs,
    )
    assert [r.eqn for r in shared.records] == [r.eqn for r in apart.records]
    assert [placed.placements for placed in shared.placed_eqns] == [
        placed.placements for placed in apart.placed_eqns
    ]
