"""One function on many shapes: the memory mappings and the memory that its programs take, and what clearing caches leaves of them.

python -m benchmarks.many_shapes [number of shapes, 20000 by default]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import weft
import weft.numpy as wnp


def state() -> tuple[int, float]:
    """Memory mappings of this process, and MiB of memory in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Path("/proc/self/maps").read_text().count("\n"), pages * os.sysconf(
        "SC_PAGE_SIZE"
    ) / 2**20


def main(count: int) -> None:
    os.environ["WEFT_CACHE_DIR"] = "off"
    f = weft.jit(lambda x: wnp.sin(x) * 2 + 1)
    for n in range(1, 20):
        f(np.ones(n, np.float32))
    weft.clear_caches()
    before, start = state(), time.perf_counter()

    def show(title: str) -> None:
        mappings, memory = state()
        print(
            f"{title:8} {mappings - before[0]:5} mappings {memory - before[1]:8.1f} MiB {time.perf_counter() - start:7.0f} s",
            flush=True,
        )

    for n in range(count):
        f(np.ones(20 + n, np.float32))
        if not (n + 1) % 2000:
            show(str(n + 1))
    show(str(count))
    weft.clear_caches()
    show("cleared")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20000)
