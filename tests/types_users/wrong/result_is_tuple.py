"""A tuple returned where an array is declared."""

import weft
import weft.numpy as wnp
from weft import random


def sample(key: weft.Array) -> weft.Array:
    first, second = random.split(key)
    return random.normal(first, (2,)), second  # error


print(sample(random.key(0)))
print(wnp.zeros(2))
