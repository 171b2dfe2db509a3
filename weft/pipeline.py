"""The whole compiler on one screen: trace → simplify → propagate → partition → simplify → stack → fuse → plan → codegen → load.

In:   a Jaxpr (made by `core.stage`) and how its inputs and outputs are laid out over devices.
Out:  an `Executable`, whose one native entry runs the program on all virtual devices of this process.

A program for many devices becomes the program of one (`partition`), and that one, mapped over the axes of the mesh
(`stack`), the program of the whole machine: mesh axes are leading dims, collectives are operations along them, and a value
that is equal on all devices of an axis simply lacks that dim, so it is stored and computed once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.codegen.program.tiered_compilation import compile_draft
from weft.compiler.rewrite.simplify import simplify
from weft.compiler.schedule.schedule import Scheduled, schedule
from weft.ir.jaxpr import Jaxpr
from weft.ir.program_mesh import has_shard_map
from weft.ir.shardings import Sharding, SingleDeviceSharding
from weft.runtime import buffer
from weft.runtime.array import ArraySpec
from weft.runtime.executable import Executable, Plan
from weft.transforms.erase import erase
from weft.transforms.physical import physicalize
from weft.util.collector import paused
from weft.util.config import config
from weft.util.record import field, record

if TYPE_CHECKING:
    from weft.partition.partition import PartitionResult


@record(frozen=False)
class Stages:
    """The program at every stage of one compilation, for inspection; `partition` has the collectives."""
    name: str
    traced: Jaxpr
    simplified: Jaxpr | None = None
    local: Jaxpr | None = None
    stacked: Jaxpr | None = None
    partition: PartitionResult | None = None
    scheduled: Scheduled | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def collectives(self) -> list:
        return list(self.partition.records) if self.partition is not None else []


def compile_jaxpr(jaxpr: Jaxpr, in_specs: Sequence[ArraySpec], out_shardings: Sequence[Sharding | None],
                  donated: Sequence[int] = (), name: str = "program", assignment: tuple = ()) -> Executable:
    """Compile a program without constants for inputs laid out as `in_specs`, on the devices `assignment`.

    Outputs without a sharding get the one that propagation finds. Uncommitted inputs may be moved; committed ones are read
    where they lie.
    """
    start = time.perf_counter()
    stages, in_specs, out_specs = stages_of(jaxpr, in_specs, out_shardings, donated, name, assignment)
    scheduled = stages.scheduled
    if scheduled is None:
        from weft.runtime.reference import ReferenceExecutable

        return ReferenceExecutable(stages.stacked, in_specs, out_specs, donated, stages)
    native = _Timer(stages)("codegen", compile_draft, scheduled.program)
    if native.host.calls:
        from weft.codegen.runtime import heap

        buffer.use_native(heap.symbols())    # whose blocks are freed without running Python, where an interrupt could be lost
    plan = Plan(scheduled.consts, scheduled.aliases, scheduled.program.arena_bytes, scheduled.kernel_count, len(stages.collectives))
    stages.seconds["total"] = time.perf_counter() - start
    return Executable(name, native, plan, in_specs, out_specs, donated, stages)


def stages_of(jaxpr: Jaxpr, in_specs: Sequence[ArraySpec], out_shardings: Sequence[Sharding | None], donated: Sequence[int],
              name: str, assignment: tuple) -> tuple[Stages, list[ArraySpec], list[ArraySpec]]:
    """All stages before code is generated, and how inputs and outputs are laid out; NumPy runs a program that is not scheduled."""
    stages = Stages(name, jaxpr)
    timer = _Timer(stages)
    program = timer("physicalize", physicalize, erase(jaxpr))
    program = stages.simplified = timer("simplify", simplify, program)
    if len(assignment) > 1 or has_shard_map(program):
        from weft.partition import partition
        from weft.partition.stack import stack

        result = stages.partition = timer("partition", partition.partition_for, program, in_specs, out_shardings, assignment)
        for callback, sharding in result.layout_callbacks:
            callback(sharding)
        local = stages.local = timer("simplify local", simplify, result.jaxpr)
        stacked = timer("stack", stack, local, result.axes, result.in_specs, result.out_specs, result.out_blocks)
        program = stages.stacked = timer("simplify stacked", simplify, stacked)
        shardings = result.out_shardings
        in_specs = [ArraySpec(s.aval, sharding, s.committed) for s, sharding in zip(in_specs, result.in_shardings)]
    else:
        if "inspect" in program.effects:
            from weft.compiler.rewrite.inspection import without_looks

            program, looks = without_looks(program)
            for callback in looks:
                callback(SingleDeviceSharding(assignment[0]))
            program = timer("simplify without looks", simplify, program)
        stages.stacked = program
        shardings = [SingleDeviceSharding(assignment[0])] * len(jaxpr.outvars)
        shardings = [want if want is not None else given for want, given in zip(out_shardings, shardings)]
    committed = len(assignment) > 1 or any(s.committed for s in in_specs) or any(s is not None for s in out_shardings)
    if config.engine == "native":
        stages.scheduled = timer("schedule", _scheduled, program, donated)
    return stages, list(in_specs), [ArraySpec(a, s, committed) for a, s in zip(jaxpr.out_avals, shardings)]


def _scheduled(program: Jaxpr, donated: Sequence[int]) -> Scheduled:
    scheduled = schedule(program, donated)
    if not scheduled.has_loops:
        return scheduled
    from weft.compiler.schedule.loop_outlining import with_loop_kernels  # a millisecond that most programs need not spend
    return with_loop_kernels(scheduled)


class _Timer:
    """Runs one stage after another: measures, verifies and dumps between them."""

    def __init__(self, stages: Stages):
        self.stages = stages
        self.number = len(stages.seconds)

    def __call__(self, title: str, run, *args):
        start = time.perf_counter()
        with paused:
            result = run(*args)
        self.stages.seconds[title] = time.perf_counter() - start
        if config.verify and isinstance(result, Jaxpr):
            from weft.ir import check

            check.check_jaxpr(result)
        if config.dump:
            from weft.ir import dump

            dump.write(config.dump, self.stages.name, self.number, title, result)
        self.number += 1
        return result
