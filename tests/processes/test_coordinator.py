"""The coordinator: it names absent ranks in time, refuses foreign data, and starts a thousand
ranks."""

import json
import selectors
import socket
import threading
import time

import pytest

from weft._engine.processes.client import Client, Link
from weft._engine.processes.coordinator import FINAL_BARRIER, Coordinator
from weft._engine.processes.wire import FrameWriter, host_and_port
from weft._engine.util.errors import ProcessFailureError

FACTS = {
    "pid": 1,
    "host": "h",
    "devices": 8,
    "machine": "m",
    "partition": None,
    "serves": False,
    "mpi": False,
}


@pytest.fixture
def served():
    coordinators = []

    def serve(size, heartbeat_timeout=10.0):
        coordinators.append(Coordinator("127.0.0.1:0", size, heartbeat_timeout))
        coordinators[-1].start()
        return coordinators[-1]

    yield serve
    for coordinator in coordinators:
        coordinator.stop()


def test_who_does_not_join_is_named(served):
    coordinator = served(4)
    with pytest.raises(
        ProcessFailureError,
        match=r"initialize of 4 processes: not all processes arrived within 0\.3 s",
    ) as caught:
        Client(f"127.0.0.1:{coordinator.port}", 2, 4, FACTS, timeout=0.3)
    assert caught.value.ranks == (0, 1, 3) and "absent   processes 0-1, 3" in str(caught.value)


def test_a_coordinator_that_is_not_there_is_named():
    with pytest.raises(
        ProcessFailureError, match=r"cannot reach the coordinator(.|\n)*127.0.0.1:9\n"
    ):
        Client("127.0.0.1:9", 0, 1, FACTS, timeout=0.2)


def test_ranks_that_do_not_fit_are_refused(served):
    coordinator = served(1)
    first = Client(f"127.0.0.1:{coordinator.port}", 0, 1, FACTS, timeout=5)
    with pytest.raises(ValueError, match="there is a process 0 already"):
        Client(f"127.0.0.1:{coordinator.port}", 0, 1, FACTS, timeout=5)
    with pytest.raises(
        ProcessFailureError, match=r"no process put the key .x. within 0\.2 seconds"
    ):
        first.get("x", 0.2)
    first.leave()
    first.close()


def test_a_wrong_number_of_processes_fails_everywhere(served):
    address, replies = f"127.0.0.1:{served(3).port}", {}

    def join(rank, size):
        with pytest.raises(
            ValueError,
            match=r"process 2 of 4 \(h, process 1\) does not fit: the coordinator serves 3 processes",
        ) as caught:
            Client(address, rank, size, FACTS, timeout=30)
        replies[rank, size] = caught.value

    threads = [threading.Thread(target=join, args=case) for case in ((0, 3), (1, 3))]
    for thread in threads:
        thread.start()
    join(2, 4)
    join(2, 3)  # one that comes later
    for thread in threads:
        thread.join(20)
    assert len(replies) == 4


def test_who_comes_to_a_barrier_of_others_is_refused_and_lives(served):
    coordinator = served(1)
    client = Client(f"127.0.0.1:{coordinator.port}", 0, 1, FACTS, timeout=5)
    with pytest.raises(
        ValueError, match=r"barrier 'b': the processes \[1, 2\] meet there, and this is process 0"
    ):
        client.barrier("b", 5.0, [1, 2])
    assert client.barrier("b", 5.0, [0], "x") == ["x"]
    client.leave()
    client.close()


def test_data_of_strangers_does_no_harm(served):
    coordinator = served(1)
    texts = [
        {"no": "op"},
        {"op": "put", "key": "x"},
        {"op": "prove", "bytes": "00", "proof": "00"},
        {"op": "prove", "bytes": 3, "proof": []},
    ]
    frames = [FrameWriter().pack(table) for table in texts]
    for data in (b"GET / HTTP/1.1\r\n\r\n", *frames, b"\x04\x00\x00\x00\x00\x00\x00\x00null"):
        with socket.create_connection(("127.0.0.1", coordinator.port), timeout=5) as stranger:
            stranger.sendall(data)
            stranger.settimeout(5)
            while stranger.recv(100):  # until the connection is closed
                pass
    client = Client(f"127.0.0.1:{coordinator.port}", 0, 1, FACTS, timeout=5)
    client.put("a", b"b")
    assert client.get("a") == b"b"
    client.leave()
    client.close()


@pytest.mark.parametrize("address", ["host", "host:", "host:http", "host:70000"])
def test_addresses_that_are_none(address):
    with pytest.raises(ValueError, match="an address is a host and a port"):
        host_and_port(address)


class Simulated:
    """The connections of many ranks in one thread: each sends a request, and reads one answer."""

    def __init__(self, port, size):
        self.links = [Link(f"127.0.0.1:{port}", b"", 30.0) for _ in range(size)]
        self.number = 0

    def all(self, table_of):
        """Return the answer of each rank, and the number of bytes received."""
        self.number += 1
        for rank, link in enumerate(self.links):
            link.send(
                {"number": self.number, "lowest": self.number, "timeout": 30.0, **table_of(rank)}
            )
        answers, came = {}, 0
        selector = selectors.DefaultSelector()
        for rank, link in enumerate(self.links):
            selector.register(link.socket, selectors.EVENT_READ, rank)
        until = time.monotonic() + 30
        while len(answers) < len(self.links):
            assert time.monotonic() < until, f"{len(answers)} of {len(self.links)} were answered"
            for key, _ in selector.select(1.0):
                data = key.fileobj.recv(1 << 18)
                came += len(data)
                for table, _ in self.links[key.data]._reader.feed(data):
                    if table["op"] == "answer":
                        answers[key.data] = table
        return answers, came

    def join(self, facts):
        size = len(self.links)
        return self.all(
            lambda rank: {
                "op": "join",
                "rank": rank,
                "size": size,
                "token": str(rank),
                "facts": {**facts, "pid": rank},
            }
        )

    def close(self):
        for link in self.links:
            link.socket.close()


def test_a_thousand_ranks_start_and_meet(served):
    """Checks message counts rather than seconds: one answer per rank; data that is equal for all
    ranks is sent packed."""
    size = 1024
    coordinator = served(size, heartbeat_timeout=60.0)
    simulated = Simulated(coordinator.port, size)
    try:
        facts = json.loads(json.dumps(FACTS))
        joined, came = simulated.join(facts)
        assert all(table["ok"] for table in joined.values()) and came / size < 8_000
        met, came = simulated.all(lambda rank: {"op": "barrier", "name": "all", "ranks": []})
        assert all(table["ok"] for table in met.values()) and came / size < 200
        agreed, came = simulated.all(
            lambda rank: {
                "op": "barrier",
                "name": "program 0",
                "ranks": [],
                "brings": ["0" * 32, [rank, True]],
            }
        )
        assert all(table["ok"] for table in agreed.values()) and came / size < 8_000
        replies, _ = simulated.all(lambda rank: {"op": "put", "key": f"address/{rank}"})
        assert all(table["ok"] for table in replies.values())
        ended, came = simulated.all(
            lambda rank: {"op": "barrier", "name": FINAL_BARRIER, "ranks": []}
        )
        assert all(table["ok"] for table in ended.values()) and came / size < 10_000
        for link in simulated.links:
            link.send({"op": "leave"})
    finally:
        simulated.close()


def test_of_many_failures_the_others_are_told_the_first(served):
    size = 64
    simulated = Simulated(served(size).port, size)
    try:
        simulated.join(FACTS)
        for link in simulated.links[size // 2 :]:
            link.socket.close()
        survivor, messages = simulated.links[0], []
        survivor.send(
            {"op": "barrier", "name": "all", "ranks": [], "number": 2, "lowest": 2, "timeout": 30.0}
        )
        while not messages or messages[-1]["op"] != "answer":
            messages += [table for table, _ in survivor.receive(1.0) or ()]
        time.sleep(0.1)
        assert [table["op"] for table in messages] == ["failed", "answer"] and messages[1][
            "why"
        ] == "failed"
    finally:
        simulated.close()
