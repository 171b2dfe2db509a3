"""Evaluation of the steps of scheduled programs on NumPy, without generated code.

In:   a program and the bytes of each of its slots.
Out:  changed slots. Kernels run on the evaluator of Loops, one element at a time.
Laws: an address outside its slot raises IndexError. An unsupported step raises NotImplementedError.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.ir import loops_eval, program as P
from weft._engine.ir.loops import Buf
from weft._engine.util import dtypes, lapack


class StepEvaluator:
    """Evaluator of single steps on arrays of bytes, one for each slot."""

    def __init__(self, memory: Sequence[np.ndarray]) -> None:
        self.memory = memory
        self.vars: dict[str, int] = {}

    def run(self, steps: Sequence[P.Step]) -> None:
        """Run steps in order."""
        for step in steps:
            run = _RUN.get(type(step))
            if run is None:
                raise NotImplementedError(
                    f"verification: no evaluator of steps of type {type(step).__name__}."
                )
            run(self, step)

    def start(self, ref: P.BufRef) -> int:
        """Return the byte offset of an address in its slot."""
        return ref.offset + sum(self.vars[var] * stride for var, stride in ref.strides)

    def at(self, ref: P.BufRef, nbytes: int) -> np.ndarray:
        """Return the bytes at an address."""
        start, memory = self.start(ref), self.memory[ref.slot]
        if start < 0 or start + nbytes > memory.nbytes:
            raise IndexError(
                f"bytes {start} to {start + nbytes} are outside of slot {ref.slot} of {memory.nbytes} bytes"
            )
        return memory[start : start + nbytes]

    def load_elements(self, ref: P.BufRef, type_: str, size: int) -> np.ndarray:
        """Return `size` elements at an address."""
        dtype = loops_eval.DTYPES[type_]
        return self.at(ref, size * dtype.itemsize).view(dtype)

    def arrays(self, bufs: Sequence[Buf], args: Sequence[P.BufRef]) -> list[np.ndarray]:
        """Return the arrays of a kernel's buffers."""
        return [self.load_elements(ref, buf.type, buf.size) for buf, ref in zip(bufs, args)]

    def launch(self, step: P.Launch) -> None:
        loops_eval.evaluate(step.kernel, *self.arrays(step.kernel.bufs, step.args))

    def copy(self, step: P.Copy) -> None:
        self.at(step.dst, step.nbytes)[:] = self.at(step.src, step.nbytes).copy()

    def join(self, step: P.JoinStep) -> None:
        rows = self.at(step.out, step.rows * step.pitch).reshape(step.rows, step.pitch)
        for ref, width, begin in step.parts:
            rows[:, begin : begin + width] = self.at(ref, step.rows * width).reshape(
                step.rows, width
            )

    def pad(self, step: P.Pad) -> None:
        rows = self.at(step.dst, step.rows * step.row).reshape(step.rows, step.row)
        rows[...] = 0
        for row in range(step.rows):
            quotient, source, is_inside = row, 0, True
            for extent, first, count, stride in step.dims:
                quotient, index = divmod(quotient, extent)
                is_inside &= first <= index < first + count
                source += (index - first) * stride
            if is_inside:
                start = self.start(step.src) + source
                run = self.memory[step.src.slot][start : start + step.run]
                if run.size < step.run:
                    raise IndexError(
                        f"a run of {step.run} bytes at {start} is outside of slot {step.src.slot}"
                    )
                rows[row, step.lead : step.lead + step.run] = run

    def sort(self, step: P.Sort) -> None:
        shape = step.rows, step.n
        source = self.load_elements(step.source, step.type, step.rows * step.n).reshape(shape)
        keys = source.astype(np.float64) if source.dtype.kind not in "biuf" else source
        keys = (
            np.where(np.isnan(keys), np.inf, keys) if dtypes.is_native_float(keys.dtype) else keys
        )
        if not (step.gives_order or step.gives_top):
            self.load_elements(step.out, step.type, source.size).reshape(shape)[...] = np.take_along_axis(
                source, np.argsort(keys, axis=1, kind="stable"), axis=1)  # fmt: skip
            return
        if np.issubdtype(keys.dtype, np.unsignedinteger) or keys.dtype == np.bool_:
            keys = keys.astype(np.int64 if keys.dtype.itemsize < 8 else np.float64)
        before = np.broadcast_to(np.arange(step.n, dtype=np.int32), shape)
        if step.previous is not None:
            before = self.load_elements(step.previous, "i32", source.size).reshape(shape)
        ordered = np.take_along_axis(keys, before, axis=1)
        order = np.argsort(
            -ordered if step.descending or step.gives_top else ordered, axis=1, kind="stable"
        )
        order = np.take_along_axis(before, order, axis=1)
        if step.gives_order:
            self.load_elements(step.out, "i32", source.size).reshape(shape)[...] = order
            return
        order = order[:, : step.k]
        self.load_elements(step.out, step.type, order.size).reshape(order.shape)[...] = (
            np.take_along_axis(source, order, axis=1)
        )
        if step.places is not None:
            self.load_elements(step.places, "i32", order.size).reshape(order.shape)[...] = order

    def host_call(self, step: P.HostCallStep) -> None:
        def view(item: tuple[P.BufRef, tuple[int, ...], str]) -> np.ndarray:
            ref, shape, name = item
            dtype = _dtype(name)
            return self.at(ref, math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)

        step.fn(*map(view, step.ins), *map(view, step.outs))

    def library_call(self, step: P.LibraryCall) -> None:
        for problem in range(step.count):
            arrays = {}
            for name, ref, size, dtype in step.arrays:
                nbytes = size * np.dtype(dtype).itemsize
                arrays[name] = self.at(ref, (problem + 1) * nbytes)[problem * nbytes :].view(dtype)
                if name.startswith("y") and dtype == "int32":
                    arrays[name][:] = 0
            lapack.call(step.routine, step.arguments, arrays)

    def strided(
        self, ref: P.BufRef, type_: str, shape: Sequence[int], strides: Sequence[int]
    ) -> np.ndarray:
        """Return a strided view of elements at an address; strides count elements."""
        dtype = loops_eval.DTYPES[type_]
        last = sum((n - 1) * s for n, s in zip(shape, strides))
        flat = self.at(ref, (last + 1) * dtype.itemsize).view(dtype)
        return np.lib.stride_tricks.as_strided(flat, shape, [s * dtype.itemsize for s in strides])

    def gemm(self, step: P.Gemm) -> None:
        if step.grouped:
            raise NotImplementedError("verification: no evaluator of grouped matmuls.")
        sums = self._sums(step)
        batch = [extent for extent, *_ in step.batch]
        if step.epilogue is None:
            assert step.c is not None
            shape, strides = (
                [*batch, step.m, step.n],
                [*(x[3] for x in step.batch), *step.c_strides],
            )
            self.strided(step.c, step.out_type, shape, strides)[...] = sums
            return
        for element, tile in enumerate(sums.reshape(-1, step.m, step.n)):
            place = {
                "row": 0,
                "rows": step.m,
                "col": 0,
                "cols": step.n,
                "batch": element,
                "pitch": step.n,
            }
            words = np.array([place[name] for name in P.PLACE])
            operands = self.arrays(step.epilogue.bufs[2:], step.epilogue_args)
            loops_eval.evaluate(step.epilogue, tile.reshape(-1).copy(), words, *operands)

    def _sums(self, g: P.Gemm) -> np.ndarray:
        """Return the product of a matmul before its epilogue."""
        batch, outer = [e for e, *_ in g.batch], [e for e, *_ in g.outer_k]
        rows, cols = [e for e, _ in g.a_rows], [e for e, _ in g.b_cols]
        down, across = g.m // math.prod(rows), g.n // math.prod(cols)
        a_lead = [*(x[1] for x in g.batch), *(x[1] for x in g.outer_k)]
        b_lead = [*(x[2] for x in g.batch), *(x[2] for x in g.outer_k)]
        a_strides = [*a_lead, *(s for _, s in g.a_rows), *g.a_strides]
        b_strides = [*b_lead, g.b_strides[0], *(s for _, s in g.b_cols), g.b_strides[1]]
        a = self.strided(g.a, g.in_type, [*batch, *outer, *rows, down, g.k], a_strides).reshape(
            *batch, *outer, g.m, g.k
        )
        b = self.strided(g.b, g.in_type, [*batch, *outer, g.k, *cols, across], b_strides).reshape(
            *batch, *outer, g.k, g.n
        )
        acc = loops_eval.DTYPES[g.acc_type]
        with np.errstate(all="ignore"):
            sums = np.matmul(a.astype(acc), b.astype(acc)).sum(
                tuple(range(len(batch), len(batch) + len(outer)))
            )
        return sums.reshape(*batch, g.m, g.n).astype(loops_eval.DTYPES[g.out_type])

    def loop(self, step: P.Loop) -> None:
        for i in reversed(range(step.extent)) if step.reverse else range(step.extent):
            self.vars[step.var] = i
            self.run(step.body)

    def while_loop(self, step: P.WhileLoop) -> None:
        self.run(step.cond_body)
        while self.at(step.cond, 1)[0]:
            self.run(step.body)
            self.run(step.cond_body)

    def branch(self, step: P.Branch) -> None:
        index = int(self.at(step.index, 4).view(np.int32)[0])
        self.run(step.branches[min(max(index, 0), len(step.branches) - 1)])


_RUN: dict[type, Any] = {
    P.Launch: StepEvaluator.launch,
    P.Copy: StepEvaluator.copy,
    P.JoinStep: StepEvaluator.join,
    P.Pad: StepEvaluator.pad,
    P.Sort: StepEvaluator.sort,
    P.HostCallStep: StepEvaluator.host_call,
    P.LibraryCall: StepEvaluator.library_call,
    P.Gemm: StepEvaluator.gemm,
    P.Loop: StepEvaluator.loop,
    P.WhileLoop: StepEvaluator.while_loop,
    P.Branch: StepEvaluator.branch,
}


def _dtype(name: str) -> np.dtype:
    """Return the dtype with a name, including dtypes of ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
