"""Start the processes of one program on this machine, watch over them, and leave none behind.

In:   a program, how many processes, how many devices each.
Out:  an exit status: 0 if all ended well, else that of the first which did not (128 and the signal's number, if one killed it).
Laws: the coordinator is here, so that the death of any process is known at once. After a failure the others have `GRACE_S` to say what
      they have to say; then they are killed, with all that they started. Ctrl-C and SIGTERM are passed on. If this process is killed,
      the system ends the others. Those that are left and go on by themselves (`weft.distributed.shrink`) are let go on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from weft.processes.coordinator import Coordinator
from weft.processes.host_identity import machine
from weft.processes.job_secret import VARIABLE, make_secret
from weft.tools.output import CLOSED_OUTPUT
from weft.util.config import config
from weft.util.threads import allowed_threads

GRACE_S = 5.0
_POLL_S = 0.01
_NEWS_S = 0.3       # so long after the end of a process its connection may be found closed


def launch(program: str, arguments: Sequence[str], *, size: int, devices: int | None = None, as_module: bool = False,
           least: int | None = None, restarts: int = 0) -> int:
    """Run `program` on `size` processes until it ends, or until it has failed more than `restarts` times. A start after a failure has as
    many processes as are left, at least `least`."""
    with _Signals() as signals:
        while True:
            job = _Job(program, arguments, size, devices, as_module, signals)
            status = job.run()
            if status == 0 or signals.got is not None or restarts == 0:
                return status
            left = size - job.lost()
            if least is not None and left < least:
                _say(f"{left} processes are left, fewer than --min {least}")
                return status
            restarts, size = restarts - 1, size if least is None else left
            _say(f"starting again with {size} processes; {restarts} more restarts")


class _Signals:
    """While entered, SIGINT and SIGTERM are kept to be passed on."""

    def __init__(self) -> None:
        self.got: int | None = None
        self.count = 0

    def __enter__(self) -> _Signals:
        self._before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: Any) -> None:
        self.got, self.count = number, self.count + 1


class _Job:
    """One start of all processes."""

    def __init__(self, program: str, arguments: Sequence[str], size: int, devices: int | None, as_module: bool, signals: _Signals) -> None:
        self._size, self._signals = size, signals
        self._news: list[dict[str, Any]] = []
        secret = os.environ.get(VARIABLE) or make_secret()
        self._coordinator = Coordinator(
            "127.0.0.1:0", size, config.heartbeat_timeout, self._news.append,
            secret=secret.encode(), machine=machine(), confirm_end=self._confirm_end)
        self._command = [sys.executable, "-m", "weft", "run", *(["-m"] if as_module else []), program, "--", *arguments]
        self._environment = {
            **os.environ, "WEFT_COORDINATOR_ADDRESS": f"127.0.0.1:{self._coordinator.port}", "WEFT_COORDINATOR_SERVED": "1",
            VARIABLE: secret, "WEFT_NUM_PROCESSES": str(size), "WEFT_LAUNCHER_PID": str(os.getpid())}
        if devices is not None:
            self._environment["WEFT_NUM_DEVICES"] = str(devices)
        self._environment.setdefault("WEFT_NUM_THREADS", str(max(1, allowed_threads() // size)))
        self._processes: list[subprocess.Popen] = []
        self._passed = 0
        #: what failed of the present ranks; which processes they are; those that went on without
        self._failed: list[dict[str, Any]] = []
        self._now = list(range(size))
        self._given_up: set[int] = set()
        #: who failed first, and how
        self.first_failed: dict[int, str] = {}
        self._ended_here: set[int] = set()
        self._bad_since = float("inf")
        self._status = 0

    def run(self) -> int:
        """Start, watch, clean up; the exit status."""
        self._coordinator.start()
        try:
            for rank in range(self._size):
                self._processes.append(subprocess.Popen(
                    self._command, env={**self._environment, "WEFT_PROCESS_ID": str(rank)}, stdin=subprocess.DEVNULL, process_group=0))
            self._watch()
        finally:
            self._end()
        for rank, why in self.first_failed.items():
            if self._status != CLOSED_OUTPUT:                # ends quietly
                _say(f"process {rank} {why}")
        if self._signals.got is not None:
            return 128 + self._signals.got
        return self._status

    def _watch(self) -> None:
        until = float("inf")
        while True:
            now = time.monotonic()
            if self._hears():
                until = float("inf")
            alive = [process for process in self._processes if _exit_code(process) is None]
            self._find_failed(now, _NEWS_S if alive else 0.0)
            if self._signals.count > self._passed:
                self._passed = self._signals.count
                _signal_all(alive, self._signals.got or signal.SIGINT)
                until = min(until, now + GRACE_S)
            if self.first_failed:
                until = min(until, now + GRACE_S)
            if not alive or now > until or self._passed > 1:
                return
            time.sleep(_POLL_S)

    def _confirm_end(self, rank: int) -> bool:
        """Kill a process that the others go on without; return whether it has ended."""
        process = self._processes[self._now[rank]]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        return _exit_code(process) is not None

    def _hears(self) -> bool:
        """Take in what the coordinator told; whether those that are left go on, or are about to."""
        go_on = False
        while self._news:
            news = self._news.pop(0)
            if news["kind"] == "shrunk":
                self._goes_on([self._now[rank] for rank in news["ranks"]])
            elif news["kind"] != "shrinks":
                self._failed.append({**news, "rank": self._now[news["rank"]]})
                continue
            go_on = True
        return go_on

    def _goes_on(self, left: list[int]) -> None:
        lost = [number for number in self._now if number not in left]
        for number in lost:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._processes[number].pid, signal.SIGKILL)       # it may be stopped
        self._find_failed(time.monotonic(), 0.0)
        why = "".join([f"process {number} {said}; " for number, said in self.first_failed.items()])
        _say(f"{why}{len(left)} processes go on without {', '.join(map(str, lost)) or 'others'}")
        self._given_up |= set(lost)
        self._now, self._status, self._bad_since = left, 0, float("inf")
        self._failed.clear()
        self.first_failed.clear()

    def _find_failed(self, now: float, patience: float) -> None:
        """Note who failed first. The coordinator learns of failures in their order; that of a process which
        never connected to it shows in the exit status."""
        codes = {rank: _exit_code(process) for rank, process in enumerate(self._processes) if rank not in self._given_up}
        bad = [rank for rank, code in codes.items() if code]
        if self.first_failed or self._signals.got is not None or not (bad or self._failed):
            return
        self._bad_since = min(self._bad_since, now)
        if not self._failed and now - self._bad_since < patience:
            return
        failure = self._failed[0] if self._failed else {"rank": bad[0], "kind": "ended", "text": ""}
        first, code = failure["rank"], codes[failure["rank"]]
        if code is None and failure["kind"] != "silent":
            code = _code_soon(self._processes[first])
        if code is not None and code < 0:
            why = f"was killed by signal {-code} ({_name(-code)})"
        elif failure["kind"] == "silent":
            why = f"was silent for {failure['text']} seconds, and is ended"
        elif code is None:
            why = "has closed its connection, and does not end"
        else:
            why = f"ended with exit status {code}" + (" before the others" if code == 0 else "")
        self.first_failed[first] = why
        self._status = 1 if not code else 128 - code if code < 0 else code

    def lost(self) -> int:
        """How many processes failed by themselves."""
        killed = {rank for rank, process in enumerate(self._processes) if (process.poll() or 0) < 0}
        return len((killed - self._ended_here) | set(self.first_failed) | self._given_up)

    def _end(self) -> None:
        self._ended_here = {rank for rank, process in enumerate(self._processes) if _exit_code(process) is None}
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # what it started may live on
            process.wait()
        self._coordinator.stop()


def _exit_code(process: subprocess.Popen) -> int | None:
    """The exit code, None while it runs. The process is not reaped: until then its number, and that of its group, is nobody else's."""
    if process.returncode is not None:
        return process.returncode
    found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _code_soon(process: subprocess.Popen) -> int | None:
    until = time.monotonic() + GRACE_S
    while (code := _exit_code(process)) is None and time.monotonic() < until:
        time.sleep(_POLL_S)
    return code


def _signal_all(processes: Sequence[subprocess.Popen], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "?"


def _say(text: str) -> None:
    print(f"weft launch: {text}", file=sys.stderr, flush=True)
