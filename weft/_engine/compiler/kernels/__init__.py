"""Kernels and steps of equations that do not fuse.

In:   an equation with a form of its own: prefix scan, scatter, contraction, library call, FFT.
Out:  Loops kernels, or steps of a `Program` that call native routines.
Laws: elementwise producers of operands are inlined where that costs less than storing them.
Next: `library_calls` for matmuls and host calls, `scatters` and `privatized_scatter`, `prefix_scan`, `fft_plan`,
      `kernel_epilogue` for the elementwise code that a matmul absorbs.
"""
