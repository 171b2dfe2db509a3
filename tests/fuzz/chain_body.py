"""The body of a random chain: typed arguments and statements, and the choices that ops share.

In:   a `random.Random`, and the sizes and dtypes of the chain.
Out:  a `ChainBody`, to which the ops of `chain_ops` add statements.
Laws: a value is *exact* if it comes from the arguments without rounding. No op makes a
      discontinuous choice by a rounded value, so that two correct evaluations agree to rounding.
Next: `chains` draws the arguments and the ops, `chain_judge` runs the result.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Shape = tuple[int, ...]

FLOATS = ("float32", "bfloat16", "float16", "float64")
COMPLEX = ("complex64", "complex128")
INTS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
WIDE = {"float64", "complex128", "int64", "uint64"}


@dataclass(frozen=True)
class ChainValue:
    """A name in the chain with its type. `masked`: it may hold -inf."""

    name: str
    shape: Shape
    dtype: str
    exact: bool = True
    masked: bool = False

    @property
    def kind(self) -> str:
        """Return "b", "i", "f" or "c"."""
        if self.dtype == "bool":
            return "b"
        if "int" in self.dtype:
            return "i"
        return "c" if "complex" in self.dtype else "f"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class ChainArgument:
    """An argument of a chain: its type and the distribution of its values."""

    name: str
    shape: Shape
    dtype: str
    values: str  # "normal", "whole" or "mask"
    scale: float = 1.0


@dataclass(frozen=True)
class Statement:
    """One line of a chain: `result = text`, the op that wrote it, and the names that it reads."""

    result: ChainValue
    text: str
    op: str
    reads: tuple[str, ...]

    @property
    def line(self) -> str:
        text = self.text if self.result.exact else f"near({self.text})"
        return f"{self.result.name} = {text}"


@dataclass
class ChainBody:
    """Arguments, statements and values of a chain under construction."""

    r: random.Random
    limit: int
    differentiable: bool = False
    on_mesh: bool = False
    last_chance: float = 0.6  # of an op to read the newest value: near 1 in chains, less in DAGs
    arguments: list[ChainArgument] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    values: list[ChainValue] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    op: str = ""

    def argument(
        self, shape: Sequence[int], dtype: str, values: str = "normal", scale: float = 1.0
    ) -> ChainValue:
        """Add an argument of the chain and return its value."""
        argument = ChainArgument(f"a{len(self.arguments)}", tuple(shape), dtype, values, scale)
        self.arguments.append(argument)
        value = ChainValue(argument.name, argument.shape, dtype, True, values == "mask")
        self.values.append(value)
        return value

    def add(
        self, text: str, shape: Sequence[int], dtype: str, exact: bool, *operands: ChainValue
    ) -> ChainValue:
        """Add a statement and return its value; it is exact if its operands are, too."""
        exact = exact and all(x.exact for x in operands)
        value = ChainValue(f"v{len(self.statements)}", tuple(int(n) for n in shape), dtype, exact)
        reads = tuple(x.name for x in operands)
        self.statements.append(Statement(value, text, self.op, reads))
        self.values.append(value)
        return value

    def like(
        self,
        text: str,
        x: ChainValue,
        exact: bool,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
    ) -> ChainValue:
        """Add a statement that reads only `x`, with its shape and dtype by default."""
        return self.add(text, x.shape if shape is None else shape, dtype or x.dtype, exact, x)

    def pick(
        self, test: Callable[[ChainValue], object], last_chance: float | None = None
    ) -> ChainValue | None:
        """Return a value that passes `test`, the newest one with a probability of `last_chance`."""
        chance = self.last_chance if last_chance is None else last_chance
        matches = [x for x in self.values if test(x)]
        if not matches:
            return None
        return matches[-1] if self.r.random() < chance else self.r.choice(matches)

    def partner(self, x: ChainValue, shape: Shape | None = None) -> ChainValue:
        """Return another value of the same type as `x` (or of `shape`), a new argument if none."""
        target = x.shape if shape is None else shape

        def matches(y: ChainValue) -> bool:
            return y.dtype == x.dtype and y.shape == target and y is not x and not y.masked

        if self.r.random() < 0.5:
            partner = self.pick(matches, 0.3)
            if partner is not None:
                return partner
        if self.r.random() < 0.3 and target == x.shape:
            return x
        return self.argument(target, x.dtype)

    def axis(self, x: ChainValue) -> int:
        return self.r.randrange(x.rank)

    def axes(self, x: ChainValue) -> tuple[int, ...]:
        """Return a nonempty random set of dims of `x`, in order."""
        count = self.r.choice((1, 1, 1, 2, x.rank))
        return tuple(sorted(self.r.sample(range(x.rank), min(count, x.rank))))

    def one(self, *choices: str) -> str:
        return self.r.choice(choices)


def replace_dim(shape: Shape, axis: int, *dims: int) -> Shape:
    """Return `shape` with the dim `axis` replaced by `dims`."""
    return (*shape[:axis], *dims, *shape[axis + 1 :])
