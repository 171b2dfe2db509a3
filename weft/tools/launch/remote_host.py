"""The launcher's side of hosts that have an agent.

In:   agents, which `ssh_hosts` starts or which `node_hosts` waits for.
Out:  `RemoteHost` and `RemotePool`: the interface of hosts for `launch`.
Laws: a host is lost when its connection closes or it is silent. The agent kills its ranks after a
      shorter silence; a start after a failure waits for that, so that no rank of a lost host runs
      at the same time as its replacement.
Next: `agent` is the other end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft._engine.processes.addresses import is_loopback, is_of_this_machine, join_address
from weft._engine.util.config import config
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.threads import DaemonThread
from weft.tools.launch.agent import HEARTBEAT_S
from weft.tools.launch.job import HostRanks, LaunchedJob, LaunchOptions, Signals, StartError
from weft.tools.launch.local_host import LOST, Host, RankError, StartRequest, parse_error
from weft.tools.launch.pipe_link import check_versions
from weft.tools.launch.rank_output import RankOutput

#: timeout in seconds of a host's answer
CONNECT_S = 20.0
#: seconds that a start after a failure waits for hosts if there are too few
RETURN_S = 120.0
#: seconds that the launcher waits for an agent in addition to an agent's timeout for the launcher
_SLACK_S = 5.0
_POLL_S = 0.02


class RemoteHost:
    """One host with an agent, until it is lost. Subclasses provide the connection."""

    def __init__(
        self, name: str, slots: int, environment: Mapping[str, str], output: RankOutput
    ) -> None:
        self.name, self.slots, self.lost = name, slots, ""
        self.hello: dict[str, Any] = {}
        self._lost_at = 0.0
        self._environment, self._output = environment, output
        self._silence = silence_limit()
        self._ranks: tuple[int, ...] = ()
        self._codes: dict[int, int] = {}
        self._errors: dict[int, RankError | None] = {}
        self._has_ended = True
        self._leaves = False
        self._heard = self._checked = time.monotonic()
        self._is_writing = False

    @property
    def is_ready(self) -> bool:
        """True if the agent has answered, and takes part in the next start."""
        return bool(self.hello) and not self.lost and not self._leaves

    # ---- the interface for `launch`
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
        """Return whether a rank has certainly ended, by itself or killed by its agent."""
        return rank in self._codes or (bool(self.lost) and self.is_quiet)

    @property
    def is_quiet(self) -> bool:
        """True if nothing runs there without this launcher: a lost agent has killed its ranks."""
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

    def end(self, is_cancelled: Callable[[], bool]) -> None:
        """Kill all running ranks, and wait for the last output unless `is_cancelled` returns True."""
        self._send({"op": "end"})
        while not (self._has_ended or self.lost or is_cancelled()):
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Do nothing: the agent waits for the next start."""

    # ---- the connection
    def finish(self, status: int) -> None:
        """Tell the agent that the program has ended."""
        self._send({"op": "finish", "status": status})

    def hang_up(self) -> None:
        """Close the connection. The agent then kills its ranks and ends."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Hang up, and wait briefly for the agent to end."""
        self.hang_up()

    def check(self) -> None:
        """Send a heartbeat, and detect whether the host is lost; called every second."""
        now = time.monotonic()
        pause, self._checked = now - self._checked - 2 * HEARTBEAT_S, now
        if self.lost:
            return
        self._heard += max(0.0, pause)  # this process itself was suspended
        if self._is_writing:
            self._heard = now  # the launcher's own output is not read
        limit = self._silence + _SLACK_S if self.hello else CONNECT_S
        if now - self._heard > limit:
            self._lose(f"no answer for {now - self._heard:.0f} seconds")
        elif self.hello:
            self._send({"op": "heartbeat"})

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
        elif op == "leaves":
            self._leaves = True
        elif op == "cannot start":
            self._lose(f"it cannot start the program ({table['why']})")
        elif op == "hello":
            check_versions(table["weft"], table["python"])
            self.hello = table


def silence_limit() -> float:
    """Return the seconds of silence after which an agent kills its ranks."""
    return max(5.0, config.heartbeat_timeout)


class RemotePool:
    """Hosts with agents. Subclasses connect them."""

    def __init__(self, options: LaunchOptions, output: RankOutput, signals: Signals) -> None:
        self._options, self._output, self._signals = options, output, signals
        self._least = options.size if options.least is None else options.least
        #: addresses at which the coordinator listens
        self.listen: tuple[str, ...] = ()
        self.outlives_preemption = options.least is not None
        self.proof_s = 2 * silence_limit() + _SLACK_S + 2 * HEARTBEAT_S
        self._has_begun = False
        self._is_closed = False
        self._checker = DaemonThread(self._check_hosts)

    # ---- defined by subclasses
    def hosts(self) -> Sequence[RemoteHost]:
        """Return all hosts, including lost ones, in the order of their ranks."""
        raise NotImplementedError

    def members(self) -> list[tuple[Host, int]]:
        """Return the hosts that answer, and the number of ranks of each."""
        return [(host, host.slots) for host in self.hosts() if host.is_ready]

    def gather(self, patience: float) -> None:
        """Connect to all hosts. If too few answer, try again for `patience` seconds."""
        raise NotImplementedError

    def set_addresses(self, hosts: Sequence[Host]) -> dict[str, str]:
        """Set the addresses of the coordinator; return its host name as seen from each of these
        hosts."""
        raise NotImplementedError

    # ---- the interface for `launch`
    def assign(self, size: int) -> list[HostRanks]:
        """Return where to start `size` ranks."""
        if not self._has_begun:
            self._has_begun = True
            self.gather(0.0)
        members = self.members()
        if self.slots() < self._least:
            raise StartError(self.explain_absence(self._least))
        placed: list[tuple[Host, tuple[int, ...]]] = []
        first = 0
        for host, slots in members:
            count = min(slots, size - first)
            if count > 0:
                placed.append((host, tuple(range(first, first + count))))
                first += count
        addresses = self.set_addresses([host for host, _ in placed])
        return [HostRanks(host, ranks, addresses[host.name]) for host, ranks in placed]

    def can_grow(self, size: int) -> bool:
        """Return True if there are more slots than `size` now, and the program may use them."""
        if self._options.least is None or size >= self._options.size:
            return False
        self.try_lost_hosts()
        return self.slots() > size

    def try_lost_hosts(self) -> None:
        """Connect to lost hosts again, from time to time."""

    def next_size(self, job: LaunchedJob) -> int:
        """Return the number of ranks that the hosts that answer can run."""
        self.wait(lambda: all(host.is_quiet for host in self.hosts()))
        self.gather(RETURN_S)
        size = min(self._options.size, self.slots())
        if size < self._options.size:
            self._output.say(self.explain_absence(self._options.size))
        return size

    def close(self, status: int) -> None:
        """Tell all agents that the program has ended, and close the connections."""
        self._is_closed = True
        for host in self.hosts():
            host.finish(status)
        for host in self.hosts():
            host.hang_up()
        for host in self.hosts():
            host.disconnect()

    # ---- shared by subclasses
    def slots(self) -> int:
        """Return the number of ranks that the hosts that answer can run."""
        return sum(slots for _, slots in self.members())

    def wait(self, condition: Callable[[], bool], seconds: float = float("inf")) -> None:
        """Wait for a condition. Raise StartError if a signal asks this process to end."""
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            if self._signals.received is not None:
                raise StartError("interrupted while hosts were awaited")
            time.sleep(_POLL_S)

    def explain_absence(self, needed: int) -> str:
        """Return why there are too few hosts."""
        reasons = "; ".join(host.lost for host in self.hosts() if host.lost)
        reasons = reasons or "others are absent"
        return (
            f"the hosts that answer run {self.slots()} of {quantity(needed, 'process')}: {reasons}"
        )

    def _check_hosts(self) -> None:
        while not self._is_closed:
            for host in list(self.hosts()):
                host.check()
            time.sleep(HEARTBEAT_S)


def listen_addresses(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return addresses at which to listen for connections to these hosts of this machine, given by
    number."""
    own = [host for host in dict.fromkeys(hosts) if is_loopback(host) or is_of_this_machine(host)]
    return tuple(join_address(host, 0) for host in own)
