"""Meshes with explicit and automatic axes: constraints over the automatic ones, and the specs of results."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.errors import ShardingAssertionError
from weft.lax import with_sharding_constraint
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

X = np.arange(64.0, dtype=np.float32).reshape(8, 8)


@pytest.fixture
def mesh():
    types = AxisType.Explicit, AxisType.Auto, AxisType.Auto
    return weft.make_mesh((2, 2, 2), ("x", "y", "z"), axis_types=types, devices=weft.devices()[:8])


#: specs of the argument, the constraint and the result; the type has the explicit axes
CONSTRAINED = [
    (P("x"), P("y"), P(("x", "y"))),
    (P("x"), P(None, "y"), P("x", "y")),
    (P("x"), P(("y", "z")), P(("x", "y", "z"))),
    (P("x"), P(), P("x", None)),
    (P(("x", "y")), P(), P("x", None)),
    (P(("x", "y")), P("z"), P(("x", "z"))),
    (P(None, "x"), P("y"), P("y", "x")),
    (P(), P("y"), P("y")),
    (P(), P(), P(None, None)),
]


@pytest.mark.parametrize("is_spec", [False, True], ids=["sharding", "spec"])
@pytest.mark.parametrize("argument, constraint, expected", CONSTRAINED)
def test_constraints_split_over_automatic_axes(argument, constraint, expected, is_spec, mesh):
    types = []

    def fun(x):
        y = with_sharding_constraint(x, constraint if is_spec else NamedSharding(mesh, constraint))
        types.append(weft.typeof(y).explicit.spec)
        return y

    with weft.set_mesh(mesh):
        x = weft.device_put(X, NamedSharding(mesh, argument))
        result = weft.jit(fun)(x)
        eager = fun(x)
    typed = P(
        *["x" if d < len(argument) and "x" in (argument[d] or ()) else None for d in range(2)]
    )
    assert types == [typed, typed]
    assert result.sharding.spec == eager.sharding.spec == expected
    np.testing.assert_array_equal(result, X)


def test_constraints_do_not_move_explicit_axes(mesh):
    x = weft.device_put(X, NamedSharding(mesh, P("x")))
    for spec in (P(None, "x"), P("y", "x"), P(None, ("x", "z"))):
        with pytest.raises(
            ShardingAssertionError, match="explicit axes split the value differently"
        ):
            weft.jit(lambda x, spec=spec: with_sharding_constraint(x, NamedSharding(mesh, spec)))(x)


#: function, spec of its argument, spec of the result: its type's, without trailing Nones if automatic axes split more
RESULTS = {
    "a shorter spec": (lambda x: x * 2, P("x"), P("x", None)),
    "not split": (lambda x: x * 2, P(), P(None, None)),
    "by automatic axes only": (lambda x: x * 2, P("y"), P("y")),
    "by both in a dim": (lambda x: x * 2, P(("x", "y"), None), P(("x", "y"))),
    "by both": (lambda x: x * 2, P("x", "y"), P("x", "y")),
    "transposed": (lambda x: x.T, P("x"), P(None, "x")),
    "summed": (lambda x: x.sum(1), P("x", "y"), P("x")),
    "summed to a number": (lambda x: x.sum(), P("x", "y"), P()),
    "argument": (lambda x: x, P("x"), P("x", None)),
}


@pytest.mark.parametrize("in_context", [False, True])
@pytest.mark.parametrize("name", RESULTS)
def test_specs_of_results_are_those_of_types(name, in_context, mesh):
    fun, argument, expected = RESULTS[name]
    x = weft.device_put(X, NamedSharding(mesh, argument))
    if in_context:
        with weft.set_mesh(mesh):
            result = weft.jit(fun)(x)
    else:
        result = weft.jit(fun)(x)
    assert result.sharding.mesh == mesh and result.sharding.spec == expected
    np.testing.assert_allclose(result, fun(X), rtol=1e-6)


def test_specs_that_are_asked_for_stay(mesh):
    x = weft.device_put(X, NamedSharding(mesh, P("x")))
    for spec in (P("x"), P("x", None), P(("x", "y"))):
        assert (
            weft.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, spec))(x).sharding.spec
            == spec
        )


#: function of a value without a sharding in its type, placed as P("x", "y"), and the spec of the result
UNTYPED = {
    "elementwise": (lambda x: x * 2, P(None, "y")),
    "transposed": (lambda x: x.T, P("y")),
    "summed": (lambda x: x.sum(0), P("y")),
    "summed over automatic axes": (lambda x: x.sum(1), P(None)),
    "created": (lambda x: wnp.ones((8, 2)), P(None, None)),
    "a number": (lambda x: x.sum(), P()),
    "a literal": (lambda x: 1.0, P()),
    "scanned": (
        lambda x: weft.lax.scan(lambda c, _: (c + 1, None), x, None, length=3)[0],
        P(None, "y"),
    ),
    "keys": (
        lambda x: weft.random.key_data(weft.random.split(weft.random.key(0), 8)),
        P(None, None),
    ),
    "argument": (lambda x: x, P("x", "y")),
}


@pytest.mark.parametrize("name", UNTYPED)
def test_untyped_results_are_whole_over_explicit_axes(name, mesh):
    fun, expected = UNTYPED[name]
    with weft.set_mesh(mesh):
        result = weft.jit(fun, in_shardings=P("x", "y"))(X)
        assert result.sharding == NamedSharding(mesh, expected)
        assert weft.typeof(result).sharding.spec == P(
            *["x" if "x" in (axes or ()) else None for axes in expected.of_rank(result.ndim)]
        )
        asked = weft.jit(fun, in_shardings=P("x", "y"), out_shardings=P())(X)
    assert asked.sharding.is_fully_replicated
    np.testing.assert_allclose(result, fun(X), rtol=1e-6)
    np.testing.assert_allclose(asked, fun(X), rtol=1e-6)
