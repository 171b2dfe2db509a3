"""Fusion: which values get a buffer, and which equations share a kernel.

In:   a simplified jaxpr.
Out:  `groups.groups_of`: groups of equations, one kernel each, with the values it stores.
Laws: an equation is judged by its `lower` slot and its kind (`classify`), never by its name. A producer is inlined into its
      consumers unless that repeats costly work; reductions over one domain share a kernel.
Next: `classify` tells how an equation is lowered, `fuse` which values are stored, `groups` which share a kernel,
      `reduction_domain` what may follow a reduction in its kernel, `epilogue_fusion` what a matmul absorbs.
"""
