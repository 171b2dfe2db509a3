"""Implementation of `weft.experimental.pallas`."""
