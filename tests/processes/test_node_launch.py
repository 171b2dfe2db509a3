"""`weft launch --nodes`: the same command once per node, here several times on one machine."""

import re
import signal
import time

import pytest

from tests.processes.ranks import PATIENCE_S, free_port
from tests.processes.test_launch import SLOW_TO_END, Launched, gone
from tests.processes.test_remote_launch import PROGRAM

SECRET = "a secret of all nodes"


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """Yield a factory that starts the launcher of a node, and kills all launchers at the end."""
    monkeypatch.setenv("WEFT_JOB_SECRET", SECRET)
    monkeypatch.setenv("HOST_NAME", "here")
    monkeypatch.setenv("WEFT_HEARTBEAT_TIMEOUT", "5")
    address, started = f"127.0.0.1:{free_port()}", []

    def start(number, *words, what="well", program=PROGRAM, count=2, each=2):
        own = [
            "-n",
            str(each),
            "--nodes",
            str(count),
            "--rendezvous",
            address,
            "--node-rank",
            str(number),
        ]
        name = f"{number}-{len(started)}-"
        started.append(
            Launched(tmp_path, *own, *words, "program.py", what, program=program, name=name)
        )
        return started[-1]

    yield start
    for launched in started:
        launched.process.kill()
        launched.process.wait()
    assert all(gone(launched) for launched in started)


def test_ranks_of_all_nodes_meet_and_print_where_they_run(nodes):
    second, first = nodes(1), nodes(0)
    assert (first.wait(), second.wait()) == (0, 0), first.err + second.err
    assert sorted(re.findall(r"^\[(\d)\] rank \d of 4", first.out, re.MULTILINE)) == ["0", "1"]
    assert sorted(re.findall(r"^\[(\d)\] rank \d of 4", second.out, re.MULTILINE)) == ["2", "3"]
    assert (first.out + second.out).count("done") == 4


def test_an_error_on_one_node_ends_all_with_its_status(nodes):
    first, second = nodes(0, what="raise"), nodes(1, what="raise")
    assert (first.wait(), second.wait()) == (1, 1), first.err + second.err
    assert "process 2 on" in first.err and first.err.count("ValueError: a bad value") == 1
    assert (
        "ValueError" not in second.err
        and "the program has failed with exit status 1; node 0 shows the error" in second.err
    )


def test_a_wrong_secret_is_refused(nodes, monkeypatch):
    first = nodes(0)
    monkeypatch.setenv("WEFT_JOB_SECRET", "not the secret of the nodes")
    second = nodes(1)
    assert second.wait() == 2 and "the coordinator has another secret" in second.err, second.err
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 2 and "interrupted while hosts were awaited" in first.err


def test_nodes_of_one_number_are_refused(nodes):
    first, second = nodes(0, what="wait", count=3), nodes(1, what="wait", count=3)
    time.sleep(2.0)
    third = nodes(1, what="wait", count=3)
    assert (
        third.wait() == 2 and "node 0 refuses this node: there is a node 1 already" in third.err
    ), third.err
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 2 and second.wait() == 2


def test_without_a_secret_only_one_machine_is_possible(nodes, monkeypatch):
    monkeypatch.delenv("WEFT_JOB_SECRET")
    second, first = nodes(1), nodes(0)
    assert (first.wait(), second.wait()) == (0, 0), first.err + second.err
    elsewhere = Launched(
        first.folder,
        "--nodes",
        "2",
        "--rendezvous",
        "192.0.2.1:99",
        "--node-rank",
        "0",
        "program.py",
        name="elsewhere",
    )
    assert (
        elsewhere.wait() == 2
        and "processes on several machines need the secret of their job" in elsewhere.err
    )


def test_when_the_first_launcher_is_killed_no_orphan_is_left(nodes):
    first, second = nodes(0, what="wait"), nodes(1, what="wait")
    first.wait_for(2)
    second.wait_for(2)
    first.process.kill()
    first.process.wait()
    assert gone(first)
    assert is_soon(lambda: "the launcher of node 0 is lost" in second.err)
    again = nodes(0)  # as the cluster's scheduler does
    second.wait_for(4)
    second.process.send_signal(signal.SIGTERM)
    assert second.wait() != 0 and again.wait() != 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_node_is_left_out_and_taken_back(number, nodes):
    """SIGTERM preempts one node: all processes save, and the others continue."""
    words = ["--min", "2", "--restarts", "1"]
    first, second = nodes(0, *words, program=ELASTIC), nodes(1, *words, program=ELASTIC)
    first.wait_for(2)
    second.wait_for(2)
    second.process.send_signal(number)
    second.process.wait(PATIENCE_S)
    assert is_soon(lambda: "starting again with 2 processes" in first.err), first.err
    first.wait_for(4)
    again = nodes(1, *words, program=ELASTIC)
    assert (first.wait(), again.wait()) == (0, 0), first.err + again.err
    assert (
        re.findall(r"of (\d) starts", first.out) == ["4", "4", "2", "2", "4", "4"]
        and again.out.count("of 4 starts") == 2
    )
    assert ("the program was preempted" in first.err) == (number == signal.SIGTERM)


@pytest.mark.parametrize("number", [0, 1])
def test_ranks_save_when_a_launcher_is_told_to_end(number, nodes):
    both = [nodes(i, "--grace", "4", what="preempt", program=SLOW_TO_END, each=1) for i in range(2)]
    for launched in both:
        launched.wait_for(1)
    both[number].process.send_signal(signal.SIGTERM)
    assert both[0].wait() == 75, both[0].err
    assert both[1].wait() == (75 if number == 0 else 128 + signal.SIGTERM), both[1].err
    assert "saved" in both[number].out


#: runs until four processes have met after a shrink to two; saves nothing
ELASTIC = """
import os, signal, sys, time
import weft
from weft._engine import processes
me, shared = weft.process_index(), processes.current()
print(f"rank {me} of {shared.size} starts, pid {os.getpid()}", flush=True)
was_small, ends = os.path.exists("small"), []
if shared.size == 2:
    open("small", "w").close()
signal.signal(signal.SIGTERM, lambda *_: ends.append(1))
for step in range(100 if was_small and shared.size == 4 else 100000):
    ending = shared.client.barrier(f"step {step}", 60.0, value=bool(ends))
    time.sleep(0.02)
    if any(ending):
        shared.barrier("saved")
        weft.distributed.shutdown()
        os._exit(75)
print(f"done {me}", flush=True)
"""


def is_soon(condition):
    until = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nodes", "2"], "--nodes needs --rendezvous HOST:PORT"),
        (["--nodes", "2", "--rendezvous", "here"], "an address is a host and a port"),
        (
            ["--nodes", "2", "--rendezvous", "h:1"],
            "give the number of this node, as --node-rank I, from 0 to 1",
        ),
        (["--nodes", "2", "--rendezvous", "h:1", "--node-rank", "2"], "from 0 to 1"),
        (
            ["--nodes", "2", "--rendezvous", "h:1", "--hosts", "a"],
            "--nodes excludes --hosts and --max",
        ),
    ],
)
def test_wrong_options_are_named(words, message, tmp_path):
    launched = Launched(tmp_path, *words, "program.py")
    assert launched.wait() == 2 and message in launched.err


def test_the_number_of_a_node_comes_from_the_launcher(monkeypatch):
    from weft.tools.launch.node_hosts import node_number

    for name in ("SLURM_NODEID", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)
    assert node_number() is None
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "3")
    assert node_number() == 3
