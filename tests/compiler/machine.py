"""Run scheduled programs in tests: natively, or slowly on NumPy without generated code."""

from __future__ import annotations

import numpy as np

from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.compiler.schedule.loop_outlining import with_loop_kernels
from weft._engine.compiler.schedule.schedule import Scheduled, schedule
from weft._engine.core.interpret import run_reference
from weft._engine.ir.check import check_jaxpr
from weft._engine.verification.step_evaluator import StepEvaluator


def aligned(nbytes: int) -> np.ndarray:
    """Return uninitialized bytes, aligned and filled with a pattern that reveals memory that was
    never written."""
    raw = np.full(nbytes + 64, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def execute(scheduled: Scheduled, args, out_avals, native: bool = True) -> list[np.ndarray]:
    """Return the outputs of a scheduled program on NumPy arrays. Donated inputs are copied first."""
    program = scheduled.program
    ins = [aligned(max(np.asarray(a).nbytes, 1)) for a in args]
    for memory, a in zip(ins, args):
        memory[: np.asarray(a).nbytes] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    outs = [aligned(max(a.nbytes, 1)) for a in out_avals]
    for out, donor in scheduled.aliases.items():
        outs[out] = ins[donor]
    consts = []
    for c in scheduled.consts:
        memory = aligned(max(c.nbytes, 1))
        memory[: c.nbytes] = np.ascontiguousarray(c).reshape(-1).view(np.uint8)
        consts.append(memory)
    arena = aligned(program.arena_bytes)
    if native:
        from weft._engine.codegen.program.program import compile_program

        compile_program(program)([m.ctypes.data for m in (*ins, *outs, *consts, arena)])
    else:
        own = np.zeros(
            max([s.offset + s.nbytes for s in program.slots if s.own], default=0), np.uint8
        )
        temps = [
            (own if s.own else arena)[s.offset : s.offset + s.nbytes]
            for s in program.slots
            if s.kind == "temp"
        ]
        StepEvaluator([*ins, *outs, *consts, *temps]).run(program.steps)
    return [m[: a.nbytes].view(a.dtype).reshape(a.shape) for m, a in zip(outs, out_avals)]


def check(
    jaxpr, *args, native: bool = True, donated=(), rtol=None, simple: bool = True
) -> Scheduled:
    """Schedule `jaxpr`, run it with and without loop kernels, and compare with the NumPy reference.
    Return the schedule without loop kernels, for counts of steps."""
    check_jaxpr(jaxpr)
    args = [np.asarray(a, v.aval.dtype) for a, v in zip(args, jaxpr.invars)]
    want = run_reference(jaxpr, *args)
    program = check_jaxpr(simplify(jaxpr)) if simple else jaxpr
    scheduled = schedule(program, donated)
    joined = with_loop_kernels(scheduled)
    runs = [scheduled, joined] if joined.program != scheduled.program else [scheduled]
    for one in runs:
        _compare(execute(one, args, [v.aval for v in jaxpr.outvars], native), want, rtol)
    return scheduled


def _compare(got, want, rtol) -> None:
    for g, w in zip(got, want):
        exact = w.dtype.kind in "iub"
        tolerance = (
            rtol if rtol is not None else 0 if exact else 2e-2 if w.dtype.itemsize == 2 else 2e-5
        )
        if w.dtype.itemsize == 2 and not exact:
            tolerance = max(tolerance, 2e-2)
            g, w = g.astype("f4"), w.astype("f4")
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)
