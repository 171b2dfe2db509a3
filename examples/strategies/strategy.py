"""What the strategies share: run a case, compare it with a single device, and show its communication.

A case is a compiled step on sharded arrays, with the same computation for one device. Every program in this folder says `import jax`
and runs on eight devices, of one process or of several, in any of these ways:

    weft run examples/strategies/ring_attention.py --devices 8
    weft launch -n 4 --devices-per-process 2 examples/strategies/ring_attention.py
    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/strategies/ring_attention.py
"""

import re
import sys
from collections import Counter
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

DEVICES = 8
TOLERANCE = 1e-5  # for float32 sums in another order


class Case(NamedTuple):
    """A step to run on all devices; `single(*arguments)` gives the same results on one."""

    name: str
    step: Any
    arguments: tuple
    single: Any


def mesh_of(**axes):
    """A mesh with axes of the given sizes; the compiler chooses the shardings that a program leaves open."""
    types = (jax.sharding.AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=types)


def normal(seed, *shape, scale=1.0):
    """Fixed random numbers."""
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def whole(tree):
    """The values of arrays, wherever their shards are, in every process."""
    return process_allgather(tree, tiled=True)


def error_of(got, want):
    """The largest difference between two trees, relative to the largest entry of each array."""
    pairs = zip(jax.tree.leaves(whole(got)), jax.tree.leaves(jax.device_get(want)), strict=True)
    return max(float(np.abs(g - w).max() / max(1e-6, np.abs(w).max())) for g, w in pairs)


def show_communication(case, compiled):
    """Print what the devices communicate: on weft every collective with its source line, elsewhere the number of each kind."""
    if type(compiled).__module__.startswith("weft"):
        import weft

        print(weft.explain(case.step, *case.arguments))
    else:
        kinds = re.findall(
            r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(",
            compiled.as_text(),
        )
        print(
            "  "
            + (
                ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(kinds).items()))
                or "no collectives"
            )
        )


def run(cases):
    """Run all cases; exit with an error if one differs from its single-device version."""
    if jax.device_count() < DEVICES:
        sys.exit(f"This program needs a mesh of eight devices; there are {jax.device_count()}.")
    for case in cases():
        compiled = case.step.lower(*case.arguments).compile()
        error = error_of(compiled(*case.arguments), jax.jit(case.single)(*whole(case.arguments)))
        if jax.process_index() == 0:
            print(f"{case.name}: differs from one device by {error:.1e}")
            show_communication(case, compiled)
        if not error < TOLERANCE:
            sys.exit(f"{case.name}: this is more than {TOLERANCE}")
