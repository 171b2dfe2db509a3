"""Meshes, specs, shardings, the mesh of a program."""

import copy
import pickle

import numpy as np
import pytest

import weft
from weft._engine.ir.mesh import (
    AbstractDevice,
    AbstractMesh,
    AxisType,
    Mesh,
    current_mesh,
    get_abstract_mesh,
    set_mesh,
    use_abstract_mesh,
    use_mesh,
)
from weft._engine.ir.program_mesh import check_same_devices, common_mesh, sharding_of_spec, to_spec
from weft._engine.ir.shardings import (
    NamedSharding,
    PositionalSharding,
    SingleDeviceSharding,
    layout_of,
)
from weft._engine.ir.specs import P, PartitionSpec
from weft._engine.runtime.device import devices
from weft._engine.runtime.topology import create_device_mesh, create_hybrid_device_mesh, make_mesh
from weft._engine.util.config import Override
from weft._engine.util.errors import ShardingError


@pytest.fixture
def mesh() -> Mesh:
    return make_mesh((4, 2), ("a", "b"))


def test_mesh_facts(mesh):
    assert str(mesh) == "Mesh('a': 4, 'b': 2, axis_types=(Auto, Auto))"
    assert repr(mesh) == "Mesh(axis_sizes=(4, 2), axis_names=('a', 'b'), axis_types=(Auto, Auto))"
    assert dict(mesh.shape) == {"a": 4, "b": 2}
    assert mesh.size == 8 and not mesh.empty and mesh.local_mesh is mesh
    assert mesh.device_ids.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert mesh is Mesh(create_device_mesh((4, 2)), ("a", "b"))
    assert mesh.abstract_mesh is AbstractMesh((4, 2), ("a", "b")) and mesh.abstract_mesh.size == 8
    assert AbstractMesh((("a", 4), ("b", 2))) is mesh.abstract_mesh
    assert pickle.loads(pickle.dumps(mesh)) is mesh and copy.deepcopy(mesh) is mesh
    explicit = make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    assert (
        explicit.explicit_axes == ("x",) and str(explicit) == "Mesh('x': 8, axis_types=(Explicit,))"
    )


def test_current_mesh(mesh):
    other = make_mesh((8,), ("x",))
    assert current_mesh() is None and get_abstract_mesh().empty
    with mesh:
        assert current_mesh() is mesh
        with other:
            assert get_abstract_mesh() is other.abstract_mesh
        with use_mesh(other):
            assert current_mesh() is other
        assert current_mesh() is mesh
    assert current_mesh() is None
    set_mesh(mesh)
    assert current_mesh() is mesh
    with set_mesh(other):
        assert current_mesh() is other
    assert current_mesh() is mesh
    set_mesh(None)
    assert current_mesh() is None


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Mesh(create_device_mesh((4, 2)), ("a",)), "rank 2, but 1 axis names"),
        (lambda: Mesh(create_device_mesh((4, 2)), ("a", "a")), "repeat a name"),
        (lambda: Mesh(devices()[:1] * 2, ("a",)), "more than once"),
        (
            lambda: make_mesh((5, 2), ("a", "b")),
            "Number of devices 8 must be >= the product of mesh_shape (5, 2)",
        ),
        (
            lambda: create_device_mesh((3, 2)),
            "Number of devices 8 must equal the product of mesh_shape (3, 2)",
        ),
        (lambda: NamedSharding(make_mesh((8,), ("x",)), P("y")), "axis: y of P('y',) is not found"),
        (lambda: NamedSharding(make_mesh((8,), ("x",)), P("x", "x")), "duplicate entries for 'x'"),
        (
            lambda: NamedSharding(make_mesh((8,), ("x",)), P(None, "x")).shard_shape((8,)),
            "rank at least 2",
        ),
        (
            lambda: PositionalSharding(devices()).shard_shape((8, 8)),
            "only valid for values of rank 1",
        ),
        (lambda: PositionalSharding(devices()).reshape(4, 2).shard_shape((8,)), "congruent"),
        (lambda: PositionalSharding([]), "empty"),
    ],
)
def test_errors(make, words):
    with pytest.raises(ShardingError) as caught:
        make()
    assert words in str(caught.value)


def test_divisibility_error_names_dims_sizes_and_remedy(mesh):
    with pytest.raises(ValueError) as caught:
        NamedSharding(mesh, P("a", "b")).shard_shape((6, 8))
    text = str(caught.value)
    assert (
        "dim 0 has size 6" in text
        and "mesh axis 'a' of size 4" in text
        and "Pad dim 0 to 8" in text
    )
    with pytest.raises(ValueError, match="dim 1 has size 5"):
        PositionalSharding(devices()).reshape(4, 2).shard_shape((8, 5))


def test_specs():
    assert P("a", None) != P("a") == P(("a",)) and hash(P("a")) == hash(P(("a",)))
    assert P("a", "b") != P("b", "a") and P("a") != ("a",)
    assert repr(P("a", None)) == "P('a', None)"
    assert (
        repr(P(("a",), ["b"], (), ["c", "d"])) == "P('a', 'b', None, ('c', 'd'))"
        and P(("a",))[0] == "a"
    )
    assert tuple(P("a", None)) == ("a", None) and len(P("a", None)) == 2 and P("a")[0] == "a"
    assert repr(P("a") + P("b")) == "P('a', 'b')"
    assert P(("a", "b"), PartitionSpec.UNCONSTRAINED).dims(3) == (("a", "b"), (), ())
    assert P("a", P.UNCONSTRAINED).unconstrained_dims() == {1}
    assert pickle.loads(pickle.dumps(P(P.UNCONSTRAINED, "a"))) == P(P.UNCONSTRAINED, "a")


def test_named_sharding(mesh):
    s = NamedSharding(mesh, P("b", "a"))
    assert s.shard_shape((8, 8)) == (4, 2)
    assert s.devices_indices_map((8, 8))[devices()[3]] == (slice(4, 8), slice(2, 4))
    assert NamedSharding(mesh, P("a")).devices_indices_map((8, 8))[devices()[3]] == (
        slice(2, 4),
        slice(None),
    )
    assert s.splits((8, 8)) == (2, 4) and s.shard_of_device(2)[3] == (1, 1)
    short, long = NamedSharding(mesh, P("a")), NamedSharding(mesh, P("a", None))
    assert (
        short != long
        and short.is_equivalent_to(long, 2)
        and short == NamedSharding(mesh, P(("a",)))
    )
    assert NamedSharding(mesh, P()).is_fully_replicated and not s.is_fully_replicated
    assert s.is_fully_addressable and s.num_devices == 8 and s.device_set == set(devices())
    assert repr(s) == (
        "NamedSharding(mesh=Mesh('a': 4, 'b': 2, axis_types=(Auto, Auto)), "
        "spec=P('b', 'a'), memory_kind=device)"
    )
    assert s.with_memory_kind("pinned_host").memory_kind == "pinned_host"
    assert pickle.loads(pickle.dumps(s)) == s and s.format_dims((8, 8)) == "8@b,8@a"


def test_free_dim(mesh):
    assert NamedSharding(mesh, P("a", "b")).with_free_dim(1).spec == P("a", P.UNCONSTRAINED, "b")
    assert NamedSharding(mesh, P("a")).with_free_dim(2).spec == P("a", None, P.UNCONSTRAINED)
    assert PositionalSharding(devices()).reshape(4, 2).with_free_dim(1).shape == (4, 1, 2)


def test_positional_sharding_prints_sets():
    s = PositionalSharding(devices())
    assert (
        repr(s)
        == "PositionalSharding([{CPU 0} {CPU 1} {CPU 2} {CPU 3} {CPU 4} {CPU 5} {CPU 6} {CPU 7}])"
    )
    s = s.reshape(4, 2)
    assert repr(s) == (
        "PositionalSharding([[{CPU 0} {CPU 1}]\n"
        "                    [{CPU 2} {CPU 3}]\n"
        "                    [{CPU 4} {CPU 5}]\n"
        "                    [{CPU 6} {CPU 7}]])"
    )
    assert repr(s.replicate(0)) == "PositionalSharding([[{CPU 0, 2, 4, 6} {CPU 1, 3, 5, 7}]])"
    assert (
        s.replicate(0).shape == (1, 2)
        and s.replicate(1).shape == (4, 1)
        and s.replicate().shape == (1, 1)
    )
    assert s.replicate(1, keepdims=False).shape == (4,) and s.replicate(-1) == s.replicate(1)
    assert s.T.shape == (2, 4) and s.replicate(0).T.shape == (2, 1)
    assert (
        pickle.loads(pickle.dumps(s.T)) == s.T and hash(s.T) == hash(s.T) and s.T != s.reshape(2, 4)
    )


def test_positional_and_named_are_equivalent(mesh):
    s = PositionalSharding(create_device_mesh((4, 2)))
    for positional, spec in [
        (s, P("a", "b")),
        (s.T, P("b", "a")),
        (s.replicate(0), P(None, "b")),
        (s.replicate(1), P("a")),
        (s.replicate(), P()),
        (s.replicate(0).T, P("b")),
        (s.reshape(8, 1), P(("a", "b"))),
        (s.reshape(1, 8), P(None, ("a", "b"))),
    ]:
        assert positional.is_equivalent_to(NamedSharding(mesh, spec), 2), spec
    assert not s.is_equivalent_to(NamedSharding(mesh, P("b", "a")), 2)
    assert s.replicate(0).shard_shape((8,)) == (4,)  # leading dims of size 1 drop for lower rank
    assert s.replicate().shard_shape((2, 3, 5)) == (2, 3, 5)
    assert SingleDeviceSharding(devices()[2]).shard_shape((3,)) == (3,)


def test_shards_cover_the_array_for_every_spec(mesh):
    for spec in [P(), P("a"), P("b", "a"), P(("a", "b")), P(("b", "a")), P(None, ("b", "a"))]:
        s = NamedSharding(mesh, spec)
        seen = np.zeros((8, 8), int)
        for index in s.devices_indices_map((8, 8)).values():
            seen[index] += 1
        assert (seen == 8 * layout_of(s, 2).num_shards ** -1).all()


def test_common_mesh_named(mesh):
    s = [NamedSharding(mesh, P("a")), NamedSharding(mesh, P("b", "a"))]
    assert common_mesh(s) is mesh
    positional = PositionalSharding(devices()).reshape(4, 2)
    assert common_mesh([*s, positional]) is mesh
    assert to_spec(positional.T, mesh, 2) == (("b",), ("a",))


def test_common_mesh_refines(mesh):
    eight = PositionalSharding(devices())
    both = common_mesh([eight.reshape(4, 2), eight.reshape(2, 4)])
    assert both.axis_sizes == (2, 2, 2)
    assert to_spec(eight.reshape(2, 4), both, 2) == (("d0",), ("d1", "d2"))
    assert to_spec(eight.reshape(4, 2).T, both, 2) == (("d2",), ("d0", "d1"))
    assert common_mesh([eight.reshape(8, 1), eight.replicate()]).axis_sizes == (8,)
    other = make_mesh((2, 4), ("x", "y"))
    refined = common_mesh([NamedSharding(mesh, P("a", "b")), NamedSharding(other, P("x", "y"))])
    assert refined.axis_names == ("a.0", "a.1", "b")
    assert to_spec(NamedSharding(other, P("x", "y")), refined, 2) == (("a.0",), ("a.1", "b"))
    for s in [
        NamedSharding(other, P("y", "x")),
        NamedSharding(mesh, P("b")),
        eight.reshape(4, 2).T,
    ]:
        assert s.is_equivalent_to(sharding_of_spec(to_spec(s, refined, 2), refined), 2)


def test_common_mesh_of_what_no_factoring_serves():
    six = PositionalSharding(devices()[:6])
    odd = six.reshape(2, 3).T.reshape(2, 3)
    plain = six.reshape(2, 3)
    program = common_mesh([plain, odd])
    assert to_spec(plain, program, 2) is not None and to_spec(odd, program, 2) is None


def test_sharding_shown_to_users(mesh):
    eight = PositionalSharding(devices())
    program = common_mesh([eight.reshape(4, 2), eight.replicate()])
    known = [eight.reshape(4, 2), eight.replicate()]
    assert sharding_of_spec((("d0",), ("d1",)), program, known) is known[0]
    assert sharding_of_spec((("d1",), ()), program, known) == eight.reshape(4, 2).replicate(0).T
    assert sharding_of_spec((("a",),), mesh, [NamedSharding(mesh, P())]) == NamedSharding(
        mesh, P("a")
    )


def test_incompatible_devices():
    some = devices()
    first, second = PositionalSharding(some[:4]), PositionalSharding(some[4:])
    with pytest.raises(ValueError) as caught:
        check_same_devices(
            [first, second],
            [
                "argument x of add with shape float32[8,8]",
                "argument y of add with shape float32[8,8]",
            ].__getitem__,
        )
    text = str(caught.value)
    assert text.startswith(
        "Received incompatible devices for jitted computation. Got argument x of add with shape "
        "float32[8,8] and device ids [0, 1, 2, 3] on platform CPU and argument y of add"
    )
    permuted = [some[i] for i in [0, 1, 2, 3, 6, 7, 4, 5]]
    with pytest.raises(ValueError, match="order differs"):
        common_mesh([PositionalSharding(some), PositionalSharding(permuted)])


def test_a_mesh_with_manual_axes_is_not_set():
    manual = Mesh(np.array(devices()[:2]), ("i",), axis_types=(AxisType.Manual,))
    with pytest.raises(ValueError, match="contains manual axes"):
        set_mesh(manual)
    with use_mesh(manual):
        assert current_mesh() is manual


class Chip:
    """A device at a place, of a chip with one core or two; its number counts along x, then y, then z."""

    process_index, slice_index, platform = 0, 0, "tpu"

    def __init__(self, number: int, coords: tuple, kind: str, core: int = 0):
        self.id, self.coords, self.device_kind, self.core_on_chip = number, coords, kind, core


def chips(x: int, y: int, z: int, kind: str, cores: int = 1) -> list[Chip]:
    places = [
        (i, j, k, c) for k in range(z) for j in range(y) for i in range(x) for c in range(cores)
    ]
    return [Chip(n, place[:3], kind, place[3]) for n, place in enumerate(places)]


def numbers(shape: tuple, devices: list, **options) -> list:
    grid = create_device_mesh(shape, devices, **options)
    assert grid.shape == shape
    return np.vectorize(lambda d: d.id)(grid).tolist()


def test_chips_of_a_plane_are_put_in_a_ring():
    plane = chips(4, 2, 1, "TPU v5 lite")
    assert numbers((8,), plane) == [0, 1, 2, 3, 7, 6, 5, 4] == numbers((8,), plane[::-1])
    assert numbers((2, 4), plane) == [[0, 1, 2, 3], [7, 6, 5, 4]]
    assert numbers((2, 2), chips(2, 2, 1, "TPU v6 lite")) == [[0, 1], [3, 2]]
    assert numbers((8,), chips(2, 4, 1, "TPU v5 lite")) == [0, 2, 4, 6, 7, 5, 3, 1]
    square = chips(4, 4, 1, "TPU v5 lite")
    assert numbers((16,), square) == [0, 1, 2, 3, 7, 6, 5, 9, 10, 11, 15, 14, 13, 12, 8, 4]
    assert numbers((4, 4), square) == np.arange(16).reshape(4, 4).tolist()
    for x, y in ((4, 4), (6, 3), (8, 8), (2, 6)):
        ring = create_device_mesh((x * y,), chips(x, y, 1, "TPU v5 lite"))
        for a, b in zip(ring, np.roll(ring, 1)):
            assert np.abs(np.subtract(a.coords, b.coords)).sum() == 1


def test_gpus_are_in_the_order_of_their_ids():
    gpus = chips(1, 1, 8, "NVIDIA H100 80GB HBM3")
    for gpu in gpus:
        gpu.platform = "gpu"
    assert numbers((4, 2), gpus[::-1]) == np.arange(8).reshape(4, 2).tolist()


def test_make_mesh_splits_the_axes_of_a_plane():
    square = chips(4, 4, 1, "TPU v5 lite")
    mesh = make_mesh((8, 2), ("a", "b"), devices=square)
    assert sorted(d.id for d in mesh.devices.flat) == list(range(16))
    with pytest.raises(NotImplementedError, match="no whole free axes of the torus"):
        make_mesh((8, 2), ("a", "b"), devices=chips(4, 4, 1, "TPU v4"))


def test_trays_of_chips_with_two_cores_are_rings():
    tray = [0, 1, 2, 3, 6, 7, 4, 5]
    assert numbers((8,), chips(2, 2, 1, "TPU v3", 2)) == tray
    assert numbers((2, 4), chips(2, 2, 1, "TPU v3", 2)) == [tray[:4], tray[4:]]
    stacked = chips(2, 2, 4, "TPU7x", 2)
    assert numbers((4, 8), stacked) == [[8 * k + n for n in tray] for k in range(4)]
    listed = sorted(
        chips(4, 4, 1, "TPU v3", 2), key=lambda d: (d.coords[1] // 2, d.coords[0] // 2)
    )  # tray by tray
    assert numbers((4, 8), listed)[0] == [0, 1, 2, 3, 10, 11, 8, 9] and numbers((16, 2), listed)[
        0
    ] == [0, 1]


def test_axes_of_a_torus_make_the_dims_of_a_mesh():
    cube = chips(4, 4, 4, "TPU v4")
    by_number = np.arange(64).reshape(4, 4, 4).T  # by x, y, z
    assert numbers((64,), cube) == by_number.reshape(-1).tolist()
    assert (
        numbers((16, 4), cube) == by_number.transpose(1, 2, 0).reshape(16, 4).tolist()
    )  # the last dim chooses first
    assert numbers((1, 4, 16), cube) == by_number.transpose(2, 0, 1).reshape(1, 4, 16).tolist()
    long = np.arange(128).reshape(8, 4, 4).T
    assert (
        numbers((8, 16), chips(4, 4, 8, "TPU v4"))
        == long.transpose(2, 0, 1).reshape(8, 16).tolist()
    )
    with pytest.raises(NotImplementedError, match="allow_split_physical_axes"):
        numbers((8, 8), cube)
    halves = by_number.reshape(4, 2, 2, 4)  # x and a half of y are in the last dim
    assert (
        numbers((8, 8), cube, allow_split_physical_axes=True)
        == np.moveaxis(halves, (1, 3), (0, 1)).reshape(8, 8).tolist()
    )
    assert sorted(np.ravel(numbers((2, 1, 32), cube, allow_split_physical_axes=True))) == list(
        range(64)
    )


def test_devices_that_fill_no_grid_keep_their_order():
    plane = chips(4, 2, 1, "TPU v5 lite")
    assert numbers((6,), plane[:3] + plane[5:]) == [0, 1, 2, 5, 6, 7]
    assert numbers((2, 2), [plane[i] for i in (0, 1, 2, 7)]) == [[0, 1], [2, 7]]


def test_equal_specs_are_one_object():
    for a, b in [
        (P("x", None), P(("x",), ())),
        (P(), P()),
        (P(["x", "y"]), P(("x", "y"))),
        (P(unreduced={"x"}), P(unreduced={"x"})),
        (P(None, "x"), pickle.loads(pickle.dumps(P((), "x")))),
        (P("x", reduced={"y"}), copy.deepcopy(P("x", reduced={"y"}))),
    ]:
        assert a is b
    assert (
        P("x") is not P("x", None)
        and P("x") != P("x", None)
        and P("x").update(partitions=("x", None)) is P("x", None)
    )
    with pytest.raises(TypeError, match="prohibited"):
        type("Spec", (PartitionSpec,), {})


def test_memory_kinds_over_meshes_without_devices(mesh):
    abstract = mesh.abstract_mesh
    assert (
        NamedSharding(mesh, P()).memory_kind == "device"
        and NamedSharding(abstract, P()).memory_kind is None
    )
    host = NamedSharding(abstract, P("a"), memory_kind="pinned_host")
    assert host.memory_kind == host.with_spec(
        P("b")
    ).memory_kind == "pinned_host" and host != NamedSharding(abstract, P("a"))
    assert NamedSharding(abstract, P("a"), memory_kind="device") != NamedSharding(abstract, P("a"))
    assert pickle.loads(pickle.dumps(host)) == host
    with pytest.raises(ValueError, match="invalid memory kind 'disk'"):
        NamedSharding(abstract, P(), memory_kind="disk")


def test_entering_a_mesh_is_deprecated_from_today_on(mesh):
    for version in (None, "0.4.30", "0.10.0"):
        with Override(jax_api=version), mesh:
            assert current_mesh() is mesh
    with Override(jax_api="0.10.1"):
        with pytest.warns(DeprecationWarning, match=r"`with mesh:` is deprecated") as warned, mesh:
            assert current_mesh() is mesh
        with pytest.warns(DeprecationWarning, match=r"set_mesh"):
            assert mesh(current_mesh)() is mesh
        with set_mesh(mesh):
            assert current_mesh() is mesh
    assert [one.filename for one in warned] == [__file__]


@pytest.mark.parametrize(
    "settings", [{"jax_api": "0.10.2"}, {"disallow_mesh_context_manager": True}]
)
def test_shard_map_enters_its_mesh_without_a_word(mesh, settings):
    with Override(**settings):
        f = weft.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P("a"), out_specs=P("a"))
        for g in (f, weft.jit(f), weft.grad(lambda x: f(x).sum()), weft.vmap(f)):
            assert float(np.sum(g(np.ones((4, 8), np.float32)))) == 64


@pytest.mark.parametrize("shape", [((4,), 4), (2.0, 4), ("2", "4")])
def test_sizes_of_device_grids_are_ints(shape):
    with pytest.raises(ValueError, match="should be a sequence of ints"):
        create_device_mesh(shape)


def test_granules_are_the_slices_that_devices_name():
    class Chip:
        def __init__(self, id):
            self.id, self.process_index, self.slice_index = id, id // 2, id // 4

    chips = [Chip(i) for i in range(8)]
    ids = lambda grid: [[d.id for d in row] for row in grid]
    assert ids(create_hybrid_device_mesh((1, 4), (2, 1), chips[::-1])) == [
        [3, 2, 1, 0],
        [7, 6, 5, 4],
    ]
    assert ids(
        create_hybrid_device_mesh((1, 4), (2, 1), chips[::-1], should_sort_granules_by_key=False)
    ) == [[7, 6, 5, 4], [3, 2, 1, 0]]
    assert ids(create_hybrid_device_mesh((1, 2), (4, 1), chips, process_is_granule=True)) == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]
    with pytest.raises(ShardingError, match="Number of slices 2 must equal"):
        create_hybrid_device_mesh((1, 2), (4, 1), chips)


def test_a_mesh_without_devices_says_which_it_is_meant_for():
    gpu = AbstractDevice("gpu", 1, "cuda")
    there = AbstractMesh((2,), ("x",), abstract_device=gpu)
    here = AbstractMesh((2,), ("x",))
    assert (
        there.abstract_device is gpu
        and there is not here
        and there.update(axis_sizes=(3,)).abstract_device is gpu
    )
    assert (
        pickle.loads(pickle.dumps(there)) is there
        and "platform='cuda'" in repr(there)
        and "device" not in repr(here)
    )
    home = here.abstract_device
    assert home.platform == weft.devices()[0].platform and here.update(abstract_device=home) is here
    assert (
        weft.make_mesh((2,), ("x",), devices=weft.devices()[:2]).abstract_mesh is here
        and AbstractMesh((), ()).abstract_device is None
    )
    with pytest.raises(TypeError, match="must be an AbstractDevice"):
        AbstractMesh((2,), ("x",), abstract_device="cuda")


@pytest.mark.parametrize("types", [AxisType.Explicit, AxisType.Auto])
def test_shard_map_over_a_mesh_without_devices_is_lowered(types):
    with use_abstract_mesh(
        AbstractMesh((4,), ("x",), (types,), abstract_device=AbstractDevice("gpu", 1, "cuda"))
    ):
        seen = []

        def body(x):
            seen.append((x.shape, get_abstract_mesh().abstract_device.platform))
            return weft.lax.psum(x, "x")

        f = weft.jit(weft.shard_map(body, in_specs=PartitionSpec("x"), out_specs=PartitionSpec()))
        lowered = f.lower(weft.ShapeDtypeStruct((8, 4), np.float32))
        assert (
            seen == [((2, 4), "cuda")]
            and "all_reduce" in lowered.as_text()
            and lowered.out_info.shape == (2, 4)
        )
        with pytest.raises(ShardingError, match="no devices"):
            f(np.ones((8, 4), np.float32))


def test_handlers_of_a_kind_of_devices_arrange_meshes():
    from weft.experimental import mesh_utils

    devices, calls = weft.devices()[:4], []

    def reversed_devices(shape, devices, contiguous_submeshes):
        calls.append((shape, contiguous_submeshes))
        return np.array(devices[::-1]).reshape(shape) if shape == (2, 2) else None

    mesh_utils.device_kind_handler_dict[devices[0].device_kind] = reversed_devices
    try:
        assert (
            mesh_utils.create_device_mesh((2, 2), devices, contiguous_submeshes=True)
            .ravel()
            .tolist()
            == devices[::-1]
        )
        assert mesh_utils.create_device_mesh((4,), devices).tolist() == devices
    finally:
        mesh_utils.device_kind_handler_dict.clear()
    assert calls == [((2, 2), True), ((4,), False)]
    assert mesh_utils.create_device_mesh((2, 2), devices).ravel().tolist() == devices
