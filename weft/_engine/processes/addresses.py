"""The addresses at which the coordinator listens and processes connect."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket

from weft._engine.processes.job_secret import FILE_VARIABLE, INSECURE_VARIABLE, VARIABLE
from weft._engine.processes.wire import host_and_port
from weft._engine.util.errors import describe
from weft._engine.util.record import record

#: addresses in documentation networks: nothing is sent there, but the routing table covers them
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


@record
class CoordinatorAddress:
    """The address that processes connect to, and the addresses where the coordinator listens if it runs in this process."""

    connect: str
    listen: tuple[str, ...]

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine can connect."""
        return all(is_loopback(host_and_port(address)[0]) for address in self.listen)


def join_address(host: str, port: int) -> str:
    """Return the text of an address.

    >>> join_address("::1", 80)
    '[::1]:80'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a numeric host address is this machine's loopback address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def is_of_this_machine(host: str) -> bool:
    """Return whether an interface of this machine has the numeric address `host`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return True
    return False


def find_outward_address() -> str | None:
    """Return this machine's address on the interface of its default route; None if it has none."""
    for family, elsewhere in _ELSEWHERE.items():
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))
            host = probe.getsockname()[0]
            if not is_loopback(host):
                return host
    return None


def find_numbers(host: str) -> list[str]:
    """Return the numeric addresses of a host. Raises OSError if the name is unknown."""
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def choose_addresses(
    address: str, has_secret: bool, bind_address: str | None
) -> CoordinatorAddress:
    """Return where to connect and to listen for the coordinator address that a user provided.

    Without a secret the coordinator listens only on the loopback interface. An address of this
    machine then means that all processes run here. Raises RuntimeError if other machines would
    have to connect without a secret, ValueError for a malformed address.
    """
    host, port = host_and_port(address)
    if bind_address is not None:
        _check_secret(host_and_port(bind_address)[0], address, has_secret)
        return CoordinatorAddress(address, (bind_address,))
    try:
        numbers = find_numbers(host)
    except OSError:
        numbers = []  # the name may be registered later: a pod or a node that is starting
    if numbers and all(map(is_loopback, numbers)):
        is_own_name = host != "localhost" and host not in numbers
        # Debian gives a machine's own name the address 127.0.1.1, which others cannot reach
        replacement = find_outward_address() if has_secret and is_own_name else None
        return (
            _listen_on(address, numbers, port)
            if replacement is None
            else _address_for_both(replacement, port)
        )
    local = [number for number in numbers if is_of_this_machine(number)]
    if has_secret:
        any_address = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
        return _listen_on(address, local or [any_address], port)
    if local:
        return _address_for_both("127.0.0.1", port)
    raise _make_secret_error(address)


def _listen_on(address: str, numbers: list[str], port: int) -> CoordinatorAddress:
    return CoordinatorAddress(address, tuple(join_address(number, port) for number in numbers))


def _address_for_both(host: str, port: int) -> CoordinatorAddress:
    return CoordinatorAddress(join_address(host, port), (join_address(host, port),))


def _check_secret(bind_host: str, address: str, has_secret: bool) -> None:
    if has_secret or is_loopback(bind_host) or bind_host == "localhost":
        return
    raise _make_secret_error(address)


def _make_secret_error(address: str) -> RuntimeError:
    return RuntimeError(
        describe(
            "distributed.initialize",
            "processes on several machines need the secret of their job.",
            [
                ("coordinator", address),
                ("secret", f"neither {VARIABLE} nor {FILE_VARIABLE} is set"),
            ],
            None,
            "Without a secret the coordinator accepts connections only from its own machine.",
            f"Set {VARIABLE} to the same text for all processes (`openssl rand -hex 32` prints one), "
            f"or {FILE_VARIABLE} to a file with mode 600. `weft launch` sets it automatically. "
            f"{INSECURE_VARIABLE}=1 accepts connections from everybody.",
        )
    )


def open_listeners(addresses: tuple[str, ...]) -> list[socket.socket]:
    """Return sockets that listen at all `addresses`, with the same port.

    Port 0 is replaced by a free port. Addresses that cannot be used are skipped. Raises OSError
    that names an address if none can be used.
    """
    listeners: list[socket.socket] = []
    failure: OSError | None = None
    for address in addresses:
        host, port = host_and_port(address)
        if port == 0 and listeners:
            port = listeners[0].getsockname()[1]
        try:
            listeners.append(_open_listener(host, port))
        except OSError as error:
            failure = OSError(
                error.errno,
                f"the coordinator cannot use the address {address}: {os.strerror(error.errno or 0)}. "
                "Name one that is free on the machine of process 0",
            )
    if not listeners:
        raise failure or OSError("the coordinator has no address")
    return listeners


def _open_listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        only = 0 if host == "::" else 1
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
    try:
        listener.bind((host, port))
        listener.listen(4096)
    except OSError:
        listener.close()
        raise
    return listener
