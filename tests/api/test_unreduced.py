"""PartitionSpecs with unreduced and reduced axes: their meaning, and the programs that use them."""

import pickle

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.ir.types import ManualAxisType, ShapedArray
from weft._engine.util.config import Override
from weft.sharding import (
    AxisType,
    NamedSharding,
    PartitionSpec as P,
    PositionalSharding,
    UnreducedKind,
    reshard,
)

A, B = (
    np.arange(8.0, dtype=np.float32).reshape(2, 4),
    np.arange(24.0, dtype=np.float32).reshape(4, 6),
)


@pytest.fixture
def mesh():
    return weft.make_mesh((2,), ("x",), devices=weft.devices()[:2])


def test_specs_name_unreduced_and_reduced_axes():
    spec = P("a", None, unreduced={"b"}, reduced={"c"})
    assert (spec.unreduced, spec.reduced, spec.unreduced_kind, spec.partitions) == (
        {"b"},
        {"c"},
        UnreducedKind.sum,
        ("a", None),
    )
    assert repr(spec) == "P('a', None, unreduced={'b'}, reduced={'c'})" and spec != P(
        "a", unreduced={"b"}, reduced={"c"}
    )
    assert spec != P("a")
    assert (
        hash(spec) == hash(P(("a",), None, unreduced={"b"}, reduced={"c"}))
        and pickle.loads(pickle.dumps(spec)) == spec
    )
    assert spec.update(unreduced=set(), reduced=set()) == P("a", None) and P("a") + P(
        unreduced={"b"}
    ) == P("a", unreduced={"b"})
    assert (
        repr(P(unreduced={"b"}, unreduced_kind=UnreducedKind.max))
        == "P(unreduced={'b'}, unreduced_kind=max)"
    )
    for use, error, text in [
        (lambda: P("a", unreduced={"a"}), ValueError, "partitions cannot overlap with unreduced"),
        (
            lambda: P(("a", "b"), reduced={"b"}),
            ValueError,
            "partitions cannot overlap with reduced",
        ),
        (lambda: P(unreduced={"a"}, reduced={"a"}), ValueError, "cannot overlap"),
        (lambda: P(unreduced="a"), TypeError, "must be a set"),
        (lambda: P(unreduced={None}), ValueError, "cannot contain None"),
        (lambda: P(unreduced_kind=UnreducedKind.sum), ValueError, "needs unreduced axes"),
        (lambda: P(unreduced={"a"}, unreduced_kind="sum"), TypeError, "must be an UnreducedKind"),
        (lambda: (*spec,), ValueError, "cannot be used as a tuple"),
        (lambda: spec[0], ValueError, "spec.partitions"),
        (lambda: spec + ("d",), TypeError, "cannot be added"),
    ]:
        with pytest.raises(error, match=text):
            use()


@pytest.mark.parametrize("count", [1, 2])
def test_terms_are_summed_where_shardings_name_no_axes(count):
    devices = weft.devices()[:count]
    mesh = weft.make_mesh((count,), ("x",), axis_types=(AxisType.Explicit,), devices=devices)
    with weft.set_mesh(mesh):
        terms = weft.device_put(A, NamedSharding(mesh, P(None, unreduced={"x"})))
    for target in (devices[0], PositionalSharding(devices).reshape(count, 1)):
        moved = weft.device_put(terms, target)
        np.testing.assert_array_equal(np.asarray(moved), A)
        assert not moved.sharding.unreduced


def test_typed_values_take_shardings_without_axes():
    devices = weft.devices()[:2]
    typed = weft.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,), devices=devices)
    with weft.set_mesh(typed):
        x = weft.device_put(A, NamedSharding(typed, P("x")))
        placed = weft.jit(lambda x: weft.device_put(x, PositionalSharding(devices).reshape(2, 1)))
        np.testing.assert_array_equal(np.asarray(placed(x)), A)


def test_a_sum_that_is_left_open_is_a_value(mesh):
    explicit = weft.make_mesh(
        (2,), ("x",), devices=weft.devices()[:2], axis_types=(AxisType.Explicit,)
    )
    with weft.set_mesh(explicit):
        a, b = weft.device_put(A, P(None, "x")), weft.device_put(B, P("x", None))

        @weft.jit
        def f(a, b):
            terms = wnp.einsum("ab,bc->ac", a, b, out_sharding=P(unreduced={"x"}))
            return reshard(terms + terms, P())

        assert np.allclose(f(a, b), 2 * A @ B)
        slopes = weft.jit(weft.grad(lambda a, b: f(a, b).sum(), (0, 1)))(a, b)
        assert np.allclose(slopes[0], 2 * np.ones((2, 6)) @ B.T) and slopes[
            0
        ].sharding.is_equivalent_to(a.sharding, 2)
    with pytest.raises(ValueError, match=r"Unreduced axes.*nowhere.*not found in mesh"):
        NamedSharding(mesh, P(unreduced={"nowhere"}))
    with pytest.raises(
        ValueError, match="Unreduced axes can only refer to mesh axes of type Explicit"
    ):
        NamedSharding(
            mesh.update(axis_types=(AxisType.Auto,) * len(mesh.axis_names)),
            P(unreduced={mesh.axis_names[0]}),
        )


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("check", [True, False])
def test_shard_map_gives_and_takes_terms_of_sums(mesh, wrap, check):
    mapped = lambda f, i, o: wrap(
        weft.shard_map(f, mesh=mesh, in_specs=i, out_specs=o, check_vma=check)
    )
    terms = mapped(lambda a, b: a @ b, (P(None, "x"), P("x", None)), P(unreduced={"x"}))
    assert np.allclose(terms(A, B), A @ B)
    total = mapped(lambda z: lax.psum(z, "x"), P(unreduced={"x"}), P())
    scattered = mapped(lambda z: lax.psum_scatter(z, "x", tiled=True), P(unreduced={"x"}), P("x"))
    for finish in (total, scattered):
        assert np.allclose(finish(terms(A, B)), A @ B)
        slope = weft.grad(lambda a, b, finish=finish: (finish(terms(a, b)) * 2.0).sum(), (0, 1))(
            A, B
        )
        assert np.allclose(slope[0], 2 * np.ones((2, 6)) @ B.T) and np.allclose(
            slope[1], 2 * A.T @ np.ones((2, 6))
        )


def test_cotangents_of_reduced_values_are_summed_at_exit(mesh):
    """Data parallelism: the gradient of each device is a term, and one sum is computed at the end."""
    x = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    w = np.ones(3, np.float32)

    def step(w, x):
        slope = weft.grad(lambda w: ((x @ w) ** 2).sum())(w)
        assert weft.typeof(slope).vma == {"x"}  # a term: nothing was communicated
        return slope

    @weft.jit
    @weft.shard_map(mesh=mesh, in_specs=(P(reduced={"x"}), P("x")), out_specs=P(unreduced={"x"}))
    def gradient(w, x):
        return step(w, x)

    want = 2 * x.T @ (x @ w)
    assert np.allclose(gradient(w, x), want)
    assert "= psum" not in str(
        weft.make_jaxpr(gradient)(w, x)
    )  # results are terms; outside they are summed once
    assert [
        r.kind for r in gradient.lower(w, x).compile().runtime_executable().stages.collectives
    ] == ["psum"]
    cast = weft.shard_map(
        lambda w, x: step(lax.pcast(w, "x", to="reduced"), x),
        mesh=mesh,
        in_specs=(P(), P("x")),
        out_specs=P(unreduced={"x"}),
    )
    assert np.allclose(cast(w, x), want)
    gathered = weft.shard_map(
        lambda w: lax.all_gather(w, "x", tiled=True, to="reduced"),
        mesh=mesh,
        in_specs=P("x"),
        out_specs=P(reduced={"x"}),
    )
    assert np.array_equal(gathered(x), x) and np.allclose(
        weft.grad(lambda x: (gathered(x) ** 2).sum())(x), 2 * x
    )


def test_pcast_to_unreduced(mesh):
    once = weft.shard_map(
        lambda x: lax.psum(lax.pcast(x, "x", to="unreduced"), "x"),
        mesh=mesh,
        in_specs=P(),
        out_specs=P(),
    )
    assert np.array_equal(once(A), A) and np.array_equal(
        weft.grad(lambda x: once(x).sum())(A), np.ones_like(A)
    )
    terms = weft.shard_map(
        lambda x: lax.pcast(x, "x", to="unreduced"),
        mesh=mesh,
        in_specs=P("x"),
        out_specs=P(unreduced={"x"}),
    )
    assert np.array_equal(terms(A), A.sum(0, keepdims=True))
    with pytest.raises(ValueError, match="the same on all devices"):
        weft.shard_map(lambda x: x, mesh=mesh, in_specs=P(), out_specs=P(unreduced={"x"}))(A)
    with pytest.raises(ValueError, match="already varies"):
        weft.shard_map(
            lambda x: lax.pcast(x, "x", to="reduced"), mesh=mesh, in_specs=P("x"), out_specs=P("x")
        )(A)
    with pytest.raises(NotImplementedError, match="only sums"):
        weft.shard_map(
            lambda x: x,
            mesh=mesh,
            in_specs=P("x"),
            out_specs=P(unreduced={"x"}, unreduced_kind=UnreducedKind.max),
        )(A)
    with pytest.raises(ValueError, match="does not have"):
        weft.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=P(unreduced={"y"}))(A)


def test_types_inside_say_what_is_unreduced_and_reduced(mesh):
    seen = []

    def note(x):
        mat = weft.typeof(x).manual_axis_type
        seen.append((set(mat.varying), set(mat.unreduced), set(mat.reduced)))
        return x

    def f(t, r, v, one):
        note(t), note(r), note(v), note(one)  # unchanged
        (
            note(t * r),
            note(t + t),
            note(-t),
            note(t.sum()),
            note(3 * t),
            note(t * one),
            note(wnp.where(v > 0, t, t)),
        )
        note(wnp.sin(r)), note(r * one), note(r @ v)  # of equal copies
        (
            note(weft.jit(lambda t: t * 2)(t)),
            note(lax.scan(lambda c, _: (c * 2, None), t, None, 2)[0]),
            note(weft.vmap(lambda a: a * 2)(t)),
        )
        (
            note(lax.pcast(v, "x", to="unreduced")),
            note(lax.pcast(one, "x", to="unreduced")),
            note(lax.pcast(one, "x", to="reduced")),
        )
        (
            note(lax.pcast(r, "x", to="varying")),
            note(lax.all_gather(v, "x", to="reduced")),
            note(lax.psum(t, "x")),
        )
        note(lax.psum_scatter(t, "x", tiled=True))
        return t * r

    plain, v, u, r = (
        (set(),) * 3,
        ({"x"}, set(), set()),
        (set(), {"x"}, set()),
        (set(), set(), {"x"}),
    )
    specs = (P(unreduced={"x"}), P(reduced={"x"}), P("x"), P())
    for wrap in (weft.jit, lambda f: f):
        seen.clear()
        out = wrap(weft.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P(unreduced={"x"})))(
            *[np.ones((4, 4), np.float32)] * 2,
            np.ones((8, 4), np.float32),
            np.ones((4, 4), np.float32),
        )
        assert np.array_equal(out, np.ones((4, 4)))
        assert seen == [
            u,
            r,
            v,
            plain,
            u,
            u,
            u,
            u,
            u,
            u,
            u,
            r,
            r,
            v,
            u,
            u,
            u,
            u,
            u,
            r,
            v,
            r,
            plain,
            v,
        ]


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (
            lambda t, r, v: wnp.sin(t),
            NotImplementedError,
            "unreduced rule for sin is not implemented",
        ),
        (lambda t, r, v: t * t, ValueError, "more than one operand is unreduced"),
        (
            lambda t, r, v: t + v,
            ValueError,
            "operand 0 is unreduced over 'x', and operand 1 is not",
        ),
        (lambda t, r, v: t * v, ValueError, "varies over 'x', and another is unreduced"),
        (lambda t, r, v: t @ v, ValueError, "operands of a contraction cannot be unreduced"),
        (lambda t, r, v: r * v, ValueError, "split by 'x', over which another operand is reduced"),
    ],
    ids=["sin", "square", "sum", "product", "contraction", "reduced"],
)
def test_what_terms_and_reduced_values_do_not_meet(mesh, f, error, text):
    specs = (P(unreduced={"x"}), P(reduced={"x"}), P("x"))
    with pytest.raises(error, match=text):
        weft.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P("x"))(
            np.ones((4, 4)), np.ones((4, 4)), np.ones((8, 4))
        )


def test_unreduced_specs_are_inferred_with_dual_gradients():
    explicit = weft.make_mesh(
        (2,), ("x",), devices=weft.devices()[:2], axis_types=(AxisType.Explicit,)
    )
    with weft.set_mesh(explicit):
        t, r = (
            weft.device_put(wnp.arange(8.0), P(unreduced={"x"})),
            weft.device_put(wnp.arange(8.0) + 1, P(reduced={"x"})),
        )
        f = weft.jit(weft.shard_map(lambda t, r: (t * r).sum(), out_specs=P(unreduced={"x"})))
        slopes = weft.jit(weft.grad(lambda t, r: reshard(f(t, r), P()), (0, 1)))(t, r)
        assert slopes[0].sharding.spec == P(None, reduced={"x"}) and slopes[1].sharding.spec == P(
            None, unreduced={"x"}
        )
        assert np.allclose(slopes[0], r) and np.allclose(reshard(slopes[1], P()), np.arange(8.0))
        text = str(
            weft.make_jaxpr(
                weft.grad(
                    lambda r: weft.shard_map(
                        lambda r: lax.pcast(r, "x", to="reduced"),
                        in_specs=P(),
                        out_specs=P(reduced={"x"}),
                    )(r).sum()
                )
            )(wnp.ones(8))
        )
        assert "unreduced_psum" in text


def test_manual_axis_types_make_types():
    mat = ManualAxisType(frozenset("a"), frozenset("b"), frozenset("c"))
    aval = ShapedArray((2,), np.dtype(np.float32), manual_axis_type=mat)
    assert (
        aval.manual_axis_type == mat
        and aval.vma == mat.vur
        and pickle.loads(pickle.dumps(aval)) is aval
    )
    assert str(aval.str_short()) == "float32[2]{V:a, U:b, R:c}"
    assert aval.to_ct_aval().manual_axis_type == ManualAxisType(
        frozenset("a"), frozenset("c"), frozenset("b")
    )
    assert aval.update(vma=frozenset("a")).manual_axis_type == ManualAxisType(frozenset("a"))
    assert aval.update_manual_axis_type(ManualAxisType()) is ShapedArray((2,), np.dtype(np.float32))


def test_without_automatic_casts_operands_vary_alike(mesh):
    f = weft.shard_map(lambda x, y: x * y * 2, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    cast = weft.shard_map(
        lambda x, y: x * lax.pcast(y, "x", to="varying") * 2,
        mesh=mesh,
        in_specs=(P("x"), P()),
        out_specs=P("x"),
    )
    for wrap in (weft.jit, lambda f: f):
        with Override(auto_pcast=False):
            with pytest.raises(
                ValueError, match=r"mul: the operands vary over different manual axes(.|\n)*pcast"
            ):
                wrap(f)(np.ones(4), np.ones(2))
            assert np.array_equal(wrap(cast)(np.ones(4), np.ones(2)), 2 * np.ones(4))
        assert np.array_equal(wrap(f)(np.ones(4), np.ones(2)), 2 * np.ones(4))
