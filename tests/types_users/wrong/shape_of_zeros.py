"""The dims of a shape as separate arguments."""

import weft.numpy as wnp

x = wnp.zeros((2, 3))
y = wnp.zeros(2, 3)  # error
print(x.shape, y.shape)
