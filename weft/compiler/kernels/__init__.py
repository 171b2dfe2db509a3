"""Kernels and steps of equations that do not fuse.

In:   an equation of a kind that has its own form: scan-like, scatter, contraction, library call, Fourier transform.
Out:  Loops kernels, or the steps of a `Program` that call native routines.
Laws: elementwise producers of operands are computed inside these kernels where that is cheaper than storing them.
Next: `library_calls` for matmuls and host calls, `scatters` and `privatized_scatter`, `prefix_scan`, `fft_plan`,
      `kernel_epilogue` for the elementwise work on a matmul's result.
"""
