"""The public behavior of shard_map: signatures of all versions, trees of specs, types inside,
printing, messages, collectives."""

import functools
import re

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.core.interpret import run_reference
from weft.errors import ShardingTypeError
from weft.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    get_abstract_mesh,
    make_mesh,
)

X = np.arange(8, dtype=np.float32)


@pytest.fixture(scope="module")
def mesh():
    return make_mesh((4, 2), ("i", "j"))


@pytest.fixture(params=["eager", "jit"])
def mode(request):
    return weft.jit if request.param == "jit" else lambda f: f


def collectives(f, *args):
    """Return (kind, axes, bytes, count) of every collective of the compiled program."""
    stages = weft.jit(f).lower(*args).compile().runtime_executable().stages
    return [(r.kind, r.axes, r.bytes_per_device, r.count) for r in stages.collectives]


# --- signatures -------------------------------------------------------------------------------------------------------


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


# --- closing over values ----------------------------------------------------------------------------------------------


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


# --- types and printing -----------------------------------------------------------------------------------------------


def test_types_tell_what_varies(mesh, mode):
    seen = {}

    def f(x, y, w):
        xy = x * y
        values = {
            "x": x,
            "xy": xy,
            "w": w,
            "psum": lax.psum(xy, "i"),
            "all": lax.psum(xy, ("i", "j")),
            "cast": lax.pvary(w, "j"),
            "index": lax.axis_index("j"),
            "constant": wnp.ones(2),
            "gathered": lax.all_gather(x, "i"),
            "shifted": x + 1,
        }
        seen.update({name: weft.typeof(value).vma for name, value in values.items()})
        return values["all"]

    mode(weft.shard_map(f, mesh=mesh, in_specs=(P("i"), P("j"), P()), out_specs=P()))(
        X, X[:4], X[:2]
    )
    expected = {
        "x": "i",
        "xy": "ij",
        "w": "",
        "psum": "j",
        "all": "",
        "cast": "j",
        "index": "j",
        "constant": "",
        "gathered": "i",
        "shifted": "i",
    }
    assert seen == {name: frozenset(axes) for name, axes in expected.items()}


def test_programs_print_their_casts_and_axes(mesh):
    text = str(
        weft.make_jaxpr(
            weft.shard_map(
                lambda x, w: lax.psum(x * w, "i"), mesh=mesh, in_specs=(P("i"), P()), out_specs=P()
            )
        )(X, X[:2])
    )
    for line in (
        "f:f32[2]{V:i} = pvary[axes=('i',)] e",
        "g:f32[2]{V:i} = mul d f",
        "h:f32[2] = psum_invariant[axes=('i',)] g",
        f"mesh={mesh}\n",
    ):
        assert line in text


def test_without_the_check_nothing_is_said(mesh):
    text = str(
        weft.make_jaxpr(
            weft.shard_map(
                lambda x: lax.psum(x, "i"),
                mesh=mesh,
                in_specs=P("i"),
                out_specs=P(),
                check_vma=False,
            )
        )(X)
    )
    assert "{V:i}" not in text and "pvary" not in text


def test_nested_over_explicit_axes(mode):
    mesh = make_mesh(
        (2, 2),
        ("i", "j"),
        devices=weft.devices()[:4],
        axis_types=(AxisType.Explicit, AxisType.Auto),
    )
    with weft.set_mesh(mesh):
        seen = []
        inner = weft.smap(
            lambda x: seen.append(set(x.mat.varying)) or wnp.sin(x),
            in_axes=1,
            out_axes=1,
            axis_name="i",
        )
        out = mode(weft.smap(lambda x: inner(x * 2), in_axes=0, out_axes=0, axis_name="j"))(
            weft.device_put(X.reshape(4, 2), P("j"))
        )
    np.testing.assert_allclose(out, np.sin(2 * X.reshape(4, 2)), rtol=1e-5)
    assert seen == [{"i", "j"}]


def test_values_print_per_device(capsys):
    mesh = Mesh(np.array(weft.devices()[2:4]), ("k",))
    weft.shard_map(lambda x: print(f"<{x}>") or x, mesh=mesh, in_specs=P("k"), out_specs=P("k"))(
        X[:4]
    )
    first, second = (d.older_name for d in weft.devices()[2:4])
    assert capsys.readouterr().out == (
        f"<On {first} at mesh coordinates (k,) = (0,):\n[0. 1.]\n\n"
        f"On {second} at mesh coordinates (k,) = (1,):\n[2. 3.]\n>\n"
    )


def test_values_print_under_a_mesh_with_explicit_axes(capsys):
    with weft.set_mesh(
        weft.make_mesh((2,), ("k",), axis_types=(AxisType.Explicit,), devices=weft.devices()[:2])
    ):
        weft.shard_map(lambda x: print(lax.psum(x, "k")) or x, in_specs=P("k"), out_specs=P("k"))(
            weft.device_put(X[:2], P("k"))
        )
    assert capsys.readouterr().out.count("[1.]") == 2


def test_what_is_the_same_everywhere_has_a_value(mesh):
    mapped = weft.shard_map(
        lambda x: x if lax.psum(x.sum(), ("i",)) > 3 else -x,
        mesh=mesh,
        in_specs=P("i"),
        out_specs=P("i"),
    )
    np.testing.assert_array_equal(mapped(X), X)
    np.testing.assert_array_equal(mapped(-X), X)


def test_callbacks_see_blocks(mesh, capsys, mode):
    mapped = weft.shard_map(
        lambda x: weft.debug.print("{}", x) or x, mesh=mesh, in_specs=P("i"), out_specs=P("i")
    )
    mode(mapped)(X)
    weft.effects_barrier()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and sum("[6. 7.]" in line for line in lines) == 2
    assert not collectives(mapped, X)


# --- loops and branches -----------------------------------------------------------------------------------------------


def in_map(mesh, f, *specs):
    return weft.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P("i"))


LOOPS = {
    "scan": lambda x, w: lax.scan(lambda c, _: ((c[1], c[0]), None), (x, w), None, length=2)[0][0],
    "while_loop": lambda x, w: lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + x), (0, w)
    )[1],
    "fori_loop": lambda x, w: lax.fori_loop(0, 2, lambda i, c: c + x, w),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_carry_that_begins_to_vary(mesh, loop):
    with pytest.raises(TypeError) as error:
        in_map(mesh, LOOPS[loop], P("i"), P())(X, X[:2])
    text = str(error.value)
    assert (
        loop in text and "the varying manual axes do not match" in text and "float32[2]{i}" in text
    )
    assert re.search(
        r"lax\.pcast\(\.\.\., \('i',\), to='varying'\)` to the initial value of carry(\[1\])?", text
    )


def test_a_carry_that_is_cast_first(mesh, mode):
    cast = lambda x, w: LOOPS["fori_loop"](x, lax.pvary(w, "i"))
    np.testing.assert_array_equal(
        mode(in_map(mesh, cast, P("i"), P()))(X, X[:2]), 2 * X + np.tile(X[:2], 4)
    )


def test_loops_whose_turns_differ_from_device_to_device(mesh, mode):
    def f(x):
        return lax.while_loop(
            lambda c: c[1] * x.sum() < 40, lambda c: (c[0] + 1, c[1] * 2), (0, 1.0)
        )[0][None]

    np.testing.assert_array_equal(mode(in_map(mesh, f, P("i")))(X), [6, 3, 3, 2])


def test_branches_vary_over_the_same_axes(mesh, mode):
    with pytest.raises(
        TypeError,
        match=r"the varying manual axes do not match[^$]*, \('i',\), to='varying'\)` to the output of true_fun",
    ):
        mode(in_map(mesh, lambda x, w: lax.cond(x.sum() > 6, lambda: w, lambda: x), P("i"), P()))(
            X, X[:2]
        )
    f = lambda x, w: lax.cond(x.sum() > 6, lambda: x, lambda: lax.pcast(w, "i", to="varying"))
    np.testing.assert_array_equal(
        mode(in_map(mesh, f, P("i"), P()))(X, X[:2]), [0, 1, 0, 1, 4, 5, 6, 7]
    )


# --- meshes -----------------------------------------------------------------------------------------------------------


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


# --- partly manual, nested --------------------------------------------------------------------------------------------


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


# --- derivatives and their communication ------------------------------------------------------------------------------


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


# --- explicit axes that are not manual --------------------------------------------------------------------------------


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
    found = []
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
            found.append(
                mode(TRANSFORMED[how](f))(weft.device_put(shape, NamedSharding(mesh, layout)))
            )
    for automatic, explicit in zip(*map(weft.tree.leaves, found)):
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


# --- messages ---------------------------------------------------------------------------------------------------------


def identity(x):
    return x


def mapped_by(mesh, in_specs, out_specs, f=identity, **options):
    return weft.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)


def under(mesh, f):
    with weft.set_mesh(mesh):
        return f()


MESSAGES = {
    "does not divide": (
        lambda m: mapped_by(m, P("i"), P("i"))(X[:6]),
        ValueError,
        ["shard_map(identity)", "argument x", "float32[6]", "'i' of size 4", "Pad the dim to 8"],
    ),
    "does not divide, in a tree": (
        lambda m: mapped_by(m, P(("i", "j")), P("i"))({"a": [X, X[:4]]}),
        ValueError,
        ["argument x['a'][1]", "float32[4]", "of size 8 together"],
    ),
    "rank": (
        lambda m: mapped_by(m, P("i", "j"), P("i"))(X),
        ValueError,
        ["in_specs", "argument x", "float32[8], which has rank 1", "which has length 2"],
    ),
    "rank, by entries that split nothing": (
        lambda m: mapped_by(m, P("i", None), P("i"))(X),
        ValueError,
        ["argument x", "rank 1", "which has length 2", "Shorten the spec to length 1"],
    ),
    "rank of a result": (
        lambda m: mapped_by(m, P("i"), P("i"), f=lambda x: {"s": x.sum()})(X),
        ValueError,
        ["out_specs", "result['s']", "float32[]{i}", "x[None]"],
    ),
    "unknown axis": (
        lambda m: mapped_by(m, P("k"), P("i"))(X),
        ValueError,
        ["in_specs", "'k'", "mesh", "'i': 4, 'j': 2"],
    ),
    "misspelt axis": (
        lambda m: mapped_by(make_mesh((8,), ("data",)), P("date"), P())(X),
        ValueError,
        ["Did you mean 'data'?"],
    ),
    "unknown axis of a result": (
        lambda m: mapped_by(m, P("i"), {"a": P("k")})(X),
        ValueError,
        ["out_specs['a']", "'k'"],
    ),
    "not manual": (
        lambda m: mapped_by(m, P("j"), P("i"), axis_names={"i"})(X),
        ValueError,
        ["in_specs", "'j'", "not manual", "Add 'j' to axis_names"],
    ),
    "repeated axis": (
        lambda m: mapped_by(m, P("i", "i"), P("i"))(np.ones((8, 8))),
        ValueError,
        ["in_specs", "'i'", "more than once"],
    ),
    "not a spec": (
        lambda m: mapped_by(m, ("i",), P("i"))(X),
        TypeError,
        ["in_specs[0]", "'i'", "PartitionSpec"],
    ),
    "too few specs": (
        lambda m: mapped_by(m, (P("i"),), P("i"), f=lambda x, y: x)(X, X),
        ValueError,
        ["in_specs", "prefix"],
    ),
    "results in another tree": (
        lambda m: mapped_by(m, P("i"), (P("i"), P("i")))(X),
        ValueError,
        ["out_specs", "the results"],
    ),
    "unconstrained": (
        lambda m: mapped_by(m, P(P.UNCONSTRAINED), P("i"))(X),
        ValueError,
        ["in_specs", "unconstrained"],
    ),
    "no mesh": (
        lambda m: mapped_by(None, P("i"), P("i"))(X),
        ValueError,
        ["there is no mesh", "set_mesh"],
    ),
    "no devices": (
        lambda m: mapped_by(m.abstract_mesh, P("i"), P("i"))(X),
        ValueError,
        ["has no devices"],
    ),
    "no devices, in jit": (
        lambda m: weft.jit(mapped_by(m.abstract_mesh, P("i"), P("i")))(X),
        ValueError,
        ["has no devices", "runs on 1", "mesh of 8 devices"],
    ),
    "unknown manual axis": (
        lambda m: mapped_by(m, P("i"), P("i"), axis_names={"z"})(X),
        ValueError,
        ["axis_names", "'z'"],
    ),
    "manual already": (
        lambda m: mapped_by(
            m, P("i"), P("i"), f=lambda x: mapped_by(m, P("i"), P("i"), axis_names={"i"})(x)
        )(X),
        ValueError,
        ["manual already"],
    ),
    "varies": (
        lambda m: mapped_by(m, P(("i", "j")), P("i"))(X),
        ValueError,
        [
            "out_specs",
            "result",
            "float32[1]{i,j}",
            "replicated across mesh axis 'j'",
            "lax.psum(x, 'j')",
            "check_vma=False",
        ],
    ),
    "unbound axis": (
        lambda m: mapped_by(m, P("i"), P("i"), f=lambda x: lax.psum(x, "q"))(X),
        NameError,
        ["axis name: q", "'i', 'j'"],
    ),
    "control flow": (
        lambda m: mapped_by(m, P("i"), P("i"), f=lambda x: x if x.sum() > 3 else -x)(X),
        TypeError,
        ["bool[]{i}", "may differ from device to device"],
    ),
    "constraint": (
        lambda m: weft.jit(
            mapped_by(
                m,
                P("i"),
                P("i"),
                f=lambda x: lax.with_sharding_constraint(x, NamedSharding(m, P("i"))),
            )
        )(X),
        ValueError,
        ["'i' is manual", "float32[2]"],
    ),
    "an argument elsewhere": (
        lambda m: mapped_by(m, P("i"), P("i"))(weft.device_put(X, weft.devices()[1])),
        ValueError,
        ["incompatible devices", "argument x", "[1]", "[0, 1, 2, 3, 4, 5, 6, 7]", "device_put"],
    ),
    "an argument elsewhere, in jit": (
        lambda m: weft.jit(mapped_by(m, P("i"), P("i")))(weft.device_put(X, weft.devices()[1])),
        ValueError,
        ["incompatible devices", "argument x", "[1]"],
    ),
    "arrays of two meshes": (
        lambda m: mapped_by(m.abstract_mesh, P("i"), P("i"), f=lambda x, y: x)(
            weft.device_put(X, NamedSharding(m, P("i"))),
            weft.device_put(X, NamedSharding(make_mesh((8,), ("k",)), P("k"))),
        ),
        ValueError,
        ["Mesh shape of the input", "'k'"],
    ),
    "a constant elsewhere": (
        lambda m: mapped_by(
            m, P("i"), P("i"), f=lambda x: x + weft.device_put(1.0, weft.devices()[0])
        )(X),
        ValueError,
        ["float32[]", "device ids [0]", "[0, 1, 2, 3, 4, 5, 6, 7]", "device_put"],
    ),
    "axes to infer": (
        lambda m: under(m, lambda: weft.smap(identity, out_axes=0, axis_name="i")(X)),
        TypeError,
        ["smap(identity)", "in_axes", "'i' is automatic"],
    ),
    "a tangent that varies": (
        lambda m: mapped_by(
            m, P("i"), P("i"), f=lambda t: weft.linearize(wnp.sin, wnp.ones(2))[1](t)
        )(X),
        ValueError,
        ["linearize", "float32[2]{i}", "('i',)", "to='varying'", "primal value"],
    ),
    "other devices": (
        lambda m: weft.jit(
            lambda x: (
                mapped_by(m, P("i"), P("i"))(x)
                + mapped_by(Mesh(np.array(weft.devices()[:2]), ("k",)), P("k"), P("k"))(x)
            )
        )(X),
        ValueError,
        ["incompatible devices"],
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_messages(mesh, case):
    call, kind, words = MESSAGES[case]
    with pytest.raises(kind) as error:
        call(mesh)
    assert not [word for word in words if word not in str(error.value)], str(error.value)


def test_constants_put_on_a_device_are_part_of_a_program(mesh):
    """A program runs on the devices of its arguments, so a constant in it may have been placed on
    any one device."""
    plus = lambda x: x + weft.device_put(1.0, weft.devices()[0])
    np.testing.assert_array_equal(weft.jit(mapped_by(mesh, P("i"), P("i"), f=plus))(X), X + 1)
    np.testing.assert_array_equal(
        weft.jit(plus)(weft.device_put(X, NamedSharding(mesh, P("i")))), X + 1
    )


def test_types_of_results_tell_what_varies(mesh):
    def f(x):
        struct = weft.eval_shape(lambda x: x.sum(), x)
        assert struct.vma == {"i"} and weft.typeof(wnp.full_like(struct, 2.0)).vma == {"i"}
        return weft.vjp(lambda x: x.sum(), x)[1](lax.full_like(struct, 2.0))[0]

    np.testing.assert_array_equal(mapped_by(mesh, P("i"), P("i"), f=f)(X), np.full(8, 2.0))


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


# ---- axes of one device


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
