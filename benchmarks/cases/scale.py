"""The same program on 1, 8, 64 and 512 devices: first call, dispatch and step, which should take equal times."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import programs
from suite import Case, Step, add, layout

DEVICES = (1, 8, 64, 512)


def train(devices):
    """An MLP step with the same total work on any number of devices."""

    def setup():
        state = programs.adam_state(programs.mlp_params([256, 512, 512, 16]))
        batch = np.ones((1024, 256), np.float32), np.ones((1024, 16), np.float32)
        state = jax.device_put(state, layout((devices,), ()))
        batch = jax.device_put(batch, layout((devices,), ("a",)))
        return Step(jax.jit(programs.adam(programs.mlp_loss)), (state, batch))

    return setup


def call(devices):
    def setup():
        x = jax.device_put(jnp.ones((1024, 8)), layout((devices,), ("a",)))
        return functools.partial(jax.jit(lambda x: x + 1), x)

    return setup


for _devices in DEVICES:
    add(
        Case(
            f"scale: first MLP step on {_devices}",
            "scale",
            train(_devices),
            kind="first",
            devices=_devices,
            budget_s=60,
        )
    )
    add(Case(f"scale: MLP step on {_devices}", "scale", train(_devices), devices=_devices))
    add(Case(f"scale: dispatch on {_devices}", "scale", call(_devices), devices=_devices))
