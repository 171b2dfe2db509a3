"""Run the programs of `programs` on a system: `python -m tests.fuzz.runner` serves this one, `python runner.py --peer` the peer.

In:   tasks, pickled on standard input: (text, arrays, sizes and names of the mesh, whether its axes are explicit, specs, x64), and a way:
      "whole" (compiled, arguments on one device), "split" (compiled, arguments laid out on the mesh), "eager" and "eager split".
Out:  for each, pickled on standard output, the results as NumPy arrays, or a string: the error.
Laws: this file imports nothing of the system under test until it serves it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


class Task(NamedTuple):
    text: str
    arrays: list
    sizes: tuple[int, ...]
    names: str
    explicit: bool
    specs: tuple[tuple, ...]
    x64: bool
    uneven: bool


def task_of(program: Any) -> Task:
    return Task(
        program.text,
        program.arrays(),
        program.sizes,
        program.names,
        program.explicit,
        program.specs,
        program.x64,
        program.uneven,
    )


def near_of(xp: Any, noise: int | None) -> Any:
    """Return the identity function; with `noise`, a factor within one rounding of 1 for each
    element of a float."""
    if noise is None:
        return lambda x: x
    rng = np.random.default_rng(noise)

    def near(x: Any) -> Any:
        x = xp.asarray(x)
        if not xp.issubdtype(x.dtype, xp.inexact):
            return x
        sides = np.where(rng.random(x.shape) < 0.5, -1.0, 1.0).astype(np.float32)
        kind = xp.real(x).dtype
        return x * (1 + xp.asarray(sides).astype(kind) * xp.finfo(kind).eps)

    return near


def results(
    api: Any, task: Task, way: str = "whole", *, noise: int | None = None, **options: Any
) -> list[np.ndarray]:
    """Return the results of a program; `options` are options of `jit`."""
    api.config.update("jax_enable_x64", task.x64)
    try:
        return [np.asarray(x) for x in api.tree.leaves(_run(api, task, way, noise, options))]
    finally:
        api.config.update("jax_enable_x64", False)


def _run(api: Any, task: Task, way: str, noise: int | None, options: dict) -> Any:
    split, compiled, P = "split" in way, "eager" not in way, api.sharding.PartitionSpec
    kind = api.sharding.AxisType.Explicit if task.explicit and split else api.sharding.AxisType.Auto
    devices = api.devices()[: int(np.prod(task.sizes))]
    mesh = api.make_mesh(
        task.sizes, tuple(task.names), axis_types=(kind,) * len(task.sizes), devices=devices
    )
    layout = lambda *entries: api.sharding.NamedSharding(mesh, P(*entries))
    if not split or (not compiled and task.uneven):
        lay = lambda x, *entries: x
    elif task.explicit:
        lay = lambda x, *entries: api.sharding.reshard(x, layout(*entries))
    else:
        lay = lambda x, *entries: api.lax.with_sharding_constraint(x, layout(*entries))
    near = near_of(api.numpy, noise)
    scope = {
        "api": api,
        "np": np,
        "xp": api.numpy,
        "lax": api.lax,
        "nn": api.nn,
        "P": P,
        "mesh": mesh,
        "lay": lay,
        "near": near,
    }
    scope |= _modules(api, task.text)
    exec(task.text, scope)
    given = [
        api.device_put(x, layout(*s)) if split else api.numpy.asarray(x)
        for x, s in zip(task.arrays, task.specs)
    ]
    given = given if noise is None else [near(x) for x in given]
    main = api.jit(scope["main"], **options) if compiled else scope["main"]
    with api.set_mesh(mesh) if task.explicit and split else contextlib.nullcontext():
        return main(*given)


def _modules(api: Any, text: str) -> dict[str, Any]:
    """Import modules that a program uses and the system does not import by itself."""
    modules = {
        name.rpartition(".")[2]: importlib.import_module(f"{api.__name__}.{name}")
        for name in ("export", "experimental.sparse", "experimental.pallas")
        if f"{name.rpartition('.')[2]}." in text
    }
    if "checkpoint_name(" in text:
        module = importlib.import_module(
            "jax.ad_checkpoint" if api.__name__ == "jax" else "weft._engine.api.checkpointing"
        )
        modules["checkpoint_name"] = module.checkpoint_name
    return modules


# ---- other processes


class Server:
    """A process that runs tasks: this system with other environment variables, or the peer with
    `python`."""

    def __init__(self, environment: dict[str, str], python: str | None = None):
        where = (
            {
                "PYTHONPATH": "",
                "JAX_PLATFORMS": "cpu",
                "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
            }
            if python
            else {"PYTHONPATH": str(ROOT), "WEFT_NUM_DEVICES": "8"}
        )
        self.command = (
            [python, str(Path(__file__)), "--peer"]
            if python
            else [sys.executable, "-m", "tests.fuzz.runner"]
        )
        self.environment = {**os.environ, **where, "PYTHONWARNINGS": "ignore", **environment}
        self.process: subprocess.Popen | None = None

    def ask(self, task: Task, way: str) -> list[np.ndarray] | str:
        """Return the results, or the error; if the process dies, return that error and start
        another process for the next task."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            pickle.dump(self.question(task, way), self.process.stdin)
            self.process.stdin.flush()
            return pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            code = self.process.wait()
            self.close()
            return f"died: exit {code}"

    def question(self, task: Any, way: str) -> Any:
        """Return the object to send to the process."""
        return tuple(task), way

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
            self.process = None


def _serve(api: Any) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while True:
        try:
            task, way = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            found: Any = results(api, Task(*task), way)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        pickle.dump(found, answers)
        answers.flush()


if __name__ == "__main__":
    _serve(importlib.import_module("jax" if "--peer" in sys.argv else "weft"))
