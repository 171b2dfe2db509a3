"""Run by the other system's Python: bytes that its partitioner sends per device, by program, as JSON."""

import json
import os
import re
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

COLLECTIVE = re.compile(
    r"\s*(?:ROOT )?%?\S+ = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
WIDTHS = {"pred": 1, "u8": 1, "s8": 1, "f16": 2, "bf16": 2, "f32": 4, "s32": 4, "u32": 4, "s64": 8, "f64": 8}


def result_bytes(text):
    total = 0
    for kind, dims in re.findall(r"(\w+)\[([\d,]*)\]", text):
        if kind in WIDTHS:
            size = 1
            for d in dims.split(","):
                size *= int(d or 1)
            total += size * WIDTHS[kind]
    return total


def group_size(line):
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if listed:
        return len(listed.group(1).split(","))
    iota = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    return int(iota.group(2)) if iota else 8


def sent(text):
    """Bytes per device by ring algorithms, from the results of the collectives of an HLO text."""
    total = 0
    for line in text.splitlines():
        found = COLLECTIVE.match(line)
        if found:
            n, b = group_size(line), result_bytes(found.group(1))
            total += {"all-reduce": 2 * b * (n - 1) // n, "all-gather": b * (n - 1) // n, "reduce-scatter": b * (n - 1),
                      "all-to-all": b * (n - 1) // n, "collective-permute": b}[found.group(2)]
    return total


def main():
    sys.path.insert(0, str(Path(__file__).parent))
    import byte_programs
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    bytes_of = {}
    for name, (fun, shapes, specs) in byte_programs.programs(jnp, jax.grad, jax.lax).items():
        args = [jax.ShapeDtypeStruct(shape, byte_programs.DTYPE, sharding=NamedSharding(mesh, PartitionSpec(*spec)))
                for shape, spec in zip(shapes, specs)]
        bytes_of[name] = sent(jax.jit(byte_programs.flat(fun)).lower(*args).compile().as_text())
    json.dump(bytes_of, sys.stdout)


if __name__ == "__main__":
    main()
