"""Joining and leaving: the life cycle of `Processes`.

In:   an address, a rank, the number of processes, the number of local devices.
Out:  `current()`.
Laws: a process joins once, before it creates a device. A process that leaves in good order waits for the others; a failing process notifies
      them. A failure is permanent: every wait, pending or later, raises it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft._engine.processes import agreement, failures, job_secret, liveness
from weft._engine.processes.addresses import choose_addresses, find_outward_address, join_address
from weft._engine.processes.client import Client, rejoin_survivors
from weft._engine.processes.collective_plan import CollectivePlan
from weft._engine.processes.coordinator import FINAL_BARRIER, LEAVE_GRACE_S, Coordinator
from weft._engine.processes.current_processes import held
from weft._engine.processes.host_identity import machine
from weft._engine.processes.shared_memory import NativeFunctions
from weft._engine.processes.transport import Transport
from weft._engine.processes.transport_routes import RoutingTransport
from weft._engine.util.errors import ProcessFailureError, describe
from weft._engine.util.threads import DaemonThread

#: seconds after which the main thread is interrupted if it has not raised a known failure
_UNSEEN_S = 2.5


class Processes:
    """The state that a process shares with the other processes of a program; `weft._engine.processes.current()` returns it."""

    def __init__(
        self,
        client: Client,
        collective_timeout: float,
        shutdown_timeout: float,
        coordinator: Coordinator | None,
        natives: NativeFunctions | None,
        requested_transport: str,
    ) -> None:
        self.client, self.natives, self.requested_transport = client, natives, requested_transport
        self.rank, self.size = client.rank, client.size
        self.local_counts: tuple[int, ...] = tuple(client.facts["devices"])
        self.hosts: tuple[str, ...] = tuple(client.facts["machine"])
        self.partitions: tuple[int | None, ...] = tuple(client.facts["partition"])
        #: the original number of each process, before others were lost
        self.first_numbers: tuple[int, ...] = tuple(client.facts["first number"])
        self.collective_timeout, self.shutdown_timeout = collective_timeout, shutdown_timeout
        self.coordinator = coordinator
        #: True if `weft run` has joined; then the program may still call initialize, once
        self.is_launched = False
        #: nonzero once a process has failed; waiting native code polls it
        self.failed_word = ctypes.c_int64(0)
        self._error: BaseException | None = None
        client.is_served_by_rank = bool(client.facts["serves"][0])
        self._waits_for: list[str] = []
        self._counts: Counter[Any] = Counter()
        self._interrupted: BaseException | None = None
        client.describe_waits = lambda: ", ".join(
            [*self._waits_for, *filter(None, [getattr(self.transport, "awaits", str)()])]
        )
        client.on_failure = self._handle_failure
        if client.failure is not None:
            self._handle_failure(client.failure)
        self.transport = Transport()  # for reports about this rank while it creates its transport
        if natives is not None:
            self.transport = RoutingTransport(self, natives, requested_transport)

    @property
    def called_from_native(self) -> list[Transport]:
        """The transports whose methods native code calls while it waits."""
        return self.transport.components()

    def __repr__(self) -> str:
        return f"Processes(rank={self.rank}, size={self.size}, local_counts={self.local_counts})"

    def next_number(self, action: Any) -> int:
        """Return the number of earlier calls with `action`. All processes take the actions in the same order."""
        self._counts[action] += 1
        return self._counts[action] - 1

    # ---- failures
    def _handle_failure(self, failure: dict[str, Any]) -> None:
        self.failed_word.value = 1
        DaemonThread(self._interrupt, _UNSEEN_S)

    def _interrupt(self, delay: float) -> None:
        """Send a signal to the main thread if it has not raised the failure by then: it may neither wait for others nor end."""
        time.sleep(delay)
        if held and held[0] is self and not self.client.is_failure_seen and _interrupt_signals:
            _send_to_main_thread(_interrupt_signals[0])

    def interrupt_again(self) -> None:
        """Interrupt the main thread again: it ignored the failure, because a finalizer cannot raise."""
        self.client.is_failure_seen = False
        DaemonThread(self._interrupt, 0.1)

    def check(self, awaited: Iterable[int] = (), plan: CollectivePlan | None = None) -> None:
        """Raise ProcessFailureError if a process has failed, or if one of the `awaited` ranks has left."""
        if self._error is not None:
            self.client.is_failure_seen = True
            raise self._error
        waits_for, where = (str(plan), plan.origin) if plan is not None else ("", "")
        if self.client.failure is not None:
            self.client.is_failure_seen = True
            raise failures.of_rank(self.client.failure, waits_for, where)
        for rank in awaited:
            left_at = self.client.leaving.get(rank)
            if left_at is not None and time.monotonic() - left_at > LEAVE_GRACE_S:
                raise failures.of_rank({"rank": rank, "kind": "left", "text": ""}, waits_for, where)

    def set_failure(self, error: BaseException) -> None:
        """Store the exception of a wait in native code, for `raise_failure`. The transport is unusable from now on."""
        if not isinstance(error, ProcessFailureError):
            self._interrupted = error  # raised once; the pending collective is lost
            error = ProcessFailureError(
                describe(
                    "distributed",
                    "a collective was interrupted.",
                    [("by", type(error).__name__)],
                    None,
                    "Other processes may have finished it, so that their state differs from this one's.",
                    "Start again.",
                )
            )
        if self._error is None:
            self._error = error
        self.failed_word.value = 1

    def raise_failure(self) -> None:
        """Raise the stored exception after `start` returned -1 or `wait` did not return DONE."""
        error, self._interrupted = self._interrupted, None
        if error is not None:
            raise error
        self.check()
        raise ProcessFailureError(
            "distributed: a collective failed: its program was compiled for processes, some of which were lost "
            "(weft.distributed.shrink).\n  Move its arguments to a mesh of weft.devices(), by weft.device_put."
        )

    def await_failure_report(self, seconds: float = 1.0) -> None:
        """Wait at most `seconds` for the coordinator to explain a broken connection, and raise its explanation."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check()
            time.sleep(0.01)

    # ---- waiting
    @contextlib.contextmanager
    def report_wait(self, plan: CollectivePlan) -> Iterator[None]:
        """Report, within the block, that this rank waits in the collective `plan`."""
        text = f"{plan} at {plan.origin}" if plan.origin else str(plan)
        self._waits_for.append(text)
        try:
            yield
        finally:
            self._waits_for.remove(text)

    def clock(self, limit: float) -> ExtensibleDeadline:
        """Return a deadline that is extended while absent ranks report progress."""
        return ExtensibleDeadline(self.client, limit)

    @contextlib.contextmanager
    def report_busy(self, text: str) -> Iterator[None]:
        """Report within the block what this rank does (it compiles or saves), so that waiting ranks extend their limit."""
        self.client.report_progress(text)
        try:
            yield
        finally:
            self.client.report_progress("")

    def barrier(
        self, name: str, timeout: float | None = None, ranks: Sequence[int] | None = None
    ) -> None:
        """Wait until all ranks, or the given `ranks`, have arrived at the barrier `name`."""
        self.client.barrier(name, self.collective_timeout if timeout is None else timeout, ranks)


class ExtensibleDeadline:
    """A time limit in seconds that starts now."""

    def __init__(self, client: Client, limit: float) -> None:
        self._client, self._limit = client, limit
        self._end = time.monotonic() + limit

    def is_over(self, absent: Sequence[int]) -> bool:
        """Return True if the limit has passed and no absent rank reports that it is busy; extend the limit if one does."""
        if time.monotonic() < self._end:
            return False
        if any(
            facts["progress"] and facts["answers"]
            for facts in self._client.query_stacks(absent).values()
        ):
            self._end = time.monotonic() + self._limit
            return False
        return True


# ---- joining and leaving

#: coordinators of failed starts: they refuse late processes until this process ends or joins again
_disagreeing: list[Coordinator] = []


def join(
    address: str | None,
    rank: int,
    size: int,
    devices: int,
    *,
    serve: bool,
    bind_address: str | None = None,
    share: Callable[[str | None], str] | None = None,
    start: str = "",
    initialization_timeout: float = 300.0,
    heartbeat_timeout: float = 10.0,
    collective_timeout: float = 600.0,
    shutdown_timeout: float = 300.0,
    partition: int | None = None,
    natives: NativeFunctions | None = None,
    transport: str = "auto",
    plugins: Mapping[str, str] | None = None,
) -> Processes:
    """Meet the other processes; with `serve`, start the coordinator here. Without an address the coordinator chooses a port, and `share`
    sends the address and the secret to all processes. `start` is the launcher's name for this start of the program.

    Raises ProcessFailureError if other processes do not join, RuntimeError if processes of other machines would have to connect without a
    secret."""
    _stop_disagreeing()
    meeting = _Rendezvous(serve, size, heartbeat_timeout, bind_address)
    if not address and share is not None:
        meeting.share_address(share)
    else:
        meeting.use_address(address or "", start)
    try:
        if meeting.coordinator is not None:
            meeting.coordinator.start()
        facts = {
            "devices": devices,
            "machine": machine(),
            "partition": partition,
            "serves": serve,
            "first number": rank,
            "versions": agreement.collect_versions(plugins or {}),
        }
        client = Client(
            meeting.address,
            rank,
            size,
            facts,
            initialization_timeout,
            heartbeat_timeout,
            meeting.secret,
            _responder(natives),
        )
        try:
            agreement.check_versions(client.facts["versions"], client.facts["host"])
            processes = Processes(
                client,
                collective_timeout,
                shutdown_timeout,
                meeting.coordinator,
                natives,
                transport,
            )
        except BaseException:
            client.close()
            raise
    except BaseException as error:
        meeting.abandon(error)
        raise
    held.append(processes)
    _install_hooks()
    return processes


class _Rendezvous:
    """The address, the secret and the coordinator through which the processes of a job meet."""

    def __init__(self, serve: bool, size: int, heartbeat_timeout: float, bind: str | None) -> None:
        self.serve, self.size, self.bind = serve, size, bind
        self.heartbeat_timeout = heartbeat_timeout
        self.secret, self.address, self.note = job_secret.find_secret(), "", ""
        self.coordinator: Coordinator | None = None

    def share_address(self, share: Callable[[str | None], str]) -> None:
        """Let the coordinator choose a port, and send the address to all processes by `share`."""
        text = None
        if self.serve:
            self.secret = self.secret or job_secret.make_secret().encode()
            host = find_outward_address() or "127.0.0.1"
            coordinator = self._make_coordinator(self.bind or join_address(host, 0))
            text = f"{join_address(host, coordinator.port)} {self.secret.decode()}"
        self.address, _, secret = share(text).partition(" ")
        self.secret = secret.encode()

    def use_address(self, address: str, start: str) -> None:
        """Meet at the address that the user provided."""
        secret = self.secret
        is_open = not secret and job_secret.is_insecure_allowed()
        chosen = choose_addresses(address, bool(secret) or is_open, self.bind)
        if chosen.connect != address and not secret and not is_open:
            self.note = f"Without {job_secret.VARIABLE} the coordinator at {address} accepts only processes of this machine."
        self.address = chosen.connect
        self.secret = job_secret.make_start_secret(secret, start)
        if not self.serve:
            return
        if is_open and not chosen.is_local:
            warnings.warn(
                f"{job_secret.INSECURE_VARIABLE} is set: anyone who can connect to {', '.join(chosen.listen)} can end this "
                "program and change its results.",
                RuntimeWarning,
                stacklevel=5,
            )
        self._make_coordinator(chosen.listen)

    def _make_coordinator(self, listen: str | Sequence[str]) -> Coordinator:
        self.coordinator = Coordinator(
            listen, self.size, self.heartbeat_timeout, secret=self.secret, machine=machine()
        )
        return self.coordinator

    def abandon(self, error: BaseException) -> None:
        """Stop the coordinator after a failed start, or keep it running to refuse late processes."""
        if self.note and isinstance(error, ProcessFailureError):
            error.add_note(self.note)
        if self.coordinator is None:
            return
        if self.coordinator.has_disagreement:
            _disagreeing.append(self.coordinator)
            atexit.register(_stop_disagreeing, self.heartbeat_timeout)
        else:
            self.coordinator.stop()


def _stop_disagreeing(patience: float = 0.0) -> None:
    while _disagreeing:
        _disagreeing.pop().stop(patience)


def _responder(natives: NativeFunctions | None) -> int | None:
    return None if natives is None else natives.liveness()["weft_answer_probes"]


def shrink() -> tuple[int, ...]:
    """Continue with the surviving processes under new numbers; return their former numbers in the order of the new ones.

    Pending collectives have failed by then, and remain failed. Raises ProcessFailureError if a survivor does not arrive, or if the
    coordinator is lost.
    """
    before = held[0]
    client, limit = before.client, before.collective_timeout
    facts = {name: values[before.rank] for name, values in client.facts.items()}
    coordinator, address = before.coordinator, client.address
    before.failed_word.value = 1
    answer = None
    try:
        if not _is_coordinator_lost(client):
            answer = client.shrink(limit)
    except ProcessFailureError:
        if not client.has_lost_coordinator:
            raise
    until = time.monotonic() + limit
    while answer is None:  # the successor itself may be lost, too
        address, coordinator = _find_successor(before)
        facts["serves"] = coordinator is not None
        answer = rejoin_survivors(address, client.secret, before.rank, facts, until)
    rank, survivors = answer
    _kill_stopped(before)
    before.transport.close()
    client.close()
    client = Client(
        address,
        rank,
        len(survivors),
        facts,
        limit,
        client.heartbeat_timeout,
        client.secret,
        _responder(before.natives),
    )
    held[:] = [
        Processes(
            client,
            limit,
            before.shutdown_timeout,
            coordinator,
            before.natives,
            before.requested_transport,
        )
    ]
    _former_processes.append(before)
    return survivors


def _is_coordinator_lost(client: Client) -> bool:
    lost = client.failure
    return client.has_lost_coordinator or (
        lost is not None and client.is_served_by_rank and lost["rank"] == 0
    )


def _find_successor(before: Processes) -> tuple[str, Coordinator | None]:
    """Return the address where survivors meet after losing the coordinator of process 0, and the new coordinator if it runs here: in the
    first process that answers a probe. It lets them continue if they are a majority, or if process 0 has certainly ended."""
    client = before.client
    if not client.is_served_by_rank:
        raise ProcessFailureError(
            describe(
                "distributed.shrink",
                "the coordinator is lost.",
                [("it ran", "in the launcher")],
                None,
                "The surviving processes need it to meet again.",
                "Start again from the last checkpoint.",
            )
        )
    addresses = client.facts["successor"]
    results = liveness.probe_all(addresses)
    alive = [
        rank
        for rank in range(1, before.size)
        if rank == before.rank or results[rank] == liveness.ANSWERS
    ]
    if alive[0] != before.rank:
        return addresses[alive[0]], None
    coordinator = Coordinator(
        "",
        before.size,
        client.heartbeat_timeout,
        listener=client.responder.stop(),
        expected={rank: addresses[rank] for rank in alive},
        secret=client.secret,
        machine=machine(),
        former_facts=client.facts,
    )
    coordinator.start()
    return addresses[before.rank], coordinator


#: former `Processes`: native code of programs that were compiled before a loss may still read their words
_former_processes: list[Processes] = []


def _kill_stopped(processes: Processes) -> None:
    """Kill the process whose silence is the failure, if it is stopped on this machine: it would never end, and neither would a launcher
    that waits for all processes. Its connection is still open, so the process id cannot have been reused."""
    failure, facts = processes.client.failure, processes.client.facts
    if failure is None or not (
        failure["kind"] == "silent"
        or (failure["kind"] == "coordinator" and "silent" in failure["text"])
    ):
        return
    rank = failure["rank"] if failure["rank"] >= 0 else 0
    if (
        rank == processes.rank
        or facts["machine"][rank] != facts["machine"][processes.rank]
        or not processes.client.is_served_by_rank
    ):
        return  # `weft launch` ends it itself
    pid = facts["pid"][rank]
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        if file.read().rpartition(")")[2].split()[0] == "T":
            os.kill(pid, signal.SIGKILL)


def leave() -> None:
    """Wait for the other processes to leave, then drop the shared state. Raises ProcessFailureError if one failed."""
    if not held:
        return
    processes = held[0]
    try:
        if processes.client.failure is None and not _fatal_errors:
            processes.client.barrier(
                FINAL_BARRIER, processes.shutdown_timeout, setting="shutdown_timeout_seconds"
            )
        else:
            processes.check()
    finally:
        held.clear()
        _kill_stopped(processes)
        processes.transport.close()
        if processes.client.failure is None and not _fatal_errors:
            # otherwise it ends as a failed process, so that a process that was stopped in the meantime is notified
            processes.client.leave()
        processes.client.close()
        if processes.coordinator is not None:
            processes.coordinator.stop(1.0 if processes.client.failure or _fatal_errors else 5.0)


_fatal_errors: list[BaseException] = []
_installed_hooks: list[bool] = []
#: the signal that notifies the main thread of a failure
_interrupt_signals: list[int] = []


def _raise_in_main_thread(number: int, frame: Any) -> None:
    if held and not held[0].client.is_failure_seen and not _is_reporting(frame):
        held[0].check()


def _send_to_main_thread(number: int, delay: float = 0.0) -> None:
    time.sleep(delay)
    main = threading.main_thread()
    if main.is_alive():
        signal.pthread_kill(main.ident or 0, number)


def _is_reporting(frame: Any) -> bool:
    """Return whether `_report_exception` runs in a frame. A pending signal is handled at its start, before its first line."""
    while frame is not None and frame.f_code is not _report_exception.__code__:
        frame = frame.f_back
    return frame is not None


def _report_exception(
    before: Callable[..., object], kind: type[BaseException], error: BaseException, trace: Any
) -> None:
    """Handle an exception that ends this process: report it to the other ranks, then call the former hook `before`."""
    _fatal_errors.append(error)
    processes = held[0] if held else None
    if processes is not None:
        # otherwise news of a failure would interrupt this report
        processes.client.is_failure_seen = True
    if processes is not None and processes.client.failure is None:
        with contextlib.suppress(Exception):
            processes.client.report_error("".join(traceback.format_exception(kind, error, trace)))
    before(kind, error, trace)


def _install_hooks() -> None:
    """Install hooks that report an exception that ends this process, and its exit, to the other ranks."""
    if _installed_hooks:
        return
    _installed_hooks.append(True)
    sys.excepthook = functools.partial(_report_exception, sys.excepthook)
    unraised = sys.unraisablehook

    def unraisable(event: Any) -> None:
        """Keep an exception that Python would drop: a signal handler may raise in a callback of native code before its first line, or
        where Python ignores exceptions."""
        if (
            held
            and event.exc_value is not None
            and getattr(event.object, "__self__", None) in held[0].called_from_native
        ):
            held[0].set_failure(event.exc_value)
        elif held and isinstance(event.exc_value, ProcessFailureError):
            held[0].interrupt_again()
        elif held and isinstance(event.exc_value, KeyboardInterrupt):
            DaemonThread(_send_to_main_thread, signal.SIGINT, 0.1)
        else:
            unraised(event)

    sys.unraisablehook = unraisable
    if hasattr(signal, "SIGRTMAX") and threading.current_thread() is threading.main_thread():
        number = signal.SIGRTMAX - 3
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _raise_in_main_thread)
            _interrupt_signals.append(number)
    atexit.register(_leave_at_exit)


def _leave_at_exit() -> None:
    if _fatal_errors:
        with contextlib.suppress(Exception):
            leave()
        return
    try:
        leave()
    except ProcessFailureError as error:
        print(
            f"{type(error).__module__}.{type(error).__name__}: {error}", file=sys.stderr, flush=True
        )
        sys.stdout.flush()
        os._exit(1)
