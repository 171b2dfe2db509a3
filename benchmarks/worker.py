"""One timing process: `worker.py weft|peer CASE ROUNDS` prints the seconds of each round as JSON. Started by run.py."""

from __future__ import annotations

import json
import os
import resource
import sys
import time


def main() -> None:
    engine, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if engine == "weft":
        os.environ["WEFT_NUM_DEVICES"] = "8"
        import weft.compat
        weft.compat.install_as_jax()
    else:
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    import cases

    chosen = cases.CASES[name]
    thunk = chosen.setup()
    start = time.perf_counter()
    result = thunk()
    first = time.perf_counter() - start
    del result
    thunk()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(chosen.inner):
            result = thunk()
        seconds.append((time.perf_counter() - start) / chosen.inner)
        del result
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("RESULT", json.dumps({"seconds": seconds, "first": first, "peak_mib": peak}))


if __name__ == "__main__":
    main()
