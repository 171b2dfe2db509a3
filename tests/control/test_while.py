"""`while_loop`, `fori_loop` and `map` against Python loops, and the derivatives that they support."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.control.laws import (
    all_laws,
    arrays,
    close,
    forward_is_a_finite_difference,
    same_on_all_engines,
    tangents_of,
    vmap_is_a_loop,
)
from weft import lax
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.control.scan import scan_p
from weft._engine.control.while_loop import while_p
from weft._engine.ir import program as P
from weft._engine.ir.program import iterate_steps

X, Y = arrays((3,), (3,))
W = arrays((3, 3), seed=4, scale=0.5)[0]


def grow(x, y):
    """Double x until its norm exceeds 10, adding y each time."""
    return lax.while_loop(
        lambda s: (s[1] ** 2).sum() < 100, lambda s: (s[0] + 1, s[1] * 2 + y), (0, x)
    )


def plain_grow(x, y):
    n = 0
    while (x**2).sum() < 100:
        n, x = n + 1, x * 2 + y
    return n, x


def collatz(n):
    step = lambda s: (wnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)
    return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]


def test_while_is_a_loop():
    close(grow(X, Y), plain_grow(np.asarray(X), np.asarray(Y)), 1e-5)
    same_on_all_engines(grow, X, Y)
    assert [int(weft.jit(collatz)(n)) for n in (1, 6, 7, 27)] == [0, 8, 16, 111]


def test_no_iterations():
    close(lax.while_loop(lambda x: x.sum() > 1e9, lambda x: x * 2, X), X)


def test_forward_mode():
    power = lambda x, y: lax.while_loop(
        lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] * wnp.sin(x) + y), (0, x)
    )[1]
    forward_is_a_finite_difference(power, X, Y)
    close(weft.jit(weft.jacfwd(lambda x: power(x, Y)))(X), weft.jacfwd(lambda x: power(x, Y))(X))
    tangents = tangents_of((X, Y))
    for f in (power, weft.jit(power)):
        value, push = weft.linearize(f, X, Y)
        close((value, push(*tangents)), weft.jvp(power, (X, Y), tangents))


def test_reverse_mode_passes_by_what_is_not_differentiated():
    f = lambda x: (x * lax.while_loop(lambda n: n < 5, lambda n: n + 2, 0)).sum()
    for g in (weft.grad(f), weft.jit(weft.grad(f)), weft.grad(weft.jit(f))):
        close(g(X), np.full(3, 6.0))
    h = lambda x: (x * lax.stop_gradient(grow(x, Y)[1])).sum()
    close(weft.grad(h)(X), grow(X, Y)[1])


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_reverse_mode_is_refused_by_name(wrap):
    with pytest.raises(ValueError, match="Reverse-mode") as caught:
        weft.grad(wrap(lambda x: grow(x, Y)[1].sum()))(X)
    assert all(w in str(caught.value) for w in ("while_loop", "scan", "test_while.py", "jacfwd"))


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0), (1, 1)])
def test_each_example_of_a_batch_stops_by_itself(in_axes):
    args = arrays(
        (4, 3) if in_axes[0] == 0 else (3, 4) if in_axes[0] else (3,),
        (4, 3) if in_axes[1] == 0 else (3, 4) if in_axes[1] else (3,),
        seed=8,
    )
    vmap_is_a_loop(grow, in_axes, *args)


def test_batched_conditions():
    ns = wnp.array([1, 6, 7, 27, 2])
    close(weft.vmap(collatz)(ns), np.array([0, 8, 16, 111, 1]))
    close(weft.jit(weft.vmap(collatz))(ns), np.array([0, 8, 16, 111, 1]))
    limits = wnp.array([3, 0, 5])
    f = lambda limit: lax.while_loop(
        lambda s: s[0] < limit, lambda s: (s[0] + 1, s[1] * 2), (0, 1)
    )[1]
    close(weft.vmap(f)(limits), np.array([8, 1, 32]))
    close(
        weft.vmap(lambda x: weft.jvp(lambda x: grow(x, Y)[1], (x,), (x,))[1])(wnp.stack([X, Y])),
        np.stack([np.asarray(weft.jvp(lambda x: grow(x, Y)[1], (v,), (v,))[1]) for v in (X, Y)]),
    )


def test_a_condition_that_is_the_same_for_all_stays_a_scalar():
    f = weft.vmap(
        lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (0, x))[1]
    )
    (eqn,) = [e for e in weft.make_jaxpr(f)(X).eqns if e.primitive is while_p]
    assert [v.aval.shape for v in eqn.outvars] == [(), (3,)]


def test_weakly_typed_carries_give_way():
    assert lax.while_loop(lambda c: c < 3, lambda c: c + 1.0, 0).dtype == np.float32
    assert lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0).weak_type


def test_a_condition_and_a_body_that_close_over_traced_values():
    def f(limit, step):
        return lax.while_loop(lambda c: c < limit, lambda c: c + step, 0.0)

    assert float(weft.jit(f)(10.0, 3.0)) == 12.0
    close(weft.vmap(f, in_axes=(0, None))(wnp.array([10.0, 2.0]), 3.0), np.array([12.0, 3.0]))
    assert float(weft.jvp(lambda s: f(10.0, s), (3.0,), (1.0,))[1]) == 4.0


def test_dce_keeps_what_the_condition_needs():
    f = lambda x: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2, wnp.sin(s[2])), (0, x, x)
    )[1]
    (eqn,) = [e for e in simplify(weft.make_jaxpr(f)(X)).eqns if e.primitive is while_p]
    assert len(eqn.outvars) == 2
    close(weft.jit(f)(X), 8 * np.asarray(X))


def test_nested_loops():
    def f(n, x):
        inner = lambda i, c: lax.while_loop(
            lambda s: s[0] < i, lambda s: (s[0] + 1, s[1] + x), (0, c)
        )[1]
        return lax.fori_loop(0, n, inner, x)

    want = np.asarray(X) * (1 + 0 + 1 + 2 + 3)
    close(f(4, X), want, 1e-5)
    close(weft.jit(f)(4, X), want, 1e-5)
    close(
        weft.vmap(f, in_axes=(0, None))(wnp.array([4, 1]), X), np.stack([want, np.asarray(X)]), 1e-5
    )


def test_it_is_one_native_loop():
    compiled = weft.jit(grow).lower(X, Y).compile()
    steps = list(iterate_steps(compiled.runtime_executable().stages.scheduled.program.steps))
    assert len([s for s in steps if isinstance(s, P.WhileLoop)]) == 1


# --- fori_loop --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(0, 5), (2, 5), (5, 2), (-3, 2), (0, 0)])
def test_fori_is_a_range(bounds):
    body = lambda i, c: c * 2 + i
    want = 1
    for i in range(*bounds):
        want = want * 2 + i
    assert int(lax.fori_loop(*bounds, body, 1)) == want
    assert int(weft.jit(lambda c: lax.fori_loop(*bounds, body, c))(1)) == want
    assert int(weft.jit(lambda lo, hi: lax.fori_loop(lo, hi, body, 1))(*bounds)) == want


def test_fori_with_known_bounds_has_both_modes():
    f = lambda x, y: lax.fori_loop(1, 4, lambda i, c: wnp.sin(c * i) + W @ y, x)
    all_laws(f, X, Y)
    assert [e.primitive for e in weft.make_jaxpr(f)(X, Y).eqns][-1] is scan_p


def test_fori_with_traced_bounds_has_forward_mode_alone():
    f = weft.jit(lambda n, x: lax.fori_loop(0, n, lambda i, c: c * wnp.sin(x), x))
    close(
        weft.jvp(lambda x: f(3, x), (X,), (Y,))[1],
        weft.jvp(lambda x: lax.fori_loop(0, 3, lambda i, c: c * wnp.sin(x), x), (X,), (Y,))[1],
    )
    with pytest.raises(ValueError, match="scan"):
        weft.grad(lambda x: f(3, x).sum())(X)


def test_the_type_of_the_counter():
    seen = []
    for low, high in [(0, 3), (np.int8(0), 3), (0, wnp.int16(3)), (np.uint32(0), np.uint32(3))]:
        lax.fori_loop(low, high, lambda i, c: (seen.append(i.dtype.name), c)[1], 0)
    assert seen == ["int32", "int8", "int16", "uint32"]


def test_eager_loops_of_any_length_share_one_program():
    traces = []

    def body(i, c):
        traces.append(1)
        return c + i

    assert [int(lax.fori_loop(0, n, body, 0)) for n in range(6)] == [0, 0, 1, 3, 6, 10]
    assert len(traces) == 1


# --- map --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [None, 1, 3, 4, 100])
def test_map_stacks_results(batch_size):
    xs = {"a": arrays((8, 3))[0], "b": wnp.arange(8.0)}
    f = lambda x: (wnp.sin(x["a"]) * x["b"], x["a"].sum())
    want = weft.vmap(f)(xs)
    close(lax.map(f, xs, batch_size=batch_size), want)
    close(weft.jit(lambda xs: lax.map(f, xs, batch_size=batch_size))(xs), want)
    loss = lambda a: lax.map(f, {**xs, "a": a}, batch_size=batch_size)[0].sum()
    close(weft.grad(loss)(xs["a"]), np.cos(np.asarray(xs["a"])) * np.arange(8.0)[:, None])


# --- errors, debugging ------------------------------------------------------------------------------------------------


def test_disable_jit_runs_python():
    seen = []
    with weft.disable_jit():
        out = lax.while_loop(lambda c: c < 3, lambda c: (seen.append(int(c)), c + 1)[1], 0)
        assert lax.fori_loop(0, 3, lambda i, c: (seen.append(i), c + i)[1], 0) == 3
    assert seen == [0, 1, 2, 0, 1, 2] and out == 3


def test_disable_jit_leaves_numpy_arrays_as_they_are():
    def add_one(x):
        x += 1
        return x

    initial = np.zeros(2)
    with weft.disable_jit():
        results = [
            lax.while_loop(lambda x: x[0] < 3, add_one, initial),
            lax.fori_loop(0, 3, lambda i, x: add_one(x), initial),
            lax.scan(lambda x, _: (add_one(x), None), initial, None, 3)[0],
        ]
    np.testing.assert_array_equal(results, np.full((3, 2), 3.0))
    np.testing.assert_array_equal(initial, [0, 0])


def test_bounds_that_are_floats():
    total = lambda low, high: lax.fori_loop(low, high, lambda i, c: c + i, 0.0)
    for f in (total, weft.jit(total), weft.jit(total, static_argnums=(0, 1))):
        assert f(0.5, 2.6) == 4.5 and f(2.0, 1.0) == 0
    with weft.disable_jit():
        assert total(0.5, 2.6) == 4.5
    assert weft.grad(lambda x: lax.fori_loop(x, x + 2, lambda i, c: c * 2, x))(1.0) == 4


def test_a_carry_that_no_step_changes_is_not_batched():
    def f(w, x, n):
        _, x, w = lax.while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] @ s[2], s[2]), (0, x, w)
        )
        return w, x

    w, xs, ns = 2 * wnp.eye(2), wnp.ones((4, 2)), wnp.arange(4)
    for wrap in (lambda f: f, weft.jit):
        same, out = wrap(weft.vmap(f, (None, 0, 0), (None, 0)))(w, xs, ns)
        np.testing.assert_array_equal(same, w)
        np.testing.assert_array_equal(out, 2.0 ** np.arange(4)[:, None] * np.ones(2))

    def g(x, y):
        once = lambda x, y: lax.scan(lambda y, _: (y, None), y, None, 1)[0]
        return lax.cond(x < 0, once, once, x, y)

    assert weft.vmap(g, (0, None), None)(wnp.arange(3.0), 3.0) == 3


ERRORS = {
    "condition dtype": (
        lambda: lax.while_loop(lambda c: c, lambda c: c, 1.0),
        TypeError,
        ["boolean scalar", "float32"],
    ),
    "condition shape": (
        lambda: lax.while_loop(lambda c: c < 3, lambda c: c, X),
        TypeError,
        ["bool[3]", ".any()"],
    ),
    "condition tree": (
        lambda: lax.while_loop(lambda c: (c < 3, c), lambda c: c, 1),
        TypeError,
        ["boolean scalar", "pytree PyTreeDef((*, *))"],
    ),
    "dtype": (
        lambda: lax.while_loop(lambda c: True, lambda c: {"n": c["n"].astype(int)}, {"n": X}),
        TypeError,
        ["carry['n']", "float32[3]", "int32[3]", "test_while.py"],
    ),
    "structure": (
        lambda: lax.while_loop(lambda c: True, lambda c: (c, c), X),
        TypeError,
        ["structure", "tuple of length 2"],
    ),
    "fori shape": (
        lambda: lax.fori_loop(0, 3, lambda i, c: {"a": c["a"][:1]}, {"a": X}),
        TypeError,
        ["fori_loop", "carry['a']", "float32[1]"],
    ),
    "fori bounds": (
        lambda: lax.fori_loop(0, 3.5, lambda i, c: c, X),
        TypeError,
        ["equal types", "float32"],
    ),
    "fori complex": (
        lambda: lax.fori_loop(0, 3j, lambda i, c: c, X),
        TypeError,
        ["upper", "an integer or a float"],
    ),
    "fori unroll": (
        lambda: weft.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, X, unroll=4))(3),
        ValueError,
        ["unroll=4", "known"],
    ),
    "fori types": (
        lambda: lax.fori_loop(np.int8(0), np.int16(3), lambda i, c: c, X),
        TypeError,
        ["int8", "int16"],
    ),
    "map batch": (
        lambda: lax.map(lambda x: x, X, batch_size=-1),
        ValueError,
        ["must not be negative"],
    ),
    "callable": (lambda: lax.while_loop(True, lambda c: c, X), TypeError, ["callable"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_and_where(name):
    call, kind, words = ERRORS[name]
    with pytest.raises(kind) as caught:
        call()
    assert not [w for w in words if w not in str(caught.value)], str(caught.value)
