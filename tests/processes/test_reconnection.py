"""A broken control connection is restored; the end of a process is noticed at once."""

import threading
import time

import pytest

from tests.processes.proxy import Proxy
from weft._engine.processes.client import Client
from weft._engine.processes.coordinator import Coordinator
from weft._engine.util.errors import ProcessFailureError

FACTS = {"pid": 1, "host": "h", "machine": "m", "serves": False}
HEARTBEAT_S = 4.0


@pytest.fixture
def job():
    """A coordinator, a proxy before it, and two clients: rank 0 through the proxy."""
    coordinator = Coordinator(
        "127.0.0.1:0", 2, HEARTBEAT_S, secret=b"secret", confirm_end=lambda rank: True
    )
    coordinator.start()
    proxy = Proxy(("127.0.0.1", coordinator.port))
    addresses = [proxy.address, f"127.0.0.1:{coordinator.port}"]
    clients = [None, None]

    def join(rank):
        clients[rank] = Client(addresses[rank], rank, 2, FACTS, 20, HEARTBEAT_S, b"secret")

    run_together(join, join)
    yield coordinator, proxy, clients
    for client in clients:
        client.close()
    proxy.close()
    coordinator.stop()


def run_together(*functions):
    """Call each function with its number in a thread; return their results or errors."""
    results = [None] * len(functions)

    def run(i):
        try:
            results[i] = functions[i](i)
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_a_reset_is_not_noticed_by_requests(job):
    """Each request is carried out once, whichever direction was broken during it."""
    coordinator, proxy, (client, other) = job
    stops = threading.Event()

    def add(_):
        return [client.add("n", 1) for _ in range(400)]

    def break_often(_):
        while not stops.is_set():
            time.sleep(0.02)
            proxy.reset()

    def add_and_stop(i):
        try:
            return add(i)
        finally:
            stops.set()

    counts, error = run_together(add_and_stop, break_often)
    assert counts == list(range(1, 401)) and error is None
    assert proxy.connections > 3 and coordinator.failures == []
    assert client.failure is None and other.find("n") == b"400"


@pytest.mark.parametrize("pause", [0.001, 0.002, 0.005, 0.02])
def test_processes_join_over_a_connection_that_breaks(pause):
    """The connection breaks during authentication, during the request to join, or during the wait
    for the others."""
    coordinator = Coordinator("127.0.0.1:0", 2, HEARTBEAT_S, secret=b"secret")
    coordinator.start()
    proxy = Proxy(("127.0.0.1", coordinator.port))

    def join(rank, address):
        client = Client(address, rank, 2, FACTS, 20, HEARTBEAT_S, b"secret")
        try:
            return client.barrier("b", 10.0, value=rank)
        finally:
            client.leave()
            client.close()

    def break_often(_):
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            time.sleep(pause)
            proxy.reset()

    def join_late(_):
        time.sleep(0.7)
        return join(1, f"127.0.0.1:{coordinator.port}")

    try:
        met = run_together(lambda _: join(0, proxy.address), join_late, break_often)
    finally:
        proxy.close()
        coordinator.stop()
    assert met == [[0, 1], [0, 1], None]


def test_a_barrier_outlives_a_reset(job):
    _, proxy, (client, other) = job

    def break_and_come(_):
        time.sleep(0.3)
        proxy.reset()
        time.sleep(0.3)
        return other.barrier("b", 10.0, value=1)

    met = run_together(lambda _: client.barrier("b", 10.0, value=0), break_and_come)
    assert met == [[0, 1], [0, 1]]


def test_news_of_a_failure_reach_a_new_connection(job):
    """The failure happens while the connection of the other rank is broken."""
    _, proxy, (client, other) = job
    proxy.passes.clear()
    proxy.reset()
    other.report_error("an exception")
    proxy.passes.set()
    until = time.monotonic() + 10
    while client.failure is None and time.monotonic() < until:
        time.sleep(0.01)
    assert client.failure is not None and client.failure["kind"] == "raised"
    with pytest.raises(ProcessFailureError, match="process 1 raised an exception"):
        client.get("key")


def test_a_delayed_connection_goes_on(job):
    coordinator, proxy, (client, _) = job
    proxy.delay_s = 0.3
    assert [client.add("n", 1) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert coordinator.failures == []


def test_a_connection_that_cannot_be_made_again_fails_in_time(job):
    """The network path is lost although the process answers probes: it counts as failed after the
    heartbeat timeout."""
    _, proxy, (client, other) = job
    proxy.stop_accepting()
    began = time.monotonic()
    proxy.reset()
    with pytest.raises(ProcessFailureError, match=r"process 0 was silent for \d\.\d seconds"):
        other.barrier("b", 30.0)
    assert HEARTBEAT_S - 1 < time.monotonic() - began < 3 * HEARTBEAT_S
    with pytest.raises(ProcessFailureError, match="the coordinator has closed the connection"):
        client.barrier("b", 30.0)
    began = time.monotonic()
    with pytest.raises(ProcessFailureError, match="the coordinator has closed the connection"):
        client.put("key", b"")
    assert time.monotonic() - began < HEARTBEAT_S


def test_a_rank_the_others_left_behind_is_refused(job):
    """A firewall blocks the probes of a live rank; the rank connects again after the others shrank."""
    _, proxy, (client, other) = job
    proxy.passes.clear()
    client.responder.close()
    proxy.reset()
    assert other.shrink(20.0) == (0, (1,))
    proxy.passes.set()
    began = time.monotonic()
    with pytest.raises(ProcessFailureError, match="the coordinator has closed the connection"):
        client.add("n", 1)
    assert time.monotonic() - began < 3 * HEARTBEAT_S


def test_an_ended_process_is_noticed_at_once(job):
    _, _, (client, other) = job
    began = time.monotonic()
    results = run_together(lambda _: other.barrier("b", 30.0), lambda _: client.close())
    assert "process 0 has ended, or was killed" in str(results[0])
    assert time.monotonic() - began < HEARTBEAT_S / 2
