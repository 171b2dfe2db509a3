"""Connections without the job's secret, and frames that are forged, replayed or excessive, do no harm."""

import contextlib
import json
import socket
import time

import pytest

from weft._engine.processes import connections, job_secret, wire
from weft._engine.processes.client import AuthenticationError, Client, Link
from weft._engine.processes.coordinator import Coordinator
from weft._engine.util.errors import ProcessFailureError
from weft._engine.util.threads import DaemonThread

FACTS = {"pid": 1, "host": "h", "machine": "m", "serves": False}
SECRET = b"a secret of this job"


@pytest.fixture
def coordinator():
    served = Coordinator("127.0.0.1:0", 1, secret=SECRET)
    served.start()
    yield served
    served.stop()


@pytest.fixture
def client(coordinator):
    joined = Client(address_of(coordinator), 0, 1, FACTS, timeout=10, secret=SECRET)
    yield joined
    joined.leave()
    joined.close()


def address_of(coordinator):
    return f"127.0.0.1:{coordinator.port}"


def assert_works(client):
    client.put("key", b"value")
    assert client.get("key") == b"value" and client.failure is None


def wait_for_end(connection):
    """Return the seconds until the other side closes a connection."""
    began = time.monotonic()
    connection.settimeout(20)
    with contextlib.suppress(ConnectionError):
        while connection.recv(4096):
            pass
    return time.monotonic() - began


@pytest.mark.parametrize("secret", [b"", b"another secret of a job", SECRET[:-1]])
def test_a_wrong_secret_is_refused(coordinator, secret):
    with pytest.raises(ProcessFailureError, match="process 0 and the coordinator have different"):
        Client(address_of(coordinator), 0, 1, FACTS, timeout=10, secret=secret)


def test_a_process_whose_peer_has_another_secret_is_told():
    coordinator = Coordinator("127.0.0.1:0", 2, secret=SECRET)
    coordinator.start()
    try:
        with pytest.raises(ProcessFailureError, match="different secrets"):
            Client(address_of(coordinator), 1, 2, FACTS, timeout=10, secret=b"another")
        with pytest.raises(ProcessFailureError, match="not all processes arrived") as caught:
            Client(address_of(coordinator), 0, 2, FACTS, timeout=1, secret=SECRET)
    finally:
        coordinator.stop()
    assert "The coordinator refused 1 connection with another secret." in caught.value.__notes__


def test_a_process_refuses_a_coordinator_without_secret():
    """A foreign server at the coordinator's address accepts every proof and offers none."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        writer = wire.FrameWriter()

        def answer():
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(writer.pack({"op": "challenge", "bytes": "00" * 16}))
                connection.recv(4096)
                connection.sendall(writer.pack({"op": "proved", "proof": "00" * 32}))

        DaemonThread(answer)
        with pytest.raises(AuthenticationError, match="does not have the secret"):
            Link(f"127.0.0.1:{port}", SECRET, 10.0)


def test_an_unauthenticated_connection_has_few_bytes(coordinator, client):
    with socket.create_connection(("127.0.0.1", coordinator.port)) as stranger:
        stranger.sendall(b"\xff\x0f\x00\x00" + b"\x02\x00\x00\x00")  # announces 4,097 bytes
        assert wait_for_end(stranger) < connections.STRANGER_S / 2
    assert_works(client)


def test_an_unauthenticated_connection_has_little_time(coordinator, client, monkeypatch):
    monkeypatch.setattr(connections, "STRANGER_S", 0.5)
    with socket.create_connection(("127.0.0.1", coordinator.port)) as stranger:
        assert 0.3 < wait_for_end(stranger) < 5
    assert_works(client)


def test_unauthenticated_connections_are_few(coordinator, client, monkeypatch):
    """Further ones wait in the system's queue; an authenticated process is still accepted."""
    monkeypatch.setattr(connections, "STRANGER_S", 1.0)
    address = ("127.0.0.1", coordinator.port)
    with contextlib.ExitStack() as stack:
        for _ in range(2 * connections.MAX_STRANGERS):
            stack.enter_context(socket.create_connection(address, timeout=10))
        time.sleep(0.3)
        assert len(coordinator._server._unauthenticated) == connections.MAX_STRANGERS
        assert_works(client)
        Link(address_of(coordinator), SECRET, 15.0).socket.close()


NESTED = b'{"op":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
EXCESSIVE = {
    "nested": NESTED,
    "nested below the parser's limit": b'{"op":' + b"[" * 100 + b"]" * 100 + b"}",
    "a number of many digits": b'{"op":1' + b"0" * 100_000 + b"}",
    "a number above 64 bits": b'{"op":36893488147419103232}',
    "a long text": b'{"op":"' + b"x" * (1 << 21) + b'"}',
    "many keys": json.dumps({str(i): 0 for i in range(600_000)}).encode(),
    "a list": b"[]",
    "no JSON": b"\x00\xff",
    "no operation": b"{}",
    "an unknown operation": b'{"op":"format","number":1,"lowest":1}',
    "a wrong type": b'{"op":{},"number":1,"lowest":1}',
}


@pytest.mark.parametrize("kind", EXCESSIVE)
def test_a_bad_frame_ends_its_own_connection_alone(coordinator, client, kind):
    """An authenticated connection may send more than the few kilobytes that an unauthenticated one
    may."""
    link = Link(address_of(coordinator), SECRET, 10.0)
    text = EXCESSIVE[kind]
    frame = len(text).to_bytes(4, "little") + bytes(4) + text
    code = wire._code(link._writer._key, link._writer._counter, frame)
    with contextlib.suppress(ConnectionError):
        link.socket.settimeout(10)
        link.socket.sendall(frame + code)
        assert wait_for_end(link.socket) < 10
    link.socket.close()
    assert_works(client)


def frames_of_a_link():
    """Return a reader, and the bytes of three frames for it."""
    key = b"key"
    writer, reader = wire.FrameWriter(), wire.FrameReader()
    writer.authenticate(key)
    reader.authenticate(key)
    return reader, [writer.pack({"op": "put", "key": str(i)}, b"data") for i in range(3)]


@pytest.mark.parametrize("byte", [0, 4, 8, 20, -17, -16, -1])
def test_a_changed_byte_is_detected(byte):
    reader, (frame, *_) = frames_of_a_link()
    changed = bytearray(frame)
    changed[byte] ^= 1
    changed += bytes(64)  # a changed length makes the frame longer
    with pytest.raises(wire.ForeignDataError):
        list(reader.feed(bytes(changed)))


@pytest.mark.parametrize("order", [(0, 0), (1,), (0, 2), (0, 1, 0)])
def test_replayed_and_missing_frames_are_detected(order):
    reader, frames = frames_of_a_link()
    with pytest.raises(wire.ForeignDataError):
        list(reader.feed(b"".join(frames[i] for i in order)))


def test_a_frame_to_the_coordinator_is_none_from_it():
    """Each direction has its own key: a frame cannot be sent back to its sender."""
    challenges = bytes(32)
    keys = {wire.derive_key(SECRET, role, challenges) for role in ("process", "coordinator")}
    assert len(keys) == 2


def test_a_living_rank_is_not_replaced(coordinator, client):
    with pytest.raises(ValueError, match="there is a process 0 already"):
        Client(address_of(coordinator), 0, 1, FACTS, timeout=10, secret=SECRET)
    link = Link(address_of(coordinator), SECRET, 10.0)
    link.send({"op": "resume", "token": "another"})
    assert [table["ok"] for table, _ in link.receive(10.0)] == [False]
    link.socket.close()
    assert_works(client)


def test_the_secret_is_of_the_environment_or_a_private_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o600)
    file = {job_secret.FILE_VARIABLE: str(path)}
    assert job_secret.find_secret({}) == b""
    assert job_secret.find_secret(file) == b"0123456789abcdef"
    assert job_secret.find_secret({**file, job_secret.VARIABLE: "x" * 16}) == b"x" * 16
    with pytest.raises(ValueError, match="has 3 characters; it must have at least 16"):
        job_secret.find_secret({job_secret.VARIABLE: "abc"})
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(ValueError, match="can be read by other users"):
            job_secret.find_secret(file)
    assert len(job_secret.make_secret()) == 64 != job_secret.make_secret()
