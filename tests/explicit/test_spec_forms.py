"""Specs that place values alike and print differently: no cache exchanges them, and none has more entries than dims.

Mesh axes of size 1 are axes like any other: they stay in the types of results.
"""

import functools

import numpy as np
import pytest

import weft
import weft._engine.hooks
import weft.numpy as wnp
from weft import lax
from weft.sharding import AxisType, NamedSharding, P

DEVICES = weft.devices()[:4]
X = np.arange(32, dtype=np.float32).reshape(4, 8)
KINDS = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}


def mesh_of(kind, shape=(2, 2)):
    return weft.make_mesh(shape, ("a", "b"), axis_types=(KINDS[kind],) * 2, devices=DEVICES)


FORMS = [P("a"), P("a", None), P("a", None, None)]

#: functions of a sharding and of the rank that it is for, which give the sharding of a result
RESULTS = {
    "device_put": lambda s, n: weft.device_put(np.ones((4,) * n, np.float32), s).sharding,
    "device_put of an array": lambda s, n: weft.device_put(wnp.ones((4,) * n), s).sharding,
    "zeros": lambda s, n: wnp.zeros((4,) * n, device=s).sharding,
    "out_shardings": lambda s, n: weft.jit(lambda: wnp.ones((4,) * n), out_shardings=s)().sharding,
    "out_shardings of one function": lambda s, n: (
        weft.jit(_doubled, out_shardings=s)(np.ones((4,) * n, np.float32)).sharding
    ),
    "in_shardings": lambda s, n: (
        weft.jit(_identity, in_shardings=s)(np.ones((4,) * n, np.float32)).sharding
    ),
    "an argument": lambda s, n: (
        weft.jit(_doubled)(weft.device_put(np.ones((4,) * n, np.float32), s)).sharding
    ),
    "an operation": lambda s, n: (-weft.device_put(np.ones((4,) * n, np.float32), s)).sharding,
    "device_put in a program": lambda s, n: (
        weft.jit(lambda x: weft.device_put(x * 2, s))(np.ones((4,) * n, np.float32)).sharding
    ),
    "abstract mesh": lambda s, n: (
        weft.jit(
            lambda x: (
                weft.sharding.reshard(x, NamedSharding(s.mesh.abstract_mesh, s.spec))
                if s.mesh.explicit_axes
                else x * 2
            ),
            out_shardings=s,
        )(np.ones((4,) * n, np.float32)).sharding
    ),
    "compiled ahead": lambda s, n: (
        weft.jit(_doubled, out_shardings=s)
        .lower(weft.ShapeDtypeStruct((4,) * n, np.float32))
        .compile()(np.ones((4,) * n, np.float32))
        .sharding
    ),
}


def _doubled(x):
    return x * 2


def _identity(x):
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RESULTS)
def test_results_do_not_depend_on_earlier_calls(kind, name):
    result, mesh = RESULTS[name], mesh_of(kind)
    typed = kind == "explicit" and name in (
        "an argument",
        "an operation",
        "device_put in a program",
    )
    placed = (
        kind == "explicit" and name == "in_shardings"
    )  # a result without a type has the shortest spec
    calls = [
        (NamedSharding(mesh, spec), ndim)
        for spec in FORMS
        for ndim in (1, 2, 3)
        if len(spec) <= ndim
    ]
    for order in (calls, calls[::-1], calls):
        for sharding, ndim in order:
            got = result(sharding, ndim)
            expected = P("a") if placed else sharding.spec
            assert got.spec == (expected.of_rank(ndim) if typed else expected), (
                sharding.spec,
                ndim,
            )
            assert got.is_equivalent_to(sharding, ndim)


@pytest.mark.parametrize("kind", KINDS)
def test_static_arguments_and_memos_see_the_spec_given(kind):
    mesh, seen = mesh_of(kind), []

    @functools.partial(weft.jit, static_argnums=1)
    def entries(x, sharding):
        seen.append(sharding.spec)
        return x + len(sharding.spec)

    for spec in (*FORMS, *FORMS):
        assert int(entries(0, NamedSharding(mesh, spec))) == len(spec)
    assert seen == FORMS


@pytest.mark.parametrize("first", [P("b", "a"), P("a", None, None), P(None, None, None), P()])
def test_replicated_results_have_no_entry_of_longer_arguments(first):
    mesh = mesh_of("auto")
    x = weft.device_put(np.ones((4, 4, 4), np.float32), NamedSharding(mesh, first))
    for f in (
        lambda x: x.sum(),
        lambda x: x.sum((0, 1)),
        lambda x: x.sum(0),
        lambda x: wnp.zeros(3),
        lambda x: x[None],
    ):
        out = weft.jit(f)(x)
        assert len(out.sharding.spec) <= out.ndim
        list(zip(out.sharding.spec.of_rank(out.ndim), out.shape, strict=True))
        weft.device_put(np.ones(out.shape, np.float32), out.sharding)


def test_arrays_of_one_explicit_placement_share_a_program():
    mesh, compilations = mesh_of("explicit"), []
    f = weft.jit(lambda x: wnp.sin(x) * 3)
    weft._engine.hooks.after_compilation.append(compilations.append)
    try:
        for spec in (P("a"), P("a", None)):
            x = weft.device_put(X, NamedSharding(mesh, spec))
            out = f(x)
            np.testing.assert_allclose(f(out), np.sin(np.sin(X) * 3) * 3, rtol=1e-4, atol=1e-5)
            assert out.sharding.spec == P("a", None)
    finally:
        weft._engine.hooks.after_compilation.remove(compilations.append)
    assert len(compilations) == 1


UNIT = {
    "reshape apart": (lambda x: x.reshape(1, 4, 8), (1, 32), ("a", "b"), P("a", "b", None)),
    "reshape together": (lambda x: x.reshape(1, 32), (1, 4, 8), ("a", "b"), P("a", "b")),
    "reshape to more ones": (lambda x: x.reshape(1, 1, 32), (1, 32), ("a", "b"), P("a", None, "b")),
    "reshape to fewer ones": (
        lambda x: x.reshape(1, 32),
        (1, 1, 32),
        (None, "a", "b"),
        P("a", "b"),
    ),
    "reshape of a last one": (lambda x: x.reshape(4, 8, 1), (32, 1), ("b", "a"), P("b", None, "a")),
    "reshape moves a one": (lambda x: x.reshape(4, 1, 8), (32, 1), ("b", "a"), P("b", "a", None)),
    "reshape and back": (
        lambda x: x.reshape(1, 4, 8).reshape(1, 32),
        (1, 32),
        ("a", "b"),
        P("a", "b"),
    ),
    "tile": (lambda x: wnp.tile(x, (1, 2)), (1, 32), ("a", None), P("a", None)),
    "repeat": (lambda x: wnp.repeat(x, 2, 0), (32, 1), (None, "a"), P(None, "a")),
    "set all": (lambda x: x.at[0].set(1.0), (1, 32), ("a", "b"), P("a", "b")),
    "set all, of an axis": (lambda x: x.at[:].set(x), (4, 8), ("b", "a"), P("b", "a")),
    "sort": (lambda x: wnp.sort(x, 1), (4, 8), ("b", "a"), P("b", "a")),
    "cumsum": (lambda x: wnp.cumsum(x, 1), (4, 8), ("b", "a"), P("b", "a")),
    "softmax": (lambda x: weft.nn.softmax(x, 1), (4, 8), ("b", "a"), P("b", "a")),
    "take": (lambda x: wnp.take(x, np.array([0]), axis=0), (1, 32), ("a", "b"), P(None, "b")),
    "scan": (
        lambda x: lax.scan(
            lambda c, _: (c.reshape(1, 4, 8).reshape(1, 32), None), x, None, length=2
        )[0],
        (1, 32),
        ("a", "b"),
        P("a", "b"),
    ),
    "keepdims": (lambda x: x - x.sum(1, keepdims=True), (1, 32), ("a", None), P("a", None)),
}


@pytest.mark.parametrize("name", UNIT)
def test_mesh_axes_of_size_one_stay_in_types(name):
    f, shape, entries, expected = UNIT[name]
    mesh = mesh_of("explicit", (1, 4))
    values = np.arange(32, dtype=np.float32).reshape(shape)
    with weft.set_mesh(mesh):
        x = weft.device_put(values, NamedSharding(mesh, P(*entries)))
        for run in (f, weft.jit(f)):
            out = run(x)
            assert weft.typeof(out).sharding.spec == expected == out.sharding.spec
            np.testing.assert_allclose(out, f(wnp.asarray(values)), rtol=1e-5)
        assert weft.eval_shape(f, x).sharding.spec == expected
        slope = weft.grad(lambda x: (f(x) ** 2).sum())(x)
        assert weft.typeof(slope).sharding.spec == P(*entries).of_rank(x.ndim)


@pytest.mark.parametrize("make", [
    lambda s: wnp.ones((8, 4), out_sharding=s), lambda s: wnp.array(np.ones((8, 4)), out_sharding=s),
    lambda s: wnp.asarray(wnp.zeros((8, 4)), out_sharding=s), lambda s: weft.jit(lambda: wnp.full((8, 4), 2.0, out_sharding=s))(),
    lambda s: wnp.triu(wnp.ones((8, 4), out_sharding=s))])  # fmt: skip
def test_new_arrays_have_an_entry_for_each_dim(make):
    with weft.set_mesh(weft.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)):
        assert tuple(make(P("x")).sharding.spec) == ("x", None)
        assert tuple(make(P(None, "y")).sharding.spec) == (None, "y")
