"""Automatic sharding costs no more than the ordinary partitioner and hand-written layouts, and keeps values."""

import numpy as np
import pytest

import weft
from benchmarks.automatic.measure import (
    BOUND,
    compare,
    joint_price,
    make_mesh,
    time_optimizer,
)
from benchmarks.automatic.programs import DRAWN, PROGRAMS, transformer
from weft.tools.automatic.annotations import WITHIN, fewest_annotations

#: how far from the optimum over all axes the price may be, and what a drawn transformer may send
JOINT_BOUND, DRAWN_BOUND = 1.01, 1.02
MESHES = {"8": (8,), "4x2": (4, 2), "2x2x2": (2, 2, 2)}
QUICK = [
    ("mlp", "8", None),
    ("mlp-wide", "2x2x2", "h100"),
    ("attention", "8", None),
    ("transformer-2", "8", "h100"),
    ("moe", "8", "h100"),
    ("conv", "8", "h100"),
    ("embedding", "8", None),
    ("kmeans", "8", "h100"),
    ("grid", "4x2", "h100"),
    ("chain", "4x2", "h100"),
    ("gnn", "8", None),
    ("ring-attention", "8", "h100"),
    ("decoder", "4x2", "h100"),
]
#: other programs with more layers
DEEP = ["transformer-4", "transformer-12", "transformer-12-scan"]
SLOW = [
    (name, mesh, machine)
    for name in PROGRAMS
    for mesh in MESHES
    for machine in (None, "h100")
    if (name, mesh, machine) not in QUICK and not name.startswith("transformer-12")
]


def assert_no_worse(name, mesh, machine):
    comparison = compare(PROGRAMS[name](), MESHES[mesh], machine)
    best = comparison.hands[comparison.best_hand].price
    assert comparison.realized.price <= BOUND * comparison.ordinary.price
    assert comparison.realized.price <= BOUND * best, comparison.best_hand
    return comparison.decision


@pytest.mark.parametrize("name, mesh, machine", QUICK)
def test_costs_no_more_than_by_hand(name, mesh, machine):
    decision = assert_no_worse(name, mesh, machine)
    annotated = fewest_annotations(decision, make_mesh(MESHES[mesh]), WITHIN)
    assert annotated.ratio <= WITHIN, annotated.annotations


@pytest.mark.slow
@pytest.mark.parametrize("name, mesh, machine", SLOW)
def test_all_programs_cost_no_more_than_by_hand(name, mesh, machine):
    assert_no_worse(name, mesh, machine)


@pytest.mark.parametrize("name", ["mlp-wide", "grid", "kmeans", "chain"])
def test_is_near_the_optimum_over_both_axes(name):
    price, optimum = joint_price(PROGRAMS[name](), (4, 2))
    assert price <= JOINT_BOUND * optimum


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_drawn_transformer_sends_little(name):
    comparison = compare(DRAWN[name](), (8,), None)
    assert comparison.realized.bytes_sent <= DRAWN_BOUND * comparison.fewest_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    "layers, mesh, seconds",
    [(12, "8", 2), (48, "8", 3), (56, "8", 60), (12, "4x2", 30), (48, "4x2", 45)],
)
def test_search_takes_little_processor_time(layers, mesh, seconds):
    program = transformer(f"transformer-{layers}", layers=layers)
    _, used = time_optimizer(program, MESHES[mesh], 600.0)
    assert used <= seconds


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in DEEP])
def test_values_equal_unsharded_results(name):
    program = PROGRAMS[name](small=True)
    mesh = make_mesh((8,))
    f, args = program.bind(mesh), program.values()
    auto = weft.AUTO(mesh)
    actual = weft.jit(f, in_shardings=auto, out_shardings=auto)(*args)
    expected = weft.jit(f)(*args)
    for a, b in zip(weft.tree.leaves(actual), weft.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
