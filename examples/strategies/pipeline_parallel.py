"""Pipeline parallel: every device has one stage of the network; microbatches pass from stage to stage.

In each tick every stage works on a different microbatch and sends its output to the next stage with `ppermute`. With m microbatches
and s stages there are m + s - 1 ticks. The ticks are a `scan`, whose gradient is the same pipeline in reverse.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from strategy import DEVICES, Case, mesh_of, normal, run

STAGES, MICROBATCHES, ROWS, WIDTH = DEVICES, 16, 4, 32
TO_THE_RIGHT = [(stage, stage + 1) for stage in range(STAGES - 1)]


def stage_of(weight, x):
    """One stage of the network."""
    return x + jnp.tanh(x @ weight)


def loss_on_stage(weight, inputs, targets):
    """Return the loss on the device with the weight of one stage, for all microbatches."""
    stage = lax.axis_index("stage")

    def tick(arrived, time):
        fresh = lax.dynamic_index_in_dim(
            inputs, jnp.minimum(time, MICROBATCHES - 1), keepdims=False
        )
        output = stage_of(weight[0], jnp.where(stage == 0, fresh, arrived))
        return lax.ppermute(output, "stage", TO_THE_RIGHT), output

    start = lax.pcast(jnp.zeros((ROWS, WIDTH)), "stage", to="varying")
    _, outputs = lax.scan(tick, start, jnp.arange(MICROBATCHES + STAGES - 1))
    error = jnp.mean((outputs[STAGES - 1 :] - targets) ** 2)
    return lax.psum(jnp.where(stage == STAGES - 1, error, 0.0), "stage")


def loss(weights, inputs, targets):
    """The same on one device: all stages in sequence."""
    for weight in weights:
        inputs = stage_of(weight, inputs)
    return jnp.mean((inputs - targets) ** 2)


def cases():
    mesh = mesh_of(stage=STAGES)
    mapped = jax.shard_map(loss_on_stage, mesh=mesh, in_specs=(P("stage"), P(), P()), out_specs=P())
    weights = jax.device_put(
        normal(0, STAGES, WIDTH, WIDTH, scale=WIDTH**-0.5), NamedSharding(mesh, P("stage"))
    )
    batch = jax.device_put(
        [normal(1 + i, MICROBATCHES, ROWS, WIDTH) for i in range(2)], NamedSharding(mesh, P())
    )
    return [
        Case(
            "pipeline_parallel",
            jax.jit(jax.value_and_grad(mapped)),
            (weights, *batch),
            jax.value_and_grad(loss),
        )
    ]


if __name__ == "__main__":
    run(cases)
