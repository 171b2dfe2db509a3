"""The list of programs, the decorator that adds to it, and common arguments."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

import weft
import weft.numpy as wnp
from weft.sharding import NamedSharding, PartitionSpec as P


@dataclasses.dataclass
class Program:
    """`fn(*args)`, with the `specs` of arguments on `mesh()` and the `tolerance` of results, relative to the largest one."""

    name: str
    fn: Callable
    args: Sequence
    specs: Sequence | None = None
    tolerance: float = 2e-6
    x64: bool = False
    donate: tuple[int, ...] = ()

    def lower(self):
        """Return the program, lowered for its arguments."""
        return weft.jit(self.fn, donate_argnums=self.donate, **self.placement()).lower(*self.args)

    def placement(self) -> dict:
        """Return the shardings of arguments and results."""
        if self.specs is None:
            return {}
        return {
            "in_shardings": tuple(NamedSharding(mesh(), s) for s in self.specs),
            "out_shardings": NamedSharding(mesh(), P()),
        }


def mesh():
    """Return a mesh of eight devices along two axes."""
    return weft.make_mesh((4, 2), ("a", "b"))


PROGRAMS: list[Program] = []


def program(*args, **facts) -> Callable:
    """Return a decorator that adds a function with these arguments to `PROGRAMS`."""
    return lambda fn: PROGRAMS.append(Program(fn.__name__, fn, args, **facts)) or fn


def f32(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    return (
        np.random.default_rng(seed + math.prod(shape)).uniform(low, high, shape).astype(np.float32)
    )


X, Y, U = f32(3, 4), f32(3, 4, seed=1), f32(3, 4, low=0.1, high=0.9)
INTS = np.array([[-7, 0, 3, 2**31 - 1], [5, -(2**31), 1, 2]], np.int32)
OTHER = np.array([[2, 3, 0, 5], [-1, -1, 31, 40]], np.int32)
WORDS = INTS.view(np.uint32)
BOOLS = np.array([[True, False, True], [False, False, True]])
SPECIALS = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e-30], np.float32
)  # XLA flushes subnormal numbers to zero
Z = (X + 1j * Y).astype(np.complex64)
BF = X.astype(wnp.bfloat16)


SPD = (lambda m: m @ m.swapaxes(-1, -2) + 4 * np.eye(4, dtype=np.float32))(f32(2, 4, 4))


KEY = weft.random.key(3)
