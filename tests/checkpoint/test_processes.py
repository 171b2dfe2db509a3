"""Several processes save one checkpoint, each its own shards; any number restores it; all report a failure of one."""

import json
import re
import signal
import time

import numpy as np
import pytest

import weft
from tests.processes.ranks import ranks, run_ranks
from weft import checkpoint


def saves():
    import sys

    import numpy as np

    import weft
    from weft.checkpoint import store
    from weft.sharding import NamedSharding, PartitionSpec as P

    store.BLOCK_BYTES = 8192
    value = np.arange(512 * 64, dtype=np.float32).reshape(512, 64)
    mesh = weft.make_mesh((len(weft.devices()) // 2, 2), ("x", "y"))
    arrays = {
        str(spec): weft.make_array_from_callback(
            value.shape, NamedSharding(mesh, spec), lambda index: value[index]
        )
        for spec in (P("x", "y"), P(("y", "x")), P(), P("y"), P(None, "x"))
    }
    tree = {"arrays": arrays, "host": np.arange(5), "name": "run", "step": 3}
    saving = weft.checkpoint.save(sys.argv[1], tree, 3).wait()
    print(saving.written)


def restores():
    import sys

    import numpy as np
    import tensorstore as ts

    import weft
    from weft.sharding import NamedSharding, PartitionSpec as P

    value = np.arange(512 * 64, dtype=np.float32).reshape(512, 64)
    rows = NamedSharding(weft.make_mesh((len(weft.devices()),), ("z",)), P("z"))
    tree = weft.checkpoint.restore(
        sys.argv[1], shardings={"arrays": rows, "host": None, "name": None, "step": None}
    )
    (metric,) = ts.experimental_collect_matching_metrics("/tensorstore/kvstore/file/bytes_read")
    for array in tree["arrays"].values():
        assert array.sharding == rows and array.shape == value.shape
        for shard in array.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), value[shard.index])
    assert tree["host"].tolist() == [0, 1, 2, 3, 4] and tree["name"] == "run" and tree["step"] == 3
    print(sum(value["value"] for value in metric["values"]))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    return folder, [int(rank.out) for rank in run_ranks(2, saves, 2, arguments=[str(folder)])]


def test_each_process_writes_its_share_once(saved):
    folder, written = saved
    whole = 512 * 64 * 4
    assert (
        sum(written) == 5 * whole + 40 + 8 and max(written) - min(written) <= whole + 48
    )  # one that all have is written by one
    assert sorted(path.name for path in (folder / "3" / "default").iterdir() if path.is_dir()) == [
        "array_metadatas",
        "d",
        "ocdbt.process_0",
        "ocdbt.process_1",
    ]
    checkpoint.verify(folder)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_any_number_of_processes_restores(saved, n):
    folder, _ = saved
    outcomes = run_ranks(
        n, restores, 4 // n, arguments=[str(folder)], initialize=n > 1, environment=None
    )
    whole = 5 * 512 * 64 * 4
    assert len(outcomes) == n and all(
        int(rank.out) < whole / n + whole / 4 for rank in outcomes
    )  # blocks at borders are read by two


def test_a_checkpoint_of_one_process_is_that_of_two(saved, tmp_path):
    run_ranks(1, saves, 4, arguments=[str(tmp_path)], initialize=False)
    one, two = (checkpoint.restore(folder) for folder in (tmp_path, saved[0]))
    assert weft.tree.structure(one) == weft.tree.structure(two)
    assert weft.tree.all(weft.tree.map(lambda x, y: np.array_equal(x, y), one, two))


def disagrees():
    import sys

    import numpy as np

    import weft

    rank = weft.process_index()
    for step, tree in (
        (1, {"a": np.ones(3)}),
        (2, {"a": np.ones(3 + rank)}),
        (3, {"a": np.ones(3)}),
    ):
        try:
            weft.checkpoint.save(sys.argv[1], tree, step).wait()
            print("saved", step)
        except weft.errors.CheckpointError as error:
            print("refused", step, "different trees" in str(error))


def fails():
    import sys

    import numpy as np

    import weft
    from weft.checkpoint import store

    if weft.process_index() == 1:

        def full(self):
            raise weft.errors.CheckpointError("No space left on device")

        store.ArrayWriter.finish = full
    try:
        weft.checkpoint.save(sys.argv[1], {"a": np.ones(3)}, 4).wait()
    except weft.errors.CheckpointError as error:
        print("No space left on device" in str(error), "process 1" in str(error))


def test_an_error_of_one_is_an_error_of_all(tmp_path):
    for rank in run_ranks(2, disagrees, arguments=[str(tmp_path)]):
        assert rank.out.splitlines() == ["saved 1", "refused 2 True", "saved 3"]
    assert [rank.out.split() for rank in run_ranks(2, fails, arguments=[str(tmp_path)])] == [
        ["True", "True"],
        ["True", "False"],
    ]
    assert checkpoint.steps(tmp_path) == [1, 3] and {path.name for path in tmp_path.iterdir()} == {
        "1",
        "3",
        "weft_claim.2",
    }


def goes_on():
    import sys

    import numpy as np

    import weft
    from weft.sharding import NamedSharding, PartitionSpec as P

    folder = sys.argv[1]
    step = weft.checkpoint.latest_step(folder) or 0
    sharding = NamedSharding(weft.make_mesh((len(weft.devices()),), ("x",)), P("x"))
    if step:
        like = {"w": weft.ShapeDtypeStruct((1 << 18,), np.int32, sharding=sharding), "step": 0}
        restored = weft.checkpoint.restore(folder, like)
        assert restored["step"] == step and all(
            (np.asarray(shard.data) == step).all() for shard in restored["w"].addressable_shards
        )
    while True:
        step += 1
        w = weft.make_array_from_callback(
            (1 << 18,), sharding, lambda index, step=step: np.full(1 << 18, step, np.int32)[index]
        )
        weft.checkpoint.save(folder, {"w": w, "step": step}, step, keep=2).wait()
        print(step, flush=True)


def killed(folder, seeds, sizes):
    """Kill one of several processes at a random moment of saving, and continue with another number
    of them."""
    last_saved = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n = int(rng.choice(sizes))
        victim = int(rng.integers(n))
        with ranks(n, goes_on, 2, arguments=[str(folder)], initialize=n > 1) as running:
            running.wait_for("\n", rank=0)
            time.sleep(rng.uniform(0, 0.3))
            running.kill(victim)
            began = time.monotonic()
            outcomes = running.finish()
            assert time.monotonic() - began < 5, (seed, running.shown())
        assert [rank.exit_code == -signal.SIGKILL for rank in outcomes] == [
            rank == victim for rank in range(n)
        ], seed
        assert all(
            "ProcessFailureError" in rank.err and "Assertion" not in rank.err
            for rank in outcomes
            if rank.rank != victim
        ), seed
        last_saved = max(
            last_saved,
            *(
                int(line)
                for rank in outcomes
                for line in re.findall(r"^\d+$", rank.out, re.MULTILINE)
            ),
        )
        newest = checkpoint.latest_step(folder)
        assert newest in (last_saved, last_saved + 1), (seed, last_saved, checkpoint.steps(folder))
        stored = checkpoint.restore(folder)
        assert stored["step"] == newest and (stored["w"] == newest).all(), seed
    return json.dumps({"kills": len(seeds), "steps": last_saved})


def test_a_killed_process_ends_the_others_and_no_step_is_lost(tmp_path):
    print(killed(tmp_path, range(2), (2,)))


@pytest.mark.slow
def test_processes_are_killed_many_times(tmp_path):
    print(killed(tmp_path, range(10, 40), (1, 2, 4)))
