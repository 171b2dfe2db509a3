"""A checkpoint with a damaged file is refused by an error that names the file, or restored with the values that were saved."""

import shutil

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.checkpoint.test_layout import written_like_orbax
from tests.processes.ranks import run_ranks
from weft import checkpoint
from weft.checkpoint import store
from weft.errors import CheckpointError

#: files whose damage may stay undetected, since no value depends on them
UNUSED = ("_CHECKPOINT_METADATA", "commit_success.txt", "weft_claim.1")


def damages(held: bytes, flips: int):
    """Return damaged versions of a file's bytes by name; None for a lost file."""
    yield "lost", None
    yield "empty", b""
    yield "half", held[: len(held) // 2]
    yield "cut", held[:-1]
    for place in np.unique(np.linspace(0, len(held) - 1, flips).astype(int)):
        yield f"flipped at {place}", held[:place] + bytes([held[place] ^ 0x10]) + held[place + 1 :]


def plain(tree):
    """Return a tree whose leaves compare, with the bits of random keys."""
    return weft.tree.map(
        lambda x: (
            x
            if isinstance(x, str)
            else np.asarray(
                weft.random.key_data(x)
                if wnp.issubdtype(getattr(x, "dtype", int), weft.dtypes.prng_key)
                else x
            )
        ),
        tree,
    )


def outcomes(good, bad, flips=12, **options):
    """Yield each file, its damage, and the outcome of restoring: "named", "equal", or a problem."""
    expected = plain(checkpoint.restore(good, **options))
    for file in sorted(path.relative_to(good) for path in good.rglob("*") if path.is_file()):
        for how, changed in damages((good / file).read_bytes(), flips):
            shutil.copytree(good, bad)
            if changed is None:
                (bad / file).unlink()
            else:
                (bad / file).write_bytes(changed)
            try:
                restored = plain(checkpoint.restore(bad, **options))
            except CheckpointError as error:
                came = "named" if str(bad / file) in str(error) else str(error)
            else:
                same = weft.tree.structure(restored) == weft.tree.structure(expected)
                same = same and weft.tree.all(weft.tree.map(np.array_equal, restored, expected))
                came = "equal" if same else "other values"
            yield str(file), how, came
            shutil.rmtree(bad)


def check(results, least):
    """Check all outcomes; of the data files at least `least` were needed and named."""
    named = set()
    for file, how, came in results:
        if came == "named":
            named.add(file)
        else:
            assert came == "equal", (file, how, came)
            is_unneeded = (
                file.endswith(UNUSED) or "ocdbt.process" in file or "/d/" in file
            )  # tables that were replaced
            assert is_unneeded or (file.endswith("weft_sums.json") and how == "lost"), (file, how)
    assert {name.rpartition("/")[2] for name in named} >= {
        "_METADATA",
        "_strings.json",
        "_sharding",
        "process_0",
        "manifest.ocdbt",
        "weft_sums.json",
    }
    assert len([name for name in named if "/d/" in name]) >= least


def test_every_file_of_a_step_is_named_when_it_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "BLOCK_BYTES", 4096)
    tree = {
        "big": wnp.arange(3000.0),
        "small": [wnp.ones(2), 3],
        "name": "run",
        "key": weft.random.key(5),
    }
    checkpoint.save(tmp_path / "good", tree, 1).wait()
    check(outcomes(tmp_path / "good", tmp_path / "bad", step=1), 1)


def two_save():
    import sys

    import numpy as np

    import weft
    from weft.checkpoint import store
    from weft.sharding import NamedSharding, PartitionSpec as P

    store.BLOCK_BYTES = 4096
    value = np.arange(4096, dtype=np.float32)
    rows = NamedSharding(weft.make_mesh((2,), ("x",)), P("x"))
    big = weft.make_array_from_callback(value.shape, rows, lambda index: value[index])
    weft.checkpoint.save(sys.argv[1], {"big": big, "number": 3, "name": "run"}, 1).wait()


def test_files_of_each_process_are_named(tmp_path):
    folder = tmp_path / "à 'quoted' \"name\""  # tensorstore escapes it in its messages
    run_ranks(2, two_save, arguments=[str(folder)])
    check(outcomes(folder, tmp_path / "bad é '\"", flips=5), 3)


@pytest.mark.parametrize("ocdbt", [False, True])
@pytest.mark.parametrize("zarr3", [False, True])
def test_files_of_orbax_are_named(tmp_path, ocdbt, zarr3):
    written_like_orbax(tmp_path / "good" / "5" / "default", ocdbt, zarr3)
    (tmp_path / "good" / "5" / "_CHECKPOINT_METADATA").write_text("{}")
    named = set()
    for file, how, came in outcomes(tmp_path / "good", tmp_path / "bad", flips=1):
        if came == "named":
            named.add(file)
        elif how == "lost" and file.endswith("_METADATA") and not ocdbt:
            assert file.endswith("_CHECKPOINT_METADATA") or "a step has no tree" in came
        else:
            assert came == "equal" and (file.endswith(UNUSED) or "/d/" in file), (file, how, came)
    assert len(named) >= (5 if ocdbt else 8) - 2 * zarr3 * (not ocdbt), named


def test_a_tree_description_that_is_lost_is_named(tmp_path):
    checkpoint.save(tmp_path, {"a": wnp.ones(3)}, 1).wait()
    (tmp_path / "1" / "default" / "_METADATA").unlink()
    for path in (tmp_path, tmp_path / "1", tmp_path / "1" / "default"):
        with pytest.raises(CheckpointError, match=r"1/default/_METADATA\n +found +it is not there"):
            checkpoint.restore(path)


def test_texts_of_another_form_are_damage(tmp_path):
    checkpoint.save(tmp_path, {"a": weft.random.key(3), "s": "text"}, 1).wait()
    item = tmp_path / "1" / "default"
    (item / "weft_sums.json").unlink()  # as in a checkpoint of orbax
    for name, text in (
        ("_strings.json", "[1]"),
        ("_METADATA", "[]"),
        ("_METADATA", '{"tree_metadata": {"x": {}}}'),
        ("array_metadatas/process_0", '{"array_metadatas": [{}]}'),
    ):
        before = (item / name).read_text()
        (item / name).write_text(text)
        with pytest.raises(CheckpointError) as caught:
            checkpoint.restore(tmp_path)
        assert str(item / name) in str(caught.value)
        (item / name).write_text(before)
    (item / "weft_sums.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"weft_sums\.json"):
        checkpoint.restore(tmp_path)


def test_damage_errors_name_the_array_and_keep_older_steps(tmp_path):
    for step in (1, 2):
        checkpoint.save(tmp_path, {"w": wnp.arange(3000.0)}, step).wait()
    for file in (tmp_path / "2" / "default" / "d").iterdir():
        if file.stat().st_size > 12_000:
            held = bytearray(file.read_bytes())
            held[6000] ^= 1
            file.write_bytes(held)
    with pytest.raises(
        CheckpointError,
        match=r"(?s)a file is damaged.*2/default.*\['w'\] cannot be read.*Restore another step",
    ):
        checkpoint.restore(tmp_path)
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.verify(tmp_path)
    assert (checkpoint.restore(tmp_path, step=1)["w"] == np.arange(3000.0)).all()
