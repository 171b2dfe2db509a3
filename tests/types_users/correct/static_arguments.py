"""`jit` as a decorator with static arguments, in each of its forms, on functions and methods."""

import functools

import weft
import weft.numpy as wnp


@functools.partial(weft.jit, static_argnames=("n", "mode"))
def power(x: weft.Array, n: int, mode: str = "plain") -> weft.Array:
    for _ in range(n):
        x = x * x if mode == "square" else x * 2
    return x


@weft.jit(static_argnums=1)
def repeat(x: weft.Array, count: int) -> weft.Array:
    return wnp.concatenate([x] * count)


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    @functools.partial(weft.jit, static_argnums=0)
    def apply(self, x: weft.Array) -> weft.Array:
        return x * self.factor

    @weft.jit(static_argnums=(0,))
    def undo(self, x: weft.Array) -> weft.Array:
        return x / self.factor


def plain(x: weft.Array, scale: float = 1.0) -> weft.Array:
    return x * scale


compiled = weft.jit(plain, donate_argnums=0)
x = wnp.arange(3, dtype=wnp.float32)
total: weft.Array = power(x, 2, mode="square") + repeat(x, count=1)
scale = Scale(3.0)
print(total, scale.undo(scale.apply(x)), compiled(x + 1, scale=2.0))
print(compiled.lower(x, scale=2.0).compile().cost_analysis() is not None)
