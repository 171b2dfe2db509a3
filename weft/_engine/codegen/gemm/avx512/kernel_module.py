"""One module of the register kernels that a matmul needs.

In:   a types and the names of kernels.
Out:  the text of an assembly module.
Next: `gemm_asm` writes kernels, `indirect_operand` writes kernels that find A through lists.
"""

from __future__ import annotations

from collections.abc import Collection

from weft._engine.codegen.gemm.assembler_support import as_module
from weft._engine.codegen.gemm.avx512.gemm_asm import Avx512RegisterKernel
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import kernel_name, tiles


def module(types: GemmTypes, needed: Collection[str]) -> str:
    """Return a module with the needed kernels (see `gemm_micro`).

    They add `src` if "blocks" is needed, and prefetch `streams` if "epilogue" is needed.
    """
    kernels = [
        Avx512RegisterKernel(types, *tile) for tile in tiles(types) if kernel_name(*tile) in needed
    ]
    if any("_runs" in name for name in needed):
        from weft._engine.codegen.gemm.avx512 import indirect_operand

        kernels += indirect_operand.kernels(types, needed)
    lines = [
        line
        for kernel in kernels
        for line in kernel.lines("blocks" in needed, "epilogue" in needed)
    ]
    if types.quads:  # permutation of lanes that restores the order of columns after quads are added
        lines = [
            ".p2align 6",
            ".Lorder:",
            f".long {','.join(str(i % 4 * 4 + i // 4) for i in range(16))}",
            *lines,
        ]
    return as_module(lines)
