"""The sum of an array and a list."""

import weft
import weft.numpy as wnp


def shifted(x: weft.Array) -> weft.Array:
    return x + [1.0, 2.0, 3.0]  # error


print(shifted(wnp.zeros(3)))
