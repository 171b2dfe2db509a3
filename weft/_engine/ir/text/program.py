"""Text of programs as scheduled: their slots, and their steps in order, kernels in the language of Loops.

    program jit(f)  arena 576 B
      s0 in 2048 B
      s4 temp 512 B at 0
    steps
      gemm f32 8x8x64 batch 2: s4 = s0 * s1
      launch k0(s4, s2, s3)
    kernel k0(in x0: f32[128], ...

Equal kernels are printed once. `sN` is slot N; `s4+64+i*8` adds bytes, `i` being the variable of a loop around the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft._engine.ir import program as P
from weft._engine.ir.loops import Kernel
from weft._engine.ir.loops_text import canonical, print_kernel
from weft._engine.util.record import replace


def program_text(program: P.Program) -> str:
    """The whole program, with the text of each distinct kernel after its steps.

    >>> from weft._engine.ir.program import BufRef, Copy, Program, Slot
    >>> slots = (Slot("in", 8), Slot("out", 8))
    >>> print(program_text(Program(slots, (Copy(BufRef(1), BufRef(0), 8),), 0, "f")))
    program f  arena 0 B
      s0 in 8 B
      s1 out 8 B
    steps
      copy 8 B: s1 = s0
    """
    names: dict[str, str] = {}
    kernels: dict[str, Kernel] = {}

    def name_of(kernel: Kernel) -> str:
        name = names.setdefault(canonical(kernel), f"k{len(names)}")
        kernels[name] = kernel
        return name

    lines = [f"program {program.name}  arena {program.arena_bytes} B"]
    for i, slot in enumerate(program.slots):
        place = (
            f" at {slot.offset}{' of a task' if slot.own else ''}" if slot.kind == "temp" else ""
        )
        lines.append(f"  s{i} {slot.kind} {slot.nbytes} B{place}")
    lines.append("steps")
    lines += _steps(program.steps, name_of, "  ")
    lines += [print_kernel(replace(kernel, name=name)) for name, kernel in kernels.items()]
    return "\n".join(lines)


def _steps(steps: Iterable[P.Step], name_of, pad: str) -> Iterator[str]:
    for step in steps:
        match step:
            case P.Launch():
                yield f"{pad}launch {name_of(step.kernel)}({', '.join(map(_ref, step.args))})"
            case P.Gemm():
                yield pad + _gemm(step, name_of)
            case P.Sort():
                operands = ", ".join(
                    _ref(ref) for ref in (step.source, step.previous) if ref is not None
                )
                results = ", ".join(_ref(ref) for ref in (step.out, step.places) if ref is not None)
                yield f"{pad}sort {step.kind} {step.type} {step.rows}x{step.n}({operands}) -> {results}"
            case P.Fft():
                inner = f" of {step.inner}" if step.inner > 1 else ""
                part = f" {step.part.taken} to {step.part.given}" if step.part else ""
                yield f"{pad}fft {step.kind} {step.type} {step.rows}x{step.n}{inner}{part}({_ref(step.source)}) -> {_ref(step.out)}"
            case P.LibraryCall():
                arrays = ", ".join(
                    f"{name}={dtype}[{size}] {_ref(ref)}" for name, ref, size, dtype in step.arrays
                )
                yield f"{pad}library {step.count} of {step.routine}({', '.join(map(_argument, step.arguments))}): {arrays}"
            case P.Copy():
                yield f"{pad}copy {step.nbytes} B: {_ref(step.dst)} = {_ref(step.src)}"
            case P.Join():
                parts = ", ".join(f"{width} B {_ref(ref)} at {at}" for ref, width, at in step.parts)
                yield f"{pad}join {step.rows} rows of {step.pitch} B: {_ref(step.out)} = {parts}"
            case P.Pad():
                over = "".join(
                    [
                        f", {count} of {extent} from {first}"
                        for extent, first, count, _ in reversed(step.dims)
                    ]
                )
                yield f"{pad}pad {step.run} of {step.row} B from {step.lead}{over}: {_ref(step.dst)} = {_ref(step.src)}"
            case P.HostCall():
                operands = ", ".join(
                    f"{dtype}{list(shape)} {_ref(ref)}" for ref, shape, dtype in step.ins
                )
                results = ", ".join(
                    f"{dtype}{list(shape)} {_ref(ref)}" for ref, shape, dtype in step.outs
                )
                yield f"{pad}host {getattr(step.fn, '__name__', 'call')}({operands}) -> {results}"
            case P.Start():
                yield f"{pad}start {step.what}: {_ref(step.source)} -> {_ref(step.out)} as {_ref(step.request)}"
            case P.Wait():
                yield f"{pad}wait {_ref(step.request)}"
            case P.Loop():
                yield f"{pad}for {step.var} in {step.extent}{' backward' if step.reverse else ''}{' in parallel' if step.tasks else ''}"
                yield from _steps(step.body, name_of, pad + "  ")
            case P.WhileLoop():
                yield f"{pad}while {_ref(step.cond)} after"
                yield from _steps(step.cond_body, name_of, pad + "  ")
                yield f"{pad}do"
                yield from _steps(step.body, name_of, pad + "  ")
            case P.Branch():
                for i, branch in enumerate(step.branches):
                    yield f"{pad}case {i} of {_ref(step.index)}"
                    yield from _steps(branch, name_of, pad + "  ")


def _gemm(step: P.Gemm, name_of) -> str:
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
        result = f"{_ref(step.c)} = {_ref(step.a)} * {_ref(step.b)}"
    else:
        result = f"{_ref(step.a)} * {_ref(step.b)} to {name_of(step.epilogue)}({', '.join(map(_ref, step.epilogue_args))})"
    return f"gemm {types} {sizes}{batch}{outer}{runs}{band}{groups}: {result}"


def _argument(argument) -> str:
    if isinstance(argument, tuple):
        return (
            f"{argument[0]}+{argument[1]}"
            if len(argument) == 2
            else f"{argument[1]}[{argument[2]}]"
        )
    return repr(argument) if isinstance(argument, str) and len(argument) == 1 else str(argument)


def _ref(ref: P.BufRef) -> str:
    offset = f"+{ref.offset}" if ref.offset else ""
    return f"s{ref.slot}{offset}" + "".join(f"+{var}*{stride}" for var, stride in ref.strides)
