"""Restored values equal saved values: every dtype, every layout, as of the call of `save`, reading
only the necessary data."""

import collections
import threading

import ml_dtypes
import numpy as np
import pytest
import tensorstore as ts

import weft
import weft.numpy as wnp
from weft import checkpoint
from weft.checkpoint import store
from weft.errors import CheckpointError
from weft.sharding import NamedSharding, PartitionSpec as P

Pair = collections.namedtuple("Pair", "left right")
RNG = np.random.default_rng(0)


def mesh_of(*sizes):
    return weft.make_mesh(sizes, ("x", "y", "z")[: len(sizes)])


def equal(ours, theirs):
    assert weft.tree.structure(ours) == weft.tree.structure(theirs)
    for x, y in zip(weft.tree.leaves(ours), weft.tree.leaves(theirs)):
        assert type(x) is type(y)
        if hasattr(x, "sharding"):
            assert x.sharding == y.sharding and x.dtype == y.dtype
            x, y = (
                weft.random.key_data(v) if wnp.issubdtype(v.dtype, weft.dtypes.prng_key) else v
                for v in (x, y)
            )
        np.testing.assert_array_equal(x, y)


def test_a_tree_of_everything_comes_back(tmp_path):
    mesh = mesh_of(4, 2)
    tree = {
        "w": weft.device_put(
            RNG.normal(size=(8, 6)).astype("f4"), NamedSharding(mesh, P("x", "y"))
        ),
        "half": weft.device_put(
            wnp.arange(16, dtype=wnp.bfloat16), NamedSharding(mesh, P(("y", "x")))
        ),
        "pair": Pair(wnp.ones(3), (np.arange(4), [np.float32(2), 7])),
        "key": weft.random.key(3),
        "keys": weft.device_put(
            weft.random.split(weft.random.key(1), 4), NamedSharding(mesh, P("x"))
        ),
        "lr": 0.25,
        "done": True,
        "name": "run",
        "z": 1 + 2j,
        "none": None,
        "empty": {"a": (), "b": []},
        "void": wnp.zeros((0, 3)),
        "by number": {5: {"a b/c": wnp.int8(1)}},
    }
    checkpoint.save(tmp_path, tree, 0).wait()
    equal(checkpoint.restore(tmp_path, tree), tree)
    plain = checkpoint.restore(tmp_path)
    assert (
        plain["name"] == "run"
        and plain["lr"] == 0.25
        and plain["done"] is True
        and plain["z"] == 1 + 2j
        and plain["none"] is None
    )
    assert plain["pair"]["right"][1][1] == 7 and plain["empty"] == {"a": (), "b": []}
    assert type(plain["w"]) is np.ndarray and plain["by number"]["5"]["a b/c"] == 1
    shapes = checkpoint.metadata(tmp_path)
    assert (
        shapes["keys"].shape == (4,)
        and shapes["w"].dtype == np.float32
        and shapes["half"].dtype == wnp.bfloat16
    )


def test_one_array_is_a_tree(tmp_path):
    checkpoint.save(tmp_path, wnp.arange(3), 1).wait()
    np.testing.assert_array_equal(checkpoint.restore(tmp_path), [0, 1, 2])
    np.testing.assert_array_equal(checkpoint.restore(tmp_path, wnp.zeros(3, int)), [0, 1, 2])


DTYPES = [
    "bool",
    "int8",
    "uint16",
    "int32",
    "uint64",
    "float16",
    "float64",
    "complex64",
    "complex128",
    ml_dtypes.bfloat16,
    ml_dtypes.int4,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float4_e2m1fn,
]


def test_every_dtype_comes_back(tmp_path):
    tree = {np.dtype(dtype).name: np.arange(8).astype(dtype) for dtype in DTYPES} | {
        "big endian": np.arange(3, dtype=">i4")
    }
    checkpoint.save(tmp_path, tree, 1).wait()
    restored = checkpoint.restore(tmp_path)
    for name, value in tree.items():
        assert (
            restored[name].dtype == value.dtype.newbyteorder("=")
            and (restored[name] == value).all()
        ), name
    with pytest.raises(NotImplementedError, match="float6_e2m3fn cannot be stored"):
        checkpoint.save(tmp_path, {"x": np.ones(3, ml_dtypes.float6_e2m3fn)}, 2).wait()
    assert checkpoint.steps(tmp_path) == [1]


LAYOUTS = [
    ((8,), P("x")),
    ((8,), P(None, "x")),
    ((8,), P()),
    ((4, 2), P("x", "y")),
    ((2, 4), P("y", "x")),
    ((2, 2, 2), P(("x", "z"), "y")),
    ((2, 2), P("y")),
    ((1,), P()),
]


def test_every_layout_becomes_every_other(tmp_path):
    value = RNG.normal(size=(16, 8)).astype("f4")
    shardings = [NamedSharding(mesh_of(*sizes), spec) for sizes, spec in LAYOUTS]
    tree = {str(i): weft.device_put(value + i, sharding) for i, sharding in enumerate(shardings)}
    checkpoint.save(tmp_path, tree, 1).wait()
    for sharding in shardings:
        restored = checkpoint.restore(tmp_path, shardings=sharding)
        for i in range(len(shardings)):
            assert restored[str(i)].sharding == sharding
            np.testing.assert_array_equal(restored[str(i)], value + i)


def test_shardings_may_be_a_prefix_and_go_before_those_of_like(tmp_path):
    rows, whole = NamedSharding(mesh_of(8), P("x")), NamedSharding(mesh_of(8), P())
    tree = {"a": {"x": wnp.arange(8.0), "n": 3}, "b": np.arange(2)}
    checkpoint.save(tmp_path, tree, 1).wait()
    restored = checkpoint.restore(tmp_path, shardings={"a": rows, "b": None})
    assert (
        restored["a"]["x"].sharding == rows
        and restored["a"]["n"] == 3
        and type(restored["b"]) is np.ndarray
    )
    restored = checkpoint.restore(tmp_path, tree, shardings=whole)
    assert (
        restored["a"]["x"].sharding == whole
        and restored["b"].sharding == whole
        and restored["a"]["n"] == 3
    )
    with pytest.raises(TypeError, match="shardings must be a tree of shardings and None"):
        checkpoint.restore(tmp_path, shardings={"a": P("x"), "b": None})


def bytes_read():
    (metric,) = ts.experimental_collect_matching_metrics("/tensorstore/kvstore/file/bytes_read")
    return sum(value["value"] for value in metric["values"])


def test_what_is_read_is_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "BLOCK_BYTES", 1 << 16)
    tree = {"a": np.ones((1024, 256), np.float32), "b": np.ones((1024, 256), np.float32)}
    checkpoint.save(tmp_path, tree, 1).wait()
    start = bytes_read()
    checkpoint.restore(tmp_path, {"a": tree["a"]})
    assert 1 << 20 <= bytes_read() - start < (1 << 20) + (1 << 14)  # one of the two
    one = weft.make_mesh((1,), ("x",))
    eight = NamedSharding(mesh_of(8), P("x"))
    for sharding in (
        eight,
        NamedSharding(mesh_of(8), P(None, "x")),
        NamedSharding(mesh_of(8), P()),
        NamedSharding(one, P()),
    ):
        start = bytes_read()
        checkpoint.restore(
            tmp_path, {"a": weft.ShapeDtypeStruct((1024, 256), np.float32, sharding=sharding)}
        )
        assert bytes_read() - start < (1 << 20) + (1 << 14), (
            sharding
        )  # every block once, however shards cut them


# ---- the moment of saving


def test_values_are_those_of_the_moment(tmp_path, monkeypatch):
    go = threading.Event()
    flush = store.ArrayWriter.flush
    monkeypatch.setattr(store.ArrayWriter, "flush", lambda self: (go.wait(30), flush(self)))
    x = weft.device_put(wnp.arange(1024.0), NamedSharding(mesh_of(8), P("x")))
    mine = np.arange(4)
    saving = checkpoint.save(tmp_path, {"x": x, "mine": mine, "gone": (gone := wnp.ones(8))}, 1)
    step = weft.jit(lambda x: x * 0 - 1, donate_argnums=0)
    for _ in range(4):
        x = step(x)
    x.block_until_ready()
    mine[:] = 9
    gone.delete()
    assert not saving.done and checkpoint.steps(tmp_path) == []
    go.set()
    assert (
        saving.wait() is saving and saving.done and saving.written == saving.total == 4096 + 32 + 32
    )
    restored = checkpoint.restore(tmp_path)
    np.testing.assert_array_equal(restored["x"], np.arange(1024.0))
    np.testing.assert_array_equal(restored["mine"], np.arange(4))
    assert restored["gone"].all()


def test_a_wait_may_have_a_limit(tmp_path, monkeypatch):
    go = threading.Event()
    monkeypatch.setattr(store.ArrayWriter, "finish", lambda self: go.wait(30))
    saving = checkpoint.save(tmp_path, {"s": "text"}, 1)
    with pytest.raises(TimeoutError, match=r"step 1 is not written after 0\.01 s"):
        saving.wait(0.01)
    assert "0 of 0 MiB" in repr(saving)
    go.set()
    assert "done" in repr(saving.wait())


def test_a_failure_is_heard_by_the_next_save_and_once(tmp_path, monkeypatch):
    def fail(self):
        raise CheckpointError("No space left on device")

    checkpoint.save(tmp_path, {"x": wnp.ones(3)}, 1).wait()
    with monkeypatch.context() as patch:
        patch.setattr(store.ArrayWriter, "finish", fail)
        for hear in (lambda: checkpoint.save(tmp_path, {}, 3), checkpoint.wait):
            failed = checkpoint.save(tmp_path, {"x": wnp.ones(3)}, 2)
            failed._thread.join()
            assert "failed" in repr(failed)
            with pytest.raises(
                CheckpointError,
                match=r"(?s)a step was not saved.*step +2.*No space left.*existing steps +1",
            ) as caught:
                hear()
            assert "test_checkpoint.py" in str(caught.value)  # the line that began to save
    checkpoint.wait()
    assert checkpoint.steps(tmp_path) == [1] and sorted(
        path.name for path in tmp_path.iterdir()
    ) == ["1", "weft_claim.1"]


# ---- steps


def test_steps_are_kept_and_removed(tmp_path):
    for step in range(1, 8):
        checkpoint.save(tmp_path, {"step": step}, step, keep=2, keep_every=3)
    checkpoint.wait()
    assert checkpoint.steps(tmp_path) == [3, 6, 7] and checkpoint.latest_step(tmp_path) == 7
    checkpoint.delete(tmp_path, 6)
    assert checkpoint.steps(tmp_path) == [3, 7] and sorted(
        path.name for path in tmp_path.iterdir()
    ) == ["3", "7", "weft_claim.1"]
    assert (
        checkpoint.restore(tmp_path)["step"] == 7
        and checkpoint.restore(tmp_path, step=3)["step"] == 3
    )
    with pytest.raises(FileNotFoundError, match=r"no step 6; there are \[3, 7\]"):
        checkpoint.delete(tmp_path, 6)
    with pytest.raises(FileNotFoundError, match=r"no step 6; there are \[3, 7\]"):
        checkpoint.restore(tmp_path, step=6)


def test_a_step_is_replaced_only_if_told(tmp_path):
    checkpoint.save(tmp_path, {"a": 1}, 1).wait()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        checkpoint.save(tmp_path, {"a": 2}, 1).wait()
    assert checkpoint.restore(tmp_path) == {"a": 1}
    checkpoint.save(tmp_path, {"a": 2}, 1, overwrite=True).wait()
    assert checkpoint.restore(tmp_path) == {"a": 2} and sorted(
        path.name for path in tmp_path.iterdir()
    ) == ["1", "weft_claim.1"]


def test_the_package_is_a_function_too():
    assert float(weft.grad(weft.checkpoint(wnp.sin))(0.0)) == 1.0
    assert float(weft.grad(weft.checkpoint(prevent_cse=False)(wnp.sin))(0.0)) == 1.0
    with pytest.raises(AttributeError, match="no attribute 'store_all'"):
        checkpoint.store_all


# ---- errors


def test_leaves_that_cannot_be_saved_are_named(tmp_path):
    with pytest.raises(
        TypeError, match=r"(?s)\['a'\]\[0\] +builtins\.object.*\['b'\] +numpy\.ndarray of object"
    ):
        checkpoint.save(tmp_path, {"a": [object()], "b": np.array([None])}, 1)
    with pytest.raises(TypeError, match="more than 64 bits"):
        checkpoint.save(tmp_path, {"a": 1 << 70}, 1)
    with pytest.raises(
        ValueError, match=r"(?s)same name.*\['a\.b'\].*\['a'\]\['b'\]|\['a'\]\['b'\].*\['a\.b'\]"
    ):
        checkpoint.save(tmp_path, {"a": {"b": 1}, "a.b": 2}, 1)
    with pytest.raises(weft.errors.TracerError, match=r"\['x'\] is traced"):
        weft.jit(lambda x: checkpoint.save(tmp_path, {"x": x}, 1))(1.0)
    assert [*tmp_path.iterdir()] == []


TREE = {"w": np.full(1000, 0.123)}

SWAPPED = {
    "save: step": (lambda path: checkpoint.save(path, 3, TREE), "dict", "save(path, tree, step)"),
    "save: array": (lambda path: checkpoint.save(path, 3, wnp.ones(9)), "Array", "step)"),
    "save: float": (
        lambda path: checkpoint.save(path, TREE, 1.5),
        "float",
        "save(path, tree, step)",
    ),
    "save: text": (lambda path: checkpoint.save(path, TREE, "3"), "str", "save(path, tree, step)"),
    "save: bool": (
        lambda path: checkpoint.save(path, TREE, True),
        "bool",
        "save(path, tree, step)",
    ),
    "save: path": (lambda path: checkpoint.save(TREE, path, 3), "dict", "save(path, tree, step)"),
    "save: keep": (lambda path: checkpoint.save(path, 0, 1, keep=TREE), "dict", "save(path, tree,"),
    "restore": (lambda path: checkpoint.restore(TREE, path), "dict", "restore(path, like, step="),
    "restore: step": (lambda path: checkpoint.restore(path, step=TREE), "dict", "restore(path, li"),
    "metadata": (lambda path: checkpoint.metadata(path, step=TREE), "dict", "metadata(path, step="),
    "verify": (lambda path: checkpoint.verify(TREE), "dict", "verify(path, step=...)"),
    "delete": (lambda path: checkpoint.delete(3, path), "int", "delete(path, step)"),
    "delete: step": (lambda path: checkpoint.delete(path, TREE), "dict", "delete(path, step)"),
    "steps": (lambda path: checkpoint.steps(TREE), "dict", "steps(path)"),
    "latest_step": (lambda path: checkpoint.latest_step(TREE), "dict", "latest_step(path)"),
    "export": (lambda path: checkpoint.export_safetensors(TREE, path), "dict", "(file, tree)"),
    "import": (lambda path: checkpoint.import_safetensors(TREE, path), "dict", "(file, like)"),
}


@pytest.mark.parametrize("name", SWAPPED)
def test_swapped_arguments_are_named_by_type(tmp_path, name):
    call, kind, order = SWAPPED[name]
    with pytest.raises(TypeError) as error:
        call(tmp_path)
    text = str(error.value)
    assert f"got a value of type {kind}. The order of the arguments is " in text
    assert order in text
    assert "0.123" not in text and len(text) < 200
    assert [*tmp_path.iterdir()] == []


def test_numbers_of_steps_have_a_least_value(tmp_path):
    with pytest.raises(ValueError, match="step is at least 0, got -1"):
        checkpoint.save(tmp_path, {}, -1)
    with pytest.raises(ValueError, match="keep is at least 1, got 0"):
        checkpoint.save(tmp_path, {}, 1, keep=0)
    assert [*tmp_path.iterdir()] == []


def test_what_does_not_fit_is_told_at_once(tmp_path):
    checkpoint.save(
        tmp_path,
        {"a": wnp.ones(3), "b": wnp.ones((2, 2)), "c": "text", "big": np.array([1 << 40])},
        1,
    ).wait()
    first, second = (
        r"\['a'\] +stored: float32\[3\] +requested: float32\[4\]",
        r"\['b'\].*int32\[2, 2\]",
    )
    with pytest.raises(ValueError, match=f"(?s)2 of the leaves.*{first}.*{second}"):
        checkpoint.restore(tmp_path, {"a": wnp.ones(4), "b": wnp.ones((2, 2), int)})
    with pytest.raises(ValueError, match=r"(?s)does not have 1 leaf of `like`.*missing +\['d'\]"):
        checkpoint.restore(tmp_path, {"d": wnp.ones(3)})
    with pytest.raises(ValueError, match=r"missing +the tree"):
        checkpoint.restore(tmp_path, wnp.ones(3))
    with pytest.raises(ValueError, match=r"stored: string +requested: float"):
        checkpoint.restore(tmp_path, {"c": 1.0})
    with pytest.raises(ValueError, match="integers that do not fit into int32"):
        checkpoint.restore(tmp_path, {"big": wnp.ones(1, int)})
    assert checkpoint.restore(tmp_path, {"a": wnp.ones(3, wnp.bfloat16)})["a"].dtype == wnp.bfloat16
    with pytest.raises(TypeError, match="a leaf of `like` is a object"):
        checkpoint.restore(tmp_path, {"a": object()})
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        checkpoint.restore(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no complete step; there are \\[\\]"):
        (tmp_path / "empty").mkdir()
        checkpoint.restore(tmp_path / "empty")


def test_without_the_library_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorstore", None)
    store.tensorstore.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'weft-arrays\[checkpoint\]'"):
        checkpoint.save(tmp_path, {}, 1)
    store.tensorstore.cache_clear()


# ---- safetensors


def test_safetensors_come_and_go(tmp_path):
    file = tmp_path / "model.safetensors"
    rows = NamedSharding(mesh_of(8), P("x"))
    w = weft.device_put(RNG.normal(size=(8, 4)).astype("f4"), rows)
    tree = {"w": w, "layers": [wnp.ones(3, wnp.bfloat16), np.int64(4)], "none": None}
    checkpoint.export_safetensors(file, tree, metadata={"from": "weft"})
    from safetensors import safe_open

    with safe_open(file, "numpy") as opened:
        assert opened.metadata() == {"from": "weft"} and sorted(opened.keys()) == [
            "layers.0",
            "layers.1",
            "w",
        ]
        np.testing.assert_array_equal(opened.get_tensor("w"), tree["w"])
    plain = checkpoint.import_safetensors(file)
    assert plain["layers.0"].dtype == wnp.bfloat16 and plain["layers.1"] == 4
    equal(
        checkpoint.import_safetensors(file, tree),
        {**tree, "layers": [tree["layers"][0], np.array(4)]},
    )
    columns = NamedSharding(mesh_of(2), P(None, "x"))
    imported = checkpoint.import_safetensors(file, shardings={"w": columns})
    assert imported["w"].sharding == columns and type(imported["layers.0"]) is np.ndarray
    np.testing.assert_array_equal(imported["w"], tree["w"])


def test_safetensors_that_do_not_fit_are_refused(tmp_path):
    file = tmp_path / "m.safetensors"
    checkpoint.export_safetensors(file, {"a": wnp.ones(3)})
    with pytest.raises(ValueError, match=r"has shape \[3\], but the requested shape is \[4\]"):
        checkpoint.import_safetensors(file, {"a": wnp.ones(4)})
    with pytest.raises(ValueError, match="has no 'b'"):
        checkpoint.import_safetensors(file, {"b": wnp.ones(4)})
    with pytest.raises(TypeError, match="the format has arrays only"):
        checkpoint.export_safetensors(file, {"a": "text"})
    with pytest.raises(NotImplementedError, match="complex128, which the format lacks"):
        checkpoint.export_safetensors(file, {"a": np.ones(2, complex)})
    np.testing.assert_array_equal(
        checkpoint.import_safetensors(file)["a"], 1
    )  # the older file is still there
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="a file is damaged"):
        checkpoint.import_safetensors(file)
    with pytest.raises(FileNotFoundError):
        checkpoint.import_safetensors(tmp_path / "none")
