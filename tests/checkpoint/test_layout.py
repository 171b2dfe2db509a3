"""Checkpoints have the file layout that orbax reads: names, JSON, and keys of zarr arrays in the database."""

import collections
import json

import numpy as np
import pytest
import tensorstore as ts

import weft
import weft.numpy as wnp
from weft import checkpoint
from weft.checkpoint import layout, store
from weft.sharding import NamedSharding, PartitionSpec as P

Pair = collections.namedtuple("Pair", "left right")
Nothing = collections.namedtuple("Nothing", "")


@pytest.fixture(scope="module")
def item(tmp_path_factory):
    mesh = weft.make_mesh((4, 2), ("x", "y"))
    root = tmp_path_factory.mktemp("layout")
    tree = {
        "w": weft.device_put(
            wnp.arange(64.0, dtype=wnp.bfloat16).reshape(8, 8), NamedSharding(mesh, P("x", None))
        ),
        "pair": Pair(wnp.float32(2), [np.arange(3), "text"]),
        "keys": weft.random.split(weft.random.key(0), 2),
        "lr": 0.5,
        "none": None,
        "empty": [{}, (), Nothing()],
    }
    checkpoint.save(root, tree, 12).wait()
    return root / "12" / "default"


def read(item, name):
    return json.loads((item / name).read_text())


def test_files_of_a_step(item):
    step = item.parent
    assert {path.name for path in step.iterdir()} == {
        "_CHECKPOINT_METADATA",
        "commit_success.txt",
        "default",
    }
    assert {path.name for path in item.iterdir()} == {
        "_METADATA",
        "_sharding",
        "_strings.json",
        "array_metadatas",
        "commit_success.txt",
        "d",
        "manifest.ocdbt",
        "weft_sums.json",
    }
    about = read(step, "_CHECKPOINT_METADATA")
    assert about["item_handlers"] == {
        "default": "orbax.checkpoint._src.handlers.standard_checkpoint_handler.StandardCheckpointHandler"
    }
    assert 0 < about["init_timestamp_nsecs"] <= about["commit_timestamp_nsecs"]
    assert sorted(path.name for path in step.parent.iterdir()) == ["12", "weft_claim.1"]


def test_metadata_of_the_tree(item):
    about = read(item, "_METADATA")
    assert (
        about["use_ocdbt"],
        about["use_zarr3"],
        about["store_array_data_equal_to_fill_value"],
    ) == (True, True, True)
    leaves = about["tree_metadata"]
    assert {
        path: (leaf["value_metadata"]["value_type"], leaf["value_metadata"]["skip_deserialize"])
        for path, leaf in leaves.items()
    } == {
        "('w',)": ("jax.Array", False),
        "('pair', 'left')": ("jax.Array", False),
        "('pair', 'right', '0')": ("np.ndarray", False),
        "('pair', 'right', '1')": ("string", False),
        "('keys',)": ("jax.Array", False),
        "('lr',)": ("scalar", False),
        "('none',)": ("None", True),
        "('empty', '0')": ("Dict", True),
        "('empty', '1')": ("Tuple", True),
        "('empty', '2')": ("None", True),
    }
    assert leaves["('pair', 'right', '0')"]["key_metadata"] == [
        {"key": "pair", "key_type": 2},
        {"key": "right", "key_type": 2},
        {"key": "0", "key_type": 1},
    ]
    assert leaves["('w',)"]["value_metadata"]["write_shape"] == [2, 8]
    assert read(item, "_strings.json") == {"pair.right.1": "text"}
    keys = [
        entry["array_metadata"]
        for entry in read(item, "array_metadatas/process_0")["array_metadatas"]
    ]
    assert {
        "param_name": "keys",
        "write_shape": [2, 2],
        "chunk_shape": [2, 2],
        "ext_metadata": {"random_key_impl": "threefry2x32"},
    } in keys


def test_shardings_are_stored_as_text(item):
    entries = read(item, "_sharding")
    assert json.loads(entries["dw=="]) == {  # "w" in base 64
        "sharding_type": "NamedSharding",
        "shape": [4, 2],
        "axis_names": ["x", "y"],
        "axis_types": ["AxisType.Auto", "AxisType.Auto"],
        "partition_spec": ["x", None],
        "device_mesh": {
            "mesh": [
                [{"id": 0}, {"id": 1}],
                [{"id": 2}, {"id": 3}],
                [{"id": 4}, {"id": 5}],
                [{"id": 6}, {"id": 7}],
            ]
        },
    }
    assert json.loads(entries["a2V5cw=="]) == {
        "sharding_type": "SingleDeviceSharding",
        "device_str": "cpu:0",
    }


def test_keys_and_bytes_of_the_database(item):
    database = store.open_database(item)
    keys = [key.decode() for key in database.list().result()]
    assert sorted(keys) == sorted(
        [
            "w/zarr.json",
            *(f"w/c/{i}/0" for i in range(4)),
            "pair.left/zarr.json",
            "pair.left/c",
            "pair.right.0/zarr.json",
            "pair.right.0/c/0",
            "keys/zarr.json",
            "keys/c/0/0",
            "lr/zarr.json",
            "lr/c",
        ]
    )
    about = json.loads(database.read("w/zarr.json").result().value)
    assert about == {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [8, 8],
        "data_type": "bfloat16",
        "fill_value": 0.0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 8]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
    }
    block = database.read("w/c/2/0").result().value
    assert (
        block[:-4] == np.arange(32, 48).astype(wnp.bfloat16).tobytes() and len(block) == 36
    )  # the last four are the sum


def test_compressed_blocks_are_smaller(tmp_path):
    for step, compress in enumerate((False, True)):
        checkpoint.save(tmp_path, {"w": np.zeros(1 << 16)}, step, compress=compress).wait()
    sizes = [
        sum(file.stat().st_size for file in (tmp_path / str(step)).rglob("*") if file.is_file())
        for step in (0, 1)
    ]
    assert sizes[0] > 1 << 19 and sizes[1] < 1 << 14
    assert not checkpoint.restore(tmp_path, step=1)["w"].any()


@pytest.mark.parametrize(
    ("shard", "splits", "limit", "block"),
    [
        ((1000, 1000), (1, 1), 1 << 30, (1000, 1000)),
        ((1000, 1000), (1, 1), 1 << 20, (262, 1000)),
        ((1000, 1000), (2, 1), 1 << 20, (250, 1000)),
        ((2, 1 << 20), (1, 1), 1 << 20, (1, 1 << 18)),
        ((7, 1 << 10), (4, 1), 8192, (1, 1 << 10)),
        ((), (), 1, ()),
        ((0, 3), (1, 1), 64, (1, 3)),
    ],
)
def test_blocks_are_bounded_and_divide_shards(shard, splits, limit, block):
    shape = store.block_shape(shard, splits, 4, limit)
    assert shape == block
    assert all(n == 1 or size % part == 0 for size, n, part in zip(shard, splits, shape))


def test_pieces_cover_a_box_once():
    for shape, block, limit in (
        ((6, 5), (2, 5), 40),
        ((3, 4, 5), (1, 2, 5), 64),
        ((5,), (2,), 8),
        ((), (), 1),
    ):
        seen = np.zeros(shape, int)
        for piece in store.split_box((0,) * len(shape), shape, block, 4, limit):
            assert all(s.start % b == 0 for s, b in zip(piece, block))
            seen[piece] += 1
        assert (seen == 1).all()


# ---- what orbax writes: the same files as below, by its own hand (tests/checkpoint/test_exchange.py has orbax itself)

VALUES = {
    "w": np.arange(24, dtype=np.float32).reshape(4, 6),
    "b": np.arange(6, dtype=np.int16),
    "n": np.float64(2.5),
}


def written_like_orbax(item, ocdbt, zarr3):
    item.mkdir(parents=True)
    leaves = {}
    for name, value in VALUES.items():
        kind = "np.ndarray" if value.ndim else "scalar"
        leaves[f"('p', '{name}')"] = {
            "key_metadata": [{"key": "p", "key_type": 2}, {"key": name, "key_type": 2}],
            "value_metadata": {"value_type": kind, "skip_deserialize": False},
        }
        blocks = [max(n // 2, 1) for n in value.shape]
        kvstore = (
            {"driver": "ocdbt", "base": f"file://{item}/", "path": f"p.{name}/"}
            if ocdbt
            else {"driver": "file", "path": f"{item}/p.{name}/"}
        )
        if zarr3:
            inner = [
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "zstd", "configuration": {"level": 3}},
            ]
            index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
            metadata = {
                "shape": list(value.shape),
                "data_type": value.dtype.name,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": blocks}},
                "codecs": [
                    {
                        "name": "sharding_indexed",
                        "configuration": {
                            "chunk_shape": blocks,
                            "codecs": inner,
                            "index_codecs": index,
                        },
                    }
                ],
            }
        else:
            metadata = {
                "shape": list(value.shape),
                "chunks": blocks,
                "dtype": value.dtype.str,
                "compressor": {"id": "zstd", "level": 1},
            }
        spec = {
            "driver": "zarr3" if zarr3 else "zarr",
            "kvstore": kvstore,
            "metadata": metadata,
            "store_data_equal_to_fill_value": True,
        }
        ts.open(spec, create=True).result().write(value).result()
    (item / layout.TREE).write_text(
        json.dumps(
            {
                "tree_metadata": leaves,
                "use_ocdbt": ocdbt,
                "use_zarr3": zarr3,
                "store_array_data_equal_to_fill_value": True,
                "custom_metadata": None,
            }
        )
    )
    return item


@pytest.mark.parametrize("ocdbt", [False, True])
@pytest.mark.parametrize("zarr3", [False, True])
@pytest.mark.parametrize("place", ["", "checkpoint_5/state"])
def test_four_ways_of_storing_are_read(tmp_path, ocdbt, zarr3, place):
    written_like_orbax(tmp_path / "root" / place, ocdbt, zarr3)
    restored = checkpoint.restore(tmp_path / "root")["p"]
    for name, value in VALUES.items():
        np.testing.assert_array_equal(restored[name], value)
    assert type(restored["n"]) is float and restored["b"].dtype == np.int16
    mesh = weft.make_mesh((2,), ("x",))
    placed = checkpoint.restore(
        tmp_path / "root",
        {
            "p": {
                "w": weft.ShapeDtypeStruct(
                    (4, 6), wnp.float32, sharding=NamedSharding(mesh, P(None, "x"))
                )
            }
        },
    )
    np.testing.assert_array_equal(placed["p"]["w"], VALUES["w"])


def test_a_block_that_is_missing_is_no_block_of_zeros(tmp_path):
    item = written_like_orbax(tmp_path / "item", ocdbt=False, zarr3=False)
    (item / "p.w" / "1.1").unlink()
    with pytest.raises(weft.errors.CheckpointError, match=r"\['p'\]\['w'\] cannot be read"):
        checkpoint.restore(item)


def test_forms_that_are_not_read_say_so(tmp_path):
    (tmp_path / "checkpoint").write_bytes(b"\x80")
    with pytest.raises(NotImplementedError, match="msgpack"):
        checkpoint.restore(tmp_path)
    (tmp_path / "3" / "default").mkdir(parents=True)
    (tmp_path / "3" / "_CHECKPOINT_METADATA").write_text("{}")
    with pytest.raises(weft.errors.CheckpointError, match="has no tree"):
        checkpoint.restore(tmp_path, step=3)
