"""Arrays with shards on devices of another process: their attributes, reads, copies and creation
without communication.

There is no other process: its devices are placed in meshes together with the devices of this one.
"""

import copy
import pickle

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.backends.base import Device
from weft._engine.runtime.array_assembly import global_shape_of, local_shape_of, read_local_part
from weft._engine.util.errors import ShardingError
from weft.sharding import (
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    PositionalSharding,
    SingleDeviceSharding,
)

MINE = weft.devices()[:4]
THEIRS = [Device(100 + i, MINE[0].client, process_index=1, local_hardware_id=i) for i in range(4)]
VALUE = np.arange(32, dtype=np.float32).reshape(8, 4)


def mesh(order: str = "process first") -> Mesh:
    grid = np.array([*MINE, *THEIRS], object).reshape(4, 2)
    if order == "process last":
        grid = np.array([MINE, THEIRS], object).T
    if order == "process inside":
        grid = np.array(
            [[MINE[0], MINE[1]], [THEIRS[0], THEIRS[1]], [MINE[2], MINE[3]], [THEIRS[2], THEIRS[3]]]
        )
    return Mesh(grid, ("x", "y"))


def over(spec: P, order: str = "process first") -> NamedSharding:
    return NamedSharding(mesh(order), spec)


#: spec, order of devices, local rows and columns of VALUE
CASES = [
    (P("x", "y"), "process first", range(4), range(4)),
    (P("x"), "process first", range(4), range(4)),
    (P("y"), "process first", range(8), range(4)),
    (P(), "process first", range(8), range(4)),
    (P("y", "x"), "process first", range(8), range(2)),
    (P(("y", "x")), "process first", (0, 1, 4, 5), range(4)),
    (P(("x", "y")), "process first", range(4), range(4)),
    (P("x", "y"), "process last", range(8), (0, 1)),
    (P(("x", "y")), "process last", (0, 2, 4, 6), range(4)),
    (P("x"), "process inside", (0, 1, 4, 5), range(4)),
    (P(None, "x"), "process inside", range(8), (0, 2)),
]


def made(spec: P, order: str = "process first") -> weft.Array:
    return weft.make_array_from_callback(VALUE.shape, over(spec, order), lambda index: VALUE[index])


@pytest.mark.parametrize(
    "spec, order, rows, columns", CASES, ids=lambda x: str(x) if isinstance(x, (P, str)) else ""
)
def test_a_process_has_the_shards_of_its_devices(spec, order, rows, columns):
    here = VALUE[np.ix_(list(rows), list(columns))]
    by_callback = made(spec, order)
    sharding = by_callback.sharding
    singles = [
        weft.device_put(VALUE[index], d)
        for d, index in sharding.addressable_devices_indices_map(VALUE.shape).items()
    ]
    for x in (
        by_callback,
        weft.device_put(VALUE, sharding),
        weft.device_put(wnp.asarray(VALUE), sharding),
        weft.make_array_from_process_local_data(sharding, here, VALUE.shape),
        weft.make_array_from_process_local_data(sharding, here),
        weft.make_array_from_process_local_data(sharding, VALUE, VALUE.shape),
        weft.make_array_from_single_device_arrays(VALUE.shape, sharding, singles),
        copy.deepcopy(by_callback),
    ):
        assert (
            x.shape == (8, 4) and x.dtype == np.float32 and x.sharding == sharding and x.committed
        )
        assert not x.is_fully_addressable and x.is_fully_replicated == (spec == P())
        assert [s.device for s in x.global_shards] == list(sharding.device_assignment)
        assert [s.device for s in x.addressable_shards] == [
            d for d in sharding.device_assignment if d in MINE
        ]
        for shard in x.global_shards:
            assert (shard.data is None) == (shard.device in THEIRS)
            assert shard.index == sharding.devices_indices_map(VALUE.shape)[shard.device]
            if shard.data is not None:
                np.testing.assert_array_equal(np.asarray(shard.data), VALUE[shard.index])
        np.testing.assert_array_equal(read_local_part(x), here)
    assert (
        global_shape_of(sharding, here.shape) == VALUE.shape
        and local_shape_of(sharding, VALUE.shape) == here.shape
    )


def test_replicas_are_numbered_over_all_processes():
    shards = made(P("y")).global_shards
    assert [s.replica_id for s in shards] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert "data=None" in repr(shards[-1]) and "id=100" in repr(made(P("x")).global_shards[4])


def test_what_is_not_here_cannot_be_read():
    x = made(P("x", "y"))
    assert repr(x) == str(x) == "Array(shape=(8, 4), dtype=float32)"
    for read in (
        np.asarray,
        lambda x: x.tolist(),
        lambda x: pickle.dumps(x),
        lambda x: weft.device_get(x),
        lambda x: x.__dlpack__(),
        lambda x: bool(x),
        lambda x: x.item(3),
    ):
        with pytest.raises((RuntimeError, ValueError), match=r"non-addressable|ambiguous"):
            read(x)
    with pytest.raises(RuntimeError, match=r"(?s)4 of 8.*process_allgather.*addressable_shards"):
        np.asarray(x)
    assert (
        x.addressable_data(0).shape == (2, 2) and len(x.addressable_shards) == 4 and x.nbytes == 128
    )


def test_what_all_processes_have_can_be_read():
    for spec in (P(), P("y"), P(None, "y")):
        x = made(spec)
        np.testing.assert_array_equal(np.asarray(x), VALUE)
        assert repr(x) == repr(wnp.asarray(VALUE)) and x.tolist() == VALUE.tolist()
        np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(x))), VALUE)
    assert float(weft.device_put(2.5, over(P()))) == 2.5


def test_deleted_arrays_and_copies():
    x = made(P("x"))
    y, z = copy.copy(x), copy.deepcopy(x)
    x.delete()
    assert x.is_deleted()
    for use in (lambda: x.addressable_shards, lambda: np.asarray(x), lambda: repr(x)):
        with pytest.raises(RuntimeError, match="deleted"):
            use()
    for array in (y, z):
        np.testing.assert_array_equal(read_local_part(array), VALUE[:4])


def test_memory_is_that_of_the_part():
    x = made(P("x"))
    assert x._spec.storage_bytes == VALUE.nbytes // 2 and x._live().nbytes == VALUE.nbytes // 2
    assert made(P())._live().nbytes == VALUE.nbytes


def test_arrays_of_which_nothing_is_here():
    there = NamedSharding(Mesh(np.array(THEIRS), ("x",)), P("x"))
    for sharding, shape in (
        (there, (8, 4)),
        (SingleDeviceSharding(THEIRS[0]), ()),
        (SingleDeviceSharding(THEIRS[0]), (3,)),
    ):
        x = weft.make_array_from_single_device_arrays(shape, sharding, [], dtype=np.float32)
        assert (
            x.shape == shape
            and x.dtype == np.float32
            and x.addressable_shards == []
            and x._live().nbytes == 0
        )
        assert f"Array(shape={shape}" in repr(x) and len(x.global_shards) == len(
            sharding.device_set
        )
        with pytest.raises(RuntimeError, match="0 of"):
            np.asarray(x)
        y = weft.make_array_from_callback(shape, sharding, lambda index: 1 / 0, dtype=np.int32)
        assert y.dtype == np.int32 and y.sharding.addressable_devices == set()
        assert (
            copy.deepcopy(y).shape == shape
            and weft.device_put(np.ones(shape), sharding).addressable_shards == []
        )
    with pytest.raises(ValueError, match="`dtype` must be provided"):
        weft.make_array_from_single_device_arrays((8,), there, [])
    with pytest.raises(ValueError, match="`dtype` must be provided"):
        weft.make_array_from_callback((8,), there, lambda index: 1 / 0)


def test_shardings_know_their_processes():
    s = over(P("x"))
    assert (
        s.addressable_devices == set(MINE)
        and not s.is_fully_addressable
        and s._addressable_device_assignment == tuple(MINE)
    )
    assert (
        set(s.addressable_devices_indices_map((8, 4))) == set(MINE)
        and len(s.devices_indices_map((8, 4))) == 8
    )
    assert (
        s.mesh.is_multi_process
        and s.mesh.local_devices == MINE
        and s.mesh.local_mesh.shape_tuple == (("x", 2), ("y", 2))
    )


def test_random_keys_have_parts_too():
    keys = weft.random.split(weft.random.key(0), 8)
    data = np.asarray(weft.random.key_data(keys))
    x = weft.make_array_from_callback((8,), over(P("x")), lambda index: keys[index])
    assert x.dtype == keys.dtype and x.addressable_data(0).shape == (2,)
    np.testing.assert_array_equal(
        np.asarray(weft.random.key_data(x.addressable_data(2))), data[2:4]
    )


def test_processes_that_hold_irregular_parts_are_refused():
    diagonal = Mesh(np.array([[MINE[0], THEIRS[0]], [THEIRS[1], MINE[1]]]), ("x", "y"))
    uneven = Mesh(np.array([*MINE[:3], THEIRS[0]]), ("x",))
    for sharding in (NamedSharding(diagonal, P("x", "y")), NamedSharding(uneven, P("x"))):
        with pytest.raises(
            ShardingError,
            match=r"(?s)irregularly.*process 0 .*process 1 .*create_hybrid_device_mesh",
        ):
            weft.device_put(VALUE, sharding)
    weft.device_put(VALUE, NamedSharding(diagonal, P("x")))  # each row has a device of each process
    positional = PositionalSharding([*MINE, *THEIRS]).reshape(4, 2)
    np.testing.assert_array_equal(read_local_part(weft.device_put(VALUE, positional)), VALUE[:4])


def test_local_data_that_does_not_fit():
    s = over(P("x"))
    with pytest.raises(ValueError, match=r"(?s)dim 0 .*size 3.*here 8.*holds, 4"):
        weft.make_array_from_process_local_data(s, np.ones((3, 4)), (8, 4))
    with pytest.raises(ValueError, match="not divisible by 2"):
        weft.make_array_from_process_local_data(s, np.ones((3, 4)))
    with pytest.raises(ValueError, match="differ in rank"):
        weft.make_array_from_process_local_data(s, np.ones((4, 4)), (8,))
    with pytest.raises(TypeError, match="should be an instance of"):
        weft.make_array_from_process_local_data(None, np.ones(8))
    tree = weft.make_array_from_process_local_data(
        {"a": s, "b": over(P())}, {"a": np.ones((4, 2)), "b": [np.ones(3), np.zeros(2)]}
    )
    assert tree["a"].shape == (8, 2) and [x.shape for x in tree["b"]] == [(3,), (2,)]


def test_parts_that_do_not_fit():
    s = over(P("x", "y"))
    ones = [weft.device_put(np.ones((2, 2), np.float32), d) for d in MINE]
    make = weft.make_array_from_single_device_arrays
    with pytest.raises(ValueError, match="no array is on"):
        make((8, 4), s, ones[:3])
    with pytest.raises(ValueError, match="must match the dtype"):
        make((8, 4), s, ones, dtype=np.int32)
    with pytest.raises(ValueError, match="different dtypes"):
        make((8, 4), s, [*ones[:3], ones[3].astype(np.int32)])
    with pytest.raises(ValueError, match="Expected shard shape"):
        make((16, 4), s, ones)
    with pytest.raises(ValueError, match="one shard each"):
        make((8, 4), s, [made(P("x"))])
    with pytest.raises(TypeError, match="must be a list or tuple"):
        make((8, 4), s, ones[0])
    with pytest.raises(weft.errors.UnexpectedTracerError, match="traced"):
        weft.jit(lambda x: weft.make_array_from_callback((8, 4), s, lambda index: x))(1.0)
