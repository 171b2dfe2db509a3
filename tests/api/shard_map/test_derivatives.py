"""`shard_map`: derivatives and their communication, `vmap`, random keys."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.api.shard_map.cases import X, collectives
from weft import lax
from weft._engine.core.interpret import run_reference
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P, make_mesh


def test_a_replicated_parameter_is_reduced_once(mesh):
    def loss(x, w):
        return lax.psum(wnp.sum((x * w) ** 2 * w), "i")

    mapped = weft.shard_map(loss, mesh=mesh, in_specs=(P("i"), P()), out_specs=P())
    grads = weft.grad(mapped, 1)
    np.testing.assert_allclose(
        weft.jit(grads)(X, X[:2] + 1),
        ((3 * (X[:2] + 1) ** 2) * (X.reshape(4, 2) ** 2)).sum(0),
        rtol=1e-5,
    )
    assert [c[:2] for c in collectives(grads, X, X[:2] + 1)] == [("psum", ("i",))]


def test_gathered_parameters_scatter_their_gradients(mesh):
    mapped = weft.shard_map(
        lambda w, x: lax.psum(((x @ lax.all_gather(w, "i", tiled=True)) ** 2).sum(), "i"),
        mesh=mesh,
        in_specs=(P("i"), P("i")),
        out_specs=P(),
    )
    w, x = np.ones((8, 4), np.float32), np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    grads = weft.grad(mapped)
    np.testing.assert_allclose(weft.jit(grads)(w, x), 2 * x.T @ (x @ w), rtol=1e-5)
    assert [c[0] for c in collectives(grads, w, x)] == ["all_gather", "reduce_scatter"]


def test_gradients_inside(mesh, mode):
    inner = lambda x, w: weft.grad(lambda w: lax.psum((x * w).sum() ** 2, "i"))(w)
    mapped = weft.shard_map(inner, mesh=mesh, in_specs=(P("i"), P()), out_specs=P())
    blocks = X.reshape(4, 2)
    np.testing.assert_allclose(
        mode(mapped)(X, X[:2]), (2 * (blocks @ X[:2])[:, None] * blocks).sum(0)
    )


@weft.custom_vjp
def scaled(x, w):
    return x * w


def test_cotangents_of_custom_rules_vary_as_their_arguments(mesh):
    def gradient(bwd):
        scaled.defvjp(lambda x, w: (x * w, (x, w)), bwd)
        f = weft.shard_map(
            lambda x, w: lax.psum(scaled(x, w).sum(), "i"),
            mesh=mesh,
            in_specs=(P("i"), P()),
            out_specs=P(),
        )
        return weft.grad(lambda w: f(X, w))(2.0)

    assert float(gradient(lambda r, g: (g * r[1], lax.psum((g * r[0]).sum(), "i")))) == X.sum()
    with pytest.raises(ValueError, match=r"return lax\.psum\(ct, \('i',\)\)"):
        gradient(lambda r, g: (g * r[1], (g * r[0]).sum()))


def test_second_derivatives(mesh):
    f = weft.shard_map(
        lambda x: lax.psum((x**3).sum(), "i"), mesh=mesh, in_specs=P("i"), out_specs=P()
    )
    np.testing.assert_allclose(weft.hessian(f)(X), np.diag(6 * X), rtol=1e-6)


def test_spreading_a_mapped_dim(mesh):
    mapped = weft.shard_map(
        lambda x, y: x * y + lax.psum(x, "j"), mesh=mesh, in_specs=(P("j"), P()), out_specs=P("j")
    )
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    spread = weft.vmap(mapped, in_axes=(0, None), spmd_axis_name="i")
    out = weft.jit(spread)(x, 2.0)
    np.testing.assert_array_equal(out, weft.vmap(mapped, in_axes=(0, None))(x, 2.0))
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, P("i", "j")), 2)
    with pytest.raises(ValueError, match="spmd_axis_name cannot appear in the specs"):
        weft.vmap(mapped, in_axes=(0, None), spmd_axis_name="j")(x, 2.0)


def test_gradients_under_a_spread_dim_without_the_check(mesh):
    """The adjoint sums over all axes that a spec omits, including the axis of the mapped dim, of
    which every device has the whole."""
    f = weft.shard_map(
        lambda x: lax.psum(wnp.sin(x).sum(), "j"),
        mesh=mesh,
        in_specs=P("j"),
        out_specs=P(),
        check_vma=False,
    )
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_allclose(weft.vmap(weft.grad(f), spmd_axis_name="i")(x), np.cos(x), rtol=1e-5)
    with pytest.raises(ValueError, match="divide the dim"):
        weft.vmap(f, spmd_axis_name="i")(x[:6])


def test_a_mapped_dim_that_types_split_stays_split(mode):
    mesh = make_mesh(
        (2, 2), ("i", "j"), devices=weft.devices()[:4], axis_types=(AxisType.Explicit,) * 2
    )
    with weft.set_mesh(mesh):
        x = weft.device_put(np.arange(16).reshape(2, 8), P("i", "j"))
        sums = mode(
            weft.vmap(weft.shard_map(lambda x: lax.psum(x, "j"), in_specs=P("j"), out_specs=P()))
        )(x)
        assert sums.sharding == NamedSharding(mesh, P("i", None)) and sums.tolist() == [
            [4, 6, 8, 10],
            [20, 22, 24, 26],
        ]
        over_i = mode(
            weft.vmap(weft.shard_map(lambda x: lax.psum(x, "i"), in_specs=P(), out_specs=P()))
        )(x)
        assert np.array_equal(
            over_i, 2 * np.arange(16).reshape(2, 8)
        )  # the axis is in use: the dim is whole inside


def test_collectives_over_a_mapped_axis_and_the_mesh(mesh, mode):
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    expected = x.sum(0).reshape(4, 2).sum(0)
    f = weft.shard_map(lambda x: lax.psum(x, ("b", "i")), mesh=mesh, in_specs=P("i"), out_specs=P())
    np.testing.assert_array_equal(mode(weft.vmap(f, axis_name="b"))(x), np.tile(expected, (3, 1)))
    inside = weft.shard_map(
        weft.vmap(lambda x: lax.psum(x, ("b", "i")), axis_name="b"),
        mesh=mesh,
        in_specs=P(None, "i"),
        out_specs=P(),
    )
    np.testing.assert_array_equal(mode(inside)(x), np.tile(expected, (3, 1)))


def test_the_reference_runs_device_after_device(mesh):
    f = weft.shard_map(
        lambda x, w: (lax.psum(x * w, "i"), x.sum(keepdims=True)),
        mesh=mesh,
        in_specs=(P(("j", "i")), P()),
        out_specs=(P("j"), P(("j", "i"))),
    )
    outs = run_reference(weft.make_jaxpr(f)(X, np.float32(3)), X, np.float32(3))
    for got, expected in zip(outs, f(X, np.float32(3)), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_random_keys_are_cut_too(mesh, mode):
    keys = weft.random.split(weft.random.key(0), 4)
    mapped = weft.shard_map(
        lambda k: weft.random.normal(k[0], (2,)), mesh=mesh, in_specs=P("i"), out_specs=P("i")
    )
    np.testing.assert_array_equal(
        mode(mapped)(keys), np.concatenate([weft.random.normal(k, (2,)) for k in keys])
    )


@pytest.mark.parametrize("make", [wnp.asarray, wnp.array])
def test_keys_that_all_devices_have_are_arrays(mesh, mode, make):
    mapped = weft.shard_map(
        lambda x: x + weft.random.normal(make(weft.random.key(0)), x.shape),
        mesh=mesh,
        in_specs=P("i"),
        out_specs=P("i"),
    )
    expected = X + np.tile(weft.random.normal(weft.random.key(0), (2,)), 4)
    np.testing.assert_allclose(mode(mapped)(X), expected, rtol=1e-6)
