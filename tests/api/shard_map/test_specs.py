"""`shard_map`: signatures of all versions, meshes, trees of specs, values closed over."""

import functools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.api.shard_map.cases import X, collectives, identity
from weft import lax
from weft.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec as P, make_mesh


def total(x):
    return lax.psum(x.sum(), ("i", "j"))


SIGNATURES = {
    "today": lambda mesh: weft.shard_map(total, mesh=mesh, in_specs=P("i"), out_specs=P()),
    "older, by position": lambda mesh: weft.shard_map(total, mesh, P("i"), P()),
    "check_rep": lambda mesh: weft.shard_map(total, mesh, P("i"), P(), check_rep=False),
    "check_rep by position": lambda mesh: weft.shard_map(total, mesh, (P("i"),), P(), True),
    "check_vma": lambda mesh: weft.shard_map(
        total, mesh=mesh, in_specs=P("i"), out_specs=P(), check_vma=False
    ),
    "decorator": lambda mesh: weft.shard_map(mesh=mesh, in_specs=P("i"), out_specs=P())(total),
    "partial": lambda mesh: functools.partial(
        weft.shard_map, mesh=mesh, in_specs=P("i"), out_specs=P()
    )(total),
    "all axes named": lambda mesh: weft.shard_map(
        total, mesh=mesh, in_specs=P("i"), out_specs=P(), axis_names={"i", "j"}
    ),
    "no axis automatic": lambda mesh: weft.shard_map(total, mesh, P("i"), P(), auto=frozenset()),
    "list of specs": lambda mesh: weft.shard_map(
        total, mesh=mesh, in_specs=[P("i")], out_specs=P()
    ),
}


@pytest.mark.parametrize("how", SIGNATURES, ids=str)
def test_every_signature(mesh, mode, how):
    assert float(mode(SIGNATURES[how](mesh))(X)) == 2 * X.sum()


def test_the_mesh_of_the_context(mesh, mode):
    mapped = weft.shard_map(total, in_specs=P("i"), out_specs=P())
    with mesh:
        assert float(mode(mapped)(X)) == 2 * X.sum()
    abstract = weft.shard_map(
        total, mesh=AbstractMesh((4, 2), ("i", "j")), in_specs=P("i"), out_specs=P()
    )
    with mesh:
        assert float(mode(abstract)(X)) == 2 * X.sum()
    placed = weft.device_put(X, NamedSharding(mesh, P("i")))
    assert float(mode(abstract)(placed)) == 2 * X.sum()


def test_an_abstract_mesh_takes_the_devices_of_the_arguments(mode):
    mesh = make_mesh((2, 2), ("i", "j"), devices=weft.devices()[4:])
    placed = weft.device_put(X.reshape(4, 2), NamedSharding(mesh, P("i", "j")))
    numbered = weft.shard_map(
        lambda x: x + lax.axis_index("i"),
        mesh=mesh.abstract_mesh,
        in_specs=P("i"),
        out_specs=P("i"),
    )
    out = mode(lambda x: numbered(numbered(x)))(placed)
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, P("i")), 2)
    assert out.tolist() == [[0, 1], [2, 3], [6, 7], [8, 9]]
    grad = mode(weft.grad(lambda x: (numbered(x) ** 2).sum()))(placed)
    assert grad.sharding.device_set == placed.sharding.device_set and grad[3].tolist() == [14, 16]
    first, second = mode(
        weft.shard_map(
            lambda x, y: (x, y), mesh=mesh.abstract_mesh, in_specs=P("i"), out_specs=P("i")
        )
    )(X, placed)
    assert (
        first.sharding.device_set == second.sharding.device_set == placed.sharding.device_set
        and first.tolist() == X.tolist()
    )
    doubled = weft.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh.abstract_mesh, P("j")))(
        placed
    )
    assert doubled.sharding.is_equivalent_to(NamedSharding(mesh, P("j")), 2)


def test_specs_are_inferred_from_arguments(mesh):
    placed = weft.device_put(X, NamedSharding(mesh, P("j")))
    shapes = []
    mapped = weft.shard_map(lambda x: shapes.append(x.shape) or x, mesh=mesh, out_specs=P("j"))
    np.testing.assert_array_equal(mapped(placed), X)
    assert shapes == [(4,)]


def test_one_axis_by_numbers(mesh, mode):
    with mesh:
        mapped = weft.smap(lambda x: x * lax.axis_index("j"), in_axes=1, out_axes=1, axis_name="j")
        np.testing.assert_array_equal(mode(mapped)(np.ones((3, 4))), [[0, 0, 1, 1]] * 3)


def test_trees_and_prefixes_of_specs(mesh, mode):
    def f(params, pair):
        return {"sum": params["w"] + params["b"], "pair": (pair[0], lax.psum(pair[1]["deep"], "j"))}

    mapped = weft.shard_map(
        f,
        mesh=mesh,
        in_specs=(P("i"), (P(("i", "j")), P("j"))),
        out_specs={"sum": P("i"), "pair": (P(("i", "j")), P())},
    )
    out = mode(mapped)({"w": X, "b": 2 * X}, (X, {"deep": X}))
    np.testing.assert_array_equal(out["sum"], 3 * X)
    np.testing.assert_array_equal(out["pair"][0], X)
    np.testing.assert_array_equal(out["pair"][1], X[:4] + X[4:])
    assert out["pair"][0].sharding.is_equivalent_to(NamedSharding(mesh, P(("i", "j"))), 1)


def test_none_is_a_whole_argument(mesh, mode):
    mapped = weft.shard_map(
        lambda x, y: (x + y, None), mesh=mesh, in_specs=(None, P("i")), out_specs=P("i")
    )
    out, nothing = mode(mapped)(np.float32(1), X)
    np.testing.assert_array_equal(out, X + 1)
    assert nothing is None


def test_axes_in_another_order_than_the_mesh(mesh, mode):
    mapped = weft.shard_map(
        lambda x: x + 10 * lax.axis_index("i") + 100 * lax.axis_index("j"),
        mesh=mesh,
        in_specs=P(("j", "i")),
        out_specs=P(("j", "i")),
    )
    np.testing.assert_array_equal(mode(mapped)(X), X + [0, 10, 20, 30, 100, 110, 120, 130])


def test_values_closed_over_are_whole(mesh, mode):
    y = weft.device_put(X, NamedSharding(mesh, P("j")))
    mapped = weft.shard_map(lambda x: x + y.sum(), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    np.testing.assert_array_equal(mode(mapped)(X), X + X.sum())


def test_gradients_of_values_closed_over(mesh, mode):
    def loss(w):
        return weft.shard_map(
            lambda x: lax.psum((w * x).sum(), "i"), mesh=mesh, in_specs=P("i"), out_specs=P()
        )(X)

    assert float(mode(weft.grad(loss))(2.0)) == X.sum()


def test_meshes_of_two_shapes_in_one_program(mesh, mode):
    flat = make_mesh((8,), ("d",))
    ranks = weft.shard_map(
        lambda x: x + lax.axis_index("d"), mesh=flat, in_specs=P("d"), out_specs=P("d")
    )
    sums = weft.shard_map(
        lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=P(("i", "j")), out_specs=P("j")
    )
    np.testing.assert_array_equal(mode(lambda x: sums(ranks(x)))(X), (2 * X).reshape(4, 2).sum(0))


def test_some_of_the_devices_and_one(mode):
    for n in (3, 1):
        mesh = Mesh(np.array(weft.devices()[:n]), ("k",))
        mapped = weft.shard_map(
            lambda x: lax.psum(x, "k") + lax.axis_index("k"),
            mesh=mesh,
            in_specs=P("k"),
            out_specs=P("k"),
        )
        x = X[:6]
        out = mode(mapped)(x)
        np.testing.assert_array_equal(
            out, np.tile(x.reshape(n, -1).sum(0), n) + np.repeat(np.arange(n), 6 // n)
        )
        assert len(out.sharding.device_set) == n


def test_axes_of_size_one(mode):
    mesh = make_mesh((8, 1), ("d", "o"))
    other = make_mesh((8,), ("d",))
    f = weft.shard_map(
        lambda x: lax.all_gather(lax.psum(x, "o"), "o") + lax.axis_index("o"),
        mesh=mesh,
        in_specs=P(("d", "o")),
        out_specs=P("o", "d"),
    )
    g = weft.shard_map(lambda x: x * 2, mesh=other, in_specs=P("d"), out_specs=P("d"))
    np.testing.assert_array_equal(mode(lambda x: f(x)[0] + g(x))(X), 3 * X)


def test_results_stay_where_they_are(mesh):
    mapped = weft.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    once = weft.jit(mapped)(X)
    assert once.committed and once.sharding.is_equivalent_to(NamedSharding(mesh, P("i")), 1)
    np.testing.assert_array_equal(weft.jit(lambda x: x[1:3])(once), 2 * X[1:3])
    assert not collectives(mapped, once)


def test_out_specs_are_needed(mesh):
    with pytest.raises(TypeError, match="out_specs is missing"):
        weft.shard_map(identity, mesh=mesh, in_specs=P())


def test_python_values_whose_specs_are_none_are_static():
    mesh = weft.make_mesh((2,), ("i",), devices=weft.devices()[:2])
    grow = weft.shard_map(
        lambda x, shape, what: x + wnp.ones(shape) * what["by"],
        mesh=mesh,
        in_specs=(P("i"), None, {"by": None}),
        out_specs=P("i"),
    )
    for call in (grow, weft.jit(grow, static_argnums=1)):
        assert call(wnp.arange(4.0), (2,), {"by": 3}).tolist() == [3, 4, 5, 6]
    thing = object()
    assert weft.shard_map(
        lambda x: thing is x or 1 / 0, mesh=mesh, in_specs=(None,), out_specs=P()
    )(thing)
    with pytest.raises(ValueError, match="too long for its rank"):
        weft.shard_map(lambda *_: None, mesh=mesh, in_specs=(None, P(None, "i")), out_specs=None)(
            thing, wnp.arange(4)
        )
