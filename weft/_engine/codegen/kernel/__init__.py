"""Kernels: Loops to LLVM IR.

In:   `ir.loops` kernels and a target.
Out:  `kernel_emitter.module_ir`: the text of a module, one function per kernel.
Laws: a vector loop runs full vectors, then a masked or scalar remainder; every size is correct.
Next: `kernel_emitter` (statements), `expressions` (values), `vectorization_plan` (widths). Each other module emits one kind of
      statement or access, and is imported by the first kernel that has it.
"""
