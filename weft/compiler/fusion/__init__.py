"""Fusion: which values get a buffer, and which equations share a kernel.

In:   a simplified jaxpr.
Out:  `groups.groups_of`: the kernels-to-be, each a set of equations with the values that it writes.
Laws: an equation is judged by its `lower` slot and its kind (`classify`), never by its name. A producer is computed inside its
      consumers unless that repeats costly work; reductions over one domain of rows share one kernel.
Next: `classify` tells what the compiler does with an equation, `fuse` decides what is stored, `groups` what shares a kernel,
      `reduction_domain` what may follow a reduction in the same kernel, `epilogue_fusion` what joins a matmul.
"""
