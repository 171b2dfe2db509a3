"""`cond` and `switch`: one branch runs; every transformation maps all of them."""

import gc

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.control.laws import all_laws, arrays, close, same_on_all_engines, vmap_is_a_loop
from weft import lax
from weft._engine.control.cond import cond_p
from weft._engine.core.interpret import run_reference
from weft._engine.ir.jaxpr import Jaxpr

X, Y = arrays((4,), (4,))
W = arrays((4, 4), seed=5)[0]

BRANCHING = {
    "two ways": lambda x, y: lax.cond(
        x[0] > 0, lambda a, b: wnp.sin(a) * b, lambda a, b: a - b**2, x, y
    ),
    "one side constant": lambda x, y: lax.cond(x[0] > 0, lambda a: a * y, lambda a: wnp.ones(4), x),
    "closures": lambda x, y: lax.cond(
        y[1] > 0, lambda: wnp.tanh(W @ x) * y, lambda: x * wnp.exp(y)
    ),
    "different residuals": lambda x, y: lax.switch(
        1,
        [
            lambda a: wnp.sin(a) * wnp.cos(y),
            lambda a: wnp.exp(a @ W) * a,
            lambda a: (a[:2] @ y[2:]) * wnp.ones(4),
        ],
        x,
    ),
    "nested": lambda x, y: lax.cond(
        x[0] > 0,
        lambda a: lax.cond(y[0] > 0, wnp.sin, wnp.cos, a) * a,
        lambda a: lax.cond(y[0] > 0, wnp.tanh, lambda b: b * y, a),
        x,
    ),
    "trees": lambda x, y: (lambda d: d["s"] * d["t"][0])(
        lax.cond(
            x[0] < 0,
            lambda d: {"s": d["t"][0], "t": (d["s"], 1.0)},
            lambda d: {"s": d["s"] * 2, "t": (d["t"][0], 2.0)},
            {"s": x, "t": (y,)},
        )
    ),
}


@pytest.mark.parametrize("name", BRANCHING)
def test_laws(name):
    all_laws(BRANCHING[name], X, Y)


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_switch_clamps(index):
    branches = [lambda x: x, lambda x: x * 2, wnp.sin]
    want = np.asarray(branches[min(max(index, 0), 2)](X))
    for i in (index, np.int8(index), wnp.int32(index)):
        close(lax.switch(i, branches, X), want)
        close(weft.jit(lambda i, x: lax.switch(i, branches, x))(i, X), want)


def test_an_unsigned_index_beyond_int32_clamps_to_the_last():
    assert float(lax.switch(np.uint32(2**32 - 1), [lambda: 1.0, lambda: 2.0, lambda: 3.0])) == 3.0


def test_batched_predicates_select():
    f = lambda p, x: lax.cond(p, wnp.sin, lambda a: a * 3, x)
    p = wnp.array([True, False, True, False])
    xs = arrays((4, 5))[0]
    vmap_is_a_loop(f, (0, 0), p, xs)
    vmap_is_a_loop(f, (0, None), p, X)
    vmap_is_a_loop(
        lambda i, x: lax.switch(i, [wnp.sin, wnp.cos, wnp.tanh], x),
        (0, 1),
        wnp.array([-1, 0, 1, 2, 7]),
        xs,
    )


def test_operands_that_all_branches_hand_on_are_not_batched():
    def f(which, constant, moved):
        return lax.cond(which, lambda k, m: (k, m, m + 1), lambda k, m: (k, m, m), constant, moved)

    which, moved = wnp.arange(4) % 2 == 0, wnp.arange(4.0)
    constant, same, out = weft.vmap(f, (0, None, 0), (None, 0, 0))(which, wnp.ones(3), moved)
    np.testing.assert_array_equal(constant, np.ones(3))
    np.testing.assert_array_equal(same, moved)
    np.testing.assert_array_equal(out, [1, 1, 3, 3])
    jaxpr = str(
        weft.make_jaxpr(weft.vmap(f, (0, None, 0), (None, 0, 0)))(which, wnp.ones(3), moved)
    )
    assert (
        jaxpr.count("select_n") == 2
    )  # of `out`, and of what the first branch adds to, whose cotangent it may not reach
    swapped = lambda which, a, b: lax.cond(which, lambda a, b: (a, b), lambda a, b: (b, a), a, b)
    np.testing.assert_array_equal(
        weft.vmap(swapped, (0, None, None))(which, 1.0, 2.0)[0], [1, 2, 1, 2]
    )


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_branches_not_taken_have_no_part_in_gradients_of_a_batch(wrap):
    def safe(x):
        return lax.cond(x > 0, lambda: wnp.sqrt(x), lambda: 2 * x)

    gradient = weft.grad(lambda x: wrap(weft.vmap(safe))(x).sum())(wnp.array([4.0, 0.0, -1.0]))
    np.testing.assert_array_equal(gradient, [0.25, 2, 2])
    by_number = lambda i, x: lax.switch(i, [wnp.log, lambda x: 1 / x, lambda x: 3 * x], x)
    gradient = weft.grad(lambda x: wrap(weft.vmap(by_number))(wnp.array([2, 1, 0]), x).sum())(
        wnp.array([0.0, 2.0, 4.0])
    )
    np.testing.assert_array_equal(gradient, [3, -0.25, 0.25])


def test_an_unbatched_predicate_stays_a_branch():
    f = weft.vmap(lambda p, x: lax.cond(p, wnp.sin, lambda a: a * 3, x), in_axes=(None, 0))
    assert [e.primitive.name for e in weft.make_jaxpr(f)(True, X).eqns].count("cond") == 1


def test_only_the_chosen_branch_runs():
    f = weft.jit(lambda p, x: lax.cond(p, lambda a: 1.0 / a, lambda a: a, x))
    assert float(f(False, 0.0)) == 0.0
    assert float(weft.grad(lambda x: f(False, x))(0.0)) == 1.0


def test_old_calling_conventions():
    assert float(lax.cond(True, 3.0, lambda x: x + 1, 4.0, lambda x: x * 2)) == 4.0
    assert float(lax.cond(False, (3.0,), lambda x: x[0] + 1, (4.0,), lambda x: x[0] * 2)) == 8.0
    assert float(lax.cond(True, lambda x: x + 1, lambda x: x, operand=3.0)) == 4.0
    assert float(lax.switch(1, [lambda x: x, lambda x: x * 5], operand=3.0)) == 15.0


def test_numbers_are_predicates():
    assert [
        int(lax.cond(p, lambda: 1, lambda: 2))
        for p in (2, 0, 0.5, np.float32(0), wnp.int32(7), False)
    ] == [1, 2, 1, 2, 1, 2]


def test_weak_types_of_branches():
    strong, weak = lambda: np.float32(2.0), lambda: 1.0
    for result in (
        lax.cond(True, weak, strong),
        lax.switch(1, [strong, weak]),
        weft.jit(lambda p: lax.cond(p, weak, strong))(True),
    ):
        assert (
            not result.weak_type and float(result) == 1.0
        )  # the first branch of `cond` is the one for False
    for result in (
        lax.cond(True, strong, weak),
        lax.switch(1, [weak, strong]),
        weft.jit(lambda p: lax.cond(p, strong, weak))(True),
    ):
        assert result.weak_type and float(result) == 2.0
    assert lax.cond(True, weak, weak).weak_type and not lax.cond(True, strong, strong).weak_type


def test_keys_pass_through_branches():
    keys = weft.random.split(weft.random.key(0), 3)
    f = lambda p, k: lax.cond(p, lambda k: weft.random.split(k)[0], lambda k: k, k)
    data = weft.random.key_data
    want = [data(weft.random.split(keys[0])[0]), data(keys[1]), data(weft.random.split(keys[2])[0])]
    flags = wnp.array([True, False, True])
    close([data(weft.jit(f)(p, k)) for p, k in zip(flags, keys)], want)
    close(data(weft.vmap(f)(flags, keys)), np.stack(want))


def test_branches_with_keys_have_gradients():
    random = weft.random
    noisy = lambda x, k: wnp.sin(x) * random.normal(random.split(k)[0], (4,))
    f = lambda x, k: lax.switch(
        1, [lambda x, k: x * random.normal(k, (4,)), noisy, lambda x, k: x], x, k
    ).sum()
    key = random.key(7)
    want = weft.grad(lambda x: noisy(x, key).sum())(X)
    close(weft.grad(f)(X, key), want)
    close(weft.jit(weft.grad(f))(X, key), want)


def test_unused_results_and_operands_are_dropped():
    def f(p, x, y):
        return lax.cond(p, lambda a, b: (wnp.sin(a), wnp.exp(b)), lambda a, b: (a, b), x, y)[0]

    from weft._engine.compiler.rewrite.simplify import simplify

    program: Jaxpr = simplify(weft.make_jaxpr(f)(True, X, Y))
    (eqn,) = [e for e in program.eqns if e.primitive is cond_p]
    assert len(eqn.invars) == 2 and len(eqn.outvars) == 1
    close(
        run_reference(program, np.asarray(True), np.asarray(X), np.asarray(Y)),
        [np.sin(np.asarray(X))],
    )


def test_a_function_is_traced_and_compiled_once():
    traces = []

    def double(x):
        traces.append(1)
        return x * 2

    keep = lambda x: x
    for _ in range(3):
        lax.cond(True, double, keep, X)
    assert len(traces) == 1

    def fresh(x):
        return lax.cond(True, lambda a: a * 2, lambda a: a, x)

    programs = set()
    from weft._engine.control import staged_body

    for _ in range(3):
        fresh(X)
        programs.add(staged_body._first.cache_info().misses)
    assert len(programs) == 1  # new functions of equal text in each call share one program


def test_what_a_function_captures_is_looked_at_anew():
    scale = 2.0

    def f(x):
        return x * scale

    first = lax.cond(True, f, f, 1.0)
    scale = 3.0
    assert (float(first), float(lax.cond(True, f, f, 1.0))) == (2.0, 3.0)


def test_disable_jit_runs_python():
    seen = []
    with weft.disable_jit():
        out = lax.cond(
            True, lambda x: (seen.append(float(x)), x * 2)[1], lambda x: x, wnp.float32(3.0)
        )
    assert seen == [3.0] and float(out) == 6.0


def test_x64():
    with weft.enable_x64(True):
        x = wnp.arange(3, dtype="float64")
        same_on_all_engines(
            lambda x: lax.cond(x[0] > 1, lambda a: a, lambda a: a / 3, x), x, tolerance=1e-15
        )


ERRORS = {
    "dtype": (
        lambda: lax.cond(True, lambda x: {"a": x}, lambda x: {"a": x.astype(int)}, X),
        TypeError,
        ["true_fun", "false_fun", "result['a']", "float32[4]", "int32[4]", "test_cond.py"],
    ),
    "shape": (
        lambda: lax.switch(0, [lambda x: x, lambda x: x[:2]], X),
        TypeError,
        ["branch 0", "branch 1", "float32[4]", "float32[2]", "shapes differ"],
    ),
    "structure": (
        lambda: lax.cond(True, lambda x: {"a": x}, lambda x: {"b": x}, X),
        TypeError,
        ["'a'", "'b'", "structure"],
    ),
    "array predicate": (
        lambda: lax.cond(X > 0, lambda x: x, lambda x: x, X),
        TypeError,
        ["scalar", "bool[4]", "where"],
    ),
    "no predicate": (lambda: lax.cond("yes", lambda: 1, lambda: 2), TypeError, ["'yes'"]),
    "float index": (lambda: lax.switch(1.0, [wnp.sin, wnp.cos], X), TypeError, ["integer"]),
    "no branches": (lambda: lax.switch(0, [], X), ValueError, ["Empty branch"]),
    "not callable": (lambda: lax.cond(True, X, X, X), TypeError, ["callable"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_and_where(name):
    call, kind, words = ERRORS[name]
    with pytest.raises(kind) as caught:
        call()
    assert not [w for w in words if w not in str(caught.value)], str(caught.value)


@pytest.mark.parametrize(
    "program",
    [
        lambda data: lax.cond(True, weft.jit(lambda: data[0]), lambda: data[1]),
        lambda data: lax.cond(True, lambda: data[0], lambda: data[1]),
        lambda data: lax.while_loop(lambda c: c < 3, weft.jit(lambda c: c + data[0]), 0.0),
        lambda data: lax.scan(weft.jit(lambda c, x: (c + data[0], None)), 0.0, None, length=2)[0],
    ],
)
def test_no_program_keeps_arrays_that_functions_closed_over(program):
    def once():
        data = weft.device_put(np.ones(1024, np.float32))
        run = weft.jit(lambda: program(data))
        run().block_until_ready()
        run.clear_cache()

    once()
    gc.collect()
    before = len(weft.live_arrays())
    for _ in range(3):
        once()
        gc.collect()
    assert len(weft.live_arrays()) <= before
