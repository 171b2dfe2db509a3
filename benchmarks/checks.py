#!/usr/bin/env python3
"""The training models with and without `values:10%`: what the check costs.

    python benchmarks/checks.py [MODEL ...] [--steps 100] [--check values:10%]

In:  the models of `tests/models`, small.
Out: a table: seconds of the first call and the steps after it, unchecked and checked, and their ratio; the geometric mean and the greatest.
How: the two runs of a model are processes with an empty disk cache, one after the other.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_steps(name: str, count: int) -> float:
    """Return the seconds of `count` training steps, the first with its compilation."""
    sys.path.insert(0, str(ROOT))
    import weft
    from tests.models.registry import MODELS

    model = MODELS[name]
    state, batch = model.example("small", 0)
    step = weft.jit(model.step)
    start = time.perf_counter()
    for _ in range(count):
        state, *_ = weft.block_until_ready(step(state, batch))
    return time.perf_counter() - start


def seconds_of(name: str, count: int, check: str) -> float:
    """Return what `run_steps` gives in a process of its own."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "WEFT_CHECK": check, "WEFT_CACHE_DIR": cache}
        command = [sys.executable, __file__, name, "--steps", str(count), "--here"]
        return float(
            subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="all by default")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--check", default="values:10%")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(run_steps(options.models[0], options.steps))
        return
    sys.path.insert(0, str(ROOT))
    from tests.models.registry import MODELS

    ratios = []
    print(f"{'model':24}{'unchecked s':>12}{options.check:>14} s{'ratio':>8}")
    for name in options.models or MODELS:
        plain, checked = (seconds_of(name, options.steps, check) for check in ("", options.check))
        ratios.append(checked / plain)
        print(f"{name:24}{plain:12.2f}{checked:16.2f}{ratios[-1]:8.2f}", flush=True)
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, greatest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
