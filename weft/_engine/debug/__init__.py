"""Implementation of `weft.debug`."""
