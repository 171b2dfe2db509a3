"""Kernels: Loops to LLVM IR.

In:   `ir.loops` kernels and a target.
Out:  `kernel_emitter.module_ir`: the text of a module, one function per kernel.
Laws: a vector loop runs whole vectors, then a masked or scalar rest; every size is right.
Next: `kernel_emitter` (statements), `expressions` (values), `vectorization_plan` (how wide); the others are one kind of
      statement or access each, loaded by the first kernel that has it.
"""
