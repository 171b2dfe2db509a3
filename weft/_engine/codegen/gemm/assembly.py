"""Which processors have functions in assembler, and what modules of those have in common.

In:   lines of assembler.
Out:  modules of LLVM IR that hold them. Functions follow the calling convention of Linux.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from weft._engine.codegen.ir.gemm_types import Machine, Recipe


def has_avx512(machine: Machine) -> bool:
    """Whether the functions of `avx512` are those of a machine."""
    return machine.masks and sys.platform == "linux"


def has_avx2(machine: Machine) -> bool:
    """Whether the functions of `avx2` are those of a machine."""
    return machine.vector_bytes == 32 and sys.platform == "linux"


def finds_runs(recipe: Recipe) -> bool:
    """Whether there are kernels that find A by lists (`avx512.indirect_operand`)."""
    return (
        has_avx512(recipe.machine)
        and recipe.unpacked_ok
        and not recipe.is_complex
        and not recipe.quads
    )


def as_module(lines: Sequence[str]) -> str:
    """Return lines of assembler as a module that has no functions of its own, or may go on with some.

    >>> as_module(["nop"])
    'module asm "nop"\\n'
    """
    return "".join([f'module asm "{line}"\n' for line in lines])


def function(name: str, body: Sequence[str], kept: Sequence[str]) -> list[str]:
    """Return a function of its module alone that keeps some registers; `body` may jump to `.L{name}_end`.

    >>> function("f", ["incq %rbx"], ["%rbx"])[2:5]
    ['f:', 'pushq %rbx', 'incq %rbx']
    """
    return [
        ".p2align 4",
        f".type {name},@function",
        f"{name}:",
        *[f"pushq {r}" for r in kept],
        *body,
        f".L{name}_end:",
        *[f"popq {r}" for r in reversed(kept)],
        "vzeroupper",
        "retq",
        f".size {name}, .-{name}",
    ]
