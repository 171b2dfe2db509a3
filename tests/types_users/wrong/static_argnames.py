"""Static arguments named by a number."""

import weft
import weft.numpy as wnp


def power(x: weft.Array, n: int) -> weft.Array:
    return x**n


cube = weft.jit(power, static_argnums=1)
square = weft.jit(power, static_argnames=1)  # error
print(cube(wnp.ones(2), 3))
