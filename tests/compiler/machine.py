"""Running scheduled programs in tests: natively, or slowly on NumPy with no code generation."""

from __future__ import annotations

import math

import numpy as np

from weft.compiler.rewrite.simplify import simplify
from weft.compiler.schedule.loop_outlining import with_loop_kernels
from weft.compiler.schedule.schedule import Scheduled, schedule
from weft.core.interpret import run_reference
from weft.ir import loops_eval, program as P
from weft.ir.check import check_jaxpr
from weft.util import lapack


class Slow:
    """Runs the steps of a program one by one on byte arrays."""

    def __init__(self, program: P.Program, memory: list[np.ndarray]):
        self.memory, self.vars = memory, {}
        self.steps(program.steps)

    def at(self, ref: P.BufRef, nbytes: int) -> np.ndarray:
        start = ref.offset + sum(self.vars[v] * s for v, s in ref.strides)
        assert 0 <= start and start + nbytes <= self.memory[ref.slot].nbytes, (ref, nbytes)
        return self.memory[ref.slot][start:start + nbytes]

    def steps(self, steps) -> None:
        for step in steps:
            getattr(self, type(step).__name__.lower())(step)

    def launch(self, step: P.Launch) -> None:
        loops_eval.evaluate(step.kernel, *self.arrays(step.kernel.bufs, step.args))

    def arrays(self, bufs, args) -> list[np.ndarray]:
        dtypes = [loops_eval.DTYPES[buf.type] for buf in bufs]
        return [self.at(ref, buf.size * dtype.itemsize).view(dtype) for buf, ref, dtype in zip(bufs, args, dtypes)]

    def copy(self, step: P.Copy) -> None:
        self.at(step.dst, step.nbytes)[:] = self.at(step.src, step.nbytes)

    def hostcall(self, step: P.HostCall) -> None:
        def view(item):
            ref, shape, dtype = item
            return self.at(ref, math.prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)

        step.fn(*map(view, step.ins), *map(view, step.outs))

    def librarycall(self, step: P.LibraryCall) -> None:
        for problem in range(step.count):
            arrays = {}
            for name, ref, size, dtype in step.arrays:
                nbytes = size * np.dtype(dtype).itemsize
                arrays[name] = self.at(ref, (problem + 1) * nbytes)[problem * nbytes:].view(dtype)
                if name.startswith("y") and dtype == "int32":
                    arrays[name][:] = 0
            lapack.call(step.routine, step.arguments, arrays)

    def gemm(self, g: P.Gemm) -> None:
        of = lambda ref, type_: (self.memory[ref.slot], ref.offset + sum(self.vars[v] * s for v, s in ref.strides),
                                 loops_eval.DTYPES[type_])

        def strided(ref, type_, shape, strides):
            memory, start, dtype = of(ref, type_)
            last = sum((n - 1) * s for n, s in zip(shape, strides))
            flat = memory[start:start + (last + 1) * dtype.itemsize].view(dtype)
            return np.lib.stride_tricks.as_strided(flat, shape, [s * dtype.itemsize for s in strides])

        eb, eo = [e for e, *_ in g.batch], [e for e, *_ in g.outer_k]
        er, ec = [e for e, _ in g.a_rows], [e for e, _ in g.b_cols]
        run, across = g.m // math.prod(er), g.n // math.prod(ec)
        a = strided(g.a, g.in_type, [*eb, *eo, *er, run, g.k],
                    [*(x[1] for x in g.batch), *(x[1] for x in g.outer_k), *(s for _, s in g.a_rows), *g.a_strides])
        b = strided(g.b, g.in_type, [*eb, *eo, g.k, *ec, across],
                    [*(x[2] for x in g.batch), *(x[2] for x in g.outer_k), g.b_strides[0], *(s for _, s in g.b_cols),
                     g.b_strides[1]])
        a, b = a.reshape(*eb, *eo, g.m, g.k), b.reshape(*eb, *eo, g.k, g.n)
        acc = loops_eval.DTYPES[g.acc_type]
        sums = np.matmul(a.astype(acc), b.astype(acc)).sum(tuple(range(len(eb), len(eb) + len(eo))))
        sums = sums.reshape(*eb, g.m, g.n).astype(loops_eval.DTYPES[g.out_type])
        if g.epilogue is None:
            strided(g.c, g.out_type, [*eb, g.m, g.n], [*(x[3] for x in g.batch), *g.c_strides])[...] = sums
            return
        for element, tile in enumerate(sums.reshape(-1, g.m, g.n)):
            place = {"row": 0, "rows": g.m, "col": 0, "cols": g.n, "batch": element, "pitch": g.n}
            words = np.array([place[name] for name in P.PLACE])
            loops_eval.evaluate(g.epilogue, tile.reshape(-1).copy(), words, *self.arrays(g.epilogue.bufs[2:], g.epilogue_args))

    def loop(self, step: P.Loop) -> None:
        for i in reversed(range(step.extent)) if step.reverse else range(step.extent):
            self.vars[step.var] = i
            self.steps(step.body)

    def whileloop(self, step: P.WhileLoop) -> None:
        self.steps(step.cond_body)
        while self.at(step.cond, 1)[0]:
            self.steps(step.body)
            self.steps(step.cond_body)

    def branch(self, step: P.Branch) -> None:
        index = int(self.at(step.index, 4).view(np.int32)[0])
        self.steps(step.branches[min(max(index, 0), len(step.branches) - 1)])


def aligned(nbytes: int) -> np.ndarray:
    """Uninitialised bytes, aligned, filled with a pattern that shows what was never written."""
    raw = np.full(nbytes + 64, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start:start + nbytes]


def execute(scheduled: Scheduled, args, out_avals, native: bool = True) -> list[np.ndarray]:
    """Outputs of a scheduled program on NumPy arrays. Donated inputs are copied first."""
    program = scheduled.program
    ins = [aligned(max(np.asarray(a).nbytes, 1)) for a in args]
    for memory, a in zip(ins, args):
        memory[:np.asarray(a).nbytes] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    outs = [aligned(max(a.nbytes, 1)) for a in out_avals]
    for out, donor in scheduled.aliases.items():
        outs[out] = ins[donor]
    consts = []
    for c in scheduled.consts:
        memory = aligned(max(c.nbytes, 1))
        memory[:c.nbytes] = np.ascontiguousarray(c).reshape(-1).view(np.uint8)
        consts.append(memory)
    arena = aligned(program.arena_bytes)
    if native:
        from weft.codegen.program.program import compile_program
        compile_program(program)([m.ctypes.data for m in (*ins, *outs, *consts, arena)])
    else:
        own = np.zeros(max([s.offset + s.nbytes for s in program.slots if s.own], default=0), np.uint8)
        temps = [(own if s.own else arena)[s.offset:s.offset + s.nbytes] for s in program.slots if s.kind == "temp"]
        Slow(program, [*ins, *outs, *consts, *temps])
    return [m[:a.nbytes].view(a.dtype).reshape(a.shape) for m, a in zip(outs, out_avals)]


def check(jaxpr, *args, native: bool = True, donated=(), rtol=None, simple: bool = True) -> Scheduled:
    """Schedule `jaxpr`, run it, also with its small loops as kernels, and compare with the NumPy reference; gives the schedule
    for counting, with loops as they are."""
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
        tolerance = rtol if rtol is not None else 0 if exact else 2e-2 if w.dtype.itemsize == 2 else 2e-5
        if w.dtype.itemsize == 2 and not exact:
            tolerance = max(tolerance, 2e-2)
            g, w = g.astype("f4"), w.astype("f4")
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)
