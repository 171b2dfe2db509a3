"""Recorded calls: the data that the checks of one call share.

In:   an executable and the arrays of a call.
Out:  copies of the arguments, the results, the calls of callbacks, and the results of op-by-op
      execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.core.primitive import PartialTermsOp
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal
from weft._engine.util.errors import VerificationError, describe
from weft._engine.util.source import user_frame
from weft._engine.verification.evaluation import CallbackLog, Replay, UnverifiableError, op_by_op
from weft._engine.verification.tolerance import Mismatch

RULE = "The compiled program is wrong: this is a fault of weft."
REMEDY = "`weft check SCRIPT` finds the pass at fault and writes a reproducer."


class RecordedCall:
    """One call: copies of its arguments, its results as NumPy arrays, and its callback log."""

    def __init__(
        self, executable: Any, args: Sequence[Any], step_code: dict[int, Any] | None = None
    ) -> None:
        #: native code of single steps, shared by the calls of one executable
        self.step_code: dict[int, Any] = {} if step_code is None else step_code
        self.executable, self.name, self.line = executable, executable.name, user_frame()
        self.program: Jaxpr = executable.stages.physical
        self.log = CallbackLog()
        self.args = [np.array(x) for x in executable.read_stored_values(args, executable.in_specs)]
        self.outs: list[np.ndarray] = []
        self.is_traced_runnable = True

    def compute_expected(self, replay: Replay, noise: int | None = None) -> list[np.ndarray]:
        """Return the results of op-by-op execution. Raise UnverifiableError without a reference.

        If NumPy cannot run the traced program, the local program runs on all devices in lockstep.
        """
        stages = self.executable.stages
        for i, spec in enumerate(self.executable.out_specs):
            producer = producer_of(self.program, i)
            if (
                producer is not None
                and isinstance(producer.primitive, PartialTermsOp)
                and not spec.has_terms
            ):
                raise UnverifiableError(
                    "a result has the terms of a sum, whose division is not determined"
                )
        if self.is_traced_runnable:
            try:
                return self.comparable(op_by_op(self.program, self.args, replay, noise))
            except UnverifiableError:
                raise
            except Exception as error:  # a rule that NumPy cannot run on these operands
                self.is_traced_runnable = False
                replay.restart(self.log)
                if stages.partition is None:
                    raise UnverifiableError(
                        f"an operation has no reference: {type(error).__name__}: {error}"
                    ) from error
        local = stages.partition.jaxpr
        try:
            return self.comparable(
                op_by_op(
                    local, self.args, replay, noise, lambda args: stages.run_local(local, args)
                )
            )
        except UnverifiableError:
            raise
        except Exception as error:
            raise UnverifiableError(f"{type(error).__name__}: {error}") from error

    def comparable(self, results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return results with the terms of unreduced axes added up: the division of a sum into
        terms is not determined."""
        with np.errstate(all="ignore"):
            return [
                x.sum(0, dtype=x.dtype) if spec.has_terms else x
                for x, spec in zip(results, self.executable.out_specs, strict=True)
            ]

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Run the executable. Raise VerificationError if it writes to an undonated argument."""
        executable = self.executable
        with self.log.replay().replay_calls() if self.log.calls else self.log.record_calls():
            outs = executable(args, is_verified=True, may_queue=False)
        self.outs = self.comparable(executable.read_stored_values(outs, executable.out_specs))
        undonated = [
            i
            for i in range(len(args))
            if i not in executable.donated and i not in executable.aliases.values()
        ]
        now = executable.read_stored_values(
            [args[i] for i in undonated], [executable.in_specs[i] for i in undonated]
        )
        for i, x in zip(undonated, now):
            if x.tobytes() != self.args[i].tobytes():
                raise VerificationError(
                    describe(
                        self.name,
                        f"the program wrote to its argument {executable.arg_names[i]}, which is not donated.",
                        (),
                        self.line,
                        RULE,
                        REMEDY,
                    ),
                    self.program,
                    self.args,
                )
        return outs


def producer_of(program: Jaxpr, result: int) -> Eqn | None:
    """Return the equation that computes a result, or None for an input or a literal."""
    atom = program.outvars[result] if result < len(program.outvars) else None
    if atom is None or type(atom) is Literal:
        return None
    return next((eqn for eqn in program.eqns if any(v is atom for v in eqn.outvars)), None)


def mismatch_rows(mismatch: Mismatch, compiled: str, expected: str) -> list[tuple[str, ...]]:
    """Return the facts of a mismatch as rows of a table."""
    return [
        ("first at", str(list(mismatch.index))),
        (compiled, str(mismatch.got)),
        (expected, str(mismatch.want)),
        ("tolerance", "exact" if mismatch.is_exact else f"{mismatch.allowed:.3g}"),
        ("wrong", f"{mismatch.count} of {mismatch.size} elements"),
    ]
