"""Start programs of several processes in tests, collect their output, and end all processes
(`run_ranks`)."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.processes.hosts import Hosts

ROOT = Path(__file__).parents[2]
#: the maximum seconds that a test waits for an event that is normally immediate, on a busy machine
PATIENCE_S = 300.0
_BEGIN = (
    f"import weft.distributed\nweft.distributed.initialize(initialization_timeout={PATIENCE_S:g})\n"
)


MPIEXEC = Path(sys.executable).with_name("mpiexec")
IS_OPEN_MPI = MPIEXEC.with_name("ompi_info").exists()
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpiexec(n: int) -> list[str]:
    """Return the command that starts `n` ranks by the MPI of this Python environment; under Open
    MPI the survivors of a failure are not killed."""
    return [
        str(MPIEXEC),
        *(["--oversubscribe", "--with-ft", "ulfm"] if IS_OPEN_MPI else []),
        "-n",
        str(n),
    ]


@dataclass
class Rank:
    """The outcome of one rank; a negative exit code is the signal that killed it."""

    rank: int
    exit_code: int
    out: str
    err: str
    seconds: float


class Child:
    """A process that was started or forked here. Its id is not reused until `reap`, so no other
    process is killed by mistake."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._reaped = False

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs; a negative code is the signal that killed
        it."""
        if self.returncode is None:
            state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if state is not None:
                self.returncode = (
                    state.si_status if state.si_code == os.CLD_EXITED else -state.si_status
                )
        return self.returncode

    def wait(self, timeout: float) -> int | None:
        until = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def reap(self) -> None:
        """Kill the process and all processes of its session."""
        if not self._reaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.returncode, self._reaped = os.waitstatus_to_exitcode(status), True


class Running:
    """Ranks that are running."""

    def __init__(self, processes: list[Child], folder: str, names: Sequence[int]) -> None:
        self.processes, self.folder, self.names = processes, folder, names
        self.began = time.monotonic()
        self._ended: dict[int, float] = {}

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        self.processes[rank].send_signal(number)

    def output(self, rank: int, kind: str = "out") -> str:
        return Path(self.folder, f"{self.names[rank]}.{kind}").read_text()

    def wait_for(self, text: str, rank: int = 0, timeout: float = PATIENCE_S) -> None:
        """Wait until a rank has printed `text`."""
        until = time.monotonic() + timeout
        while text not in self.output(rank):
            if time.monotonic() > until or self.processes[rank].poll() is not None:
                raise AssertionError(f"rank {rank} did not print {text!r}\n{self.shown()}")
            time.sleep(0.01)

    def finish(self, timeout: float = PATIENCE_S) -> list[Rank]:
        """Wait for all ranks. Ranks that are still running at the limit are killed, and an error
        shows all outputs."""
        until, late = time.monotonic() + timeout, []
        try:
            while len(self._ended) < len(self.processes) and time.monotonic() < until:
                for i, process in enumerate(self.processes):
                    if i not in self._ended and process.poll() is not None:
                        self._ended[i] = time.monotonic()
                time.sleep(0.005)
            late = [i for i, process in enumerate(self.processes) if process.poll() is None]
        finally:
            self.stop()
        if late:
            raise AssertionError(f"ranks {late} did not end within {timeout} s\n{self.shown()}")
        return [
            Rank(
                name,
                process.returncode,
                self.output(i),
                self.output(i, "err"),
                self._ended[i] - self.began,
            )
            for i, (name, process) in enumerate(zip(self.names, self.processes))
        ]

    def stop(self) -> None:
        for process in self.processes:
            process.reap()

    def shown(self) -> str:
        return "".join(
            f"---- rank {name}, exit code {process.poll()}\n{self.output(i)}{self.output(i, 'err')}\n"
            for i, (name, process) in enumerate(zip(self.names, self.processes))
        )


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def source_of(program: str | Callable[[], object] | Path) -> str:
    """Return the source of a program; for a function, its source and a call of it."""
    if callable(program):
        return f"{textwrap.dedent(inspect.getsource(program))}\n{program.__name__}()\n"
    if isinstance(program, Path) or (program.endswith(".py") and "\n" not in program):
        return Path(program).read_text()
    return textwrap.dedent(program)


@contextlib.contextmanager
def ranks(
    n: int,
    program: str | Callable[[], object] | Path,
    devices_per_process: int = 1,
    launcher: str = "local",
    initialize: bool = True,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    environments: Sequence[Mapping[str, str]] = (),
    hosts: Hosts | None = None,
    on: Sequence[int] = (),
) -> Iterator[Running]:
    """Run the program on `n` ranks for the duration of a block, then end all of them. With `hosts`,
    rank `r` runs on host `on[r]`, by default on host `r`."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "program.py")
        script.write_text((_BEGIN if initialize else "") + source_of(program))
        shared = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WEFT_NUM_DEVICES": str(devices_per_process),
            "PYTHONUNBUFFERED": "1",
            "WEFT_NUM_THREADS": "1",
            **(environment or {}),
        }
        command = [sys.executable, str(script), *arguments]
        if launcher == "mpiexec":
            starts = [([*mpiexec(n), *command], {**shared, **AS_ROOT})]
            names = [-1]
        elif launcher == "local":
            places = on or range(n)
            address = f"{hosts.addresses[places[0]] if hosts else '127.0.0.1'}:{free_port()}"
            own = {
                "WEFT_COORDINATOR_ADDRESS": address,
                "WEFT_COORDINATOR_BIND_ADDRESS": address,
                "WEFT_NUM_PROCESSES": str(n),
            }
            if hosts:
                own["WEFT_JOB_SECRET"] = "a secret of this test"
            each = environments or [{}] * n
            starts = [
                (
                    hosts.command(places[rank], command) if hosts else command,
                    {
                        **shared,
                        **own,
                        "WEFT_PROCESS_ID": str(rank),
                        **(environment or {}),
                        **each[rank],
                    },
                )
                for rank in range(n)
            ]
            names = list(range(n))
        else:
            raise ValueError(f"launcher is local or mpiexec, got {launcher!r}")
        processes, started = [], []
        for name, (words, env) in zip(names, starts):
            with (
                open(Path(folder, f"{name}.out"), "wb") as out,
                open(Path(folder, f"{name}.err"), "wb") as err,
            ):
                started.append(
                    subprocess.Popen(
                        words,
                        env=env,
                        stdout=out,
                        stderr=err,
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                        cwd=ROOT,
                    )
                )
                processes.append(Child(started[-1].pid))
        running = Running(processes, folder, names)
        try:
            yield running
        finally:
            running.stop()
            for process in started:
                process.returncode = 0  # reaped already


def run_ranks(
    n: int,
    program: str | Callable[[], object] | Path,
    devices_per_process: int = 1,
    launcher: str = "local",
    timeout: float = PATIENCE_S,
    initialize: bool = True,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    environments: Sequence[Mapping[str, str]] = (),
    check: bool = True,
    hosts: Hosts | None = None,
    on: Sequence[int] = (),
) -> list[Rank]:
    """Run a program on `n` ranks to its end. The program is a source text, a path, or a function
    without arguments that imports what it needs.
    `environments` has one mapping for each rank. With `check`, an exit code other than 0 is an
    error that shows the output of all ranks.
    Under `mpiexec` there is one result for all ranks.
    """
    with ranks(
        n,
        program,
        devices_per_process,
        launcher,
        initialize,
        environment,
        arguments,
        environments,
        hosts,
        on,
    ) as running:
        outcomes = running.finish(timeout)
        if check and any(rank.exit_code for rank in outcomes):
            raise AssertionError(
                f"exit codes {[rank.exit_code for rank in outcomes]}\n{running.shown()}"
            )
        return outcomes
