"""Values during emission: how an expression varies over the current vector loop.

A `EmittedValue` is one of
- uniform: one register for all lanes;
- affine: an i64 `base + stride * iteration`, kept symbolic so that addresses stay simple;
- varying: one vector register per unrolled part;
- a pair of real values, for complex types;
- an offset: an i64 `base + stride * short` of a uniform or affine base and one i32 register per
  part, so that gathers take 32-bit indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from weft._engine.ir.loops import ScalarType


class EmittedValue:
    """One emitted expression. `parts` are the names of its registers.

    `const`: the integer of a known i64 constant. `is_index_condition`: True for a bool that depends
    only on the iteration index, so that most vectors are all true or all false. `base_and_constant`: a uniform i64
    and the constant that was added to it, which addressing modes can absorb.
    """

    __slots__ = ("parts", "type")
    const: int | None = None
    is_index_condition: bool = False
    base_and_constant: tuple[EmittedValue, int] | None = None

    def __init__(self, type_: ScalarType, parts: tuple[str, ...] = ()) -> None:
        self.type = type_
        self.parts = parts


class Uniform(EmittedValue):
    """A value that is the same in every lane."""

    __slots__ = ("const", "base_and_constant")

    def __init__(self, type_: ScalarType, name: str, const: int | None = None) -> None:
        super().__init__(type_, (name,))
        self.const = const
        self.base_and_constant = None


class Varying(EmittedValue):
    """A value with one vector register per part."""

    __slots__ = ("is_index_condition",)

    def __init__(
        self, type_: ScalarType, parts: tuple[str, ...], is_index_condition: bool = False
    ) -> None:
        super().__init__(type_, parts)
        self.is_index_condition = is_index_condition


class Affine(EmittedValue):
    """The i64 `base + stride * iteration` of the vector loop."""

    __slots__ = ("base", "stride")

    def __init__(self, base: EmittedValue, stride: int) -> None:
        super().__init__("i64")
        self.base, self.stride = base, stride


class GatherOffset(EmittedValue):
    """The i64 `base + stride * short` of i32 registers `parts`."""

    __slots__ = ("base", "stride")

    def __init__(self, base: EmittedValue, stride: int, parts: tuple[str, ...]) -> None:
        super().__init__("i64", parts)
        self.base, self.stride = base, stride


class ComplexPair(EmittedValue):
    """A complex value."""

    __slots__ = ("imag", "real")

    def __init__(self, type_: ScalarType, real: EmittedValue, imag: EmittedValue) -> None:
        super().__init__(type_)
        self.real, self.imag = real, imag


def constant(value: int) -> Uniform:
    """Return a known i64."""
    return Uniform("i64", str(value), value)


def is_adjacent(index: EmittedValue) -> TypeGuard[Affine]:
    """Return whether iterations access adjacent elements, forward or backward."""
    return isinstance(index, Affine) and index.stride in (1, -1)


def map_parts(change: Callable[..., EmittedValue], *values: EmittedValue) -> EmittedValue:
    """Apply `change` to real values, or to the real and the imaginary parts of complex ones."""
    reals, imags = [], []
    for value in values:
        if not isinstance(value, ComplexPair):
            return change(*values)
        reals.append(value.real)
        imags.append(value.imag)
    return ComplexPair(values[0].type, change(*reals), change(*imags))


def leaves(value: EmittedValue) -> list[EmittedValue]:
    """Return the real values that a value consists of."""
    return [value.real, value.imag] if isinstance(value, ComplexPair) else [value]
