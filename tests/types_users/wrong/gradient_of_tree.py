"""The gradient of a dictionary used as an array."""

import weft
import weft.numpy as wnp

Params = dict[str, weft.Array]


def loss(params: Params, x: weft.Array) -> weft.Array:
    return wnp.sum((x @ params["w"]) ** 2)


params: Params = {"w": wnp.ones(2)}
value, grads = weft.value_and_grad(loss)(params, wnp.ones((3, 2)))
print(value.shape, grads["w"].shape)
print(grads.shape)  # error
