"""Values during emission: how an expression varies over the current vector loop.

A `Value` is uniform (one register for all lanes), affine (an i64 `base + stride * iteration`, kept symbolic so that
addresses stay simple), varying (one vector register per unrolled part), a complex pair of values, or an offset: an i64
`base + factor * short` of a uniform or affine base and one i32 register per part, so that gathers take 32-bit indices.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._engine.ir.loops import ScalarType

UNIFORM, AFFINE, VARYING, PAIR, OFFSET = range(5)


class Value:
    """One emitted expression. `parts` are register names; `const` is the Python int of a known i64 constant.

    `placed`: a bool that depends on the place alone, so that whole vectors of places mostly agree.
    `sum_of`: a uniform i64 and the constant that makes this one of it, which an address has room for.
    """

    __slots__ = (
        "base",
        "const",
        "imag",
        "kind",
        "parts",
        "placed",
        "real",
        "stride",
        "sum_of",
        "type",
    )

    def __init__(
        self,
        type_: ScalarType,
        kind: int,
        parts: tuple[str, ...] = (),
        const: int | None = None,
        placed: bool = False,
    ):
        self.placed = placed
        self.type = type_
        self.kind = kind
        self.parts = parts
        self.const = const
        self.sum_of: tuple[Value, int] | None = None


def uniform(type_: ScalarType, name: str) -> Value:
    """A value that is the same in every lane."""
    return Value(type_, UNIFORM, (name,))


def varying(type_: ScalarType, parts: tuple[str, ...], placed: bool = False) -> Value:
    """A value with one vector register per part."""
    return Value(type_, VARYING, parts, placed=placed)


def constant(value: int) -> Value:
    """A known i64."""
    return Value("i64", UNIFORM, (str(value),), value)


def affine(base: Value, stride: int) -> Value:
    """The i64 `base + stride * iteration` of the vector loop."""
    made = Value("i64", AFFINE)
    made.base, made.stride = base, stride
    return made


def offset(base: Value, factor: int, parts: tuple[str, ...]) -> Value:
    """The i64 `base + factor * short` of i32 registers `parts`."""
    made = Value("i64", OFFSET, parts)
    made.base, made.stride = base, factor
    return made


def pair(type_: ScalarType, real: Value, imag: Value) -> Value:
    """A complex value."""
    made = Value(type_, PAIR)
    made.real, made.imag = real, imag
    return made


def each(change: Callable[..., Value], *values: Value) -> Value:
    """What `change` makes of real values; of complex ones, of their real and of their imaginary parts."""
    if values[0].kind != PAIR:
        return change(*values)
    return pair(
        values[0].type,
        change(*[value.real for value in values]),
        change(*[value.imag for value in values]),
    )


def leaves(value: Value) -> list[Value]:
    """The real values a value consists of."""
    return [value.real, value.imag] if value.kind == PAIR else [value]
