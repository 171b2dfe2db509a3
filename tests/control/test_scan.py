"""`scan` against Python loops, alone and under every composition of transformations."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.control.laws import all_laws, arrays, close, same_on_all_engines, vmap_is_a_loop
from weft import lax
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.control.scan import scan_p
from weft._engine.ir import program as P
from weft._engine.ir.program import iterate_steps

C, D = arrays((3,), (3,))
XS, YS = arrays((5, 3), (5, 3), seed=3)
W = arrays((3, 3), seed=4, scale=0.5)[0]


def loop(body, carry, xs, reverse=False, length=None):
    """Return the meaning of scan as a Python loop."""
    n = len(xs) if xs is not None else length
    rows = []
    for i in reversed(range(n)) if reverse else range(n):
        carry, y = body(carry, None if xs is None else xs[i])
        rows.append(np.asarray(y))
    return carry, np.stack(rows[::-1] if reverse else rows)


BODIES = {
    "sum": lambda c, x: (c + x, c),
    "recurrent": lambda c, x: (wnp.tanh(W @ c + x), wnp.sin(c)),
    "swapped": lambda c, x: (x * 2 + 0 * c, c * x),
    "forgetful": lambda c, x: (x, x * x),
    "constant": lambda c, x: (c, x + c),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_scan_is_a_loop(name, reverse):
    body = BODIES[name]
    want = loop(body, C, XS, reverse)
    close(lax.scan(body, C, XS, reverse=reverse), want, 1e-5)
    same_on_all_engines(lambda c, xs: lax.scan(body, c, xs, reverse=reverse), C, XS)


def both(pair):
    return pair[0].sum() * wnp.ones(3) + pair[1].sum(0)


LAWFUL = {
    "recurrent": lambda c, xs: both(lax.scan(BODIES["recurrent"], c, xs)),
    "backwards": lambda c, xs: both(lax.scan(BODIES["recurrent"], c, xs, reverse=True)),
    "last carry": lambda c, xs: lax.scan(lambda c, x: (wnp.sin(c) * x, None), c, xs)[0],
    "only ys": lambda c, xs: lax.scan(lambda c, x: (wnp.sin(c) * x, c * x), c, xs)[1].sum(0),
    "with a counter": lambda c, xs: lax.scan(
        lambda s, x: ((s[0] + 1, s[1] * wnp.cos(x) + s[0]), None), (0, c), xs
    )[0][1],
    "of a tree": lambda c, xs: (lambda s, ys: s["p"] + ys["a"][0].sum(0) * ys["b"].sum())(
        *lax.scan(
            lambda s, x: (
                {"p": s["p"] * s["v"], "v": s["v"] + 0.1 * x[0]},
                {"a": (s["v"],), "b": x[1]},
            ),
            {"p": c, "v": wnp.ones(3)},
            (xs, wnp.arange(5.0)),
        )
    ),
    "with closures": lambda c, xs: lax.scan(
        lambda s, x: (wnp.tanh(W @ s + xs[0] * x) + wnp.exp(c), None), c, xs
    )[0],
    "nested": lambda c, xs: lax.scan(
        lambda s, x: lax.scan(lambda t, y: (wnp.sin(t + y) * x, t.sum()), s, xs[:2]), c, xs
    )[0],
    "with a branch": lambda c, xs: lax.scan(
        lambda s, x: (lax.cond(x[0] > 0, lambda a: wnp.sin(a) * x, lambda a: a * 0.5, s), None),
        c,
        xs,
    )[0],
    "of a checkpoint": lambda c, xs: lax.scan(
        weft.checkpoint(lambda s, x: (wnp.tanh(W @ s) * wnp.sin(x), None)), c, xs
    )[0],
    "in a jit": lambda c, xs: weft.jit(lambda c: lax.scan(weft.jit(BODIES["recurrent"]), c, xs)[0])(
        c
    ),
    "without xs": lambda c, xs: lax.scan(
        lambda s, _: (wnp.sin(s) + xs[1], None), c, None, length=4
    )[0],
    "linear": lambda c, xs: lax.scan(lambda s, x: (W @ s + 2 * x, None), c, xs)[0],
}


@pytest.mark.parametrize("name", LAWFUL)
def test_laws(name):
    all_laws(LAWFUL[name], C, XS)


def test_gradients_of_constants_add_up():
    loss = lambda w: (lax.scan(lambda c, x: (wnp.tanh(w @ c + x), None), C, XS)[0] ** 2).sum()
    unrolled = lambda w: (lambda c: (c**2).sum())(
        loop(lambda c, x: (wnp.tanh(w @ c + x), 0), C, XS)[0]
    )

    def plain(w):
        c = C
        for i in range(5):
            c = wnp.tanh(w @ c + XS[i])
        return (c**2).sum()

    close(loss(W), unrolled(W))
    close(weft.grad(loss)(W), weft.grad(plain)(W))
    close(
        weft.jit(weft.grad(weft.grad(lambda a: loss(a * W))))(1.0),
        weft.grad(weft.grad(lambda a: plain(a * W)))(1.0),
        1e-3,
    )
    close(
        weft.hessian(lambda c: lax.scan(BODIES["recurrent"], c, XS)[0].sum())(C),
        weft.hessian(lambda c: sum(_last(c)))(C),
        1e-3,
    )


def _last(c):
    for i in range(5):
        c = wnp.tanh(W @ c + XS[i])
    return c


def test_custom_rules_inside():
    @weft.custom_vjp
    def clipped(x):
        return wnp.sin(x)

    clipped.defvjp(lambda x: (wnp.sin(x), x), lambda x, ct: (wnp.clip(ct * wnp.cos(x), -0.1, 0.1),))

    @weft.custom_jvp
    def doubled(x):
        return x * 1.0

    doubled.defjvp(lambda p, t: (p[0], 2 * t[0]))

    def scanned(c):
        return lax.scan(lambda s, x: (clipped(doubled(s)) * x, None), c, XS)[0].sum()

    def plain(c):
        for i in range(5):
            c = clipped(doubled(c)) * XS[i]
        return c.sum()

    for g in (weft.grad(scanned), weft.jit(weft.grad(scanned)), weft.grad(weft.jit(scanned))):
        close(g(C), weft.grad(plain)(C))
    close(
        weft.vmap(weft.grad(scanned))(wnp.stack([C, D])),
        np.stack([weft.grad(plain)(C), weft.grad(plain)(D)]),
    )


def test_custom_rules_around():
    @weft.custom_vjp
    def rolled(c):
        return lax.scan(BODIES["recurrent"], c, XS)[0]

    rolled.defvjp(lambda c: (rolled(c), None), lambda _, ct: (ct * 7,))
    close(weft.jit(weft.grad(lambda c: rolled(c).sum()))(C), np.full(3, 7.0))


@pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (0, 2), (1, 1)])
def test_vmap_over_any_dim(in_axes):
    shapes = [(3,), (5, 3)]
    args = [
        arrays(s if d is None else s[:d] + (4,) + s[d:], seed=i)[0]
        for i, (s, d) in enumerate(zip(shapes, in_axes))
    ]
    vmap_is_a_loop(lambda c, xs: lax.scan(BODIES["recurrent"], c, xs), in_axes, *args)


def test_vmap_widens_only_carries_that_vary():
    f = weft.vmap(
        lambda x: lax.scan(lambda s, _: ((s[0] + 1, s[1] * x), s[0]), (0, 1.0), None, length=3)
    )
    (eqn,) = [e for e in weft.make_jaxpr(f)(C).eqns if e.primitive is scan_p]
    assert [v.aval.shape for v in eqn.outvars] == [(), (3,), (3,)]
    close(f(C), ((np.full(3, 3), np.asarray(C) ** 3), np.tile(np.arange(3), (3, 1))))


def test_an_axis_name_reaches_into_the_body():
    f = weft.vmap(
        lambda x: lax.scan(
            lambda c, _: (c + lax.psum(x, "i"), lax.axis_index("i")), 0.0, None, length=2
        ),
        axis_name="i",
    )
    close(f(wnp.arange(3.0)), (np.full(3, 6.0), np.tile(np.arange(3)[:, None], 2)))


# --- types ------------------------------------------------------------------------------------------------------------


def test_weakly_typed_carries_give_way():
    last, ys = lax.scan(lambda c, x: (c + x, c), 0, wnp.arange(3.0))
    assert (last.dtype, ys.dtype) == (np.float32, np.float32) and float(last) == 3.0
    assert (
        lax.scan(lambda c, x: (c + x, c), 0.0, wnp.arange(3, dtype="bfloat16"))[0].dtype.name
        == "bfloat16"
    )
    assert lax.scan(lambda c, x: (c + 1, c), 0.0, None, length=3)[0].weak_type
    assert not lax.scan(lambda c, x: (c + x, c), 0.0, wnp.arange(3.0))[0].weak_type


@pytest.mark.parametrize("dtype", ["int8", "uint32", "bool", "bfloat16", "float16", "complex64"])
def test_every_kind_of_number_is_carried(dtype):
    xs = wnp.asarray(np.arange(6).reshape(3, 2) % 2).astype(dtype)
    last, ys = lax.scan(lambda c, x: (x, c), xs[0], xs)
    assert last.dtype == ys.dtype == xs.dtype
    assert (np.asarray(last) == np.asarray(xs[2])).all() and (
        np.asarray(ys) == np.asarray(xs[wnp.array([0, 0, 1])])
    ).all()


def test_x64():
    with weft.enable_x64(True):
        xs = wnp.arange(5, dtype="float64") / 3
        last, ys = lax.scan(lambda c, x: (c / 7 + x, c), 0.0, xs)
        want, rows = 0.0, []
        for x in np.arange(5) / 3:
            rows.append(want)
            want = want / 7 + x
        assert last.dtype == np.float64
        close((last, ys), (want, np.array(rows)), 1e-15)


def test_keys_are_carried_and_sliced():
    def body(key, _):
        key, sub = weft.random.split(key)
        return key, weft.random.uniform(sub)

    got = weft.jit(lambda k: lax.scan(body, k, None, length=3)[1])(weft.random.key(1))
    key, want = weft.random.key(1), []
    for _ in range(3):
        key, value = body(key, None)
        want.append(float(value))
    close(got, np.array(want), 1e-6)
    keys = weft.random.split(weft.random.key(0), 4)
    close(
        lax.scan(lambda c, k: (c, weft.random.uniform(k)), 0, keys)[1],
        weft.vmap(weft.random.uniform)(keys),
        1e-6,
    )


def test_gradients_pass_by_carried_keys():
    random = weft.random

    def dropped(c, key):
        def step(state, _):
            key, h = state
            key, sub = random.split(key)
            h = wnp.where(random.bernoulli(sub, 0.5, h.shape), wnp.tanh(W @ h), h)
            return (key, h), h.sum()

        (_, h), sums = lax.scan(step, (key, c), None, length=3)
        return h.sum() + (sums**2).sum()

    def plain(c, key):
        total = 0.0
        for _ in range(3):
            key, sub = random.split(key)
            c = wnp.where(random.bernoulli(sub, 0.5, c.shape), wnp.tanh(W @ c), c)
            total = total + c.sum() ** 2
        return c.sum() + total

    keys = random.split(random.key(3), 4)
    want = [np.asarray(weft.grad(plain)(C, k)) for k in keys]
    for g in (
        weft.grad(dropped),
        weft.jit(weft.grad(dropped)),
        weft.grad(weft.checkpoint(dropped)),
    ):
        close(g(C, keys[0]), want[0])
    close(weft.vmap(weft.grad(dropped), in_axes=(None, 0))(C, keys), np.stack(want))


def test_no_slices():
    last, ys = lax.scan(BODIES["recurrent"], C, XS[:0])
    close(last, C)
    assert ys.shape == (0, 3)
    close(weft.grad(lambda c: lax.scan(BODIES["recurrent"], c, XS[:0])[0].sum())(C), np.ones(3))


def test_disable_jit_runs_python():
    seen = []
    with weft.disable_jit():
        last, ys = lax.scan(
            lambda c, x: (seen.append(float(c)), (c + x, c * x))[1],
            wnp.float32(0),
            wnp.arange(4.0),
            reverse=True,
        )
    assert seen == [0.0, 3.0, 5.0, 6.0]
    close((last, ys), lax.scan(lambda c, x: (c + x, c * x), 0.0, wnp.arange(4.0), reverse=True))


# --- counts -----------------------------------------------------------------------------------------------------------


def test_a_scan_is_one_native_program_with_one_loop():
    w, c, xs = arrays((64, 64), (64,), (5, 64))
    compiled = (
        weft.jit(lambda c, xs: lax.scan(lambda c, x: (wnp.tanh(w @ c + x), wnp.sin(c)), c, xs))
        .lower(c, xs)
        .compile()
    )
    steps = list(iterate_steps(compiled.runtime_executable().stages.scheduled.program.steps))
    loops = [s for s in steps if isinstance(s, P.Loop)]
    assert [s.extent for s in loops] == [5]
    assert len([s for s in steps if isinstance(s, P.Launch)]) <= 3


@pytest.mark.parametrize("gradient", [False, True])
def test_kernels_do_not_depend_on_the_length(gradient):
    def kernels(n):
        f = lambda c: lax.scan(BODIES["recurrent"], c, wnp.ones((n, 3)))[0].sum()
        compiled = weft.jit(weft.grad(f) if gradient else f).lower(C).compile()
        return compiled.runtime_executable().kernel_count

    assert kernels(3) == kernels(300) <= (8 if gradient else 3)


def test_bodies_are_traced_once():
    traces = []

    def body(c, x):
        traces.append(1)
        return c + x, None

    for i in range(4):
        lax.scan(body, wnp.float32(i), wnp.arange(3.0))
    assert len(traces) == 1
    lax.scan(body, wnp.float32(0), wnp.arange(4.0))
    assert len(traces) == 1  # another length, the same slices
    for _ in range(3):
        weft.grad(lambda c: lax.scan(body, c, wnp.arange(3.0))[0])(1.0)
    assert len(traces) <= 2  # at most one more trace, for a weakly typed carry


def test_state_of_callable_objects_is_never_stale():
    class Scale:
        factor = 2.0

        def __call__(self, c, x):
            return c + self.factor * x, None

        def method(self, c, x):
            return self(c, x)

    body = Scale()
    for run in (
        lambda: lax.scan(body, 0.0, wnp.ones(3)),
        lambda: lax.scan(body.method, 0.0, wnp.ones(3)),
    ):
        body.factor = 2.0
        assert float(run()[0]) == 6.0
        body.factor = 3.0
        assert float(run()[0]) == 9.0


def test_residuals_that_do_not_vary_are_not_stacked():
    def loss(w, c):
        return lax.scan(lambda s, x: (wnp.tanh(wnp.exp(w) * s + x), None), c, XS)[0].sum()

    program = weft.make_jaxpr(weft.grad(loss))(C, C)
    forward = next(e for e in program.eqns if e.primitive is scan_p)
    stacked = forward.outvars[forward.params["num_carry"] :]
    assert len(stacked) == 2  # s and the derivative of tanh; not exp(w)


def test_what_is_stacked_anyway_is_not_stacked_again():
    def loss(c):
        return (lax.scan(lambda s, x: (wnp.sin(s) * x, s), c, XS)[1] ** 2).sum()

    forward = next(e for e in weft.make_jaxpr(weft.grad(loss))(C).eqns if e.primitive is scan_p)
    assert (
        len(forward.outvars) - forward.params["num_carry"] == 2
    )  # s, which the loss reads too, and cos(s)
    close(weft.grad(loss)(C), weft.grad(lambda c: (loop_of_sines(c) ** 2).sum())(C))


def loop_of_sines(c):
    rows = []
    for i in range(5):
        rows.append(c)
        c = wnp.sin(c) * XS[i]
    return wnp.stack(rows)


def test_dce_drops_unread_values():
    f = lambda c, xs: lax.scan(
        lambda s, x: ((s[0] + x, s[1] * wnp.exp(x)), (s[0], s[1])), (c, c), xs
    )[1][0]
    (eqn,) = [e for e in simplify(weft.make_jaxpr(f)(C, XS)).eqns if e.primitive is scan_p]
    assert (len(eqn.invars), len(eqn.outvars)) == (2, 2)
    assert [e.primitive.name for e in eqn.params["jaxpr"].eqns] == ["add"]


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS = {
    "dtype": (
        lambda: lax.scan(lambda c, x: ({"n": c["n"].astype(int)}, None), {"n": C}, XS),
        TypeError,
        ["carry['n']", "float32[3]", "int32[3]", "astype('float32')", "test_scan.py", "lax.scan("],
    ),
    "shape": (
        lambda: lax.scan(lambda c, x: ((c[0], c[1][:1]), x), (C, C), XS),
        TypeError,
        ["carry[1]", "float32[3]", "float32[1]", "shapes differ"],
    ),
    "structure": (
        lambda: lax.scan(lambda c, x: ((c, c), x), C, XS),
        TypeError,
        ["structure", "an array", "tuple of length 2"],
    ),
    "no pair": (lambda: lax.scan(lambda c, x: c, C, XS), TypeError, ["pair", "(carry, None)"]),
    "no length": (lambda: lax.scan(lambda c, x: (c, x), C), ValueError, ["length"]),
    "lengths": (
        lambda: lax.scan(lambda c, x: (c, None), C, {"a": XS, "b": C}),
        ValueError,
        ["xs['a']", "xs['b']", "float32[3]"],
    ),
    "given length": (
        lambda: lax.scan(lambda c, x: (c, x), C, XS, length=4),
        ValueError,
        ["length=4", "float32[5,3]"],
    ),
    "scalar": (lambda: lax.scan(lambda c, x: (c, x), C, 1.0), ValueError, ["leading axis"]),
    "traced length": (
        lambda: weft.jit(lambda n: lax.scan(lambda c, x: (c, x), C, None, length=n))(3),
        TypeError,
        ["traced", "while_loop"],
    ),
    "unroll": (lambda: lax.scan(lambda c, x: (c, x), C, XS, unroll=-1), ValueError, ["unroll"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_and_where(name):
    call, kind, words = ERRORS[name]
    with pytest.raises(kind) as caught:
        call()
    assert not [w for w in words if w not in str(caught.value)], str(caught.value)


@pytest.mark.parametrize("reverse", [False, True])
def test_slices_that_are_stacked_again_are_not_copied(reverse):
    """They are not among the stacked outputs; values and gradients equal the operand's."""

    def body(c, xs):
        a, b = xs
        return c + b, (a, 2 * b, c, {"again": b})

    def run(a, b):
        return weft.lax.scan(body, 0.0, (a, b), reverse=reverse)

    a, b = np.arange(3, dtype=np.float32), np.arange(3, 6, dtype=np.float32)
    (eqn,) = [e for e in weft.make_jaxpr(run)(a, b).eqns if e.primitive.name == "scan"]
    assert len(eqn.outvars) == 3 and len(eqn.params["jaxpr"].outvars) == 3
    for results in (run(a, b), weft.jit(run)(a, b)):
        total, (first, doubled, carried, again) = results
        np.testing.assert_array_equal(first, a)
        np.testing.assert_array_equal(again["again"], b)
        np.testing.assert_array_equal(doubled, 2 * b)
        np.testing.assert_array_equal(
            carried, np.cumsum(b[::-1])[::-1] - b if reverse else np.cumsum(b) - b
        )
        assert total == 12
    grads = weft.grad(
        lambda a, b: sum(wnp.sum(x**2) for x in weft.tree.leaves(run(a, b)[1][::3])), (0, 1)
    )(a, b)
    np.testing.assert_array_equal(grads, [2 * a, 2 * b])
    mapped = weft.vmap(lambda a: run(a, b)[1][0])(np.stack([a, 2 * a]))
    np.testing.assert_array_equal(mapped, [a, 2 * a])
