"""Rewrites: jaxpr to jaxpr, before fusion.

In:   a jaxpr, global or of one device.
Out:  a jaxpr that computes the same with less, or in the form that later stages want.
Laws: values are the same to rounding; what is exact stays exact (integers, moves of data, NaN and infinities).
Next: `simplify` (calls inlined, dead and repeated work removed, algebra), `decompose` (composite operations rebuilt from
      others), `loop_hoisting`, `variance_rewrite`, `batch_sums`, `inspection`.
"""
