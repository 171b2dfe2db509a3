"""Communication between processes: keys and values, counters, barriers, and liveness. Two clients
in one process act as two processes."""

import threading
import time

import pytest

from weft._engine.processes.client import Client
from weft._engine.processes.coordinator import Coordinator
from weft._engine.processes.store import KeyValueStore
from weft.errors import JaxRuntimeError

FACTS = {
    "pid": 1,
    "host": "h",
    "devices": 8,
    "machine": "m",
    "partition": None,
    "serves": False,
    "mpi": False,
}


def run_concurrently(*functions):
    """Run functions concurrently, and return their results."""
    results = [None] * len(functions)

    def run(i):
        try:
            results[i] = functions[i]()
        except BaseException as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def clients():
    coordinator = Coordinator("127.0.0.1:0", 2)
    coordinator.start()
    address = f"127.0.0.1:{coordinator.port}"
    pair = run_concurrently(
        *(lambda rank=rank: Client(address, rank, 2, FACTS, timeout=10.0) for rank in range(2))
    )
    yield pair
    for client in pair:
        client.leave()
        client.close()
    coordinator.stop()


@pytest.fixture
def stores(clients):
    return [KeyValueStore(client) for client in clients]


def test_a_value_is_kept_for_all_and_replaced_only_if_asked(stores):
    first, second = stores
    first.key_value_set("a/b", "é")
    first.key_value_set_bytes("/a//c", b"x\0")
    assert (
        second.key_value_try_get("a/b") == "é" and second.key_value_try_get_bytes("a/c/") == b"x\0"
    )
    with pytest.raises(JaxRuntimeError, match=r"^ALREADY_EXISTS: key_value_set: the key 'a/b'"):
        second.key_value_set("a/b", "2")
    second.key_value_set("a/b", "2", allow_overwrite=True)
    assert first.key_value_try_get("a/b") == "2"


def test_a_directory_has_what_is_below_it_and_goes_as_a_whole(clients, stores):
    first, second = stores
    clients[0].put("weft/own", b"")
    for key in ("d", "d/1", "d/2/3", "dd"):
        first.key_value_set(key, key)
    assert (
        second.key_value_dir_get("d/")
        == [("d/1", "d/1"), ("d/2/3", "d/2/3")]
        == second.key_value_dir_get("d")
    )
    assert (
        second.key_value_dir_get_bytes("d/2") == [("d/2/3", b"d/2/3")]
        and second.key_value_dir_get("none/") == []
    )
    second.key_value_delete("d/")
    second.key_value_delete("none")
    assert first.key_value_dir_get("") == [("dd", "dd")]
    first.key_value_delete("")
    assert first.key_value_dir_get("") == [] and clients[1].find("weft/own") == b""


def test_a_missing_key_is_named_at_once_or_when_time_is_over(stores):
    first, second = stores
    with pytest.raises(JaxRuntimeError, match=r"^NOT_FOUND: .*'k'"):
        first.key_value_try_get("k")
    with pytest.raises(JaxRuntimeError, match=r"^DEADLINE_EXCEEDED: .*'k' within 50 ms"):
        first.blocking_key_value_get("k", 50)
    got, _ = run_concurrently(
        lambda: first.blocking_key_value_get("k", 5000),
        lambda: time.sleep(0.05) or second.key_value_set("k", "v"),
    )
    assert got == "v"


def test_counts_of_two_processes_add_up(stores):
    first, second = stores
    counts = run_concurrently(
        *[
            lambda store=store: [store.key_value_increment("n", 2) for _ in range(20)]
            for store in stores
        ]
    )
    assert (
        sorted(counts[0] + counts[1]) == list(range(2, 82, 2))
        and first.key_value_try_get("n") == "80"
    )
    first.key_value_set("text", "x")
    with pytest.raises(
        JaxRuntimeError,
        match=r"^INVALID_ARGUMENT: .*the value of the key 'text' is not a whole number",
    ):
        second.key_value_increment("text", 1)


def test_processes_meet_at_a_barrier_as_often_as_they_like(stores):
    first, second = stores
    for _ in range(2):
        assert run_concurrently(
            lambda: first.wait_at_barrier("b", 5000), lambda: second.wait_at_barrier("b", 5000)
        ) == [None, None]
    second.wait_at_barrier("one", 1000, process_ids=[1])
    with pytest.raises(
        JaxRuntimeError, match=r"^DEADLINE_EXCEEDED: wait_at_barrier: (.|\n)*absent   processes 1\n"
    ):
        first.wait_at_barrier("b", 50)
    with pytest.raises(
        JaxRuntimeError,
        match=r"^INVALID_ARGUMENT: wait_at_barrier: (.|\n)*\[0, 2\](.|\n)*from 0 to 1",
    ):
        first.wait_at_barrier("c", 1000, process_ids=[0, 2])


def test_who_lives_is_told_to_all_that_do(clients, stores):
    first, second = stores
    both, same = run_concurrently(
        lambda: first.get_live_nodes([0, 1]), lambda: second.get_live_nodes([1, 0])
    )
    assert both == same and set(both) == {0, 1} and both[0] != both[1]
    with pytest.raises(JaxRuntimeError, match=r"^INVALID_ARGUMENT: get_live_nodes: process 0"):
        first.get_live_nodes([1])
    left, _ = run_concurrently(
        lambda: first.get_live_nodes([0, 1]), lambda: time.sleep(0.05) or clients[1].leave()
    )
    assert left == {0: both[0]}
