"""Optimizers written by hand: gradient descent with momentum, Adam, clipping of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import weft
import weft.numpy as jnp


class Optimizer(NamedTuple):
    """`init(params)` gives the state; `update(grads, state, params)` gives new (params, state)."""

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], tuple[Any, Any]]


def sgd(rate: float = 0.1, momentum: float = 0.0) -> Optimizer:
    """Return gradient descent, with momentum if it is not 0."""

    def init(params):
        return weft.tree.map(jnp.zeros_like, params) if momentum else ()

    def update(grads, velocity, params):
        if momentum:
            velocity = weft.tree.map(lambda v, g: momentum * v + g, velocity, grads)
            grads = velocity
        return weft.tree.map(lambda p, g: p - rate * g, params, grads), velocity

    return Optimizer(init, update)


def adam(
    rate: float = 1e-2, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-3, decay: float = 0.0
) -> Optimizer:
    """Return Adam with bias correction and decoupled weight decay."""

    def init(params):
        zeros = weft.tree.map(jnp.zeros_like, params)
        return zeros, zeros, jnp.zeros((), jnp.int32)

    def update(grads, state, params):
        mean, square, count = state
        count = count + 1
        mean = weft.tree.map(lambda m, g: b1 * m + (1 - b1) * g, mean, grads)
        square = weft.tree.map(lambda s, g: b2 * s + (1 - b2) * g**2, square, grads)

        def new(p, m, s):
            m_hat = m / (1 - b1**count)
            s_hat = s / (1 - b2**count)
            return p - rate * (m_hat / (jnp.sqrt(s_hat) + eps) + decay * p)

        return weft.tree.map(new, params, mean, square), (mean, square, count)

    return Optimizer(init, update)


def clip_by_global_norm(grads: Any, limit: float) -> Any:
    """Return the gradients, scaled so that their joint norm is at most `limit`."""
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in weft.tree.leaves(grads)))
    scale = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-6))
    return weft.tree.map(lambda g: g * scale, grads)
