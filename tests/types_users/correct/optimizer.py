"""An optimizer with named tuples of trees as state, compiled with donated arguments."""

from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import random


class AdamState(NamedTuple):
    step: weft.Array
    mean: Any
    square: Any


def init(params: Any) -> AdamState:
    zeros = weft.tree.map(wnp.zeros_like, params)
    return AdamState(wnp.zeros((), wnp.int32), zeros, zeros)


def update(params: Any, grads: Any, state: AdamState, rate: float) -> tuple[Any, AdamState]:
    step = state.step + 1
    mean = weft.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, grads)
    square = weft.tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, state.square, grads)

    def move(p: weft.Array, m: weft.Array, s: weft.Array) -> weft.Array:
        unbiased = m / (1 - 0.9**step)
        return p - rate * unbiased / (wnp.sqrt(s / (1 - 0.99**step)) + 1e-8)

    return weft.tree.map(move, params, mean, square), AdamState(step, mean, square)


@weft.jit
def train(params: weft.Array, state: AdamState, key: weft.Array) -> tuple[weft.Array, AdamState]:
    noise = random.normal(key, params.shape)
    grads = weft.grad(lambda p: wnp.sum((p - 3.0) ** 2 + 0.01 * p * noise))(params)
    params, state = update(params, grads, state, 0.1)
    return params, state


params = wnp.zeros(4)
state = init(params)
key = random.key(0)
for i in range(5):
    key, subkey = random.split(key)
    params, state = train(params, state, random.fold_in(subkey, i))
print(int(state.step), params.shape)
