"""`shard_map` over some axes of a mesh, and nested."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.api.shard_map.cases import X, collectives
from weft import lax
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P, get_abstract_mesh, make_mesh


def test_automatic_axes_split_blocks_further(mesh):
    w = np.arange(48, dtype=np.float32).reshape(8, 6)
    placed = weft.device_put(w, NamedSharding(mesh, P("i", "j")))
    mapped = weft.shard_map(
        lambda x: lax.psum(wnp.sin(x), "i"),
        mesh=mesh,
        in_specs=P("i"),
        out_specs=P(),
        axis_names={"i"},
    )
    out = weft.jit(mapped)(placed)
    np.testing.assert_allclose(out, np.sin(w).reshape(4, 2, 6).sum(0), rtol=1e-5)
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, P(None, "j")), 2)
    assert collectives(mapped, placed) == [("psum", ("i",), 2 * 24 * 3 // 4, 1)]


def test_the_compiler_reduces_over_automatic_axes(mesh):
    w = np.arange(48, dtype=np.float32).reshape(8, 6)
    placed = weft.device_put(w, NamedSharding(mesh, P("i", "j")))
    mapped = weft.shard_map(
        lambda x: lax.psum(x @ x.T, "i"),
        mesh=mesh,
        in_specs=P("i"),
        out_specs=P(),
        axis_names={"i"},
    )
    np.testing.assert_allclose(
        weft.jit(mapped)(placed), sum(w[k : k + 2] @ w[k : k + 2].T for k in range(0, 8, 2))
    )
    assert [c[:2] for c in collectives(mapped, placed)] == [("psum", ("j",)), ("psum", ("i",))]


def test_auto_is_the_older_name(mesh, mode):
    older = weft.shard_map(lambda x: lax.psum(x, "i"), mesh, P("i"), P(), auto=frozenset({"j"}))
    np.testing.assert_array_equal(mode(older)(X), X.reshape(4, 2).sum(0))


def test_nested_maps(mesh, mode):
    def outer(x):
        assert get_abstract_mesh().manual_axes == ("i",)
        inner = weft.shard_map(
            lambda y: y * 10 ** lax.axis_index("j") + lax.psum(y, "j"),
            in_specs=P("j"),
            out_specs=P("j"),
        )
        return inner(x) + lax.axis_index("i")

    mapped = weft.shard_map(outer, mesh=mesh, in_specs=P("i"), out_specs=P("i"), axis_names={"i"})
    pairs = X.reshape(4, 2)
    expected = (pairs * [1, 10] + pairs.sum(1, keepdims=True) + np.arange(4)[:, None]).ravel()
    np.testing.assert_array_equal(mode(mapped)(X), expected)
    np.testing.assert_allclose(
        mode(weft.grad(lambda x: (mapped(x) ** 2).sum()))(X),
        (
            2 * expected.reshape(4, 2) * [1, 10]
            + (2 * expected.reshape(4, 2)).sum(1, keepdims=True)
        ).ravel(),
    )


@pytest.mark.parametrize(
    "choose",
    [
        lambda j: lax.cond(True, lambda k: k * 2, lambda k: k + 1, j),
        lambda j: lax.switch(j, [lambda k: k + 5, lambda k: k * 2], j),
        lambda j: np.int32(10) ** j,
    ],
    ids=["cond", "switch", "power"],
)
def test_branches_in_nested_maps(mesh, mode, choose):
    """Branches read values that vary over the axes of the inner map only."""
    inner = weft.shard_map(
        lambda y: y + choose(lax.axis_index("j")), in_specs=P("j"), out_specs=P("j")
    )
    mapped = weft.shard_map(
        lambda x: inner(x), mesh=mesh, in_specs=P("i"), out_specs=P("i"), axis_names={"i"}
    )
    np.testing.assert_array_equal(
        mode(mapped)(X), X + np.tile([int(choose(np.int32(j))) for j in (0, 1)], 4)
    )


def test_inside_automatic_code(mesh):
    """Operands are resharded to the specs, with a record of the cause; other shardings are
    propagated."""
    placed = weft.device_put(
        np.arange(64, dtype=np.float32).reshape(8, 8), NamedSharding(mesh, P(None, "i"))
    )
    mapped = weft.shard_map(lambda x: x.sum(1), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    f = lambda x: mapped(x * 2) + 1
    np.testing.assert_array_equal(weft.jit(f)(placed), np.asarray(placed).sum(1) * 2 + 1)
    (record,) = weft.jit(f).lower(placed).compile().runtime_executable().stages.collectives
    assert record.kind == "all_to_all" and "shard_map" in record.reason


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_block_types_can_omit_axes_of_one_device(mode, kind):
    mesh = make_mesh((4, 1), ("i", "j"), devices=weft.devices()[:4], axis_types=(kind, kind))
    seen = []

    def f(x):
        seen.append(
            [
                set(v.mat.varying)
                for v in (
                    x,
                    lax.psum(x, "i"),
                    lax.psum(x, ("i", "j")),
                    x + lax.axis_index("j"),
                    lax.pcast(wnp.ones(2), ("i", "j"), to="varying"),
                )
            ]
        )
        return lax.psum(x * lax.axis_size("j") + lax.axis_index("j"), "i")

    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    mapped = lambda: mode(weft.shard_map(f, mesh=mesh, in_specs=P("i", "j"), out_specs=P()))(x)
    with pytest.raises(ValueError, match="require replication"):
        mapped()
    with weft.remove_size_one_mesh_axis_from_type(True):
        np.testing.assert_array_equal(mapped(), x.reshape(4, 2, 2).sum(0))
        g = weft.grad(
            lambda x: (
                weft.shard_map(f, mesh=mesh, in_specs=P("i", "j"), out_specs=P("j"))(x) ** 2
            ).sum()
        )(x)
        np.testing.assert_array_equal(g, np.tile(2 * x.reshape(4, 2, 2).sum(0), (4, 1)))
    assert seen[0] == [{"i", "j"}, {"j"}, set(), {"i", "j"}, {"i", "j"}] and all(
        s == [{"i"}, set(), set(), {"i"}, {"i"}] for s in seen[1:]
    )


def test_casts_over_axes_of_one_device_are_nothing_where_asked():
    with weft.set_mesh(
        make_mesh((1,), ("i",), devices=weft.devices()[:1], axis_types=(AxisType.Explicit,))
    ):
        with pytest.raises(NameError):
            lax.pcast(X, "i", to="varying")
        with weft.remove_size_one_mesh_axis_from_type(True):
            for to in ("varying", "reduced", "unreduced"):
                np.testing.assert_array_equal(lax.pcast(X, "i", to=to), X)
