"""The text of scheduled programs: their slots, their steps in order, and their kernels in the text format of the Loops IR.

    program jit(f)  arena 576 B
      s0 in 2048 B
      s4 temp 512 B at 0
    steps
      gemm f32 8x8x64 batch 2: s4 = s0 * s1
      launch k0(s4, s2, s3)
    kernel k0(in x0: f32[128], ...

Equal kernels are printed once. `sN` is slot N; `s4+64+i*8` is an address with an offset in bytes, where `i` is the variable of an
enclosing loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from weft._engine.ir import program as P
from weft._engine.ir.loops import LoopsKernel
from weft._engine.ir.loops_text import canonical, print_kernel
from weft._engine.util.record import replace
from weft._engine.util.trees.narrowing import is_tuple


def program_text(program: P.ScheduledProgram) -> str:
    """Return the text of a program, with the text of each distinct kernel after its steps.

    >>> from weft._engine.ir.program import BufferSlot, BufRef, Copy, ScheduledProgram, SlotKind
    >>> slots = (BufferSlot(SlotKind.INPUT, 8), BufferSlot(SlotKind.OUTPUT, 8))
    >>> print(program_text(ScheduledProgram(slots, (Copy(BufRef(1), BufRef(0), 8),), 0, "f")))
    program f  arena 0 B
      s0 in 8 B
      s1 out 8 B
    steps
      copy 8 B: s1 = s0
    """
    names: dict[str, str] = {}
    kernels: dict[str, LoopsKernel] = {}

    def name_of(kernel: LoopsKernel) -> str:
        name = names.setdefault(canonical(kernel), f"k{len(names)}")
        kernels[name] = kernel
        return name

    lines = [f"program {program.name}  arena {program.arena_bytes} B"]
    for i, slot in enumerate(program.slots):
        place = f" at {slot.offset}{' of a task' if slot.own else ''}" if slot.is_temp else ""
        lines.append(f"  s{i} {slot.kind} {slot.nbytes} B{place}")
    lines.append("steps")
    lines += _steps(program.steps, name_of, "  ")
    lines += [print_kernel(replace(kernel, name=name)) for name, kernel in kernels.items()]
    return "\n".join(lines)


#: a function that returns the name of a kernel in the text
_NameOf = Callable[[LoopsKernel], str]


def _steps(steps: Iterable[P.Step], name_of: _NameOf, pad: str) -> Iterator[str]:
    for step in steps:
        if type(step) in _BLOCKS:
            for head, body in _BLOCKS[type(step)](step):
                yield pad + head
                yield from _steps(body, name_of, pad + "  ")
        elif isinstance(step, P.Launch):
            yield f"{pad}launch {name_of(step.kernel)}({_refs(step.args)})"
        elif isinstance(step, P.Gemm):
            yield pad + _gemm(step, name_of)
        else:
            yield pad + _LINES[type(step)](step)


def _sort(step: P.Sort) -> str:
    operands, results = _refs((step.source, step.previous)), _refs((step.out, step.places))
    return f"sort {step.kind} {step.type} {step.rows}x{step.n}({operands}) -> {results}"


def _fft(step: P.Fft) -> str:
    inner = f" of {step.inner}" if step.inner > 1 else ""
    part = f" {step.part.in_count} to {step.part.out_count}" if step.part else ""
    operands = f"{step.rows}x{step.n}{inner}{part}({_ref(step.source)})"
    return f"fft {step.kind} {step.type} {operands} -> {_ref(step.out)}"


def _library_call(step: P.LibraryCall) -> str:
    arrays = ", ".join(
        f"{name}={dtype}[{size}] {_ref(ref)}" for name, ref, size, dtype in step.arrays
    )
    arguments = ", ".join(map(_argument, step.arguments))
    return f"library {step.count} of {step.routine}({arguments}): {arrays}"


def _join(step: P.JoinStep) -> str:
    parts = ", ".join(f"{width} B {_ref(ref)} at {at}" for ref, width, at in step.parts)
    return f"join {step.rows} rows of {step.pitch} B: {_ref(step.out)} = {parts}"


def _pad(step: P.Pad) -> str:
    over = "".join(
        f", {count} of {extent} from {first}" for extent, first, count, _ in reversed(step.dims)
    )
    sizes = f"{step.run} of {step.row} B from {step.lead}{over}"
    return f"pad {sizes}: {_ref(step.dst)} = {_ref(step.src)}"


def _host_call(step: P.HostCallStep) -> str:
    operands, results = (
        ", ".join(f"{dtype}{list(shape)} {_ref(ref)}" for ref, shape, dtype in arrays)
        for arrays in (step.ins, step.outs)
    )
    return f"host {getattr(step.fn, '__name__', 'call')}({operands}) -> {results}"


def _start(step: P.Start) -> str:
    operands = f"{_ref(step.source)} -> {_ref(step.out)}"
    return f"start {step.what}: {operands} as {_ref(step.request)}"


def _copy(step: P.Copy) -> str:
    return f"copy {step.nbytes} B: {_ref(step.dst)} = {_ref(step.src)}"


def _wait(step: P.Wait) -> str:
    return f"wait {_ref(step.request)}"


_LINES: dict[type, Callable[..., str]] = {
    P.Sort: _sort,
    P.Fft: _fft,
    P.LibraryCall: _library_call,
    P.Copy: _copy,
    P.JoinStep: _join,
    P.Pad: _pad,
    P.HostCallStep: _host_call,
    P.Start: _start,
    P.Wait: _wait,
}


def _loop(step: P.Loop) -> list[_Block]:
    order = f"{' backward' if step.reverse else ''}{' in parallel' if step.tasks else ''}"
    return [(f"for {step.var} in {step.extent}{order}", step.body)]


def _while(step: P.WhileLoop) -> list[_Block]:
    return [(f"while {_ref(step.cond)} after", step.cond_body), ("do", step.body)]


def _branch(step: P.Branch) -> list[_Block]:
    return [(f"case {i} of {_ref(step.index)}", branch) for i, branch in enumerate(step.branches)]


#: the head of a block, and its steps
_Block = tuple[str, tuple[P.Step, ...]]
_BLOCKS: dict[type, Callable[..., list[_Block]]] = {
    P.Loop: _loop,
    P.WhileLoop: _while,
    P.Branch: _branch,
}


def _gemm(step: P.Gemm, name_of: _NameOf) -> str:
    sizes = f"{step.m}x{step.n}x{step.k}"
    batch = "".join(f" batch {extent}" for extent, *_ in step.batch)
    outer = "".join(f" outer {extent}" for extent, *_ in step.outer_k)
    runs = "".join(
        f" {name} of {extent}"
        for name, dims in (("rows", step.a_rows), ("cols", step.b_cols))
        for extent, _ in dims
    )
    band = f" band {step.band[0]}..{step.band[1]}" if step.band else ""
    groups = ""
    if step.first is not None and step.count is not None:
        groups = f" {step.grouped} of {'x'.join([str(e) for e, *_ in step.groups])} by {_ref(step.first)}, {_ref(step.count)}"
    types = step.in_type if step.in_type == step.out_type else f"{step.in_type}->{step.out_type}"
    if step.epilogue is None:
        result = f"{_refs((step.c,))} = {_ref(step.a)} * {_ref(step.b)}"
    else:
        result = f"{_ref(step.a)} * {_ref(step.b)} to {name_of(step.epilogue)}({_refs(step.epilogue_args)})"
    return f"gemm {types} {sizes}{batch}{outer}{runs}{band}{groups}: {result}"


def _argument(argument: Any) -> str:
    if is_tuple(argument):
        return (
            f"{argument[0]}+{argument[1]}"
            if len(argument) == 2
            else f"{argument[1]}[{argument[2]}]"
        )
    return repr(argument) if isinstance(argument, str) and len(argument) == 1 else str(argument)


def _refs(refs: Iterable[P.BufRef | None]) -> str:
    return ", ".join([_ref(ref) for ref in refs if ref is not None])


def _ref(ref: P.BufRef) -> str:
    offset = f"+{ref.offset}" if ref.offset else ""
    return f"s{ref.slot}{offset}" + "".join(f"+{var}*{stride}" for var, stride in ref.strides)
