"""`in_shardings` of a mesh with explicit axes, for arguments without a sharding: these are placed, and their types inside the function have
no sharding. Results have the sharding that propagates to them, or are whole on a mesh in context."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P, reshard

X = np.arange(64.0, dtype=np.float32).reshape(32, 2)
I = np.arange(32)


def mesh_of(n, kind=AxisType.Explicit):
    return weft.make_mesh((n,), ("data",), axis_types=(kind,), devices=weft.devices()[:n])


def call(fun, *args, **shardings):
    """Return the result, and the shardings in the types of the arguments inside the function."""
    types = []

    def traced(*args):
        types.extend(weft.typeof(x).explicit for x in weft.tree.leaves(args))
        return fun(*args)

    return weft.jit(traced, **shardings)(*args), types


PROPAGATED = {
    "elementwise": (lambda x: x * 2, P("data")),
    "gather of a split dim": (lambda x: x[I], P()),
    "sum over the split dim": (lambda x: x.sum(0), P()),
    "sum over another dim": (lambda x: x.sum(1), P("data")),
    "product": (lambda x: x.T @ x, P()),
    "new value": (lambda x: wnp.zeros(8), P()),
    "scan": (lambda x: weft.lax.scan(lambda c, _: (c + 1, None), x, None, length=3)[0], P("data")),
}


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("name", PROPAGATED)
def test_untyped_arguments_are_placed(name, n):
    fun, spec = PROPAGATED[name]
    mesh = mesh_of(n)
    result, types = call(fun, X, in_shardings=NamedSharding(mesh, P("data")))
    assert types == [None]
    assert result.sharding.mesh == mesh
    assert result.sharding.is_fully_replicated if n == 1 else result.sharding.spec == spec
    np.testing.assert_allclose(result, weft.jit(fun)(X), rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize(
    "sharding", [NamedSharding, lambda mesh, spec: spec], ids=["sharding", "spec"]
)
@pytest.mark.parametrize("name", PROPAGATED)
def test_untyped_arguments_are_placed_in_context(name, n, sharding):
    fun, _ = PROPAGATED[name]
    mesh, outside = mesh_of(n), wnp.asarray(X)
    with weft.set_mesh(mesh):
        for argument in (X, outside):
            result, types = call(fun, argument, in_shardings=sharding(mesh, P("data")))
            assert types == [None]
            assert result.sharding == NamedSharding(mesh, P(*[None] * result.ndim))
    np.testing.assert_allclose(result, weft.jit(fun)(X), rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_some_arguments_may_have_no_sharding(n):
    rows = NamedSharding(mesh_of(n), P("data"))
    for out, spec in ({}, P()), ({"out_shardings": rows}, P("data")):
        result, types = call(lambda x, i: x[i], X, I, in_shardings=(rows, None), **out)
        assert types == [None, None] and tuple(result.sharding.spec) == tuple(spec)
        np.testing.assert_array_equal(result, X)


def test_arguments_with_a_sharding_keep_their_type():
    rows = NamedSharding(mesh_of(4), P("data"))
    result, types = call(lambda x, y: x + y, X, weft.device_put(X, rows), in_shardings=(rows, rows))
    assert types[0] is None and types[1].spec == P("data", None)
    assert result.sharding.spec == result.aval.explicit.spec == P("data", None)
    np.testing.assert_array_equal(result, 2 * X)


def test_arguments_with_a_sharding_keep_their_type_in_context():
    with weft.set_mesh(mesh_of(4)):
        result, types = call(lambda x: x * 2, weft.device_put(X, P("data")), in_shardings=P("data"))
        assert types[0].spec == result.sharding.spec == P("data", None)
        result, types = call(lambda x: reshard(x, P("data")) * 2, X, in_shardings=P("data"))
        assert types == [None] and result.sharding.spec == P("data", None)


def test_arguments_of_another_sharding_are_refused():
    mesh = mesh_of(4)
    placed = weft.device_put(X, NamedSharding(mesh, P()))
    with pytest.raises(ValueError, match="does not match the sharding on the respective arg"):
        weft.jit(lambda x: x, in_shardings=NamedSharding(mesh, P("data")))(placed)


def test_partly_explicit_meshes():
    mesh = weft.make_mesh(
        (2, 2),
        ("data", "t"),
        axis_types=(AxisType.Explicit, AxisType.Auto),
        devices=weft.devices()[:4],
    )
    both = NamedSharding(mesh, P("data", "t"))
    result, types = call(lambda x: x * 2, X, in_shardings=both)
    assert types == [None] and result.sharding == both


def test_results_beside_a_value_on_automatic_axes_have_these():
    explicit, auto = (
        NamedSharding(mesh_of(4, kind), P("data")) for kind in (AxisType.Explicit, AxisType.Auto)
    )
    typed, free = weft.jit(lambda x, y: (x * 2, y * 2))(
        weft.device_put(X, explicit), weft.device_put(X, auto)
    )
    assert typed.sharding.is_equivalent_to(explicit, 2) and typed.sharding.mesh == explicit.mesh
    assert free.sharding == auto


TRANSFORMED = {
    "reshard inside": lambda f, rows: weft.jit(lambda x: reshard(x, rows) * 2, in_shardings=rows)(
        X
    ),
    "nested": lambda f, rows: weft.jit(lambda x: f(x))(X),
    "vmap": lambda f, rows: weft.vmap(
        weft.jit(lambda x: x * 2, in_shardings=NamedSharding(rows.mesh, P()))
    )(X),
    "grad": lambda f, rows: weft.grad(
        lambda x: weft.jit(lambda x: (x**2).sum(), in_shardings=rows)(x)
    )(X),
    "tree": lambda f, rows: weft.jit(lambda t: t["a"] * 2, in_shardings=(rows,))({"a": X}),
    "compiled": lambda f, rows: f.lower(weft.ShapeDtypeStruct(X.shape, X.dtype)).compile()(X),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformations(name):
    rows = NamedSharding(mesh_of(4), P("data"))
    result = TRANSFORMED[name](weft.jit(lambda x: x * 2, in_shardings=rows), rows)
    np.testing.assert_allclose(result, 2 * X)
    assert result.sharding.mesh == rows.mesh


@pytest.mark.parametrize("in_context", [False, True])
def test_stages_tell_where_arguments_are_placed(in_context):
    mesh = mesh_of(4)
    lower = lambda: weft.jit(
        lambda x, t: x * 2, in_shardings=(NamedSharding(mesh, P("data")), None)
    ).lower(X, {"a": 1})
    if in_context:
        with weft.set_mesh(mesh):
            lowered = lower()
    else:
        lowered = lower()
    for stage in (lowered, lowered.compile()):
        (x, t), _ = stage.in_avals
        assert (
            x.sharding == NamedSharding(mesh.abstract_mesh, P("data", None))
            and t["a"].explicit is None
        )
    assert lowered._traced.in_avals[0][0].explicit is None


def test_shapes_have_no_sharding():
    rows = NamedSharding(mesh_of(4), P("data"))
    assert weft.jit(lambda x: x * 2, in_shardings=rows).eval_shape(X).sharding is None
