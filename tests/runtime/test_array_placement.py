"""Placement of `Array`: shards, committed arrays, `device_put` and transfers to and from the host."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.runtime.array_checks import blocks, same
from weft import random
from weft._engine.backends import array_spec
from weft._engine.runtime.array import Shard
from weft.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding


def test_where_a_new_array_lies():
    x, device = wnp.arange(3), weft.devices()[0]
    assert (
        x.devices() == {device}
        and x.device == device
        and x.sharding == SingleDeviceSharding(device)
    )
    assert x.is_fully_replicated and x.is_fully_addressable and not x.committed
    [shard] = x.addressable_shards
    assert (shard.device, shard.index, shard.replica_id) == (device, (slice(None),), 0)
    same(shard.data, np.arange(3, dtype=np.int32))


def test_the_value_is_known_by_a_second_name(split):
    a, value = split
    np.testing.assert_array_equal(a._value, value)
    assert (
        type(a._value) is np.ndarray
        and not a._value.flags.writeable
        and type(wnp.float32(2)._value) is np.ndarray
    )
    a = a + 1
    a.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        a._value


def test_shards_are_placed_as_their_array(mesh):
    for x, committed, kind in (
        (wnp.arange(4), False, "device"),
        (weft.device_put(wnp.arange(4), weft.devices()[1]), True, "device"),
        (weft.device_put(wnp.arange(4), NamedSharding(mesh, P())), True, "device"),
        (
            weft.device_put(wnp.arange(4), NamedSharding(mesh, P(), memory_kind="pinned_host")),
            True,
            "pinned_host",
        ),
    ):
        assert x.committed is committed
        for shard in x.addressable_shards:
            assert shard.data.committed is committed
            assert shard.data.sharding == SingleDeviceSharding(shard.device, memory_kind=kind)
    assert (
        wnp.arange(4).addressable_data(0) + weft.device_put(wnp.ones(4), weft.devices()[1])
    ).devices() == {weft.devices()[1]}


@pytest.mark.parametrize(
    "make",
    [
        lambda: wnp.arange(8 * 31, dtype=wnp.float32).reshape(8, 31),
        lambda: wnp.ones((8, 31), wnp.bfloat16),
        lambda: random.split(random.key(0), (8, 31)),
    ],
)
@pytest.mark.parametrize("kind", ["device", "pinned_host"])
def test_shard_data_has_the_type_and_placement_of_device_put(make, kind, mesh, monkeypatch):
    value = make()
    for shard in weft.device_put(
        value, NamedSharding(mesh, P("x"), memory_kind=kind)
    ).addressable_shards:
        put = weft.device_put(
            value[shard.index], SingleDeviceSharding(shard.device, memory_kind=kind)
        )
        assert shard.data._spec is put._spec
        spec = shard.data._spec
        monkeypatch.delitem(array_spec._specs, (spec.aval, spec.sharding, True))
        fresh = array_spec.ArraySpec(spec.aval, spec.sharding, True)
        fields = [
            name for name in array_spec.ArraySpec.__slots__ if name not in ("__weakref__", "stored")
        ]
        assert fresh is not spec and [getattr(spec, name) for name in fields] == [
            getattr(fresh, name) for name in fields
        ]
        assert spec.stored is spec and fresh.stored is fresh


def test_shards_of_a_split_array(split, mesh):
    a, value = split
    assert (
        a.devices() == set(weft.devices())
        and a.device == a.sharding
        and not a.is_fully_replicated
        and a.committed
    )
    shards = a.addressable_shards
    assert [s.device.id for s in shards] == list(range(8)) and {s.replica_id for s in shards} == {0}
    for i, shard in enumerate(shards):
        same(shard.data, value[shard.index])
        assert shard.data.shape == (2, 2) and shard.data.devices() == {shard.device}
        same(a.addressable_data(i), value[shard.index])
    assert repr(shards[1]).startswith(
        "Shard(device=CpuDevice(id=1), index=(slice(0, 2, None), slice(2, 4, None)), replica_id=0"
    )
    assert a.on_device_size_in_bytes() == 128


def test_replicas_are_numbered_and_stored_once(mesh):
    value = np.arange(8, dtype=np.float32)
    b = weft.device_put(value, NamedSharding(mesh, P("y")))
    assert [s.replica_id for s in b.addressable_shards] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [s.index for s in b.addressable_shards][:2] == [(slice(0, 4),), (slice(4, 8),)]
    assert np.shares_memory(np.asarray(b.addressable_data(0)), np.asarray(b.addressable_data(2)))
    whole = weft.device_put(value, NamedSharding(mesh, P()))
    assert whole.is_fully_replicated and len(whole.addressable_shards) == 8 and whole.nbytes == 32


def test_committed_arrays_take_others_along(split):
    a, _ = split
    one = weft.devices()[1]
    x = weft.device_put(1.0, one)
    assert x.committed and (x + 1).devices() == {one} and (x + wnp.ones(3)).committed
    assert (x + wnp.ones(3)).devices() == {one}
    assert not (wnp.ones(3) + wnp.ones(3)).committed
    assert (a + wnp.ones(4)).sharding == a.sharding
    assert not weft.device_put(1.0).committed


def test_shardings_of_results(split, mesh):
    a, value = split
    for result, spec, want in [
        (a + 1, P("x", "y"), value + 1),
        (wnp.sin(a), P("x", "y"), np.sin(value)),
        (a.T, P("y", "x"), value.T),
        (a.sum(), P(), value.sum()),
        (a.sum(0), P("y"), value.sum(0)),
        (a[0], P("y"), value[0]),
    ]:
        assert result.sharding == NamedSharding(mesh, spec)
        np.testing.assert_allclose(np.asarray(result), want, rtol=1e-6)


def test_device_put_of_trees(mesh):
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))
    tree = {"a": np.ones((8, 4), np.float32), "b": (wnp.ones(8), 2.0), "c": None}
    one = weft.device_put(tree, weft.devices()[3])
    assert {x.device.id for x in (one["a"], *one["b"])} == {3} and one["c"] is None
    put = weft.device_put([tree["a"], tree["b"][0]], [columns, rows])
    assert [x.sharding for x in put] == [columns, rows]
    prefix = weft.device_put([tree["a"], [wnp.ones(8), wnp.ones((4, 3))]], [columns, rows])
    assert [x.sharding for x in prefix[1]] == [rows, rows]
    same(put[0], tree["a"])


def test_device_put_where_it_already_lies_shares_memory(split):
    a, _ = split
    assert np.shares_memory(blocks(weft.device_put(a, a.sharding)), blocks(a))


def test_device_put_of_a_large_array_again_and_again(mesh):
    """NumPy copies it at first, then a compiled copy."""
    value = np.arange(1 << 19, dtype=np.float32).reshape(512, 1024)
    x = weft.device_put(value, NamedSharding(mesh, P("x", "y")))
    for _ in range(3):
        for spec in (P("y", "x"), P(None, ("x", "y")), P()):
            same(weft.device_put(x, NamedSharding(mesh, spec)), value)


def test_device_put_does_not_share_with_numpy():
    value = np.ones(1024, np.float32)
    x = weft.device_put(value)
    value[:] = 7
    same(x, np.ones(1024, np.float32))


def test_device_put_with_a_spec_and_a_mesh_in_context(mesh):
    with mesh:
        assert weft.device_put(wnp.ones(8), P("x")).sharding == NamedSharding(mesh, P("x"))


def test_device_get_of_trees(split):
    a, value = split
    got = weft.device_get({"a": a, "n": 1, "b": (wnp.arange(3), None)})
    assert type(got["a"]) is np.ndarray and got["n"] == 1 and got["b"][1] is None
    np.testing.assert_array_equal(got["a"], value)


def test_make_array_from_callback_asks_once_per_distinct_shard(mesh):
    value, asked = np.arange(8, dtype=np.float32), []
    x = weft.make_array_from_callback(
        (8,), NamedSharding(mesh, P("y")), lambda i: asked.append(i) or value[i]
    )
    same(x, value)
    assert sorted(i[0].start for i in asked) == [0, 4]
    with pytest.raises(ValueError, match=r"shard shape \(4,\).*shape \(1,\)"):
        weft.make_array_from_callback(
            (8,), NamedSharding(mesh, P("y")), lambda i: np.zeros(1, np.float32)
        )


def test_make_array_from_single_device_arrays(split):
    a, value = split
    parts = [s.data for s in a.addressable_shards]
    same(weft.make_array_from_single_device_arrays((8, 4), a.sharding, parts), value)
    with pytest.raises(ValueError, match="no array is on"):
        weft.make_array_from_single_device_arrays((8, 4), a.sharding, parts[:3])
    with pytest.raises(ValueError, match="Expected shard shape"):
        weft.make_array_from_single_device_arrays((16, 4), a.sharding, parts)


def test_make_array_from_process_local_data(split):
    a, value = split
    x = weft.make_array_from_process_local_data(a.sharding, value)
    assert x.sharding == a.sharding
    same(x, value)


def test_a_layout_that_is_left_open_is_no_place():
    from weft.experimental.layout import Format, Layout

    for sharding in (
        Format(Layout.AUTO),
        Format(Layout.AUTO, SingleDeviceSharding(weft.devices()[1])),
    ):
        with pytest.raises(ValueError, match=r"sharding and layout.*should be concrete"):
            weft.device_put(np.ones(3), sharding)
    assert weft.device_put(
        np.ones(3), Format(None, SingleDeviceSharding(weft.devices()[1]))
    ).committed


def test_rows_of_an_array_that_a_mesh_of_one_device_splits():
    mesh = weft.make_mesh((1,), ("i",), devices=weft.devices()[:1])
    for shape in [(3,), (3, 2)]:
        x = weft.device_put(
            np.arange(np.prod(shape), dtype=np.float32).reshape(shape), NamedSharding(mesh, P("i"))
        )
        rows = list(x)
        np.testing.assert_array_equal(rows, np.asarray(x))
        assert rows[0].shape == shape[1:] and rows[0].sharding.spec == P()


@pytest.mark.parametrize("spec", [P(), P("x"), P("y", "x"), P(("x", "y")), P(None, "y")], ids=str)
def test_shards_from_a_sharding_and_a_shape(mesh, spec):
    x = weft.device_put(wnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, spec))
    for shard in x.addressable_shards:
        same = Shard(shard.device, x.sharding, x.shape, shard.data)
        assert (same.device, same.index, same.replica_id) == (
            shard.device,
            shard.index,
            shard.replica_id,
        )
        assert same.data is shard.data and Shard(shard.device, x.sharding, x.shape).data is None
    with pytest.raises(weft.errors.ShardingError, match="has no block on"):
        Shard(weft.devices()[1], SingleDeviceSharding(weft.devices()[0]), (2,))
