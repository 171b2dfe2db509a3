"""Run by the other system's Python: bytes that its partitioner sends per device, by program, as JSON."""

import json
import os
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"


def main():
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    import jax
    from communication import partitioned, read

    sent = {
        name: read(step.lower(*arguments).compile().as_text())[1]
        for name, step, arguments in partitioned(jax)
    }
    json.dump({name.replace(" ", "_"): nbytes for name, nbytes in sent.items()}, sys.stdout)


if __name__ == "__main__":
    main()
