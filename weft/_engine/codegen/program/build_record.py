"""What a native program was made of: kernels with their code, and the texts of its entry.

In:   kernels, and a machine.
Out:  `BuildRecord`, which writes their LLVM IR, Loops text or assembly when somebody asks.
Next: `program` makes it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from weft._engine.codegen.kernel import kernel_emitter
from weft._engine.codegen.toolchain import target
from weft._engine.ir import loops_text
from weft._engine.ir.loops import Kernel, check
from weft._engine.ir.program import Program
from weft._engine.util.record import record


@record(frozen=False)
class CompiledKernel:
    """A kernel in memory: the address of its function, and what it was made from."""

    symbol: str
    address: int
    kernel: Kernel
    from_disk: bool
    keepalive: object
    stored: str  # the key of the object that holds it
    is_draft: bool = False


@record
class BuildRecord:
    """What a native program was made of. `stored` are the keys of its objects, each after those that it names."""

    program: Program
    compiled_kernels: tuple[CompiledKernel, ...]
    entry_texts: tuple[str, ...]
    stored: tuple[str, ...]

    def ir_text(self) -> str:
        """LLVM IR of the kernels and the entry."""
        texts = [
            f"; kernel {made.kernel.name}\n{kernel_ir(made.kernel, made.symbol)}"
            for made in self.compiled_kernels
        ]
        return "\n".join([*texts, *[f"; entry\n{text}" for text in self.entry_texts]])

    def loops_text(self) -> str:
        """The kernels as Loops text."""
        return "\n\n".join([loops_text.print_kernel(made.kernel) for made in self.compiled_kernels])

    def assembly(self) -> str:
        """Assembly of the kernels and the entry."""
        machine = target.current()
        texts = [
            target.assembly(kernel_ir(made.kernel, made.symbol), machine)
            for made in self.compiled_kernels
        ]
        return "\n".join([*texts, *[target.assembly(text, machine) for text in self.entry_texts]])


def kernel_ir(kernel: Kernel, symbol: str = "kernel") -> str:
    """LLVM IR of a kernel."""
    return module_ir([(kernel, symbol)], target.current())


def module_ir(kernels: Sequence[tuple[Kernel, str]], machine: target.Target) -> str:

    if os.environ.get("WEFT_VERIFY") == "1":
        for kernel, _ in kernels:
            check(kernel)
    return kernel_emitter.module_ir(kernels, machine)
