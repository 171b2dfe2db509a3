"""Start the processes of one program, watch them, and end all of them.

In:   `LaunchOptions`: a program, the number of processes, the hosts, the behavior after a failure.
Out:  an exit status: 0 if all ended well, `PREEMPTED` if they saved their state and ended early,
      else the status of the first rank that failed (128 and the signal's number, if a signal killed it).
Laws: the coordinator runs here, so that the end of any process is known at once. After a failure,
      or after a signal, which is passed on, the ranks have `grace` seconds to end; then they are
      killed, with all that they started. If this process is killed, the system ends the others.
      Survivors that continue by themselves (`weft.distributed.shrink`) are left alone. The error
      that failed the program is printed once, at the end.
Next: `local_host` and `remote_host` run ranks; `rank_output` prints what they write.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from weft._engine.processes.addresses import join_address
from weft._engine.processes.connections import raise_file_limit
from weft._engine.processes.coordinator import Coordinator
from weft._engine.processes.failures import _format_ranks as format_ranks
from weft._engine.processes.host_identity import machine
from weft._engine.processes.job_secret import VARIABLE, find_secret, make_secret
from weft._engine.processes.launchers import PREEMPTED
from weft._engine.util.config import config
from weft._engine.util.messages.progress import show_progress
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import field, record
from weft.tools.launch.agent import CANNOT_START
from weft.tools.launch.local_host import LOST, Host, LocalHost, RankError, StartRequest, run_command
from weft.tools.launch.rank_output import RankOutput
from weft.tools.output import CLOSED_OUTPUT

DEFAULT_GRACE_S = 30.0
_POLL_S = 0.01
#: maximal delay between the end of a process and the coordinator's detection of its closed
#: connection
_FAILURES_S = 0.3
#: time that ranks may run after a failure before the launcher reports that it waits for them
_QUIET_S = 3.0
#: open files of the launcher: a rank has two pipes, a file for its error and a connection
_FILES_PER_RANK, _SPARE_FILES = 4, 64


@record
class LaunchOptions:
    """The options of the command line."""

    program: str
    arguments: tuple[str, ...] = ()
    as_module: bool = False
    size: int = 1
    devices: int | None = None
    least: int | None = None
    restarts: int = 0
    grace: float = DEFAULT_GRACE_S
    prefix: bool = True
    log_dir: str | None = None


@record
class HostRanks:
    """Consecutive ranks on one host, and the coordinator's address as that host reaches it."""

    host: Host
    ranks: tuple[int, ...]
    coordinator_host: str


class HostPool(Protocol):
    """The hosts of a program."""

    listen: tuple[str, ...]  # addresses at which the coordinator listens; set by `assign`
    outlives_preemption: bool  # True if other hosts continue after the preemption of one
    proof_s: float  # maximal time until the ranks of a lost host have certainly ended

    def assign(self, size: int) -> list[HostRanks]:
        """Return where to start up to `size` ranks; raises StartError if too few hosts answer."""
        ...

    def can_grow(self, size: int) -> bool:
        """Return whether hosts that were absent would give more ranks than `size`."""
        ...

    def next_size(self, job: LaunchedJob) -> int:
        """Return how many ranks to start after a failed job."""
        ...

    def close(self, status: int) -> None: ...


class StartError(Exception):
    """The ranks cannot be started."""


#: makes the pool of a program's hosts
MakePool = Callable[[LaunchOptions, RankOutput, "Signals"], HostPool]


def launch(options: LaunchOptions, make_pool: MakePool | None = None) -> int:
    """Run a program until it ends, or until it has failed more than `restarts` times."""
    output = RankOutput(options.prefix and options.size > 1, options.log_dir)
    pool: HostPool | None = None
    status = CANNOT_START
    try:
        make_log_dir(options)
        needed = _SPARE_FILES + _FILES_PER_RANK * options.size
        raise_file_limit(needed, f"{quantity(options.size, 'process')}")
        with Signals() as signals:
            with show_progress("connecting to the hosts"):
                pool = (make_pool or LocalPool)(options, output, signals)
            status = _run_jobs(options, pool, output, signals)
    except (StartError, OSError) as error:
        output.say(str(error))
    finally:
        if pool is not None:
            pool.close(status)
    return status


def make_log_dir(options: LaunchOptions) -> None:
    """Make the folder of logs. Raise StartError if that fails."""
    if options.log_dir is None:
        return
    try:
        os.makedirs(options.log_dir, exist_ok=True)
    except OSError as error:
        message = f"--log-dir {options.log_dir}: this folder cannot be made: {error.strerror}"
        raise StartError(message) from None


def find_job_secret() -> str:
    """Return the user's secret, or a new one. Raise StartError if the user's secret cannot be
    used."""
    try:
        return find_secret().decode() or make_secret()
    except ValueError as error:
        raise StartError(str(error)) from None


def _run_jobs(options: LaunchOptions, pool: HostPool, output: RankOutput, signals: Signals) -> int:
    size, restarts = options.size, options.restarts
    while True:
        job = LaunchedJob(options, pool, size, output, signals)
        status = job.run()
        if signals.received is not None or status == 0:
            return status
        if job.grows:
            size = options.size
            continue
        if restarts == 0 or (status == PREEMPTED and not pool.outlives_preemption):
            return status
        size = pool.next_size(job)
        if options.least is not None and size < options.least:
            output.say(f"{quantity(size, 'process')} left, fewer than --min {options.least}")
            return status
        restarts -= 1
        restarts_left = quantity(restarts, "more restart")
        output.say(f"starting again with {quantity(size, 'process')}; {restarts_left}")


class LocalPool:
    """The host pool of this machine."""

    listen: tuple[str, ...] = ("127.0.0.1:0",)
    outlives_preemption = False
    proof_s = 0.0

    def __init__(self, options: LaunchOptions, output: RankOutput, signals: Signals) -> None:
        self._output = output
        self._shrinks = options.least is not None

    def assign(self, size: int) -> list[HostRanks]:
        return [HostRanks(LocalHost(self._output.receive), tuple(range(size)), "127.0.0.1")]

    def can_grow(self, size: int) -> bool:
        return False

    def next_size(self, job: LaunchedJob) -> int:
        return job.size - (job.count_lost() if self._shrinks else 0)

    def close(self, status: int) -> None:
        pass


class Signals:
    """A context manager that records SIGINT, SIGTERM and SIGHUP, to be passed on."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.count = 0

    def __enter__(self) -> Signals:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.signal(number, self._take) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: Any) -> None:
        self.received, self.count = number, self.count + 1


@record
class RankFailure:
    """The failure of one rank; `kind` and `text` come from the coordinator."""

    rank: int
    kind: str
    text: str = field(default="")

    @property
    def is_silent(self) -> bool:
        """True if the rank only stopped answering; it may still run or have ended."""
        return self.kind.startswith("silent")


class LaunchedJob:
    """One start of all ranks."""

    def __init__(
        self,
        options: LaunchOptions,
        pool: HostPool,
        size: int,
        output: RankOutput,
        signals: Signals,
    ) -> None:
        self._options, self._pool, self._output, self._signals = options, pool, output, signals
        self._groups = pool.assign(size)
        self.size = sum(len(group.ranks) for group in self._groups)
        self._host_of = {rank: group.host for group in self._groups for rank in group.ranks}
        self._messages: list[dict[str, Any]] = []
        self.secret = find_job_secret()
        self._coordinator = Coordinator(
            pool.listen,
            self.size,
            config.heartbeat_timeout,
            self._messages.append,
            secret=self.secret.encode(),
            machine=machine(),
            confirm_end=self._confirm_end,
            proof_s=pool.proof_s,
        )
        #: failures of the present ranks, in the coordinator's order; the first one ends the job
        self._failures: list[RankFailure] = []
        self._first: RankFailure | None = None
        #: the original number of each present rank, and of ranks that the others continue without
        self._present = list(range(self.size))
        self._abandoned: set[int] = set()
        #: ranks that were killed because the others want to continue without them
        self._killed: set[int] = set()
        self._running_at_end: set[int] = set()
        self._codes: dict[int, int] = {}
        self._bad_since = math.inf
        self._passed_signals = 0
        #: seconds that ranks may run after a failure
        self._grace = options.grace
        self.grows = False

    def run(self) -> int:
        """Start, watch, clean up; return the exit status."""
        self._coordinator.start()
        self._output.on_closed = self._close_stream
        try:
            with show_progress(f"starting {quantity(self.size, 'process')}"):
                for group in self._groups:
                    group.host.start(self._request(group))
            self._watch()
        finally:
            self._end()
        status = self._status()
        self._report(status)
        for group in self._groups:
            group.host.close()
        return status

    def count_lost(self) -> int:
        """Return how many ranks failed by themselves."""
        killed = {rank for rank in self._host_of if self._code(rank) < 0} - self._running_at_end
        first = set() if self._first is None else {self._first.rank}
        return len(killed | first | self._abandoned)

    # ---- starting
    def _request(self, group: HostRanks) -> StartRequest:
        options = self._options
        environment = {
            "WEFT_COORDINATOR_ADDRESS": join_address(
                group.coordinator_host, self._coordinator.port
            ),
            "WEFT_COORDINATOR_SERVED": "1",
            "WEFT_NUM_PROCESSES": str(self.size),
            VARIABLE: self.secret,
        }
        if options.devices is not None:
            environment["WEFT_NUM_DEVICES"] = str(options.devices)
        command = run_command(options.program, options.arguments, options.as_module)
        captures_output = options.size > 1 or options.log_dir is not None
        return StartRequest(command, group.ranks, environment, captures_output)

    # ---- watching
    def _watch(self) -> None:
        """Return when all ranks have ended, or when the running ranks must be killed."""
        deadline = announced = math.inf
        pause = _POLL_S * max(1.0, self.size / 64)
        while True:
            now = time.monotonic()
            if self._take_messages():
                deadline = announced = math.inf
            alive = [rank for rank in self._host_of if self._exit_code(rank) is None]
            self._find_first_failure(now, _FAILURES_S if alive else 0.0)
            if self._pass_signals(alive) or self._pass_growth(alive):
                deadline = min(deadline, now + self._options.grace)
            if self._first is not None and deadline == math.inf:
                deadline, announced = now + self._grace, now + _QUIET_S
                self._kill_silent(self._first)
            if not alive or now > deadline or self._passed_signals > 1:
                return
            if now > announced:
                announced = math.inf
                self._announce_wait(alive, deadline - now)
            time.sleep(pause)

    def _take_messages(self) -> bool:
        """Process the coordinator's messages; return True if the survivors continue, now or soon."""
        continues = False
        while self._messages:
            message = self._messages.pop(0)
            if message["kind"] == "shrunk":
                self._continue_with([self._present[rank] for rank in message["ranks"]])
            elif message["kind"] == "shrinks":  # they wait for the proof that others have ended
                self._grace = self._options.grace + self._pool.proof_s
            else:
                rank = self._present[message["rank"]]
                self._failures.append(RankFailure(rank, message["kind"], message["text"]))
                continue
            continues = True
        return continues

    def _confirm_end(self, rank: int) -> bool:
        """Kill a rank that the others continue without; return whether it has ended.

        The coordinator's thread calls this. `rank` is the rank's first number, since `_present` may
        not have its message yet.
        """
        host = self._host_of[rank]
        if not host.has_ended(rank) and rank not in self._killed:
            self._killed.add(rank)  # only once: a stalled connection accepts few bytes
            host.signal([rank], signal.SIGKILL)
        return host.has_ended(rank)

    def _continue_with(self, ranks: list[int]) -> None:
        lost = [rank for rank in self._present if rank not in ranks]
        for rank in lost:
            self._host_of[rank].signal([rank], signal.SIGKILL)  # it may be stopped
        self._find_first_failure(time.monotonic(), 0.0)
        reason = ""
        if self._first is not None:
            first = self._first.rank
            _wait(lambda: self._exit_code(first) is not None, 1.0)
            reason = f"process {first} {self._describe(self._first)}; "
        names = ", ".join(map(str, lost)) or "others"
        verb = "go" if len(ranks) > 1 else "goes"
        self._output.say(f"{reason}{quantity(len(ranks), 'process')} {verb} on without {names}")
        self._abandoned |= set(lost)
        self._present, self._first, self._bad_since = ranks, None, math.inf
        self._grace = self._options.grace
        self._failures.clear()

    def _find_first_failure(self, now: float, patience: float) -> None:
        """Note the rank that failed first.

        The coordinator reports failures in their order. The failure of a rank that never connected
        to it shows in the exit code.
        """
        if self._first is not None or self._signals.received is not None or self.grows:
            return
        bad = [rank for rank in self._host_of if rank not in self._abandoned and self._is_bad(rank)]
        if not bad and not self._failures:
            return
        self._bad_since = min(self._bad_since, now)
        if self._failures:
            self._first = self._failures[0]
        elif now - self._bad_since >= patience:
            self._first = RankFailure(bad[0], "ended")

    def _is_bad(self, rank: int) -> bool:
        return self._exit_code(rank) not in (None, 0, PREEMPTED)

    def _pass_signals(self, alive: Sequence[int]) -> bool:
        if self._signals.count == self._passed_signals:
            return False
        self._passed_signals = self._signals.count
        self._signal(alive, self._signals.received or signal.SIGINT)
        return True

    def _pass_growth(self, alive: Sequence[int]) -> bool:
        """Ask all ranks to end if returned hosts would make the program larger."""
        if self.grows or self._first is not None:
            return False
        lost = sum(bool(self._host_of[rank].lost) for rank in self._abandoned)
        if not self._pool.can_grow(self.size - lost):
            return False
        self.grows = True
        self._output.say("hosts are back: the processes are stopped and restarted with more")
        self._signal(alive, signal.SIGTERM)
        return True

    def _signal(self, ranks: Iterable[int], number: int) -> None:
        ranks = set(ranks)
        for group in self._groups:
            group.host.signal([rank for rank in group.ranks if rank in ranks], number)

    def _kill_silent(self, failure: RankFailure) -> None:
        """Kill a rank that failed by silence: it may be stopped, and would never end."""
        if failure.is_silent:
            self._host_of[failure.rank].signal([failure.rank], signal.SIGKILL)

    def _announce_wait(self, alive: Sequence[int], seconds: float) -> None:
        if self._first is not None:
            self._output.say(
                f"process {self._first.rank} failed; up to {seconds:.0f} s for "
                f"{_name_ranks(alive)} to end"
            )

    def _close_stream(self, stream: int) -> None:
        for group in self._groups:
            group.host.close_stream(stream)

    # ---- the end
    def _end(self) -> None:
        """Kill all running ranks."""
        running = [rank for rank in self._host_of if self._exit_code(rank) is None]
        self._running_at_end = set(running)
        self._signal(running, signal.SIGKILL)
        for group in self._groups:
            group.host.end(lambda: self._signals.count > max(1, self._passed_signals))
        self._coordinator.stop()

    def _exit_code(self, rank: int) -> int | None:
        code = self._codes.get(rank)
        if code is None and (code := self._host_of[rank].exit_code(rank)) is not None:
            self._codes[rank] = code
        return code

    def _code(self, rank: int) -> int:
        return self._exit_code(rank) or 0

    def _status(self) -> int:
        codes = [self._code(rank) for rank in self._host_of if rank not in self._abandoned]
        is_preempted = PREEMPTED in codes and set(codes) <= {0, PREEMPTED}
        if is_preempted:
            return PREEMPTED
        if self._signals.received is not None:
            return 128 + self._signals.received
        if self._first is None:
            return PREEMPTED if self.grows and any(codes) else 0
        first, code = self._first.rank, self._code(self._first.rank)
        is_silent = self._first.is_silent or self._is_lost(first)
        if is_silent or first in self._running_at_end or code == 0:
            return 1
        return 128 - code if code < 0 else code

    def _is_lost(self, rank: int) -> bool:
        return bool(self._host_of[rank].lost) and self._exit_code(rank) == LOST

    def _describe(self, failure: RankFailure) -> str:
        """Return what happened to a rank, as the predicate of a sentence."""
        code = self._exit_code(failure.rank)
        host = self._host_of[failure.rank]
        if self._is_lost(failure.rank):
            return f"was lost with its host: {host.lost}"
        if failure.is_silent:
            return f"was silent for {failure.text} seconds, and is ended"
        if code is None or failure.rank in self._running_at_end:
            return "has closed its connection, and does not end"
        if code < 0:
            return f"was killed by signal {-code} ({_signal_name(-code)})"
        if code == PREEMPTED:
            return f"was preempted (exit status {PREEMPTED})"
        return f"ended with exit status {code}" + (" before the others" if code == 0 else "")

    def _report(self, status: int) -> None:
        """Print the first failure with its error, then other errors, each once."""
        if status == CLOSED_OUTPUT:  # ends quietly
            return
        hosts = self._host_of.items()
        errors = {rank: error for rank, host in hosts if (error := host.error(rank)) is not None}
        first = None if self._first is None else self._first.rank
        for rank, error in errors.items():
            self._output.log_text(rank, error.text)
        if self._first is not None:
            where = self._host_of[self._first.rank].name
            reason = self._describe(self._first)
            self._output.say(f"process {self._first.rank} on {where} {reason}")
        elif status == PREEMPTED and not self.grows:
            self._output.say(f"the program was preempted (exit status {PREEMPTED})")
        self._report_errors(errors, first)

    def _report_errors(self, errors: dict[int, RankError], first: int | None) -> None:
        ranks_of: dict[str, list[int]] = {}
        followers = [rank for rank, error in errors.items() if error.follows and rank != first]
        for rank in sorted(errors, key=lambda rank: rank != first):
            if rank not in followers:
                ranks_of.setdefault(_comparable(errors[rank].text), []).append(rank)
        for ranks in ranks_of.values():
            if ranks[0] != first:
                where = self._host_of[ranks[0]].name
                self._output.say(f"process {ranks[0]} on {where} raised:")
            self._output.show_text(ranks[0], errors[ranks[0]].text)
            if len(ranks) > 1:
                self._output.say(f"the same error in {_name_ranks(ranks[1:])}")
        if followers:
            self._output.say(f"{_name_ranks(followers)} ended because of it")
            if first not in errors:
                self._output.show_text(followers[0], errors[followers[0]].text)


def _name_ranks(ranks: Sequence[int]) -> str:
    """Return the names of ranks.

    >>> _name_ranks([3]), _name_ranks([0, 1, 2, 5])
    ('process 3', 'processes 0-2, 5')
    """
    return f"process{'es' if len(ranks) > 1 else ''} {format_ranks(ranks)}"


def _comparable(text: str) -> str:
    """Return an error's text without addresses, which differ between processes."""
    return re.sub(r"0x[0-9a-fA-F]+", "0x", text)


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(_POLL_S)


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return "?"
