"""The cost of recording steps: calls with and without records, in turn.

    python benchmarks/profile_overhead.py [--rounds N]

Each program repeats one kernel. Columns: microseconds of a kernel without records, and the ratio of the minimum times of a call with
records to one without. The fixed cost of a call in Python (native dispatch is off while a profile is recorded) is left out: both calls
take the same path. With one thread (WEFT_NUM_THREADS=1) times are CPU times, which other programs disturb least.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import weft
import weft.numpy as wnp
from weft._engine.codegen.runtime import pool
from weft.profiler import record
from weft.profiler.recording import Recorder

#: rows and columns of the matrices of elementwise kernels, and kernels of one call
SIZES = (16, 64, 128, 256, 512)
KERNELS = 50


def chain(x):
    """Repeat a kernel on a matrix; the scan keeps the kernels apart."""
    body = lambda carry, _: (wnp.sin(carry) * 0.5 + x[::-1], None)
    return weft.lax.scan(body, x, None, length=KERNELS)[0]


def matmuls(x):
    """Repeat a matmul."""
    body = lambda carry, _: (carry @ x, None)
    return weft.lax.scan(body, x, None, length=KERNELS)[0]


def seconds_of(run: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    clock = time.process_time if pool.num_threads() == 1 else time.perf_counter
    start = clock()
    run()
    return clock() - start


def measure(fun: Callable, x: np.ndarray, rounds: int) -> tuple[float, float]:
    """Return the seconds of a step without records, and the ratio of times with and without."""
    jitted = weft.jit(fun)
    x = weft.device_put(x)
    run = lambda: weft.block_until_ready(jitted(x))
    with record() as profile:
        run()
    steps = sum(step.runs for step in profile.steps() if not step.facts.kind.startswith("loop"))
    plain, recorded = Recorder(has_steps=False), Recorder()
    for _ in range(3):
        run()
    time.sleep(0.5)  # until optimized code has replaced the first one
    for recorder in (plain, recorded):
        recorder.start()
        run()
        recorder.stop()
    best = {id(plain): float("inf"), id(recorded): float("inf")}
    for _ in range(rounds):
        for recorder in (plain, recorded):
            recorder.start()
            best[id(recorder)] = min(best[id(recorder)], seconds_of(run))
            recorder.stop()
    return best[id(plain)] / steps, best[id(recorded)] / best[id(plain)]


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of recording steps.")
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    print(f"{'step':24}{'us':>10}{'ratio':>8}")
    for fun in (chain, matmuls):
        for n in SIZES:
            x = np.linspace(-1, 1, n * n, dtype=np.float32).reshape(n, n)
            seconds, ratio = measure(fun, x, rounds)
            print(f"{fun.__name__:8} {n:5} x {n:<6}{1e6 * seconds:13.2f}{ratio:8.3f}")


if __name__ == "__main__":
    main()
