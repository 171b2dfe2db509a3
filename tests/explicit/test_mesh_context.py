"""Arrays that nobody placed, while a mesh is set."""

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
    return x.committed and isinstance(x.sharding, NamedSharding) and x.sharding.mesh == mesh and x.sharding.is_fully_replicated


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 4])
def test_new_arrays_and_results_are_on_the_mesh(n, kind):
    mesh, outside = mesh_of(n, kind), wnp.arange(8.)
    with weft.set_mesh(mesh):
        made = [wnp.arange(8), wnp.ones((8, 2)), wnp.array([1, 2]), wnp.asarray(np.arange(3)), wnp.float32(3), wnp.eye(3),
                weft.random.normal(weft.random.key(0), (8,)), outside + 1, outside.sum(), outside[2:4], outside.at[0].set(2.),
                weft.jit(lambda x: x * 2)(outside), weft.jit(lambda x: x)(np.ones(3)), weft.jit(lambda: wnp.ones(3))(),
                weft.vmap(lambda x: x * 2)(outside), weft.grad(lambda x: (x * x).sum())(outside),
                weft.lax.scan(lambda c, x: (c + x, c), 0., outside)[1]]
    assert all(lies_on(x, mesh) for x in made), [x.sharding for x in made if not lies_on(x, mesh)]
    np.testing.assert_allclose(made[7], np.arange(8.) + 1)
    np.testing.assert_allclose(made[-2], 2 * np.arange(8.))
    assert not outside.committed and not (outside + 1).committed          # and nothing outside
    assert not weft.jit(lambda x: x * 2)(outside).committed


def test_split_arguments_meet_unplaced_ones():
    mesh, outside = mesh_of(4), wnp.arange(8.)
    with weft.set_mesh(mesh):
        split = weft.device_put(outside, P("x"))
        both = weft.jit(wnp.add)(split, outside)
    assert both.sharding.spec == P("x")
    np.testing.assert_allclose(both, 2 * np.arange(8.))


def test_placed_arrays_stay_and_those_of_other_devices_are_refused():
    mesh, other = mesh_of(2), weft.device_put(wnp.arange(8.), weft.devices()[0])
    with weft.set_mesh(mesh):
        assert not weft.device_put(np.arange(3)).committed
        assert weft.device_put(np.arange(3), weft.devices()[1]).devices() == {weft.devices()[1]}
        with pytest.raises(ValueError, match="incompatible devices"):
            weft.jit(lambda x: x * 2)(other)
        with pytest.raises(ValueError, match="incompatible devices"):
            other + 1
    np.testing.assert_allclose(other + 1, np.arange(8.) + 1)


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
    f, x, mesh, found = weft.jit(lambda x: x + 1), wnp.arange(4.), mesh_of(2), []
    weft.set_mesh(mesh)
    try:
        assert all(lies_on(f(x), mesh) for _ in range(5))
        thread = threading.Thread(target=lambda: found.append(f(x).committed))
        thread.start()
        thread.join()
    finally:
        weft.set_mesh(None)
    assert found == [False]
    assert not f(x).committed


def test_no_mesh_inside_of_one():
    with weft.set_mesh(mesh_of(2)), use_mesh(None):
        assert not wnp.ones(3).committed


def test_constants_are_no_ones_mesh():
    table = np.arange(4.)
    f = weft.jit(lambda x: x + wnp.asarray(table))
    with weft.set_mesh(mesh_of(2)):
        assert lies_on(f(wnp.ones(4)), mesh_of(2))
    assert not f(wnp.ones(4)).committed


def test_lowered_programs_run_on_the_mesh():
    mesh = mesh_of(2)
    with weft.set_mesh(mesh):
        compiled = weft.jit(lambda x: x * 2).lower(weft.ShapeDtypeStruct((4,), np.float32)).compile()
        assert lies_on(compiled(wnp.ones(4)), mesh)
