"""Fork ranks from one process that has imported everything; they start in a fraction of the time of
a new Python.
The forking process must run no other thread, so it is a separate command rather than a test runner.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.processes.ranks import Child, Running, free_port


def await_single_thread(timeout: float = 120.0) -> None:
    """Wait until this process has one thread; imports may have started threads that end soon."""
    until = time.monotonic() + timeout
    while len(os.listdir("/proc/self/task")) > 1:
        if time.monotonic() > until:
            raise RuntimeError("this process runs threads, so it cannot be forked")
        time.sleep(0.05)


@contextlib.contextmanager
def folder_of_this_process() -> Iterator[str]:
    """Yield a temporary folder that no forked process removes on exit, unlike
    `tempfile.TemporaryDirectory`."""
    folder = tempfile.mkdtemp()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def forked_ranks(
    n: int,
    work: Callable[[], object],
    environment: Mapping[str, str],
    settings: Mapping[str, object],
    environments: Sequence[Mapping[str, str]] = (),
) -> Iterator[Running]:
    """Run `work()` on `n` ranks of one device each for the duration of the block; then end all of
    them. `settings` are settings of `weft.config`; `environments` holds environment variables of
    each rank.
    """
    await_single_thread()
    with folder_of_this_process() as folder:
        address = f"127.0.0.1:{free_port()}"
        shared = {
            **environment,
            "WEFT_COORDINATOR_ADDRESS": address,
            "WEFT_COORDINATOR_BIND_ADDRESS": address,
            "WEFT_NUM_PROCESSES": str(n),
            "WEFT_NUM_DEVICES": "1",
            "WEFT_NUM_THREADS": "1",
        }
        processes = []
        for rank in range(n):
            for kind in ("out", "err"):
                Path(folder, f"{rank}.{kind}").touch()
            pid = os.fork()
            if pid == 0:
                own = environments[rank] if environments else {}
                _child(
                    work, folder, rank, {**shared, "WEFT_PROCESS_ID": str(rank), **own}, settings
                )
            processes.append(Child(pid))
        running = Running(processes, folder, list(range(n)))
        try:
            yield running
        finally:
            running.stop()


def _child(
    work: Callable[[], object],
    folder: str,
    rank: int,
    environment: Mapping[str, str],
    settings: Mapping[str, object],
) -> None:
    """Run a program as the interpreter would, from its first line to the end of the process."""
    code = 1
    try:
        os.setsid()
        for number, kind in ((1, "out"), (2, "err")):
            file = os.open(Path(folder, f"{rank}.{kind}"), os.O_WRONLY | os.O_APPEND)
            os.dup2(file, number)
            os.close(file)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(environment)
        import weft
        import weft.distributed

        for name, value in settings.items():
            weft.config.update(name, value)
        try:
            weft.distributed.initialize(initialization_timeout=60)
            work()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            try:
                sys.excepthook(*sys.exc_info())
            except BaseException:  # a signal raised before the first line of the hook, which is the first Python code to run
                sys.__excepthook__(*sys.exc_info())
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
