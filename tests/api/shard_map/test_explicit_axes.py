"""`shard_map` over manual axes of meshes that also have explicit axes."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.api.shard_map.cases import collectives
from weft import lax
from weft.errors import ShardingTypeError
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P, make_mesh


@pytest.fixture
def explicit():
    with weft.set_mesh(
        make_mesh(
            (2, 2), ("i", "j"), devices=weft.devices()[:4], axis_types=(AxisType.Explicit,) * 2
        )
    ) as mesh:
        yield mesh


@pytest.mark.parametrize(
    "axis, spec, block", [("i", P("i"), P(None, "j")), ("j", P(None, "j"), P("i", None))]
)
def test_types_of_blocks_keep_explicit_axes(explicit, mode, axis, spec, block):
    whole = np.arange(32, dtype=np.float32).reshape(8, 4)

    def f(x):
        kind = weft.typeof(x)
        assert (
            kind.sharding.spec == block
            and kind.sharding.mesh.manual_axes == (axis,)
            and kind.vma == {axis}
        )
        y = wnp.sin(x) * x + lax.psum(x, axis)
        assert weft.typeof(y).sharding.spec == block and weft.typeof(y.T).sharding.spec == P(
            *block[::-1]
        )
        return y

    mapped = weft.shard_map(f, out_specs=spec, axis_names={axis})
    x = weft.device_put(whole, P("i", "j"))
    out = mode(mapped)(x)
    assert out.sharding == NamedSharding(explicit, P("i", "j")) and weft.typeof(
        out
    ).sharding.spec == P("i", "j")
    halves = np.stack(np.split(whole, 2, 0 if axis == "i" else 1)).sum(0)
    np.testing.assert_allclose(
        out, np.sin(whole) * whole + np.tile(halves, (2, 1) if axis == "i" else (1, 2)), rtol=1e-6
    )

    loss = lambda x: (mapped(x) ** 2).sum()
    slope, step = mode(weft.grad(loss))(x), 1e-2
    assert slope.sharding == x.sharding
    at = np.zeros_like(whole)
    at[3, 2] = step
    move = lambda sign: float(loss(weft.device_put(whole + sign * at, P("i", "j"))))
    np.testing.assert_allclose(
        np.asarray(slope)[3, 2], (move(1) - move(-1)) / (2 * step), rtol=5e-3
    )


TRANSFORMED = {
    "vmap of a whole dim": lambda f: weft.vmap(f, in_axes=2, out_axes=1),
    "second derivative": lambda f: weft.grad(
        lambda x: (weft.grad(lambda x: (f(x) ** 3).sum())(x) ** 2).sum()
    ),
    "jvp": lambda f: lambda x: weft.jvp(f, (x,), (x * 2,)),
    "linearize": lambda f: lambda x: weft.linearize(f, x)[1](x),
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (f(c), c.sum()), x, length=3),
    "checkpoint": lambda f: weft.grad(lambda x: weft.checkpoint(f)(x).sum()),
}


@pytest.mark.parametrize("how", TRANSFORMED)
@pytest.mark.parametrize("axis, spec", [("i", P("i")), ("j", P(None, "j"))])
def test_transformations_of_blocks_with_explicit_axes(mode, how, axis, spec):
    """Results with explicit axes equal those with automatic axes."""
    whole = np.linspace(-1, 1, 96, dtype=np.float32).reshape(8, 4, 3)
    shape, layout = (
        (whole, P("i", "j", None)) if how.startswith("vmap") else (whole[..., 0], P("i", "j"))
    )
    results = []
    for kind in (AxisType.Auto, AxisType.Explicit):
        with weft.set_mesh(
            make_mesh((2, 2), ("i", "j"), devices=weft.devices()[:4], axis_types=(kind,) * 2)
        ) as mesh:
            f = weft.shard_map(
                lambda x: wnp.sin(x) * x + lax.pmean(x, axis),
                in_specs=spec,
                out_specs=spec,
                axis_names={axis},
            )
            results.append(
                mode(TRANSFORMED[how](f))(weft.device_put(shape, NamedSharding(mesh, layout)))
            )
    for automatic, explicit in zip(*map(weft.tree.leaves, results)):
        np.testing.assert_allclose(automatic, explicit, rtol=2e-5, atol=1e-5)


def test_a_mapped_dim_beside_collectives_over_its_axis(explicit, mode):
    f = weft.shard_map(lambda x: lax.psum(x, "i"), in_specs=P(), out_specs=P(), axis_names={"i"})
    out = mode(weft.vmap(f))(weft.device_put(np.arange(16).reshape(2, 8), P("i", "j")))
    np.testing.assert_array_equal(out, 2 * np.arange(16).reshape(2, 8))


def test_sums_over_explicit_axes_in_blocks(explicit, mode):
    """The compiler adds one sum over `j`, of the results of the devices."""
    a, b = (
        np.arange(32, dtype=np.float32).reshape(8, 4),
        np.arange(12, dtype=np.float32).reshape(4, 3),
    )

    def f(a, b):
        y = wnp.dot(a, b, out_sharding=P(None, None))
        assert weft.typeof(y).sharding.spec == P(None, None)
        return y

    mapped = weft.shard_map(f, in_specs=(P("i"), P()), out_specs=P("i"), axis_names={"i"})
    args = weft.device_put(a, P("i", "j")), weft.device_put(b, P("j", None))
    np.testing.assert_allclose(mode(mapped)(*args), a @ b)
    assert collectives(mapped, *args) == [("psum", ("j",), 4 * 3 * 4, 1)]


def test_blocks_that_disagree_on_an_explicit_axis(explicit):
    f = weft.shard_map(
        lambda x, y: x + y,
        in_specs=(P(None, "i"), P(None, "i")),
        out_specs=P(None, "i"),
        axis_names={"i"},
    )
    x, y = (
        weft.device_put(np.ones((4, 4, 4), np.float32), spec)
        for spec in (P("j", "i"), P(None, "i", "j"))
    )
    for call in (f, weft.jit(f)):
        with pytest.raises(ShardingTypeError, match="split by 'j'"):
            call(x, y)


def test_an_explicit_axis_beside_a_manual_automatic_one(mode):
    with weft.set_mesh(
        make_mesh(
            (2, 2),
            ("i", "j"),
            devices=weft.devices()[:4],
            axis_types=(AxisType.Explicit, AxisType.Auto),
        )
    ) as mesh:
        out = mode(weft.smap(lambda x: x * 2, in_axes=0, out_axes=0, axis_name="j"))(
            weft.device_put(np.arange(4), P("j"))
        )
        assert out.sharding == NamedSharding(mesh, P("j")) and out.tolist() == [0, 2, 4, 6]
