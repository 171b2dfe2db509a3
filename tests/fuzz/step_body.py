"""The functions of random programs while they are written: lines, and the values in scope.

In:   a random generator, values, and the setting of the program: its mesh and dtypes.
Out:  a `Body`, to which `steps` and `nested_steps` add lines.
Laws: a value is exact if it comes from the arguments without rounding; lines of other values stand in `near`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

SIZES = (1, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16)
SMALL = ("int4", "uint4", "float8_e4m3fn", "float8_e5m2")
INTS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
FLOATS = ("float16", "bfloat16", "float32")
WIDE = {"int64", "uint64", "float64", "complex128"}


class Value(NamedTuple):
    """A name in the program and its type. `varying`: inside a shard_map, the mesh axes along which
    it differs."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    exact: bool = True
    varying: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        return {"b": "b", "i": "i", "u": "i", "f": "f", "c": "c"}[
            "f" if self.dtype == "bfloat16" else self.dtype[0]
        ]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


class Setting(Protocol):
    """The state that all parts of a program share."""

    mesh: dict[str, int]
    dtypes: list[str]
    explicit: bool
    wild: bool

    def parts(self, entry: object) -> int: ...
    @staticmethod
    def axes(entry: object) -> tuple[str, ...]: ...
    def spec(
        self,
        shape: Sequence[int],
        *,
        uneven: bool = False,
        axes: Sequence[str] | None = None,
        chance: float = 0.6,
    ) -> tuple: ...


def _ways(text: str) -> list[str]:
    return [part.strip() for part in text.split(";")]


class Body:
    """The current lines of a function, and the values in its scope."""

    def __init__(
        self,
        r: random.Random,
        values: Sequence[Value],
        program: Setting,
        limit: int,
        prefix: str = "v",
    ):
        self.r, self.values, self.program, self.limit, self.prefix = (
            r,
            list(values),
            program,
            limit,
            prefix,
        )
        self.lines: list[str] = []

    def add(
        self,
        text: str,
        shape: Sequence[int],
        dtype: str,
        exact: bool,
        varying: frozenset[str] = frozenset(),
    ) -> Value:
        value = Value(
            f"{self.prefix}{len(self.lines)}", tuple(int(n) for n in shape), dtype, exact, varying
        )
        self.lines.append(f"{value.name} = {text if exact else f'near({text})'}")
        self.values.append(value)
        return value

    def like(
        self,
        text: str,
        x: Value,
        *,
        exact: bool | None = None,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
    ) -> Value:
        return self.add(
            text,
            x.shape if shape is None else shape,
            dtype or x.dtype,
            x.exact if exact is None else exact,
            x.varying,
        )

    def pick(self, test: Callable[[Value], object] = lambda x: True) -> Value | None:
        candidates = [x for x in self.values if test(x)]
        return self.r.choice(candidates[-5:]) if candidates else None

    def one(self, ways: str) -> str:
        return self.r.choice(_ways(ways))
