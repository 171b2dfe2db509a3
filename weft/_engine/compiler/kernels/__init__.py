"""Kernels and steps of equations that do not fuse.

In:   an equation of a special form: prefix scan, scatter, contraction, library call, FFT.
Out:  Loops kernels, or steps of a `Program` that call native routines.
Laws: elementwise producers of operands are inlined if that costs less than storing their results.
Next: `library_calls` for matmuls and host calls, `scatters` and `privatized_scatter`, `prefix_scan`, `fft_plan`,
      `kernel_epilogue` for the elementwise code that is fused into a matmul.
"""
