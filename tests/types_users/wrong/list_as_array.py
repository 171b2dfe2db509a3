"""A list as the argument of a function of NumPy."""

import weft.numpy as wnp

x = wnp.array([1.0, 2.0, 3.0])
print(wnp.mean(x), wnp.stack([x, x]).shape)
print(wnp.mean([1.0, 2.0, 3.0]))  # error
