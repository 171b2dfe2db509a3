"""Memory accesses of steps: the memory that each step of a program reads and writes, as index maps.

In:   a step of a `Program` that is not a loop or a branch.
Out:  its `StepAccess`es, each with an address, extents and byte strides, and the direction (read or write).
Laws: an access covers at least the bytes that the generated code touches. Two accesses to one buffer by one step are separate entries.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from weft._engine.ir.loops import ITEMSIZE
from weft._engine.ir.program import (
    BufRef,
    Copy,
    Fft,
    Gemm,
    HostCallStep,
    JoinStep,
    Launch,
    LibraryCall,
    Pad,
    Sort,
    Start,
    Step,
    Wait,
)
from weft._engine.util.record import record

Dims = tuple[tuple[int, int], ...]


@record
class StepAccess:
    """Runs of `nbytes` bytes at `ref`, repeated over `dims` of (extent, stride in bytes).

    `partial`: the step may access only some of the bytes, depending on data or on the order of its writes and reads.
    `until_end`: the run ends at the end of the buffer, because the step does not state its size.
    """

    ref: BufRef
    nbytes: int
    dims: Dims = ()
    writes: bool = False
    partial: bool = False
    until_end: bool = False

    def span(self) -> tuple[int, int]:
        """Return the first byte and the end of all runs, relative to the address; (0, 0) if there is no run.

        >>> StepAccess(BufRef(0), 4, ((3, 16), (2, -4))).span()
        (-4, 36)
        """
        if not self.nbytes or any(not extent for extent, _ in self.dims):
            return 0, 0
        reach = [stride * (extent - 1) for extent, stride in self.dims]
        return sum(min(0, n) for n in reach), sum(max(0, n) for n in reach) + self.nbytes


def accesses_of(step: Step) -> list[StepAccess]:
    """Return the accesses of a step. Raise TypeError for loops and branches, which consist of other steps."""
    return [access for access in _accesses(step) if access.span() != (0, 0)]


@functools.singledispatch
def _accesses(step: Step) -> list[StepAccess]:
    raise TypeError(
        f"accesses_of: a {type(step).__name__} has no accesses of its own. Pass the steps of its body."
    )


@_accesses.register
def _launch(step: Launch) -> list[StepAccess]:
    accesses = []
    for buf, ref in zip(step.kernel.bufs, step.args):
        accesses += _of_mode(buf.mode, ref, buf.size * ITEMSIZE[buf.type])
    return accesses


def _of_mode(mode: str, ref: BufRef, nbytes: int) -> list[StepAccess]:
    """Return the accesses to a buffer of a kernel. A kernel may store into an inout buffer before it loads from it."""
    if mode == "in":
        return [StepAccess(ref, nbytes)]
    written = StepAccess(ref, nbytes, writes=True)
    return [written] if mode == "out" else [StepAccess(ref, nbytes, partial=True), written]


@_accesses.register
def _gemm(step: Gemm) -> list[StepAccess]:
    batch = (*step.batch, *step.groups)
    rows = _run(step.m, step.a_strides[0], step.a_rows)
    cols = _run(step.n, step.b_strides[1], step.b_cols)
    a = [
        *[(e, a) for e, a, _, _ in batch],
        *[(e, a) for e, a, _ in step.outer_k],
        *rows,
        (step.k, step.a_strides[1]),
    ]
    b = [
        *[(e, b) for e, _, b, _ in batch],
        *[(e, b) for e, _, b in step.outer_k],
        *cols,
        (step.k, step.b_strides[0]),
    ]
    c = [
        *[(e, c) for e, _, _, c in batch],
        (step.m, step.c_strides[0]),
        (step.n, step.c_strides[1]),
    ]
    accesses = [_access_strided(step.a, step.in_type, a), _access_strided(step.b, step.in_type, b)]
    if step.c is not None:
        accesses.append(_access_strided(step.c, step.out_type, c, writes=True))
    for ref in (step.first, step.count):
        if ref is not None:
            accesses.append(StepAccess(ref, 4 * math.prod(e for e, *_ in step.groups)))
    if step.epilogue is not None:
        for buf, ref in zip(step.epilogue.bufs[2:], step.epilogue_args):
            accesses += _of_mode(buf.mode, ref, buf.size * ITEMSIZE[buf.type])
    return accesses


def _run(count: int, stride: int, outer: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Return the dims of rows or columns: the outer dims, then the remaining dim of `stride`."""
    return [*outer, (count // max(1, math.prod(extent for extent, _ in outer)), stride)]


def _access_strided(
    ref: BufRef, type_: str, dims: list[tuple[int, int]], writes: bool = False
) -> StepAccess:
    size = ITEMSIZE[type_]
    return StepAccess(
        ref, size, tuple([(extent, stride * size) for extent, stride in dims]), writes
    )


@_accesses.register
def _sort(step: Sort) -> list[StepAccess]:
    size, count = ITEMSIZE[step.type], step.rows * step.n
    accesses = [StepAccess(step.source, count * size)]
    if step.previous is not None:
        accesses.append(StepAccess(step.previous, count * 4))
    out_count = step.rows * step.k if step.gives_top else count
    accesses.append(
        StepAccess(step.out, out_count * (4 if step.gives_order else size), writes=True)
    )
    if step.places is not None:
        accesses.append(StepAccess(step.places, out_count * 4, writes=True))
    return accesses


#: numbers of real parts in (a source row, a result row) of length n, for transforms from or to reals or half spectra
_FFT_PARTS: dict[str, Callable[[int], tuple[int, int]]] = {
    "half": lambda n: (n, 2 * (n // 2 + 1)),
    "all": lambda n: (n, 2 * n),
    "real": lambda n: (2 * (n // 2 + 1), n),
}


@_accesses.register
def _fft(step: Fft) -> list[StepAccess]:
    source, out = [
        step.inner * parts for parts in _FFT_PARTS.get(step.kind, lambda n: (2 * n, 2 * n))(step.n)
    ]
    if step.part is not None:
        source, out = 2 * step.part.in_count, 2 * step.part.out_count
    around = step.rows * ITEMSIZE[step.type]
    return [
        StepAccess(step.source, source * around),
        StepAccess(step.out, out * around, writes=True),
    ]


@_accesses.register
def _library_call(step: LibraryCall) -> list[StepAccess]:
    accesses = []
    for name, ref, size, dtype in step.arrays:
        nbytes = step.count * size * np.dtype(dtype).itemsize
        if name == "y0" or not name.startswith("y"):
            accesses.append(StepAccess(ref, nbytes))
        if name.startswith("y"):
            accesses.append(StepAccess(ref, nbytes, writes=True))
    return accesses


@_accesses.register
def _copy(step: Copy) -> list[StepAccess]:
    return [StepAccess(step.src, step.nbytes), StepAccess(step.dst, step.nbytes, writes=True)]


@_accesses.register
def _join(step: JoinStep) -> list[StepAccess]:
    reads = [StepAccess(ref, step.rows * width) for ref, width, _ in step.parts]
    out = step.out
    return [
        *reads,
        *[
            StepAccess(
                BufRef(out.slot, out.offset + at, out.strides),
                width,
                ((step.rows, step.pitch),),
                writes=True,
            )
            for _, width, at in step.parts
        ],
    ]


@_accesses.register
def _pad(step: Pad) -> list[StepAccess]:
    runs = tuple([(count, stride) for _, _, count, stride in step.dims])
    return [
        StepAccess(step.src, step.run, runs),
        StepAccess(step.dst, step.rows * step.row, writes=True),
    ]


@_accesses.register
def _host_call(step: HostCallStep) -> list[StepAccess]:
    def access(operand: tuple, writes: bool) -> StepAccess:
        ref, shape, dtype = operand
        return StepAccess(ref, math.prod(shape) * np.dtype(dtype).itemsize, writes=writes)

    return [*[access(x, False) for x in step.ins], *[access(y, True) for y in step.outs]]


@_accesses.register
def _start(step: Start) -> list[StepAccess]:
    # the step does not state the number of exchanged bytes; the plan of the exchange has it
    return [
        StepAccess(step.source, 1),
        StepAccess(step.out, 1, writes=True, until_end=True),
        StepAccess(step.request, 1, writes=True),
    ]


@_accesses.register
def _wait(step: Wait) -> list[StepAccess]:
    return [StepAccess(step.request, 1)]
