"""Uncommitted arrays while a mesh is set."""

import threading

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P, use_mesh

KINDS = [AxisType.Auto, AxisType.Explicit]


def mesh_of(n, kind=AxisType.Auto, name="x"):
    return weft.make_mesh((n,), (name,), axis_types=(kind,))


def lies_on(x, mesh):
    return (
        x.committed
        and isinstance(x.sharding, NamedSharding)
        and x.sharding.mesh == mesh
        and x.sharding.is_fully_replicated
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 4])
def test_new_arrays_and_results_are_on_the_mesh(n, kind):
    mesh, outside = mesh_of(n, kind), wnp.arange(8.0)
    with weft.set_mesh(mesh):
        arrays = [
            wnp.arange(8),
            wnp.ones((8, 2)),
            wnp.array([1, 2]),
            wnp.asarray(np.arange(3)),
            wnp.float32(3),
            wnp.eye(3),
            weft.random.normal(weft.random.key(0), (8,)),
            outside + 1,
            outside.sum(),
            outside[2:4],
            outside.at[0].set(2.0),
            weft.jit(lambda x: x * 2)(outside),
            weft.jit(lambda x: x)(np.ones(3)),
            weft.jit(lambda: wnp.ones(3))(),
            weft.vmap(lambda x: x * 2)(outside),
            weft.grad(lambda x: (x * x).sum())(outside),
            weft.lax.scan(lambda c, x: (c + x, c), 0.0, outside)[1],
        ]
    assert all(lies_on(x, mesh) for x in arrays), [
        x.sharding for x in arrays if not lies_on(x, mesh)
    ]
    np.testing.assert_allclose(arrays[7], np.arange(8.0) + 1)
    np.testing.assert_allclose(arrays[-2], 2 * np.arange(8.0))
    assert not outside.committed and not (outside + 1).committed  # and nothing outside
    assert not weft.jit(lambda x: x * 2)(outside).committed


def test_split_arguments_meet_unplaced_ones():
    mesh, outside = mesh_of(4), wnp.arange(8.0)
    with weft.set_mesh(mesh):
        split = weft.device_put(outside, P("x"))
        both = weft.jit(wnp.add)(split, outside)
    assert both.sharding.spec == P("x")
    np.testing.assert_allclose(both, 2 * np.arange(8.0))


def test_committed_arrays_stay_or_are_refused_off_the_mesh():
    mesh, other = mesh_of(2), weft.device_put(wnp.arange(8.0), weft.devices()[0])
    with weft.set_mesh(mesh):
        assert not weft.device_put(np.arange(3)).committed
        assert weft.device_put(np.arange(3), weft.devices()[1]).devices() == {weft.devices()[1]}
        with pytest.raises(ValueError, match="incompatible devices"):
            weft.jit(lambda x: x * 2)(other)
        with pytest.raises(ValueError, match="incompatible devices"):
            other + 1
    np.testing.assert_allclose(other + 1, np.arange(8.0) + 1)


def test_a_mesh_entered_by_with_alone_places_nothing():
    with mesh_of(2):
        assert not wnp.arange(8).committed
    with weft.set_mesh(mesh_of(2)), mesh_of(4, name="y"):
        assert wnp.arange(8).sharding.mesh == mesh_of(2)


def test_a_program_that_was_compiled_outside_is_compiled_again():
    f, mesh = weft.jit(lambda: wnp.arange(4) * 2), mesh_of(2)
    assert not f().committed
    with weft.set_mesh(mesh):
        assert lies_on(f(), mesh)
    assert not f().committed


def test_set_for_good_and_for_one_thread():
    f, x, mesh, committed = weft.jit(lambda x: x + 1), wnp.arange(4.0), mesh_of(2), []
    weft.set_mesh(mesh)
    try:
        assert all(lies_on(f(x), mesh) for _ in range(5))
        thread = threading.Thread(target=lambda: committed.append(f(x).committed))
        thread.start()
        thread.join()
    finally:
        weft.set_mesh(None)
    assert committed == [False]
    assert not f(x).committed


def test_no_mesh_inside_of_one():
    with weft.set_mesh(mesh_of(2)), use_mesh(None):
        assert not wnp.ones(3).committed


def test_constants_are_no_ones_mesh():
    table = np.arange(4.0)
    f = weft.jit(lambda x: x + wnp.asarray(table))
    with weft.set_mesh(mesh_of(2)):
        assert lies_on(f(wnp.ones(4)), mesh_of(2))
    assert not f(wnp.ones(4)).committed


def test_lowered_programs_run_on_the_mesh():
    mesh = mesh_of(2)
    with weft.set_mesh(mesh):
        compiled = (
            weft.jit(lambda x: x * 2).lower(weft.ShapeDtypeStruct((4,), np.float32)).compile()
        )
        assert lies_on(compiled(wnp.ones(4)), mesh)


def test_types_without_sharding_replicate_on_the_context_mesh():
    mesh, seen = mesh_of(2), []
    f = lambda x: (seen.append(weft.typeof(x * 2).sharding), x * 2)[1]
    with weft.set_mesh(mesh):
        assert weft.typeof(wnp.ones((4, 2))).sharding == NamedSharding(
            mesh.abstract_mesh, P(None, None)
        )
        weft.jit(f)(wnp.ones(4))
        with use_mesh(mesh.abstract_mesh.update(axis_names=("a",))):
            weft.jit(f)(wnp.ones(4))
        plain = weft.typeof(wnp.ones(4))
        assert plain.update(sharding=plain.sharding) is plain  # an empty sharding changes nothing
    assert [s.mesh.axis_names for s in seen] == [("x",), ("a",)] and plain.sharding.mesh.empty
    with weft.set_mesh(mesh_of(2, AxisType.Explicit)):
        alone = weft.device_put(wnp.ones(4), weft.devices()[0])
        assert (
            weft.typeof(alone).sharding.mesh.empty
            and not weft.typeof(wnp.ones(4)).sharding.mesh.empty
        )


@pytest.mark.parametrize(
    "kinds",
    [(AxisType.Explicit,) * 2, (AxisType.Auto, AxisType.Explicit), (AxisType.Auto,) * 2],
    ids=str,
)
def test_types_of_new_values_name_the_context_mesh(kinds):
    mesh = weft.make_mesh((2, 2), ("x", "y"), kinds, devices=weft.devices()[:4])
    seen = []

    def see(x):
        seen.append(weft.typeof(x).sharding)
        return x

    with weft.set_mesh(mesh):
        weft.jit(lambda: see(wnp.ones(4)) + see(wnp.arange(4) * 2.0))()
        weft.jit(lambda x: weft.grad(lambda x: see(x * 2))(x))(1.0)
        weft.jit(weft.vmap(lambda x: see(wnp.sin(x))))(np.ones(2, np.float32))
        weft.make_jaxpr(lambda x: weft.lax.scan(lambda c, e: (see(c) + e, e), 0.0, x))(
            np.ones(3, np.float32)
        )
    assert len(seen) >= 5 and all(s.mesh is mesh.abstract_mesh and not s.spec.axes for s in seen)
    manual = []
    weft.jit(
        weft.shard_map(
            lambda x: manual.append(weft.typeof(x).sharding.mesh) or x,
            mesh=mesh,
            in_specs=P("x"),
            out_specs=P("x"),
        )
    )(np.ones(4, np.float32))
    assert manual[0].manual_axes == ("x", "y")


def test_in_shardings_place_uncommitted_arguments():
    mesh = mesh_of(2)
    with weft.set_mesh(mesh):
        f = weft.jit(lambda x, y: (x * 2, y), in_shardings=(P("x"), None))
        for _ in range(2):
            doubled, same = f(np.arange(8.0), np.arange(3))
            assert doubled.sharding == NamedSharding(mesh, P("x")) and same.devices() == set(
                mesh.flat_devices
            )
            np.testing.assert_allclose(doubled, 2 * np.arange(8.0))


def test_an_argument_that_is_a_result_keeps_its_mesh():
    explicit, auto = mesh_of(2, AxisType.Explicit), mesh_of(2)
    with weft.set_mesh(auto):
        other = wnp.ones(8)
    with weft.set_mesh(explicit):
        out = weft.jit(lambda x, y: (x, y))(weft.device_put(wnp.arange(8.0), P("x")), other)
    assert [x.sharding.mesh.axis_types[0] for x in out] == [AxisType.Explicit, AxisType.Auto]


def test_types_of_a_mesh_other_than_the_context_are_refused():
    mesh = weft.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    with weft.set_mesh(mesh):
        x = weft.device_put(wnp.ones((4, 4)), P("x"))
        with (
            use_mesh(mesh.abstract_mesh.update_axis_types({"x": AxisType.Auto})),
            pytest.raises(ValueError, match="context mesh and aval"),
        ):
            weft.jit(lambda x: x * 2)(x)
    with (
        use_mesh(mesh.abstract_mesh.update(axis_sizes=(4,))),
        pytest.raises(ValueError, match=r"context mesh(.|\n)*'x': 4"),
    ):
        weft.jit(lambda x: x * 2).trace(
            weft.ShapeDtypeStruct((8, 2), np.float32, sharding=NamedSharding(mesh, P("x")))
        )


def test_a_constraint_splits_what_explicit_axes_leave():
    mesh = weft.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
    values = np.arange(16.0).reshape(8, 2)
    with weft.set_mesh(mesh):
        x = weft.device_put(values, P("x"))
        out = weft.jit(lambda x: weft.lax.with_sharding_constraint(x, P("y")))(x)
        assert out.sharding.is_equivalent_to(NamedSharding(mesh, P(("x", "y"))), 2)
        np.testing.assert_array_equal(out, values)
        second = weft.jit(
            lambda x: weft.lax.with_sharding_constraint(x * 1, P(P.UNCONSTRAINED, "y"))
        )(x)
        assert second.sharding.is_equivalent_to(NamedSharding(mesh, P("x", "y")), 2)


def test_arrays_are_asked_for_where_they_are_committed():
    first, second = weft.devices()[:2]
    x = weft.device_put(wnp.arange(4.0), first)
    assert wnp.array(x, device=first).devices() == {first} and wnp.array(
        wnp.arange(4.0), device=second
    ).devices() == {second}
    with pytest.raises(ValueError, match=r"incompatible devices(.|\n)*device_put"):
        wnp.array(x, device=second)


@pytest.mark.parametrize("name", ["segment_max", "segment_min", "segment_prod"])
def test_only_sums_of_segments_are_left_unreduced(name):
    mesh = mesh_of(2, AxisType.Explicit)
    with weft.set_mesh(mesh):
        x, ids = (
            weft.device_put(np.array(v, np.int32), P("x")) for v in ([3, 1, 2, 5], [0, 0, 1, 1])
        )
        f = weft.jit(
            lambda x, ids, spec: getattr(weft.segment_ops, name)(x, ids, 2, out_sharding=spec),
            static_argnums=2,
        )
        assert f(x, ids, P()).shape == (2,)
        with pytest.raises(NotImplementedError, match="only sums"):
            f(x, ids, P(unreduced={"x"}))


def test_whole_values_from_outside_fit_the_mesh_of_the_context():
    mesh = mesh_of(2, AxisType.Explicit)
    with weft.set_mesh(mesh):

        def f(scale, x):
            model = weft.sharding.auto_axes(lambda x: scale * x, out_sharding=P())
            return weft.lax.scan(lambda c, _: (model(c), None), x, None, length=3)[0]

        assert float(weft.jit(weft.grad(f))(1.0, 2.0)) == 6.0
        mapped = weft.shard_map(
            lambda: weft.lax.pcast(wnp.array([1, 2]), "x", to="varying") * 2,
            in_specs=(),
            out_specs=P("x"),
        )
        for wrap in (weft.jit, lambda f: f):
            assert wrap(mapped)().tolist() == [2, 4, 2, 4]


def test_the_last_make_mesh_decides_whether_types_were_given():
    options = {"axis_types": (AxisType.Auto,), "devices": weft.devices()[:2]}
    x = weft.device_put(
        np.arange(4.0), NamedSharding(weft.make_mesh((2,), ("k",), **options), P("k"))
    )
    for types in ({}, options, {}):
        mesh = weft.make_mesh((2,), ("k",), **{"devices": weft.devices()[:2], **types})
        with weft.set_mesh(mesh):
            moved = weft.jit(lambda x: weft.sharding.reshard(x, P(None)))(x)
        assert moved.sharding.spec == (P("k") if types else P(None))
