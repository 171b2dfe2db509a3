"""1,024 ranks with the usual limit of 1,024 open files: connections, processes, and errors where
the limit cannot be raised."""

import os
import resource
import subprocess
import sys

import pytest

from tests.processes.ranks import PATIENCE_S, ROOT

SIZE = 1024


def run(script, soft=1024, hard=None, words=("-c",)):
    """Run Python with these limits of open files."""
    limits = soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1] if hard is None else hard
    return subprocess.run(
        [sys.executable, *words, script],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
    )


CLIENTS = f"""
import threading
from weft._engine.processes.client import Client
from weft.tools.launch.job import LaunchedJob, LaunchOptions, LocalPool, Signals
from weft.tools.launch.rank_output import RankOutput
from weft._engine.processes.connections import raise_file_limit

raise_file_limit(64 + 4 * {SIZE}, "processes and clients here")
threading.stack_size(1 << 18)
options, output, signals = LaunchOptions("program.py", size={SIZE}), RankOutput(True, None), Signals()
job = LaunchedJob(options, LocalPool(options, output, signals), {SIZE}, output, signals)
job._coordinator.start()
clients, errors = {{}}, []

def each(work):
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range({SIZE})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def begin(rank):
    facts = {{"devices": 1, "machine": "m", "partition": None, "serves": False, "mpi": False}}
    try:
        clients[rank] = Client(f"127.0.0.1:{{job._coordinator.port}}", rank, {SIZE}, facts, 200.0, 100.0, job.secret.encode())
    except Exception as error:
        errors.append(error)

each(begin)
assert not errors, errors[:3]
brought = {{}}
each(lambda rank: brought.update({{rank: clients[rank].barrier("all", 200.0, value=rank)}}))
assert all(brought[rank] == list(range({SIZE})) for rank in range({SIZE}))
for client in clients.values():
    client.leave()
for client in clients.values():
    client.close()
job._coordinator.stop()
print("met", len(clients))
"""


def test_a_thousand_clients_meet_at_the_launcher():
    done = run(CLIENTS)
    assert done.returncode == 0 and done.stdout == f"met {SIZE}\n", done.stderr[-3000:]


PROCESSES = f"""
import collections, time
from weft.tools.launch.local_host import LocalHost, StartRequest
from weft._engine.processes.connections import raise_file_limit

raise_file_limit(64 + 4 * {SIZE}, "processes")
received = collections.defaultdict(bytes)
def receive(rank, stream, data):
    received[rank, stream] += data

host = LocalHost(receive)
host.start(StartRequest(("/bin/sh", "-c", 'echo $WEFT_PROCESS_ID; [ $WEFT_PROCESS_ID = 7 ] || read line; exit 3'),
                        tuple(range({SIZE})), {{}}, True))
while any(host.exit_code(rank) is None for rank in range({SIZE})):
    time.sleep(0.05)
host.end()
assert all(host.exit_code(rank) == 3 for rank in range({SIZE}))
print("ended", sum(received[rank, 1] == b"%d\\n" % rank for rank in range({SIZE})))
"""


def test_a_thousand_processes_are_started_and_read():
    done = run(PROCESSES)
    assert done.returncode == 0 and done.stdout == f"ended {SIZE}\n", done.stderr[-3000:]


@pytest.mark.parametrize("hard", [1024, 4000])
def test_a_limit_that_cannot_be_raised_is_named(hard):
    words = ("-m", "weft", "launch", "-n", str(SIZE))
    done = run("program.py", hard=hard, words=words)
    assert done.returncode == 2
    assert (
        f"weft launch: 1024 processes need 4160 open files, and this process may have {hard} (its hard limit)"
        in done.stderr
    )


def test_a_coordinator_without_enough_files_says_so():
    done = run(
        "from weft._engine.processes.coordinator import Coordinator; Coordinator('127.0.0.1:0', 500)",
        hard=1024,
    )
    assert (
        "OSError: the connections of 500 processes need 1064 open files, and this process may have 1024"
        in done.stderr
    )
