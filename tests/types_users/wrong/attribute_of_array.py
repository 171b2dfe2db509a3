"""An attribute that arrays do not have."""

import weft
import weft.numpy as wnp


def normalize(x: weft.Array) -> weft.Array:
    scale = x.max() - x.min()
    return (x - x.average()) / scale  # error


print(normalize(wnp.arange(4.0)))
