"""A compiled function called with too few arguments."""

import weft
import weft.numpy as wnp


@weft.jit
def predict(w: weft.Array, b: weft.Array, x: weft.Array) -> weft.Array:
    return x @ w + b


w, b, x = wnp.eye(2), wnp.zeros(2), wnp.ones((3, 2))
print(predict(w, b, x).shape)
print(predict(w, x).shape)  # error
