"""PMI-1, served to the MPI library of this process: MPI without a launcher.

In:   the rank of this process in MPI, the hosts of all, and `exchange`, which gives every process what all of them bring.
Out:  `environment`, the variables by which the library finds the server; a thread that serves until the process ends; the network
      interface that leads to the other hosts.
How:  the library talks to one end of a socket pair, in lines of `key=value`. What it puts travels with its next barrier, so that a start
      costs one message each way for each barrier, whatever the number of keys.
Laws: if another process fails, the server does not answer, and the library waits: the caller starts MPI in a thread of its own. An
      answer with an error would end this process.
Next: `mpi` starts the library with it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from weft._engine.util.threads import DaemonThread

#: variables by which libraries find a launcher
_PREFIXES = ("PMI_", "PMI2_", "PMIX_", "PALS_")
_OK = "rc=0 msg=success"


def rank_order(hosts: Sequence[str]) -> tuple[int, ...]:
    """The processes in the order of their MPI ranks: those of a host follow each other.

    >>> rank_order(["a", "b", "a", "c"])
    (0, 2, 1, 3)
    """
    return tuple(sorted(range(len(hosts)), key=lambda rank: hosts.index(hosts[rank])))


def process_mapping(hosts: Sequence[str]) -> str:
    """How MPI ranks are divided among hosts, in PMI's words: runs of (first host, hosts, ranks of each).

    >>> process_mapping(["a", "b", "a", "b"]), process_mapping(["a", "a", "b", "c"])
    ('(vector,(0,2,2))', '(vector,(0,1,2),(1,2,1))')
    """
    counts = [hosts.count(host) for host in dict.fromkeys(hosts)]
    runs, first = [], 0
    for count, group in itertools.groupby(counts):
        length = len(list(group))
        runs.append(f"({first},{length},{count})")
        first += length
    return f"(vector,{','.join(runs)})"


Exchange = Callable[[dict[str, str]], Sequence[dict[str, str]]]


class Server:
    """Serves the library of MPI rank `rank`. `job` is a name that no other job has; `mapping` is what `process_mapping` returns."""

    def __init__(self, job: str, rank: int, size: int, mapping: str, exchange: Exchange) -> None:
        self._job, self._size, self._exchange = job, size, exchange
        self._values: dict[str, str] = {"PMI_process_mapping": mapping}
        self._new: dict[str, str] = {}
        #: why a barrier was not answered
        self.error: BaseException | None = None
        self._library, self._own = socket.socketpair()
        self.environment = {
            "PMI_FD": str(self._library.fileno()),
            "PMI_RANK": str(rank),
            "PMI_SIZE": str(size),
            "PMI_SPAWNED": "0",
        }
        DaemonThread(self._serve)

    def close(self) -> None:
        """End the connection. A library that still uses it ends the process."""
        self._library.close()
        with suppress(OSError):
            self._own.shutdown(socket.SHUT_RDWR)
        self._own.close()

    def _serve(self) -> None:
        with suppress(OSError), self._own.makefile("r", encoding="ascii", newline="\n") as lines:
            for line in lines:
                try:
                    answer = self.answer(line.rstrip("\n"))
                except BaseException as error:
                    self.error = error
                    return
                if answer:
                    self._own.sendall(f"{answer}\n".encode())

    def answer(self, line: str) -> str:
        """The answer to one line; "" if none is expected. A barrier raises what `exchange` raises."""
        head, _, value = line.partition(" value=")
        words = dict(word.split("=", 1) for word in head.split() if "=" in word)
        command, key = words.get("cmd", ""), words.get("key", "")
        if command == "put":
            self._new[key] = self._values[key] = value
            return f"cmd=put_result {_OK}"
        if command == "get":
            found = self._values.get(key)
            return (
                "cmd=get_result rc=-1 msg=key_not_found value=unknown"
                if found is None
                else f"cmd=get_result {_OK} value={found}"
            )
        if command == "barrier_in":
            new, self._new = self._new, {}
            for brought in self._exchange(new):
                self._values.update(brought)
            return "cmd=barrier_out rc=0"
        answers = {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=4096 rc=0",
            "get_appnum": "cmd=appnum appnum=0 rc=0",
            "get_universe_size": f"cmd=universe_size size={self._size} rc=0",
            "get_my_kvsname": f"cmd=my_kvsname kvsname={self._job} rc=0",
            "finalize": "cmd=finalize_ack rc=0",
            "abort": "",
        }
        return answers.get(command, f"cmd={command}_result rc=-1 msg=not_supported")


@contextmanager
def variables(own: dict[str, str]) -> Iterator[None]:
    """Have the variables `own` in the environment for a block, in place of those of any launcher."""
    hidden = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith(_PREFIXES)}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        os.environ.update(hidden)


class _InterfaceAddress(ctypes.Structure):
    """The C structure `ifaddrs`."""


_InterfaceAddress._fields_ = [
    ("next", ctypes.POINTER(_InterfaceAddress)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def interface_of(address: str) -> str:
    """The network interface that has an address; "" if there is none.

    >>> interface_of("127.0.0.1"), interface_of("192.0.2.1")
    ('lo', '')
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    wanted = socket.inet_pton(family, address.partition("%")[0])
    offset = (
        8 if family == socket.AF_INET6 else 4
    )  # of the address in C's sockaddr_in6 and sockaddr_in
    libc, first = ctypes.CDLL(None), ctypes.POINTER(_InterfaceAddress)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        return ""
    try:
        entry = first
        while entry:
            at = entry.contents.address
            if (
                at
                and ctypes.c_uint16.from_address(at).value == family
                and ctypes.string_at(at + offset, len(wanted)) == wanted
            ):
                return (entry.contents.name or b"").decode()
            entry = entry.contents.next
        return ""
    finally:
        libc.freeifaddrs(first)


def address_toward(address: str) -> str:
    """The address from which this host reaches another; "" if it does not."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing
        return probe.getsockname()[0]
    return ""
