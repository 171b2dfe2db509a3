"""The functions of a matmul that exist in assembly, and the modules that define them.

In:   a types and the names of kernels, or the feature that names a packing ("pack_b_copy").
Out:  the writer of a kernel module; the name and the text of the function that packs lines of an
      operand; `pack_a` or `pack_b` as jumps to such a function if no other code is needed.
Laws: packing functions are `void(ptr dst, i64 dst_step, ptr src, i64 src_step, i64 lines, i64
      length)`, for all instruction sets.
Next: `amx.tile_kernels`, `avx512.kernel_module` and `avx512.gemm_asm_pack`, `avx2.register_kernels` and
      `avx2.pack_lines`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import ModuleType

from weft._engine.codegen.gemm import assembler_support
from weft._engine.codegen.gemm.assembler_support import as_module
from weft._engine.codegen.ir.gemm_types import GemmTypes, VectorUnit

_DST_STEP, _SRC, _SRC_STEP, _LINES, _LENGTH = "%rsi", "%rdx", "%rcx", "%r8", "%r9"


def kernels(types: GemmTypes) -> Callable[[GemmTypes, Collection[str]], str] | None:
    """Return the writer of modules of a types's register kernels; None if LLVM compiles them."""
    if types.has_tile_registers:
        from weft._engine.codegen.gemm.amx import tile_kernels

        return tile_kernels.module
    if assembler_support.has_avx512(types.machine):
        from weft._engine.codegen.gemm.avx512 import kernel_module

        return kernel_module.module
    if assembler_support.has_avx2(types.machine) and (types.is_float or types.acc_bytes == 4):
        # the AVX2 kernels do not multiply 64-bit integers
        from weft._engine.codegen.gemm.avx2 import register_kernels

        return register_kernels.module
    return None


def _writer(machine: VectorUnit) -> ModuleType | None:
    """Return the module with the packing functions for a machine; None if there is none."""
    if assembler_support.has_avx512(machine):
        from weft._engine.codegen.gemm.avx512 import gemm_asm_pack

        return gemm_asm_pack
    if assembler_support.has_avx2(machine):
        from weft._engine.codegen.gemm.avx2 import pack_lines

        return pack_lines
    return None


def function(types: GemmTypes, feature: str) -> str | None:
    """Return the name of the assembly function for a packing feature; None if there is none."""
    _, operand, packing = feature.split("_")
    writer = _writer(types.machine)
    return writer.function(types, packing, operand) if writer is not None else None


def has_only_these_packings(types: GemmTypes, operand: str, needed: Collection[str]) -> bool:
    """Return whether a single assembly function does all packing of an operand."""
    features = [name for name in needed if name.startswith(f"pack_{operand}")]
    return len(features) == 1 and function(types, features[0]) is not None


def entry(types: GemmTypes, feature: str) -> str:
    """Return `pack_a` or `pack_b` as a jump to an assembly function.

    Arguments are reordered first (see `gemm_pack`).
    """
    name, (_, operand, packing) = function(types, feature) or "", feature.split("_")
    if operand == "a":  # dst, row_bytes, src, ms, ks, rows; k is on the stack
        order = {
            "copy": [f"movq {_LENGTH}, {_LINES}", f"movq 8(%rsp), {_LENGTH}"],
            "transpose": [f"movq {_LINES}, {_SRC_STEP}", f"movq 8(%rsp), {_LINES}"],
        }[packing]
    else:  # dst, src, ns, ks, cols, k
        order = {
            "copy": [f"movq %rsi, {_SRC}", f"xchgq {_LINES}, {_LENGTH}"],
            "transpose": [f"movq %rdx, {_SRC_STEP}", f"movq %rsi, {_SRC}"],
        }[packing] + [f"movq ${types.panel_row_bytes}, {_DST_STEP}"]
    order += [f"imulq ${types.in_bytes}, {_LENGTH}, {_LENGTH}"] if counts_bytes(name) else []
    title = f"pack_{operand}"
    return as_module(
        [
            ".p2align 4",
            f".globl {title}",
            f".type {title},@function",
            f"{title}:",
            *order,
            f"jmp {name}",
            f".size {title}, .-{title}",
        ]
    )


def counts_bytes(name: str) -> bool:
    """Return whether the `length` argument of a function is in bytes."""
    return name in ("copy_lines", "pad_lines", "flip_lines")


def text(types: GemmTypes, names: Collection[str]) -> str:
    """Return a module with the named functions."""
    writer = _writer(types.machine)
    return (
        as_module([line for name in sorted(names) for line in writer.lines(name)])
        if writer is not None
        else ""
    )
