"""The stages of the CPU compiler: stack → simplify → fuse and plan → codegen.

In:   a local program.
Out:  a `CpuProgram`, whose one native entry runs the program on all virtual devices of this process.
How:  the local program, mapped over the axes of the mesh (`partition.stack`), is the program of all devices: mesh axes are leading dims,
      collectives are operations along them, and a value that is equal on all devices of an axis lacks that dim, so that it is stored
      and computed once. On a mesh over several processes this holds for the devices of this process; the remaining parts of
      collectives are exchanges with other processes (`partition.exchanges`).
"""

from __future__ import annotations

from weft._engine.backends.base import LocalProgram, Stage
from weft._engine.backends.cpu.buffer import use_native
from weft._engine.backends.cpu.loaded_program import CallPlan, CpuProgram
from weft._engine.codegen.program.tiered_compilation import compile_draft
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.compiler.schedule.memory_check import check_memory
from weft._engine.compiler.schedule.schedule import KernelCheck, Scheduled, schedule
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.util.config import config
from weft._engine.util.record import record


@record
class CpuStages:
    """The program over all devices, and its schedule."""

    stacked: Jaxpr
    scheduled: Scheduled


def lower(program: LocalProgram, stage: Stage) -> CpuStages:
    """Run all stages before code generation."""
    stacked = program.jaxpr
    if program.owners is not None:
        from weft._engine.partition.exchanges import program_of_process

        stacked = stage(
            "stack",
            program_of_process,
            stacked,
            program.mesh,
            program.owners,
            [x.dims for x in program.ins],
            [x.dims for x in program.outs],
            [x.blocks for x in program.outs],
        )
        stacked = stage("simplify stacked", simplify, stacked)
    elif program.mesh:
        from weft._engine.partition.stack import stack

        stacked = stage(
            "stack",
            stack,
            stacked,
            program.mesh,
            [x.dims for x in program.ins],
            [x.dims for x in program.outs],
            [x.blocks for x in program.outs],
        )
        stacked = stage("simplify stacked", simplify, stacked)
    return CpuStages(stacked, stage("schedule", make_schedule, stacked, program.donated))


def make_schedule(program: Jaxpr, donated: tuple[int, ...], has_origins: bool = False) -> Scheduled:
    """Return the checked schedule of a program over all devices; with `has_origins`, its steps have their equations."""
    scheduled = schedule(program, donated, _kernel_check(), has_origins)
    if scheduled.has_loops:
        # imported here: a millisecond that most programs do not need
        from weft._engine.compiler.schedule.loop_outlining import with_loop_kernels

        scheduled = with_loop_kernels(scheduled)
    check_memory(scheduled.program, scheduled.aliases)
    return scheduled


def _kernel_check() -> KernelCheck | None:
    """Return the check of new kernels, if the setting `check` includes maps; else None."""
    if not config.checks.maps:
        return None
    from weft._engine.verification.kernel_maps import check_group_kernel

    return check_group_kernel


def compile_local(program: LocalProgram, stages: CpuStages, stage: Stage) -> CpuProgram:
    """Generate and load the code of a lowered program."""
    scheduled = stages.scheduled
    native = stage("codegen", compile_draft, scheduled.program)
    if native.host.calls:
        from weft._engine.codegen.runtime import heap

        # its blocks are freed without running Python, where an interrupt could be lost
        use_native(heap.symbols())
    for maker in scheduled.const_makers:
        maker.finish()
    return CpuProgram(
        native,
        CallPlan(
            scheduled.consts,
            scheduled.aliases,
            scheduled.program.arena_bytes,
            scheduled.kernel_count,
            tuple(x.spec.storage_bytes for x in program.ins),
            tuple(x.spec.storage_bytes for x in program.outs),
            native.work,
            scheduled.words,
            scheduled.words_at,
        ),
    )
