"""Partitioning rules of ops: rules for split special factors (`split_rule`), and moves along dims as single ops (`dim_moves`)."""
