"""Implementation of `weft.lax`."""
