"""Batches prepared in Python during training steps: with asynchronous dispatch, and with calls that wait.

    python benchmarks/micro/overlap.py [steps]

A step of an MLP (float32, donated state) follows the preparation of its batch: shuffling, gathering and normalizing in NumPy and Python,
sized to take about as long as the step. Both ways run alternately; the output is the least time of a step of each. On `peer`, if
JAX is installed: `python benchmarks/micro/overlap.py 40 peer`.
"""

from __future__ import annotations

import itertools
import sys
import time

import numpy as np


def main(steps: int = 40, engine: str = "weft") -> None:
    if engine == "weft":
        import weft.compat

        weft.compat.install_as_jax()
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    images = rng.normal(size=(20_000, 784)).astype(np.float32)
    labels = rng.integers(0, 10, 20_000)
    sizes = (784, 512, 512, 10)

    def loss(params, x, y):
        for w in params[:-1]:
            x = jnp.tanh(x @ w)
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(x @ params[-1]) * y, axis=1))

    def step(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return [w - 0.01 * g for w, g in zip(params, grads)], value

    step = jax.jit(step, donate_argnums=0)
    cost = [1000]

    def batch():
        rows = rng.permutation(len(images))[:256]
        x = images[rows]
        sum(i * i for i in range(cost[0]))  # what a tokenizer does: Python that holds the GIL
        return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), np.eye(
            10, dtype=np.float32
        )[labels[rows]]

    def initial():
        return [
            jnp.asarray(rng.normal(size=s).astype(np.float32) * 0.03)
            for s in itertools.pairwise(sizes)
        ]

    def run(waits: bool) -> float:
        params = initial()
        losses = []
        start = time.perf_counter()
        for _ in range(steps):
            params, value = step(params, *batch())
            losses.append(value)
            if waits:
                jax.block_until_ready(value)
        assert np.isfinite(losses).all()  # waits for all of them
        return (time.perf_counter() - start) / steps

    def alone(work, n: int = 10) -> float:
        start = time.perf_counter()
        for _ in range(n):
            jax.block_until_ready(work())
        return (time.perf_counter() - start) / n

    state = initial()
    x, y = batch()

    def one():
        nonlocal state
        state, value = step(state, x, y)
        return value

    alone(one)
    while alone(batch) < alone(one):  # as long as the step
        cost[0] = cost[0] * 5 // 4
    best: dict[bool, float] = {}
    for _ in range(7):
        for waits in (False, True):
            best[waits] = min(best.get(waits, 1.0), run(waits))
    print(
        f"{engine}: batch {1e3 * min(alone(batch), alone(batch)):.2f} ms, step {1e3 * min(alone(one), alone(one)):.2f} ms, both in turn "
        f"{1e3 * best[True]:.2f} ms, overlapped {1e3 * best[False]:.2f} ms: {best[False] / best[True]:.2f}"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:3])
