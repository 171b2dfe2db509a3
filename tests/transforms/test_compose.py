"""Transformations alone and composed, against finite differences, loops and each other."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp

RNG = np.random.default_rng(0)


def arr(*shape):
    return wnp.asarray(RNG.standard_normal(shape).astype(np.float32))


def mlp(params, x):
    for w, b in params:
        x = wnp.tanh(x @ w + b)
    return x


PARAMS = [(arr(3, 4), arr(4)), (arr(4, 2), arr(2))]

FUNCTIONS = {
    "chain": (lambda x: wnp.sin(x) * wnp.exp(-(x**2)), (arr(5),)),
    "matmul": (lambda x, y: x @ y, (arr(2, 3), arr(3, 4))),
    "broadcast": (lambda x, y: x / (1.0 + y**2), (arr(4, 3), arr(3))),
    "softmax": (
        lambda x: (
            wnp.exp(x - x.max(-1, keepdims=True))
            / wnp.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)
        ),
        (arr(3, 5),),
    ),
    "mean_var": (lambda x: (x - x.mean(0)) / wnp.sqrt(x.var(0) + 1e-3), (arr(6, 2),)),
    "indexing": (lambda x: x[1:, ::2] * x[0, 0] + x[wnp.array([0, 2, 0])].sum(), (arr(4, 4),)),
    "updates": (lambda x: x.at[1:3].add(2.0 * x[:2]).at[0].set(1.0), (arr(4, 2),)),
    "where": (lambda x: wnp.where(x > 0, x**3, -x), (arr(7),)),
    "concat": (
        lambda x, y: wnp.concatenate([x, y * x.sum()], 0).reshape(-1),
        (arr(2, 3), arr(1, 3)),
    ),
    "cumsum": (lambda x: wnp.cumsum(x, 0) * x, (arr(4, 2),)),
    "einsum": (lambda a, b: wnp.einsum("bij,bjk->bik", a, b), (arr(2, 3, 4), arr(2, 4, 2))),
    "mlp": (lambda x: mlp(PARAMS, x), (arr(6, 3),)),
}


def directional(f, args, tangents, eps=1e-2):
    """Return the directional derivative of `f` by a central difference of fourth order in float64."""
    at = lambda h: np.asarray(f(*[a + h * t for a, t in zip(args, tangents)]), np.float64)
    return (8 * (at(eps) - at(-eps)) - (at(2 * eps) - at(-2 * eps))) / (12 * eps)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jvp_matches_finite_differences(name):
    f, args = FUNCTIONS[name]
    tangents = tuple(arr(*np.shape(a)) for a in args)
    out, tangent = weft.jvp(f, args, tangents)
    np.testing.assert_allclose(out, f(*args), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tangent, directional(f, args, tangents), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vjp_is_the_adjoint_of_jvp(name):
    f, args = FUNCTIONS[name]
    tangents = tuple(arr(*np.shape(a)) for a in args)
    out, tangent = weft.jvp(f, args, tangents)
    ct = arr(*out.shape)
    cts = weft.vjp(f, *args)[1](ct)
    left = float(np.vdot(np.asarray(tangent), ct))
    right = sum(float(np.vdot(np.asarray(c), t)) for c, t in zip(cts, tangents))
    assert left == pytest.approx(right, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_linearize_matches_jvp(name):
    f, args = FUNCTIONS[name]
    tangents = tuple(arr(*np.shape(a)) for a in args)
    out, push = weft.linearize(f, *args)
    want = weft.jvp(f, args, tangents)
    np.testing.assert_allclose(out, want[0], rtol=1e-6)
    np.testing.assert_allclose(push(*tangents), want[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jit_changes_nothing(name):
    f, args = FUNCTIONS[name]
    np.testing.assert_allclose(weft.jit(f)(*args), f(*args), rtol=1e-5, atol=1e-6)
    loss = lambda *xs: (f(*xs) ** 2).sum()
    plain = weft.grad(loss, argnums=tuple(range(len(args))))(*args)
    for g in (
        weft.jit(weft.grad(loss, argnums=tuple(range(len(args))))),
        weft.grad(weft.jit(loss), argnums=tuple(range(len(args)))),
        weft.grad(weft.checkpoint(loss), argnums=tuple(range(len(args)))),
    ):
        for got, want in zip(g(*args), plain):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_is_a_loop(name):
    f, args = FUNCTIONS[name]
    batched = tuple(arr(3, *np.shape(a)) for a in args)
    want = np.stack([np.asarray(f(*[b[i] for b in batched])) for i in range(3)])
    np.testing.assert_allclose(weft.vmap(f)(*batched), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weft.jit(weft.vmap(f))(*batched), want, rtol=1e-4, atol=1e-5)
    moved = tuple(np.moveaxis(b, 0, -1) for b in batched)
    got = weft.vmap(f, in_axes=-1, out_axes=-1)(*moved)
    np.testing.assert_allclose(np.moveaxis(np.asarray(got), -1, 0), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_of_grad_is_a_loop_of_grads(name):
    f, args = FUNCTIONS[name]
    loss = lambda x, *rest: (f(x, *rest) ** 2).sum()
    batched = arr(3, *np.shape(args[0]))
    want = np.stack([np.asarray(weft.grad(loss)(b, *args[1:])) for b in batched])
    got = weft.vmap(weft.grad(loss), in_axes=(0, *[None] * (len(args) - 1)))(batched, *args[1:])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["chain", "mean_var", "mlp", "where"])
def test_hessians_agree(name):
    f, (x,) = FUNCTIONS[name]
    loss = lambda v: (f(v) ** 2).sum()
    forward = weft.jacfwd(weft.jacrev(loss))(x)
    reverse = weft.jacrev(weft.jacrev(loss))(x)
    assert forward.shape == x.shape * 2
    np.testing.assert_allclose(forward, reverse, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(weft.hessian(loss)(x), forward, rtol=1e-4, atol=1e-4)
    v = arr(*x.shape)
    product = weft.jvp(weft.grad(loss), (x,), (v,))[1]
    np.testing.assert_allclose(
        product, np.tensordot(np.asarray(forward), v, x.ndim), rtol=5e-3, atol=5e-3
    )


def test_jacobians_have_the_shape_of_output_then_input():
    f = lambda d: {"s": wnp.sin(d["x"]), "m": d["x"][:, None] * d["y"]}
    args = {"x": arr(3), "y": arr(2)}
    for jac in (weft.jacfwd(f)(args), weft.jacrev(f)(args)):
        assert jac["s"]["x"].shape == (3, 3) and jac["m"]["y"].shape == (3, 2, 2)
        np.testing.assert_allclose(jac["s"]["x"], np.diag(np.cos(args["x"])), rtol=1e-5, atol=1e-6)


def test_gradients_of_pytrees_and_aux():
    def loss(params, x):
        out = mlp(params, x)
        return (out**2).mean(), {"out": out}

    (value, aux), grads = weft.value_and_grad(loss, has_aux=True)(PARAMS, arr(4, 3))
    assert aux["out"].shape == (4, 2)
    assert [tuple(np.shape(g) for g in pair) for pair in grads] == [((3, 4), (4,)), ((4, 2), (2,))]
    assert value.shape == ()
    assert weft.grad(loss, has_aux=True)(PARAMS, arr(4, 3))[1]["out"].shape == (4, 2)


def test_stop_gradient():
    from weft import lax

    assert float(weft.grad(lambda x: x * lax.stop_gradient(x))(3.0)) == 3.0


def test_checkpoint_recomputes_under_grad():
    from weft._engine.ir.jaxpr import subjaxprs

    def count(jaxpr, name):
        return sum(
            (e.primitive.name == name) + sum(count(j, name) for _, j in subjaxprs(e.params))
            for e in jaxpr.eqns
        )

    f = lambda x: wnp.sin(wnp.sin(x))
    plain = weft.make_jaxpr(weft.grad(f))(1.0)
    again = weft.make_jaxpr(weft.grad(weft.checkpoint(f)))(1.0)
    assert count(again, "sin") > count(plain, "sin")
    saved = weft.make_jaxpr(
        weft.grad(weft.checkpoint(f, policy=lambda prim, *_, **__: prim.name == "sin"))
    )(1.0)
    assert count(saved, "sin") == count(plain, "sin")
    g = lambda w: (wnp.sin(w @ w) @ w).sum()
    program = weft.make_jaxpr(
        weft.grad(weft.checkpoint(g, policy=weft.checkpoint_policies.dots_saveable))
    )(wnp.ones((2, 2)))
    assert count(program, "dot_general") == count(
        weft.make_jaxpr(weft.grad(g))(wnp.ones((2, 2))), "dot_general"
    )
    assert float(weft.grad(weft.checkpoint(f))(1.0)) == pytest.approx(float(weft.grad(f)(1.0)))


def test_checkpoint_of_operands_of_many_shapes():
    f = lambda w, b, x: (wnp.tanh(x @ w + b) ** 2).sum()
    args = (arr(3, 4), arr(4), arr(5, 3))
    want = weft.grad(f, (0, 1, 2))(*args)
    for g in (
        weft.grad(weft.checkpoint(f), (0, 1, 2)),
        weft.jit(weft.grad(weft.checkpoint(f), (0, 1, 2))),
    ):
        for got, w in zip(g(*args), want):
            np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-5)


def test_custom_jvp_rule_is_used_everywhere():
    @weft.custom_jvp
    def f(x):
        return wnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), 7.0 * tangents[0]))
    assert float(weft.grad(f)(1.0)) == 7.0
    assert float(weft.jit(weft.grad(f))(1.0)) == 7.0
    assert float(weft.grad(weft.jit(f))(1.0)) == 7.0
    np.testing.assert_allclose(weft.vmap(weft.grad(f))(wnp.ones(3)), [7.0] * 3)
    np.testing.assert_allclose(weft.grad(lambda x: weft.vmap(f)(x).sum())(wnp.ones(3)), [7.0] * 3)
    np.testing.assert_allclose(f(wnp.ones(2)), np.sin([1.0, 1.0]), rtol=1e-6)


def test_custom_vjp_rule_is_used_everywhere():
    @weft.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (x * y, (x, y)), lambda res, ct: (ct * 10.0 * res[1], None))
    assert float(weft.grad(f)(2.0, 3.0)) == 30.0
    assert float(weft.grad(f, 1)(2.0, 3.0)) == 0.0
    assert float(weft.jit(weft.grad(f))(2.0, 3.0)) == 30.0
    assert float(weft.grad(weft.jit(f))(2.0, 3.0)) == 30.0
    np.testing.assert_allclose(
        weft.vmap(weft.grad(f), in_axes=(0, None))(wnp.ones(3), 2.0), [20.0] * 3
    )
    np.testing.assert_allclose(
        weft.grad(lambda x: weft.vmap(f, in_axes=(None, 0))(x, wnp.arange(3.0)).sum())(2.0), 30.0
    )
    with pytest.raises(TypeError, match="custom_vjp"):
        weft.jvp(f, (1.0, 1.0), (1.0, 1.0))


def test_residuals_of_a_custom_vjp_stay_what_they_are():
    types = []
    f = weft.custom_vjp(lambda x: 2.0 * x)
    f.defvjp(
        lambda x: (2.0 * x, (True, 3, np.ones(2), x)),
        lambda r, ct: (types.append([type(v) for v in r[:3]]), (2.0 * ct,))[1],
    )
    total, x = (lambda x: f(x).sum()), wnp.ones((2, 3))
    for slope in (
        weft.grad(total),
        weft.jit(weft.grad(total)),
        weft.grad(weft.jit(total)),
        weft.vmap(weft.grad(total)),
        weft.grad(lambda x: weft.vmap(f)(x).sum()),
        weft.grad(lambda x: weft.vmap(weft.vmap(f))(x).sum()),
    ):
        np.testing.assert_array_equal(slope(x), np.full((2, 3), 2.0))
        assert types.pop() == [bool, int, np.ndarray] and not types


def test_custom_vjp_with_nondiff_arguments_and_trees():
    from functools import partial

    @partial(weft.custom_vjp, nondiff_argnums=(0,))
    def scale(k, tree):
        return k * tree["a"] + tree["b"]

    scale.defvjp(
        lambda k, tree: (scale(k, tree), None), lambda k, _, ct: ({"a": 100.0 * k * ct, "b": ct},)
    )
    grads = weft.grad(lambda t: scale(2.0, t).sum())({"a": wnp.ones(2), "b": wnp.ones(2)})
    np.testing.assert_allclose(grads["a"], [200.0, 200.0])


def test_vmap_with_axis_name_runs_collectives():
    from weft import lax

    x = wnp.arange(4.0)
    np.testing.assert_allclose(
        weft.vmap(lambda v: v / lax.psum(v, "i"), axis_name="i")(x), np.arange(4.0) / 6.0, rtol=1e-6
    )
    np.testing.assert_allclose(
        weft.vmap(lambda v: v + lax.axis_index("i"), axis_name="i")(x), 2.0 * np.arange(4.0)
    )


def test_linear_transpose():
    f = lambda x: (wnp.ones((2, 3)) @ x) * 2.0
    (ct,) = weft.linear_transpose(f, wnp.ones(3))(wnp.array([1.0, 2.0]))
    np.testing.assert_allclose(ct, [6.0, 6.0, 6.0])


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: weft.grad(lambda x: x)(wnp.ones(2)), TypeError, "scalar-output"),
        (lambda: weft.grad(lambda x: x * 1.0)(3), TypeError, "real- or complex-valued inputs"),
        (lambda: weft.grad(lambda x: x, argnums=3)(1.0), TypeError, "argnums"),
        (lambda: weft.jvp(lambda x: x, (1.0,), (wnp.ones(2),)), TypeError, "tangent"),
        (lambda: weft.jvp(lambda x: x, 1.0, (1.0,)), TypeError, "tuples or lists"),
        (lambda: weft.jvp(lambda x: x, (1.0,), (1,)), TypeError, "tangent of a primal"),
        (lambda: weft.vjp(lambda x: x, wnp.ones(2))[1](wnp.ones(3)), ValueError, "cotangent"),
        (
            lambda: weft.vmap(lambda x, y: x + y)(wnp.ones(3), wnp.ones(4)),
            ValueError,
            "inconsistent sizes",
        ),
        (
            lambda: weft.vmap(lambda x: x, in_axes=None)(wnp.ones(3)),
            ValueError,
            "at least one non-None",
        ),
        (
            lambda: weft.vmap(lambda x: x, in_axes=2)(wnp.ones(3)),
            ValueError,
            "rank should be at least",
        ),
        (
            lambda: weft.vmap(lambda x: x, out_axes=None)(wnp.ones(3)),
            ValueError,
            "out_axes is None",
        ),
        (
            lambda: weft.vmap(lambda x, y: x, in_axes=(0,))(wnp.ones(3), 1.0),
            ValueError,
            "corresponding to the positional arguments",
        ),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


@weft.custom_vjp
def _scaled(x, n):
    return x * n


_scaled.defvjp(
    lambda x, n: (x * n, (x, n)), lambda residuals, ct: (ct * residuals[1], ct * residuals[0])
)


DERIVATIVES = {
    "of the identity": (lambda x: weft.grad(lambda v: v)(x)),
    "zero": (lambda x: weft.grad(lambda v: 1.0)(x)),
    "of a sum": (lambda x: weft.grad(lambda v: v + 0)(x)),
    "of a custom rule": (lambda x: weft.grad(_scaled)(x, 3.0)),
    "second": (lambda x: weft.grad(weft.grad(lambda v: v**3))(x)),
    "of jvp": (lambda x: weft.jvp(lambda v: v * v, (x,), (1.0,))[1]),
    "of linearize": (lambda x: weft.linearize(lambda v: v * v, x)[1](1.0)),
    "of a staged function": (lambda x: weft.jit(weft.grad(lambda v: v * v))(x)),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_as_weakly_typed_as_their_values(name):
    weak, strong = DERIVATIVES[name](2.0), DERIVATIVES[name](wnp.float32(2.0))
    assert isinstance(weak, weft.Array) and isinstance(strong, weft.Array)
    assert weak.weak_type and not strong.weak_type
    assert (weak * wnp.ones(2, "bfloat16")).dtype == wnp.bfloat16


TRANSFORMED = {
    "jit": lambda f: weft.jit(f)(1.0),
    "grad": lambda f: weft.grad(f)(1.0),
    "vmap": lambda f: weft.vmap(f)(wnp.ones(2)),
    "jvp": lambda f: weft.jvp(f, (1.0,), (1.0,)),
    "scan": lambda f: weft.lax.scan(lambda c, _: (f(c), None), 1.0, None, 2),
    "jit of grad": lambda f: weft.jit(weft.grad(f))(1.0),
    "vmap of grad": lambda f: weft.vmap(weft.grad(f))(wnp.ones(2)),
    "a custom rule": lambda f: weft.jit(weft.grad(lambda x: f(weft.nn.relu(x))))(1.0),
    "grad of remat": lambda f: weft.grad(weft.checkpoint(f))(1.0),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_leaks_are_told_where_they_are_looked_for(name):
    leaked = []
    with weft.checking_leaks():
        TRANSFORMED[name](lambda x: wnp.sin(x) * 2.0 * x)
        with pytest.raises(
            weft.errors.UnexpectedTracerError, match=r"(?s)checking_leaks: .*held by: list"
        ):
            TRANSFORMED[name](lambda x: (leaked.append(x * 2.0), wnp.sin(x))[1])


@pytest.mark.parametrize("jit", [weft.jit, lambda f: f])
def test_rules_closing_over_tracers_are_refused(jit):
    """The rule runs below the derivative, where such a value means nothing; as a constant of a program it had no place."""

    def loss(x, w):
        @weft.custom_vjp
        def scaled(c):
            return c * w.sum()

        scaled.defvjp(lambda c: (scaled(c), c), lambda c, ct: (ct,))
        scaled(x)
        return wnp.sum(wnp.sin(x))

    x, w = wnp.arange(3.0), wnp.ones((3, 3))
    with pytest.raises(weft.errors.UnexpectedTracerError, match="Pass the value as an argument"):
        jit(weft.grad(loss, (0, 1)))(x, w)
    np.testing.assert_allclose(jit(weft.grad(loss))(x, w), np.cos(np.arange(3.0)), rtol=1e-6)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: f,
        weft.jit,
        lambda f: lambda x: weft.lax.scan(lambda c, _: (f(c), None), x, None, length=2),
    ],
    ids=["eager", "jit", "scan"],
)
def test_forward_mode_of_a_reverse_rule_is_refused(wrap):
    f = weft.custom_vjp(lambda x: 2.0 * x)
    f.defvjp(lambda x: (f(x), None), lambda _, ct: (2.0 * ct,))
    with pytest.raises(TypeError, match="to a custom_vjp function"):
        wrap(lambda x: weft.jvp(f, (x,), (x,))[1])(1.0)


def test_vmap_builds_result_nodes_with_mapped_dims_in_place():
    class Columns:
        """A type that takes arrays of two columns alone."""

        def __init__(self, x):
            assert not hasattr(x, "shape") or x.shape[-1] == 2
            self.x = x

    weft.tree_util.register_pytree_node(
        Columns, lambda c: ((c.x,), None), lambda _, xs: Columns(xs[0])
    )
    columns = np.ones((2, 5), np.float32)
    inner = lambda x: (Columns(wnp.stack([x, x], -1)), x)
    for axes in (0, [0, 0], (0, None)):
        f = lambda x, axes=axes: (
            inner(x)[0] if axes == 0 else (inner(x)[0], 1.0 if axes == (0, None) else x)
        )
        out = weft.vmap(f, in_axes=1, out_axes=axes)(np.ones((2, 3), np.float32))
        assert weft.tree.leaves(out)[0].shape == (3, 2, 2)
    with pytest.raises(ValueError, match="out_axes is None"):
        weft.vmap(inner, in_axes=1, out_axes=None)(columns)


def test_jacobians_of_integers_have_no_values():
    rows = weft.jacrev(lambda x, i: (x * i, x), argnums=(0, 1), allow_int=True)(
        wnp.arange(3.0), np.int32(2)
    )
    assert (
        rows[0][0].tolist() == np.diag([2.0, 2, 2]).tolist()
        and rows[0][1].dtype == rows[1][1].dtype == weft.dtypes.float0
    )
    mapped = weft.vmap(weft.grad(lambda x, i: x * i, argnums=1, allow_int=True))(
        wnp.ones(3), np.arange(3)
    )
    assert mapped.shape == (3,) and mapped.dtype == weft.dtypes.float0


def test_filled_arrays_of_no_values():
    x = np.zeros((2,), weft.dtypes.float0)
    assert all(
        a.dtype == weft.dtypes.float0
        for a in (wnp.zeros_like(x), wnp.zeros((), weft.dtypes.float0), wnp.full(3, 1, x.dtype))
    )


def test_an_axis_that_splits_twice_is_named():
    rows = weft.sharding.NamedSharding(
        weft.make_mesh((2,), ("x",), devices=weft.devices()[:2]), weft.P("x")
    )
    with pytest.raises(ValueError, match="spmd_axis_name"):
        weft.vmap(lambda x: weft.lax.with_sharding_constraint(x, rows), spmd_axis_name="x")(
            wnp.ones((4, 16))
        )


@pytest.mark.parametrize("run", [weft.jit, lambda f: f], ids=["jit", "eager"])
def test_constraints_without_axes_cannot_spread_a_mapped_dim(run):
    places = (
        weft.sharding.SingleDeviceSharding(weft.devices()[0]),
        weft.sharding.PositionalSharding(weft.devices()[:2]).replicate(),
    )
    for place in places:
        f = lambda x, place=place: weft.lax.with_sharding_constraint(x, place)
        with pytest.raises(ValueError, match=f"{type(place).__name__}, which names no mesh axes"):
            run(weft.vmap(f, spmd_axis_name="x"))(wnp.ones((4, 16)))
        assert run(weft.vmap(f))(wnp.ones((4, 16))).shape == (4, 16)


# ---- values that are differentiated, outside of operations


@pytest.mark.parametrize(
    "lose",
    [
        lambda x: np.exp(x).sum(),
        lambda x: np.asarray(x)[0],
        lambda x: float(x[0]),
        lambda x: complex(x[0]).real,
        lambda x: x.tolist()[0],
        lambda x: np.array([x[0], 1.0])[0],
    ],
    ids=["ufunc", "asarray", "float", "complex", "tolist", "array"],
)
@pytest.mark.parametrize(
    "derive",
    [
        lambda f, x: weft.grad(f)(x),
        lambda f, x: weft.jvp(f, (x,), (x,)),
        lambda f, x: weft.linearize(f, x),
        lambda f, x: weft.jacfwd(weft.grad(f))(x),
    ],
    ids=["grad", "jvp", "linearize", "second"],
)
def test_a_derivative_is_not_lost_without_a_word(lose, derive):
    f = lambda x: lose(x) * x.sum()
    with pytest.raises(TypeError, match="its derivative would be lost"):
        derive(f, np.float32([1.0, 2.0]))


def test_decisions_and_integers_of_differentiated_values():
    f = lambda x: x * int(x) if x > 1 else x
    assert weft.grad(f)(2.5) == 2.0 and weft.grad(f)(0.5) == 1.0
    assert np.allclose(
        weft.grad(lambda x: x[wnp.nonzero(x)[0]].sum())(np.float32([0.0, 2.0])), [0.0, 1.0]
    )
