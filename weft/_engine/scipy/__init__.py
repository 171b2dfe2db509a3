"""Implementation of `weft.scipy`."""
