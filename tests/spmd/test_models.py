"""Whole training steps: the collectives of the well-known ways to lay out a model, counted."""

import numpy as np
import pytest

from tests.spmd.harness import P, check, make, random
from weft._engine.core.trace import UndefPrimal, typeof
from weft._engine.ops import arithmetic, reduce
from weft._engine.ops.contraction import dot_general
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.transforms.jvp import instantiate
from weft._engine.transforms.linearize import linearize_flat
from weft._engine.transforms.transpose import backward_pass

LINE = make(b=8)
GRID = make(data=4, model=2)


def dot(x, y):
    return dot_general(x, y, (((1,), (0,)), ((), ())))


def loss(w1, b1, w2, b2, w3, b3, x, t):
    for i, (w, b) in enumerate([(w1, b1), (w2, b2), (w3, b3)]):
        y = dot(x, w)
        y = arithmetic.add(y, broadcast_in_dim(b, typeof(y).shape, (1,)))
        x = arithmetic.max(y, np.float32(0)) if i < 2 else y
    d = arithmetic.sub(x, t)
    per_row = reduce.reduce_sum(arithmetic.mul(d, d), (1,))
    return arithmetic.div(reduce.reduce_sum(per_row, (0,)), np.float32(t.shape[0]))


def step(*args):
    """Return the parameters after one step of gradient descent."""
    _, program, _ = linearize_flat(lambda *a: [loss(*a)], args)
    cts = backward_pass(
        program, [UndefPrimal(v.aval) for v in program.invars], [np.ones((), np.float32)]
    )
    return [
        arithmetic.sub(p, arithmetic.mul(instantiate(ct), np.float32(0.1)))
        for p, ct in zip(args[:6], cts)
    ]


def model(batch):
    sizes = [16, 32, 32, 8]
    params = []
    for i in range(3):
        params += [
            random(sizes[i], sizes[i + 1], seed=i) * np.float32(0.1),
            random(sizes[i + 1], seed=i),
        ]
    return [*params, random(batch, 16), random(batch, 8, seed=9)]


REPLICATED = [P()] * 6
TENSOR = [P(), P(), P(None, "model"), P("model"), P("model"), P()]


def test_data_parallel_forward():
    result = check(lambda *a: [loss(*a)], model(64), LINE, [*REPLICATED, P("b"), P("b")])
    assert result.counts == {"psum": 1} and result.records[0].shape == ()


def test_data_parallel_step_has_one_reduction_of_all_gradients():
    result = check(step, model(64), LINE, [*REPLICATED, P("b"), P("b")])
    assert result.counts == {"psum": 1}
    (record,) = result.records
    assert sorted(int(np.prod(r.shape)) for r in record.parts) == sorted(
        v.size for v in model(64)[:6]
    )
    assert (
        record.bytes_per_device == sum(r.bytes_per_device for r in record.parts)
        and len(record.sources) > 1
    )
    (eqn,) = [e for e in result.jaxpr.eqns if e.primitive.name == "psum"]
    assert len(eqn.outvars) == 6
    assert all(spec == P().dims(len(spec)) for spec in result.out_specs)


def test_megatron_pair_has_one_reduction_forward():
    pair = lambda x, w1, w2: [dot(arithmetic.max(dot(x, w1), np.float32(0)), w2)]
    args = [random(64, 16), random(16, 32), random(32, 16)]
    result = check(pair, args, GRID, [P("data"), P(None, "model"), P("model")])
    assert result.counts == {"psum": 1} and result.records[0].axes == ("model",)
    assert result.out_specs == (P("data").dims(2),)


def test_data_and_tensor_parallel_step():
    result = check(step, model(64), GRID, [*TENSOR, P("data"), P("data")])
    assert result.counts == {"psum": 3}  # one activation forward, one backward, all gradients
    assert [r.axes for r in result.records].count(("model",)) == 2
    assert result.out_specs == tuple(s.dims(v.ndim) for s, v in zip(TENSOR, model(64)))


def test_fsdp_step_gathers_parameters_and_scatters_gradients():
    result = check(step, model(512), LINE, [P("b")] * 8, [P("b")] * 6)
    assert result.counts == {"all_gather": 6, "reduce_scatter": 6}


def test_linear_terms_share_one_reduction():
    terms = lambda x, y, u, v: [arithmetic.mul(arithmetic.add(dot(x, y), dot(u, v)), np.float32(2))]
    result = check(
        terms, [random(16, 16, seed=s) for s in range(4)], LINE, [P(None, "b"), P("b")] * 2
    )
    assert result.counts == {"psum": 1}


def test_a_sum_waits_only_where_that_saves_something():
    args, specs = [random(16, 16)] * 2, [P(None, "b"), P("b")]
    names = lambda f: [e.primitive.name for e in check(f, args, LINE, specs).jaxpr.eqns]
    assert names(lambda x, y: [arithmetic.mul(dot(x, y), np.float32(2))]) == [
        "dot_general",
        "psum",
        "mul",
    ]
    assert names(lambda x, y: [reduce.reduce_sum(arithmetic.neg(dot(x, y)), (0,))]) == [
        "dot_general",
        "neg",
        "reduce_sum",
        "psum",
    ]


def test_unneeded_values_are_not_communicated():
    def f(x, y):
        arithmetic.mul(dot(x, y), np.float32(2))
        return [x]

    assert not check(f, [random(16, 16)] * 2, LINE, [P(None, "b"), P("b")]).jaxpr.eqns


def test_a_partial_sum_is_scattered_where_a_shard_is_wanted():
    result = check(
        lambda x, y: [dot(x, y)], [random(16, 16)] * 2, LINE, [P(None, "b"), P("b")], [P("b")]
    )
    assert result.counts == {"reduce_scatter": 1}


def test_records_say_where_and_why():
    result = check(lambda x, y: [dot(x, y)], [random(16, 16)] * 2, LINE, [P(None, "b"), P("b")])
    (record,) = result.records
    assert "test_models.py" in str(
        record.source
    ) and "dot_general sums over a dim that is split over b" in str(record)
    assert record.bytes_per_device == 2 * 16 * 16 * 4 * 7 // 8


@pytest.mark.parametrize(
    "specs",
    [
        [*REPLICATED, P("data", "model"), P("data")],
        [
            P("model"),
            P("model"),
            P("data"),
            P("data"),
            P(None, "data"),
            P("model"),
            P(),
            P("model"),
        ],
        [None] * 6 + [P("data"), None],
        [P("data", "model")] + [None] * 7,
    ],
)
def test_any_layout_gives_the_same_parameters(specs):
    check(step, model(64), GRID, specs, tolerance=1e-4)
