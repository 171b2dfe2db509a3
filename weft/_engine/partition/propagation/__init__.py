"""Propagation of shardings: `propagate` the fixpoint over factor rules, `reach` how much memory a dim's class holds, `layout_rule` the
rules that users give to `custom_partitioning`."""
