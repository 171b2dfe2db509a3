"""Refused layouts: specs that are too long, name axes that are not explicit, or have no mesh; also
in older API versions."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util.config import Override
from weft.compat.older import pjit
from weft.lax import with_sharding_constraint
from weft.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    SingleDeviceSharding,
    auto_axes,
    reshard,
    use_mesh,
)

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
X, SQUARE = np.arange(8, dtype=np.float32), np.ones((8, 8), np.float32)


def mesh_of(*kinds):
    """Return a mesh with axes of these types over devices that no other test uses for a mesh without axis types."""
    return Mesh(np.array(weft.devices()[2:6]).reshape(2, 2), ("x", "y"), axis_types=kinds)


automatic, explicit, mixed = (
    mesh_of(AUTO, AUTO),
    mesh_of(EXPLICIT, EXPLICIT),
    mesh_of(EXPLICIT, AUTO),
)


@pytest.fixture
def today():
    with Override(jax_api="0.10"):
        yield


@pytest.mark.parametrize("spec", [P(None, None), P("x", None)], ids=str)
@pytest.mark.parametrize("mesh", [automatic, explicit], ids=["automatic", "explicit"])
def test_a_spec_has_no_more_entries_than_the_value_has_dims(mesh, spec):
    layout = NamedSharding(mesh, spec)
    for place in (
        lambda x: weft.device_put(x, layout),
        weft.jit(lambda x: weft.device_put(x, layout)),
        lambda x: weft.device_put([x, SQUARE], layout),
        lambda x: wnp.asarray(x, device=layout),
        lambda x: with_sharding_constraint(x, layout),
        weft.jit(lambda x: with_sharding_constraint(x, layout)),
        weft.jit(lambda x: x, in_shardings=layout),
        weft.jit(lambda x: x, out_shardings=layout),
        weft.jit(lambda x: x, in_shardings=layout).lower,
        lambda x: weft.vmap(weft.jit(lambda x: x, in_shardings=(layout,)))(SQUARE),
        lambda x: weft.make_array_from_process_local_data(layout, x),
    ):
        with pytest.raises(
            ValueError,
            match=r"only valid for values of rank at least 2, but was applied to a value of rank 1",
        ):
            place(X)
    assert layout.shard_shape((8,)) == ((4,) if spec.axes else (8,))  # `shard_shape` needs no value


def test_reshard_leaves_entries_out_that_split_nothing():
    with weft.set_mesh(explicit):
        assert (
            reshard(X, P("x", None)).sharding.spec
            == weft.jit(lambda x: reshard(x, P("x", None)))(X).sharding.spec
            == P("x")
        )
        assert (
            reshard(
                X, NamedSharding(explicit, P("x"), memory_kind="pinned_host")
            ).sharding.memory_kind
            == "device"
        )


def test_keyword_arguments_are_refused_beside_in_shardings():
    rows = NamedSharding(automatic, P("x"))
    f = weft.jit(lambda x, n=1: x * n, in_shardings=rows, static_argnames="n")
    assert f(X).sharding == rows
    for call in (
        lambda: f(x=X),
        lambda: f(X, n=2),
        lambda: f.lower(x=X),
        lambda: f.eval_shape(x=X),
        lambda: weft.jit(lambda x: f(x=x))(X),
    ):
        with pytest.raises(
            ValueError, match=r"in_shardings cannot be given for keyword arguments.*\['[xn]'\]"
        ):
            call()
    np.testing.assert_array_equal(
        weft.jit(lambda x: x, in_shardings=None, out_shardings=rows)(x=X), X
    )


OUT_SHARDINGS = {
    "reshard": lambda s: reshard(wnp.asarray(X), s),
    "einsum": lambda s: wnp.einsum("ij,jk->ik", SQUARE, SQUARE, out_sharding=s),
    "matmul": lambda s: wnp.matmul(SQUARE, SQUARE, out_sharding=s),
    "zeros": lambda s: wnp.zeros((8, 2), out_sharding=s),
    "array": lambda s: wnp.array(X, out_sharding=s),
    "arange": lambda s: wnp.arange(8, out_sharding=s),
    "reshape": lambda s: wnp.reshape(SQUARE, 64, out_sharding=s),
    "iota": lambda s: weft.lax.broadcasted_iota(np.int32, (8, 8), 0, out_sharding=s),
    "get": lambda s: wnp.asarray(X).at[np.array([0, 1])].get(out_sharding=s),
    "normal": lambda s: weft.random.normal(weft.random.key(0), (8,), out_sharding=s),
}


@pytest.mark.parametrize("name", OUT_SHARDINGS)
def test_out_shardings_name_explicit_axes_of_a_mesh_in_context(name):
    make = OUT_SHARDINGS[name]
    for run in (make, lambda s: weft.jit(lambda: make(s))()):
        with pytest.raises(ValueError, match=r"there is none"):
            run(P("x"))
        with Override(jax_api="0.10"), explicit, pytest.raises(ValueError, match=r"there is none"):
            run(P("x"))
        for mesh, spec, axis in (
            (automatic, P("x"), "x"),
            (mixed, P("y"), "y"),
            (mixed, P(("x", "y")), "y"),
        ):
            refused = pytest.raises(
                ValueError,
                match=f"cannot contain axis names that are of type Auto or Manual.*'{axis}' is of type A",
            )
            with weft.set_mesh(mesh), refused:
                run(spec)
            with refused:
                run(NamedSharding(mesh, spec))
        with weft.set_mesh(mixed):
            result = run(P("x"))
            assert result.sharding.mesh == mixed
            assert result.sharding.spec.of_rank(result.ndim) == P("x").of_rank(result.ndim)
        out = run(NamedSharding(explicit, P("x"), memory_kind="pinned_host"))
        assert out.sharding.is_equivalent_to(NamedSharding(explicit, P("x")), out.ndim)
        with pytest.raises(ValueError, match="a sharding with a memory_kind is not allowed"):
            run(NamedSharding(explicit.abstract_mesh, P("x"), memory_kind="pinned_host"))


@pytest.mark.parametrize("name", OUT_SHARDINGS)
def test_axes_without_a_declared_type_are_laid_out(name):
    mesh, make = weft.make_mesh((2,), ("x",), devices=weft.devices()[4:6]), OUT_SHARDINGS[name]
    assert mesh.axis_types == (AUTO,)
    for context in (weft.set_mesh(mesh), mesh):
        with context:
            assert (
                make(P("x")).sharding.spec
                == weft.jit(lambda: make(P("x")))().sharding.spec
                == P("x")
            )
    with Override(jax_api="0.10"):
        assert weft.make_mesh((2,), ("x",), devices=weft.devices()[4:6]).axis_types == (EXPLICIT,)


def test_manual_axes_are_refused():
    with weft.set_mesh(explicit):
        for inside in (
            lambda x: reshard(x, P("x")),
            lambda x: wnp.matmul(x, x, out_sharding=P("x")),
        ):
            with pytest.raises(ValueError, match="'x' is of type Manual"):
                weft.shard_map(inside, in_specs=P(), out_specs=P())(SQUARE)


def test_reshard_and_related_functions_take_no_none():
    with weft.set_mesh(explicit):
        for call in (
            lambda: reshard(X, None),
            lambda: reshard((X, X), (P("x"), None)),
            lambda: auto_axes(lambda x: (x, x), out_sharding=(P("x"), None))(X),
        ):
            with pytest.raises(ValueError, match="non-None"):
                call()


def test_with_mesh_alone_does_not_resolve_specs(today):
    f = weft.jit(lambda x: x * 2, in_shardings=P("x"))
    with automatic:
        with pytest.raises(
            RuntimeError, match=r"requires a non-empty mesh in context.*which `with mesh:` does not"
        ):
            f(X)
        with pytest.raises(RuntimeError, match=r"requires a non-empty mesh"):
            weft.jit(lambda x: x * 2, out_shardings=P("x"))(X)
        with pytest.raises(ValueError, match=r"requires a non-empty mesh"):
            weft.device_put(X, P("x"))
        assert weft.jit(lambda x: with_sharding_constraint(x, P("x")))(X).sharding.spec == P("x")
        assert pjit(lambda x: x * 2, in_shardings=P("x"))(X).sharding.spec == P("x")
        with weft.set_mesh(automatic):
            assert f(X).sharding.spec == P("x")
    with automatic, pytest.raises(RuntimeError, match=r"requires a non-empty mesh"):
        f(X)
    with weft.set_mesh(automatic), explicit:
        assert f(X).sharding == NamedSharding(automatic, P("x"))
    other = Mesh(automatic.devices[::-1], ("x", "y"))
    with weft.set_mesh(other), explicit:
        assert f(X).sharding == NamedSharding(other, P("x"))


def test_a_mesh_entered_by_with_gives_specs_a_meaning_by_default():
    with automatic:
        assert weft.jit(lambda x: x * 2, in_shardings=P("x"), out_shardings=P("x"))(
            X
        ).sharding.spec == P("x")
        assert weft.device_put(X, P("x")).sharding.spec == P("x")


def test_no_program_runs_on_a_mesh_without_devices():
    with use_mesh(automatic.abstract_mesh):
        f = weft.jit(lambda x: x * 2, in_shardings=P("x"))
        assert "sharding" in f.lower(X).as_text()
        with pytest.raises(
            RuntimeError, match=r"argument x.*without devices.*set_mesh|mesh without devices"
        ):
            f(X)


def test_constraints_name_auto_axes_in_mixed_contexts(today):
    rows = weft.device_put(X, NamedSharding(mixed, P("x")))
    for mesh, spec, x in (
        (None, NamedSharding(explicit, P("x")), X),
        (None, NamedSharding(explicit, P("y")), rows),
        (mixed, P("x"), rows),
        (mixed, P(("x", "y")), rows),
    ):
        for place in (
            with_sharding_constraint,
            weft.jit(with_sharding_constraint, static_argnums=1),
        ):
            with use_mesh(mesh), pytest.raises(ValueError, match="can only refer to Auto axes"):
                place(x, spec)
    with weft.set_mesh(mixed):
        assert with_sharding_constraint(rows, P("y")).sharding.spec == P(("x", "y"))
    with weft.set_mesh(explicit):
        assert with_sharding_constraint(weft.device_put(X, P("x")), P("x")).sharding.spec == P("x")


def test_shard_map_result_specs_have_the_length_of_the_rank(today):
    with (
        weft.set_mesh(automatic),
        pytest.raises(ValueError, match="out_specs entry for result is too long"),
    ):
        weft.shard_map(lambda x: x, in_specs=P("x"), out_specs=P("x", None))(X)
    with Override(jax_api=None), weft.set_mesh(automatic):
        assert weft.shard_map(lambda x: x, in_specs=P("x"), out_specs=P("x", None))(
            X
        ).sharding.spec == P("x")


def test_shardings_without_explicit_axes_are_ignored():
    """Libraries pass on `typeof(x).sharding`, which has a mesh without axes."""
    none = weft.typeof(wnp.ones((2, 4))).sharding
    key = weft.random.key(0)
    for make in (
        lambda: weft.random.bernoulli(key, 0.5, (2, 4), out_sharding=none),
        lambda: wnp.zeros((2, 4), out_sharding=none),
        lambda: wnp.array(SQUARE[:2, :4], out_sharding=none),
        lambda: wnp.arange(8, out_sharding=none).reshape(2, 4),
        lambda: wnp.ones(8).reshape(2, 4, out_sharding=none),
        lambda: lax.full((2, 4), 1.0, sharding=none),
    ):
        for out in (make(), weft.jit(make)()):
            assert out.shape == (2, 4) and len(out.devices()) == 1


def test_full_is_placed_over_automatic_axes():
    layout = NamedSharding(automatic, P("x"))
    for make in (
        lambda: lax.full((8,), 1.0, sharding=layout),
        lambda: lax.full_like(X, 1, sharding=layout),
    ):
        assert make().sharding == layout and weft.jit(make)().sharding.is_equivalent_to(layout, 1)
    alone = SingleDeviceSharding(weft.devices()[3])
    assert lax.full((8,), 1.0, sharding=alone).sharding == alone
