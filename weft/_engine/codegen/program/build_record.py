"""The record of a native program's build: kernels with their code, and the text of its entry.

In:   kernels, and a machine.
Out:  `BuildRecord`, which writes their LLVM IR, Loops text or assembly on demand.
Next: `program` builds it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from weft._engine.codegen.kernel import kernel_emitter
from weft._engine.codegen.toolchain import target
from weft._engine.ir import loops_text
from weft._engine.ir.loops import LoopsKernel, check
from weft._engine.ir.program import ScheduledProgram
from weft._engine.util.record import record


@record(frozen=False)
class CompiledKernel:
    """A kernel in memory: the address of its function, and its source."""

    symbol: str
    address: int
    kernel: LoopsKernel
    from_disk: bool
    keepalive: object
    stored: str  # cache key of the object that contains it
    is_draft: bool = False


@record
class BuildRecord:
    """The parts of a native program. `stored` lists the cache keys of its objects, each after the
    objects it refers to."""

    program: ScheduledProgram
    compiled_kernels: tuple[CompiledKernel, ...]
    entry_texts: tuple[str, ...]
    stored: tuple[str, ...]

    def ir_text(self) -> str:
        """Return the LLVM IR of the kernels and the entry."""
        texts = [
            f"; kernel {compiled.kernel.name}\n{kernel_ir(compiled.kernel, compiled.symbol)}"
            for compiled in self.compiled_kernels
        ]
        return "\n".join([*texts, *[f"; entry\n{text}" for text in self.entry_texts]])

    def loops_text(self) -> str:
        """Return the Loops text of the kernels."""
        return "\n\n".join(
            [loops_text.print_kernel(compiled.kernel) for compiled in self.compiled_kernels]
        )

    def assembly(self) -> str:
        """Return the assembly of the kernels and the entry."""
        machine = target.current()
        texts = [
            target.assembly(kernel_ir(compiled.kernel, compiled.symbol), machine)
            for compiled in self.compiled_kernels
        ]
        return "\n".join([*texts, *[target.assembly(text, machine) for text in self.entry_texts]])


def kernel_ir(kernel: LoopsKernel, symbol: str = "kernel") -> str:
    """Return the LLVM IR of a kernel."""
    return module_ir([(kernel, symbol)], target.current())


def module_ir(kernels: Sequence[tuple[LoopsKernel, str]], machine: target.CpuTarget) -> str:

    if os.environ.get("WEFT_VERIFY") == "1":
        for kernel, _ in kernels:
            check(kernel)
    return kernel_emitter.module_ir(kernels, machine)
