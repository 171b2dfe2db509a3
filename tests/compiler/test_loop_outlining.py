"""Small loops as one kernel: results, number of steps, and loops that are not outlined."""

import random

import numpy as np
import pytest

import weft
import weft._engine.ops.elementwise as E
import weft._engine.ops.layout as L
import weft._engine.ops.reduce as R
import weft.lax as lax
import weft.numpy as wnp
from tests.compiler import loops
from tests.compiler.machine import check
from tests.compiler.test_random_programs import grow
from weft._engine.compiler.schedule.loop_outlining import with_loop_kernels
from weft._engine.core.stage import stage
from weft._engine.ir import program as P
from weft._engine.ir.loops import StoreElement
from weft._engine.ir.program import iterate_steps
from weft._engine.ir.types import ShapedArray

F32, I32 = np.dtype("f4"), np.dtype("i4")


def steps(f, *args):
    """Return the steps of a jitted function, including the steps of its loops."""
    compiled = weft.jit(f).lower(*args).compile()
    return list(iterate_steps(compiled.runtime_executable().stages.scheduled.program.steps))


def launches(f, *args):
    loop_steps = steps(f, *args)
    assert not any(isinstance(s, P.Loop) for s in loop_steps)
    return [s.kernel for s in loop_steps if isinstance(s, P.Launch)]


def kinds(stmts):
    return [type(s).__name__ for s in stmts]


def newton(x):
    return lax.while_loop(
        lambda s: s[1] < 20, lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1), (x, 0)
    )[0]


def collatz(n):
    odd = lambda s: (wnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)
    return lax.while_loop(lambda s: s[0] != 1, odd, (n, 0))[1]


def smoothed(x):
    return lax.scan(lambda c, v: (0.9 * c + 0.1 * v,) * 2, np.float32(0), x)[1]


def lorenz(x, n):
    def step(s, _):
        x, y, z = s
        return (
            x + 0.1 * (y - x),
            y + 0.01 * (x * (28 - z) - y),
            z + 0.01 * (x * y - 2.5 * z),
        ), wnp.stack(s)

    return lax.scan(step, (x, x, x), None, length=n)


def test_a_loop_on_scalars_is_one_kernel():
    """Includes the condition: carried values are in registers."""
    for f, x in ((newton, np.float32(2)), (collatz, np.int32(27))):
        (kernel,) = launches(f, x)
        assert kinds(kernel.body)[-1] == "StoreElement" and "While" in kinds(kernel.body)
        loop = next(s for s in kernel.body if type(s).__name__ == "While")
        assert not any(isinstance(s, StoreElement) for s in loop.body)
    assert float(weft.jit(newton)(np.float32(2))) == pytest.approx(2**0.5)
    assert int(weft.jit(collatz)(np.int32(27))) == 111


def test_a_scan_over_scalars_is_one_kernel():
    (kernel,) = launches(smoothed, np.ones(100, "f4"))
    assert kinds(kernel.body) == ["Init", "For", "StoreElement"]
    loop = kernel.body[1]
    assert kinds(loop.body) == ["Let", "StoreElement", "Accum"] and loop.extent == 100
    x = np.random.default_rng(0).random(100).astype("f4")
    want, c = [], np.float32(0)
    for v in x:
        c = np.float32(0.9) * c + np.float32(0.1) * v
        want.append(c)
    np.testing.assert_allclose(weft.jit(smoothed)(x), want, rtol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_short_vectors_are_registers(n):
    f = lambda x: lorenz(x, n)
    last, all_ = weft.jit(f)(np.float32(1))
    s, rows = np.full(3, 1, "f8"), []
    for _ in range(n):
        rows.append(s)
        x, y, z = s
        s = np.array(
            [x + 0.1 * (y - x), y + 0.01 * (x * (28 - z) - y), z + 0.01 * (x * y - 2.5 * z)]
        )
    np.testing.assert_allclose(last, s, rtol=1e-3)
    assert all_.shape == (n, 3)
    np.testing.assert_allclose(np.asarray(all_), np.reshape(rows, (n, 3)), rtol=1e-3)
    if n > 1:
        assert len(launches(f, np.float32(1))) == 1


def test_dear_rows_are_not_taken_apart():
    """A vector of 3 is kept in registers if the iteration computes little; expensive functions of
    it are vectorized."""

    def vectors(f):
        (kernel,) = launches(
            lambda x: lax.scan(lambda c, _: (f(c), None), x, length=9)[0], np.ones(3, "f4")
        )
        (loop,) = [s for s in kernel.body if type(s).__name__ == "For"]
        return [s.extent for s in loop.body if type(s).__name__ == "For"]

    def dear(x):
        for _ in range(10):
            x = wnp.sin(x) + 0.5
        return x

    assert vectors(lambda x: x * 0.5 + 1) == []
    assert vectors(dear) == [3]


def test_a_loop_in_a_loop_is_in_its_kernel():
    def f(x):
        return lax.fori_loop(
            0,
            5,
            lambda i, c: lax.fori_loop(0, 3, lambda j, c: c * 0.5 + x[i] * x[j], c),
            np.float32(1),
        )

    x = np.arange(5, dtype="f4")
    want = np.float32(1)
    for i in range(5):
        for j in range(3):
            want = want * 0.5 + x[i] * x[j]
    assert float(weft.jit(f)(x)) == pytest.approx(float(want))
    scan = lambda x: lax.scan(
        lambda c, v: (lax.scan(lambda c, w: (c * 0.5 + v * w, None), c, x)[0],) * 2,
        np.float32(1),
        x,
    )
    (kernel,) = launches(scan, x)
    (outer,) = [s for s in kernel.body if type(s).__name__ == "For"]
    assert "For" in kinds(outer.body)


def test_branches_are_in_the_kernel():
    f = lambda x: lax.scan(
        lambda c, v: (lax.switch(v, [lambda c: c + 1, lambda c: c * 2, lambda c: -c], c), c),
        np.float32(1),
        x,
    )
    x = np.array([0, 1, 2, 3, -1, 1], "i4")
    assert len(launches(f, x)) == 1
    last, before = weft.jit(f)(x)
    want = [1.0]
    for v in x:
        want.append([want[-1] + 1, want[-1] * 2, -want[-1]][min(max(v, 0), 2)])
    assert float(last) == want[-1]
    np.testing.assert_array_equal(before, want[:-1])


def test_rows_go_through_memory_and_their_sums_do_not():
    f = lambda x: lax.scan(
        lambda c, _: ((c / wnp.sqrt((c * c).sum())) * wnp.arange(1, 41), c.max()),
        x,
        None,
        length=30,
    )
    (kernel,) = launches(f, np.ones(40, "f4"))
    assert not kernel.scratch
    x, tops = np.ones(40), []
    for _ in range(30):
        tops.append(x.max())
        x = x / np.sqrt((x * x).sum()) * np.arange(1, 41)
    last, got = weft.jit(f)(np.ones(40, "f4"))
    np.testing.assert_allclose(last, x, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got, tops, rtol=1e-4)


def test_loops_over_more_stay_loops_of_kernels():
    loop_steps = steps(
        lambda x: lax.fori_loop(0, 9, lambda i, x: wnp.sin(x) * 0.5, x), np.ones((256, 256), "f4")
    )
    assert any(
        isinstance(s, P.Loop | P.WhileLoop) and any(isinstance(t, P.Launch) for t in s.body)
        for s in loop_steps
    )


def test_a_call_of_a_kernel_ends_while_signals_can_wait():
    """A counted loop of many iterations stays a loop; an uncounted loop continues in another call
    of the kernel."""
    loop_steps = steps(
        lambda x: lax.scan(lambda c, _: (c * 1.01 + 1, None), x, length=10**12)[0], np.float32(1)
    )
    assert any(isinstance(s, P.Loop) for s in loop_steps)
    (loop,) = [s for s in steps(collatz, np.int32(27)) if isinstance(s, P.WhileLoop)]
    (launch,) = loop.cond_body
    assert not loop.body and launch.work > 1 << 26
    many = 3_000_000
    f = weft.jit(lambda n: lax.while_loop(lambda i: i < n, lambda i: i + 1, 0))
    assert int(f(many)) == many


def test_what_is_read_after_the_loop_is_in_memory():
    def program(a, b):
        step = stage(lambda a, b: [E.add(a, b), E.mul(b, 0.5), E.sub(a, b)], [ONE, ONE])
        a, b, all_ = loops.scan_p.bind(
            a,
            b,
            jaxpr=step,
            length=7,
            reverse=True,
            num_consts=0,
            num_carry=2,
            linear=(False,) * 2,
            unroll=1,
        )
        return [E.mul(a, b), b, E.exp(all_)]

    scheduled = check(stage(program, [ONE, ONE]), np.float32(1.5), np.float32(2.0), native=False)
    joined = with_loop_kernels(scheduled)
    assert not any(isinstance(s, P.Loop) for s in joined.program.steps)
    assert joined.kernel_count < scheduled.kernel_count + 1


ONE = ShapedArray((), F32)
SHAPES = [(), (3,), (2, 2), (7,), (4, 5)]


def turn_of(seed: int):
    """Return a random loop body on values of several shapes: each carry changes a little, and some
    value is stacked."""
    rnd = random.Random(seed)
    shapes = [rnd.choice(SHAPES) for _ in range(rnd.randint(1, 4))]
    avals = [ShapedArray(s, F32) for s in shapes]

    def body(*carried):
        values = list(carried)
        for _ in range(rnd.randint(2, 9)):
            value = grow(rnd, values)
            if value is not None and 0 < value.size < 200:
                values.append(value)
        rnd.shuffle(values)
        total = None
        for v in values:
            one = E.tanh(R.reduce_sum(v, axes=tuple(range(v.ndim))) if v.ndim else v)
            total = one if total is None else E.add(total, one)
        fresh = [
            E.add(E.mul(c, 0.5), L.broadcast_in_dim(E.mul(total, 0.1), c.shape, ()))
            for c in carried
        ]
        if len({c.shape for c in carried}) < len(carried):
            same = [
                i for i, c in enumerate(carried) if [d.shape for d in carried].count(c.shape) > 1
            ]
            i, j = same[0], next(k for k in same[1:] if carried[k].shape == carried[same[0]].shape)
            fresh[i], fresh[j] = (
                carried[j],
                fresh[i],
            )  # carries that are swapped, one of them unchanged
        return [*fresh, values[0], carried[0]]

    return body, avals, rnd


@pytest.mark.parametrize("native", [False, True], ids=["slow", "native"])
@pytest.mark.parametrize("seed", range(24))
def test_random_bodies(seed, native):
    body, avals, rnd = turn_of(seed)
    rng = np.random.default_rng(seed)
    reverse, length = rnd.random() < 0.3, rnd.choice([1, 2, 5])
    jaxpr = loops.scan(stage(body, avals), avals, length, 0, len(avals), reverse)
    scheduled = check(
        jaxpr, *[rng.standard_normal(a.shape).astype("f4") for a in avals], native=native, rtol=2e-4
    )
    steps = list(iterate_steps(with_loop_kernels(scheduled).program.steps))
    assert any(isinstance(s, P.Gemm) for s in steps) or not any(
        isinstance(s, P.Loop) for s in steps
    )
