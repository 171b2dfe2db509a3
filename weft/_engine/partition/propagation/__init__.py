"""Propagation of shardings: `propagate` has the fixpoint over factor rules, `reach` the bytes of values that splitting a dim would split,
`layout_rule` the user's rules of `custom_partitioning`."""
