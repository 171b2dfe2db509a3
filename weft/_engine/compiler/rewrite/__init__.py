"""Rewrites of jaxprs before fusion.

In:   a jaxpr, global or of one device.
Out:  an equivalent jaxpr with less work, or in the form that later stages require.
Laws: floats are equal up to rounding; exact values (integers, moved data, NaN and infinities) stay exact.
Next: `simplify` (inlining, dead code, common subexpressions, algebra), `decompose` (composite operations), `loop_hoisting`,
      `concatenations`, `split_products`, `variance_rewrite`, `half_reductions`, `batch_sums`, `remove_inspection`.
"""
