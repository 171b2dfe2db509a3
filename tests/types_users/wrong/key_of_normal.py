"""A distribution that is given a shape in place of the key."""

import weft
from weft import random

key = random.key(0)
noise: weft.Array = random.normal(key, (3,))
more: weft.Array = random.normal((3,))  # error
print(noise, more)
