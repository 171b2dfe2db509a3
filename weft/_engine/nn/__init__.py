"""Implementation of `weft.nn`."""
