"""`shard_map`: types, printing, loops and branches inside."""

import re

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.api.shard_map.cases import X, collectives, in_map, mapped_by
from weft import lax
from weft.sharding import AxisType, Mesh, PartitionSpec as P, make_mesh


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


def test_types_of_results_tell_what_varies(mesh):
    def f(x):
        struct = weft.eval_shape(lambda x: x.sum(), x)
        assert struct.vma == {"i"} and weft.typeof(wnp.full_like(struct, 2.0)).vma == {"i"}
        return weft.vjp(lambda x: x.sum(), x)[1](lax.full_like(struct, 2.0))[0]

    np.testing.assert_array_equal(mapped_by(mesh, P("i"), P("i"), f=f)(X), np.full(8, 2.0))
