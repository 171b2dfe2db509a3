"""Combined reductions: the choice of reductions, no cycles, and splitting them restores the program."""

import numpy as np
import pytest

from tests.spmd.harness import P, check, make, random
from weft._engine.ops import arithmetic, functions, reduce
from weft._engine.ops.contraction import dot_general
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.partition import combine
from weft._engine.partition.combine import separate_reductions

GRID = make(a=4, b=2)
SPECS = [P(None, "a"), P("a")]
SQUARES = [random(16, 16, seed=s) for s in range(4)]


def dot(x, y):
    return dot_general(x, y, (((1,), (0,)), ((), ())))


def reductions(result):
    return [e for e in result.jaxpr.eqns if e.primitive.name in ("psum", "pmax", "pmin")]


def test_independent_sums_travel_together():
    result = check(
        lambda x, y: [functions.tanh(dot(x, y)), dot(functions.sin(x), y)], SQUARES[:2], GRID, SPECS
    )
    (eqn,) = reductions(result)
    assert len(eqn.invars) == 2 and result.counts == {"psum": 1}
    (record,) = result.records
    assert [r.shape for r in record.parts] == [(16, 16)] * 2 and record.count == 1
    assert record.bytes_per_device == 2 * (2 * 16 * 16 * 4 * 3 // 4)
    assert str(record).count("float32[16, 16]") == 2


def test_a_sum_that_another_waits_for_goes_alone():
    result = check(
        lambda x, y: [dot(functions.tanh(dot(x, y)), y)],
        SQUARES[:2],
        GRID,
        [P(None, "a"), P("a")],
        [P()],
    )
    assert all(len(e.invars) == 1 for e in reductions(result))


def test_only_equal_axes_and_operations_are_combined():
    args = [SQUARES[0], SQUARES[1]]
    both = check(
        lambda x, y: [reduce.reduce_sum(x, (0,)), reduce.reduce_sum(y, (0,))],
        args,
        GRID,
        [P("a"), P("b")],
    )
    assert both.counts == {"psum": 2}
    kinds = check(
        lambda x, y: [
            reduce.reduce_sum(x, (0,)),
            reduce.reduce_max(y, (0,)),
            reduce.reduce_max(x, (0,)),
        ],
        args,
        GRID,
        [P("a"), P("a")],
    )
    assert kinds.counts == {"psum": 1, "pmax": 1}


def test_sums_over_two_axes_that_wait_for_each_other_crosswise():
    def f(x, y):
        over_a, over_b = reduce.reduce_sum(x, (0,)), reduce.reduce_sum(y, (0,))
        spread = lambda v: broadcast_in_dim(functions.tanh(v), (16, 16), (1,))
        then_b = reduce.reduce_sum(arithmetic.mul(y, spread(over_a)), (0,))
        then_a = reduce.reduce_sum(arithmetic.mul(x, spread(over_b)), (0,))
        return [then_a, then_b]

    result = check(f, [random(16, 16), random(16, 16, seed=5)], GRID, [P("a"), P("b")])
    assert result.counts == {"psum": 4}


def test_a_limit_on_what_travels_together(monkeypatch):
    monkeypatch.setattr(combine, "MOST_BYTES", 2 * 16 * 16 * 4)
    terms = lambda *xs: [dot(x, xs[-1]) for x in xs[:-1]]
    result = check(terms, SQUARES, GRID, [P(None, "a")] * 3 + [P("a")])
    assert sorted(len(e.invars) for e in reductions(result)) == [1, 2]


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: [functions.tanh(dot(x, y)), dot(functions.sin(x), y)],
        lambda x, y: [
            reduce.reduce_sum(reduce.reduce_max(x, (1,)), (0,)),
            reduce.reduce_max(y, (0,)),
        ],
    ],
)
def test_separate_reductions(f):
    local = check(f, SQUARES[:2], GRID, SPECS).jaxpr
    apart = separate_reductions(local)
    assert all(len(e.invars) == 1 for e in apart.eqns if e.primitive.name in ("psum", "pmax"))
    known = {*apart.invars, *apart.constvars}
    for eqn in apart.eqns:
        assert all(a in known for a in eqn.invars if not hasattr(a, "val"))
        known.update(eqn.outvars)
    assert all(a in known for a in apart.outvars)
    assert np.sum([len(e.outvars) for e in local.eqns]) == np.sum(
        [len(e.outvars) for e in apart.eqns]
    )
