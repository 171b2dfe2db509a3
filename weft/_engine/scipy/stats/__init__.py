"""Implementation of `weft.scipy.stats`."""
