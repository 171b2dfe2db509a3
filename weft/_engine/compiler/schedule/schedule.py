"""The schedule of a program on dense arrays: kernels, matmuls and control flow over assigned buffers.

In:   a simplified jaxpr without collectives, and the numbers of donated inputs.
Out:  `Scheduled`: the Program, its constants, counts, and the aliases of results and donated inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.compiler.fusion.classify import LoweringKind, computes, lowering_kind, moves
from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import KernelGroup
from weft._engine.compiler.loops.loop_nest import BuiltKernel, build
from weft._engine.compiler.lowering.lower import GroupLowering
from weft._engine.compiler.rewrite.decompose import expand
from weft._engine.compiler.schedule.arena import ArenaBuffer, ArenaRef, assign_offsets
from weft._engine.compiler.schedule.buffer_aliasing import donate, reuse_dead_inputs
from weft._engine.compiler.schedule.buffer_assignment import BufferAssignment, match_joined_rows
from weft._engine.compiler.schedule.liveness import PendingStep, ProgramBuilder, assign_addresses
from weft._engine.ir import program as P
from weft._engine.ir.build import type_name
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.ir.loops import LoopsKernel
from weft._engine.util import dtypes
from weft._engine.util.dispatch_state import on_clear_caches
from weft._engine.util.record import record, replace
from weft._engine.util.threads import Background

if TYPE_CHECKING:
    from weft._engine.compiler.kernels import library_calls

# thresholds, measured on several machines
#: minimal rows and columns of a matmul that computes only the band that is read
_GEMM_NARROWEST_BAND = 32
#: maximal bytes of private memory of an iteration that runs in parallel with others
_TASK_LOOP_BYTES = 1 << 26


MOST_LOWERED = 4096
_lowered: dict[tuple, tuple] = {}  # lowered kernels by signature (`Fusion.signature`)
on_clear_caches(_lowered.clear)


@record(frozen=False)
class Scheduled:
    """A program ready for code generation.

    `aliases` maps numbers of outputs to numbers of donated inputs whose memory they take. `consts` are complete when the jobs in
    `const_makers` have finished."""

    program: P.ScheduledProgram
    consts: list[np.ndarray]
    gemm_count: int
    aliases: dict[int, int]
    peak_bytes: int
    words: tuple = ()  # descriptions of process-dependent values; each process fills constant number `words_at` with them
    words_at: int = -1
    const_makers: Sequence[Background] = ()

    @property
    def kernels(self) -> list[LoopsKernel]:
        """The kernels in the order of execution, one entry per launch, without epilogues of matmuls."""
        return [s.kernel for s in P.iterate_steps(self.program.steps) if isinstance(s, P.Launch)]

    @property
    def kernel_count(self) -> int:
        """The number of kernels, including sorts, FFTs and paddings."""
        return sum(
            [
                isinstance(s, P.Launch | P.Sort | P.Fft | P.Pad)
                for s in P.iterate_steps(self.program.steps)
            ]
        )

    @property
    def has_loops(self) -> bool:
        return any(isinstance(s, P.Loop | P.WhileLoop) for s in P.iterate_steps(self.program.steps))

    @property
    def epilogues(self) -> list[LoopsKernel]:
        """The epilogues of matmuls in the order of execution."""
        return [
            s.epilogue
            for s in P.iterate_steps(self.program.steps)
            if isinstance(s, P.Gemm) and s.epilogue is not None
        ]

    def text(self) -> str:
        """Return the text of slots, steps and kernels, as in dumps."""
        from weft._engine.ir.text.program import program_text

        return program_text(self.program)


#: a function that raises if the kernel built for a group does not implement it
KernelCheck = Callable[[Fusion, KernelGroup, BuiltKernel], None]


_ORDER_OF_SLOTS = {kind: i for i, kind in enumerate(P.SlotKind)}


def schedule(
    jaxpr: Jaxpr,
    donated: Sequence[int] = (),
    check_kernel: KernelCheck | None = None,
    has_origins: bool = False,
) -> Scheduled:
    """Fuse and lower `jaxpr`, and assign buffers. `check_kernel` checks each new kernel. With `has_origins`, steps have their equations."""
    jaxpr = expand(jaxpr)
    plan = ProgramBuilder([jaxpr.invars[i] for i in donated])
    plan.check_kernel, plan.has_origins = check_kernel, has_origins
    ins = [plan.new(v.aval.nbytes, P.SlotKind.INPUT, i) for i, v in enumerate(jaxpr.invars)]
    outs = [plan.new(v.aval.nbytes, P.SlotKind.OUTPUT, i) for i, v in enumerate(jaxpr.outvars)]
    StepScheduler(plan, jaxpr, [ArenaRef(b) for b in ins], [ArenaRef(b) for b in outs]).run()
    of_type = lambda v: (v.aval.shape, v.aval.dtype)
    aliases = donate(
        plan,
        donated,
        ins,
        outs,
        lambda out, i: of_type(jaxpr.outvars[out]) == of_type(jaxpr.invars[i]),
    )
    reuse_dead_inputs(plan)
    own = _place_own(plan)
    arena = assign_offsets([b for b in plan.buffers if b not in own])
    buffers = [b for b in plan.buffers if b.has_slot]
    buffers.sort(key=lambda b: (_ORDER_OF_SLOTS[b.kind], b.number))
    numbers = {b: i for i, b in enumerate(buffers)}

    def address(ref: ArenaRef) -> P.BufRef:
        ref = ref.final()
        return P.BufRef(numbers[ref.buffer], ref.offset, ref.strides)

    slots = tuple(P.BufferSlot(b.kind, b.nbytes, b.offset, b in own) for b in buffers)
    steps = assign_addresses(plan.steps, address)
    program = P.ScheduledProgram(slots, steps, arena, jaxpr.name or "program")
    aliased = sum(ins[i].nbytes for i in aliases.values())
    peak = arena + sum(b.nbytes for b in buffers if not b.is_temp) - aliased
    scheduled = Scheduled(
        program, plan.consts, plan.gemms, aliases, peak, const_makers=plan.const_makers
    )
    if plan.words_at is None:
        return scheduled
    return replace(scheduled, words=tuple(plan.words), words_at=plan.words_at.buffer.number)


def _place_own(plan: ProgramBuilder) -> set[ArenaBuffer]:
    """Assign offsets to the private buffers of tasks, and return these buffers.

    A loop whose iterations need too much private memory runs them one after another."""
    of_loops: dict[int, list[ArenaBuffer]] = {id(region): [] for region in plan.task_regions}
    for buffer in plan.buffers if of_loops else ():
        if buffer.region is None or not buffer.is_temp:
            continue
        region = buffer.region.of_tasks()
        if region is not None:
            of_loops[id(region)].append(buffer)
    own: set[ArenaBuffer] = set()
    for region in plan.task_regions:
        region.own_bytes = assign_offsets(of_loops[id(region)])
        if region.own_bytes > _TASK_LOOP_BYTES:
            region.tasks, region.own_bytes = False, 0
        else:
            own.update(of_loops[id(region)])
    return own


class StepScheduler(BufferAssignment):
    """The steps of one jaxpr: of the program, or of the body of a loop or branch."""

    bands: dict | None = None  # bands within which values are read, computed on first use

    def run(self) -> list[ArenaRef]:
        """Add the steps; return the addresses of the results."""
        copied = self.assign_targets()
        for i, item in enumerate(self.items):
            self.now = i
            if self.plan.has_origins:
                self.plan.origin = self._equations(item)
            if isinstance(item, KernelGroup):
                self._group(item)
            else:
                self._non_fusible(item)
        results = []
        for n, (atom, out) in enumerate(zip(self.jaxpr.outvars, self.outs)):
            ref = self.ref(atom)
            if out is not None:
                if n not in copied:
                    self.plan.copy(out, ref, atom.aval.nbytes)
                ref = out
            results.append(ref)
        return results

    def add_nested_steps(
        self,
        jaxpr: Jaxpr,
        ins: Sequence[ArenaRef],
        outs: Sequence[ArenaRef | None],
        owned: Sequence[bool] = (),
    ) -> list[ArenaRef]:
        """Add the steps of a jaxpr inside this one, with results at the addresses `outs` unless they are None; return the addresses."""
        origin = self.plan.origin
        addresses = StepScheduler(self.plan, jaxpr, ins, outs, owned).run()
        self.plan.origin = origin
        return addresses

    def _equations(self, item: KernelGroup | Eqn) -> P.Origin:
        """Return the equations that an item computes, in order."""
        if isinstance(item, Eqn):
            return (item,)
        roots = [v for v in item.roots if v in self.graph.stored]
        own = {*roots, *(item.dot.outvars if item.dot is not None else ())}
        loaded = lambda v: v not in own and (v in self.env or self.graph.loads(v, item.depth))
        eqns, _ = self.graph.producers_and_leaves(roots, loaded, item.dot)
        return tuple(eqns)

    # ---- kernels

    def _group(self, group: KernelGroup) -> None:
        group.roots = [v for v in group.roots if v in self.graph.stored]
        if all(v.aval.size == 0 for v in group.roots):
            for var in group.roots:
                self.result(var)
            return
        if group.dot is not None:
            self._contract(group.dot, group)
            return
        if self._pad(group):
            return
        kernel, ins, in_place = self._kernel(
            self.graph.signature(group), lambda: self._lower_group(group)
        )
        reads = [self.ref(v) for v in ins]
        writes = [self.result(v) for v in group.roots]
        self._allow_in_place(self.plan.launch(kernel, reads, writes), in_place, reads, writes)

    def _pad(self, group: KernelGroup) -> bool:
        """Add a padding by copies if the group only pads a value in memory with zeros; return whether it does."""
        eqn = self.graph.producer.get(group.roots[0])
        if eqn is None or moves(eqn) != "pad" or len(group.roots) > 1:
            return False
        operand = eqn.invars[0]
        if type(operand) is Literal:
            return False
        from weft._engine.compiler.kernels import padded_copy

        base, _ = self.graph.resolve(operand)
        consts = dict(zip(self.jaxpr.constvars, self.jaxpr.consts))
        if base not in self.env or not padded_copy.is_zero(
            eqn.invars[1], self.graph.producer, consts
        ):
            return False
        source, strides = self.operand(operand)
        sizes = padded_copy.rows_of(eqn, strides)
        if sizes is None:
            return False
        target = self.result(eqn.outvars[0])
        self.plan.step(lambda at: P.Pad(at(target), at(source), **sizes), [source], [target])
        return True

    def _lower_group(self, group: KernelGroup) -> BuiltKernel:
        built = build(GroupLowering(self.graph, group).run(), self._name(group))
        if self.plan.check_kernel is not None:
            self.plan.check_kernel(self.graph, group, built)
        return built

    def _allow_in_place(
        self,
        pending: PendingStep,
        in_place: Sequence[tuple],
        reads: list[ArenaRef],
        writes: list[ArenaRef],
        operands: Sequence[ArenaRef] = (),
    ) -> None:
        """Record the results of a kernel that may overwrite inputs in place.

        The `operands` of a matmul are excluded, because they are read in a different order."""
        pairs: dict[ArenaBuffer, list] = {}
        excluded = [r.buffer for r in operands]
        for out, source, name in in_place:
            target, operand = writes[out], reads[source]
            if (
                not (target.offset or operand.offset or target.strides or operand.strides)
                and operand.buffer not in excluded
            ):
                pairs.setdefault(target.buffer, []).append((operand.buffer, f"y{out}", name))
        pending.in_place = pairs

    def _kernel(self, signature: tuple, lower: Callable) -> tuple[LoopsKernel, list[Var], tuple]:
        """Return the kernel, its inputs, and the (result, operand, operand's name) triples that may share memory.

        Kernels with equal signatures are lowered once."""
        key, leaves = signature
        cached = _lowered.get(key) if key is not None else None
        if cached is None:
            built = lower()
            in_names = [b.name for b in built.kernel.bufs if b.mode == "in"]
            names = dict(zip(reversed(built.ins), reversed(in_names)))
            in_place = tuple(
                (built.outs.index(o), built.ins.index(i), names[i]) for o, i in built.in_place
            )
            if key is None or set(built.ins) - set(leaves):
                return built.kernel, built.ins, in_place
            cached = built.kernel, tuple(leaves.index(v) for v in built.ins), in_place
            if len(_lowered) >= MOST_LOWERED:
                _lowered.clear()
            _lowered[key] = cached
        kernel, order, in_place = cached
        return kernel, [leaves[i] for i in order], in_place

    def _name(self, group: KernelGroup) -> str:
        fused = [v for v in group.roots if v in self.graph.producer]  # not the result of a matmul
        name = self.graph.producer[fused[-1]].primitive.name
        return f"fused_{name}" if len(self.graph.producer) > 1 else name

    # ---- other equations

    def _non_fusible(self, eqn: Eqn) -> None:
        kind = lowering_kind(eqn)
        if kind is LoweringKind.EXCHANGE:
            from weft._engine.compiler.schedule import exchange_steps

            exchange_steps.lower(self, eqn)
        elif kind is LoweringKind.REGION:
            from weft._engine.compiler.schedule.region_lowering import (
                lower_region,
            )  # imported here and below because most programs do not need it

            lower_region(self, eqn, self.add_nested_steps)
        elif all(v.aval.size == 0 for v in eqn.outvars) and not eqn.effects:
            for var in eqn.outvars:
                self.result(var)
        else:
            self._LOWER[kind](self, eqn)

    def _join(self, eqn: Eqn) -> None:
        """Add copies of the operands of a concatenation that were not computed in the result's memory."""
        target = self.result(eqn.outvars[0])
        rows, pitch, parts = match_joined_rows(eqn)
        sources = [(self.ref(a), width, at) for a, width, at in parts]
        copied = [
            (ref, width, at)
            for ref, width, at in sources
            if ref.final() != target.offset_by(at).final()
        ]
        if copied:
            self.plan.step(
                lambda at: P.JoinStep(
                    at(target),
                    rows,
                    pitch,
                    tuple([(at(ref), width, begin) for ref, width, begin in copied]),
                ),
                [ref for ref, *_ in copied],
                [target],
            )

    def _scan(self, eqn: Eqn) -> None:
        """Add a prefix scan: one launch, or a loop over segments."""
        from weft._engine.compiler.kernels.prefix_scan import prefix_scan_of

        run, plan = prefix_scan_of(eqn), self.plan
        xs, ys = [self.ref(a) for a in eqn.invars], [self.result(v) for v in eqn.outvars]
        if run.launches == 1:
            plan.launch(run.kernel(), xs, ys)
            return
        var, carried = (
            plan.loop_variable(),
            [ArenaRef(plan.new(nbytes)) for nbytes in run.carried_bytes],
        )
        numbers = np.arange(-1, run.launches - 1, dtype=np.int64)
        number = replace(plan.const(numbers, np.int64), strides=((var, numbers.itemsize),))
        for ref in carried:
            plan.touch(ref)
        steps = plan.build_body(lambda: plan.launch(run.kernel(), [*xs, number], [*ys, *carried]))
        plan.step(lambda at: P.Loop(var, run.launches, assign_addresses(steps, at), False), [], [])

    def _host(self, eqn: Eqn) -> None:
        from weft._engine.compiler.kernels import library_calls

        ins = [(self.ref(a), a.aval.shape, a.aval.dtype.name) for a in eqn.invars]
        outs = [(self.result(v), v.aval.shape, v.aval.dtype.name) for v in eqn.outvars]
        function = library_calls.host_function(eqn)
        fix = lambda at, items: tuple((at(r), shape, name) for r, shape, name in items)
        self.plan.step(
            lambda at: P.HostCallStep(function, fix(at, ins), fix(at, outs)),
            [r for r, _, _ in ins],
            [r for r, _, _ in outs],
        )

    def _sort(self, eqn: Eqn) -> None:
        """Add a sort of rows along the last dim (`codegen.library.sort`)."""
        aval, kind = eqn.invars[0].aval, P.SortKind(eqn.primitive.lower.kind)
        n = aval.shape[-1]
        ins, outs = [self.ref(a) for a in eqn.invars], [self.result(v) for v in eqn.outvars]
        options = {"k": eqn.params.get("k", 0), "descending": eqn.params.get("descending", False)}

        def step(at) -> P.Sort:
            previous = at(ins[1]) if len(ins) == 2 else None
            places = at(outs[1]) if len(outs) == 2 else None
            return P.Sort(
                kind,
                type_name(aval.dtype),
                aval.size // n,
                n,
                at(ins[0]),
                at(outs[0]),
                previous,
                places,
                **options,
            )

        self.plan.step(step, ins, outs)

    def _fft(self, eqn: Eqn) -> None:
        """Add the native steps of an FFT, or a host call of SciPy's FFT."""
        from weft._engine.compiler.kernels import fft_plan

        stages = fft_plan.steps_of(eqn)
        if stages is None:
            self._host(eqn)
            return
        aval = eqn.outvars[0].aval
        part = np.dtype(dtypes.to_real_dtype(aval.dtype))
        type_ = type_name(part)
        places = {
            fft_plan.OPERAND: self.ref(eqn.invars[0]),
            fft_plan.RESULT: self.result(eqn.outvars[0]),
        }
        for stage in stages:
            if stage.out not in places:
                places[stage.out] = ArenaRef(self.plan.new(stage.nbytes(part)))
            refs = [places[stage.source], places[stage.out]]
            for factors in (
                fft_plan.tables(stage, part),
                *([stage.factors] if stage.factors else ()),
            ):
                refs.append(self.plan.const(factors.array, part))
                if factors.made_by is not None:
                    self.plan.const_makers.append(factors.made_by)

            def step(at, stage=stage, refs=tuple(refs)) -> P.Fft:
                source, out, factors = (at(ref) for ref in refs[:3])
                part = (
                    None if stage.part is None else P.FftConvolutionPart(*stage.part, at(refs[3]))
                )
                return P.Fft(
                    stage.kind,
                    type_,
                    stage.n,
                    stage.rows,
                    stage.inner,
                    source,
                    out,
                    factors,
                    part,
                )

            self.plan.step(step, [refs[0], *refs[2:]], [refs[1]])

    def _library(self, eqn: Eqn) -> None:
        """Add a call of a library routine on every matrix of a batch; the routine overwrites the first operand."""
        ins = [self.ref(a) for a in eqn.invars[1:]]
        outs = [self.overwritten(eqn), *(self.result(v) for v in eqn.outvars[1:])]
        lead = eqn.invars[0].aval.ndim - 2
        count = math.prod(eqn.invars[0].aval.shape[:lead])
        arrays = [
            (f"{kind}{i}", ref, atom.aval.size // max(count, 1), atom.aval.dtype.name)
            for kind, atoms, refs, first in (
                ("y", eqn.outvars, outs, 0),
                ("x", eqn.invars[1:], ins, 1),
            )
            for i, (atom, ref) in enumerate(zip(atoms, refs), first)
        ]
        routine, arguments = eqn.params["routine"], eqn.params["arguments"]
        self.plan.step(
            lambda at: P.LibraryCall(
                routine,
                count,
                arguments,
                tuple((name, at(ref), size, dtype) for name, ref, size, dtype in arrays),
            ),
            [outs[0], *ins],
            outs,
        )

    def _scatter(self, eqn: Eqn) -> None:
        from weft._engine.compiler.kernels import privatized_scatter, scatters

        if scatters.has_rows(eqn, self.may_overwrite(eqn)):
            self._scatter_row_by_row(eqn)
            return
        target = self.overwritten(eqn)
        if eqn.invars[2].aval.size:
            updates, strides = self.operand(eqn.invars[2])
            has_tables = privatized_scatter.has_tables(eqn, strides)
            build_kernel = (
                privatized_scatter.table_kernel
                if has_tables
                else scatters.owned_ranges_kernel
                if scatters.has_owners(eqn)
                else scatters.sequential_kernel
            )
            kernel, reads = build_kernel(eqn, strides)
            filled = (
                ArenaRef(self.plan.new(privatized_scatter.table_bytes(eqn)))
                if has_tables
                else target
            )
            self.plan.launch(
                kernel, [updates if i == 2 else self.ref(eqn.invars[i]) for i in reads], [filled]
            )
            if has_tables:
                self.plan.launch(privatized_scatter.combine_kernel(eqn), [filled], [target])

    def _scatter_row_by_row(self, eqn: Eqn) -> None:
        """Add a sort of the updates by row, and a kernel that writes each row once; in place if operand and result share memory."""
        from weft._engine.compiler.kernels import scatters

        updates, strides = self.operand(eqn.invars[2])
        operand, target = self.ref(eqn.invars[0]), self.result(eqn.outvars[0])
        kernel, reads = scatters.sort_updates_kernel(eqn)
        order = [ArenaRef(self.plan.new(4 * b.size)) for b in kernel.bufs[-2:]]
        self.plan.launch(kernel, [self.ref(eqn.invars[i]) for i in reads], order)
        kernel, reads = scatters.row_by_row(eqn, strides)
        sources = [updates if i == 2 else operand for i in reads] + order
        pending = self.plan.launch(kernel, sources, [target])
        same = "y0", f"x{reads.index(0)}"
        if operand.final() == target.final():
            pending.aliases = [same]
        else:
            self._allow_in_place(
                pending, [(0, reads.index(0), same[1])], sources, [target], [updates]
            )

    def _update(self, eqn: Eqn) -> None:
        target = self.overwritten(eqn)
        if eqn.invars[1].aval.size:
            from weft._engine.compiler.kernels import library_calls

            kernel, reads = library_calls.update_kernel(eqn)
            self.plan.launch(kernel, [self.ref(eqn.invars[i]) for i in reads], [target])

    def _band(self, result: Var, dot: library_calls.Contraction) -> tuple[int, int] | None:
        """Return the bounds of (column - row) of the elements of a matmul's result that masks keep; None if they keep all."""
        if min(dot.m, dot.n) < _GEMM_NARROWEST_BAND or not any(
            computes(eqn) == "select" for eqn in self.jaxpr.eqns
        ):
            return None
        from weft._engine.compiler.fusion import band_analysis

        if self.bands is None:
            self.bands = band_analysis.analyze_bands(self.jaxpr)
        return dot.band(result.aval.shape, self.bands.get(result, {}))

    def _contract(self, eqn: Eqn, group: KernelGroup | None = None) -> None:
        """Add a matmul with the group that is its epilogue, if any."""
        from weft._engine.compiler.kernels import library_calls

        (a, a_strides), (b, b_strides) = self.operand(eqn.invars[0]), self.operand(eqn.invars[1])
        dot = library_calls.Contraction(eqn, a_strides, b_strides, dense_rows=group is not None)
        if dot.exchanged:
            a, b = b, a
        in_type, out_type = (type_name(v.aval.dtype) for v in (eqn.invars[0], eqn.outvars[0]))
        acc = library_calls.accumulator(in_type, out_type)
        self.plan.gemms += 1
        band = None if group is not None else self._band(eqn.outvars[0], dot)

        def gemm(a, b, c, out_type: str, epilogue=None, args=()) -> P.Gemm:
            return P.Gemm(
                dot.m,
                dot.n,
                dot.k,
                a,
                b,
                c,
                dot.a_strides,
                dot.b_strides,
                dot.c_strides,
                in_type,
                acc,
                out_type,
                dot.batch,
                dot.outer_k,
                dot.a_rows,
                dot.b_cols,
                band,
                epilogue,
                args,
            )

        if group is None:
            c = self.result(eqn.outvars[0])
            self.plan.step(lambda at: gemm(at(a), at(b), at(c), out_type), [a, b], [c])
            return
        key, leaves = self.graph.signature(group)
        key = key and (key, leaves.index(eqn.outvars[0]), dot.shape(), acc)
        from weft._engine.compiler.kernels.kernel_epilogue import EpilogueLowering

        lower = lambda: EpilogueLowering(self.graph, group, eqn.outvars[0], dot, acc).kernel(
            self._name(group)
        )
        kernel, ins, in_place = self._kernel((key, leaves), lower)
        reads, writes = [self.ref(v) for v in ins], [self.result(v) for v in group.roots]
        step = lambda epilogue, args, operands: gemm(
            operands[0], operands[1], None, library_calls.sum_type(acc), epilogue, args
        )
        self._allow_in_place(
            self.plan.launch(kernel, reads, writes, [a, b], step), in_place, reads, writes, [a, b]
        )

    def _add_grouped_matmul(self, eqn: Eqn) -> None:
        """Add a grouped matmul: one matmul per group of rows or of k."""
        from weft._engine.compiler.kernels import library_calls

        (a, a_strides), (b, b_strides) = self.operand(eqn.invars[0]), self.operand(eqn.invars[1])
        first, count = self.ref(eqn.invars[2]), self.ref(eqn.invars[3])
        c = self.result(eqn.outvars[0])
        self.plan.gemms += 1
        gemm = library_calls.grouped_gemm_step(eqn, a_strides, b_strides)
        self.plan.step(
            lambda at: replace(gemm, a=at(a), b=at(b), c=at(c), first=at(first), count=at(count)),
            [a, b, first, count],
            [c],
        )

    _LOWER = {
        LoweringKind.SCAN: _scan,
        LoweringKind.HOST: _host,
        LoweringKind.SORT: _sort,
        LoweringKind.FFT: _fft,
        LoweringKind.LIBRARY: _library,
        LoweringKind.SCATTER: _scatter,
        LoweringKind.UPDATE: _update,
        LoweringKind.CONTRACT: _contract,
        LoweringKind.GROUPED: _add_grouped_matmul,
        LoweringKind.JOIN: _join,
    }
