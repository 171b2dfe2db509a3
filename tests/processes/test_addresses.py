"""The listening and connecting addresses of the coordinator, for the addresses that users give."""

import socket

import pytest

from weft._engine.processes import addresses
from weft._engine.processes.addresses import choose_addresses, open_listeners

OUTWARD = "10.1.2.3"
NAMES = {
    "localhost": ["127.0.0.1", "::1"],
    "debian": ["127.0.1.1"],
    "here": [OUTWARD],
    "both": [OUTWARD, "fd00::1"],
    "there": ["10.9.9.9"],
}


@pytest.fixture(autouse=True)
def network(monkeypatch):
    """A machine with two addresses, in a network with names."""

    def find_numbers(host):
        if host[0].isdigit() or ":" in host:
            return [host]
        if host not in NAMES:
            raise OSError("unknown name")
        return NAMES[host]

    monkeypatch.setattr(addresses, "find_numbers", find_numbers)
    monkeypatch.setattr(addresses, "is_of_this_machine", lambda host: host in (OUTWARD, "fd00::1"))
    monkeypatch.setattr(addresses, "find_outward_address", lambda: OUTWARD)
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)


WITH_SECRET = {
    "localhost:1": ("localhost:1", ("127.0.0.1:1", "[::1]:1")),
    "127.0.0.1:1": ("127.0.0.1:1", ("127.0.0.1:1",)),
    "[::1]:1": ("[::1]:1", ("[::1]:1",)),
    "debian:1": (f"{OUTWARD}:1", (f"{OUTWARD}:1",)),
    "here:1": ("here:1", (f"{OUTWARD}:1",)),
    "both:1": ("both:1", (f"{OUTWARD}:1", "[fd00::1]:1")),
    "there:1": ("there:1", ("[::]:1",)),
    "later:1": ("later:1", ("[::]:1",)),
}
WITHOUT_SECRET = {
    **{address: WITH_SECRET[address] for address in ("localhost:1", "127.0.0.1:1", "[::1]:1")},
    "debian:1": ("debian:1", ("127.0.1.1:1",)),
    "here:1": ("127.0.0.1:1", ("127.0.0.1:1",)),
    "both:1": ("127.0.0.1:1", ("127.0.0.1:1",)),
}


@pytest.mark.parametrize("address", WITH_SECRET)
def test_addresses_with_a_secret(address):
    chosen = choose_addresses(address, True, None)
    assert (chosen.connect, chosen.listen) == WITH_SECRET[address]


@pytest.mark.parametrize("address", WITHOUT_SECRET)
def test_addresses_without_a_secret_are_of_the_machine(address):
    chosen = choose_addresses(address, False, None)
    assert (chosen.connect, chosen.listen) == WITHOUT_SECRET[address] and chosen.is_local


@pytest.mark.parametrize("address", ["there:1", "later:1", "10.9.9.9:1"])
def test_other_machines_need_a_secret(address):
    with pytest.raises(RuntimeError, match=r"need the secret of their job(.|\n)*WEFT_JOB_SECRET"):
        choose_addresses(address, False, None)


def test_a_bind_address_is_used_and_needs_a_secret():
    assert choose_addresses("there:1", True, "0.0.0.0:7").listen == ("0.0.0.0:7",)
    assert choose_addresses("there:1", False, "127.0.0.1:7").listen == ("127.0.0.1:7",)
    with pytest.raises(RuntimeError, match="need the secret"):
        choose_addresses("here:1", False, "0.0.0.0:7")


def test_listeners_share_a_port():
    listeners = open_listeners(("127.0.0.1:0", "127.0.0.2:0"))
    try:
        names = [listener.getsockname() for listener in listeners]
        assert [name[0] for name in names] == ["127.0.0.1", "127.0.0.2"]
        assert names[0][1] == names[1][1] != 0
        with pytest.raises(OSError, match=f"cannot use the address 127.0.0.1:{names[0][1]}: "):
            open_listeners((f"127.0.0.1:{names[0][1]}",))
    finally:
        for listener in listeners:
            listener.close()
