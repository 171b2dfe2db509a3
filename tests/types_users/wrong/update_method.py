"""A method that indexed updates do not have."""

import weft
import weft.numpy as wnp


def count_up(x: weft.Array, rows: weft.Array) -> weft.Array:
    x = x.at[rows].add(1.0)
    return x.at[rows].increment(1.0)  # error


print(count_up(wnp.zeros(4), wnp.array([0, 2])))
