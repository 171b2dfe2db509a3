"""`weft profile`: the table, the file, and the comparison of two runs."""

from __future__ import annotations

import json

import pytest

from tests.tools.test_cli import run_weft
from weft.profiler import Profile, record
from weft.profiler.comparison import compare

SCRIPT = """
import sys
import weft, weft.numpy as wnp

@weft.jit
def step(x):
    for _ in range(int(sys.argv[1])):
        x = wnp.tanh(x @ x)
    return x

x = wnp.ones((64, 64))
for _ in range(3):
    step(x)
print("the program's own output")
if sys.argv[1] == "4":
    sys.exit(5)
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_command_prints_and_saves_the_profile(script):
    done = run_weft("profile", "--save", "p.json", "train.py", "2", cwd=script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "the program's own output"
    matmuls = [line for line in lines if "matmul 64x64x64 f32" in line]
    assert len(matmuls) == 2 and all(line.endswith("train.py:8") for line in matmuls)
    profile = Profile.load(script / "p.json")
    assert sum(call.records.dropped for call in profile.calls) == 0
    assert [s.runs for s in profile.steps() if s.facts.kind == "matmul"] == [3, 3]
    assert json.loads((script / "p.json").read_text())["traceEvents"]
    compared = run_weft("profile", "--compare", "p.json", "train.py", "4", cwd=script)
    assert compared.returncode == 5  # the program's own
    assert "before, " in compared.stdout and "matmul 64x64x64 f32" in compared.stdout


def test_other_files_are_not_compared(script):
    (script / "x.json").write_text("[]")
    done = run_weft("profile", "--compare", "x.json", "train.py", "1", cwd=script)
    assert done.returncode == 2 and "has no profile" in done.stderr


def test_comparison_matches_steps_and_lists_new_ones():
    import numpy as np

    import weft
    import weft.numpy as wnp

    x = np.ones((32, 32), np.float32)

    def profile_of(fun):
        def step(x):
            return fun(x)

        with record() as profile:
            for _ in range(2):
                weft.jit(step)(x)
        return profile

    before = profile_of(lambda x: wnp.sin(x @ x))
    after = profile_of(lambda x: wnp.sort(x, axis=1))
    steps = compare(before, after).steps
    assert {step.kind: (step.before is None, step.after is None) for step in steps} == {
        "matmul": (False, True),
        "sort": (True, False),
    }
    same = compare(before, before).steps
    assert all(step.before == step.after and step.change == 0 for step in same)
    assert "per call:" in str(compare(before, after))


PROCESSES = """
import numpy as np
import weft
from weft.sharding import NamedSharding, PartitionSpec as P

mesh = weft.make_mesh((weft.device_count(),), ("x",))
x = weft.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh, P("x")))
step = weft.jit(lambda x: x @ x.T)
with weft.profiler.record() as profile:
    for _ in range(2):
        step(x)
program = profile.programs[-1]
runs = {total.facts.kind: (total.runs, total.facts.line) for total in profile.steps()}
print(weft.process_index(), program.devices, runs["exchange"], runs["wait"])
"""


def test_each_process_records_its_exchanges_and_waits(tmp_path):
    (tmp_path / "train.py").write_text(PROCESSES)
    command = ("launch", "-n", "2", "--devices-per-process", "2", "--no-prefix", "train.py")
    done = run_weft(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "0 (0, 1) (2, 'train.py:8') (2, 'train.py:8')",
        "1 (2, 3) (2, 'train.py:8') (2, 'train.py:8')",
    ]
