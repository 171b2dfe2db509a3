"""A dictionary passed to a compiled function of arrays."""

import weft
import weft.numpy as wnp

params = {"w": wnp.ones(2)}


@weft.jit
def forward(w: weft.Array, x: weft.Array) -> weft.Array:
    return x @ w


print(forward(params["w"], wnp.ones((3, 2))))
print(forward(params, wnp.ones((3, 2))))  # error
