"""A mapped function called with too many arguments."""

import weft
import weft.numpy as wnp


def distance(a: weft.Array, b: weft.Array) -> weft.Array:
    return wnp.sum((a - b) ** 2)


rows = weft.vmap(distance, in_axes=(0, None))
x = wnp.ones((3, 2))
print(rows(x, x[0]))
print(rows(x, x[0], 2))  # error
