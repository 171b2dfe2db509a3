"""The example that trains through preemption, restarts and lost processes ends with the parameters
of an undisturbed run."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tests.processes.ranks import PATIENCE_S, ROOT, Running, ranks, run_ranks
from tests.processes.test_launch import Launched
from weft import checkpoint

PROGRAM = f"import runpy; runpy.run_path({str(ROOT / 'examples' / 'train_elastic.py')!r}, run_name='__main__')"
STEPS = 400


def words(folder, *more):
    return ["--folder", str(folder), "--steps", str(STEPS), "--save-every", "30", *more]


def finished(folder, n):
    """Run the example to its end; return the line with the bits of its parameters."""
    out = run_ranks(n, PROGRAM, initialize=n > 1, arguments=words(folder))[0].out
    assert out.splitlines()[-1].startswith("parameters ")
    return out.splitlines()[-1]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return {n: finished(folder / str(n), n) for n in (1, 2)}


def disturbed(folder, n, step, victim, number) -> Running:
    """Start the example and signal a process after its first step; then wait for the end of all its
    processes."""
    with ranks(n, PROGRAM, initialize=n > 1, arguments=words(folder)) as running:
        running.wait_for(f"step {step} ")
        running.kill(victim, number)
        running.finish()
        return running


@pytest.mark.parametrize("n, victim", [(1, 0), (2, 1)])
def test_a_preempted_program_continues_with_the_same_bits(tmp_path, undisturbed, n, victim):
    ends = []
    for step in (40, 200):
        running = disturbed(tmp_path, n, step, victim, signal.SIGTERM)
        assert [process.returncode for process in running.processes] == [75] * n
        ends.append(checkpoint.latest_step(tmp_path))
    assert 40 <= ends[0] < ends[1] < STEPS and ends[1] >= 200
    assert finished(tmp_path, n) == undisturbed[n]


@pytest.mark.parametrize("n, victim", [(1, 0), (2, 0), (2, 1)])
def test_a_killed_program_continues_with_the_same_bits(tmp_path, undisturbed, n, victim):
    running = disturbed(tmp_path, n, 120, victim, signal.SIGKILL)
    assert all(process.returncode not in (0, 75) for process in running.processes)
    assert checkpoint.latest_step(tmp_path) >= 90
    assert finished(tmp_path, n) == undisturbed[n]


@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_continue_in_place(tmp_path, victim):
    with ranks(3, PROGRAM, arguments=words(tmp_path / "shrunk", "--shrink")) as running:
        running.wait_for("step 100 ")
        running.kill(victim)
        outcomes = running.finish()
        assert [rank.exit_code for rank in outcomes] == [
            -9 if rank == victim else 0 for rank in range(3)
        ], running.shown()
        assert "2 processes continue at step" in outcomes[1 if victim == 0 else 0].out
    other = tmp_path / "one"
    finished(other, 1)
    ours, theirs = (
        checkpoint.restore(folder, step=390)["state"]["params"]
        for folder in (tmp_path / "shrunk", other)
    )
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-3, atol=1e-4)


def children(pid):
    """Return the child processes of a process by their rank."""
    steps = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                parent = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
                rank = re.search(rb"WEFT_PROCESS_ID=(\d+)", folder.joinpath("environ").read_bytes())
                if parent == pid and rank:
                    steps[int(rank[1])] = int(folder.name)
    return steps


def test_a_launcher_starts_it_again_with_the_same_bits(tmp_path, undisturbed):
    launched = Launched(
        tmp_path,
        "-n",
        "2",
        "--restarts",
        "2",
        "program.py",
        *words(tmp_path / "steps"),
        program=PROGRAM,
    )
    for number, victim in enumerate((1, 0), 1):
        until = time.monotonic() + PATIENCE_S
        while (
            launched.out.count("continues at step") < number - 1
            or f"step {100 * number} " not in launched.out
        ):
            assert time.monotonic() < until and launched.process.poll() is None, (
                launched.out + launched.err
            )
            time.sleep(0.01)
        os.kill(children(launched.process.pid)[victim], signal.SIGKILL)
    assert launched.wait() == 0, launched.err
    assert launched.out.count("continues at step") == 2 and launched.out.splitlines()[-1].endswith(
        undisturbed[2]
    )
