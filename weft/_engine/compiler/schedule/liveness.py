"""Liveness: the steps of a program in order, and the live ranges of the buffers that they read and write.

In:   steps in order, each with the addresses that it reads and writes; loops and branches contain steps.
Out:  `ProgramBuilder`: the steps (`PendingStep` until the offsets of buffers are known), constants, and the live range of each buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from weft._engine.compiler.schedule.arena import ArenaBuffer, ArenaRef, Region
from weft._engine.ir import program as P
from weft._engine.ir.jaxpr import Var
from weft._engine.ir.loops import LoopsKernel
from weft._engine.util.record import record, replace
from weft._engine.util.threads import Background


@record(frozen=False, eq=False)
class PendingStep:
    """A step before addresses are assigned: `make(address)` creates the final step. Launches may gain aliases."""

    make: Callable
    time: int
    in_place: dict[ArenaBuffer, list[tuple[ArenaBuffer, str, str]]] | None = None
    aliases: list[tuple[str, str]] | None = None
    # (target, source) if the step only copies a whole buffer
    copied: tuple[ArenaBuffer, ArenaBuffer] | None = None
    dropped: bool = False
    origin: P.Origin = ()

    def finish(self, address: Callable) -> P.Step:
        """Return the final step."""
        step = self.make(address)
        return replace(step, origin=self.origin) if self.origin else step


def assign_addresses(steps: Sequence[PendingStep], address: Callable) -> tuple:
    """Return the final steps, with addresses from the function `address`; dropped steps are left out."""
    return tuple(p.finish(address) for p in steps if not p.dropped)


class ProgramBuilder:
    """The builder of the steps of a program and its bodies; `donated` are the inputs that may be overwritten."""

    def __init__(self, donated: Collection[Var]):
        self.donated = donated
        self.clock = 0
        self.region: Region | None = None
        self.buffers: list[ArenaBuffer] = []
        self.consts: list[np.ndarray] = []
        self.const_makers: list[Background] = []  # background jobs that compute constants
        self.const_refs: dict[object, ArenaRef] = {}
        self.steps: list[PendingStep] = []
        self.loops = 0
        self.launches: list[PendingStep] = []  # the steps that run kernels
        self.copies: list[PendingStep] = []
        self.gemms = 0
        self.last_read: dict[ArenaBuffer, int] = {}
        self.task_regions: list[Region] = []  # bodies of loops whose iterations run in parallel
        self.words: list = []  # values that depend on the process (`schedule.exchange_steps`)
        self.words_at: ArenaRef | None = None  # the constant that holds them
        self.check_kernel: Callable[..., None] | None = None  # see `schedule.KernelCheck`
        self.has_origins = False  # True if steps get their equations
        self.origin: P.Origin = ()  # the equations of the steps that are added

    # ---- buffers and time

    def new(self, nbytes: int, kind: P.SlotKind = P.SlotKind.TEMP, number: int = -1) -> ArenaBuffer:
        """Create a buffer of the current region."""
        buffer = ArenaBuffer(nbytes, kind, number, self.region)
        self.buffers.append(buffer)
        return buffer

    def temp(self, aval) -> ArenaRef:
        """Allocate memory for a value of type `aval`."""
        return ArenaRef(self.new(aval.nbytes))

    def const(self, value, dtype) -> ArenaRef:
        """Return the address of a constant of the program; equal small constants share memory."""
        array = np.ascontiguousarray(np.asarray(value, dtype))
        key = (array.dtype, array.shape, array.tobytes()) if array.nbytes <= 64 else id(value)
        ref = self.const_refs.get(key)
        if ref is None:
            saved, self.region = self.region, None
            ref = self.const_refs[key] = ArenaRef(
                self.new(array.nbytes, P.SlotKind.CONSTANT, len(self.consts))
            )
            self.region = saved
            self.consts.append(array)
        return ref

    def touch(self, ref: ArenaRef) -> None:
        """Extend the live range of the buffer at `ref` to the current time."""
        buffer = ref.final().buffer
        buffer.first = min(buffer.first, self.clock)
        buffer.last = max(buffer.last, self.clock)
        region = self.region
        if region is not None and buffer.region is not region:
            region.touched.add(buffer)

    def step(
        self, make: Callable, reads: Sequence[ArenaRef], writes: Sequence[ArenaRef]
    ) -> PendingStep:
        """Add a step that reads and writes the given addresses."""
        for ref in reads:
            self.touch(ref)
            self.last_read[ref.final().buffer] = self.clock
        for ref in writes:
            self.touch(ref)
        pending = PendingStep(make, self.clock, origin=self.origin)
        self.clock += 1
        self.steps.append(pending)
        return pending

    def copy(self, target: ArenaRef, source: ArenaRef, nbytes: int) -> None:
        """Add a copy, unless source and target are the same."""
        if nbytes and target.final() != source.final():
            step = self.step(lambda at: P.Copy(at(target), at(source), nbytes), [source], [target])
            ends = target.final(), source.final()
            if self.region is None and not any(r.offset or r.strides for r in ends):
                step.copied = ends[0].buffer, ends[1].buffer
                self.copies.append(step)

    def launch(
        self,
        kernel: LoopsKernel,
        reads: Sequence[ArenaRef],
        writes: Sequence[ArenaRef],
        operands: Sequence[ArenaRef] = (),
        step: Callable = lambda kernel, args, operands: P.Launch(kernel, args),
    ) -> PendingStep:
        """Add a step that runs `kernel` on `reads` and `writes`; a matmul with an epilogue also reads `operands`."""
        refs = (*reads, *writes)

        def make(at) -> P.Step:
            final = kernel
            if pending.aliases:
                names = dict(pending.aliases)
                final = replace(
                    kernel,
                    bufs=tuple(replace(b, alias=names.get(b.name, b.alias)) for b in kernel.bufs),
                )
            return step(final, tuple(at(r) for r in refs), tuple(at(r) for r in operands))

        pending = self.step(make, (*reads, *operands), writes)
        self.launches.append(pending)
        return pending

    def build_body(self, run: Callable, region: Region | None = None) -> list[PendingStep]:
        """Call `run` in a new region; return the steps that it adds, the body of a loop or branch."""
        outer_steps, outer_region = self.steps, self.region
        self.steps, self.region = [], region or Region(outer_region)
        run()
        steps, region = self.steps, self.region
        self.steps, self.region = outer_steps, outer_region
        for buffer in region.touched:
            buffer = ArenaRef(buffer).final().buffer
            buffer.last = max(buffer.last, self.clock)
            if outer_region is not None and buffer.region is not outer_region:
                outer_region.touched.add(buffer)
        self.clock += 1
        return steps

    def loop_variable(self) -> str:
        """Return a unique name for a loop variable."""
        self.loops += 1
        return f"l{self.loops}"
