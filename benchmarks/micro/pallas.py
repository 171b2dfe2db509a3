"""Kernels of docs/pallas.md compared with the same functions on whole arrays.

    WEFT_NUM_THREADS=1 python benchmarks/micro/pallas.py

Variants run alternately; each line has the least and the median of CPU time, all threads together: with one thread it holds on a machine
that others use, too. On an idle machine `--wall` shows the time that passes.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp


def page() -> dict[str, Any]:
    """The functions of the page."""
    scope: dict[str, Any] = {}
    text = (Path(__file__).parents[2] / "docs" / "pallas.md").read_text()
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(block, scope)
    return scope


def race(
    title: str, clock: Callable[[], float], rounds: int, args: list, **variants: Callable
) -> None:
    """Print times of variants, and their ratios to the first."""
    compiled = {name: weft.jit(f) for name, f in variants.items()}
    spent: dict[str, list[float]] = {name: [] for name in variants}
    for i in range(rounds + 2):
        for name, f in compiled.items():
            start = clock()
            f(*args).block_until_ready()
            if i >= 2:
                spent[name].append(clock() - start)
    first = np.median(next(iter(spent.values())))
    for name, seconds in spent.items():
        median = np.median(seconds)
        print(
            f"{title:24} {name:24} {min(seconds) * 1e3:8.2f} {median * 1e3:8.2f} ms   {median / first:.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wall", action="store_true")
    clock = time.perf_counter if parser.parse_args().wall else time.process_time
    scope, rng = page(), np.random.default_rng(0)
    random = lambda *shape: weft.device_put(rng.standard_normal(shape, dtype=np.float32))

    def product(*blocks: int) -> Callable:
        return lambda x, y: scope["matmul"](x, y, *blocks)

    race(
        "matmul 1024",
        clock,
        20,
        [random(1024, 1024), random(1024, 1024)],
        dot=wnp.dot,
        blocks_256=product(256, 256, 256),
        blocks_256_512_512=product(256, 512, 512),
        blocks_512_512_1024=product(512, 512, 1024),
    )
    race(
        "softmax 4096 x 1024",
        clock,
        20,
        [random(4096, 1024)],
        whole=lambda x: weft.nn.softmax(x, axis=1),
        kernel=scope["softmax"],
    )
    for n in (4096, 8192):
        race(
            f"attention {n} x 64",
            clock,
            8,
            [random(n, 64) for _ in range(3)],
            whole=lambda q, k, v: weft.nn.softmax(q @ k.T / 8.0, axis=-1) @ v,
            blocks_128_512=lambda q, k, v: scope["attention"](q, k, v, 128, 512),
            blocks_512_512=lambda q, k, v: scope["attention"](q, k, v, 512, 512),
        )


if __name__ == "__main__":
    main()
