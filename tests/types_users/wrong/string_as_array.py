"""A string where an array is needed."""

import weft
import weft.numpy as wnp


@weft.jit
def scaled(x: weft.Array, factor: float) -> weft.Array:
    return x * factor


x = wnp.arange(3.0)
print(scaled(x, 2.0), wnp.sin("0.5"))  # error
