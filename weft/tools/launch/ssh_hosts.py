"""Hosts on which the launcher starts agents by ssh.

In:   host names, and the command that connects to them.
Out:  `SshPool`.
Laws: the job's secret and forwarded variables travel through the connection only, never on a
      command line.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft._engine.processes.addresses import find_outward_address, is_loopback
from weft._engine.processes.wire import ForeignDataError
from weft._engine.util.threads import DaemonThread
from weft.tools.launch.host_list import LaunchHost
from weft.tools.launch.job import LaunchOptions, Signals, StartError
from weft.tools.launch.local_host import Host
from weft.tools.launch.pipe_link import PipeLink, answer_greeting
from weft.tools.launch.rank_output import RankOutput
from weft.tools.launch.remote_host import CONNECT_S, RemoteHost, RemotePool, listen_addresses

#: delay before a lost host is tried again, at first and at most
_FIRST_PROBE_S, _LAST_PROBE_S = 5.0, 300.0
_NOT_FORWARDED = frozenset(
    {
        "WEFT_COORDINATOR_ADDRESS",
        "WEFT_COORDINATOR_BIND_ADDRESS",
        "WEFT_COORDINATOR_SERVED",
        "WEFT_ERROR_FD",
        "WEFT_LAUNCHER_PID",
        "WEFT_NUM_PROCESSES",
        "WEFT_PROCESS_ID",
        "WEFT_SSH",
        "JAX_COORDINATOR_ADDRESS",
        "JAX_COORDINATOR_BIND_ADDRESS",
        "JAX_NUM_PROCESSES",
        "JAX_PROCESS_ID",
    }
)


def forwarded_variables(names: Iterable[str]) -> dict[str, str]:
    """Return the variables that ranks on other hosts get: weft's, JAX's and the variables in `names`."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if (name.startswith(("WEFT_", "JAX_")) or name == "PYTHONPATH")
        and name not in _NOT_FORWARDED
    }
    for name in names:
        name, equals, value = name.partition("=")
        if equals:
            variables[name] = value
        elif name in os.environ:
            variables[name] = os.environ[name]
        else:
            raise StartError(f"--env {name}: there is no variable of this name")
    return variables


def remote_command(folder: str) -> str:
    """Return the shell command that starts an agent in `folder`.

    >>> remote_command("/a b").startswith("cd '/a b' && exec ")
    True
    """
    path = os.environ.get("PYTHONPATH")
    words = ["env", f"PYTHONPATH={path}"] if path else []
    words += [sys.executable, "-m", "weft.tools.launch.agent"]
    return f"cd {shlex.quote(folder)} && exec {shlex.join(words)}"


class SshHost(RemoteHost):
    """A host reached by ssh, from the first attempt on."""

    def __init__(
        self,
        spec: LaunchHost,
        ssh: Sequence[str],
        environment: Mapping[str, str],
        output: RankOutput,
    ) -> None:
        super().__init__(spec.name, spec.slots, environment, output)
        self._error_text = ""
        self._link: PipeLink | None = None
        command = remote_command(os.getcwd())
        words = ["sh", "-c", command] if is_here(spec.name) else [*ssh, spec.name, command]
        try:
            # Its own process group: Ctrl-C must not end the connection before the ranks.
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                process_group=0,
            )
        except OSError as error:
            raise StartError(f"cannot run {words[0]}: {error.strerror}") from None
        stdin = self._process.stdin
        assert stdin is not None
        self._outgoing = os.dup(stdin.fileno())
        stdin.close()
        self._messages = DaemonThread(self._relay_messages)
        self._listener = DaemonThread(self._listen)

    def hang_up(self) -> None:
        """Close the connection. The agent then kills its ranks and ends."""
        if self._link is not None:
            self._link.close()

    def disconnect(self) -> None:
        """Hang up, and wait briefly for the agent to end."""
        self.hang_up()
        if self._link is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
        self._kill_ssh()
        self._process.wait()
        if self._link is None:
            self._close_outgoing()

    def _transmit(self, table: dict[str, Any]) -> None:
        if self._link is not None:
            self._link.send(table)

    def _lose(self, reason: str) -> None:
        if not self.lost:
            error_lines = self._error_text.strip().splitlines()
            super()._lose(reason + (f" ({error_lines[-1]})" if error_lines else ""))
            self._kill_ssh()

    def _close_outgoing(self) -> None:
        outgoing, self._outgoing = self._outgoing, -1
        if outgoing >= 0:
            os.close(outgoing)

    def _kill_ssh(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _listen(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        reason = "the connection is closed"
        try:
            self._link = answer_greeting(stream.fileno(), self._outgoing)
            while not self.lost:
                for table, data in self._link.receive(1.0) or ():
                    self._handle(table, data)
        except ForeignDataError as error:
            reason = str(error)
        except (OSError, KeyError, TypeError, ValueError):
            pass
        time.sleep(0.05)  # an error message of ssh may still arrive
        self._lose(reason)

    def _relay_messages(self) -> None:
        """Show messages of ssh and the agent; before the agent answers, they explain failures to
        connect."""
        stream = self._process.stderr
        assert stream is not None
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(stream.fileno(), 1 << 12):
                text = data.decode(errors="replace")
                if not self.hello:
                    self._error_text = (self._error_text + text)[-4000:]
                else:
                    self._output.say(f"host {self.name}: {text.rstrip()}")


class SshPool(RemotePool):
    """The hosts of `--hosts`."""

    def __init__(
        self,
        hosts: Sequence[LaunchHost],
        ssh: Sequence[str],
        names: Sequence[str],
        options: LaunchOptions,
        output: RankOutput,
        signals: Signals,
    ) -> None:
        self._specs, self._ssh = hosts, ssh
        self._environment = forwarded_variables(names)
        self._hosts: dict[str, SshHost] = {}
        self._probe_pauses: dict[str, float] = {}
        self._next_probes: dict[str, float] = {}
        super().__init__(options, output, signals)

    def hosts(self) -> list[RemoteHost]:
        """Return all hosts."""
        return [self._hosts[spec.name] for spec in self._specs if spec.name in self._hosts]

    def gather(self, patience: float) -> None:
        """Connect to all hosts. If too few answer, try again for `patience` seconds."""
        end = time.monotonic() + patience
        while True:
            for spec in self._specs:
                if spec.name not in self._hosts or self._hosts[spec.name].lost:
                    self._connect(spec)
            self.wait(lambda: all(host.is_ready or host.lost for host in self.hosts()))
            if self.slots() >= self._least or time.monotonic() >= end:
                self._next_probes.clear()
                return
            self.wait(lambda: False, 1.0)

    def try_lost_hosts(self) -> None:
        """Connect to lost hosts again, at growing intervals."""
        now = time.monotonic()
        for spec in self._specs:
            host = self._hosts[spec.name]
            if not (host.lost and host.is_quiet):
                continue
            if now >= self._next_probes.setdefault(spec.name, now + _FIRST_PROBE_S):
                pause = self._probe_pauses.get(spec.name, _FIRST_PROBE_S)
                self._probe_pauses[spec.name] = min(_LAST_PROBE_S, 2 * pause)
                self._next_probes[spec.name] = now + CONNECT_S + pause
                self._connect(spec)

    def set_addresses(self, hosts: Sequence[Host]) -> dict[str, str]:
        """Listen at the interfaces that lead to the hosts."""
        addresses = {host.name: _address_for(self._hosts[host.name]) for host in hosts}
        outside = [address for address in addresses.values() if not is_loopback(address)]
        if outside:  # data between hosts travels from the address that a rank uses here
            for name, address in addresses.items():
                if is_loopback(address):
                    addresses[name] = outside[0]
        listen = listen_addresses(addresses.values())
        is_complete = len(listen) == len(set(addresses.values()))
        self.listen = listen if is_complete else ("0.0.0.0:0",)  # behind NAT
        return addresses

    def _connect(self, spec: LaunchHost) -> None:
        before = self._hosts.get(spec.name)
        if before is not None:
            before.disconnect()
        self._hosts[spec.name] = SshHost(spec, self._ssh, self._environment, self._output)


def is_here(name: str) -> bool:
    """Return whether a host's name is this machine's.

    >>> is_here("localhost")
    True
    """
    return name in ("localhost", "127.0.0.1", "::1", socket.gethostname())


def _address_for(host: RemoteHost) -> str:
    """Return this machine's address as a host sees it, else by this machine's routes."""
    return host.hello["launcher address"] or _address_towards(host.name.rpartition("@")[2])


def _address_towards(name: str) -> str:
    with contextlib.suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return probe.getsockname()[0]
    return "127.0.0.1" if is_here(name) else find_outward_address() or socket.gethostname()
