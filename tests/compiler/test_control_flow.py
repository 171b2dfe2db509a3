"""Loops and branches as steps of one program."""

import numpy as np
import pytest

import weft._engine.ops.elementwise as E
import weft._engine.ops.reduce as R
from tests.compiler import loops
from tests.compiler.machine import check
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.compiler.schedule.schedule import schedule
from weft._engine.core.stage import stage
from weft._engine.ir import program as P
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.program import iterate_steps
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.contraction import dot_general
from weft._engine.ops.dynamic_slicing import dynamic_update_slice

F32, I32 = np.dtype("f4"), np.dtype("i4")
VEC, ONE, COUNT = ShapedArray((6,), F32), ShapedArray((), F32), ShapedArray((), I32)
BOTH = pytest.mark.parametrize("native", [False, True], ids=["slow", "native"])


def values(*avals):
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(a.shape).astype("f4")
        if a.dtype == F32
        else np.int32(rng.integers(0, 3))
        for a in avals
    ]


def body(w, c, k, x):
    return [E.add(E.mul(c, w), x), E.mul(k, 2.0), E.sin(E.add(c, x))]


def kinds(scheduled):
    return [type(s).__name__ for s in iterate_steps(scheduled.program.steps)]


@BOTH
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_with_consts_carries_and_stacked_values(native, reverse):
    avals = [VEC, VEC, ONE, ShapedArray((5, 6), F32)]
    jaxpr = loops.scan(stage(body, [VEC, VEC, ONE, VEC]), avals, 5, 1, 2, reverse)
    scheduled = check(jaxpr, *values(*avals), native=native)
    assert kinds(scheduled) == [
        "Copy",
        "Copy",
        "Loop",
        "Launch",
        "Launch",
    ]  # carries are updated in place
    assert scheduled.program.arena_bytes == 0


@BOTH
@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: [b, a],
        lambda a, b: [E.add(a, b), a],
        lambda a, b: [b, E.mul(a, b)],
        lambda a, b: [a, a],
        lambda a, b: [E.add(a, 1.0), E.add(a, b)],
    ],
)
def test_carries_that_cross(native, fn):
    check(loops.scan(stage(fn, [VEC, VEC]), [VEC, VEC], 3, 0, 2), *values(VEC, VEC), native=native)


@BOTH
def test_window_updates_in_a_loop_are_in_place(native):
    window = ShapedArray((1,), F32)
    fn = lambda w, c, i: [dynamic_update_slice(c, w, [i]), E.add(i, np.int32(1))]
    jaxpr = loops.scan(stage(fn, [window, VEC, COUNT]), [window, VEC, COUNT], 4, 1, 2)
    scheduled = check(jaxpr, *values(window, VEC, COUNT), native=native)
    inside = next(s for s in scheduled.program.steps if isinstance(s, P.Loop)).body
    assert all(isinstance(s, P.Launch) for s in inside)


@BOTH
def test_a_carry_is_stacked_before_it_is_overwritten(native):
    jaxpr = loops.scan(stage(lambda c: [E.sin(c), c, E.cos(c)], [VEC]), [VEC], 4, 0, 1)
    scheduled = check(jaxpr, *values(VEC), native=native)
    assert kinds(scheduled) == ["Copy", "Loop", "Copy", "Launch"]
    swapped = loops.scan(stage(lambda a, b: [b, E.sin(a), a, b], [VEC, VEC]), [VEC, VEC], 4, 0, 2)
    check(swapped, *values(VEC, VEC), native=native)


@BOTH
@pytest.mark.parametrize("reverse", [False, True])
def test_begins_and_ends_of_turns_are_stacked_as_one(native, reverse):
    """The first and last values of iterations overlap except in one position, and include the
    carried values."""

    def program(a, b):
        step = stage(lambda a, b: [E.add(a, b), E.sin(a), a, E.add(a, b), b], [VEC, VEC])
        a, b, begins, ends, others = loops.scan_p.bind(
            a,
            b,
            jaxpr=step,
            length=4,
            reverse=reverse,
            num_consts=0,
            num_carry=2,
            linear=(False,) * 2,
            unroll=1,
        )
        return [a, b, E.mul(E.exp(begins), ends), E.cos(others)]

    scheduled = check(stage(program, [VEC, VEC]), *values(VEC, VEC), native=native)
    loop = next(s for s in scheduled.program.steps if isinstance(s, P.Loop))
    assert not any(isinstance(s, P.Copy) for s in loop.body)
    assert (
        scheduled.program.arena_bytes == 2 * 128
    )  # five rows of 24 bytes for each of the two, and no more


@BOTH
def test_a_stack_that_is_updated_in_place_has_memory_of_its_own(native):
    def program(a, row):
        step = stage(lambda a: [E.sin(a), a, E.sin(a)], [VEC])
        a, begins, ends = loops.scan_p.bind(
            a,
            jaxpr=step,
            length=4,
            reverse=False,
            num_consts=0,
            num_carry=1,
            linear=(False,),
            unroll=1,
        )
        begins = dynamic_update_slice(begins, row, [np.int32(1), np.int32(0)])
        return [E.cos(a), E.sin(begins), E.sin(ends)]

    avals = VEC, ShapedArray((1, 6), F32)
    check(stage(program, avals), *values(*avals), native=native)


def test_work_on_loop_constants_runs_once():
    jaxpr = loops.scan(stage(lambda w, c: [E.add(c, E.exp(w))], [VEC, VEC]), [VEC, VEC], 4, 1, 1)
    simple = simplify(jaxpr)
    assert [e.primitive.name for e in simple.eqns] == ["exp", "scan"]
    assert [e.primitive.name for e in simple.eqns[1].params["jaxpr"].eqns] == ["add"]
    check(jaxpr, *values(VEC, VEC))


@BOTH
def test_nested_scans(native):
    inner = loops.scan(
        stage(body, [VEC, VEC, ONE, VEC]), [VEC, VEC, ONE, ShapedArray((5, 6), F32)], 5, 1, 2
    )
    ins = [Var(a) for a in inner.in_avals]
    outs = [Var(a) for a in inner.out_avals]
    total = (
        stage(lambda a: [R.reduce_sum(a, axes=(0,))], [outs[2].aval])
        .eqns[0]
        .replace(invars=[outs[2]])
    )
    middle = Jaxpr(
        (),
        (),
        ins,
        [outs[0], outs[1], total.outvars[0]],
        [Eqn(loops.scan_p, ins, outs, inner.eqns[0].params), total],
    )
    avals = [VEC, VEC, ONE, ShapedArray((3, 5, 6), F32)]
    check(loops.scan(middle, avals, 3, 1, 2), *values(*avals), native=native)


@BOTH
@pytest.mark.parametrize("limit", [0, 1, 7])
def test_while(native, limit):
    cond = stage(lambda lim, c, i: [E.lt(i, lim)], [COUNT, VEC, COUNT])
    step = stage(
        lambda w, c, i: [E.mul(E.add(c, w), 0.5), E.add(i, np.int32(1))], [VEC, VEC, COUNT]
    )
    jaxpr = loops.program(
        loops.while_p,
        [COUNT, VEC, VEC, COUNT],
        cond_jaxpr=cond,
        body_jaxpr=step,
        cond_nconsts=1,
        body_nconsts=1,
    )
    _, w, c, _ = values(COUNT, VEC, VEC, COUNT)
    check(jaxpr, np.int32(limit), w, c, np.int32(0), native=native)


@BOTH
@pytest.mark.parametrize("index", [-1, 0, 1, 2, 5])
def test_cond_clamps_its_index(native, index):
    functions = [
        lambda x, y: [E.add(x, y), y],
        lambda x, y: [E.mul(x, E.sin(y)), x],
        lambda x, y: [x, x],
    ]
    branches = tuple(stage(fn, [VEC, VEC]) for fn in functions)
    jaxpr = loops.program(loops.cond_p, [COUNT, VEC, VEC], branches=branches)
    check(jaxpr, np.int32(index), *values(VEC, VEC), native=native)


def test_a_donated_carry_is_not_copied():
    jaxpr = loops.scan(stage(lambda c: [E.sin(c)], [VEC]), [VEC], 3, 0, 1)
    scheduled = check(jaxpr, *values(VEC), donated=(0,))
    assert scheduled.aliases == {0: 0}
    assert kinds(scheduled) == ["Loop", "Launch"]


@BOTH
def test_what_a_loop_starts_from_is_made_in_the_carry(native):
    once = stage(lambda x: [E.sin(x)], [VEC])
    loop = loops.scan(stage(lambda c: [E.mul(c, 0.5)], [VEC]), [VEC], 3, 0, 1)
    out = Var(VEC)
    jaxpr = Jaxpr(
        (),
        (),
        once.invars,
        [out],
        [*once.eqns, Eqn(loops.scan_p, once.outvars, [out], loop.eqns[0].params)],
    )
    assert kinds(check(jaxpr, *values(VEC), native=native)) == ["Launch", "Loop", "Launch"]
    both = jaxpr.replace(outvars=[out, once.outvars[0]])
    assert kinds(check(both, *values(VEC), native=native)) == ["Launch", "Copy", "Loop", "Launch"]


@BOTH
@pytest.mark.parametrize(
    "length, rows, in_parallel", [(12, 48, True), (4, 48, False), (12, 4096, False)]
)
def test_iterations_that_carry_nothing_run_in_parallel(native, length, rows, in_parallel):
    """From a number of iterations on, each with its own memory for intermediate values, unless that
    would be too large."""
    big = ShapedArray((rows, rows), F32)

    def fn(w, x):
        between = E.sin(E.add(w, x))
        product = dot_general(between, between, (((1,), (0,)), ((), ())))
        return [R.reduce_sum(E.mul(product, between), (0,))]

    jaxpr = loops.scan(stage(fn, [big, ONE]), [big, ShapedArray((length,), F32)], length, 1, 0)
    scheduled = (
        schedule(simplify(jaxpr))
        if rows > 100
        else check(jaxpr, *values(big, ShapedArray((length,), F32)), native=native)
    )
    (loop,) = [s for s in scheduled.program.steps if isinstance(s, P.Loop)]
    assert loop.tasks == in_parallel == bool(loop.own_bytes)
    if in_parallel:
        assert loop.own_bytes >= big.nbytes and not scheduled.program.arena_bytes


def test_no_iterations():
    avals = [VEC, VEC, ONE, ShapedArray((0, 6), F32)]
    check(loops.scan(stage(body, [VEC, VEC, ONE, VEC]), avals, 0, 1, 2), *values(*avals))
