"""Plan the training scripts of `examples/ecosystem/training`, which are written for one device.

    ENV/bin/python -m benchmarks.automatic.scripts [--meshes 8,4x2] [--machine h100|none] [--check NAME,NAME] [SCRIPT ...]

In:  scripts, in an environment that has weft as jax (`weft shim install`), flax, equinox, optax and einops.
Out: a table of prices: of the plan, of the ordinary partitioner and of data parallelism, and the number of constraints that
     reproduce the plan within 2 %. Exits with 1 if a script needs more than 3, or if data parallelism is cheaper.
How: each script runs in its own process, as in `weft auto`. Scripts named after `--check` also run a step with the plan on 8 CPU devices,
     on drawn arguments, and the results are compared with the results of one device.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("WEFT_NUM_DEVICES", "8")

import numpy as np

import weft
from weft.tools.auto_command import AutoOptions, mesh_of, parse_mesh, run_recorded
from weft.tools.automatic.search import SearchOptions, plan_function
from weft.tools.automatic.step_recorder import JittedStep, StepRecorder

FOLDER = Path(__file__).parents[2] / "examples" / "ecosystem" / "training"
DEVICES = 8
#: most constraints, and the factor within which they reproduce a plan
MOST_CONSTRAINTS, WITHIN = 3, 1.02
HEADER = (
    "| script | mesh | plan | ordinary | data parallel | constraints | search, s |\n"
    "|---|---|--:|--:|--:|--:|--:|"
)


def recorded_step(script: Path) -> JittedStep:
    """Run two steps of a script and return its step."""
    recorder = StepRecorder()
    status = run_recorded(AutoOptions(str(script), ("2",), ""), DEVICES, recorder)
    step = recorder.largest()
    if status or step is None:
        sys.exit(f"{script} ended with status {status}")
    return step


def plan_script(script: Path, meshes: list[str], machine: str | None, check: bool) -> bool:
    """Print the rows of a script, and return whether it is within the bounds."""
    step = recorded_step(script)
    is_within = True
    for text in meshes:
        start = time.perf_counter()
        mesh = mesh_of(parse_mesh(text))
        plan = plan_function(step.planned, SearchOptions(mesh, machine))
        seconds = time.perf_counter() - start
        parallel = plan.compare()["data parallel"].price
        count = len(plan.annotations(WITHIN))
        scale = 1e6 if plan.cost.unit == "s" else 1e-6
        prices = [plan.cost.price, plan.ordinary.price, parallel]
        cells = [script.stem, text, *(f"{scale * p:.4g}" for p in prices), str(count)]
        print(f"| {' | '.join(cells)} | {seconds:.2g} |", flush=True)
        is_within &= count <= MOST_CONSTRAINTS and plan.cost.price <= parallel
        if check:
            print(f"{script.stem} on {text}: {compare_values(plan, step)}", file=sys.stderr)
    return is_within


def compare_values(plan: Any, step: JittedStep) -> str:
    """Run a step with the plan and on one device, and return the largest difference of a result from its scale."""
    random = np.random.default_rng(0)
    args = weft.tree.map(lambda struct: _drawn(struct, random), step.planned.args)
    expected = weft.tree.leaves(weft.jit(step.planned.function)(*args))
    actual = weft.tree.leaves(plan.jit(donate_argnums=())(*plan.place(args)))
    differences = [_difference(a, b) for a, b in zip(actual, expected, strict=True)]
    largest = np.max(differences)  # NaN if one is
    return f"{len(differences)} results, largest difference {largest:.1e} of the largest element"


def _drawn(struct: Any, random: np.random.Generator) -> Any:
    """Return small values of a type; positive ones, as second moments are."""
    if weft.dtypes.issubdtype(struct.dtype, weft.dtypes.prng_key):
        return weft.random.split(weft.random.key(0), struct.shape)
    if np.issubdtype(struct.dtype, np.floating):
        return np.abs(random.normal(0.0, 0.003, struct.shape)).astype(struct.dtype)
    return random.integers(0, 2, struct.shape).astype(struct.dtype)


def _difference(actual: Any, expected: Any) -> float:
    if weft.dtypes.issubdtype(expected.dtype, weft.dtypes.prng_key):
        actual, expected = weft.random.key_data(actual), weft.random.key_data(expected)
    a, b = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    scale = np.abs(b).max(initial=0.0) or 1.0
    return float(np.abs(a - b).max(initial=0.0) / scale)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--meshes", default="8,4x2")
    parser.add_argument("--machine", default="h100", help="a preset, or none: bytes sent")
    parser.add_argument("--check", default="", help="scripts whose values are compared")
    parser.add_argument("--one", action="store_true", help="plan one script in this process")
    parser.add_argument("scripts", nargs="*", type=Path, help="all of the folder by default")
    options = parser.parse_args()
    machine = None if options.machine == "none" else options.machine
    meshes, checked = options.meshes.split(","), options.check.split(",")
    if options.one:
        (script,) = options.scripts
        return not plan_script(script, meshes, machine, script.stem in checked)
    print(HEADER, flush=True)
    statuses: list[int] = []
    for script in options.scripts or sorted(FOLDER.glob("*.py")):
        words = ["--one", "--meshes", options.meshes, "--machine", options.machine]
        command = [sys.executable, "-m", "benchmarks.automatic.scripts", *words]
        done = subprocess.run(
            [*command, "--check", options.check, str(script)], stdout=subprocess.PIPE, text=True
        )
        rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
        print("\n".join(rows), flush=True)
        statuses.append(done.returncode)
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
