"""The ranks of other hosts, which agents there run for this launcher.

In:   host names, the command that reaches them (ssh), what to start.
Out:  `RemotePool`, `RemoteHost`: what `launch` needs of hosts.
Laws: a host is lost when its connection closes or it is silent. The agent kills its ranks after a
      shorter silence, so that they have ended before others take their place. The job's secret and
      forwarded variables travel through the connection only, never on a command line.
Next: `agent` is the other end.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft.processes.wire import ForeignDataError
from weft.tools.agent import BEAT_S
from weft.tools.host_list import HostSpec
from weft.tools.launch import Group, Job, LaunchOptions, Signals, StartError
from weft.tools.local_host import RankError, StartRequest, parse_error
from weft.tools.pipe_link import PipeLink, answer_greeting, check_versions
from weft.tools.rank_output import RankOutput
from weft.util.config import config
from weft.util.threads import DaemonThread

#: exit code of ranks whose host is lost, as ssh's own
LOST = 255
#: how long a host may take to answer
_CONNECT_S = 20.0
#: how long a start after a failure waits for hosts if there are too few
_RETURN_S = 120.0
#: how long after the loss of a host it is tried again, first and at most
_FIRST_PROBE_S, _LAST_PROBE_S = 5.0, 300.0
#: how much longer the launcher waits for an agent than the agent for the launcher
_SLACK_S = 5.0
_POLL_S = 0.02
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
    """Return the variables that ranks on other hosts get: weft's and JAX's, and those of these names."""
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
    words += [sys.executable, "-m", "weft.tools.agent"]
    return f"cd {shlex.quote(folder)} && exec {shlex.join(words)}"


class RemoteHost:
    """One host with an agent, until it is lost. A subclass has the connection."""

    def __init__(
        self, name: str, slots: int, environment: Mapping[str, str], output: RankOutput
    ) -> None:
        self.name, self.slots, self.lost = name, slots, ""
        self.hello: dict[str, Any] = {}
        self._lost_at = 0.0
        self._environment, self._output = environment, output
        self._silence = max(5.0, config.heartbeat_timeout)
        self._ranks: tuple[int, ...] = ()
        self._codes: dict[int, int] = {}
        self._errors: dict[int, RankError | None] = {}
        self._has_ended = True
        self._heard = self._checked = time.monotonic()
        self._is_writing = False

    @property
    def is_ready(self) -> bool:
        """Whether the agent has answered, and is not lost."""
        return bool(self.hello) and not self.lost

    # ---- what `launch` needs
    def start(self, request: StartRequest) -> None:
        """Start ranks there."""
        self._ranks, self._has_ended = request.ranks, False
        self._codes.clear()
        self._errors.clear()
        self._send(
            {
                "op": "start",
                "command": request.command,
                "ranks": request.ranks,
                "environment": {**self._environment, **request.environment},
                "silence": self._silence,
            }
        )

    def exit_code(self, rank: int) -> int | None:
        """Return a rank's exit code, None while it runs."""
        code = self._codes.get(rank)
        return LOST if code is None and self.lost else code

    def has_ended(self, rank: int) -> bool:
        """Return whether a rank has certainly ended. The agent of a lost host kills its ranks in time."""
        return rank in self._codes or (bool(self.lost) and self.is_quiet)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing runs on the host without this launcher: its agent has killed what ran when it was lost."""
        has_run = any(rank not in self._codes for rank in self._ranks)
        return not (self.lost and has_run) or time.monotonic() > self._lost_at + self._silence

    def signal(self, ranks: Iterable[int], number: int) -> None:
        """Send a signal to ranks."""
        if ranks := list(ranks):
            self._send({"op": "signal", "ranks": ranks, "number": number})

    def error(self, rank: int) -> RankError | None:
        """Return the error that ended a rank."""
        return self._errors.get(rank)

    def close_stream(self, stream: int) -> None:
        """Close a stream of all ranks."""
        self._send({"op": "close", "stream": stream})

    def end(self, gives_up: Callable[[], bool]) -> None:
        """Kill what runs, and wait for the last output unless `gives_up`."""
        self._send({"op": "end"})
        while not (self._has_ended or self.lost or gives_up()):
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Nothing: the agent waits for the next start."""

    # ---- the connection
    def finish(self, status: int) -> None:
        """Tell the agent that the program has ended."""
        self._send({"op": "finish", "status": status})

    def hang_up(self) -> None:
        """Close the connection. The agent kills what it runs, and ends."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Hang up, and wait a moment for the agent to end."""
        self.hang_up()

    def check(self) -> None:
        """Tell the agent that the launcher lives, and find out whether the host is lost; called every second."""
        now = time.monotonic()
        pause, self._checked = now - self._checked - 2 * BEAT_S, now
        if self.lost:
            return
        self._heard += max(0.0, pause)  # this process itself stood still
        if self._is_writing:
            self._heard = now  # the launcher's own output is not read
        limit = self._silence + _SLACK_S if self.hello else _CONNECT_S
        if now - self._heard > limit:
            self._lose(f"no answer for {now - self._heard:.0f} seconds")
        elif self.hello:
            self._send({"op": "beat"})

    def _transmit(self, table: dict[str, Any]) -> None:
        raise NotImplementedError

    def _send(self, table: dict[str, Any]) -> None:
        if self.lost:
            return
        try:
            self._transmit(table)
        except OSError:
            self._lose("the connection is closed")

    def _lose(self, reason: str) -> None:
        if not self.lost:
            self._lost_at = time.monotonic()
            self.lost = f"host {self.name}: {reason}"

    def _handle(self, table: dict[str, Any], data: bytes) -> None:
        op = table["op"]
        self._heard = time.monotonic()
        if op == "output":
            self._is_writing = True
            self._output.receive(table["rank"], table["stream"], data)
            self._is_writing, self._heard = False, time.monotonic()
        elif op == "exit":
            self._errors[table["rank"]] = parse_error(data)
            self._codes[table["rank"]] = table["code"]
        elif op == "ended":
            self._has_ended = True
        elif op == "cannot start":
            self._lose(f"it cannot start the program ({table['why']})")
        elif op == "hello":
            check_versions(table["weft"], table["python"])
            self.hello = table


class SshHost(RemoteHost):
    """A host that ssh reaches, from the first attempt on."""

    def __init__(
        self, spec: HostSpec, ssh: Sequence[str], environment: Mapping[str, str], output: RankOutput
    ) -> None:
        super().__init__(spec.name, spec.slots, environment, output)
        self._said = ""
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
        """Close the connection. The agent kills what it runs, and ends."""
        if self._link is not None:
            self._link.close()

    def disconnect(self) -> None:
        """Hang up, and wait a moment for the agent to end."""
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
            said = self._said.strip().splitlines()
            super()._lose(reason + (f" ({said[-1]})" if said else ""))
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
        time.sleep(0.05)  # what ssh says of it may be under way
        self._lose(reason)

    def _relay_messages(self) -> None:
        """Show what ssh and the agent say; before the agent answers it explains why it does not."""
        stream = self._process.stderr
        assert stream is not None
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(stream.fileno(), 1 << 12):
                text = data.decode(errors="replace")
                if not self.hello:
                    self._said = (self._said + text)[-4000:]
                else:
                    self._output.say(f"host {self.name}: {text.rstrip()}")


class RemotePool:
    """The hosts of `--hosts`."""

    bind_host = "0.0.0.0"

    def __init__(
        self,
        hosts: Sequence[HostSpec],
        ssh: Sequence[str],
        names: Sequence[str],
        options: LaunchOptions,
        output: RankOutput,
        signals: Signals,
    ) -> None:
        self._options, self._specs, self._ssh = options, hosts, ssh
        self._output, self._signals = output, signals
        self._environment = forwarded_variables(names)
        self._least = options.size if options.least is None else options.least
        self._hosts: dict[str, SshHost] = {}
        self._probe_pauses: dict[str, float] = {}
        self._next_probes: dict[str, float] = {}
        self._closed = False
        self._checker = DaemonThread(self._check_hosts)

    def assign(self, size: int) -> list[Group]:
        """Return where to start `size` ranks."""
        if not self._hosts:
            self._gather(0.0)
        ready = self._ready()
        if sum(host.slots for host in ready) < self._least:
            raise StartError(self._explain_absence(self._least))
        groups, first = [], 0
        for host in ready:
            count = min(host.slots, size - first)
            if count > 0:
                ranks = tuple(range(first, first + count))
                groups.append((host, ranks))
                first += count
        addresses = self._coordinator_hosts([host for host, _ in groups])
        return [Group(host, ranks, addresses[host.name]) for host, ranks in groups]

    def can_grow(self, size: int) -> bool:
        """Try lost hosts from time to time; return whether there are more slots than `size` now."""
        if self._options.least is None or size >= self._options.size:
            return False
        now = time.monotonic()
        for spec in self._specs:
            host = self._hosts[spec.name]
            if host.lost and now >= self._next_probes.setdefault(spec.name, now + _FIRST_PROBE_S):
                pause = self._probe_pauses.get(spec.name, _FIRST_PROBE_S)
                self._probe_pauses[spec.name] = min(_LAST_PROBE_S, 2 * pause)
                self._next_probes[spec.name] = now + _CONNECT_S + pause
                self._connect(spec)
        return sum(host.slots for host in self._ready()) > size

    def next_size(self, job: Job) -> int:
        """Return how many ranks the hosts that answer can run."""
        self._wait(lambda: all(host.is_quiet for host in self._hosts.values()))
        self._gather(_RETURN_S)
        size = min(self._options.size, sum(host.slots for host in self._ready()))
        if size < self._options.size:
            self._output.say(self._explain_absence(self._options.size))
        return size

    def close(self) -> None:
        """Close all connections; agents kill what they run."""
        self._closed = True
        for host in self._hosts.values():
            host.hang_up()
        for host in self._hosts.values():
            host.disconnect()

    def _ready(self) -> list[RemoteHost]:
        hosts = [self._hosts[spec.name] for spec in self._specs if spec.name in self._hosts]
        return [host for host in hosts if host.is_ready]

    def _connect(self, spec: HostSpec) -> None:
        before = self._hosts.get(spec.name)
        if before is not None:
            before.disconnect()
        self._hosts[spec.name] = SshHost(spec, self._ssh, self._environment, self._output)

    def _gather(self, patience: float) -> None:
        """Connect to all hosts. If too few answer, try again for `patience` seconds."""
        end = time.monotonic() + patience
        while True:
            for spec in self._specs:
                if spec.name not in self._hosts or self._hosts[spec.name].lost:
                    self._connect(spec)
            self._wait(lambda: all(host.is_ready or host.lost for host in self._hosts.values()))
            enough = sum(host.slots for host in self._ready()) >= self._least
            if enough or time.monotonic() >= end:
                self._next_probes.clear()
                return
            time.sleep(1.0)

    def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._signals.received is not None:
                raise StartError("interrupted while hosts were awaited")
            time.sleep(_POLL_S)

    def _check_hosts(self) -> None:
        while not self._closed:
            for host in list(self._hosts.values()):
                host.check()
            time.sleep(BEAT_S)

    def _explain_absence(self, needed: int) -> str:
        reasons = "; ".join(host.lost for host in self._hosts.values() if host.lost)
        slots = sum(host.slots for host in self._ready())
        return f"the hosts that answer run {slots} of {needed} processes: {reasons}"

    def _coordinator_hosts(self, hosts: Sequence[RemoteHost]) -> dict[str, str]:
        """Return this machine's address as each host reaches it."""
        addresses = {host.name: _address_for(host) for host in hosts}
        outside = [address for address in addresses.values() if not _is_loopback(address)]
        if outside:  # data between hosts travels from the address that a rank uses here
            for name, address in addresses.items():
                if _is_loopback(address):
                    addresses[name] = outside[0]
        return addresses


def is_here(name: str) -> bool:
    """Return whether a host's name is this machine's.

    >>> is_here("localhost")
    True
    """
    return name in ("localhost", "127.0.0.1", "::1", socket.gethostname())


def _address_for(host: RemoteHost) -> str:
    """Return the address of this machine that leads to a host: as the host sees it, else by this machine's routes."""
    seen = host.hello["launcher address"]
    address = seen or _local_address_towards(host.name.rpartition("@")[2])
    return f"[{address}]" if ":" in address else address


def _local_address_towards(name: str) -> str:
    with contextlib.suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return probe.getsockname()[0]
    return "127.0.0.1" if is_here(name) else socket.gethostname()


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "[::1]"
