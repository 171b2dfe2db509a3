"""The ranks that run on this machine: start, output, signals, end.

In:   a command, the ranks, their environment.
Out:  their output as it arrives, their exit codes, the error that ended each.
Laws: `end` leaves no process of a rank's group behind, and returns after the last output arrived.
      A process is reaped only there: until then its number belongs to no other process.
Next: `launch` uses it for the ranks of its own machine, `agent` for the ranks of other machines.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import IO, Any, Protocol

from weft._engine.util.record import record
from weft._engine.util.threads import DaemonThread, allowed_threads
from weft.tools.launch.rank_output import ERR, OUT

#: seconds that output may arrive after the end of all ranks, from processes that left their process
#: groups
_DRAIN_S = 0.3
_CHUNK = 1 << 16
#: exit code of ranks on lost hosts, the same as ssh's
LOST = 255
#: exit code of ranks that could not be started, the same as a shell's
_NOT_STARTED = 127
#: variables that MPI and Slurm set to identify this process; its ranks must not inherit them
_OF_OTHER_LAUNCHERS = re.compile(
    "PMIX?_|OMPI_COMM_WORLD_|SLURM_(STEP_|STEPID|PROCID|LOCALID|GTIDS|TASK_PID)"
)
#: takes output of a rank: the rank, the stream, the bytes; no bytes at the end
Receive = Callable[[int, int, bytes], None]


@record
class RankError:
    """The error that ended a rank."""

    text: str
    follows: bool  # True if the rank only reports a failure of another rank


@record
class StartRequest:
    """The ranks that one machine starts."""

    command: tuple[str, ...]
    ranks: tuple[int, ...]
    environment: Mapping[str, str]
    captures_output: bool


class Host(Protocol):
    """A machine that runs ranks."""

    name: str
    lost: str  # the reason why it no longer answers; "" while it does

    def start(self, request: StartRequest) -> None: ...
    def exit_code(self, rank: int) -> int | None: ...
    def has_ended(self, rank: int) -> bool: ...
    def signal(self, ranks: Iterable[int], number: int) -> None: ...
    def error(self, rank: int) -> RankError | None: ...
    def close_stream(self, stream: int) -> None: ...
    def end(self, is_cancelled: Callable[[], bool]) -> None: ...
    def close(self) -> None: ...


class LocalHost:
    """The ranks of this machine."""

    def __init__(self, receive: Receive, name: str = "") -> None:
        self.name = name or socket.gethostname()
        self.lost = ""
        self._receive = receive
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._error_files: dict[int, IO[bytes]] = {}
        self._pipes: selectors.BaseSelector | None = None
        self._reader: DaemonThread | None = None
        self._ended = False
        self._closed: set[int] = set()

    def start(self, request: StartRequest) -> None:
        """Start ranks. If one cannot be started, the ranks before it run until `end`."""
        environment = {
            name: value for name, value in os.environ.items() if not _OF_OTHER_LAUNCHERS.match(name)
        }
        environment |= {**request.environment, "WEFT_LAUNCHER_PID": str(os.getpid())}
        threads = max(1, allowed_threads() // len(request.ranks))
        environment.setdefault("WEFT_NUM_THREADS", str(threads))
        self._ended = False
        self._pipes = selectors.DefaultSelector()
        pipe = subprocess.PIPE if request.captures_output else None
        for rank in request.ranks:
            error_file = tempfile.TemporaryFile()
            self._error_files[rank] = error_file
            rank_variables = {
                "WEFT_PROCESS_ID": str(rank),
                "WEFT_ERROR_FD": str(error_file.fileno()),
            }
            process = subprocess.Popen(
                request.command,
                env={**environment, **rank_variables},
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                bufsize=0,
                process_group=0,
                pass_fds=(error_file.fileno(),),
            )
            self._processes[rank] = process
            for stream, file in ((OUT, process.stdout), (ERR, process.stderr)):
                if file is not None:
                    self._pipes.register(file, selectors.EVENT_READ, (rank, stream, file))
        if request.captures_output:
            self._reader = DaemonThread(self._read, self._pipes)

    def exit_code(self, rank: int) -> int | None:
        """Return a rank's exit code, None while it runs; a negative one is a signal's number."""
        process = self._processes.get(rank)
        if process is None:
            return _NOT_STARTED
        if process.returncode is not None:
            return process.returncode
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        result = os.waitid(os.P_PID, process.pid, options)
        if result is None:
            return None
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def has_ended(self, rank: int) -> bool:
        """Return whether a rank has ended."""
        return self.exit_code(rank) is not None

    def signal(self, ranks: Iterable[int], number: int) -> None:
        """Send a signal to ranks, and to the processes that they started."""
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._processes[rank].pid, number)

    def error(self, rank: int) -> RankError | None:
        """Return the error that ended a rank, None if it reported none."""
        return parse_error(self.error_data(rank))

    def error_data(self, rank: int) -> bytes:
        """Return a rank's error as the rank wrote it."""
        file = self._error_files.get(rank)
        return b"" if file is None else os.pread(file.fileno(), 1 << 20, 0)

    def close_stream(self, stream: int) -> None:
        """Close a stream of all ranks, which is no longer read."""
        self._closed.add(stream)

    def kill(self) -> None:
        """Kill all running ranks. The last output may arrive until `is_drained`."""
        self.signal(self._processes, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        self._ended = True

    def is_drained(self) -> bool:
        """Return whether the last output of killed ranks has arrived."""
        return self._reader is None or not self._reader.is_alive()

    def end(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Kill all running ranks, and wait for the last output unless `is_cancelled` returns True."""
        self.kill()
        while not self.is_drained() and not is_cancelled():
            time.sleep(0.005)

    def close(self) -> None:
        """Release the files of ranks that have ended."""
        for file in self._error_files.values():
            file.close()

    # ---- the reader's thread
    def _read(self, pipes: selectors.BaseSelector) -> None:
        quiet_since = time.monotonic()
        while pipes.get_map():
            self._close_pipes(pipes, self._closed)
            ready = pipes.select(0.05)
            for key, _ in ready:
                self._read_pipe(pipes, key)
            if ready or not self._ended:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > _DRAIN_S:
                self._close_pipes(pipes, (OUT, ERR))
        pipes.close()

    def _read_pipe(self, pipes: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        rank, stream, pipe = key.data
        try:
            data = os.read(key.fd, _CHUNK)
        except OSError:
            data = b""
        if not data:
            pipes.unregister(pipe)
            pipe.close()
        self._receive(rank, stream, data)

    def _close_pipes(self, pipes: selectors.BaseSelector, streams: Collection[int]) -> None:
        if not streams:
            return
        for key in list(pipes.get_map().values()):
            rank, stream, pipe = key.data
            if stream in streams:
                pipes.unregister(pipe)
                pipe.close()
                self._receive(rank, stream, b"")


def parse_error(data: bytes) -> RankError | None:
    """Return the error in an error file's content; None if it is empty or incomplete."""
    try:
        table: Any = json.loads(data)
        return RankError(str(table["text"]), bool(table["follows"]))
    except (ValueError, KeyError, TypeError):
        return None


def run_command(program: str, arguments: Sequence[str], as_module: bool) -> tuple[str, ...]:
    """Return the command of one rank."""
    module = ["-m"] if as_module else []
    return sys.executable, "-m", "weft", "run", *module, program, "--", *arguments
