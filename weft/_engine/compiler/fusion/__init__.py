"""Fusion: the grouping of equations into kernels, and the choice of values that are stored.

In:   a simplified jaxpr.
Out:  `fuse.Fusion`: kernels, each a group of equations with the values it stores, and other equations, in order.
Laws: rules depend on the `lower` slot and the kind of an equation (`classify`), never on its name. A producer is inlined into its
      consumers unless that repeats costly work; reductions over one domain share a kernel.
Next: `classify` determines how an equation is lowered, `graph` the depth of each value and the stored values, `inline_rules`
      the operands that a kernel computes itself, `groups` the results that share a kernel, `reduction_domain` the values that
      may follow a reduction in its kernel, `epilogue_fusion` the epilogues of matmuls. `fuse` combines all of these.
"""
