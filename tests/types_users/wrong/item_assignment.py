"""An assignment to an element of an array."""

import weft.numpy as wnp

x = wnp.zeros(4)
y = x.at[1].set(2.0)
x[1] = 2.0  # error
print(x, y)
