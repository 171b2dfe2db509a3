"""Data parallel: every device has all parameters and its part of the batch.

The program does not mention communication. Gradients are sums over examples, so the compiler reduces them over the devices, in one
collective for all parameters, whatever the number of layers.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from strategy import DEVICES, Case, mesh_of, normal, run

BATCH, SIZES = 256, (64, 128, 128, 16)


def init():
    """Weights and biases of the layers."""
    return [
        (normal(i, n, m, scale=n**-0.5), normal(10 + i, m))
        for i, (n, m) in enumerate(pairwise(SIZES))
    ]


def loss(params, inputs, targets):
    """Mean squared error of a network."""
    *hidden, (weight, bias) = params
    for w, b in hidden:
        inputs = jax.nn.relu(inputs @ w + b)
    return jnp.mean((inputs @ weight + bias - targets) ** 2)


step = jax.value_and_grad(loss)


def cases():
    mesh = mesh_of(data=DEVICES)
    params = jax.device_put(init(), NamedSharding(mesh, P()))
    batch = jax.device_put(
        (normal(1, BATCH, SIZES[0]), normal(2, BATCH, SIZES[-1])), NamedSharding(mesh, P("data"))
    )
    return [Case("data_parallel", jax.jit(step), (params, *batch), step)]


if __name__ == "__main__":
    run(cases)
