"""Keys on meshes: their rows in memory have the layout of the keys, and the shardings of results have an entry per dim of the keys."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.sharding import AxisType, NamedSharding, P

random = weft.random
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
MESHES = {"explicit": (EXPLICIT, EXPLICIT), "mixed": (EXPLICIT, AUTO), "automatic": (AUTO, AUTO)}


@pytest.fixture(params=MESHES)
def mesh(request):
    return weft.make_mesh(
        (2, 2), ("x", "y"), axis_types=MESHES[request.param], devices=weft.devices()[:4]
    )


MADE = {
    "a key": lambda: random.key(0),
    "words": lambda: random.PRNGKey(0),
    "split": lambda: random.split(random.key(0), 4),
    "in two dims": lambda: random.split(random.key(0), (4, 2)),
    "folded in": lambda: random.fold_in(random.key(0), 3),
    "key data": lambda: random.key_data(random.split(random.key(0), 4)),
    "numbers": lambda: random.normal(random.key(0), (4, 2)),
    "transposed": lambda: random.split(random.key(0), (4, 2)).T,
}


def words(x):
    return np.asarray(random.key_data(x) if wnp.issubdtype(x.dtype, weft.dtypes.prng_key) else x)


@pytest.mark.parametrize("is_jitted", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_new_keys_are_whole_on_the_mesh_in_context(name, is_jitted, mesh):
    make = weft.jit(MADE[name]) if is_jitted else MADE[name]
    expected = words(make())
    with weft.set_mesh(mesh):
        keys = make()
        assert keys.sharding.mesh == mesh and keys.sharding.is_fully_replicated
        assert len(keys.sharding.spec) <= keys.ndim
        np.testing.assert_array_equal(words(keys), expected)


#: function of (8, 4) keys that are split by P("x", "y"), and the spec of the result
MOVED = {
    "same": (lambda k: k, P("x", "y")),
    "transposed": (lambda k: k.T, P("y", "x")),
    "reshaped": (lambda k: k.reshape(8, 2, 2), P("x", "y", None)),
    "one of each": (lambda k: k[:, 0], P("x")),
    "split": (lambda k: weft.vmap(weft.vmap(lambda k: random.split(k, 2)))(k), P("x", "y", None)),
    "words": (random.key_data, P("x", "y", None)),
    "numbers": (lambda k: weft.vmap(weft.vmap(random.uniform))(k), P("x", "y")),
}


@pytest.mark.parametrize("name", MOVED)
def test_keys_keep_their_layout(name, mesh):
    fun, spec = MOVED[name]
    keys = random.split(random.key(0), (8, 4))
    expected = words(fun(keys))
    placed = weft.device_put(keys, NamedSharding(mesh, P("x", "y")))
    for result in (weft.jit(fun)(placed), fun(placed)):
        assert result.sharding.mesh == mesh and len(result.sharding.spec) <= result.ndim
        if name != "one of each":
            assert result.sharding.is_equivalent_to(NamedSharding(mesh, spec), result.ndim)
        if mesh.explicit_axes:
            explicit = [
                tuple(a for a in axes if a in mesh.explicit_axes) for axes in spec.dims(result.ndim)
            ]
            assert [
                tuple(axes) for axes in weft.typeof(result).explicit.spec_dims(result.ndim)
            ] == explicit
        np.testing.assert_array_equal(words(result), expected)
