"""Debugging, callbacks, timing and configuration."""

import time

import numpy as np

import weft
import weft.numpy as wnp


def host_sort(x: np.ndarray) -> np.ndarray:
    return np.sort(x)


@weft.jit
def program(x: weft.Array) -> weft.Array:
    weft.debug.print("x has maximum {m}", m=x.max())
    result = weft.ShapeDtypeStruct(x.shape, x.dtype)
    ordered = weft.pure_callback(host_sort, result, x)
    with weft.named_scope("after"):
        return ordered * 2


start = time.perf_counter()
y = program(wnp.array([3.0, 1.0, 2.0])).block_until_ready()
weft.effects_barrier()
elapsed: float = time.perf_counter() - start
with weft.disable_jit():
    z = program(y)
weft.config.update("debug_nans", False)
print(y, z, elapsed > 0, weft.default_backend(), weft.device_count() == len(weft.devices()))
print(f"{y[0]:.2f} {float(y.mean()):.1f}", weft.devices()[0].platform, weft.__version__ != "")
