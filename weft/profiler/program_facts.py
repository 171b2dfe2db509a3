"""The steps of a program, for profiles: names, lines, costs, and the memory that is live at each step.

In:   an executable, and its schedule with origins.
Out:  `ProgramFacts`, plain data that is written to files.
How:  FLOPs are counted as XLA counts them, transcendental functions included. Bytes are the sizes of the buffers that a step accesses.
      A step that computes several equations has the line of the one with the most FLOPs.
Laws: the maximum of `StepFacts.live_bytes` plus the bytes of arguments and results is the memory that the compiler plans.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from weft._engine import processes
from weft._engine.backends.base import LocalProgram
from weft._engine.compiler.schedule.schedule import Scheduled
from weft._engine.compiler.schedule.step_accesses import accesses_of
from weft._engine.core.primitive import ElementwiseOp
from weft._engine.hlo.cost import module_cost
from weft._engine.hlo.text.hlo_text import lower_global
from weft._engine.ir import program as P
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal
from weft._engine.partition.cost import CollectiveRecord
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import record
from weft._engine.util.source import CollectiveLine, SourceLine

#: number of buffers that are listed for the peak of memory
MOST_BUFFERS = 12


@record
class StepFacts:
    """One step of a schedule. `parent` is the number of the loop or branch that contains it, or -1.

    `kind` is one of kernel, matmul, sort, FFT, library call, copy, host callback, loop, branch, exchange and wait. `line` is
    `file.py:12`, `text` the source of the line. `collective` is the kind of the collective that the step implements, `reason` its reason;
    both are "" for other steps.
    `bytes` and `flops` are of one run; steps that consist of other steps have none. `live_bytes` is the extent of the temporaries that
    are live during the step.
    """

    number: int
    parent: int
    kind: str
    name: str
    line: str
    text: str
    equations: tuple[str, ...]
    collective: str
    reason: str
    bytes: int
    flops: int
    live_bytes: int


@record
class BufferFacts:
    """A buffer that is live at the peak of memory, and the line of the step that writes it first."""

    name: str
    bytes: int
    line: str


@record
class ProgramFacts:
    """A program: its steps in order, each before the steps inside it, and its memory in bytes, without constants."""

    name: str
    devices: tuple[int, ...]
    steps: tuple[StepFacts, ...]
    argument_bytes: int
    result_bytes: int  # without results in the memory of donated arguments
    peak_step: int
    peak_buffers: tuple[BufferFacts, ...]

    @property
    def peak_bytes(self) -> int:
        """The most memory that arguments, results and temporaries take at once."""
        return self.memory_at(self.peak_step) if self.steps else self.memory_at(-1)

    def memory_at(self, step: int) -> int:
        """Return the bytes of arguments, results and live temporaries during a step; -1 is between steps."""
        live = self.steps[step].live_bytes if step >= 0 else 0
        return self.argument_bytes + self.result_bytes + live


def schedule_of(executable: Any) -> Scheduled | None:
    """Return the schedule of an executable, whose steps have their equations; None if its backend has none."""
    stages = executable.stages
    return executable.request.backend.schedule(stages.program, stages.lowered)


def program_facts(executable: Any, scheduled: Scheduled | None) -> ProgramFacts:
    """Return the facts about a program; without a schedule there are no steps."""
    stages = executable.stages
    ids = _devices_here(stages.program)
    arguments = sum(s.storage_bytes for s in executable.in_specs)
    results = sum(
        s.storage_bytes for i, s in enumerate(executable.out_specs) if i not in executable.aliases
    )
    if scheduled is None:
        return ProgramFacts(executable.name, ids, (), arguments, results, -1, ())
    steps = list(P.iterate_steps(scheduled.program.steps))
    memory = _MemoryOverSteps(scheduled.program, steps)
    parents = _parents(steps)
    context = _Context(memory, _reasons(stages.collectives), {})
    facts = tuple([_facts(i, step, parents[i], context) for i, step in enumerate(steps)])
    peak = max(range(len(facts)), key=lambda i: facts[i].live_bytes, default=-1)
    buffers = _peak_buffers(scheduled.program, memory, facts, peak, executable.arg_names)
    return ProgramFacts(executable.name, ids, facts, arguments, results, peak, buffers)


def _devices_here(program: LocalProgram) -> tuple[int, ...]:
    """Return the numbers of the devices of a program that this process drives."""
    job, owners = processes.current(), program.owners
    if job is None or owners is None:
        return program.device_ids
    return tuple([d for d, owner in zip(program.device_ids, owners.flat) if owner == job.rank])


def _parents(steps: Sequence[P.Step]) -> list[int]:
    """Return the number of the step that contains each step, or -1."""
    numbers = {id(step): i for i, step in enumerate(steps)}
    parents = [-1] * len(steps)
    for i, step in enumerate(steps):
        for body in P.bodies_of(step):
            for inner in body:
                parents[numbers[id(inner)]] = i
    return parents


#: (kind, line) of a collective -> its reasons
_Reasons = Mapping[tuple[str, SourceLine], str]


def _reasons(records: Sequence[CollectiveRecord]) -> _Reasons:
    """Return the reasons of collectives; several of one kind and line are joined."""
    reasons: dict[tuple[str, SourceLine], dict[str, None]] = {}
    for one in records:
        for part in one.parts or (one,):
            if part.source is not None:
                reasons.setdefault((one.kind, part.source), {})[part.reason] = None
    return {key: "; ".join(texts) for key, texts in reasons.items()}


@record
class _Context:
    """What the facts about steps are computed from; `flops` has the FLOPs of equations that were counted before."""

    memory: _MemoryOverSteps
    reasons: _Reasons
    flops: dict[Hashable, int]

    def flops_of(self, eqn: Eqn) -> int:
        """Return the FLOPs of an equation; elementwise ones of one type are counted once."""
        key: Hashable = eqn
        if isinstance(eqn.primitive, ElementwiseOp):
            types = tuple([atom.aval.str_short() for atom in (*eqn.invars, *eqn.outvars)])
            key = eqn.primitive, types, str(eqn.params)
        if key not in self.flops:
            self.flops[key] = _flops(eqn)
        return self.flops[key]


def _facts(number: int, step: P.Step, parent: int, context: _Context) -> StepFacts:
    memory, reasons = context.memory, context.reasons
    line = _main_line(step.origin, context)
    is_composite = bool(P.bodies_of(step))
    lines = [eqn.source for eqn in step.origin if isinstance(eqn.source, CollectiveLine)]
    because = [reasons.get((line.collective, line), "") for line in lines]
    return StepFacts(
        number,
        parent,
        _KINDS[type(step)],
        _name(step),
        "" if line is None else line.short,
        "" if line is None else line.text,
        tuple(dict.fromkeys(eqn.primitive.name for eqn in step.origin)),
        ", ".join(dict.fromkeys(line.collective for line in lines)),
        "; ".join(dict.fromkeys(filter(None, because))),
        0 if is_composite else _bytes(step, memory.program),
        sum(map(context.flops_of, step.origin)) if isinstance(step, _COMPUTING) else 0,
        memory.extents[number],
    )


_KINDS: Mapping[type, str] = {
    P.Launch: "kernel",
    P.Gemm: "matmul",
    P.Sort: "sort",
    P.Fft: "FFT",
    P.LibraryCall: "library call",
    P.Copy: "copy",
    P.JoinStep: "copy",
    P.Pad: "copy",
    P.HostCallStep: "host callback",
    P.Loop: "loop",
    P.WhileLoop: "loop",
    P.Branch: "branch",
    P.Start: "exchange",
    P.Wait: "wait",
}


#: steps that compute their equations; others move data for them, or run other steps
_COMPUTING = (P.Launch, P.Gemm, P.Sort, P.Fft, P.LibraryCall)


@functools.singledispatch
def _name(step: P.Step) -> str:
    """Return the name of a step in timelines."""
    return _KINDS[type(step)]


@_name.register
def _(step: P.Launch) -> str:
    return step.kernel.name


@_name.register
def _(step: P.Gemm) -> str:
    batch = math.prod(extent for extent, *_ in (*step.batch, *step.outer_k, *step.groups))
    times = f"{batch} x " if batch != 1 else ""
    fused = "" if step.epilogue is None else f" + {step.epilogue.name}"
    return f"matmul {times}{step.m}x{step.k}x{step.n} {step.in_type}{fused}"


@_name.register
def _(step: P.Sort) -> str:
    return f"sort {step.rows}x{step.n} {step.type}"


@_name.register
def _(step: P.Fft) -> str:
    return f"fft {step.rows}x{step.n} {step.type}"


@_name.register
def _(step: P.LibraryCall) -> str:
    return f"{step.routine} x {step.count}"


@_name.register
def _(step: P.HostCallStep) -> str:
    return getattr(step.fn, "__name__", "callback")


@_name.register
def _(step: P.Loop) -> str:
    return f"loop of {step.extent}"


@_name.register
def _(step: P.WhileLoop) -> str:
    return "while loop"


@_name.register
def _(step: P.Start) -> str:
    return f"start {step.what}"


def _main_line(eqns: Sequence[Eqn], context: _Context) -> SourceLine | None:
    """Return the line of the equation with the most FLOPs, the last one of equals."""
    with_line = [eqn for eqn in eqns if eqn.source is not None]
    if not with_line:
        return None
    best = max(range(len(with_line)), key=lambda i: (context.flops_of(with_line[i]), i))
    return with_line[best].source


def _flops(eqn: Eqn) -> int:
    """Return the FLOPs and transcendental functions of an equation; 0 for one that has no HLO, such as an exchange."""
    read = list(dict.fromkeys(a for a in eqn.invars if not isinstance(a, Literal)))
    try:
        cost = module_cost(lower_global(Jaxpr([], [], read, eqn.outvars, [eqn]), "step"))
    except NotImplementedError:
        return 0
    return round(cost["flops"] + cost["transcendentals"])


def _bytes(step: P.Step, program: P.ScheduledProgram) -> int:
    """Return the bytes that a step reads and writes; bytes that it reads repeatedly count once."""
    sizes: dict[tuple[P.BufRef, bool], int] = {}
    for access in accesses_of(step):
        begin, end = access.span()
        count = math.prod(extent for extent, stride in access.dims if stride)
        nbytes = min(count * access.nbytes, end - begin, program.slots[access.ref.slot].nbytes)
        key = access.ref, access.writes
        sizes[key] = max(sizes.get(key, 0), nbytes)
    return sum(sizes.values())


# --- memory


class _MemoryOverSteps:
    """The live range of each temporary, in numbers of steps, and the extent of live temporaries at each step."""

    def __init__(self, program: P.ScheduledProgram, steps: Sequence[P.Step]):
        self.program = program
        self.ranges: dict[int, tuple[int, int]] = {}
        self.writers: dict[int, int] = {}  # slot -> the first step that writes it
        loops: list[tuple[int, int]] = []  # the first and last step of each loop, inner loops first
        for number, step in enumerate(steps):
            for slot in self._slots_of(step, number):
                first, _ = self.ranges.get(slot, (number, number))
                self.ranges[slot] = first, number
            inside = sum(1 for body in P.bodies_of(step) for _ in P.iterate_steps(body))
            if inside and not isinstance(step, P.Branch):
                loops.insert(0, (number, number + inside))
        for first, last in loops:
            self._extend_over_loop(first, last)
        self.extents = [0] * len(steps)
        for slot, (first, last) in self.ranges.items():
            end = program.slots[slot].offset + _aligned(program.slots[slot].nbytes)
            for i in range(first, last + 1):
                self.extents[i] = max(self.extents[i], end)

    def _slots_of(self, step: P.Step, number: int) -> list[int]:
        """Return the slots of temporaries that a step uses itself; note the steps that write."""
        if isinstance(step, P.WhileLoop | P.Branch):
            slots = [step.cond.slot if isinstance(step, P.WhileLoop) else step.index.slot]
        elif isinstance(step, P.Loop):
            slots = []
        else:
            accesses = accesses_of(step)
            slots = [access.ref.slot for access in accesses]
            for access in accesses:
                if access.writes:
                    self.writers.setdefault(access.ref.slot, number)
        is_shared = lambda slot: slot.is_temp and not slot.own
        return [slot for slot in dict.fromkeys(slots) if is_shared(self.program.slots[slot])]

    def _extend_over_loop(self, first: int, last: int) -> None:
        """Let the temporaries that live inside of a loop and before or after it live during the whole loop."""
        for slot, (begin, end) in self.ranges.items():
            if begin < first <= end or begin <= last < end:
                self.ranges[slot] = min(begin, first), max(end, last)

    def live_at(self, step: int) -> list[int]:
        """Return the slots of the temporaries that are live during a step."""
        return [slot for slot, (first, last) in self.ranges.items() if first <= step <= last]


def _aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // MODEL.buffer_alignment) * MODEL.buffer_alignment


def _peak_buffers(
    program: P.ScheduledProgram,
    memory: _MemoryOverSteps,
    facts: Sequence[StepFacts],
    peak: int,
    arg_names: Sequence[str],
) -> tuple[BufferFacts, ...]:
    """Return the largest buffers at the peak, largest first."""
    buffers: list[BufferFacts] = []
    live = {*memory.live_at(peak)}
    arguments = results = 0
    for i, slot in enumerate(program.slots):
        writer = facts[memory.writers[i]] if i in memory.writers else None
        line = "" if writer is None else writer.line
        if slot.is_input:
            name = arg_names[arguments] if arguments < len(arg_names) else f"argument {arguments}"
            buffers.append(BufferFacts(name, slot.nbytes, line))
            arguments += 1
        elif slot.is_output:
            buffers.append(BufferFacts(f"result {results}", slot.nbytes, line))
            results += 1
        elif i in live:
            name = "temporary" if writer is None else f"written by {writer.name}"
            buffers.append(BufferFacts(name, slot.nbytes, line))
    buffers.sort(key=lambda b: -b.bytes)
    return tuple(buffers[:MOST_BUFFERS])
