"""A PMI-1 server for the MPI library of this process: MPI without a launcher.

In:   the rank of this process in MPI, the hosts of all processes, and `exchange`, which sends a table to all processes and returns theirs.
Out:  `environment`, the variables that lead the library to the server; a thread that serves until the process ends; the network
      interface that leads to the other hosts.
How:  the library talks to one end of a socket pair, in lines of `key=value`. The values that it puts travel with its next barrier, so that
      each barrier costs one message in each direction, whatever the number of keys.
Laws: if another process fails, the server does not answer, and the library waits: the caller starts MPI in a thread of its own. An
      answer with an error would end this process.
Next: `mpi` starts the library with this server.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from weft._engine.util.threads import DaemonThread

#: prefixes of variables that lead libraries to a launcher
_PREFIXES = ("PMI_", "PMI2_", "PMIX_", "PALS_")
_OK = "rc=0 msg=success"


def sort_ranks_by_host(hosts: Sequence[str]) -> tuple[int, ...]:
    """Return the processes in the order of their MPI ranks: processes of one host are consecutive.

    >>> sort_ranks_by_host(["a", "b", "a", "c"])
    (0, 2, 1, 3)
    """
    return tuple(sorted(range(len(hosts)), key=lambda rank: hosts.index(hosts[rank])))


def format_process_mapping(hosts: Sequence[str]) -> str:
    """Return how MPI ranks are distributed over hosts, in PMI's notation: runs of (first host, hosts, ranks per host).

    >>> format_process_mapping(["a", "b", "a", "b"]), format_process_mapping(["a", "a", "b", "c"])
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


class PMIServer:
    """A server for the library of MPI rank `rank`. `job` is a unique name; `mapping` is the result of `format_process_mapping`."""

    def __init__(self, job: str, rank: int, size: int, mapping: str, exchange: Exchange) -> None:
        self._job, self._size, self._exchange = job, size, exchange
        self._values: dict[str, str] = {"PMI_process_mapping": mapping}
        self._new: dict[str, str] = {}
        #: the exception that kept a barrier from being answered
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
        """Close the connection. A library that still uses it ends the process."""
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
        """Return the answer to one line; "" if none is expected. A barrier raises the exceptions of `exchange`."""
        head, _, value = line.partition(" value=")
        words = dict(word.split("=", 1) for word in head.split() if "=" in word)
        command, key = words.get("cmd", ""), words.get("key", "")
        if command == "put":
            self._new[key] = self._values[key] = value
            return f"cmd=put_result {_OK}"
        if command == "get":
            stored = self._values.get(key)
            return (
                "cmd=get_result rc=-1 msg=key_not_found value=unknown"
                if stored is None
                else f"cmd=get_result {_OK} value={stored}"
            )
        if command == "barrier_in":
            new, self._new = self._new, {}
            for table in self._exchange(new):
                self._values.update(table)
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
def set_variables(own: dict[str, str]) -> Iterator[None]:
    """Set the variables `own` in the environment for a block; hide the variables of any launcher."""
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


def find_interface(address: str) -> str:
    """Return the name of the network interface that has an address; "" if there is none.

    >>> find_interface("127.0.0.1"), find_interface("192.0.2.1")
    ('lo', '')
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address.partition("%")[0])
    # the offset of the address in C's sockaddr_in6 or sockaddr_in
    offset = 8 if family == socket.AF_INET6 else 4
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
                and ctypes.string_at(at + offset, len(packed)) == packed
            ):
                return (entry.contents.name or b"").decode()
            entry = entry.contents.next
        return ""
    finally:
        libc.freeifaddrs(first)


def find_source_address(address: str) -> str:
    """Return this host's address on the route to `address`; "" if there is no route."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # a UDP connect sends no packet
        return probe.getsockname()[0]
    return ""
