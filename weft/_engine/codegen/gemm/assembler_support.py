"""Processors with assembly functions, and the form of assembly modules.

In:   lines of assembly.
Out:  modules of LLVM IR that contain them. Functions follow the calling convention of Linux.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from weft._engine.codegen.ir.gemm_types import GemmTypes, VectorUnit


def has_avx512(machine: VectorUnit) -> bool:
    """Return whether a machine can run the functions of `avx512`."""
    return machine.masks and sys.platform == "linux"


def has_avx2(machine: VectorUnit) -> bool:
    """Return whether a machine can run the functions of `avx2`."""
    return machine.vector_bytes == 32 and sys.platform == "linux"


def has_indirect_kernels(types: GemmTypes) -> bool:
    """Return whether there are kernels that read A through lists (`avx512.indirect_operand`)."""
    return (
        has_avx512(types.machine)
        and types.can_read_a_in_place
        and not types.is_complex
        and not types.quads
    )


def as_module(lines: Sequence[str]) -> str:
    """Return lines of assembly as an LLVM module, to which functions may be appended.

    >>> as_module(["nop"])
    'module asm "nop"\\n'
    """
    return "".join([f'module asm "{line}"\n' for line in lines])


def function(name: str, body: Sequence[str], saved_registers: Sequence[str]) -> list[str]:
    """Return a module-local function that saves `saved_registers`; `body` may jump to `.L{name}_end`.

    >>> function("f", ["incq %rbx"], ["%rbx"])[2:5]
    ['f:', 'pushq %rbx', 'incq %rbx']
    """
    return [
        ".p2align 4",
        f".type {name},@function",
        f"{name}:",
        *[f"pushq {r}" for r in saved_registers],
        *body,
        f".L{name}_end:",
        *[f"popq {r}" for r in reversed(saved_registers)],
        "vzeroupper",
        "retq",
        f".size {name}, .-{name}",
    ]
