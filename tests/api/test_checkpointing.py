"""Checkpoint policies: saved and recomputed values in plain programs, calls and loops; and rules
that are closures."""

import functools
import re

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import custom_jvp, custom_vjp, lax
from weft._engine.api.checkpointing import (
    Offloadable,
    Recompute,
    Saveable,
    checkpoint_name,
    print_saved_residuals,
)
from weft._engine.ir.jaxpr import subjaxprs
from weft._engine.ops.layout import name_p
from weft._engine.util.config import Override

policies = weft.checkpoint_policies
X = np.linspace(0.1, 0.9, 4, dtype=np.float32)


def count(jaxpr, primitive: str) -> int:
    """Return the number of equations of `primitive` at all depths."""
    inner = sum(count(sub, primitive) for eqn in jaxpr.eqns for _, sub in subjaxprs(eqn.params))
    return inner + sum(eqn.primitive.name == primitive for eqn in jaxpr.eqns)


def two_names(x):
    a = checkpoint_name(wnp.log(x), "a")
    b = checkpoint_name(lax.erf(a), "b")
    return (b * b).sum()


def cost(fun, policy):
    """Return how often the program of the gradient computes (log, erf)."""
    jaxpr = weft.make_jaxpr(weft.grad(weft.checkpoint(fun, policy=policy)))(X)
    return count(jaxpr, "log"), count(jaxpr, "erf")


@pytest.mark.parametrize(
    "policy, expected",
    [
        (None, (2, 2)),
        (policies.everything_saveable, (1, 1)),
        (policies.save_only_these_names("a", "b"), (1, 1)),
        (policies.save_only_these_names("a"), (1, 2)),
        (policies.save_any_names_but_these("a"), (2, 1)),
        (policies.save_anything_except_these_names("z"), (1, 1)),
        (
            policies.save_and_offload_only_these_names(
                names_which_can_be_saved=["a"],
                names_which_can_be_offloaded=["b"],
                offload_src="device",
                offload_dst="pinned_host",
            ),
            (1, 1),
        ),
        (
            policies.save_from_both_policies(
                policies.save_only_these_names("a"), policies.save_only_these_names("b")
            ),
            (1, 1),
        ),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit], ids=["plain", "call"])
def test_policies_by_name(policy, expected, wrap):
    fun = wrap(two_names)
    assert cost(fun, policy) == expected
    np.testing.assert_allclose(
        weft.grad(weft.checkpoint(fun, policy=policy))(X), weft.grad(two_names)(X), rtol=1e-6
    )


def test_policies_inside_scan():
    def body(policy):
        def step(c, _):
            return wnp.cos(checkpoint_name(wnp.sin(c), "s")), None

        return weft.checkpoint(step, policy=policy)

    def run(policy):
        return lambda x: lax.scan(body(policy), x, None, length=5)[0].sum()

    sines = lambda policy: count(weft.make_jaxpr(weft.grad(run(policy)))(X), "sin")
    assert sines(policies.save_only_these_names("s")) < sines(None)
    want = weft.grad(lambda x: run(policies.everything_saveable)(x))(X)
    for policy in (None, policies.save_only_these_names("s")):
        np.testing.assert_allclose(weft.jit(weft.grad(run(policy)))(X), want, rtol=1e-5)


named_sin = policies.save_only_these_names("s")


def sine_of_cosine(c, w):
    """A step whose sine is saved by `named_sin`, so only its cosine is recomputed."""
    return wnp.cos(checkpoint_name(wnp.sin(c), "s")) * w


def scanned(x, w):
    """A scan with carries that depend on `x` and one that does not, constants and results of each
    step."""

    def step(carry, _):
        c, n = carry
        c = sine_of_cosine(c, w)
        return (c, n + 1), c * n

    (c, n), ys = lax.scan(step, (x, wnp.float32(0)), None, length=3)
    return (c * n).sum() + ys.sum()


def branched(x, w):
    return lax.cond(w.sum() > 0, sine_of_cosine, lambda c, w: c * w, x, w).sum()


@pytest.mark.parametrize(
    "transform",
    [lambda f: f, weft.jit, lambda f: lambda x, w: weft.vmap(f)(x[None], w[None]).sum()],
    ids=["plain", "jit", "vmap"],
)
@pytest.mark.parametrize(
    "policy",
    [policies.everything_saveable, named_sin, policies.nothing_saveable, None],
    ids=["everything", "named", "nothing", "none"],
)
@pytest.mark.parametrize("fun", [scanned, branched])
def test_policies_of_loops_and_branches_reach_inside(fun, policy, transform):
    run = transform(weft.checkpoint(fun, policy=policy))
    x, w = X, np.linspace(1, 2, 4, dtype=np.float32)
    for got, expected in zip(weft.grad(run, (0, 1))(x, w), weft.grad(fun, (0, 1))(x, w)):
        np.testing.assert_allclose(got, expected, rtol=2e-6)
    second = lambda f: weft.grad(lambda x: (weft.grad(f)(x, w) * w).sum())(x)
    np.testing.assert_allclose(second(run), second(fun), rtol=2e-5, atol=1e-6)


def residuals(fun, policy):
    """Return the types of the residuals of the linear program."""
    linear = weft.linearize(
        weft.checkpoint(lambda x: fun(x, np.ones(4, np.float32)), policy=policy), X
    )[1]
    jaxpr = weft.make_jaxpr(linear)(X)
    return (
        sorted(str(c.shape) for c in jaxpr.consts if c.ndim),
        count(jaxpr, "sin"),
        count(jaxpr, "cos"),
    )


def test_a_policy_saves_each_step_of_a_loop():
    def run(x, w):
        return lax.scan(lambda c, _: (sine_of_cosine(c, w), None), x, None, length=3)[0]

    assert residuals(run, policies.nothing_saveable)[1:] == (2, 2)
    saved, sines, cosines = residuals(run, named_sin)
    assert saved == ["(3, 4)", "(4,)"] and (sines, cosines) == (
        1,
        2,
    )  # the sine of each step, and the first value
    assert residuals(run, policies.everything_saveable)[1:] == (0, 0)


@pytest.mark.parametrize(
    "policy, expected",
    [
        (named_sin, (0, 1)),
        (policies.save_only_these_names("c"), (0, 0)),
        (policies.nothing_saveable, (1, 1)),
        (policies.everything_saveable, (0, 0)),
    ],
    ids=["sine", "cosine", "nothing", "everything"],
)
def test_a_policy_reaches_into_loops_of_rules(policy, expected):
    @weft.custom_jvp
    def sine(x):
        return wnp.sin(x)

    @sine.defjvp
    def sine_jvp(primals, tangents):
        (x,) = primals
        both = lambda xs, _: (
            (checkpoint_name(wnp.sin(xs[0]), "s"), checkpoint_name(wnp.cos(xs[1]), "c")),
            None,
        )
        y, slope = lax.scan(both, (x, x), None, length=1)[0]
        return y, slope * tangents[0]

    def run(x, w):
        return lax.scan(lambda c, _: (sine(c), None), x, None, length=1)[0]

    assert residuals(run, policy)[1:] == expected
    np.testing.assert_allclose(
        weft.grad(lambda x: weft.checkpoint(run, policy=policy)(x, x).sum())(X),
        np.cos(X),
        rtol=1e-6,
    )


def test_a_policy_reaches_into_branches_of_rules_within_branches():
    def both(x):  # the other branch returns its operands
        return lax.cond(True, lambda xs: (wnp.sin(xs[0]), wnp.cos(xs[1])), lambda xs: xs, (x, x))

    sine = weft.custom_jvp(wnp.sin)

    @sine.defjvp
    def sine_jvp(primals, tangents):
        y, c = both(*primals)
        return y, c * tangents[0]

    for name, remaining in (("cos", 0), ("sin", 1)):
        f = weft.checkpoint(
            lambda x: lax.cond(True, sine, lambda x: x, x),
            policy=lambda p, *_, name=name, **__: p.name == name,
        )
        value, derivative = weft.linearize(f, 4.0)
        program = weft.make_jaxpr(derivative)(1.0)
        assert count(program, "cos") == remaining and count(program, "sin") == 0
        assert np.isclose(value, np.sin(4.0)) and np.isclose(derivative(1.0), np.cos(4.0))


def test_names_cost_no_kernel_and_keep_their_transforms():
    named, plain = (lambda x: checkpoint_name(wnp.sin(x), "s") * 2), (lambda x: wnp.sin(x) * 2)
    text = lambda f: weft.jit(f).lower(X).compile().as_text().splitlines()[1:]
    assert text(named) == text(plain)
    assert count(weft.make_jaxpr(weft.vmap(named))(X), "name") == 1
    np.testing.assert_allclose(weft.jvp(named, (X,), (X,))[1], 2 * np.cos(X) * X, rtol=1e-6)


def test_saved_residuals_are_told(capsys):
    def f(x, y):
        return (checkpoint_name(wnp.sin(x), "z") * wnp.cos(y)).sum()

    print_saved_residuals(weft.checkpoint(f, policy=policies.save_only_these_names("z")), X, X)
    printed = capsys.readouterr().out
    assert "named 'z'" in printed
    assert "from the argument x" in printed
    assert "from the argument y" in printed
    assert "output of cos" not in printed
    assert re.search(
        r"named 'z' from .*test_checkpointing.py:\d+:16 \(test_saved_residuals_are_told.<locals>.f\)$",
        printed,
        re.M,
    )
    print_saved_residuals(f, X, X)
    assert "output of cos" in capsys.readouterr().out
    print_saved_residuals(lambda a, b: wnp.tanh(b) * wnp.exp(b * a), X, X)
    rows = [line.split()[:4] for line in capsys.readouterr().out.splitlines()]
    assert [words[1:3] for words in rows] == [["from", "the"]] * 2 + [["output", "of"]] * 3
    assert [words[3] for words in rows] == ["argument", "argument", "tanh", "sub", "exp"]


def test_pullbacks_cross_the_border_of_compiled_functions():
    forward = weft.jit(lambda x: weft.vjp(lambda v: wnp.sin(v) * v, x))
    out, pullback = forward(X)
    np.testing.assert_allclose(out, np.sin(X) * X, rtol=1e-6)
    np.testing.assert_allclose(
        weft.jit(lambda p, ct: p(ct)[0])(pullback, np.ones_like(X)),
        np.cos(X) * X + np.sin(X),
        rtol=1e-5,
    )
    _, tangent = weft.jit(lambda x: weft.linearize(wnp.sin, x))(X)
    np.testing.assert_allclose(tangent(X), np.cos(X) * X, rtol=1e-6)


@pytest.mark.parametrize("jitted", [True, False])
def test_forward_and_backward_halves(jitted):
    traces = []

    def f(x, w):
        traces.append(1)
        return x @ w, x.sum()

    fwd, bwd = weft.fwd_and_bwd(f, argnums=(1,), has_aux=True, jitted=jitted)
    x, w = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    for _ in range(3):
        out, residuals, aux = fwd(x, w)
        (ct,) = bwd(residuals, np.ones((2, 2), np.float32))
    np.testing.assert_array_equal(out, x @ w)
    np.testing.assert_array_equal(ct, x.T @ np.ones((2, 2)))
    assert float(aux) == 6
    assert len(traces) == (1 if jitted else 3)


def test_custom_gradient_with_several_arguments_and_trees():
    @weft.custom_gradient
    def f(x, scale):
        y = wnp.sin(x["a"]) * scale
        return y, lambda ct: ({"a": 7.0 * ct * y}, wnp.zeros_like(scale))

    gx, gs = weft.jit(weft.grad(lambda x, s: f(x, s).sum(), argnums=(0, 1)))(
        {"a": X}, np.float32(2)
    )
    np.testing.assert_allclose(gx["a"], 14 * np.sin(X), rtol=1e-6)
    assert float(gs) == 0
    np.testing.assert_allclose(
        weft.vmap(weft.grad(lambda x: f({"a": x}, 2.0)))(X), 14 * np.sin(X), rtol=1e-6
    )


@pytest.mark.parametrize("policy", ["everything_saveable", "nothing_saveable", "dots_saveable"])
@pytest.mark.parametrize("form", [custom_vjp, custom_jvp], ids=["vjp", "jvp"])
def test_policies_keep_custom_rules_for_higher_derivatives(policy, form):
    """The custom rule states that the slope of 3x is 2x; it also applies to values that a policy
    saves or recomputes."""

    @form
    def f(x):
        return 3.0 * x

    if form is custom_vjp:
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (2.0 * x * ct,))
    else:
        f.defjvp(lambda primals, tangents: (f(*primals), 2.0 * primals[0] * tangents[0]))
    remat = weft.checkpoint(lambda x: f(x) ** 2, policy=getattr(weft.checkpoint_policies, policy))
    x = 1.5
    assert float(weft.grad(remat)(x)) == 2 * (3 * x) * 2 * x
    assert float(weft.grad(weft.grad(remat))(x)) == 2 * (2 * x) * 2 * x + 2 * (3 * x) * 2
    assert float(weft.jit(weft.grad(weft.grad(remat)))(x)) == 2 * (2 * x) * 2 * x + 2 * (3 * x) * 2


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("saved", "sines", "cosines"), [("cos", 0, 0), ("sin", 0, 3), ("nothing", 3, 3)]
)
def test_policies_inside_shard_map(saved, sines, cosines, check):
    mesh = weft.make_mesh((2,), ("i",), devices=weft.devices()[:2])
    twice = weft.shard_map(
        weft.jit(lambda x: wnp.sin(wnp.sin(x))),
        mesh=mesh,
        in_specs=weft.P("i"),
        out_specs=weft.P("i"),
        check_vma=check,
    )
    plain = lambda x: wnp.sin(twice(x)) * 2  # what follows needs the results of the map
    x = np.linspace(0.0, 1.0, 4, dtype=np.float32)
    f = weft.checkpoint(plain, policy=lambda primitive, *_, **__: str(primitive) == saved)
    text = str(weft.vjp(f, x)[1].jaxpr)
    assert (text.count(" sin "), text.count(" cos ")) == (sines, cosines)
    slope = lambda f: weft.grad(lambda x: f(x).sum())
    assert np.allclose(slope(f)(x), slope(plain)(x), atol=1e-6)
    assert np.allclose(weft.jit(slope(slope(f)))(x), slope(slope(plain))(x), atol=1e-5)


def _halves(x, w):
    return wnp.sin(wnp.tanh(wnp.tanh(x @ w) @ w.T) @ w)


@pytest.mark.parametrize("prevent_cse", [True, False])
def test_what_is_computed_again_is_not_kept(prevent_cse):
    f = weft.checkpoint(_halves, prevent_cse=prevent_cse)

    def measured(f):
        loss = lambda ws, x: (functools.reduce(f, ws, x) ** 2).sum()
        compiled = (
            weft.jit(weft.grad(loss))
            .lower([np.ones((16, 16), np.float32)] * 6, np.ones((512, 16), np.float32))
            .compile()
        )
        return compiled.memory_analysis().temp_size_in_bytes, compiled.as_text().count(" dot(")

    (plain, products), (saved, again) = measured(_halves), measured(f)
    assert again == products + 18 * prevent_cse  # three products in each of six
    assert (
        saved < 0.5 * plain if prevent_cse else saved == plain
    )  # which simplification takes from the forward pass where it may
    w, x = np.full((16, 16), 0.1, np.float32), np.ones((8, 16), np.float32)
    np.testing.assert_allclose(
        weft.grad(lambda x: f(x, w).sum())(x),
        weft.grad(lambda x: _halves(x, w).sum())(x),
        rtol=1e-6,
    )


def test_backward_passes_hold_one_equation_per_recomputation():
    """One equation per checkpoint: it contains its residuals and all recomputation, also in
    derivatives of higher order."""
    twice = lambda x, y: wnp.sin(wnp.sin(x)) * y
    f = weft.checkpoint(twice, prevent_cse=(True, False))
    checkpoints = lambda program: [
        eqn for eqn in program.eqns if eqn.primitive.name == "checkpoint"
    ]
    (again,) = checkpoints(weft.make_jaxpr(weft.grad(f, (0, 1)))(1.0, 2.0))
    assert again.params["differentiated"] and again.params["prevent_cse"] == (True, False, False)
    assert (count(again.params["jaxpr"], "sin"), count(again.params["jaxpr"], "cos")) == (2, 2)
    assert (
        count(again.params["jaxpr"], "optimization_barrier") == 0
    )  # formed where the equations replace the call
    assert "differentiated=True" in str(weft.make_jaxpr(weft.grad(f))(1.0, 2.0))
    (second,) = checkpoints(weft.make_jaxpr(weft.grad(weft.grad(f)))(1.0, 2.0))
    assert second.params["differentiated"] and len(second.params["prevent_cse"]) == len(
        second.invars
    )
    (mapped,) = checkpoints(weft.make_jaxpr(weft.vmap(weft.grad(f)))(X, X))
    assert mapped.outvars[0].aval.shape == X.shape
    (forward,) = checkpoints(weft.make_jaxpr(lambda x, y: weft.jvp(f, (x, y), (x, y))[1])(1.0, 2.0))
    assert not forward.params["differentiated"] and forward.params["prevent_cse"] == (
        True,
        False,
        True,
        False,
    )
    steps = weft.make_jaxpr(
        weft.grad(lambda x: weft.lax.scan(lambda c, y: (f(c, y), None), x, X)[0])
    )(1.0)
    inside = [
        checkpoints(eqn.params["jaxpr"]) for eqn in steps.eqns if eqn.primitive.name == "scan"
    ]
    assert [len(eqns) for eqns in inside] == [0, 1]
    third = lambda f: weft.grad(weft.grad(weft.grad(f)))(0.5, 2.0)
    np.testing.assert_allclose(third(f), third(twice), rtol=1e-5)
    np.testing.assert_allclose(
        weft.jit(weft.vmap(weft.grad(weft.grad(f))))(X, X),
        weft.vmap(weft.grad(weft.grad(twice)))(X, X),
        rtol=1e-5,
    )


def test_what_is_computed_again_has_its_own_name():
    def f(x):
        with weft.named_scope("net"):
            return wnp.sin(wnp.cos(x))

    text = (
        weft.jit(weft.grad(lambda x: weft.checkpoint(f)(x) * 2))
        .lower(1.0)
        .as_text("hlo", debug_info=True)
    )
    names = set(re.findall(r'op_name="([^"]*)"', text))
    assert {name.rpartition("/")[2] for name in names if "rematted_computation/net" in name} == {
        "sin",
        "cos",
    }
    assert not any(
        "rematted_computation" in name for name in names if name.endswith(("/mul", "/neg"))
    )
    assert 'op_name="jit(f)/checkpoint/net/cos"' in weft.jit(weft.checkpoint(f)).lower(1.0).as_text(
        "hlo", debug_info=True
    )


def test_answers_of_policies():
    chain = lambda x: wnp.sin(checkpoint_name(wnp.sin(checkpoint_name(wnp.sin(x), "a")), "b"))
    count_saved = lambda policy: count(
        weft.make_jaxpr(weft.grad(weft.checkpoint(chain, policy=policy)))(1.0), "sin"
    )
    names = {"names_which_can_be_saved": ["a"], "names_which_can_be_offloaded": ["b"]}
    both = policies.save_and_offload_only_these_names(
        **names, offload_src="device", offload_dst="pinned_host"
    )
    assert both(name_p, name="a") is Saveable and both(name_p, name="c") is Recompute
    assert both(name_p, name="b") == Offloadable("device", "pinned_host")
    assert (
        count_saved(both) == count_saved(policies.save_only_these_names("a", "b")) == 3
        and count_saved(lambda *_, **__: Recompute) == count_saved(None) == 5
    )
    assert (
        count_saved(lambda *_, **__: np.bool_(True)) == count_saved(lambda *_, **__: Saveable) == 3
    )
    for answer in (None, 1, "yes"):
        with pytest.raises(TypeError, match=f"should be a bool.*|a policy answered {answer!r}"):
            count_saved(lambda *_, answer=answer, **__: answer)
    with pytest.raises(ValueError, match=r"should be exclusive, and \['a'\]"):
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["a"],
            names_which_can_be_offloaded=["a"],
            offload_src="device",
            offload_dst="pinned_host",
        )
    with pytest.raises(ValueError, match="should be a boolean"):
        count_saved(policies.save_from_both_policies(policies.dots_saveable, both))


def test_residuals_are_logged(caplog):
    f = lambda x, w: wnp.sin(checkpoint_name(wnp.sin(x), "a") @ w)
    w = np.ones((3, 3), np.float32)
    with Override(log_checkpoint_residuals=True):
        weft.grad(lambda x: weft.checkpoint(f)(x, w).sum())(w)
        weft.grad(
            lambda x: weft.checkpoint(f, policy=policies.save_only_these_names("a"))(x, w).sum()
        )(w)
    weft.grad(lambda x: weft.checkpoint(f)(x, w).sum())(w)
    inputs = "remat-decorated function saving inputs with shapes:\n  float32[3,3]\n  float32[3,3]"
    first, second = [
        record.getMessage() for record in caplog.records if record.name == "weft.checkpoint"
    ]
    assert first == inputs
    assert re.fullmatch(
        re.escape(inputs)
        + r"\nand saving these intermediates:\n  float32\[3,3\] from named 'a' from .*\.py:\d+:\d+ \(.*\)",
        second,
    )


def test_barriers_before_some_arguments():
    f = lambda d, y: wnp.sin(wnp.sin(d["a"]) * wnp.sin(y))
    d, y = {"a": np.float32(0.5)}, np.float32(0.25)

    def held(prevent_cse, fun=f, args=(d, y), **options):
        loss = weft.checkpoint(fun, prevent_cse=prevent_cse, **options)
        line = next(
            (
                line
                for line in weft.jit(weft.grad(loss)).lower(*args).as_text().splitlines()
                if "optimization_barrier" in line
            ),
            "",
        )
        return line.count("tensor<f32>")

    assert [
        held(flags)
        for flags in (
            True,
            False,
            (True, True),
            (True, False),
            ({"a": False}, True),
            (False, False),
        )
    ] == [2, 0, 2, 1, 1, 0]
    assert held((True, False), lambda d, n, y: f(d, y) * n, (d, 3, y), static_argnums=1) == 1
    with pytest.raises(ValueError, match="prefix of the tuple of arguments"):
        held((True, False, True))
    want = weft.grad(f)(d, y)
    for flags in (True, (True, False)):
        got = weft.grad(weft.checkpoint(f, prevent_cse=flags))(d, y)
        np.testing.assert_allclose(got["a"], want["a"], rtol=1e-6)
        second = weft.grad(
            weft.grad(lambda a, flags=flags: weft.checkpoint(f, prevent_cse=flags)({"a": a}, y))
        )(0.5)
        np.testing.assert_allclose(
            second, weft.grad(weft.grad(lambda a: f({"a": a}, y)))(0.5), rtol=1e-5
        )
