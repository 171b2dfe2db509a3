"""A name that a module does not have."""

import weft
import weft.numpy as wnp
from weft import nn


def activate(x: weft.Array) -> weft.Array:
    return nn.relu(x) + nn.sofmax(x)  # error


print(activate(wnp.ones(3)))
