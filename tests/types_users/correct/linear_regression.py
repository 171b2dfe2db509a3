"""Linear regression by gradient descent, with typed functions and a dictionary of parameters."""

import weft
import weft.numpy as wnp
from weft import random

Params = dict[str, weft.Array]


def predict(params: Params, x: weft.Array) -> weft.Array:
    return x @ params["w"] + params["b"]


def loss(params: Params, x: weft.Array, y: weft.Array) -> weft.Array:
    return wnp.mean((predict(params, x) - y) ** 2)


@weft.jit
def step(params: Params, x: weft.Array, y: weft.Array) -> tuple[Params, weft.Array]:
    value, grads = weft.value_and_grad(loss)(params, x, y)
    updated: Params = weft.tree.map(lambda p, g: p - 0.1 * g, params, grads)
    return updated, value


def main() -> float:
    key = random.key(0)
    x = random.normal(key, (64, 3))
    y = x @ wnp.array([1.0, -2.0, 0.5]) + 0.3
    params: Params = {"w": wnp.zeros(3), "b": wnp.zeros(())}
    value = loss(params, x, y)
    for _ in range(20):
        params, value = step(params, x, y)
    return float(value)


print(f"{main():.3f}")
