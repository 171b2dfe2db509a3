"""A gradient called with a keyword that the function does not have."""

import weft
import weft.numpy as wnp


def loss(w: weft.Array, x: weft.Array, decay: float = 0.0) -> weft.Array:
    return wnp.sum((x @ w) ** 2) + decay * wnp.sum(w**2)


gradient = weft.grad(loss)
w, x = wnp.ones(2), wnp.ones((3, 2))
print(gradient(w, x, decay=0.1))
print(gradient(w, x, weight_decay=0.1))  # error
