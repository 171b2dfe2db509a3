"""Arrays in tensorstore's formats: written files, reads with other layouts, and errors."""

import asyncio
import json

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental.array_serialization.serialization import (
    GlobalAsyncCheckpointManager,
    async_serialize,
    get_tensorstore_spec,
    is_remote_storage,
    run_deserialization,
    run_serialization,
)
from weft.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding, make_mesh

tensorstore = pytest.importorskip("tensorstore")

BASE = {"driver": "file", "path": "/data/run"}


@pytest.mark.parametrize(
    ("path", "options", "spec"),
    [
        (
            "/data/run/x",
            {},
            {"driver": "zarr", "kvstore": {"driver": "file", "path": "/data/run/x"}},
        ),
        (
            "/data/run/x/",
            {"driver": "zarr3"},
            {"driver": "zarr3", "kvstore": {"driver": "file", "path": "/data/run/x"}},
        ),
        (
            "/data/run/x",
            {"ocdbt": True},
            {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": BASE, "path": "x"}},
        ),
        (
            "/data/run/x",
            {"process_idx": 3},
            {"driver": "zarr", "kvstore": {"driver": "file", "path": "/data/run/process_3/x"}},
        ),
        (
            "gs://store/run/x",
            {},
            {"driver": "zarr", "kvstore": {"driver": "gcs", "bucket": "store", "path": "run/x"}},
        ),
        (
            "s3://store/run/x",
            {"ocdbt": True},
            {
                "driver": "zarr",
                "kvstore": {
                    "driver": "ocdbt",
                    "base": {"driver": "s3", "bucket": "store", "path": "run"},
                    "path": "x",
                },
            },
        ),
        ("x", {}, {"driver": "zarr", "kvstore": {"driver": "file", "path": "x"}}),
    ],
)
def test_places(path, options, spec):
    assert get_tensorstore_spec(path, **options) == spec
    assert is_remote_storage(spec) == ("://" in path) == is_remote_storage(path)


def test_places_that_are_none():
    with pytest.raises(ValueError, match="a folder and a name"):
        get_tensorstore_spec("x", ocdbt=True)
    with pytest.raises(ValueError, match="gs:// or s3://"):
        get_tensorstore_spec("ftp://host/x")


@pytest.fixture
def split():
    return NamedSharding(make_mesh((8,), ("x",)), P("x"))


@pytest.mark.parametrize(
    "options", [{}, {"ocdbt": True}, {"driver": "zarr3"}, {"driver": "zarr3", "ocdbt": True}]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
def test_arrays_come_back_in_any_layout(tmp_path, split, options, dtype):
    x = weft.device_put(wnp.arange(32).reshape(16, 2).astype(dtype), split)
    spec = get_tensorstore_spec(tmp_path / "x", **options)
    run_serialization([x], [spec])
    for sharding in (
        split,
        NamedSharding(split.mesh, P()),
        NamedSharding(split.mesh, P(None)),
        SingleDeviceSharding(weft.devices()[0]),
    ):
        (back,) = run_deserialization([sharding], [spec])
        assert back.sharding == sharding and back.dtype == x.dtype
        np.testing.assert_array_equal(back, x)


def test_a_shard_is_a_block_and_is_written_once(tmp_path, split):
    x = weft.device_put(wnp.arange(16.0), split)
    run_serialization(
        [x, weft.device_put(x, NamedSharding(split.mesh, P())), wnp.float32(3)],
        [get_tensorstore_spec(tmp_path / name) for name in "abc"],
    )
    blocks = lambda name: sorted(f.name for f in (tmp_path / name).iterdir() if f.name != ".zarray")
    assert blocks("a") == [str(n) for n in range(8)] and blocks("b") == blocks("c") == ["0"]
    assert json.loads((tmp_path / "a" / ".zarray").read_text())["chunks"] == [2]
    stated = get_tensorstore_spec(tmp_path / "d", arr=x)
    assert stated["metadata"]["shape"] == [16] and stated["metadata"]["chunks"] == [2]
    run_serialization([x], [stated])
    np.testing.assert_array_equal(
        tensorstore.open(get_tensorstore_spec(tmp_path / "d")).result().read().result(), x
    )


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_arrays_without_dims_or_elements(tmp_path, shape):
    x = wnp.full(shape, 2.5)
    spec = get_tensorstore_spec(tmp_path / "x")
    run_serialization([x], [spec])
    (back,) = run_deserialization([x.sharding], [spec])
    assert back.shape == shape and back.tolist() == x.tolist()


def test_other_shapes_and_dtypes(tmp_path, split):
    x = wnp.arange(6.0).reshape(2, 3)
    spec = get_tensorstore_spec(tmp_path / "x")
    run_serialization([x], [spec])
    longer, shorter = run_deserialization(
        [split, x.sharding], [spec, spec], [(8, 3), (1, 2)], ["int32", None]
    )
    np.testing.assert_array_equal(longer, np.pad(np.arange(6).reshape(2, 3), [(0, 6), (0, 0)]))
    assert longer.dtype == np.int32 and shorter.tolist() == [[0, 1]]
    like = weft.ShapeDtypeStruct((8, 3), ml_dtypes.bfloat16, sharding=split)
    (array,) = run_deserialization([like], [spec], concurrent_gb=1)
    assert array.dtype == like.dtype and array.sharding == split and array[1].tolist() == [3, 4, 5]


def test_saves_go_on_while_the_program_does(tmp_path, split):
    manager, called = GlobalAsyncCheckpointManager(), []
    x = weft.device_put(wnp.arange(16.0), split)
    manager.serialize_with_paths(
        [x], [str(tmp_path / "x")], on_commit_callback=lambda: called.append(1)
    )
    x.delete()  # the copied array is no longer needed
    manager.wait_until_finished()
    assert called == [1]
    manager.serialize([wnp.ones(3)], [get_tensorstore_spec(tmp_path / "y")])
    y, x = manager.deserialize_with_paths(
        [SingleDeviceSharding(weft.devices()[1]), split], [str(tmp_path / "y"), str(tmp_path / "x")]
    )
    assert y.tolist() == [1, 1, 1] and x.tolist() == list(range(16)) and x.sharding == split


def test_what_goes_wrong_later_is_told_once(tmp_path):
    manager = GlobalAsyncCheckpointManager()

    def fail():
        raise OSError("no space")

    manager.serialize(
        [wnp.ones(3)], [get_tensorstore_spec(tmp_path / "x")], on_commit_callback=fail
    )
    with pytest.raises(OSError, match="no space"):
        manager.wait_until_finished()
    manager.check_for_errors()


def test_bad_calls(tmp_path):
    manager, spec = GlobalAsyncCheckpointManager(), get_tensorstore_spec(tmp_path / "x")
    with pytest.raises(
        ValueError,
        match="serialize: one of each is needed for every array, got 1 arrays, 0 tensorstore_specs",
    ):
        manager.serialize([wnp.ones(3)], [])
    with pytest.raises(TypeError, match="takes arrays of numbers"):
        manager.serialize([weft.random.key(0)], [spec])
    with pytest.raises(ValueError, match="NOT_FOUND"):
        manager.deserialize([wnp.ones(3).sharding], [spec])
    with pytest.raises(ValueError, match="in_type has no sharding"):
        manager.deserialize([weft.ShapeDtypeStruct((3,), "float32")], [spec])
    run_serialization([wnp.ones(3)], [spec])
    with pytest.raises(ValueError, match="another rank"):
        manager.deserialize([wnp.ones(3).sharding], [spec], [(3, 1)])
    with pytest.raises(ValueError):
        run_serialization([wnp.ones((4, 2))], [spec])  # the file holds another array


def test_inside_of_a_loop(tmp_path):
    """Notebooks run cells in a loop."""
    spec = get_tensorstore_spec(tmp_path / "x")

    async def cell():
        run_serialization([wnp.ones(3)], [spec])
        await async_serialize(wnp.zeros(2), get_tensorstore_spec(tmp_path / "y"))
        return run_deserialization([wnp.ones(3).sharding], [spec])

    assert asyncio.run(cell())[0].tolist() == [1, 1, 1]
