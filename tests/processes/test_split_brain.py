"""After a network failure at most one group of processes continues."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from weft._engine.processes import coordinator as coordinator_module
from weft._engine.processes.client import Client
from weft._engine.processes.coordinator import Coordinator
from weft._engine.processes.host_identity import machine
from weft._engine.util.errors import ProcessFailureError
from weft.tools.launch.job import HostRanks, LaunchedJob, LaunchOptions, LocalPool, Signals
from weft.tools.launch.rank_output import RankOutput


@pytest.fixture
def start(monkeypatch):
    """Start a coordinator and clients with the given facts, and return them."""
    monkeypatch.setattr(coordinator_module, "PROOF_S", 0.6)
    cleanups = []

    def start_job(facts, **options):
        size = len(facts)
        coordinator = Coordinator("127.0.0.1:0", size, 4.0, machine=machine(), **options)
        coordinator.start()
        cleanups.append(coordinator.stop)
        clients = [None] * size

        def join(rank):
            own = {"host": "h", "pid": 1, "serves": False, **facts[rank]}
            clients[rank] = Client(f"127.0.0.1:{coordinator.port}", rank, size, own, 20, 4.0)

        run_all(join, size)
        cleanups.append(lambda: [client.close() for client in clients])
        return coordinator, clients

    yield start_job
    for end in reversed(cleanups):
        end()


def run_all(work, count):
    """Call `work` with each number below `count` in a separate thread."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def shrink_all(clients):
    """Shrink all clients, and return the result or exception of each."""
    results = [None] * len(clients)

    def ask(i):
        try:
            results[i] = clients[i].shrink(20.0)
        except ProcessFailureError as error:
            results[i] = error

    run_all(ask, len(clients))
    return results


def join_all(coordinator, clients):
    """Reconnect the survivors after a shrink; close and replace their clients."""
    joined = [None] * len(clients)

    def join(i):
        address, size = f"127.0.0.1:{coordinator.port}", len(clients)
        joined[i] = Client(address, i, size, {"host": "h", "pid": 1, **ELSEWHERE}, 20, 4.0)

    run_all(join, len(clients))
    for client in clients:
        client.close()
    return joined


ELSEWHERE = {"machine": "another machine"}


@pytest.mark.parametrize(
    ("size", "lost", "goes_on"),
    [
        (3, (2,), True),
        (3, (1, 2), False),
        (4, (3,), True),
        (4, (2, 3), False),
        (4, (1, 2, 3), False),
        (5, (3, 4), True),
        (2, (1,), False),
    ],
)
def test_only_a_majority_goes_on_without_others(start, size, lost, goes_on):
    """The connections of ranks on other machines are refused, which does not prove their death."""
    coordinator, clients = start([ELSEWHERE] * size)
    for rank in lost:
        clients[rank].close()
    survivors = [rank for rank in range(size) if rank not in lost]
    results = shrink_all([clients[rank] for rank in survivors])
    if goes_on:
        assert results == [
            (i, tuple(survivors)) for i in range(len(survivors))
        ] and coordinator.size == len(survivors)
        return
    for error in results:
        assert "too few processes are left" in str(error) and error.ranks == lost
        assert "weft launch --restarts" in str(error)


def run_and_end():
    """Return the process id of a process of this machine that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_a_dead_process_of_this_machine_is_proven(start):
    """One of two continues alone: the system reports that the other has ended."""
    _, clients = start([ELSEWHERE, {"machine": machine(), "pid": run_and_end()}])
    clients[1].close()
    assert shrink_all(clients[:1]) == [(0, (0,))]


def test_a_living_process_of_this_machine_is_not_dead(start):
    _, clients = start([ELSEWHERE, {"machine": machine(), "pid": os.getpid()}])
    clients[1].close()
    assert "too few processes" in str(shrink_all(clients[:1])[0])


def test_a_process_that_reported_its_end_is_proven(start):
    _, clients = start([ELSEWHERE] * 2)
    clients[1].report_error("ValueError: bad")
    assert shrink_all(clients[:1]) == [(0, (0,))]


@pytest.mark.parametrize("confirms", [True, False])
def test_the_launcher_confirms_deaths(start, confirms):
    asked = []

    def confirm_end(rank):
        asked.append(rank)
        return confirms

    _, clients = start([ELSEWHERE] * 2, confirm_end=confirm_end)
    clients[0].close()
    (result,) = shrink_all(clients[1:])
    assert set(asked) == {0}
    assert result == (0, (1,)) if confirms else "too few processes" in str(result)


def test_the_launcher_is_asked_for_first_numbers(start):
    """The launcher kills the requested ranks, and may not have the news of an earlier shrink yet."""
    asked = []

    def confirm_end(rank):
        asked.append(rank)
        return True

    coordinator, clients = start([ELSEWHERE] * 3, confirm_end=confirm_end)
    for lost in (0, 1):
        clients[0].close()
        assert shrink_all(clients[1:]) == [(i, tuple(range(1, 3 - lost))) for i in range(2 - lost)]
        assert set(asked) == {lost}
        asked.clear()
        clients[:] = join_all(coordinator, clients[1:])


def test_ranks_wait_for_as_long_as_the_launcher_needs(start):
    began = []

    def confirm_end(rank):
        began.append(time.monotonic())
        return began[-1] - began[0] > 1.5

    _, clients = start([ELSEWHERE] * 2, confirm_end=confirm_end, proof_s=10.0)
    clients[0].close()
    assert shrink_all(clients[1:]) == [(0, (1,))]


class CutOffHost:
    """A host that accepts signals but never reports the end of its ranks."""

    name, lost = "b", ""

    def __init__(self):
        self.signals = []

    def has_ended(self, rank):
        return False

    def signal(self, ranks, number):
        self.signals.append((ranks, number))


class CutOffPool(LocalPool):
    def __init__(self, host):
        self.host = host

    def assign(self, size):
        return [HostRanks(self.host, tuple(range(size)), "127.0.0.1")]


def test_a_launcher_kills_a_rank_once(monkeypatch):
    """The connection to a host that is cut off is not read: many signals would fill its buffer and
    block the coordinator."""
    monkeypatch.setattr(coordinator_module, "PROOF_S", 1.5)
    host = CutOffHost()
    job = LaunchedJob(
        LaunchOptions("program.py", size=2), CutOffPool(host), 2, RankOutput(False, None), Signals()
    )
    job._coordinator.start()
    try:
        clients = [None] * 2

        def join(rank):
            address, facts = (
                f"127.0.0.1:{job._coordinator.port}",
                {"host": "h", "pid": 1, **ELSEWHERE},
            )
            clients[rank] = Client(address, rank, 2, facts, 20, 4.0, job.secret.encode())

        run_all(join, 2)
        clients[1].close()
        assert "too few processes" in str(shrink_all(clients[:1])[0])
        assert host.signals == [([1], signal.SIGKILL)]
        clients[0].close()
    finally:
        job._coordinator.stop()
