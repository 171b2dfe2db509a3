"""The checks `stages` and `memory`: every stage of a compilation runs on the arguments of a call.

In:   a recorded call.
Out:  VerificationError that names the first stage whose results differ from the previous stage,
      with its equation or kernel; or the kernel that wrote outside of its buffers.
How:  jaxprs run on NumPy, the local program on all devices in lockstep, kernels on the evaluator of
      Loops, and single steps as native code. A kernel of more than `MOST_ITERATIONS` runs as native
      code only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.codegen.kernel.vectorization_plan import iterations, upper_bound
from weft._engine.codegen.program.program import compile_program
from weft._engine.compiler.rewrite.decompose import expand
from weft._engine.core.primitive import CallbackOp
from weft._engine.core.trace import derived_trace, eval_trace
from weft._engine.ir import loops_eval, program as P
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.util.errors import VerificationError, describe
from weft._engine.util.record import replace
from weft._engine.verification.evaluation import Replay, op_by_op
from weft._engine.verification.recorded_call import (
    REMEDY,
    RULE,
    RecordedCall,
    mismatch_rows,
    producer_of,
)
from weft._engine.verification.step_evaluator import StepEvaluator
from weft._engine.verification.step_memory import StepMemory, bodies, describe_step
from weft._engine.verification.tolerance import (
    Mismatch,
    ResultPrecision,
    ResultTolerance,
    difference,
    epsilon_of,
    precisions,
    wide,
)

#: maximum number of loop iterations of a step that the evaluator runs, at about 10 us each
MOST_ITERATIONS = 200_000


def check_stages(call: RecordedCall) -> None:
    """Compare the results of every stage with the previous stage, and the call's results with the
    last stage."""
    stages = call.executable.stages
    tolerance = _StageTolerance(call)
    before, expected = "traced program", tolerance.want
    if expected is None:
        return
    for stage, program, run in _jaxpr_stages(call):
        got = _attempt(call, lambda replay, run=run: call.comparable(run(replay)))
        if got is None:
            continue
        if (mismatch := tolerance.difference(got, expected)) is not None:
            raise _stage_error(
                call, stage, before, mismatch, _equation_row(program, mismatch.result)
            )
        before, expected = stage, got
    kernels = (
        StepwiseRun(call, stages)
        if stages.scheduled is not None and not stages.scheduled.words
        else None
    )
    got = (
        None
        if kernels is None
        else _attempt(call, lambda replay: call.comparable(kernels.evaluate(replay)))
    )
    if kernels is not None and got is not None:
        if (mismatch := tolerance.difference(got, expected)) is not None:
            raise _stage_error(
                call, "schedule", before, mismatch, _kernel_row(kernels.first_unexplained_step())
            )
        before, expected = "schedule (kernels on the evaluator of Loops)", got
    if (mismatch := tolerance.difference(call.outs, expected)) is not None:
        row = (
            None
            if kernels is None
            else _kernel_row(_attempt(call, lambda replay: kernels.first_wrong(replay)))
        )
        raise _stage_error(call, "codegen", before, mismatch, row)


def check_memory(call: RecordedCall) -> None:
    """Run the steps of a call one by one between guard bytes."""
    stages = call.executable.stages
    if stages.scheduled is None or stages.scheduled.words:
        return
    run = StepwiseRun(call, stages)
    with call.log.record_calls():
        problem = run.first_overrun()
    if problem is None:
        return
    step, where = problem
    rows = _source_rows(run.source_of(step))
    text = describe(
        call.name,
        f"{describe_step(step)} wrote outside of its buffers: {where}.",
        rows,
        call.line,
        RULE,
    )
    raise VerificationError(text, call.program, call.args, stage=f"memory: {describe_step(step)}")


def _attempt(call: RecordedCall, run: Callable[[Replay], Any]) -> Any:
    """Return the result of `run` with the recorded callbacks, or None if NumPy cannot run it."""
    try:
        return run(call.log.replay())
    except VerificationError:
        raise
    except Exception:  # a rule that NumPy cannot run on these operands
        return None


class _StageTolerance:
    """The tolerance of the traced program, used for all stages."""

    def __init__(self, call: RecordedCall) -> None:
        self.call = call
        self.precision = precisions(call.program)
        self.want: list[np.ndarray] | None = _attempt(call, call.compute_expected)
        self.trials: dict[int, list[np.ndarray]] = {}

    def difference(self, got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> Mismatch | None:
        """Return the first element that differs beyond the tolerance."""
        first: list[np.ndarray] = self.want or []

        def repeat(k: int) -> list[np.ndarray]:
            if k not in self.trials:
                call = self.call
                self.trials[k] = call.compute_expected(call.log.replay(), k)
            # Noise changes the results of this stage by the same amounts as the results of the
            # first stage.
            return [_shift(w, t, f) for w, t, f in zip(want, self.trials[k], first)]

        return difference(got, want, ResultTolerance(want, self.precision, repeat))


def _shift(want: np.ndarray, trial: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return `want` with the change from `first` to `trial`."""
    if not epsilon_of(want.dtype):
        return np.where(trial != first, trial, want)
    with np.errstate(all="ignore"):
        moved = wide(want) + (wide(trial) - wide(first))
    return np.where(np.isfinite(wide(trial)), moved, wide(trial))


# ---- stages that are jaxprs


def _jaxpr_stages(
    call: RecordedCall,
) -> list[tuple[str, Jaxpr, Callable[[Replay], list[np.ndarray]]]]:
    """Return the stages that are jaxprs: title, program, and a function that runs it."""
    stages, args = call.executable.stages, call.args
    runnable: list[tuple[str, Jaxpr, Callable[[Replay], list[np.ndarray]]]] = [
        ("simplify", stages.simplified, lambda replay: op_by_op(stages.simplified, args, replay))
    ]
    if stages.partition is not None:
        for title, program in (
            ("partition", stages.partition.jaxpr),
            ("simplify local", stages.local),
        ):
            runnable.append(
                (
                    title,
                    program,
                    lambda replay, program=program: op_by_op(
                        program, args, replay, run=lambda given: stages.run_local(program, given)
                    ),
                )
            )
    stacked = getattr(stages.lowered, "stacked", None)
    if stacked is None:
        return runnable

    def run_stacked(program: Jaxpr, replay: Replay) -> list[np.ndarray]:
        memory = [x.reshape(v.aval.shape) for x, v in zip(stages.to_memory(args), program.invars)]
        return stages.from_memory(op_by_op(program, memory, replay))

    if stacked is not (stages.local or stages.simplified):
        title = "stack" if stages.partition is not None else "simplify"
        runnable.append((title, stacked, lambda replay: run_stacked(stacked, replay)))
    expanded = expand(stacked)
    if expanded is not stacked:
        runnable.append(("decompose", expanded, lambda replay: run_stacked(expanded, replay)))
    return runnable


# ---- stages that are steps


class StepwiseRun:
    """Step-by-step execution of a call's program, on the evaluator or as native code."""

    def __init__(self, call: RecordedCall, stages: Any) -> None:
        self.stages, self.scheduled, self.stacked = (
            stages,
            stages.scheduled,
            expand(stages.lowered.stacked),
        )
        self.args = stages.to_memory(call.args)
        self.program: P.ScheduledProgram = self.scheduled.program
        self.out_bytes = [v.aval.nbytes for v in self.stacked.outvars]
        self.native = call.step_code
        self.memory = StepMemory(self.scheduled, self.args, self.out_bytes)
        self.outputs: list[tuple[P.Step, list[np.ndarray]]] = []
        self.problem: tuple[P.Step, str] | None = None
        self.values: list[tuple[Eqn, np.ndarray]] = []

    def start(self) -> StepMemory:
        """Return fresh memory."""
        self.memory = StepMemory(self.scheduled, self.args, self.out_bytes)
        return self.memory

    def results(self) -> list[np.ndarray]:
        """Return the results in memory."""
        outs = [
            m[: v.aval.nbytes].view(v.aval.dtype).reshape(v.aval.shape)
            for m, v in zip(self.memory.outs, self.stacked.outvars)
        ]
        return self.stages.from_memory([np.array(x) for x in outs])

    def run_native(self, step: P.Step) -> None:
        """Run one step as native code."""
        run = self.native.get(id(step))
        if run is None:
            with derived_trace(eval_trace):
                run = self.native[id(step)] = compile_program(replace(self.program, steps=(step,)))
        run(self.memory.addresses)

    def run_evaluator(self, step: P.Step) -> bool:
        """Run one step on the evaluator if possible; return whether it ran."""
        if work_of(step) > MOST_ITERATIONS:
            return False
        state = self.memory.state()
        try:
            StepEvaluator(self.memory.slots).run((step,))
        except NotImplementedError:
            self.memory.restore(state)
            return False
        return True

    def evaluate(self, replay: Replay) -> list[np.ndarray]:
        """Return the results of all steps; steps that cannot be evaluated run as native code."""
        self.start()
        self.outputs.clear()
        with replay.replay_calls():
            for step in self.program.steps:
                try:
                    if not self.run_evaluator(step):
                        self.run_native(step)
                except IndexError as error:
                    self.problem = step, str(error)
                    break
                self.outputs.append((step, [np.array(x) for x in self.written_slots(step)]))
        return self.results()

    def written_slots(self, step: P.Step) -> list[np.ndarray]:
        """Return the slots that a step writes, as arrays of their types."""
        results = []
        for ref, type_ in writes_of(step):
            memory, dtype = self.memory.slots[ref.slot], loops_eval.DTYPES[type_]
            results.append(memory[: memory.nbytes // dtype.itemsize * dtype.itemsize].view(dtype))
        return results

    def first_wrong(self, replay: Replay) -> tuple[P.Step, Eqn | None] | None:
        """Return the first step whose native code differs from the evaluator."""
        self.start()
        with replay.replay_calls():
            for step in self.program.steps:
                state = self.memory.state()
                try:
                    is_evaluated = not _calls_host(step) and self.run_evaluator(step)
                except IndexError:
                    return step, self.source_of(step)
                expected = [np.array(x) for x in self.written_slots(step)]
                if is_evaluated:
                    self.memory.restore(state)
                self.run_native(step)
                if is_evaluated and _differs(self.written_slots(step), expected):
                    return step, self.source_of(step)
        return None

    def first_unexplained_step(self) -> tuple[P.Step, Eqn | None] | None:
        """Return the first step, after `evaluate`, none of whose outputs is a value of the
        program."""
        for step, arrays in self.outputs:
            if arrays and not any(self.equation_of(x) for x in arrays):
                return step, self.source_of(step)
        return None if self.problem is None else (self.problem[0], self.source_of(self.problem[0]))

    def first_overrun(self) -> tuple[P.Step, str] | None:
        """Return the first step whose native code writes to a guard, and the place."""
        self.start()
        for step in self.program.steps:
            self.run_native(step)
            if (where := self.memory.broken_guard()) is not None:
                return step, where
        return None

    def equation_of(self, x: np.ndarray) -> Eqn | None:
        """Return the equation of the stacked program with the elements of `x`, in any order."""
        if not self.values:
            env = _values_of(self.stacked, self.args)
            self.values = [
                (eqn, env[v]) for eqn in self.stacked.eqns for v in eqn.outvars if v in env
            ]
        return next((eqn for eqn, value in self.values if _same_elements(x, value)), None)

    def source_of(self, step: P.Step) -> Eqn | None:
        """Return the equation that a step computes, by the name of its kernel."""
        last = {eqn.primitive.name: eqn for eqn in self.stacked.eqns}
        names = [kernel.name.removeprefix("fused_") for kernel in _kernels_of(step)]
        return next((last[name] for name in reversed(names) if name in last), None)


def _inner_steps(step: P.Step) -> list[P.Step]:
    """Return the steps inside a step."""
    return [s for body in bodies(step) for s in body]


def work_of(step: P.Step, times: float = 1) -> float:
    """Return the maximum number of iterations of a step's loops; while loops count as 100
    iterations."""
    inner = _inner_steps(step)
    if isinstance(step, P.WhileLoop):
        return sum(work_of(s, times * 100) for s in inner)
    if inner or isinstance(step, P.Loop | P.Branch):
        return sum(
            work_of(s, times * (step.extent if isinstance(step, P.Loop) else 1)) for s in inner
        )
    return (
        times
        * sum(iterations(kernel.body, upper_bound) for kernel in _kernels_of(step))
        * (step.m * step.n if isinstance(step, P.Gemm) else 1)
    )


def _kernels_of(step: P.Step) -> list[Any]:
    if isinstance(step, P.Launch):
        return [step.kernel]
    if isinstance(step, P.Gemm):
        return [step.epilogue] if step.epilogue is not None else []
    return [kernel for s in _inner_steps(step) for kernel in _kernels_of(s)]


def writes_of(step: P.Step) -> list[tuple[P.BufRef, str]]:
    """Return the addresses that a step writes, with the types of their elements."""
    match step:
        case P.Launch():
            return _written_by(step.args, step.kernel.bufs)
        case P.Gemm():
            return _written_by_gemm(step)
        case P.Sort():
            written = [(step.out, "i32" if step.gives_order else step.type)]
            return written if step.places is None else [*written, (step.places, "i32")]
        case P.Copy() | P.Pad():
            return [(step.dst, "u8")]
        case P.JoinStep():
            return [(step.out, "u8")]
        case P.LibraryCall():
            return [
                (ref, _short(dtype)) for name, ref, _, dtype in step.arrays if name.startswith("y")
            ]
        case P.HostCallStep():
            return [(ref, _short(dtype)) for ref, _, dtype in step.outs]
        case _:
            return [ref for s in _inner_steps(step) for ref in writes_of(s)]


def _written_by(args: Sequence[P.BufRef], bufs: Sequence[Any]) -> list[tuple[P.BufRef, str]]:
    """Return the addresses that a kernel writes, with the types of their elements."""
    return [(ref, b.type) for ref, b in zip(args, bufs) if b.mode != "in"]


def _written_by_gemm(step: P.Gemm) -> list[tuple[P.BufRef, str]]:
    """Return the addresses that a product writes, with the types of their elements."""
    if step.epilogue is not None:
        return _written_by(step.epilogue_args, step.epilogue.bufs[2:])
    return [(step.c, step.out_type)] if step.c is not None else []


_SHORT_NAMES = {str(dtype): name for name, dtype in loops_eval.DTYPES.items()}


def _short(dtype: str) -> str:
    return _SHORT_NAMES.get(dtype, "u8")


def _calls_host(step: P.Step) -> bool:
    return isinstance(step, P.HostCallStep) or any(map(_calls_host, _inner_steps(step)))


def _differs(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> bool:
    """Return whether arrays differ by more than the rounding of one kernel."""
    for x, y in zip(got, want):
        precision = ResultPrecision(epsilon_of(y.dtype), max(1, int(math.sqrt(y.size))))
        if (
            x.tobytes() != y.tobytes()
            and difference([x], [y], ResultTolerance([y], [precision])) is not None
        ):
            return True
    return False


def _same_elements(x: np.ndarray, value: np.ndarray) -> bool:
    """Return whether two arrays have the same elements in some order, up to rounding."""
    if x.size != value.size or (x.dtype != value.dtype and x.dtype != np.uint8):
        return False
    a, b = (np.sort(np.real(wide(y)).reshape(-1)) for y in (x, value))
    scale = float(np.max(np.abs(b), initial=0, where=np.isfinite(b)))
    return bool(
        np.allclose(a, b, rtol=0, atol=200 * epsilon_of(value.dtype) * scale, equal_nan=True)
    )


def _values_of(program: Jaxpr, args: Sequence[np.ndarray]) -> dict[Var, np.ndarray]:
    """Return the value of every variable that can be computed without callbacks."""
    env = {v: x.reshape(v.aval.shape) for v, x in zip(program.invars, args)}
    variables = [
        v
        for eqn in program.eqns
        if not eqn.effects and not isinstance(eqn.primitive, CallbackOp)
        for v in eqn.outvars
    ]
    if any(isinstance(eqn.primitive, CallbackOp) for eqn in program.eqns):
        return {}
    whole = program.replace(outvars=variables)
    return dict(zip(variables, op_by_op(whole, [env[v] for v in program.invars])))


# ---- errors


def _equation_row(program: Jaxpr, result: int) -> tuple[str, str] | None:
    eqn = producer_of(program, result)
    return (
        None
        if eqn is None
        else ("equation", f"{eqn.primitive.name} at {eqn.source or 'an unknown line'}")
    )


def _kernel_row(foreign: tuple[P.Step, Eqn | None] | None) -> tuple[str, str] | None:
    if foreign is None:
        return None
    step, eqn = foreign
    return "kernel", describe_step(step) + (
        f", which computes {eqn.primitive.name} at {eqn.source}" if eqn and eqn.source else ""
    )


def _source_rows(eqn: Eqn | None) -> list[tuple[str, str]]:
    return (
        []
        if eqn is None
        else [("computes", f"{eqn.primitive.name} at {eqn.source or 'an unknown line'}")]
    )


def _stage_error(
    call: RecordedCall, stage: str, before: str, mismatch: Mismatch, row: tuple[str, str] | None
) -> VerificationError:
    rows = [
        ("stage", stage),
        *([row] if row else []),
        *mismatch_rows(mismatch, f"after {stage}", "before"),
    ]
    text = describe(
        call.name,
        f"result {mismatch.result} ({mismatch.kind}) differs after {stage} from the {before}.",
        rows,
        call.line,
        RULE,
        REMEDY,
    )
    at_fault = f"{stage}, {row[0]} {row[1]}".replace("kernel kernel", "kernel") if row else stage
    return VerificationError(
        text, call.program, call.args, mismatch.result, mismatch.index, at_fault
    )
