"""Functions that return functions, protocols, and generic containers of arrays."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import weft
import weft.numpy as wnp
from weft import nn

T = TypeVar("T")
Activation = Callable[[weft.Array], weft.Array]


class Model(Protocol):
    def __call__(self, x: weft.Array, *, train: bool = False) -> weft.Array: ...


def compose(functions: Sequence[Activation]) -> Activation:
    def composed(x: weft.Array) -> weft.Array:
        for function in functions:
            x = function(x)
        return x

    return composed


def dense(w: weft.Array, activation: Activation = nn.relu) -> Model:
    def model(x: weft.Array, *, train: bool = False) -> weft.Array:
        return activation(x @ w) * (0.5 if train else 1.0)

    return model


def evaluate(model: Model, batches: list[weft.Array]) -> float:
    return sum(float(model(batch, train=True).mean()) for batch in batches)


def last(items: Sequence[T]) -> T:
    return items[-1]


model = dense(wnp.eye(2), nn.gelu)
chain = weft.jit(compose([wnp.sin, wnp.exp, nn.silu, lambda x: x * 2]))
print(evaluate(model, [wnp.ones((3, 2))]) > 0, chain(wnp.zeros(2)), last([wnp.ones(1)]).shape)
