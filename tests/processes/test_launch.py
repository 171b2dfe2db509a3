"""`weft launch`: exit statuses, signals, failures and restarts; and the same program under
`mpiexec`. All processes end."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes.ranks import AS_ROOT, IS_OPEN_MPI, MPIEXEC, PATIENCE_S, ROOT, mpiexec

PROGRAM = """
import os, sys, time
import weft, weft.distributed
from weft._engine import processes
weft.distributed.initialize()           # the launcher has initialized it; a second call is allowed
me, what = weft.process_index(), sys.argv[1]
print(f"rank {me} of {weft.process_count()}, {weft.device_count()} devices, pid {os.getpid()}", flush=True)
if what == "raise" and me == 1:
    raise ValueError("a bad value")
if what == "exit" and me == 1:
    sys.exit(7)
if what == "kill" and me == weft.process_count() - 1 and weft.process_count() > 2:
    os.kill(os.getpid(), 9)
if what == "lone" and me == 1:
    os.kill(os.getpid(), 9)
if what == "stopped" and me == 1:
    os.kill(os.getpid(), 19)
if what == "child" and me == 1:
    os.system("sleep 300 & echo child $!")
    sys.stdout.flush()
    os.kill(os.getpid(), 9)
if what in ("wait", "deaf"):
    while True:
        try:
            time.sleep(100)
        except KeyboardInterrupt:
            if what == "wait":
                raise
if what != "exit":
    processes.current().barrier("end")
print(f"done {me}", flush=True)
"""


class Launched:
    """A running launcher and its output."""

    def __init__(self, folder, *words, command=("-m", "weft", "launch"), program=PROGRAM, name=""):
        self.folder = Path(folder)
        Path(folder, "program.py").write_text(program)
        self._out, self._err = Path(folder, name + "out"), Path(folder, name + "err")
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, *command, *words],
                cwd=folder,
                stdout=out,
                stderr=err,
                env={**os.environ, "PYTHONPATH": str(ROOT), "WEFT_NUM_DEVICES": "1", **AS_ROOT},
            )

    @property
    def out(self):
        return self._out.read_text()

    @property
    def err(self):
        return self._err.read_text()

    def wait(self, timeout=PATIENCE_S):
        try:
            return self.process.wait(timeout)
        finally:
            self.process.kill()

    def wait_for(self, count, text="rank ", timeout=PATIENCE_S):
        until = time.monotonic() + timeout
        while self.out.count(text) < count:
            assert time.monotonic() < until, self.out + self.err
            time.sleep(0.02)

    def pids(self):
        return [int(number) for number in re.findall(r"(?:pid|child) (\d+)", self.out)]


def gone(launched, within=20.0):
    """Return whether no process is alive or a zombie. Their ids may be reused by processes
    elsewhere."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if not any(is_there(pid, launched.folder) for pid in launched.pids()):
            return True
        time.sleep(0.02)
    return False


def is_there(pid, folder):
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text() or os.readlink(
            f"/proc/{pid}/cwd"
        ) == str(folder)
    except OSError:
        return False


def test_all_end_well(tmp_path):
    launched = Launched(tmp_path, "-n", "2", "--devices-per-process", "3", "program.py", "well")
    assert launched.wait() == 0, launched.err
    assert sorted(
        re.findall(r"^\[\d\] (?:done \d|rank \d of 2, 6 devices)", launched.out, re.MULTILINE)
    ) == ["[0] done 0", "[0] rank 0 of 2, 6 devices", "[1] done 1", "[1] rank 1 of 2, 6 devices"]


@pytest.mark.parametrize(
    ("what", "status", "message"),
    [
        ("raise", 1, "ended with exit status 1"),
        pytest.param("exit", 7, "ended with exit status 7", marks=pytest.mark.slow),
        ("child", 137, "was killed by signal 9 (SIGKILL)"),
    ],
)
def test_a_failure_ends_all_and_names_the_first(what, status, message, tmp_path):
    launched = Launched(tmp_path, "-n", "2", "program.py", what)
    assert launched.wait() == status, launched.err
    assert (
        launched.err.count("weft launch: process 1 on ") == 1 and launched.err.count(message) == 1
    )
    assert gone(launched)
    if what != "exit":
        assert "process 0 ended because of it" in launched.err and "done" not in launched.out
    if what == "raise":
        assert (
            "[1]     raise ValueError" in launched.err
            and launched.err.count("ValueError: a bad value") == 1
        )
    if (
        what == "child"
    ):  # it reports no error itself; another process's error shows where the program was
        assert launched.err.count("ProcessFailureError: distributed: process 1") == 1


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("deaf", signal.SIGINT),
        pytest.param("wait", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("wait", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_signals_are_passed_on_and_end_all_ranks(what, number, tmp_path):
    launched = Launched(tmp_path, "-n", "2", "program.py", what)
    launched.wait_for(2)
    launched.process.send_signal(number)
    if what == "deaf":
        time.sleep(0.3)
        launched.process.send_signal(number)  # a second signal ends the processes at once
    assert launched.wait() == 128 + number
    assert gone(launched)


SLOW_TO_END = """
import os, signal, sys, time
import weft
me, what = weft.process_index(), sys.argv[1]
def end(*_):
    time.sleep(0.5)
    print("saved", me, flush=True)
    os._exit(75 if what == "preempt" else 0)
if what != "deaf":
    signal.signal(signal.SIGTERM, end)
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("rank", me, "pid", os.getpid(), flush=True)
if what == "fail" and me == 1:
    os.kill(os.getpid(), 9)
end_at = time.monotonic() + 300
while time.monotonic() < end_at:
    try:
        time.sleep(1)
    except Exception as error:
        print("told", me, flush=True)
"""


@pytest.mark.parametrize(
    ("what", "grace", "status", "saved"),
    [("save", 60, 128 + 15, 2), ("preempt", 60, 75, 2), ("deaf", 1, 128 + 15, 0)],
)
def test_ranks_have_the_grace_period_to_save(what, grace, status, saved, tmp_path):
    launched = Launched(
        tmp_path, "-n", "2", "--grace", str(grace), "program.py", what, program=SLOW_TO_END
    )
    launched.wait_for(2)
    began = time.monotonic()
    launched.process.send_signal(signal.SIGTERM)
    assert launched.wait() == status, launched.err
    assert launched.out.count("saved") == saved and gone(launched)
    if what == "deaf":
        assert time.monotonic() - began >= grace
    if what == "preempt":
        assert "weft launch: the program was preempted (exit status 75)" in launched.err


def test_survivors_that_go_on_have_the_grace_period(tmp_path):
    launched = Launched(
        tmp_path, "-n", "3", "--grace", "4", "program.py", "fail", program=SLOW_TO_END
    )
    assert launched.wait() == 137, launched.err
    assert launched.out.count("told") == 2 and gone(launched)
    assert "process 1 failed; up to 1 s for processes 0, 2 to end" in launched.err


def test_the_same_error_of_all_is_printed_once(tmp_path):
    launched = Launched(tmp_path, "-n", "3", "program.py", program="object() + 1\n")
    assert launched.wait() == 1
    assert (
        launched.err.count("TypeError: unsupported") == 1 and launched.err.count("Traceback") == 1
    )
    assert re.search(r"the same error in processes (0-1|1-2|0, 2)\n", launched.err)


def test_different_errors_are_printed_each(tmp_path):
    launched = Launched(
        tmp_path,
        "-n",
        "3",
        "program.py",
        program="[1, 2][__import__('weft').process_index() // 2 * 2 or 9 // 0]\n",
    )
    assert launched.wait() == 1
    assert launched.err.count("IndexError") == 1 and launched.err.count("ZeroDivisionError") == 1
    assert len(re.findall(r"process \d on .* raised:", launched.err)) == 1


def test_an_error_is_not_repeated_by_ranks_that_were_done(tmp_path):
    """At its end, process 0 waits for process 1, which fails later."""
    program = "import time, weft\nif weft.process_index():\n    time.sleep(1)\n    1 / 0\n"
    launched = Launched(tmp_path, "-n", "2", "program.py", program=program)
    assert launched.wait() == 1
    assert (
        launched.err.count("ZeroDivisionError") == 1
        and launched.err.count("ProcessFailureError") == 0
    )
    assert "weft launch: process 0 ended because of it" in launched.err


def test_variables_of_other_launchers_do_not_reach_ranks(tmp_path, monkeypatch):
    for name in (
        "PMI_RANK",
        "PMI_SIZE",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_RANK",
        "SLURM_PROCID",
        "SLURM_STEP_NODELIST",
        "SLURM_JOB_ID",
    ):
        monkeypatch.setenv(name, "0")
    program = "import os\nprint(sorted(name for name in os.environ if name.startswith(('PMI', 'OMPI', 'SLURM'))))\n"
    launched = Launched(tmp_path, "-n", "1", "program.py", program=program)
    assert launched.wait() == 0, launched.err
    assert launched.out == f"{sorted({'SLURM_JOB_ID', *AS_ROOT})}\n"


PRINTS = """
import os, sys
import weft
me = str(weft.process_index()).encode()
for _ in range(300):
    for part in (b"<" + me * 20, me * 5000, b"\\xff\\x00" + me, b">\\n"):
        os.write(1, part)
os.write(2, b"last of " + me)
"""


@pytest.mark.parametrize("prefix", [True, False])
def test_lines_of_ranks_stay_whole(prefix, tmp_path):
    words = [] if prefix else ["--no-prefix"]
    launched = Launched(
        tmp_path, "-n", "3", "--log-dir", "logs/here", *words, "program.py", program=PRINTS
    )
    assert launched.wait() == 0
    lines = Path(tmp_path, "out").read_bytes().splitlines()
    whole = [b"<" + me * 5020 + b"\xff\x00" + me + b">" for me in (b"0", b"1", b"2")]
    before = [b"[%d] " % rank if prefix else b"" for rank in range(3)]
    assert sorted(lines) == sorted(
        start + line for start, line in zip(before, whole) for _ in range(300)
    )
    assert sorted(Path(tmp_path, "err").read_bytes().splitlines()) == [
        start + b"last of %d" % rank for rank, start in enumerate(before)
    ]
    for rank in range(3):
        assert (
            Path(tmp_path, f"logs/here/rank-{rank}.log").read_bytes()
            == (whole[rank] + b"\n") * 300 + b"last of %d" % rank
        )


def test_errors_are_in_the_log_of_their_rank(tmp_path):
    launched = Launched(tmp_path, "-n", "2", "--log-dir", "logs", "program.py", "raise")
    assert launched.wait() == 1
    assert "ValueError: a bad value" in Path(tmp_path, "logs/rank-1.log").read_text()
    assert "ProcessFailureError" in Path(tmp_path, "logs/rank-0.log").read_text()


def test_who_loses_the_launcher_ends(tmp_path):
    launched = Launched(tmp_path, "-n", "2", "program.py", "deaf")
    launched.wait_for(2)
    launched.process.kill()
    launched.process.wait()
    assert gone(launched)


def test_after_a_failure_the_rest_is_started_anew(tmp_path):
    launched = Launched(
        tmp_path, "--min", "2", "--max", "3", "--restarts", "3", "program.py", "kill"
    )
    assert launched.wait() == 0, launched.err
    assert "starting again with 2 processes; 2 more restarts" in launched.err
    assert (
        launched.out.count("of 3,") == 3
        and launched.out.count("of 2,") == 2
        and launched.out.count("done") == 2
    )
    assert gone(launched)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["program.py"], "give the number of processes"),
        (["-n", "0", "program.py"], "expected a number from 1"),
        (["--min", "3", "--max", "2", "program.py"], "--min 3 is more than the 2 processes"),
        (["-n", "1", "--grace", "soon", "program.py"], "expected a number of seconds, got 'soon'"),
    ],
)
def test_wrong_numbers_are_named(words, message, tmp_path):
    launched = Launched(tmp_path, *words)
    assert launched.wait() == 2 and message in launched.err


@pytest.mark.parametrize(
    ("variables", "words", "message"),
    [
        (
            {},
            ["--log-dir", "/proc/logs"],
            "weft launch: --log-dir /proc/logs: this folder cannot be made: No such file",
        ),
        (
            {"WEFT_JOB_SECRET": "short"},
            [],
            "weft launch: initialize: the secret in WEFT_JOB_SECRET has 5 characters",
        ),
        ({"WEFT_JOB_SECRET_FILE": "program.py"}, [], "can be read by other users"),
    ],
)
def test_what_cannot_be_used_is_named_before_ranks_start(
    variables, words, message, tmp_path, monkeypatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    launched = Launched(tmp_path, "-n", "2", *words, "program.py", "well")
    assert launched.wait() == 2 and message in launched.err
    assert not launched.out and "Traceback" not in launched.err


@pytest.mark.skipif(
    not MPIEXEC.exists() or shutil.which(str(MPIEXEC)) is None,
    reason="the folder of this Python has no mpiexec",
)
@pytest.mark.parametrize(
    ("what", "well"),
    [
        ("well", True),
        *[
            pytest.param(what, False, marks=pytest.mark.slow)
            for what in ("lone", "stopped", "raise")
        ],
    ],
)
def test_the_same_program_under_mpiexec(what, well, tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_HEARTBEAT_TIMEOUT", "3")
    Path(tmp_path, "program.py").write_text(PROGRAM)
    launched = Launched(
        tmp_path,
        "import os, sys; os.execv(sys.argv[1], sys.argv[1:])",
        *mpiexec(2),
        sys.executable,
        "-m",
        "weft",
        "run",
        "program.py",
        what,
        command=("-c",),
    )
    status = launched.wait()
    assert (status == 0) == well, launched.err
    assert launched.out.count("done") == 2 * well
    assert gone(launched)


SEGMENTS = """
import weft
import numpy as np
from weft.experimental.multihost_utils import process_allgather
process_allgather(np.float32(1))
with open("/proc/self/maps") as file:
    segments = [line.strip() for line in file if "/dev/shm/mpich" in line]
assert segments and all(line.endswith("(deleted)") for line in segments), segments
print("no names", flush=True)
"""


@pytest.mark.skipif(
    IS_OPEN_MPI or shutil.which(str(MPIEXEC)) is None,
    reason="the folder of this Python has no mpiexec of MPICH",
)
def test_no_shared_memory_of_mpich_keeps_a_name(tmp_path, monkeypatch):
    """Also under `mpiexec`, which does not clean up after a killed rank."""
    monkeypatch.setenv("WEFT_PROCESS_TRANSPORT", "mpi")
    launched = Launched(
        tmp_path,
        "import os, sys; os.execv(sys.argv[1], sys.argv[1:])",
        *mpiexec(2),
        sys.executable,
        "-m",
        "weft",
        "run",
        "program.py",
        command=("-c",),
        program=SEGMENTS,
    )
    assert launched.wait() == 0, launched.err
    assert launched.out.count("no names") == 2
