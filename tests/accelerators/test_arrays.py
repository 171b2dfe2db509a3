"""Arrays on the devices of a plugin: dtypes, shards, moves, memory kinds, deletion, donation, asynchrony."""

import itertools
import time

import numpy as np
import pytest

import weft
from weft import numpy as wnp
from weft._engine.backends.pjrt.c_api import ELEMENT_NUMBERS
from weft._engine.util import dtypes
from weft.experimental.layout import Format, Layout
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

SHAPES = [(), (3,), (0,), (2, 3), (4, 0, 2), (5, 2, 3)]
MATRIX = np.arange(64, dtype=np.float32).reshape(8, 8)


def numbers(shape, dtype):
    """Return small values that every dtype has."""
    steps = np.arange(int(np.prod(shape))) % 3
    is_unsigned = dtype.name.startswith(("uint", "bool", "float8_e8m0"))
    return (steps if is_unsigned else steps - 1).reshape(shape).astype(dtype)


@pytest.mark.parametrize("name", ELEMENT_NUMBERS)
def test_values_of_a_dtype_arrive_and_return(devices, name):
    dtype = dtypes.as_dtype(name)
    if "float4" in name and devices[0].client.client.library.version < (0, 115):
        pytest.skip("this plugin's compiler has no float4_e2m1fn")
    with weft.enable_x64(True):
        for shape in SHAPES:
            value = numbers(shape, dtype)
            x = weft.device_put(value, devices[1])
            reversed_ = weft.jit(lambda x: x.reshape(-1)[::-1].reshape(x.shape))(x)
            moved = weft.device_put(reversed_, devices[6])
            assert x.dtype == dtype and moved.devices() == {devices[6]}
            assert np.asarray(x).tobytes() == value.tobytes()
            assert np.asarray(moved).tobytes() == value.reshape(-1)[::-1].tobytes()


def shardings_of(devices):
    """Return shardings over 1, 4 and 8 of these devices, in several orders and memory kinds."""
    grid = np.array(devices).reshape(4, 2)
    meshes = [grid, grid[::-1, ::-1].reshape(2, 4), grid[:2]]
    specs = [P(), P("a"), P("b", "a"), P(None, ("b", "a"))]
    named = [
        NamedSharding(Mesh(mesh, ("a", "b")), spec)
        for mesh, spec in itertools.product(meshes, specs)
    ]
    hosts = [NamedSharding(Mesh(grid, ("a", "b")), P("a"), memory_kind="pinned_host")]
    return [SingleDeviceSharding(devices[0]), SingleDeviceSharding(devices[5]), *named, *hosts]


def check_placement(x, sharding, value):
    """Check the values of the whole array and of each device's shard, and that programs read them."""
    assert x.sharding == sharding
    assert np.array_equal(np.asarray(x), value)
    for shard in x.addressable_shards:
        assert shard.data.devices() == {shard.device}
        assert np.array_equal(np.asarray(shard.data), value[shard.index])
    assert np.array_equal(np.asarray(weft.jit(lambda x: x.T + 1)(x)), value.T + 1)


@pytest.mark.parametrize("number", range(15))
def test_arrays_move_between_shardings_and_platforms(devices, number):
    first = shardings_of(devices)[number]
    x = weft.device_put(MATRIX, first)
    check_placement(x, first, MATRIX)
    for other in shardings_of(devices):
        check_placement(weft.device_put(x, other), other, MATRIX)
    for other in shardings_of(weft.devices("cpu")):
        on_cpu = weft.device_put(x, other)
        check_placement(on_cpu, other, MATRIX)
        check_placement(weft.device_put(on_cpu, first), first, MATRIX)


def test_memory_kinds_of_devices_are_those_of_the_plugin(devices):
    kinds = [memory.kind for memory in devices[0].addressable_memories()]
    assert devices[0].default_memory().kind in kinds and "pinned_host" in kinds
    for kind in kinds:
        x = weft.device_put(MATRIX, SingleDeviceSharding(devices[2], memory_kind=kind))
        assert x.sharding.memory_kind == kind and np.array_equal(np.asarray(x), MATRIX)
    with pytest.raises(ValueError, match="no memory of kind"):
        devices[0].memory("tape")


def test_puts_copy_the_host_array(devices):
    value = MATRIX.copy()
    x = weft.device_put(value, devices[0])
    value[:] = 0
    assert np.array_equal(np.asarray(x), MATRIX)


def test_arrays_from_shards_keep_the_shards(mesh, devices):
    sharding = NamedSharding(mesh, P("a", "b"))
    shards = [
        weft.device_put(MATRIX[index], device)
        for device, index in sharding.addressable_devices_indices_map(MATRIX.shape).items()
    ]
    x = weft.make_array_from_single_device_arrays(MATRIX.shape, sharding, shards)
    check_placement(x, sharding, MATRIX)
    array = weft.make_array_from_callback(MATRIX.shape, sharding, lambda index: MATRIX[index])
    check_placement(array, sharding, MATRIX)


def test_terms_of_an_unreduced_sum_stay_on_their_devices(devices):
    mesh = weft.make_mesh(
        (4,), ("k",), devices=devices[:4], axis_types=(weft.sharding.AxisType.Explicit,)
    )
    x = weft.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(mesh, P("k")))
    y = weft.device_put(np.ones((8, 3), np.float32), NamedSharding(mesh, P("k", None)))
    unreduced = NamedSharding(mesh, P(None, unreduced={"k"}))
    terms = weft.jit(lambda x, y: wnp.einsum("k,kn->n", x, y, out_sharding=unreduced))(x, y)
    assert [s.data.tolist()[0] for s in terms.addressable_shards] == [1.0, 5.0, 9.0, 13.0]
    total = weft.jit(lambda t: weft.sharding.reshard(t, NamedSharding(mesh, P(None))))(terms)
    assert total.tolist() == [28.0] * 3


def test_deleted_arrays_free_their_memory(mesh, devices):
    count = devices[0].client.client.library.native.count_buffers
    before = count(0)
    x = weft.device_put(MATRIX, NamedSharding(mesh, P("a", "b")))
    assert count(0) == before + 8
    x.delete()
    assert x.is_deleted() and count(0) == before
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(x)


@pytest.mark.parametrize("spec", [None, P("a", "b"), P("a"), P()])
def test_donated_arguments_give_their_memory_to_results(mesh, devices, spec):
    sharding = devices[3] if spec is None else NamedSharding(mesh, spec)
    double = weft.jit(lambda x, y: (x * 2, x + y), donate_argnums=0)
    x, y = (weft.device_put(np.ones((256, 256), np.float32), sharding) for _ in range(2))
    addresses = {s.device: s.data.unsafe_buffer_pointer() for s in x.addressable_shards}
    result, total = double(x, y)
    assert x.is_deleted() and not y.is_deleted()
    assert addresses == {
        s.device: s.data.unsafe_buffer_pointer() for s in result.addressable_shards
    }
    assert float(result.sum()) == 2 * 256 * 256 == float(total.sum())
    assert float(y.sum()) == 256 * 256


def test_donation_never_overwrites_arrays_that_are_kept(devices):
    x = weft.device_put(MATRIX, devices[0])
    one = NamedSharding(Mesh(np.array(devices[:1]), "a"), P("a"))
    pair = NamedSharding(Mesh(np.array(devices[:2]), "a"), P())
    aliases = [x.addressable_shards[0].data, weft.device_put(x, one), weft.device_put(x, pair)]
    result = weft.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert np.array_equal(np.asarray(result), MATRIX + 1)
    assert x.is_deleted()
    for other in aliases:
        assert np.array_equal(np.asarray(other), MATRIX)


def slow_program(x):
    """Multiply matrices many times; each result depends on the one before."""
    return weft.lax.fori_loop(0, 300, lambda _, x: wnp.tanh(x @ x), x)


def test_calls_return_before_their_results_are_ready(devices):
    f = weft.jit(slow_program)
    x = weft.device_put(np.eye(256, dtype=np.float32), devices[0])
    weft.block_until_ready(f(x))
    start = time.perf_counter()
    y = f(x)
    z = f(y)
    returned = time.perf_counter() - start
    was_ready = z.is_ready()
    z.block_until_ready()
    finished = time.perf_counter() - start
    assert not was_ready and z.is_ready() and y.is_ready()
    assert returned < finished / 3


def test_copies_to_the_host_are_started_early(mesh):
    x = weft.device_put(MATRIX, NamedSharding(mesh, P("a", "b")))
    y = weft.jit(lambda x: x * 2)(x)
    y.copy_to_host_async()
    assert np.array_equal(np.asarray(y), MATRIX * 2)
    assert np.array_equal(np.asarray(y), MATRIX * 2)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_keys_and_scalars_convert(devices, shape):
    with weft.default_device(devices[4]):
        x = wnp.full(shape, 3.0)
        assert x.devices() == {devices[4]}
        assert float(x.sum()) == 3.0 * max(int(np.prod(shape)), 1) and bool((x == 3).all())
        key = weft.random.key(7)
        assert key.devices() == {devices[4]}
        assert np.array_equal(weft.random.key_data(key), [0, 7])


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0)])
def test_arrays_may_be_stored_in_any_order_of_dims(devices, mesh, order):
    value = np.arange(4 * 8 * 6, dtype=np.float32).reshape(4, 8, 6)
    for sharding in (SingleDeviceSharding(devices[2]), NamedSharding(mesh, P("a", "b"))):
        x = weft.device_put(value, Format(Layout(order), sharding))
        y = weft.jit(
            lambda x: (x * 2, x.sum(0)), out_shardings=(Format(Layout(order), sharding), None)
        )(x)
        assert x.format.layout.major_to_minor == order == y[0].format.layout.major_to_minor
        check_placement(x, sharding, value)
        np.testing.assert_array_equal(y[0], value * 2)
        np.testing.assert_array_equal(y[1], value.sum(0))
        np.testing.assert_array_equal(weft.device_put(y[0], devices[0]), value * 2)


def test_programs_run_in_the_order_of_their_calls(devices, mesh):
    """Each program reads the results of the previous one, on one device and on all devices alternately."""
    sharding = NamedSharding(mesh, P("a", "b"))
    step = weft.jit(lambda x: x * 3 % 1009 + 1, donate_argnums=0)
    rotate = weft.jit(lambda x: wnp.roll(x, 1, axis=0) + x.sum() % 7, donate_argnums=0)
    x, expected = weft.device_put(MATRIX, sharding), MATRIX.astype(np.float64)
    for number in range(60):
        if number % 10 == 0:
            x = weft.device_put(x, devices[number % 8])
        if number % 10 == 5:
            x = weft.device_put(x, sharding)
        x = rotate(step(x))
        expected = expected * 3 % 1009 + 1
        expected = np.roll(expected, 1, axis=0) + expected.sum() % 7
    np.testing.assert_array_equal(x, expected)


def test_the_default_device_may_be_named_by_its_platform(devices):
    with weft.default_device("xla"):
        arrays = [wnp.ones(3), wnp.arange(3) + 1, weft.jit(lambda x: x)(np.ones(3))]
    assert all(x.devices() == {devices[0]} for x in arrays)
    assert wnp.ones(3).devices() == {weft.devices("cpu")[0]}


def test_a_function_runs_where_its_arguments_are(devices, mesh):
    """Calls alternate between platforms, devices and shardings; each has a separate program."""
    places = [weft.devices("cpu")[0], devices[0], devices[3], NamedSharding(mesh, P("a", "b"))]
    arrays = [weft.device_put(MATRIX + i, place) for i, place in enumerate(places)]
    f = weft.jit(lambda x: wnp.cumsum(x, axis=0) * 2)
    for number in range(200):
        i = number * 7 % len(places)
        y = f(arrays[i])
        assert y.devices() == arrays[i].devices()
        np.testing.assert_array_equal(y, np.cumsum(MATRIX + i, axis=0) * 2)


def test_arrays_on_different_devices_are_not_mixed(devices):
    x = weft.device_put(MATRIX, devices[0])
    for device in (devices[1], weft.devices("cpu")[0]):
        with pytest.raises(ValueError, match="incompatible devices"):
            x + weft.device_put(MATRIX, device)
    assert (x + MATRIX).devices() == {devices[0]} == (x + wnp.ones(8)).devices()
