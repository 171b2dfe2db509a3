"""Implementation of `weft.scipy.special`."""
