"""Loops and branches: layouts pass through carries and bodies, collectives inside are counted per iteration."""

import numpy as np

from tests.spmd.harness import P, check, make, random
from weft._engine.control.cond import cond_p
from weft._engine.control.scan import scan_p
from weft._engine.control.while_loop import while_p
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ops import arithmetic, comparison, functions, layout, reduce, slicing
from weft._engine.ops.contraction import dot_general

GRID = make(a=4, b=2)


def scan(body, consts, carry, xs, length, reverse=False):
    avals = [
        *map(typeof, consts),
        *map(typeof, carry),
        *(typeof(x).update(shape=typeof(x).shape[1:]) for x in xs),
    ]
    jaxpr = stage(body, avals)
    return scan_p.bind(
        *consts,
        *carry,
        *xs,
        jaxpr=jaxpr,
        length=length,
        reverse=reverse,
        num_consts=len(consts),
        num_carry=len(carry),
        linear=(False,) * len(avals),
        unroll=1,
    )


def dot(x, y):
    return dot_general(x, y, (((1,), (0,)), ((), ())))


def test_scan_over_layers_carries_the_batch():
    layers = lambda x, ws: scan(
        lambda c, w: [functions.tanh(dot(c, w)), reduce.reduce_sum(c, (1,))], [], [x], [ws], 3
    )
    result = check(layers, [random(16, 8), random(3, 8, 8)], GRID, [P("a"), P()])
    assert not result.records
    assert result.out_specs == ((("a",), ()), ((), ("a",)))


def test_collectives_in_a_scan_count_per_iteration():
    layers = lambda x, ws: scan(lambda c, w: [functions.tanh(dot(c, w))], [], [x], [ws], 3)
    result = check(layers, [random(16, 8), random(3, 8, 8)], GRID, [P("a"), P(None, None, "b")])
    assert sum(result.counts.values()) % 3 == 0 and result.records
    assert all(r.count == 3 for r in result.records)


def test_scan_with_constants_backwards():
    body = lambda w, c, x: [arithmetic.add(arithmetic.mul(c, np.float32(0.5)), dot(x, w)), x]
    f = lambda w, c, xs: scan(body, [w], [c], [xs], 4, reverse=True)
    for specs in [
        [P("b"), P("a"), P(None, "a", "b")],
        [P(), P(), P(None, "a")],
        [None, P("a", "b"), None],
        [P("a", "b"), P(), P()],
    ]:
        check(f, [random(8, 8), random(16, 8), random(4, 16, 8)], GRID, specs)


def test_gradients_are_accumulated_before_they_are_reduced():
    def body(w, c, x):
        gradient = dot_general(x, functions.tanh(dot(x, w)), (((0,), (0,)), ((), ())))
        return [arithmetic.add(c, arithmetic.mul(gradient, np.float32(0.25)))]

    args = [random(8, 4), random(8, 4, seed=3), random(5, 16, 8)]
    result = check(
        lambda w, c, xs: scan(body, [w], [c], [xs], 5), args, GRID, [P(), P(), P(None, "a")]
    )
    (record,) = result.records
    assert record.kind == "psum" and record.count == 1 and record.axes == ("a",)

    def used(w, c, x):
        (out,) = body(w, c, x)
        return [out, reduce.reduce_max(out, (0,))]

    result = check(
        lambda w, c, xs: scan(used, [w], [c], [xs], 5), args, GRID, [P(), P(), P(None, "a")]
    )
    assert result.counts == {"psum": 5}


def test_a_stencil_in_a_loop_sends_edges_only():
    def body(c):
        left = slicing.concatenate(
            [slicing.slice(c, (1, 0), (64, 4)), slicing.slice(c, (0, 0), (1, 4))], 0
        )
        return [arithmetic.mul(arithmetic.add(c, left), np.float32(0.5))]

    result = check(lambda x: scan(body, [], [x], [], 5), [random(64, 4)], GRID, [P(("a", "b"))])
    (record,) = result.records
    assert record.kind == "ppermute" and record.shape == (1, 4) and record.count == 5


def test_while():
    def f(x, w):
        cond = stage(lambda i, c: [comparison.lt(i, np.int32(3))], [typeof(np.int32(0)), typeof(x)])
        body = stage(
            lambda w, i, c: [arithmetic.add(i, np.int32(1)), functions.tanh(dot(c, w))],
            [typeof(w), typeof(np.int32(0)), typeof(x)],
        )
        return while_p.bind(
            w, np.int32(0), x, cond_jaxpr=cond, body_jaxpr=body, cond_nconsts=0, body_nconsts=1
        )

    result = check(f, [random(16, 8), random(8, 8)], GRID, [P("a"), P()])
    assert not result.records and result.out_specs[1] == P("a").dims(2)
    check(f, [random(16, 8), random(8, 8)], GRID, [P("a", "b"), P("b")])


def test_while_whose_condition_needs_a_sum_of_shards():
    def f(x):
        small = lambda c: comparison.lt(
            reduce.reduce_sum(arithmetic.mul(c, c), (0, 1)), np.float32(1000)
        )
        cond = stage(lambda c: [small(c)], [typeof(x)])
        body = stage(lambda c: [arithmetic.mul(c, np.float32(2))], [typeof(x)])
        return while_p.bind(x, cond_jaxpr=cond, body_jaxpr=body, cond_nconsts=0, body_nconsts=0)

    assert check(f, [random(16, 8)], GRID, [P("a", "b")]).counts == {"psum": 1}


def test_cond():
    def f(i, x, y):
        branches = tuple(
            stage(g, [typeof(x), typeof(y)])
            for g in (
                lambda x, y: [functions.sin(x)],
                lambda x, y: [dot(x, y)],
                lambda x, y: [layout.broadcast_in_dim(reduce.reduce_max(y, (0,)), (16, 16), (1,))],
            )
        )
        return cond_p.bind(i, x, y, branches=branches)

    for i in range(3):
        for specs in [[P(), P("a"), P()], [P(), P("a", "b"), P("b")], [P(), P(), P("b", "a")]]:
            check(f, [np.int32(i), random(16, 16), random(16, 16, seed=1)], GRID, specs)
