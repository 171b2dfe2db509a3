"""A program that is launched once per node: the launcher of node 0 waits for the launchers of other
nodes.

In:   `--nodes N --rendezvous HOST:PORT`, the number of this node, the job's secret.
Out:  `NodePool` on node 0; `serve_node` on the others, whose launchers are agents of node 0's.
Laws: both ends prove that they have the job's secret, and every frame has an authentication code,
      as on the connections of ranks. Each node prints the output of its own ranks. All launchers
      return the exit status of the program.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from weft._engine.processes.addresses import choose_addresses, join_address, open_listeners
from weft._engine.processes.client import AuthenticationError, Link
from weft._engine.processes.connections import Connection, ConnectionServer
from weft._engine.processes.job_secret import find_secret, is_insecure_allowed
from weft._engine.processes.launchers import PREEMPTED
from weft._engine.processes.wire import ForeignDataError, host_and_port
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft.tools.launch.agent import CANNOT_START, Agent
from weft.tools.launch.job import HostRanks, LaunchOptions, Signals, StartError, make_log_dir
from weft.tools.launch.local_host import Host, LocalHost
from weft.tools.launch.pipe_link import check_versions
from weft.tools.launch.rank_output import RankOutput
from weft.tools.launch.remote_host import RemoteHost, RemotePool

#: seconds that nodes wait for each other at the start, and that a node looks for a new launcher
_MEET_S, _RETURN_S = 300.0, 60.0
#: seconds that a start waits for the remaining nodes if there are enough
_STRAGGLE_S = 10.0
_CONNECT_S = 10.0
_POLL_S = 0.5


@record
class NodeOptions:
    """This node and the number of nodes."""

    count: int
    number: int
    rendezvous: str
    slots: int


def node_number() -> int | None:
    """Return this node's number from Slurm or Kubernetes, or None."""
    for name in ("SLURM_NODEID", "JOB_COMPLETION_INDEX"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None


class NodeHost(RemoteHost):
    """A node whose launcher has connected."""

    def __init__(self, hello: dict[str, Any], output: RankOutput) -> None:
        super().__init__(hello["host"], hello["slots"], {}, output)
        self.number: int = hello["node"]
        self.waiting: deque[dict[str, Any]] = deque()
        self.hangs_up = False

    def hang_up(self) -> None:
        """Close the connection after all queued frames are sent."""
        self.hangs_up = True

    def take(self, table: dict[str, Any], data: bytes) -> None:
        """Take in a frame."""
        self._handle(table, data)

    def lose(self) -> None:
        """Note the end of the connection."""
        self._lose("the connection is closed")

    def _transmit(self, table: dict[str, Any]) -> None:
        self.waiting.append(table)  # the server's thread sends it


class NodePool(RemotePool):
    """All nodes. This is node 0."""

    def __init__(
        self, node: NodeOptions, options: LaunchOptions, output: RankOutput, signals: Signals
    ) -> None:
        self._node = node
        self._local: LocalHost | None = None
        self._nodes: dict[int, NodeHost] = {}
        self._connections: dict[NodeHost, Connection] = {}
        super().__init__(options, output, signals)  # begins a thread that calls `hosts`
        secret, address = prepare(node.rendezvous)
        self._host = host_and_port(address.connect)[0]
        self.listen = tuple(join_address(host_and_port(one)[0], 0) for one in address.listen)
        self._server = ConnectionServer(open_listeners(address.listen), secret, self)
        self._server.start()

    def assign(self, size: int) -> list[HostRanks]:
        """Return where to start `size` ranks."""
        self._local = None  # a new start has new ranks
        return super().assign(size)

    def hosts(self) -> list[RemoteHost]:
        """Return the other nodes."""
        return [self._nodes[number] for number in sorted(self._nodes)]

    def members(self) -> list[tuple[Host, int]]:
        """Return this node and the other nodes that answer."""
        if self._local is None:
            self._local = LocalHost(self._output.receive)
        return [(self._local, self._node.slots), *super().members()]

    def gather(self, patience: float) -> None:
        """Wait for the other nodes."""
        seconds = patience or _MEET_S
        begin = time.monotonic()
        self.wait(
            lambda: (
                self._is_complete()
                or (self.slots() >= self._least and time.monotonic() - begin > _STRAGGLE_S)
            ),
            seconds,
        )

    def set_addresses(self, hosts: Sequence[Host]) -> dict[str, str]:
        """Return the address of the rendezvous, where the coordinator listens as well."""
        return {host.name: self._host for host in hosts}

    def close(self, status: int) -> None:
        """Send the exit status to the other nodes."""
        super().close(status)
        end = time.monotonic() + 5.0
        while self._connections and time.monotonic() < end:
            time.sleep(0.02)
        self._server.stop()

    def _is_complete(self) -> bool:
        return len(self.members()) == self._node.count

    def explain_absence(self, needed: int) -> str:
        """Return which nodes are absent."""
        here = {0, *[number for number, host in self._nodes.items() if host.is_ready]}
        absent = [str(number) for number in range(self._node.count) if number not in here]
        return f"{super().explain_absence(needed)}; absent: node {', '.join(absent)}"

    # ---- called by the server, in its thread
    def receive(self, connection: Connection, table: dict[str, Any], data: bytes) -> None:
        """Take in a frame of a node."""
        host: NodeHost | None = connection.peer
        if host is not None:
            host.take(table, data)
            return
        if refusal := self._find_refusal(table):
            self._output.say(f"{table['host']} is refused: {refusal}")
            self._server.send(connection, {"op": "refused", "why": refusal})
            return
        host = NodeHost(table, self._output)
        connection.peer = host
        self._connections[host], self._nodes[host.number] = connection, host
        host.take(table, data)

    def handle_disconnect(self, connection: Connection) -> None:
        """Note the end of a node's connection."""
        host: NodeHost | None = connection.peer
        if host is not None:
            self._connections.pop(host, None)
            host.lose()

    def tick(self, now: float, elapsed: float) -> None:
        """Send queued frames."""
        for host, connection in list(self._connections.items()):
            while host.waiting:
                self._server.send(connection, host.waiting.popleft())
            if (host.hangs_up or host.lost) and not connection.out:
                self._server.close(connection)

    def _find_refusal(self, hello: dict[str, Any]) -> str:
        number = hello["node"]
        try:
            check_versions(hello["weft"], hello["python"])
        except ForeignDataError as error:
            return str(error)
        if not 0 < number < self._node.count:
            return f"node {number} is none of the {quantity(self._node.count, 'node')}, whose numbers begin at 0"
        if number in self._nodes and not self._nodes[number].lost:
            return f"there is a node {number} already, {self._nodes[number].name}"
        return ""


def prepare(rendezvous: str) -> tuple[bytes, Any]:
    """Return the job's secret and the rendezvous' addresses. Raise StartError if they do not
    match."""
    try:
        secret = find_secret()
        is_open = not secret and is_insecure_allowed()
        return secret, choose_addresses(rendezvous, bool(secret) or is_open, None)
    except (ValueError, RuntimeError) as error:
        raise StartError(str(error)) from None


def serve_node(node: NodeOptions, options: LaunchOptions) -> int:
    """Run the ranks of a node other than 0; return the exit status of the program."""
    output = RankOutput(options.prefix, options.log_dir)
    try:
        make_log_dir(options)
        secret, address = prepare(node.rendezvous)
        with Signals() as signals:
            return _LocalNode(node, options, output, signals).serve(secret, address.connect)
    except (StartError, OSError) as error:
        output.say(str(error))
        return CANNOT_START


class _LocalNode:
    """This node, for as long as the program runs."""

    def __init__(
        self, node: NodeOptions, options: LaunchOptions, output: RankOutput, signals: Signals
    ) -> None:
        self._node, self._options, self._output, self._signals = node, options, output, signals
        self._passed_signals = 0
        self._deadline = float("inf")

    def serve(self, secret: bytes, address: str) -> int:
        patience = _MEET_S
        while True:
            link = self._connect(secret, address, patience)
            agent = Agent(
                link, self._output.receive, node=self._node.number, slots=self._node.slots
            )
            agent.serve(self._stops)
            link.shutdown()
            link.socket.close()
            if agent.refusal:
                raise StartError(f"node 0 refuses this node: {agent.refusal}")
            if agent.status is not None:
                return self._finish(agent.status)
            if self._signals.received is not None:
                return 128 + self._signals.received
            patience = _RETURN_S
            self._output.say(f"the launcher of node 0 is lost; looking for it for {patience:.0f} s")

    def _finish(self, status: int) -> int:
        if status not in (0, PREEMPTED):
            self._output.say(
                f"the program has failed with exit status {status}; node 0 shows the error"
            )
        return status

    def _connect(self, secret: bytes, address: str, seconds: float) -> Link:
        end = time.monotonic() + seconds
        while True:
            try:
                return Link(address, secret, _CONNECT_S)
            except AuthenticationError as error:
                raise StartError(f"the rendezvous {address}: {error}") from None
            except OSError as error:
                reason = str(error)
            if self._signals.received is not None or time.monotonic() > end:
                raise StartError(f"node 0 does not answer at {address}: {reason}")
            time.sleep(_POLL_S)

    def _stops(self, agent: Agent) -> bool:
        """Pass signals on; stop when the ranks have ended after one."""
        if self._signals.received is None:
            return False
        if self._signals.count > self._passed_signals:
            self._passed_signals = self._signals.count
            agent.signal(self._signals.received)
            self._deadline = min(self._deadline, time.monotonic() + self._options.grace)
        is_late = time.monotonic() > self._deadline or self._passed_signals > 1
        return is_late or not agent.is_running
