"""Rules of users beyond plain custom derivatives: symbolic zeros, rules that are dropped under checkpoint, custom_vmap, linear_call,
custom_root, custom_linear_solve."""

import functools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax, typeof
from weft.custom_batching import custom_vmap, sequential_vmap
from weft.custom_derivatives import (
    CustomVJPPrimal,
    SymbolicZero,
    custom_vjp_primal_tree_values,
    linear_call,
    zero_from_primal,
)

X = np.linspace(0.5, 2.0, 4).astype(np.float32)
WRAPS = [lambda f: f, weft.jit, weft.checkpoint]


# ---- symbolic zeros


def _product_with_zeros(seen):
    @weft.custom_vjp
    def f(x, y):
        return x * y, wnp.sin(x)

    def fwd(x, y):
        seen.append(("fwd", x.perturbed, y.perturbed))
        x, y = custom_vjp_primal_tree_values((x, y))
        return f(x, y), (x, y)

    def bwd(res, cts):
        x, y = res
        seen.append(("bwd", *[type(ct) is SymbolicZero for ct in cts]))
        ct, other = cts
        assert type(other) is SymbolicZero and other.shape == x.shape and other.dtype == x.dtype
        return 3.0 * ct * y, SymbolicZero(weft.typeof(y))

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    return f


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("mapped", [False, True])
def test_custom_vjp_is_told_what_is_zero(wrap, mapped):
    seen = []
    f = _product_with_zeros(seen)
    slope = weft.grad(lambda x, y: wrap(lambda x, y: f(x, y)[0])(x, y).sum())
    if mapped:
        slope = weft.vmap(slope, in_axes=(0, None))
    assert np.allclose(slope(X, 5.0), 15.0)
    assert (
        ("fwd", True, False) in seen
        and ("bwd", False, True) in seen
        and ("fwd", True, True) not in seen
    )


def test_custom_jvp_is_told_what_is_zero():
    seen = []

    @weft.custom_jvp
    def f(x, y):
        return x * y, y

    def rule(primals, tangents):
        seen.append([type(t) is SymbolicZero for t in tangents])
        x, y = primals
        return f(x, y), (5.0 * tangents[0] * y, zero_from_primal(y, symbolic_zeros=True))

    f.defjvp(rule, symbolic_zeros=True)
    for wrap in WRAPS[:2]:
        g = wrap(lambda x: f(x, 3.0)[0])
        assert weft.value_and_grad(g)(2.0) == (6.0, 15.0)
        assert np.allclose(weft.vmap(weft.grad(g))(X), 15.0)
    assert seen and all(zeros == [False, True] for zeros in seen)


def test_arguments_of_fwd_are_told_from_others():
    with pytest.raises(TypeError, match="every leaf must be a CustomVJPPrimal"):
        custom_vjp_primal_tree_values({"x": 1.0})
    assert CustomVJPPrimal(1.0, True).perturbed
    with pytest.raises(NotImplementedError, match="symbolic_zeros and optimize_remat"):
        weft.custom_vjp(wnp.sin).defvjp(wnp.sin, wnp.sin, symbolic_zeros=True, optimize_remat=True)


@pytest.mark.parametrize("mapped", [False, True])
def test_fwd_gives_way_to_the_function_under_checkpoint(mapped):
    runs = {"fun": 0, "fwd": 0}

    def counted(name):
        def run(x):
            runs[name] += 1
            return np.sin(x), np.cos(x)

        def call(x):
            kind = weft.ShapeDtypeStruct(x.shape, x.dtype)
            return weft.pure_callback(run, (kind, kind), x, vmap_method="expand_dims")

        return call

    @weft.custom_vjp
    def f(x):
        return counted("fun")(x)[0]

    f.defvjp(lambda x: counted("fwd")(x), lambda cos, ct: (2.0 * ct * cos,), optimize_remat=True)

    def loss(x):
        return weft.checkpoint(lambda x: wnp.sin(f(x)))(x).sum()

    slope = weft.vmap(weft.grad(loss)) if mapped else weft.grad(loss)
    assert np.allclose(weft.jit(slope)(X), 2.0 * np.cos(X) * np.cos(np.sin(X)), atol=1e-5)
    assert runs["fwd"] == 1  # once, where the residual is read
    assert np.allclose(weft.grad(lambda x: f(x).sum())(X), 2.0 * np.cos(X), atol=1e-5)


# ---- custom_vmap


def test_custom_vmap_passes_rules_on_to_the_function_inside():
    double = custom_vmap(weft.custom_jvp(lambda x: 2 * x))

    @double.defjvp
    def double_jvp(primals, tangents):
        return 2 * primals[0], 5 * tangents[0]

    double.def_vmap(lambda size, mapped, x: (3 * x, mapped[0]))
    assert weft.vmap(double)(wnp.arange(2.0)).tolist() == [0, 3]
    assert weft.jvp(double.fun, (1.0,), (1.0,)) == (2.0, 5.0)
    with pytest.raises(AttributeError, match="defvjp"):
        double.defvjp
    with pytest.raises(AttributeError, match="'custom_vmap' object has no attribute 'rule'"):
        double.rule


def test_custom_vmap_is_asked_under_vmap_alone():
    asked = []

    @custom_vmap
    def f(x, tree):
        return x + tree["y"], tree["z"]

    @f.def_vmap
    def rule(axis_size, in_batched, x, tree):
        asked.append((axis_size, in_batched))
        return (x * 10.0 + tree["y"], tree["z"]), (True, False)

    ys = {"y": wnp.ones(4), "z": 7.0}
    assert (
        np.allclose(f(X, ys)[0], X + 1.0)
        and np.allclose(weft.jit(f)(X, ys)[0], X + 1.0)
        and not asked
    )
    for wrap in (lambda g: g, weft.jit):
        outs, z = weft.vmap(wrap(f), in_axes=(0, {"y": None, "z": None}), out_axes=(0, None))(
            X, {"y": 1.0, "z": 7.0}
        )
        assert np.allclose(outs, X * 10.0 + 1.0) and z == 7.0
    assert asked[0] == (4, [True, {"y": False, "z": False}])
    # the mapped dim comes first, wherever it was
    many = weft.vmap(f, in_axes=(1, None), out_axes=(1, None))(
        np.ones((2, 4), np.float32), {"y": 1.0, "z": 7.0}
    )[0]
    assert many.shape == (2, 4) and np.allclose(many, 11.0)
    # and the rule's own result may be mapped again
    assert np.allclose(
        weft.vmap(weft.vmap(lambda x: f(x, {"y": 1.0, "z": 7.0})[0]))(np.ones((2, 4), np.float32)),
        11.0,
    )


@pytest.mark.parametrize(
    "outer, inner", [(custom_vmap, weft.custom_jvp), (weft.custom_jvp, custom_vmap)]
)
def test_rules_are_set_through_the_outer_of_two_wrappers(outer, inner):
    f = outer(inner(lambda x: x * 2.0))
    f.def_vmap(lambda size, in_batched, xs: (xs * 10.0, True))
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 3.0))
    assert np.allclose(weft.vmap(f)(X), X * 10.0) and weft.jvp(f, (1.0,), (1.0,))[1] == 3.0
    with pytest.raises(AttributeError, match="no attribute 'defvjp'"):
        f.defvjp


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0)])
def test_custom_vmap_keeps_its_rule_in_forward_mode(in_axes):
    @custom_vmap
    def f(x):
        return wnp.sin(x)

    @f.def_vmap
    def rule(axis_size, in_batched, xs):
        return wnp.cos(xs), in_batched[0]

    x = X if in_axes[0] == 0 else 0.3
    t = X if in_axes[1] == 0 else 1.0
    for wrap in (lambda g: g, weft.jit):
        values, slopes = weft.vmap(wrap(lambda x, t: weft.jvp(f, (x,), (t,))), in_axes=in_axes)(
            x, t
        )
        if in_axes == (None, 0):  # nothing of f itself is mapped
            assert np.allclose(values, np.sin(x)) or np.allclose(values, np.cos(x))
        else:
            assert np.allclose(values, np.cos(x), atol=1e-5) and np.allclose(
                slopes, -np.sin(x) * t, atol=1e-5
            )


def test_custom_vmap_with_custom_vjp_around_has_both_rules():
    inner = custom_vmap(lambda x: wnp.sin(x))
    inner.def_vmap(lambda n, batched, x: (wnp.cos(x), True))
    f = weft.custom_vjp(inner)
    f.defvjp(lambda x: (inner(x), x), lambda x, ct: (100.0 * ct,))
    assert np.allclose(weft.vmap(f)(X), np.cos(X), atol=1e-6) and weft.grad(f)(1.0) == 100.0
    assert np.allclose(weft.vmap(weft.grad(f))(X), 100.0)
    with pytest.raises(ValueError, match="do not have reverse-mode derivatives"):
        weft.grad(inner)(1.0)


def test_custom_vmap_refuses_what_does_not_fit():
    f = custom_vmap(lambda x: (x, x))
    with pytest.raises(AttributeError, match="No batching rule defined"):
        f(1.0)
    f.def_vmap(lambda n, batched, x: ((x, x), True))
    with pytest.raises(ValueError, match=r"batching specification .* do not match"):
        weft.vmap(f)(X)
    f.def_vmap(lambda n, batched, x: (x, True))
    with pytest.raises(ValueError, match="does not match that of original custom-vmapped function"):
        weft.vmap(f)(X)
    with pytest.raises(TypeError, match="cannot be resolved"):
        f(y=1.0)


def test_sequential_vmap_runs_one_example_after_the_other():
    shapes = []

    @sequential_vmap
    def f(x, y):
        shapes.append(x.shape)
        return x.sum() + y

    xs = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert weft.vmap(f, in_axes=(0, None))(xs, 1.0).tolist() == [2.0, 6.0, 10.0]
    assert weft.jit(weft.vmap(weft.vmap(f)))(xs[None], np.ones((1, 3), np.float32)).tolist() == [
        [2.0, 6.0, 10.0]
    ]
    assert set(shapes) == {(2,)}


# ---- linear_call


@pytest.mark.parametrize("wrap", WRAPS[:2])
def test_linear_call_transposes_by_the_given_function(wrap):
    apply = lambda r, xs: {"a": r * xs[0], "b": 2.0 * xs[1]}
    back = lambda r, ct: (10.0 * r * ct["a"], ct["b"])
    f = wrap(lambda r, x, y: linear_call(apply, back, r, (x, y)))
    assert np.allclose(f(3.0, X, X)["a"], 3.0 * X)
    total = lambda x, y: (lambda out: (out["a"] + out["b"]).sum())(f(3.0, x, y))
    gx, gy = weft.grad(total, (0, 1))(X, X)
    assert np.allclose(gx, 30.0) and np.allclose(gy, 1.0)
    assert np.allclose(weft.jvp(lambda x: f(3.0, x, x)["a"], (X,), (X,))[1], 3.0 * X)
    gx = weft.vmap(weft.grad(lambda x, r: f(r, x, x)["a"]))(X, X)
    assert np.allclose(gx, 10.0 * X)
    twice = weft.linear_transpose(
        lambda ct: weft.linear_transpose(lambda x: f(3.0, x, x)["a"], X)(ct)[0], X
    )
    assert np.allclose(twice(X)[0], 3.0 * X)
    with pytest.raises(NotImplementedError, match="with respect to a residual"):
        weft.grad(lambda r: f(r, 1.0, 1.0)["a"])(2.0)
    with pytest.raises(TypeError, match="must give the structure of the linear arguments"):
        weft.grad(lambda x: linear_call(lambda r, x: x, lambda r, ct: [ct], 1.0, x))(1.0)


# ---- roots and linear solutions


def _bisect(f, x):
    def step(state):
        low, high = state
        mid = 0.5 * (low + high)
        return wnp.where(f(mid) < 0, mid, low), wnp.where(f(mid) < 0, high, mid)

    low, _ = lax.fori_loop(0, 30, lambda i, s: step(s), (wnp.zeros_like(x), wnp.full_like(x, 10.0)))
    return low


@pytest.mark.parametrize("wrap", WRAPS)
def test_custom_root_is_differentiated_implicitly(wrap):
    @wrap
    def root(a):
        return lax.custom_root(lambda x: x**3 - a, 1.0, _bisect, lambda g, y: y / g(1.0))

    cube = lambda a: a ** (1 / 3)
    assert np.allclose(root(8.0), 2.0, atol=1e-4)
    assert np.allclose(weft.grad(root)(8.0), 1 / 12, atol=1e-4)
    assert np.allclose(weft.vmap(root)(X), cube(X), atol=1e-4)
    assert np.allclose(weft.vmap(weft.grad(root))(X), cube(X) / (3 * X), atol=1e-3)
    assert np.allclose(weft.jvp(root, (8.0,), (2.0,))[1], 1 / 6, atol=1e-4)
    assert np.allclose(weft.grad(weft.grad(root))(8.0), -2 / 9 * 8 ** (-5 / 3), atol=1e-4)


def test_custom_root_returns_and_checks_aux():
    def solve(f, x):
        return x, {"steps": 3}

    tangent = lambda g, y: y / g(1.0)
    root, aux = lax.custom_root(lambda x: x, 2.0, solve, tangent, has_aux=True)
    assert root == 2.0 and aux == {"steps": 3}
    assert (
        weft.grad(lambda a: lax.custom_root(lambda x: x - a, a, solve, tangent, has_aux=True)[0])(
            2.0
        )
        == 1.0
    )
    with pytest.raises(TypeError, match=r"f\(\) output pytree structure must match initial_guess"):
        lax.custom_root(lambda x: (x, x), 2.0, solve, tangent)
    with pytest.raises(TypeError, match="must return a pair"):
        lax.custom_root(lambda x: x, 2.0, lambda f, x: x, tangent, has_aux=True)


A = np.array([[4.0, 1.0], [-1.0, 3.0]], np.float32)
B = np.array([1.0, 2.0], np.float32)
_dense = lambda matvec, b: wnp.linalg.solve(weft.jacobian(matvec)(b), b)


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("symmetric", [False, True])
def test_custom_linear_solve_agrees_with_differentiated_solver(wrap, symmetric):
    sym = (lambda a: a + a.T) if symmetric else (lambda a: a)
    options = {"symmetric": True} if symmetric else {"transpose_solve": _dense}

    @wrap
    def solution(a, b):
        return lax.custom_linear_solve(lambda x: sym(a) @ x, b, _dense, **options)

    plain = lambda a, b: wnp.linalg.solve(sym(a), b)
    near = lambda f: [
        np.allclose(x, y, atol=1e-4)
        for x, y in zip(*[weft.tree.leaves(f(s)) for s in (solution, plain)])
    ]
    total = lambda s: lambda a, b: (s(a, b) ** 2).sum()
    assert all(near(lambda s: s(A, B)))
    assert all(near(lambda s: weft.grad(total(s), (0, 1))(A, B)))
    assert all(near(lambda s: weft.jvp(s, (A, B), (A, B))))
    assert all(
        near(lambda s: weft.vmap(weft.grad(total(s)), in_axes=(0, None))(np.stack([A, 2 * A]), B))
    )
    assert all(
        near(
            lambda s: weft.vmap(weft.grad(total(s), (0, 1)), in_axes=(None, 0))(
                A, np.stack([B, 2 * B])
            )
        )
    )
    assert all(near(lambda s: weft.jacfwd(weft.grad(total(s)))(A, B)))


def test_custom_linear_solve_says_what_it_lacks():
    solve = lambda b: lax.custom_linear_solve(
        lambda x: A @ x, b, lambda f, b: (_dense(f, b), b.sum()), has_aux=True
    )
    x, aux = weft.jit(solve)(B)
    assert np.allclose(A @ x, B, atol=1e-5) and aux == 3.0
    with pytest.raises(TypeError, match="transpose_solve required for backwards mode"):
        weft.grad(lambda b: solve(b)[0].sum())(B)
    with pytest.raises(ValueError, match="output shapes must match b"):
        lax.custom_linear_solve(lambda x: x[:1], B, _dense)


def test_symbolic_zeros_pass_vmap_and_rule_closures():
    @weft.custom_jvp
    def f(x, y):
        return y

    def rule(primals, tangents):
        assert type(tangents[1]) is SymbolicZero
        return primals[1], tangents[1]

    f.defjvp(rule, symbolic_zeros=True)
    assert np.array_equal(
        weft.jvp(weft.vmap(lambda x: f(x, f(x, 1.0))), (X,), (X,))[1], np.zeros(4)
    )

    def outer(x):
        g = weft.custom_vjp(lambda y: x * y)
        g.defvjp(lambda y: (g(y), (x, y)), lambda res, ct: (res[0] * res[1] * ct,))
        return weft.grad(g)

    assert np.allclose(weft.vmap(lambda x: outer(x)(3.0))(X), 3.0 * X)


@pytest.mark.parametrize("looped", [False, True])
def test_a_rule_is_that_of_the_function_not_of_its_transpose(looped):
    @weft.custom_jvp
    def total(x):
        return wnp.sum(x, axis=0)

    @total.defjvp
    def total_jvp(primals, tangents):
        assert typeof(tangents[0]).shape == (3,)
        return total(*primals), total(*tangents)

    f = weft.checkpoint(lambda x: total(x) ** 2, policy=weft.checkpoint_policies.checkpoint_dots)
    f = (lambda row: lambda x: lax.scan(lambda c, r: (c, row(r)), None, x)[1])(f) if looped else f
    x = wnp.arange(6.0).reshape(2, 3) if looped else wnp.arange(3.0)
    slope = lambda x: weft.grad(lambda x: f(x).sum())(x)
    np.testing.assert_allclose(
        slope(x), np.broadcast_to(2 * np.asarray(x).sum(-1, keepdims=True), x.shape)
    )
    np.testing.assert_allclose(weft.vjp(slope, x)[1](wnp.ones_like(x))[0], np.full(x.shape, 6.0))
    np.testing.assert_allclose(weft.jvp(slope, (x,), (wnp.ones_like(x),))[1], np.full(x.shape, 6.0))


# ---- where rules do not reach


@pytest.mark.parametrize("wrap", [weft.jit, weft.grad, weft.vmap])
def test_traced_values_in_arguments_that_are_not_differentiated(wrap):
    @functools.partial(weft.custom_vjp, nondiff_argnums=(0,))
    def f(scale, y):
        return scale["by"] * y

    f.defvjp(lambda scale, y: (f(scale, y), None), lambda scale, _, ct: (scale["by"] * ct,))

    assert float(weft.grad(lambda y: f({"by": 3.0}, y))(2.0)) == 3.0
    with pytest.raises(weft.errors.UnexpectedTracerError, match=r"custom_vjp.*nondiff_argnums"):
        wrap(lambda x: f({"by": x}, x))(X if wrap is weft.vmap else 2.0)


def test_rules_of_known_values():
    """`ensure_compile_time_eval` runs functions with custom rules on values."""
    seen = []

    def look(x):
        seen.append(float(x))
        return 2 * x

    by_jvp, by_vjp = weft.custom_jvp(look), weft.custom_vjp(look)
    by_jvp.defjvp(lambda primals, tangents: (by_jvp(*primals), 5.0 * tangents[0]))
    by_vjp.defvjp(lambda x: (by_vjp(x), None), lambda _, ct: (5.0 * ct,))

    @weft.jit
    def known():
        with weft.ensure_compile_time_eval():
            return int(by_jvp(1.0)) + int(by_vjp(2.0)) + weft.grad(by_vjp)(1.0)

    assert float(known()) == 11.0 and 2.0 in seen

    @weft.jit
    def traced(x):
        with weft.ensure_compile_time_eval():
            return square(x)

    @weft.custom_jvp
    def square(x):
        return x * x

    square.defjvp(lambda primals, tangents: (square(*primals), 7.0 * tangents[0]))
    assert float(traced(3.0)) == 9.0 and float(weft.grad(traced)(3.0)) == 7.0


def test_cotangent_shapes_are_checked_unless_disabled():
    @weft.custom_vjp
    def first(x, y):
        return x

    first.defvjp(lambda x, y: (x, None), lambda _, ct: (ct, wnp.zeros(3)))
    of_second = lambda: weft.grad(lambda x, y: first(x, y).sum(), 1)(wnp.ones(3), wnp.ones(4))
    with pytest.raises(ValueError, match="shapes"):
        of_second()
    weft.config.update("disable_bwd_checks", True)
    try:
        assert of_second().shape == (3,)
    finally:
        weft.config.update("disable_bwd_checks", False)


# ---- what rules give


def _scanned(f):
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]


def test_rules_give_the_structure_of_the_function():
    @weft.custom_jvp
    def f(x):
        return x

    @f.defjvp
    def f_jvp(primals, tangents):
        return (primals[0], primals[0]), (tangents[0], tangents[0])

    @weft.custom_vjp
    def g(x):
        return x

    g.defvjp(lambda x: ((x, x), None), lambda _, ct: (ct[0],))
    for fun, rule in (
        (f, "Custom JVP rule f_jvp for function f"),
        (g, "Custom VJP fwd rule <lambda> for function g"),
    ):
        with pytest.raises(TypeError, match=rule):
            weft.grad(_scanned(fun))(1.0)


def _sum_over_i(slope):
    """psum over the axis i with the rule that the tangents are multiplied by `slope()`, in both modes."""
    f = weft.custom_jvp(lambda x: lax.psum(x, "i"))
    f.defjvp(lambda primals, tangents: (lax.psum(primals[0], "i"), slope() * tangents[0]))
    g = weft.custom_vjp(lambda x: lax.psum(x, "i"))
    g.defvjp(lambda x: (lax.psum(x, "i"), None), lambda _, ct: (slope() * ct,))
    return f, g


def _mapped(f, x, **axes):
    return weft.vmap(lambda _, x: weft.jit(f)(x), axis_name="i", **axes)(np.arange(4.0), x)


def test_a_collective_in_a_function_is_one_value_for_all():
    for f in _sum_over_i(lambda: lax.psum(1.0, "i")):
        once = lambda x, f=f: _mapped(f, x, in_axes=(0, None), out_axes=None)
        assert once(2.0) == 8 and weft.grad(once)(2.0) == 4
        split = lambda x, f=f: _mapped(f, x).sum()
        assert split(np.ones(4)) == 16 and weft.grad(split)(np.ones(4)).tolist() == [4] * 4
    forward, backward = [
        weft.grad(lambda x, f=f: _mapped(f, x, in_axes=(0, None), out_axes=None))
        for f in _sum_over_i(lambda: lax.axis_index("i") + 1.0)
    ]
    assert backward(2.0) == 1 + 2 + 3 + 4  # cotangents of a value that all share add up
    with pytest.raises(ValueError, match="depend on the mapped axis i"):
        forward(2.0)


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_rules_with_wrong_result_shapes_are_refused_in_programs(kind):
    wide = lambda x: wnp.zeros((3, *x.shape), x.dtype)
    if kind == "jvp":
        f = weft.custom_jvp(lambda x: x)
        f.defjvp(lambda primals, tangents: (wide(*primals), wide(*tangents)))
    else:
        f = weft.custom_vjp(lambda x: x)
        f.defvjp(lambda x: (wide(x), None), lambda _, ct: (ct,))
    looped = lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]
    with pytest.raises(TypeError, match=r"float32\[3\] which doesn't match float32\[\]"):
        weft.grad(looped)(np.float32(1))


def test_transposes_are_trees_of_what_their_functions_close_over():
    transpose = weft.jit(lambda a: weft.linear_transpose(lambda x: a * x, 1.0))(3.0)
    assert len(weft.tree.leaves(transpose)) == 1
    assert weft.jit(lambda f, x: f(x))(transpose, 2.0) == transpose(2.0) == (6.0,)
    slope = weft.grad(lambda a: weft.linear_transpose(lambda x: a * a * x, 1.0)(2.0)[0])
    assert slope(3.0) == 12.0


# ---- rules that close over mapped values


def _with_jvp(x):
    @weft.custom_jvp
    def g(y):
        return x * y

    @g.defjvp
    def g_jvp(primals, tangents):
        return x * primals[0], 3.0 * x * tangents[0]

    return g


def _with_vjp(x):
    @weft.custom_vjp
    def g(y):
        return x * y

    g.defvjp(lambda y: (x * y, (x, y)), lambda res, ct: (3.0 * res[0] * ct,))
    return g


def _with_closed_bwd(x):
    @weft.custom_vjp
    def g(y):
        return x * y

    g.defvjp(lambda y: (x * y, None), lambda _, ct: (3.0 * x * ct,))
    return g


def _with_nondiff(x):
    @functools.partial(weft.custom_jvp, nondiff_argnums=(0,))
    def g(x, y):
        return x * y

    g.defjvp(lambda x, primals, tangents: (x * primals[0], 3.0 * x * tangents[0]))
    return functools.partial(g, x)


@pytest.mark.parametrize("make", [_with_jvp, _with_vjp, _with_closed_bwd, _with_nondiff])
@pytest.mark.parametrize("outer", [lambda f: f, weft.jit, weft.vmap], ids=["plain", "jit", "vmap"])
def test_rules_close_over_mapped_values(make, outer):
    def total(z):
        return weft.vmap(lambda x: make(x)(z))(
            X
        ).sum()  # no argument is mapped, but a value that the rule closes over

    if outer is weft.vmap:
        assert np.allclose(weft.vmap(weft.grad(total))(X), 3.0 * X.sum())
        return
    assert np.allclose(outer(weft.grad(total))(2.0), 3.0 * X.sum())
    assert np.allclose(weft.vmap(lambda x: make(x)(2.0))(X), 2.0 * X)
    assert np.allclose(
        weft.vmap(lambda x, w: weft.grad(lambda y: make(x)(y * w))(2.0))(X, X), 3.0 * X * X
    )
    assert np.allclose(
        outer(
            weft.grad(
                lambda z: weft.vmap(lambda w: weft.vmap(lambda x: make(x * w)(z))(X))(X).sum()
            )
        )(2.0),
        3.0 * X.sum() ** 2,
    )


def test_a_pullback_maps_a_rule_that_closes_over_mapped_values():
    _, pullback = weft.vjp(lambda z: weft.vmap(lambda x: _with_closed_bwd(x)(z))(X), 2.0)
    assert np.allclose(pullback(np.ones_like(X))[0], 3.0 * X.sum())
    _, tangents = weft.jvp(lambda z: weft.vmap(lambda x: _with_jvp(x)(z))(X), (2.0,), (1.0,))
    assert np.allclose(tangents, 3.0 * X)


@pytest.mark.parametrize("make", [_with_jvp, _with_vjp])
def test_closing_over_differentiated_values_is_refused(make):
    for derive in (
        weft.grad(lambda x: make(x)(1.0)),
        lambda x: weft.jvp(lambda x: make(x)(1.0), (x,), (1.0,)),
    ):
        with pytest.raises(
            weft.errors.UnexpectedTracerError, match="Pass the value as an argument"
        ):
            derive(3.0)


@pytest.mark.parametrize(
    "inside", [lambda f: f, weft.jit, weft.checkpoint], ids=["plain", "jit", "checkpoint"]
)
@pytest.mark.parametrize(
    "fwd, slope",
    [
        (lambda x: (2.0 * x, lax.psum(x, "i")), lambda x: 4.0 * x * 4),
        (lambda x: (2.0 * x, lax.axis_index("i").astype(np.float32)), lambda x: 4.0 * 6.0),
    ],
    ids=["sum", "index"],
)
def test_a_rule_uses_the_mapped_axis_where_the_function_does_not(inside, fwd, slope):
    f = weft.custom_vjp(lambda x: 2.0 * x)
    f.defvjp(fwd, lambda res, ct: (ct * res,))
    total = lambda x: weft.vmap(inside(lambda i: f(x) + i), axis_name="i")(X).sum()
    assert np.allclose(weft.grad(total)(2.0), slope(2.0))
    assert np.allclose(weft.jit(weft.grad(total))(2.0), slope(2.0))


def test_a_rule_that_alone_depends_on_mapped_values_is_refused():
    f = weft.custom_jvp(lambda y: 2.0 * y)
    f.defjvp(lambda primals, tangents: (2.0 * primals[0], lax.axis_index("i") * tangents[0]))
    mapped = weft.jit(lambda z: weft.vmap(lambda x: f(z), axis_name="i", out_axes=None)(X))
    assert mapped(1.0) == 2.0
    with pytest.raises(
        ValueError,
        match="depend on the mapped axis i, but the results of its function do not",
    ):
        weft.jvp(mapped, (1.0,), (1.0,))


# ---- wide types within blocks


@pytest.mark.parametrize("kind", ["jvp", "vjp", "plain"])
def test_derivatives_through_a_block_with_wide_types(kind):
    f = lambda x: x**2.0 * 3.0
    if kind == "jvp":
        f = weft.custom_jvp(f)
        f.defjvp(lambda xs, ts: (f(*xs), ts[0] * wnp.sin(xs[0])))
    if kind == "vjp":
        f = weft.custom_vjp(f)
        f.defvjp(lambda x: (f(x), wnp.sin(x)), lambda res, ct: (res * ct,))

    def g(x):
        with weft.enable_x64():
            return f(wnp.array(x, wnp.float64))

    want = {"plain": [30.0, 6.0, 0.0]}.get(kind, [np.sin(5.0), np.cos(5.0), -np.sin(5.0)])
    for derive, value in zip(
        [weft.grad(g), weft.grad(weft.grad(g)), weft.grad(weft.grad(weft.grad(g)))], want
    ):
        assert derive(5.0).dtype == np.float32 and np.allclose(derive(5.0), value, atol=1e-6)
    with weft.enable_x64():
        assert weft.grad(weft.grad(g))(5.0).dtype == np.float64


def test_op_rules_keep_wide_types_outside_the_block():
    def g(x):
        with weft.enable_x64():
            y = wnp.array(x, wnp.float64) * wnp.arange(1.0, 4.0)
            y = wnp.where(y > 3, y**2.5, wnp.pad(wnp.cumsum(y[:2]), (1, 0)))
            return (y.reshape(3, 1) / 3.0).sum() + wnp.max(y) * 0.1

    numeric = (np.float64(g(2.0 + 1e-6)) - np.float64(g(2.0 - 1e-6))) / 2e-6
    assert g(2.0).dtype == np.float64 and weft.grad(g)(2.0).dtype == np.float32
    assert np.isclose(weft.grad(g)(2.0), numeric, rtol=1e-5)
    second = weft.grad(weft.grad(g))(2.0)
    assert np.isclose(second, (weft.grad(g)(2.01) - weft.grad(g)(1.99)) / 0.02, rtol=1e-3)


def test_texts_of_programs_with_rules_are_the_same_in_each_trace():
    f = sequential_vmap(lambda x: x + 1.0)
    once, again = (
        str(weft.make_jaxpr(weft.vmap(f))(X)),
        str(weft.make_jaxpr(lambda xs: lax.map(f, xs))(X)),
    )
    assert once == again and "custom_vmap_call" in once and " at 0x" not in once
