"""`reshard` and `out_sharding` over automatic axes: types do not have these, so the layout is the compiler's, and nothing is moved."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.sharding import AxisType, NamedSharding, P, reshard, use_abstract_mesh

X = np.arange(64.0, dtype=np.float32).reshape(8, 8)
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto


def mesh_of(*types):
    return weft.make_mesh((2, 2), ("x", "y"), axis_types=types, devices=weft.devices()[:4])


FUNCTIONS = {
    "argument": lambda x: reshard(x, P(None, None)),
    "between": lambda x: wnp.cos(reshard(wnp.sin(x), P())),
    "created": lambda x: x + wnp.zeros((8, 8), out_sharding=P()),
    "scanned": lambda x: weft.lax.scan(lambda c, _: (reshard(c + 1, P()), None), x, None, length=3)[
        0
    ],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_layout_is_left_to_the_compiler(name):
    mesh, fun = mesh_of(AUTO, AUTO), FUNCTIONS[name]
    x = weft.device_put(X, NamedSharding(mesh, P("x", "y")))
    with weft.set_mesh(mesh):
        compiled = weft.jit(fun).lower(x).compile()
        results = [weft.jit(fun)(x), fun(x), compiled(x)]
        expected = fun(wnp.asarray(X))
    for result in results:
        assert result.sharding == x.sharding
        np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert "all-gather" not in compiled.as_text()


@pytest.mark.parametrize("is_jitted", [False, True])
def test_derivatives_and_maps(is_jitted):
    mesh = mesh_of(AUTO, AUTO)
    x = weft.device_put(X, NamedSharding(mesh, P("x", "y")))
    fun = weft.grad(lambda x: (reshard(x, P()) ** 2).sum())
    mapped = weft.vmap(lambda row: reshard(row, P()) * 2)
    with weft.set_mesh(mesh):
        fun, mapped = (weft.jit(fun), weft.jit(mapped)) if is_jitted else (fun, mapped)
        np.testing.assert_allclose(fun(x), 2 * X)
        np.testing.assert_allclose(mapped(x), 2 * X)
        assert fun(x).sharding.spec == mapped(x).sharding.spec == P("x", "y")


def test_explicit_axes_inside_of_automatic_ones():
    mesh = mesh_of(AUTO, AUTO)
    types = []

    def fun(x):
        with use_abstract_mesh(
            mesh.abstract_mesh.update_axis_types({"x": EXPLICIT, "y": EXPLICIT})
        ):
            y = wnp.sin(reshard(x * 2, P(None, "y")))
        z = reshard(y, P(None, None))
        types.extend([weft.typeof(y).explicit.spec, weft.typeof(z).explicit])
        return z

    with weft.set_mesh(mesh):
        result = weft.jit(fun)(weft.device_put(X, P("x", "y")))
    assert types == [P(None, "y"), None]
    assert result.sharding == NamedSharding(mesh, P(None, "y"))
    np.testing.assert_allclose(result, np.sin(2 * X), rtol=1e-5)


def test_arrays_stay_where_they_are():
    explicit, auto = mesh_of(EXPLICIT, EXPLICIT), mesh_of(AUTO, AUTO)
    x = weft.device_put(X, NamedSharding(explicit, P("x", "y")))
    y = reshard(x, NamedSharding(auto, P()))
    assert y.sharding == NamedSharding(auto, P("x", "y")) and weft.typeof(y).explicit is None
    assert reshard(y, NamedSharding(explicit, P(None, "x"))).sharding == NamedSharding(
        explicit, P(None, "x")
    )


def test_explicit_axes_of_mixed_meshes_are_moved():
    mesh = mesh_of(EXPLICIT, AUTO)
    x = weft.device_put(X, NamedSharding(mesh, P("x", "y")))
    for result in (
        weft.jit(lambda x: reshard(x, NamedSharding(mesh, P())))(x),
        weft.jit(lambda x: reshard(x, NamedSharding(mesh, P(None, "x"))))(x),
    ):
        assert "x" not in (result.sharding.spec[0] or ())
        np.testing.assert_array_equal(result, X)


def test_default_axis_types_are_moved():
    mesh = weft.make_mesh((2, 2), ("x", "y"), devices=weft.devices()[:4])
    x = weft.device_put(X, NamedSharding(mesh, P("x")))
    for fun in (reshard, weft.jit(reshard, static_argnums=1)):
        assert fun(x, NamedSharding(mesh, P(None, "y"))).sharding.spec == P(None, "y")
        assert fun(x, NamedSharding(mesh, P())).sharding.is_fully_replicated
