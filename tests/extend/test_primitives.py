"""Primitives of libraries: each rule, every transformation, and errors without a rule."""

import copy
import pickle

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.extend.library_primitives import X, bare, matvec, sin_cos
from tests.harness.pages import blocks, needs_pages
from weft import lax
from weft._engine.ir.program_structure import serialize_structure
from weft._engine.transforms.expand_library_ops import expand
from weft.extend.core import (
    CallPrimitive,
    ClosedJaxpr,
    Effect,
    Jaxpr,
    Literal,
    Primitive,
    ShapedArray,
    Var,
    jaxpr_as_fun,
)
from weft.extend.linear_util import wrap_init
from weft.interpreters import ad, batching, mlir, stablehlo_ops, xla
from weft.sharding import PartitionSpec as P


def test_eager_calls_run_the_implementation_alone():
    p = sin_cos()
    s, _ = p.bind(X, scale=2.0)
    assert len(p.runs) == 1
    np.testing.assert_array_equal(s, np.sin(np.float32(2) * X))
    weft.jit(lambda x: p.bind(x, scale=2.0))(X)
    assert len(p.runs) == 1


@pytest.mark.parametrize(
    "under",
    [
        lambda f: f,
        weft.jit,
        lambda f: weft.jit(f, backend="reference"),
        weft.vmap,
        lambda f: weft.jit(weft.vmap(f)),
        lambda f: lambda x: lax.map(f, x),
        lambda f: weft.jit(weft.checkpoint(f)),
        lambda f: lambda x: lax.cond(x[0] < 0, f, lambda x: x, x),
        lambda f: lambda x: lax.fori_loop(0, 1, lambda i, y: f(y), x),
        lambda f: weft.jit(
            weft.shard_map(f, mesh=weft.make_mesh((4,), ("a",)), in_specs=P("a"), out_specs=P("a"))
        ),
        lambda f: weft.shard_map(
            f, mesh=weft.make_mesh((4,), ("a",)), in_specs=P("a"), out_specs=P("a")
        ),
    ],
)
def test_under_every_transformation(under):
    p = sin_cos()

    def f(x):
        s, c = p.bind(x, scale=2.0)
        return s + 3.0 * c

    np.testing.assert_allclose(under(f)(X), np.sin(2 * X) + 3 * np.cos(2 * X), rtol=2e-6, atol=1e-6)


def test_derivatives():
    p = sin_cos()
    f = lambda x: p.bind(x, scale=2.0)[0].sum()
    want = 2 * np.cos(2 * X)
    for grad in (
        weft.grad(f),
        weft.jit(weft.grad(f)),
        weft.grad(weft.jit(f)),
        weft.vmap(weft.grad(f)),
        weft.jacfwd(f),
        lambda x: weft.vjp(f, x)[1](1.0)[0],
        lambda x: weft.grad(weft.checkpoint(f))(x),
    ):
        np.testing.assert_allclose(grad(X), want, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(
        weft.jit(weft.vmap(weft.grad(weft.grad(f))))(X), -4 * np.sin(2 * X), rtol=3e-6, atol=2e-6
    )


def test_transposes_see_which_operands_are_linear():
    p = matvec()
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    ct = np.float32([1, -2])
    x = np.ones(3, np.float32)
    for run in (lambda f: f, weft.jit):
        np.testing.assert_array_equal(
            run(lambda x: weft.vjp(lambda x: p.bind(a, x), x)[1](ct)[0])(x), a.T @ ct
        )
    assert weft.linear_transpose(lambda x: p.bind(a, x), x)(ct)[0].tolist() == (a.T @ ct).tolist()
    with pytest.raises(NotImplementedError, match="Batching rule for 'matvec' not implemented"):
        weft.vmap(lambda x: p.bind(a, x))(np.ones((2, 3), np.float32))


def test_helpers_that_state_rules():
    square, times, total = Primitive("square"), Primitive("times"), Primitive("total")
    square.def_abstract_eval(lambda x: x)
    times.def_abstract_eval(lambda x, y: x)
    total.def_abstract_eval(
        lambda x, *, axes: ShapedArray(
            tuple(n for d, n in enumerate(x.shape) if d not in axes), x.dtype
        )
    )
    mlir.register_lowering(square, mlir.lower_fun(lambda x: x * x, multiple_results=False))
    mlir.register_lowering(times, mlir.lower_fun(lambda x, y: x * y, multiple_results=False))
    mlir.register_lowering(
        total, mlir.lower_fun(lambda x, *, axes: x.sum(axes), multiple_results=False)
    )
    ad.defjvp2(square, lambda t, out, x: 2 * t * (out / x))
    ad.defbilinear(times, lambda ct, x, y: times.bind(ct, y), lambda ct, x, y: times.bind(x, ct))
    ad.deflinear(total, lambda ct, *, axes: [wnp.broadcast_to(wnp.expand_dims(ct, axes), (2, 3))])
    for p in (square, times):
        batching.defvectorized(p)
    batching.defreducer(total)
    assert weft.grad(square.bind)(3.0) == 6.0
    assert [float(g) for g in weft.grad(times.bind, (0, 1))(3.0, 5.0)] == [5.0, 3.0]
    assert weft.vmap(times.bind, (0, None))(np.ones(3, np.float32), 2.0).tolist() == [2, 2, 2]
    assert weft.vmap(times.bind, (0, 1), 1)(
        np.ones((2, 3), np.float32), np.full((3, 2), 2, np.float32)
    ).shape == (3, 2)
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(
        weft.vmap(lambda x: total.bind(x, axes=(0,)), 1)(values), values.sum(0)
    )
    np.testing.assert_array_equal(
        weft.grad(lambda x: total.bind(x, axes=(0, 1)))(np.ones((2, 3), np.float32)),
        np.ones((2, 3)),
    )
    joined = Primitive("joined")
    joined.def_impl(lambda x, y: np.asarray(x) + np.asarray(y))
    batching.defbroadcasting(joined)
    assert weft.vmap(joined.bind, (0, 0))(
        np.ones((2, 3), np.float32), np.ones(2, np.float32)
    ).shape == (2, 3)


MISSING = {
    "Evaluation rule for 'bare'": lambda p: p.bind(1.0),
    "Abstract evaluation for 'bare'": lambda p: weft.make_jaxpr(p.bind)(1.0),
}
MISSING_OF_IMPL = {
    "MLIR translation rule for primitive 'bare' not found for platform cpu": lambda p: weft.jit(
        p.bind
    )(1.0),
    "MLIR translation rule": lambda p: weft.jit(p.bind).lower(1.0),
    "Differentiation rule for 'bare' not implemented": lambda p: weft.grad(p.bind)(1.0),
    "Batching rule for 'bare' not implemented": lambda p: weft.vmap(p.bind)(X),
    "for platform cpu": lambda p: lax.scan(lambda c, x: (p.bind(c), x), 0.0, X),
}


@pytest.mark.parametrize("message", [*MISSING, *MISSING_OF_IMPL])
def test_a_missing_rule_is_named_where_it_is_needed(message):
    use = {**MISSING, **MISSING_OF_IMPL}[message]
    with pytest.raises(NotImplementedError, match=message) as error:
        use(bare(message in MISSING_OF_IMPL))
    assert "test_primitives.py" in str(error.value)


def test_a_linear_primitive_without_a_transpose():
    p = bare(True)
    ad.deflinear2(p, lambda ct, x: [ct])
    assert weft.grad(p.bind)(1.0) == 1.0
    del ad.primitive_transposes[p]
    with pytest.raises(NotImplementedError, match=r"Transpose rule .* for 'bare' not implemented"):
        weft.grad(p.bind)(1.0)


@pytest.mark.parametrize(
    "name",
    [
        "sin",
        "pvary",
        "scan",
        "cond",
        "jit",
        "name",
        "broadcast_in_dim",
        "random_wrap",
        "scatter",
        "shard_map",
    ],
)
def test_names_that_are_taken(name):
    """The object identifies an operation in programs, texts and rules, not its name."""
    one, other = sin_cos(name), Primitive(name)
    other.def_abstract_eval(lambda x: x)
    mlir.register_lowering(other, mlir.lower_fun(lambda x: x + 1, multiple_results=False))
    f = lambda x: other.bind(one.bind(wnp.sin(x), scale=1.0)[1])
    np.testing.assert_allclose(weft.jit(f)(X), np.cos(np.sin(X)) + 1, rtol=1e-5)
    program = weft.make_jaxpr(f)(X)
    assert [eqn.primitive for eqn in program.eqns][-2:] == [one, other]
    assert f"= {name}" in str(program)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(one)
    assert copy.deepcopy(one) is one


def test_what_is_compiled_has_the_structure_of_plain_operations():
    """A program on disk is therefore found by its computation, in any process."""
    p = sin_cos()
    scan = lambda f: lambda x: lax.scan(lambda c, v: (c + f(v), f(c)), wnp.zeros(()), x)
    mine = expand(weft.make_jaxpr(scan(lambda v: p.bind(v, scale=3.0)[0]))(X))
    plain = weft.make_jaxpr(scan(lambda v: wnp.sin(3.0 * v)))(X)
    from weft._engine.compiler.rewrite.simplify import simplify

    assert serialize_structure(simplify(mine)) == serialize_structure(simplify(plain))


def test_rules_that_know_the_mapped_axis():
    p = Primitive("mean_over")
    p.def_abstract_eval(lambda x, *, name: x)
    seen = []

    def batch(axis, args, dims, *, name):
        seen.append((axis.size, axis.name, dims))
        (x,), (d,) = args, dims
        if axis.name == name:
            return (x if d is None else x.mean(d)), batching.not_mapped
        return p.bind(x, name=name), d

    batching.fancy_primitive_batchers[p] = batch
    assert p in batching.fancy_primitive_batchers and p not in batching.axis_primitive_batchers
    out = weft.vmap(lambda x: p.bind(x, name="i"), axis_name="i")(X)
    np.testing.assert_allclose(out, np.full(8, X.mean()), rtol=1e-5)
    assert weft.vmap(lambda x: x + p.bind(2.0, name="i"), axis_name="i")(X).shape == (
        8,
    )  # the rule is also called for operands that are not mapped
    assert [s[2] for s in seen] == [[0], [None]]
    batching.axis_primitive_batchers[p] = lambda size, axis, _, args, dims, *, name: (
        args[0] * size,
        dims[0],
    )
    np.testing.assert_allclose(weft.vmap(lambda x: p.bind(x, name="i"))(X), 8 * X)


def test_effects_keep_equations():
    class Note(Effect):
        pass

    p = Primitive("note")
    p.multiple_results = True
    seen = []
    p.def_effectful_abstract_eval(lambda x: ([], {Note()}))
    mlir.register_lowering(
        p,
        lambda ctx, x: mlir.emit_python_callback(
            ctx,
            lambda v: seen.append(v.item()) or [],
            None,
            [x],
            ctx.avals_in,
            [],
            has_side_effect=True,
        )[0],
    )
    f = weft.jit(lambda x: (p.bind(x), x + 1)[1])
    program = weft.make_jaxpr(f)(1.0)
    assert [type(e) for e in program.effects] == [Note]
    f(1.0), f(2.0)
    weft.effects_barrier()
    assert seen == [1.0, 2.0]
    assert isinstance(p.abstract_eval(weft.typeof(1.0))[1], set)


def test_apply_primitive_compiles_the_lowering():
    p = sin_cos()
    p.def_impl(lambda x, **params: xla.apply_primitive(p, x, **params))
    np.testing.assert_allclose(p.bind(X, scale=1.0)[0], np.sin(X), rtol=1e-6)


def test_primitives_say_whether_they_call_a_function():
    assert not any(
        p.call_primitive or p.map_primitive
        for p in (lax.add_p, lax.exp_p, Primitive("of a library"))
    )


def test_call_primitives_hold_their_function():
    p = CallPrimitive("kept")
    f = lambda x: p.bind(wrap_init(lambda y: [wnp.sin(y) * x]), x)[0]
    program = weft.make_jaxpr(f)(2.0)
    (eqn,) = program.eqns
    assert eqn.primitive is p and len(eqn.params["jaxpr"].eqns) == 2
    for g in (f, weft.jit(f)):
        np.testing.assert_allclose(g(2.0), 2 * np.sin(2.0), rtol=1e-6)
    np.testing.assert_allclose(weft.grad(f)(2.0), np.sin(2.0) + 2 * np.cos(2.0), rtol=1e-6)
    np.testing.assert_allclose(weft.vmap(f)(X), X * np.sin(X), rtol=1e-5)
    np.testing.assert_allclose(jaxpr_as_fun(program)(2.0)[0], 2 * np.sin(2.0), rtol=1e-6)


def test_programs_as_data():
    """An interpreter and a builder of programs, as libraries write them."""
    f = lambda x: wnp.exp(wnp.tanh(x)) * np.float32(2)
    closed = weft.make_jaxpr(f)(X)
    assert isinstance(closed, ClosedJaxpr) and not isinstance(closed, Jaxpr)
    assert isinstance(closed.jaxpr, Jaxpr) and not isinstance(closed.jaxpr, ClosedJaxpr)
    inverses = {lax.exp_p: wnp.log, lax.tanh_p: wnp.arctanh}

    def inverse(jaxpr, consts, y):
        env = dict(zip(jaxpr.constvars, consts))
        (out,) = jaxpr.outvars
        env[out] = y
        for eqn in jaxpr.eqns[::-1]:
            if eqn.primitive is lax.mul_p:
                (v, scale) = eqn.invars if isinstance(eqn.invars[1], Literal) else eqn.invars[::-1]
                env[v] = env[eqn.outvars[0]] / scale.val
            else:
                env[eqn.invars[0]] = inverses[eqn.primitive](env[eqn.outvars[0]])
        return env[jaxpr.invars[0]]

    back = weft.jit(lambda y: inverse(closed.jaxpr, closed.consts, y))
    np.testing.assert_allclose(back(f(X)), X, atol=1e-5)

    def again(jaxpr, consts, *args):
        env = {**dict(zip(jaxpr.constvars, consts)), **dict(zip(jaxpr.invars, args))}
        read = lambda a: a.val if isinstance(a, Literal) else env[a]
        for eqn in jaxpr.eqns:
            subfuns, params = eqn.primitive.get_bind_params(eqn.params)
            outs = eqn.primitive.bind(*subfuns, *map(read, eqn.invars), **params)
            env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
        return [read(v) for v in jaxpr.outvars]

    nested = weft.make_jaxpr(lambda x: lax.fori_loop(0, 2, lambda i, c: weft.jit(f)(c), x))(X)
    np.testing.assert_allclose(again(nested.jaxpr, nested.consts, X)[0], f(f(X)), rtol=1e-5)
    np.testing.assert_allclose(
        weft.eval_jaxpr(nested.jaxpr, nested.consts, X)[0], f(f(X)), rtol=1e-5
    )

    halved = ClosedJaxpr(
        closed.jaxpr.replace(eqns=closed.jaxpr.eqns[:1], outvars=closed.jaxpr.eqns[0].outvars),
        closed.consts,
    )
    np.testing.assert_allclose(jaxpr_as_fun(halved)(X)[0], np.tanh(X), rtol=1e-6)
    x, c = Var(weft.typeof(1.0)), Var(weft.typeof(1.0))
    with pytest.raises(TypeError, match="has 1 constant, got 0"):
        ClosedJaxpr(Jaxpr([c], [x], [x], []), [])
    with pytest.raises(ValueError, match="there is no field 'equations'"):
        closed.jaxpr.replace(equations=[])


@needs_pages
def test_the_page_runs():
    state: dict = {}
    exec("\n".join(blocks("extending.md")), state)
    np.testing.assert_allclose(state["slopes"], 1 / (1 + np.exp(-np.linspace(-1, 1, 4))), rtol=1e-5)
    np.testing.assert_allclose([state["y"], state["z"]], [2 * np.sin(1), np.sin(1)], rtol=1e-6)


def test_rules_are_given_numbers_with_types():
    """A number among the operands stays a number, with the shape and dtype that rules need."""
    p, seen = Primitive("asked"), []

    @p.def_impl
    def impl(x):
        seen.append((isinstance(x, float), x.shape, x.dtype.name, x + 1))
        return x

    p.bind(2.0)
    assert seen == [(True, (), "float32", 3.0)]
    f = weft.custom_vjp(lambda x: x * 2)
    f.defvjp(
        lambda x: (f(x), wnp.zeros((2, *x.shape), x.dtype)), lambda zeros, ct: (ct * zeros.size,)
    )
    assert weft.grad(f)(1.0) == weft.jit(weft.grad(f))(1.0) == 2.0
    program = weft.make_jaxpr(lambda x: f(2.0) + x)(1.0)
    assert not program.consts  # it stays a literal


def test_calls_that_programs_do_not_show_are_operations_too():
    from weft.extend.core import primitives

    for p in (primitives.call_p, primitives.closed_call_p):
        assert (
            isinstance(p, CallPrimitive)
            and weft.jit(lambda x, p=p: p.bind(wrap_init(lambda x: [x + 1]), x)[0])(1.0) == 2.0
        )
        assert (
            weft.grad(lambda x, p=p: p.bind(x, subfuns=(wrap_init(lambda x: [x * 3]),))[0])(1.0)
            == 3.0
        )


def test_every_operation_of_stablehlo_is_one_of_lax():
    assert all(
        callable(getattr(lax, name))
        for table in (stablehlo_ops._LAX, stablehlo_ops._BUILDERS)
        for name in table.values()
    )
    assert (
        stablehlo_ops.ComplexOp(stablehlo_ops.real(2.0 + 1.0j), stablehlo_ops.LogisticOp(0.0))
        .results[0]
        .item()
        == 2 + 0.5j
    )


def test_a_missing_rule_is_an_error_of_that_very_class():
    p = Primitive("without_rules")
    p.def_abstract_eval(lambda x: x)
    for transformed in (weft.jit(p.bind), weft.grad(p.bind), weft.vmap(p.bind)):
        with pytest.raises(NotImplementedError) as caught:
            transformed(X)
        assert type(caught.value) is NotImplementedError


@pytest.mark.parametrize("several", [False, True])
def test_type_rules_return_a_type_or_a_sequence(several):
    p = Primitive("odd")
    p.multiple_results = several
    p.def_abstract_eval((lambda x: x) if several else (lambda x: [x]))
    with pytest.raises(
        ValueError, match=r"odd.abstract_eval\(\) method should return a tuple or a list"
    ):
        weft.jit(lambda x: p.bind(x))(1.0)


def test_derivative_rules_map_functions_with_symbolic_zeros():
    """Libraries batch a primitive by one that maps its rules: tangents that are symbolic zeros leave `vmap` as such, with its dim."""
    both_p = Primitive("both_of_test")
    both_p.multiple_results = True
    seen = []

    def impl(x, y):
        return [x * 2.0, y * 3.0]

    def jvp(primals, tangents):
        one = lambda x, y, t: ([x * 2.0, y * 3.0], [t * 2.0, ad.Zero(weft.typeof(y))])
        out, tangents_out = weft.vmap(
            one, in_axes=(0, 0, 0), out_axes=(0, 1 if primals[1].ndim > 1 else 0)
        )(*primals, tangents[0])
        seen.append(tangents_out[1])
        return out, tangents_out

    both_p.def_impl(impl)
    both_p.def_abstract_eval(lambda x, y: [x, y])
    ad.primitive_jvps[both_p] = jvp
    x, y = wnp.ones((3,)), wnp.ones((3,))
    out, tangents = weft.jvp(lambda x: both_p.bind(x, y), (x,), (x,))
    assert [t.tolist() for t in tangents] == [[2.0] * 3, [0.0] * 3] and [
        o.tolist() for o in out
    ] == [[2.0] * 3, [3.0] * 3]
    assert type(seen[0]) is ad.Zero and seen[0].aval.shape == (3,)
    placed = weft.vmap(lambda x: ad.Zero(weft.typeof(wnp.ones((4, 5)))), out_axes=1)(x)
    assert type(placed) is ad.Zero and placed.aval.shape == (4, 3, 5)
