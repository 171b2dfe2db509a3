"""Propagation of shardings: `propagate` has the fixpoint over factor rules, `reach` the bytes that a split of one dim would also split,
`layout_rule` the user's rules of `custom_partitioning`."""
