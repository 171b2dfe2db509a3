"""`weft check PROGRAM`: run a program and compare its compiled calls with op-by-op execution.

In:   the arguments of `weft run`.
Out:  the program's own output and exit status, or 1 if a compiled call is wrong. For each wrong
      program, the pass at fault and, in the current folder, a reproducer with as few equations as
      possible.
How:  a forked child process searches for smaller programs, because a wrong program may crash.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from weft._engine.util.config import config
from weft._engine.util.errors import VerificationError
from weft._engine.util.messages.quantities import quantity
from weft.tools.run import run_program

#: time to search for a smaller program
SECONDS = 60
#: wrong programs that get a reproducer
MOST_REPRODUCERS = 5


def check_program(
    program: str, arguments: Sequence[str], *, as_module: bool = False, devices: int | None = None
) -> int:
    """Run `program` with the check of values and return its exit status, or 1 if a call is wrong."""
    from weft._engine.verification import values

    reports: list[str] = []
    if not config.checks.values:
        config.update("check", ",".join(filter(None, [config.check, "values"])))
    values.listeners.append(lambda error: reports.append(report_of(error, len(reports) + 1)))
    try:
        status = run_program(program, arguments, as_module=as_module, devices=devices)
    finally:
        values.listeners.pop()
        sys.stdout.flush()
        lines = [
            f"weft check: {name} could not be compared: {why}"
            for name, why in values.calls_unverified.items()
        ]
        print(
            "\n".join(["", *reports, *lines, _summary(len(reports), values.calls_compared[0])]),
            file=sys.stderr,
        )
    return status or int(bool(reports))


def _summary(wrong: int, compared: int) -> str:
    calls = f"{quantity(compared, 'call')} {'was' if compared == 1 else 'were'}"
    return (
        f"weft check: {calls} compared, {wrong or 'none'} {'were' if wrong > 1 else 'was'} wrong."
    )


def report_of(error: VerificationError, number: int) -> str:
    """Write the reproducer of a wrong call and return a description of both."""
    lines = [f"weft check: wrong call {number}", str(error)]
    if number <= MOST_REPRODUCERS and error.program is not None:
        lines.append(_reproducer(error, Path(f"weft_check_{os.getpid()}_{number}.py")))
    return "\n".join(lines)


def _reproducer(error: VerificationError, path: Path) -> str:
    """Search in a child process and return its report."""
    note = path.with_suffix(".txt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks in processes with threads
        child = os.fork() if hasattr(os, "fork") else 0
    if child == 0:
        try:
            search(error, path, note)
        finally:
            if hasattr(os, "fork"):
                os._exit(0)
    elif not _ends(child, SECONDS + 30):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    text = (
        note.read_text()
        if note.exists()
        else "  No reproducer could be written: the search ended without one."
    )
    note.unlink(missing_ok=True)
    return text


def _ends(child: int, seconds: float) -> bool:
    """Wait for a child process. Return True if it ends in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0] == child:
            return True
        time.sleep(0.02)
    return False


def search(error: VerificationError, path: Path, note: Path) -> None:
    """Write the reproducer of a wrong call, replace it by smaller ones, and find the pass at fault
    of the last one."""
    from weft._engine.ir.text.parse import JaxprSyntaxError
    from weft._engine.verification import values
    from weft._engine.verification.minimize import Minimizer
    from weft.tools.reproducer import mismatch_of, write_reproducer

    values.listeners.clear()

    def found(program, args) -> None:
        try:
            write_reproducer(path, program, args, str(error))
            note.write_text(f"  reproducer: {path} ({quantity(len(program.eqns), 'equation')})")
        except JaxprSyntaxError as problem:
            note.write_text(f"  The program has no reproducer: {problem}")

    found(error.program, error.arguments)
    case = Minimizer(mismatch_of, SECONDS, found).minimize(
        error.program, error.arguments, error.result
    )
    if case is None:
        note.write_text(
            f"{note.read_text()}\n  Alone, on one device, the program gives right results."
        )
        return
    at_fault = mismatch_of(*case, "stages")
    if at_fault is not None:
        write_reproducer(path, *case, str(at_fault))
        note.write_text(f"  at fault: {at_fault.stage}\n{note.read_text()}")
