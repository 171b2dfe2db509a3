"""Recomputation in the backward pass, with a policy and as a decorator."""

import functools

import weft
import weft.numpy as wnp


@weft.checkpoint
def block(x: weft.Array, w: weft.Array) -> weft.Array:
    return wnp.tanh(x @ w)


@functools.partial(weft.checkpoint, policy=weft.checkpoint_policies.dots_saveable)
def saving_products(x: weft.Array, w: weft.Array) -> weft.Array:
    return wnp.sin(x @ w)


@functools.partial(weft.remat, static_argnums=(2,))
def repeated(x: weft.Array, w: weft.Array, times: int) -> weft.Array:
    for _ in range(times):
        x = block(x, w)
    return x


def loss(w: weft.Array, x: weft.Array) -> weft.Array:
    return wnp.sum(saving_products(repeated(x, w, 2), w))


w, x = wnp.eye(3) * 0.5, wnp.ones((2, 3))
gradient: weft.Array = weft.jit(weft.grad(loss))(w, x)
shapes = weft.eval_shape(block, x, w)
program = weft.make_jaxpr(loss)(w, x)
print(gradient.shape, shapes.shape, len(program.eqns) > 0)
