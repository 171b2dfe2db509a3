"""The tutorial's timings, at its sizes."""

import jax.numpy as jnp
from suite import normal, program

for _devices, _on in (
    (1, (None, None, None)),
    (8, (((4, 2), ("a", "b")), ((4, 2), ("a", None)), ((4, 2), (None, "b")))),
):
    program(
        f"tutorial sin 8192 on {_devices}",
        "tutorial",
        jnp.sin,
        normal(8192, 8192, on=_on[0]),
        jit=False,
        devices=_devices,
        memory=True,
    )
    program(
        f"tutorial dot 8192 on {_devices}",
        "tutorial",
        jnp.dot,
        normal(8192, 8192, on=_on[1]),
        normal(8192, 8192, on=_on[2]),
        jit=False,
        devices=_devices,
        flops=2.0 * 8192**3,
    )
