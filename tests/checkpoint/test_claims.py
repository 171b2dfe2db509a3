"""A folder of checkpoints is claimed by the group of processes that saves there last: a group that it replaced cannot change the steps."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

import weft.numpy as wnp
from tests.checkpoint.test_faults import CRASHES
from tests.harness.processes import ROOT, run_python
from tests.processes.ranks import PATIENCE_S, ranks
from weft import checkpoint
from weft.checkpoint import store
from weft.errors import CheckpointError, CheckpointSupersededError

SAVES = "import sys; from weft import checkpoint; [checkpoint.save(sys.argv[1], {'a': n}, n).wait() for n in map(int, sys.argv[2:])]"


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_programs_save_in_one_folder_one_after_the_other(tmp_path):
    for number, step in enumerate((4, 5, 6), 1):
        done = run_python("-c", SAVES, tmp_path, step)
        assert done.returncode == 0, done.stderr
        assert files(tmp_path)[-1] == f"weft_claim.{number}"
    assert checkpoint.steps(tmp_path) == [4, 5, 6]
    about = json.loads((tmp_path / "weft_claim.3").read_text())
    assert about["processes"] == 1 and about["host"] and about["process"] and about["time"]


def test_a_folder_without_a_claim_gets_the_first(tmp_path):
    checkpoint.save(tmp_path, {"a": 1}, 1).wait()
    (tmp_path / "weft_claim.1").unlink()  # as weft left it before there were claims
    assert run_python("-c", SAVES, tmp_path, 2).returncode == 0
    assert files(tmp_path) == ["1", "2", "weft_claim.1"] and checkpoint.restore(tmp_path) == {
        "a": 2
    }


def test_a_group_that_was_replaced_can_save_no_more(tmp_path):
    checkpoint.save(tmp_path, {"a": 1}, 1).wait()
    assert run_python("-c", SAVES, tmp_path, 2).returncode == 0
    before = files(tmp_path)
    for options in ({}, {"overwrite": True}, {"keep": 1}):
        with pytest.raises(CheckpointSupersededError) as caught:
            checkpoint.save(tmp_path, {"a": wnp.ones(3)}, 2, **options).wait()
        message = str(caught.value)
        assert (
            "claimed by" in message
            and "token 2: -c on" in message
            and "this group  token 1" in message
            and str(tmp_path) in message
        )
        assert (
            "test_claims.py" in message
            and "End this program if the other one replaced it" in message
        )
        assert files(tmp_path) == before and checkpoint.restore(tmp_path) == {"a": 2}
    with pytest.raises(CheckpointSupersededError):
        checkpoint.delete(tmp_path, 1)
    assert files(tmp_path) == before and isinstance(caught.value, CheckpointError)
    checkpoint.save(tmp_path / "mine", {"a": 3}, 3).wait()  # another folder is another claim


def test_a_folder_that_was_emptied_is_claimed_again(tmp_path):
    for step in (1, 2):
        checkpoint.save(tmp_path / "a", {"a": step}, step).wait()
        for path in (tmp_path / "a").glob("weft_claim.*"):
            path.unlink()
        (tmp_path / "a").rename(tmp_path / f"aside{step}")
    checkpoint.save(tmp_path / "a", {"a": 3}, 3).wait()
    assert files(tmp_path / "a") == ["3", "weft_claim.3"]
    (tmp_path / "a" / "weft_claim.3").unlink()
    checkpoint.delete(tmp_path / "a", 3)


def test_a_claim_that_is_removed_during_a_save_is_told(tmp_path, monkeypatch):
    finish = store.ArrayWriter.finish
    monkeypatch.setattr(
        store.ArrayWriter,
        "finish",
        lambda self: (finish(self), (tmp_path / "weft_claim.1").unlink()),
    )
    with pytest.raises(CheckpointSupersededError) as caught:
        checkpoint.save(tmp_path, {"a": 1}, 1).wait()
    assert re.search(
        r"(?s)the claim of this group .*was removed.*no group; weft_claim\.1 is gone",
        str(caught.value),
    )
    assert caught.value.__context__ is None  # or else it is printed twice
    assert checkpoint.steps(tmp_path) == []


def test_a_lost_claim_is_not_renewed_over_a_greater_one(tmp_path):
    checkpoint.save(tmp_path, {"a": 1}, 1).wait()
    (tmp_path / "weft_claim.1").rename(tmp_path / "weft_claim.7")
    with pytest.raises(CheckpointSupersededError, match="claimed by  token 7"):
        checkpoint.save(tmp_path, {"a": 2}, 2).wait()
    (tmp_path / "weft_claim.7").write_text("")  # its owner ended before it wrote its name
    with pytest.raises(
        CheckpointSupersededError, match="token 7: an owner whose file cannot be read"
    ):
        checkpoint.save(tmp_path, {"a": 2}, 2).wait()


MANY = """
import sys
from pathlib import Path
from weft.checkpoint.claims import Claims
print("ready", flush=True)
sys.stdin.readline()
for _ in range(40):
    print(Claims().acquire(Path(sys.argv[1])).token)
"""


def test_of_many_claims_at_once_one_holds(tmp_path):
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", MANY, tmp_path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for _ in range(4)
    ]
    assert all(process.stdout.readline() == "ready\n" for process in starts)
    for process in starts:
        process.stdin.write("\n")
        process.stdin.flush()
    tokens_of_processes = [
        list(map(int, process.communicate(timeout=PATIENCE_S)[0].split())) for process in starts
    ]
    tokens = [token for one in tokens_of_processes for token in one]
    assert len(tokens) == len(set(tokens)) == 160 and all(
        one == sorted(one) for one in tokens_of_processes
    )
    assert files(tmp_path) == [f"weft_claim.{max(tokens)}"]


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_group_may_be_replaced_at_every_file_operation(tmp_path, every):
    done = run_python(CRASHES, "overtakes", tmp_path, every, timeout=PATIENCE_S)
    results = json.loads(done.stdout) if done.returncode == 0 else pytest.fail(done.stderr)
    assert not results.pop()["paused"] and len(results) > 60 // every
    superseded = 0
    for number, result in enumerate(results):
        values = {int(step): value for step, value in result["values"].items()}
        if number * every < 5:  # before its own claim: it is the one that replaces the other
            assert (values, result["error"]) == ({7: 7}, ""), result
            continue
        assert values[5] == 500 and values[6] == 6, result
        assert (
            (7 in values) == (7 in result["before"])
            and values.get(7, 7) == 7
            and values.get(1, 1) == 1
        ), result
        assert (
            result["error"].startswith("CheckpointSupersededError")
            if 7 not in values
            else not result["error"]
        ), result
        superseded += bool(result["error"])
    assert superseded > len(results) // 2


def two_save():
    import sys
    import time

    import numpy as np

    import weft
    from weft import checkpoint

    folder = sys.argv[1]
    checkpoint.save(folder, {"a": np.ones(3)}, 1).wait()
    print("saved", flush=True)
    while checkpoint.latest_step(folder) != 2:
        time.sleep(0.01)
    try:
        checkpoint.save(folder, {"a": np.ones(3)}, 3).wait()
    except weft.errors.CheckpointSupersededError as error:
        print("the first of 2, coordinator 127.0.0.1" in str(error), "claimed by" in str(error))


def test_all_processes_of_a_replaced_group_say_so(tmp_path):
    with ranks(2, two_save, arguments=[str(tmp_path)]) as running:
        running.wait_for("saved")
        assert run_python("-c", SAVES, tmp_path, 2).returncode == 0
        assert [rank.out for rank in running.finish()] == ["saved\nTrue True\n"] * 2
    assert files(tmp_path) == ["1", "2", "weft_claim.2"]


def shrinks():
    import sys

    import numpy as np

    import weft
    import weft.distributed
    from weft import checkpoint
    from weft.experimental.multihost_utils import sync_global_devices

    folder = sys.argv[1]
    checkpoint.save(folder, {"a": np.ones(3)}, 1).wait()
    print("saved", flush=True)
    try:
        while True:
            sync_global_devices("on")
    except weft.errors.ProcessFailureError:
        weft.distributed.shrink()
    checkpoint.save(folder, {"a": np.ones(3)}, 2).wait()
    print("went on", flush=True)


@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_that_go_on_are_a_new_group(tmp_path, victim):
    with ranks(3, shrinks, arguments=[str(tmp_path)]) as running:
        for rank in range(3):
            running.wait_for("saved", rank)
        running.kill(victim, signal.SIGKILL)
        outcomes = running.finish()
        assert ["went on" in rank.out for rank in outcomes] == [
            rank != victim for rank in range(3)
        ], running.shown()
    assert files(tmp_path) == ["1", "2", "weft_claim.2"]
    about = json.loads((tmp_path / "weft_claim.2").read_text())
    assert (about["group"], about["processes"]) == (1, 2)
