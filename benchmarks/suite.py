"""The registry of benchmark cases and the helpers in which cases are written.

The files of `cases/` import `jax` and run unchanged on weft (through `weft.compat`) and on JAX. A case is a setup function
that returns what is timed: a function without arguments that waits for its results. Arrays are created in setup, so listing
cases is free. What creates inputs (NumPy's random numbers load OpenSSL, 7 MiB) is imported here, before memory is measured,
since JAX imports it anyway and weft does not.

Three kinds: `step` (a repeated call), `first` (the first call of a function in a new process: tracing and compiling) and
`process` (a whole script).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.random


@dataclass(frozen=True)
class Case:
    """A benchmark: what to run and what bounds it."""

    name: str
    group: str
    setup: Callable[[], Callable[[], Any]] | None = None
    kind: str = "step"
    script: str = ""  # source of a `process`
    devices: int = 1
    quick: bool = False  # part of the quick subset
    memory: bool = False  # memory-bound: arguments are read once, results written once
    flops: float = 0.0  # per call; bounded by the multiply-add rate of type `rate`
    rate: str = "float32"
    budget_s: float = 0.5  # timing per engine
    shared: bool = False  # shares a process with other cases of its group; memory is not measured
    x64: bool = False


CASES: dict[str, Case] = {}


def add(case: Case) -> None:
    if case.name in CASES:
        raise ValueError(f"two cases are named {case.name!r}")
    CASES[case.name] = case


def case(name: str, group: str, **facts: Any) -> Callable[[Callable], Callable]:
    """Register a setup function."""

    def register(setup: Callable[[], Callable[[], Any]]) -> Callable[[], Callable[[], Any]]:
        add(Case(name, group, setup, **facts))
        return setup

    return register


def script(name: str, group: str, text: str, **facts: Any) -> None:
    """Register a script, timed as a whole process."""
    add(Case(name, group, kind="process", script=text, **facts))


class Step:
    """A call with its arguments that waits for all results."""

    def __init__(self, function: Callable, args: Sequence[Any]) -> None:
        import jax

        self.function, self.args, self.wait = function, args, jax.block_until_ready

    def __call__(self) -> Any:
        return self.wait(self.function(*self.args))


def program(
    name: str, group: str, function: Callable, *inputs: Any, jit: bool = True, **facts: Any
) -> None:
    """Register `function`, jitted, on `inputs`, a pytree in which each `Input` becomes an array."""

    def setup() -> Step:
        import jax

        args = jax.tree_util.tree_map(
            lambda x: x.make() if isinstance(x, Input) else x,
            inputs,
            is_leaf=lambda x: isinstance(x, Input),
        )
        jax.block_until_ready(args)
        return Step(jax.jit(function) if jit else function, args)

    add(Case(name, group, setup, **facts))


@dataclass(frozen=True)
class Input:
    """An array of random numbers, equal on both engines; `on` is a mesh shape and a spec.

    Inputs of the same rank and `seed` hold the same numbers, except for the `scale` of normal ones.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    high: int = 0  # integers below `high`, or normally distributed
    positive: bool = False
    on: tuple[tuple[int, ...], tuple[Any, ...]] | None = None
    seed: int = 0
    scale: float = 1.0

    def numpy(self) -> np.ndarray:
        dtype = np.dtype(getattr(ml_dtypes, self.dtype, self.dtype))
        size = int(np.prod(self.shape))
        random, block = (
            numpy.random.default_rng(len(self.shape) + 100 * self.seed),
            min(size, 1 << 20),
        )  # large arrays repeat a block
        values = (
            random.integers(0, self.high, block)
            if self.high
            else random.standard_normal(block, np.float32) * np.float32(self.scale)
        )
        if self.positive:
            values = np.abs(values)
        return np.resize(values.astype(dtype), self.shape)

    def make(self) -> Any:
        import jax
        import jax.numpy as jnp

        if self.on is None:
            return jnp.asarray(self.numpy())
        return jax.device_put(self.numpy(), layout(*self.on))


def normal(
    *shape: int,
    dtype: str = "float32",
    on: Any = None,
    positive: bool = False,
    seed: int = 0,
    scale: float = 1.0,
) -> Input:
    return Input(shape, dtype, on=on, positive=positive, seed=seed, scale=scale)


def integers(high: int, *shape: int, dtype: str = "int32", on: Any = None, seed: int = 0) -> Input:
    return Input(shape, dtype, high=high, on=on, seed=seed)


def mesh(shape: Sequence[int]) -> Any:
    """A mesh over the first devices, with axes a, b, c."""
    import jax
    from jax.sharding import Mesh

    size = int(np.prod(shape))
    return Mesh(np.array(jax.devices()[:size]).reshape(shape), tuple("abc"[: len(shape)]))


def layout(shape: Sequence[int], spec: Sequence[Any]) -> Any:
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(mesh(shape), PartitionSpec(*spec))


def load() -> dict[str, Case]:
    """All cases of the files in `cases/`."""
    import cases

    for module in pkgutil.iter_modules(cases.__path__):
        importlib.import_module(f"cases.{module.name}")
    return CASES
