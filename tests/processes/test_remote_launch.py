"""`weft launch --hosts`: agents on other hosts, with a shell script in place of ssh."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes.ranks import PATIENCE_S, ROOT
from tests.processes.test_launch import SLOW_TO_END, Launched, gone
from tests.processes.test_shrink import TRAINS
from weft.tools.launch.host_list import parse_hosts

#: refuses to connect while a file marks the host as down; else relays the data, so that the
#: connection can be cut and frozen
SSH = """#!/bin/sh
host=$1; shift
if [ -e {folder}/down.$host ]; then
    echo "ssh: connect to host $host port 22: No route to host" >&2
    exit 255
fi
echo $$ > {folder}/ssh.$host
echo "$*" >> {folder}/commands
echo "Welcome to $host"
cd /
export HOST_NAME=$host
cat | sh -c "$*" | cat
"""

PROGRAM = """
import glob, os, sys, time
import weft, weft.distributed
from weft._engine import processes
me, what = weft.process_index(), sys.argv[1]
pids = f"pid {os.getpid()} pid {os.getppid()}"
print(f"rank {me} of {weft.process_count()} on {os.environ['HOST_NAME']}, {pids} in {os.getcwd()}", flush=True)
if what == "variables":
    print("variables", {name: os.environ.get(name) for name in ("WEFT_MINE", "JAX_MINE", "GIVEN", "SET", "OTHER")}, flush=True)
    print("secret", os.environ["WEFT_JOB_SECRET"], flush=True)
    lines = [open(path).read() for path in glob.glob("/proc/[0-9]*/cmdline") if os.path.exists(path)]
    print("command lines with it:", sum(os.environ["WEFT_JOB_SECRET"] in line for line in lines), flush=True)
if what == "raise" and me == 2:
    raise ValueError("a bad value")
if what == "crash" and me == 3 and not os.path.exists("crashed"):
    open("crashed", "w").close()
    os.kill(os.getpid(), 9)
if what == "wait":
    time.sleep(300)
processes.current().barrier("end")
print(f"done {me}", flush=True)
"""


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    script = tmp_path / "ssh.sh"
    script.write_text(SSH.format(folder=tmp_path))
    script.chmod(0o755)
    monkeypatch.setenv("WEFT_SSH", str(script))
    return tmp_path


def relays(folder, host):
    """Return the processes that carry the data of a connection."""
    shell = int(Path(folder, f"ssh.{host}").read_text())
    children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    return [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "cat\n"]


def test_ranks_run_on_each_host_in_order(ssh):
    launched = Launched(ssh, "--hosts", "a:2,b:1", "program.py", "well", program=PROGRAM)
    assert launched.wait() == 0, launched.err
    matches = re.findall(
        r"^\[(\d)\] rank (\d) of 3 on (.), pid \d+ pid \d+ in (.*)$", launched.out, re.MULTILINE
    )
    assert sorted(matches) == [(rank, rank, host, str(ssh)) for rank, host in zip("012", "aab")]
    assert launched.out.count("done") == 3 and gone(launched)
    assert "Welcome" not in launched.out + launched.err


def test_named_variables_are_forwarded_and_the_secret_is_hidden(ssh, monkeypatch):
    for name in ("WEFT_MINE", "JAX_MINE", "GIVEN"):
        monkeypatch.setenv(name, f"the 'value' of ${name}")
    launched = Launched(
        ssh,
        "--hosts",
        "a,b",
        "--env",
        "GIVEN",
        "--env",
        "SET=x y",
        "program.py",
        "variables",
        program=PROGRAM,
    )
    assert launched.wait() == 0, launched.err
    variables = {name: f"the 'value' of ${name}" for name in ("WEFT_MINE", "JAX_MINE", "GIVEN")} | {
        "SET": "x y",
        "OTHER": None,
    }
    assert launched.out.count(f"variables {variables}") == 2, launched.out
    secrets = set(re.findall(r"secret (\w+)", launched.out))
    assert len(secrets) == 1 and re.fullmatch("[0-9a-f]{64}", next(iter(secrets)))
    assert launched.out.count("command lines with it: 0") == 2
    assert "the 'value'" not in Path(ssh, "commands").read_text()


def test_an_error_names_its_host(ssh):
    launched = Launched(ssh, "--hosts", "a:2,b:2", "program.py", "raise", program=PROGRAM)
    assert launched.wait() == 1, launched.err
    assert "weft launch: process 2 on b ended with exit status 1" in launched.err
    assert (
        launched.err.count("ValueError: a bad value") == 1
        and "processes 0-1, 3 ended because of it" in launched.err
    )
    assert gone(launched)


def test_a_host_that_does_not_answer_is_named(ssh):
    Path(ssh, "down.b").touch()
    launched = Launched(ssh, "--hosts", "a:2,b:2", "program.py", "well", program=PROGRAM)
    assert launched.wait() == 2 and launched.out == ""
    assert (
        "run 2 of 4 processes: host b: the connection is closed (ssh: connect to host b port 22: No route to host)"
        in launched.err
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("echo nothing; exit 0", "host b: the connection is closed"),
        ("echo 'no such command' >&2; exit 127", "no such command"),
        ("cat answer", "weft is 9.9 there, and 0.1.0 here"),
    ],
)
def test_foreign_answers_are_named(answer, message, ssh):
    Path(ssh, "answer").write_bytes(b"profile text\nweft agent 9.9 3.0\n")
    script = Path(ssh, "ssh.sh")
    script.write_text(
        script.read_text().replace(
            "cd /\n", f"if [ $host = b ]; then cd {ssh}; {answer}; exit; fi\ncd /\n"
        )
    )
    launched = Launched(ssh, "--hosts", "a,b", "program.py", "well", program=PROGRAM)
    assert launched.wait() == 2 and message in launched.err, launched.err


def test_ranks_save_when_the_launcher_is_told_to_end(ssh):
    launched = Launched(ssh, "--hosts", "a,b", "program.py", "preempt", program=SLOW_TO_END)
    launched.wait_for(2)
    launched.process.send_signal(signal.SIGTERM)
    assert launched.wait() == 75, launched.err
    assert launched.out.count("saved") == 2 and gone(launched)


def test_a_closed_reader_ends_ranks_quietly(ssh):
    Path(ssh, "program.py").write_text(
        "import weft\nfor i in range(100000):\n    print('line', i)\n"
    )
    command = [sys.executable, "-m", "weft", "launch", "--hosts", "a:2,b:2", "program.py"]
    with subprocess.Popen(
        command,
        cwd=ssh,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout.readline().endswith(b"line 0\n")
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait(PATIENCE_S) == 141 and errors == ""


@pytest.mark.parametrize("what", ["launcher", "connection"])
def test_no_orphan_is_left(what, ssh):
    launched = Launched(ssh, "--hosts", "a:2,b:2", "program.py", "wait", program=PROGRAM)
    launched.wait_for(4)
    if what == "launcher":
        launched.process.kill()
        launched.process.wait()
    else:
        for pid in relays(ssh, "b"):
            os.kill(pid, signal.SIGKILL)
        assert launched.wait() != 0
        assert re.search(
            r"process [23] on b was lost with its host: host b: the connection is closed",
            launched.err,
        ), launched.err
    assert gone(launched)


def test_survivors_on_several_hosts_continue_in_place(ssh):
    launched = Launched(ssh, "--hosts", "a:2,b:1", "program.py", program=TRAINS)
    assert launched.wait() == 0, launched.err
    assert launched.out.count("trained [(0,), (1, 2)]") == 2, launched.out + launched.err
    assert "process 0 was killed by signal 9 (SIGKILL); 2 processes go on without 0" in launched.err
    assert gone(launched)


@pytest.mark.slow
def test_a_frozen_connection_ends_the_ranks_on_both_sides(ssh, monkeypatch):
    monkeypatch.setenv("WEFT_HEARTBEAT_TIMEOUT", "5")
    launched = Launched(
        ssh, "--hosts", "a:2,b:2", "--grace", "30", "program.py", "wait", program=PROGRAM
    )
    launched.wait_for(4)
    frozen = relays(ssh, "b")
    try:
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        assert launched.wait() != 0
        assert re.search("on b was lost with its host: host b: no answer for", launched.err), (
            launched.err
        )
        assert gone(launched)
    finally:
        for pid in frozen:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def test_after_the_failure_of_a_rank_all_hosts_start_again(ssh):
    launched = Launched(
        ssh,
        "--hosts",
        "a:2,b:2",
        "--min",
        "2",
        "--restarts",
        "1",
        "program.py",
        "crash",
        program=PROGRAM,
    )
    assert launched.wait() == 0, launched.err
    assert "process 3 on b was killed by signal 9 (SIGKILL)" in launched.err
    assert launched.out.count("of 4 on") == 8 and launched.out.count("done") == 4 and gone(launched)


#: counts to 100 by files of rank 0; a host goes down at 10 and returns at 30
ELASTIC = """
import os, signal, sys, time
import weft
from weft._engine import processes
from weft.distributed import shutdown
me, folder = weft.process_index(), sys.argv[1]
print(f"rank {me} of {weft.process_count()} on {os.environ['HOST_NAME']}, pid {os.getpid()} pid {os.getppid()}", flush=True)
ends = []
signal.signal(signal.SIGTERM, lambda *_: ends.append(1))
shared, state = processes.current(), os.path.join(folder, "state")
step = int(open(state).read()) if os.path.exists(state) else 0
while step < 100:
    time.sleep(0.05)
    ending = shared.client.barrier(f"step {step}", 60.0, value=bool(ends))
    step += 1
    if me == 0:
        with open(state + ".new", "w") as file:
            file.write(str(step))
        os.replace(state + ".new", state)
    if any(ending):
        shared.barrier("saved")
        shutdown()
        os._exit(75)
    if step == 10 and shared.size == 4 and me == 3:
        open(os.path.join(folder, "down.b"), "w").close()
        os.kill(os.getppid(), 9)
        time.sleep(100)
    if step == 30 and me == 0 and os.path.exists(os.path.join(folder, "down.b")):
        os.remove(os.path.join(folder, "down.b"))
    if shared.size == 2 and step >= 60:
        step -= 1                               # until the host is back
print(f"done {me} of {shared.size} at {step}", flush=True)
"""


def test_a_lost_host_is_left_out_and_taken_back(ssh, monkeypatch):
    monkeypatch.setenv("WEFT_HEARTBEAT_TIMEOUT", "5")
    launched = Launched(
        ssh,
        "--hosts",
        "a:2,b:2",
        "--min",
        "2",
        "--restarts",
        "1",
        "program.py",
        str(ssh),
        program=ELASTIC,
    )
    assert launched.wait() == 0, launched.err
    assert "starting again with 2 processes; 0 more restarts" in launched.err
    assert "hosts are back" in launched.err
    assert re.findall(r"of (\d) on", launched.out) == ["4"] * 4 + ["2"] * 2 + ["4"] * 4
    assert launched.out.count("of 4 at 100") == 4 and gone(launched)


#: meets until others are lost, continues without them, and ends early on SIGTERM
SURVIVES = """
import os, signal, sys, time
import weft, weft.distributed
from weft._engine import processes
me, folder, what = weft.process_index(), *sys.argv[1:]
shrunk, down = os.path.join(folder, "shrunk"), os.path.join(folder, "down.b")
print(f"rank {me} of {weft.process_count()}, pid {os.getpid()} pid {os.getppid()}", flush=True)
ends, step = [], 0
signal.signal(signal.SIGTERM, lambda *_: ends.append(1))
try:
    while not os.path.exists(shrunk):
        processes.current().client.barrier(f"step {step}", 60.0)
        step += 1
        time.sleep(0.05)
        if me == 1 and what == "cut" and os.path.exists(os.path.join(folder, "stop")):
            os.kill(os.getpid(), signal.SIGSTOP)
        if me == 3 and step == 10:
            open(down, "w").close()
            os.kill(os.getppid(), 9)
            time.sleep(100)
except weft.errors.ProcessFailureError:
    left = weft.distributed.shrink()
    print("went on as", left, flush=True)
    open(shrunk, "w").close()
    if what == "return":
        if weft.process_index() == 0:
            os.remove(down)
        while not ends:
            time.sleep(0.05)
        sys.exit(75)
print(f"done {me} of {weft.process_count()}", flush=True)
"""


@pytest.mark.slow
def test_half_of_the_ranks_go_on_without_a_host_that_is_cut_off(ssh, monkeypatch):
    """The survivors wait until the launcher has proof of the loss, later than `--grace`."""
    monkeypatch.setenv("WEFT_HEARTBEAT_TIMEOUT", "5")
    words = ["--hosts", "a:1,b:1", "--grace", "1", "program.py", str(ssh), "cut"]
    launched = Launched(ssh, *words, program=SURVIVES)
    launched.wait_for(2)
    for pid in relays(ssh, "b"):
        os.kill(pid, signal.SIGSTOP)
    Path(ssh, "stop").touch()
    assert launched.wait() == 0, launched.err
    assert "went on as (0,)" in launched.out and "1 process goes on without 1" in launched.err
    assert gone(launched)


@pytest.mark.slow
def test_a_returning_host_rejoins_after_a_shrink(ssh, monkeypatch):
    monkeypatch.setenv("WEFT_HEARTBEAT_TIMEOUT", "5")
    words = ["--hosts", "a:2,b:2", "--min", "2", "program.py", str(ssh), "return"]
    launched = Launched(ssh, *words, program=SURVIVES)
    assert launched.wait() == 0, launched.err
    assert launched.out.count("went on as (0, 1)") == 2 and "hosts are back" in launched.err
    assert launched.out.count("of 4, pid") == 8 and launched.out.count("done") == 4
    assert gone(launched)


def test_too_few_hosts_after_a_failure_are_awaited(ssh):
    launched = Launched(
        ssh,
        "--hosts",
        "a:2,b:2",
        "--min",
        "3",
        "--restarts",
        "9",
        "program.py",
        "wait",
        program=PROGRAM,
    )
    launched.wait_for(4)
    Path(ssh, "down.b").touch()
    for pid in relays(ssh, "b"):
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while "was lost with its host" not in launched.err:
        assert time.monotonic() < until, launched.err
        time.sleep(0.05)
    time.sleep(2)  # it waits for the host to return
    assert launched.process.poll() is None
    launched.process.send_signal(signal.SIGTERM)
    assert launched.wait() == 2 and "interrupted while hosts were awaited" in launched.err
    assert gone(launched)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--hosts", "a:0", "program.py"],
            "hosts are named as in a:4,b:4, with a number from 1, got 'a:0'",
        ),
        (
            ["--hosts", "a:2", "-n", "3", "program.py"],
            "3 processes do not fit on the hosts, which take 2",
        ),
        (
            ["--hosts", "a:2", "--env", "NO_SUCH_NAME", "program.py"],
            "--env NO_SUCH_NAME: there is no variable of this name",
        ),
        (
            ["--hosts", "a:2", "--ssh", "/no/such/ssh", "program.py"],
            "cannot run /no/such/ssh: No such file",
        ),
    ],
)
def test_wrong_options_are_named(words, message, ssh):
    launched = Launched(ssh, *words)
    assert launched.wait() == 2 and message in launched.err


@pytest.mark.parametrize("text", ["", ",", "a,a", "a:x", "-oProxyCommand=x:1", "a:4,"])
def test_host_lists_that_are_none(text):
    with pytest.raises(ValueError, match=r"hosts are named as in|is named twice"):
        parse_hosts(text)
