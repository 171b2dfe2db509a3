"""The checks `values` and `stages`: calls of compiled programs compared with op-by-op execution.

In:   an executable and the arrays of a call.
Out:  the results of the call; VerificationError if they differ from the results of the program's
      operations.
How:  the arguments are copied, the program runs and its callbacks are recorded, and the traced
      program is evaluated equation by equation on the copies. `tolerance` decides which differences
      are errors.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.util.checks import Checks
from weft._engine.util.errors import VerificationError, describe
from weft._engine.verification.evaluation import UnverifiableError
from weft._engine.verification.recorded_call import (
    REMEDY,
    RULE,
    RecordedCall,
    mismatch_rows,
    producer_of,
)
from weft._engine.verification.tolerance import (
    Mismatch,
    ResultPrecision,
    ResultTolerance,
    difference,
    precisions,
)

#: called with the error of every wrong call before it is raised
listeners: list[Callable[[VerificationError], object]] = []
#: the number of calls that this process has compared
calls_compared = [0]
#: programs that could not be compared: name -> reason
calls_unverified: dict[str, str] = {}


class CallVerifier:
    """Runner of the calls of one executable that compares a share of them, always including the
    first call."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.numbers = itertools.count()
        self.step_code: dict[int, Any] = {}

    def __call__(self, executable: Any, args: Sequence[Any]) -> list[Any]:
        """Return the results of the executable."""
        number = next(self.numbers)
        with_stages = self.checks.stages and number == 0
        is_due = with_stages or self.checks.memory or is_selected(number, self.checks.values)
        if not is_due or is_elsewhere(executable):
            return executable(args, is_verified=True)
        call = RecordedCall(executable, args, self.step_code)
        calls_compared[0] += 1
        try:
            outs = self._run(call, args, with_stages)
        except VerificationError as error:
            for listen in listeners:
                listen(error)
            raise
        return outs

    def _run(self, call: RecordedCall, args: Sequence[Any], with_stages: bool) -> list[Any]:
        """Run and check one call. The memory check comes first, as the program might crash."""
        if self.checks.memory:
            from weft._engine.verification.stages import check_memory  # lazy: imports the compiler

            check_memory(call)
        outs = call.run(args)
        if with_stages:
            from weft._engine.verification.stages import check_stages  # lazy: imports the compiler

            check_stages(call)
        elif self.checks.values:
            check_values(call)
        return outs


def is_selected(number: int, share: float) -> bool:
    """Return whether call `number` is compared.

    >>> [n for n in range(30) if is_selected(n, 0.1)]
    [0, 10, 20]
    """
    return share > 0 and (
        number == 0 or int(number * share + 1e-9) != int((number - 1) * share + 1e-9)
    )


def is_elsewhere(executable: Any) -> bool:
    """Return whether some values are on other processes, or NumPy runs the program itself."""
    specs = (*executable.in_specs, *executable.out_specs)
    return any(
        s.by_process is not None or (s.backend is not None and s.backend.platform == "reference")
        for s in specs
    )


def check_values(call: RecordedCall) -> None:
    """Compare the results of a call with op-by-op execution."""
    try:
        mismatch = compare(call)
    except UnverifiableError as error:
        calls_unverified[call.name] = str(error)
        return
    if mismatch is not None:
        raise mismatch_error(call, mismatch)


def compare(call: RecordedCall) -> Mismatch | None:
    """Compare results, and the operands of recorded callbacks, with op-by-op execution."""
    replay = call.log.replay()
    checked = [*call.compute_expected(replay), *replay.seen]
    precision = precisions(call.program)
    if replay.seen:
        joined_precision = functools.reduce(
            ResultPrecision.join, precisions(_with_all_results(call.program)), ResultPrecision()
        )
        precision += [joined_precision] * len(replay.seen)

    def repeat(k: int) -> list[np.ndarray]:
        other = call.log.replay()
        moved = call.compute_expected(other, k)
        return [*moved, *(other.seen if len(other.seen) == len(replay.seen) else replay.seen)]

    return difference(
        [*call.outs, *replay.logged_operands], checked, ResultTolerance(checked, precision, repeat)
    )


def _with_all_results(program: Jaxpr) -> Jaxpr:
    """Return the program with every value as a result."""
    return program.replace(
        outvars=[*program.invars, *[v for eqn in program.eqns for v in eqn.outvars]]
    )


def mismatch_error(call: RecordedCall, mismatch: Mismatch) -> VerificationError:
    """Return the error of a call whose results differ."""
    program = call.program
    rows = mismatch_rows(mismatch, "compiled", "op by op")
    producer = producer_of(program, mismatch.result)
    if producer is not None:
        rows.append(
            ("computed by", f"{producer.primitive.name} at {producer.source or 'an unknown line'}")
        )
    what = (
        f"result {mismatch.result}"
        if mismatch.result < len(program.outvars)
        else "an operand of a callback"
    )
    text = describe(
        call.name,
        f"{what} ({mismatch.kind}) differs from op-by-op execution.",
        rows,
        call.line,
        RULE,
        REMEDY,
    )
    return VerificationError(text, program, call.args, mismatch.result, mismatch.index)
