"""Several hosts on one machine: network namespaces behind a switch, each with its own host name and
IPC objects. Needs root. The name of a host is its address, so that all hosts can resolve it.

`hosts(2)` creates hosts for the duration of a block. A process holds each namespace and ends with
its parent; the namespace, its interface and its traffic rules disappear with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest

_TOOLS = ("ip", "tc", "nsenter", "unshare")
_NETWORK = "10.78.0"


def reason_to_skip() -> str:
    """Return the reason why hosts cannot be created here, or ""."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"hosts need {', '.join(missing)}"
    if os.geteuid() != 0:
        return "hosts are network namespaces, which only root can make"
    allowed = (
        subprocess.run(
            ["unshare", "--net", "--uts", "--ipc", "true"], capture_output=True
        ).returncode
        == 0
    )
    return "" if allowed else "this machine does not allow new namespaces"


def needs_hosts(test: object) -> object:
    """Mark a test that creates hosts."""
    reason = reason_to_skip()
    return pytest.mark.root(pytest.mark.skipif(bool(reason), reason=reason)(test))


class _Namespace:
    """Namespaces, held by a process that reads until its input ends."""

    def __init__(self, name: str) -> None:
        words = [
            "unshare",
            "--net",
            "--uts",
            "--ipc",
            "sh",
            "-c",
            f"hostname {name} && ip link set lo up && echo ready && exec cat",
        ]
        self.holder = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.holder.stdout is not None
        if self.holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"the namespaces of {name} were not made")

    def command(self, words: Sequence[str]) -> list[str]:
        return [
            "nsenter",
            "--target",
            str(self.holder.pid),
            "--net",
            "--uts",
            "--ipc",
            "--",
            *words,
        ]

    def run(self, line: str) -> str:
        return subprocess.run(
            self.command(line.split()), check=True, capture_output=True, text=True
        ).stdout

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait()
        for pipe in (self.holder.stdin, self.holder.stdout):
            if pipe is not None:
                pipe.close()


class Hosts:
    """Hosts 0 to n - 1, each with one interface, `eth0`, at `addresses`."""

    def __init__(self, n: int, stack: contextlib.ExitStack, rate: str, delay: str) -> None:
        self.delay = ""  # of the bytes that a host sends, while the limit is active
        self.addresses = [f"{_NETWORK}.{i + 1}" for i in range(n)]
        self._switch = self._made("switch", stack)
        self._hosts = [self._made(address, stack) for address in self.addresses]
        self._switch.run("ip link add switch type bridge")
        self._switch.run("ip link set switch up")
        for i, (host, address) in enumerate(zip(self._hosts, self.addresses)):
            self._switch.run(
                f"ip link add port{i} type veth peer name eth0 netns {host.holder.pid}"
            )
            self._switch.run(f"ip link set port{i} master switch up")
            host.run(f"ip addr add {address}/24 dev eth0")
            host.run("ip link set eth0 up")
        if rate:
            self.shape(rate, delay)

    @staticmethod
    def _made(name: str, stack: contextlib.ExitStack) -> _Namespace:
        namespace = _Namespace(name)
        stack.callback(namespace.close)
        return namespace

    def __len__(self) -> int:
        return len(self._hosts)

    def command(self, host: int, words: Sequence[str]) -> list[str]:
        """Return the argument list that runs a command on a host; the process has the id of the
        starting process."""
        return self._hosts[host].command(words)

    def run(self, host: int, line: str) -> str:
        """Run a short command on a host, and return its output."""
        return self._hosts[host].run(line)

    def shape(self, rate: str, delay: str) -> None:
        """Limit each link in both directions to `rate`; packets from a host arrive after `delay` if
        the kernel has netem."""
        self.delay = delay if self._has_netem() else ""
        bucket = f"tbf rate {rate} burst 256kb limit 4mb"
        for i in range(len(self)):
            self.run(
                i,
                f"tc qdisc replace dev eth0 root {f'netem rate {rate} delay {delay} limit 100000' if self.delay else bucket}",
            )
            self._switch.run(f"tc qdisc replace dev port{i} root {bucket}")

    def _has_netem(self) -> bool:
        try:
            self.run(0, "tc qdisc replace dev lo root netem delay 0ms")
        except subprocess.CalledProcessError:
            return False
        self.run(0, "tc qdisc del dev lo root")
        return True

    def bytes_sent(self, host: int) -> int:
        """Return the number of bytes that a host has sent."""
        _, _, sent = self.run(host, "ip -statistics -oneline link show dev eth0").partition("TX:")
        return int(next(word for word in sent.split() if word.isdecimal()))

    def link(self, host: int, state: str) -> None:
        """Set the link of a host `up` or `down`."""
        self._switch.run(f"ip link set port{host} {state}")


@contextlib.contextmanager
def hosts(n: int, rate: str = "", delay: str = "0ms") -> Iterator[Hosts]:
    """Create `n` hosts for the duration of a block, with links of `rate` (in tc's notation:
    `1gbit`) if it is set."""
    with contextlib.ExitStack() as stack:
        yield Hosts(n, stack, rate, delay)
