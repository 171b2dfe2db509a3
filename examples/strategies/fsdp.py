"""Fully sharded data parallel: both the batch and the parameters are split over the devices.

A device stores one eighth of each layer. It gathers a layer just before using it, discards it (`jax.checkpoint`), gathers it again
in the backward pass, and keeps only its part of the gradient: the transpose of `all_gather` is `psum_scatter`. The layers are one
`scan`, so only one layer is gathered at any time.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from strategy import DEVICES, Case, mesh_of, normal, run

BATCH, LAYERS, WIDTH = 256, 4, 64


def loss(weights, inputs, targets, gathered=lambda shard: shard):
    """Mean squared error of residual layers; `gathered` gathers the weight of a layer."""

    @jax.checkpoint
    def layer(hidden, shard):
        return hidden + jnp.tanh(hidden @ gathered(shard)), None

    hidden, _ = lax.scan(layer, inputs, weights)
    return jnp.mean((hidden - targets) ** 2)


def loss_on_shards(weights, inputs, targets):
    """The same for one device with its rows of each weight and of the batch."""
    gathered = lambda shard: lax.all_gather(shard, "data", tiled=True)
    return lax.pmean(loss(weights, inputs, targets, gathered), "data")


def cases():
    mesh = mesh_of(data=DEVICES)
    rows_of_layers, rows = P(None, "data"), P("data")
    mapped = jax.shard_map(
        loss_on_shards, mesh=mesh, in_specs=(rows_of_layers, rows, rows), out_specs=P()
    )
    weights = jax.device_put(
        normal(0, LAYERS, WIDTH, WIDTH, scale=WIDTH**-0.5), NamedSharding(mesh, rows_of_layers)
    )
    batch = jax.device_put(
        (normal(1, BATCH, WIDTH), normal(2, BATCH, WIDTH)), NamedSharding(mesh, rows)
    )
    return [
        Case(
            "fsdp", jax.jit(jax.value_and_grad(mapped)), (weights, *batch), jax.value_and_grad(loss)
        )
    ]


if __name__ == "__main__":
    run(cases)
