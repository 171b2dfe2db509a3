"""Whatever happens to a save or to its files, a step is complete or refused: values are never
wrong, and older steps are never lost."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.processes import ROOT, run_python
from tests.processes.ranks import PATIENCE_S
from weft import checkpoint

CRASHES = Path(__file__).parent / "crashes.py"


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_process_may_be_killed_at_every_file_operation(tmp_path, every):
    done = run_python(CRASHES, "events", tmp_path, every, timeout=PATIENCE_S)
    results = json.loads(done.stdout) if done.returncode == 0 else pytest.fail(done.stderr)
    assert [result["status"] for result in results] == [-signal.SIGKILL] * (len(results) - 1) + [
        0
    ] and len(results) > 30 // every
    before = [1]
    for result in results:
        assert all(result["whole"]), result
        named = [*before, result["step"]]
        assert result["steps"] == before or result["steps"] in [
            named[i:] for i in range(len(named) - 1)
        ], (before, result)
        before = result["steps"]
    *steps, claim = sorted(tmp_path.iterdir(), key=lambda path: (len(path.name), path.name))
    assert [int(path.name) for path in steps] == results[-1]["steps"] and claim.name.startswith(
        "weft_claim."
    )


def test_no_room_is_a_clear_error_and_the_older_step_remains(tmp_path):
    done = run_python(CRASHES, "limits", tmp_path, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    for result in json.loads(done.stdout):
        *files, claim = result.pop("left")
        assert files == ["1"] and claim.startswith("weft_claim.")
        assert result == {"status": 1, "steps": [1], "whole": [True]}
    lines = [line for line in done.stderr.splitlines() if "was not saved" in line]
    assert len(lines) == 4 and all(
        line.startswith("CheckpointError checkpoint.save: a step was not saved.") for line in lines
    )
    assert all("File too large" in line and "existing steps  1" in line for line in lines), lines


def killed_at_random(folder, seeds, longest):
    """Kill a program that saves, once for each seed, at moments up to `longest` seconds after its first step: no reported step is lost."""
    saved = 0
    for seed in seeds:
        child = subprocess.Popen(
            [sys.executable, CRASHES, "train", folder, "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**__import__("os").environ, "PYTHONPATH": str(ROOT)},
        )
        saved = int(
            child.stdout.readline() or child.stderr.read()
        )  # it has resumed: the last step was whole
        time.sleep(random.Random(seed).uniform(0, longest))
        child.kill()
        output, wrong = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == -signal.SIGKILL and not wrong, (seed, wrong)
        saved = max([saved, *map(int, output.split())])
        newest = checkpoint.latest_step(folder)
        assert newest in (saved, saved + 1), (seed, saved, checkpoint.steps(folder))
        checkpoint.verify(folder)
        assert (checkpoint.restore(folder)["w"] == newest).all(), seed
    return saved


def test_a_program_may_be_killed_at_random(tmp_path):
    assert killed_at_random(tmp_path, range(3), 0.2) >= 3


@pytest.mark.slow
def test_a_program_may_be_killed_at_random_many_times(tmp_path):
    assert killed_at_random(tmp_path, range(100, 300), 0.3) >= 200


def test_what_an_interrupted_save_left_is_no_step_and_goes(tmp_path):
    (tmp_path / "5.orbax-checkpoint-tmp" / "default").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "7").mkdir()
    assert checkpoint.steps(tmp_path) == []
    checkpoint.save(tmp_path, {"a": 1}, 8).wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7", "8", "notes", "weft_claim.1"]


def test_a_program_that_never_waits_is_told_at_its_end(tmp_path):
    one = "import sys; from weft.checkpoint import save; save(sys.argv[1], {'a': 1}, 1)"
    program = f"{one}; save(sys.argv[1], {{'a': 2}}, 2)"
    done = run_python("-c", program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and checkpoint.restore(tmp_path)["a"] == 2
    done = run_python("-c", one, tmp_path)
    assert (
        "weft: checkpoint.save: a step was not saved." in done.stderr
        and "overwrite=True" in done.stderr
    )
