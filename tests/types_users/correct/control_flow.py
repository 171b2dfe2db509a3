"""scan, cond, switch, while_loop, fori_loop and map."""

import weft
import weft.numpy as wnp
from weft import lax


def cumulative(xs: weft.Array) -> tuple[weft.Array, weft.Array]:
    def body(total: weft.Array, x: weft.Array) -> tuple[weft.Array, weft.Array]:
        total = total + x
        return total, total

    return lax.scan(body, wnp.zeros(()), xs)


def collatz(n: int) -> int:
    def unfinished(state: tuple[weft.Array, weft.Array]) -> weft.Array:
        return state[0] != 1

    def advance(state: tuple[weft.Array, weft.Array]) -> tuple[weft.Array, weft.Array]:
        value, steps = state
        return wnp.where(value % 2 == 0, value // 2, 3 * value + 1), steps + 1

    _, steps = lax.while_loop(unfinished, advance, (n, 0))
    return int(steps)


def absolute(x: weft.Array) -> weft.Array:
    return lax.cond(wnp.all(x >= 0), lambda x: x, lambda x: -x, x)


def doubled(x: weft.Array, times: int) -> weft.Array:
    return lax.fori_loop(0, times, lambda i, value: value * 2, x)


total, partial_sums = cumulative(wnp.arange(4.0))
print(float(total), partial_sums.shape, collatz(6), absolute(wnp.array([-1.0, -2.0])))
print(doubled(wnp.ones(2), 3), lax.map(lambda x: x + 1, wnp.arange(3)).sum())
branches = [wnp.sin, wnp.cos]
print(lax.switch(1, branches, wnp.zeros(2)).shape)
