"""Fusion: which values get a buffer, and which equations share a kernel.

In:   a simplified jaxpr.
Out:  `fuse.Fusion`: kernels, each a group of equations with the values it stores, and other equations, in order.
Laws: an equation is judged by its `lower` slot and its kind (`classify`), never by its name. A producer is inlined into its
      consumers unless that repeats costly work; reductions over one domain share a kernel.
Next: `classify` says how an equation is lowered, `graph` at which depth a value can be computed and what must be stored,
      `inline_rules` what a kernel computes inside itself, `groups` which results share a kernel, `reduction_domain` what may
      follow a reduction in its kernel, `epilogue_fusion` what a matmul absorbs, `fuse` all of this together.
"""
