"""Rules that write equations as XLA operations, by family of primitives."""
