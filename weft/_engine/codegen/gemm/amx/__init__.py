"""The inner loops of matmul for AMX, Intel's unit that multiplies tiles, in assembly.

In:   the name of a micro-kernel.
Out:  a module with inline assembly; operands are packed, and results stored, by the functions for
      AVX-512, which every processor with AMX has.
Next: `tile_kernels`, `tile_skinny`.
"""
