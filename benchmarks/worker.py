"""A worker process: `worker.py weft|peer|limits|openvino DEVICES`. run.py sends requests as lines of JSON on standard input.

    ready                         the engine has started
    list                          all cases
    setup case                    set up the case and time its first call
    round seconds                 time calls for about that long; seconds per call of each sample
    save path                     write the leaves of the case's result to an .npz file, half precision as float32
    close                         peak memory since setup, above what the process held before

With BENCH_CPU_TIME the process keeps to one CPU, and calls are timed by the processor time of all its threads.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from typing import Any

import numpy as np

SETTLE_S = 0.2  # for compilation in the background to finish
SAMPLE_S = 1e-3  # short calls are repeated for this long
CPU_TIME = bool(os.environ.get("BENCH_CPU_TIME"))
clock = time.process_time if CPU_TIME else time.perf_counter


def start_engine(engine: str, devices: str) -> None:
    if engine == "weft":
        os.environ["WEFT_NUM_DEVICES"] = devices
        import weft.compat

        weft.compat.install_as_jax()
    else:
        os.environ["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        )
    import jax
    import jax.numpy as jnp

    jax.jit(lambda x: x + 1)(
        jnp.ones(4096)
    )  # one-time loading belongs to `start`, not to the first case


def memory(field: str) -> float:
    """`VmRSS` (now) or `VmHWM` (peak since the last reset) in MiB."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def reset_high_water() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def nbytes(tree: Any) -> int:
    import jax

    return sum(getattr(x, "nbytes", 0) for x in jax.tree_util.tree_leaves(tree))


class Worker:
    def __init__(self) -> None:
        import suite

        self.cases = suite.load()
        self.thunk: Any = None
        self.inner = 1
        self.base = 0.0

    def ready(self) -> dict:
        import jax

        return {"version": jax.__version__}

    def list(self) -> list[dict]:
        return [{k: v for k, v in vars(c).items() if k != "setup"} for c in self.cases.values()]

    def setup(self, case: str) -> dict:
        self.thunk = None
        gc.collect()
        self.base = memory("VmRSS")
        chosen = self.cases[case]
        assert chosen.setup is not None
        self.thunk = chosen.setup()
        gc.collect()
        reset_high_water()
        start = time.perf_counter()
        result = self.thunk()
        first = time.perf_counter() - start
        read, written = nbytes(getattr(self.thunk, "args", ())), nbytes(result)
        del result
        if chosen.kind == "step":
            self.thunk()
            time.sleep(SETTLE_S)
            self.thunk()
            start = clock()
            self.thunk()
            self.inner = max(1, int(SAMPLE_S / max(clock() - start, 1e-7)))
            if self.inner > 10:  # the one call above was still cold
                self.inner = max(1, int(SAMPLE_S / self.sample()))
        return {"first": first, "read": read, "written": written}

    def sample(self) -> float:
        thunk, count = self.thunk, range(self.inner)
        start = clock()
        for _ in count:
            result = None  # otherwise the faster engine, with more calls per sample, would hold two results
            result = thunk()
        seconds = (clock() - start) / self.inner
        import jax

        jax.block_until_ready(result)
        return seconds

    def round(self, seconds: float) -> dict:
        times, end = [], time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            times.append(self.sample())
        return {"times": times}

    def save(self, path: str) -> dict:
        import jax

        leaves = map(np.asarray, jax.tree_util.tree_leaves(self.thunk()))
        native = [x.astype(np.float32) if x.dtype.kind == "V" else x for x in leaves]
        np.savez(path, *native)
        return {}

    def close(self) -> dict:
        return {"peak_mib": memory("VmHWM") - self.base, "base_mib": self.base}


def serve(worker: Any, answers: Any) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".strip()[:600]}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    if CPU_TIME:
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of a case is not an answer
    engine, devices = sys.argv[1:3]
    if engine == "limits":
        from limits import Limits

        serve(Limits(), answers)
    elif engine == "openvino":
        from openvino_products import Products

        serve(Products(), answers)
    else:
        start_engine(engine, devices)
        serve(Worker(), answers)


if __name__ == "__main__":
    main()
