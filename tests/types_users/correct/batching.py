"""vmap over some arguments, nested, with named axes and collectives."""

import functools

import weft
import weft.numpy as wnp
from weft import lax


def distance(a: weft.Array, b: weft.Array) -> weft.Array:
    return wnp.sqrt(wnp.sum((a - b) ** 2))


def pairwise(xs: weft.Array, ys: weft.Array) -> weft.Array:
    rows = weft.vmap(distance, in_axes=(None, 0))
    return weft.vmap(rows, in_axes=(0, None))(xs, ys)


@functools.partial(weft.vmap, axis_name="batch")
def centered(x: weft.Array) -> weft.Array:
    return x - lax.pmean(x, "batch")


@weft.vmap
def squared(x: weft.Array) -> weft.Array:
    return x**2


per_example = weft.vmap(weft.grad(lambda w, x: wnp.dot(w, x) ** 2), in_axes=(None, 0))
xs = wnp.arange(6.0).reshape(3, 2)
matrix = wnp.vectorize(distance, signature="(n),(n)->()")(xs, xs)
print(pairwise(xs, xs).shape, centered(xs).sum(axis=0), squared(xs).max())
print(per_example(wnp.ones(2), xs).shape, matrix.shape)
