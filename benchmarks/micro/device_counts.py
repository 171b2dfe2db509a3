"""Time to trace, partition and print a transformer's training step for 8 to 4,096 planned devices.

    python benchmarks/micro/device_counts.py [layers, 4 by default]

The mesh is (data, model). Weights are split by the model axis, tokens by the data axis.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import weft
import weft.numpy as wnp
from weft import nn
from weft._engine.backends.base import LoadedLocalProgram
from weft._engine.backends.planned_devices import PlannedBackend
from weft._engine.hlo.replica_program import replica_program_text
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

SHAPES = ((2, 4), (8, 8), (32, 16), (64, 64), (512, 8))
WIDTH, HEADS, VOCABULARY, LENGTH, ROWS = 4096, 64, 8192, 128, 4096


class PartitionOnly(PlannedBackend):
    """Devices whose programs are partitioned but not compiled."""

    def lower(self, program, stage):
        self.program = program

    def compile(self, program, lowered, stage):
        return LoadedLocalProgram()


def apply_layer(params, x):
    heads = [
        z.reshape(*z.shape[:-1], HEADS, -1).swapaxes(-2, -3)
        for z in wnp.split(x @ params["qkv"], 3, -1)
    ]
    q, k, v = heads
    mixed = nn.softmax(q @ k.swapaxes(-1, -2) / np.sqrt(WIDTH // HEADS), -1) @ v
    x = x + mixed.swapaxes(-2, -3).reshape(x.shape) @ params["proj"]
    return x + nn.gelu(x @ params["up"]) @ params["down"]


def train(params, momentum, tokens):
    def loss(params):
        x = params["embedding"][tokens[:, :-1]]
        for layer in params["layers"]:
            x = apply_layer(layer, x)
        logits = nn.log_softmax(x @ params["output"], -1)
        return -(logits * nn.one_hot(tokens[:, 1:], VOCABULARY)).sum(-1).mean()

    value, gradients = weft.value_and_grad(loss)(params)
    momentum = weft.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return weft.tree.map(lambda p, m: p - 1e-3 * m, params, momentum), momentum, value


def measure(shape: tuple[int, int], layers: int) -> tuple[float, float, float, int]:
    """Return seconds to trace, to partition and to print, and the size of the text in bytes."""
    backend = PartitionOnly(1, int(np.prod(shape)), 1)
    mesh = Mesh(np.array(backend.devices()).reshape(shape), ("data", "model"))

    def like(dims, *spec, dtype=np.float32):
        return weft.ShapeDtypeStruct(dims, dtype, sharding=NamedSharding(mesh, P(*spec)))

    def weights(*dims):
        return like(dims, None, "model")

    layer = {
        "qkv": weights(WIDTH, 3 * WIDTH),
        "proj": weights(WIDTH, WIDTH),
        "up": weights(WIDTH, 4 * WIDTH),
        "down": weights(4 * WIDTH, WIDTH),
    }
    params = {
        "embedding": weights(VOCABULARY, WIDTH),
        "output": weights(WIDTH, VOCABULARY),
        "layers": [layer] * layers,
    }
    tokens = like((ROWS, LENGTH + 1), "data", dtype=np.int32)
    times = [time.perf_counter()]
    lowered = weft.jit(lambda *args: train(*args)).lower(params, params, tokens)
    times.append(time.perf_counter())
    lowered.compile()
    times.append(time.perf_counter())
    text = replica_program_text(backend.program)
    times.append(time.perf_counter())
    trace, partition, printing = np.diff(times).tolist()
    return trace, partition, printing, len(text)


def main(layers: int = 4) -> None:
    measure((2, 2), 1)
    for shape in SHAPES:
        trace, partition, printing, size = measure(shape, layers)
        print(
            f"{np.prod(shape):5} devices {shape!s:9} trace {trace:5.2f} s  partition {partition:5.2f} s  "
            f"print {printing:5.2f} s  {size / 2**20:5.1f} MiB"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
