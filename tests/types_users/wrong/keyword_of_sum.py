"""A keyword argument that a function of NumPy does not have."""

import weft
import weft.numpy as wnp


def total(x: weft.Array) -> weft.Array:
    rows = wnp.sum(x, axis=0, keepdims=True)
    return wnp.sum(rows, axes=1)  # error


print(total(wnp.ones((2, 3))))
