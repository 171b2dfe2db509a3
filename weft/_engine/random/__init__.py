"""Implementation of `weft.random`."""
