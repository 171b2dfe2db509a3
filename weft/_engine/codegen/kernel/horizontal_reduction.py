"""Accumulators of vector loops: a neutral element in every lane before the loop, a scalar after it.

In:   the operation of an accumulator, its value before the loop, its registers after it, and the
      kernel emitter.
Out:  the initial registers; the value after the loop.
Laws: parts are combined pairwise, then lanes: the order of a sum depends on the shape of the loop,
      not on its data.
"""

from __future__ import annotations

from weft._engine.codegen.ir.scalar_types import REGISTER, vector
from weft._engine.codegen.ir.values import ComplexPair, EmittedValue, Uniform, Varying, leaves
from weft._engine.codegen.kernel.emission import Emission
from weft._engine.codegen.vector.registers import INTEGER_RANGE
from weft._engine.ir.loops import COMPLEX, FLOATS, REAL_OF


def neutral(emitter: Emission, op: str, type_: str) -> EmittedValue:
    """Return the neutral element of a reduction in every lane of every part."""
    if type_ in COMPLEX:
        part = REAL_OF[type_]
        real = emitter.constant(1.0 if op == "mul" else -0.0, part)
        return ComplexPair(
            type_,
            emitter.replicate_parts(real),
            emitter.replicate_parts(emitter.constant(-0.0 if op == "add" else 0.0, part)),
        )
    return emitter.replicate_parts(emitter.constant(identity(op, type_), type_))


def fold_accumulator(
    emitter: Emission, op: str, start: EmittedValue, total: EmittedValue
) -> EmittedValue:
    """Reduce the parts and lanes of an accumulator to a scalar, starting from the initial value."""
    columns = [list(leaf.parts) for leaf in leaves(total)]
    rows = list(zip(*columns))
    width = emitter.lanes.w

    def merge(lanes_width: int, x: tuple[str, ...], y: tuple[str, ...]) -> tuple[str, ...]:
        saved = emitter.lanes, emitter.parts
        emitter.lanes, emitter.parts = emitter.lanes_of(lanes_width), 1
        merged = emitter.operate(op, [_row(total, x), _row(total, y)], total.type)
        emitter.lanes, emitter.parts = saved
        return tuple([leaf.parts[0] for leaf in leaves(merged)])

    while len(rows) > 1:
        half = (len(rows) + 1) // 2
        rows = [
            merge(width, rows[i], rows[i + half]) if i + half < len(rows) else rows[i]
            for i in range(half)
        ]
    row = rows[0]
    elements = [REGISTER[leaf.type] for leaf in leaves(total)]
    while width > 1:
        half = width // 2
        low = tuple([_slice(emitter, x, e, width, 0, half) for x, e in zip(row, elements)])
        high = tuple([_slice(emitter, x, e, width, half, half) for x, e in zip(row, elements)])
        width, row = half, merge(half, low, high) if half > 1 else (*low, *high)
    count = len(elements)
    low, high = _scalars(total, row[:count]), _scalars(total, row[count:])
    saved, emitter.vectorized = emitter.vectorized, False
    merged = emitter.operate(op, [low, high], total.type)
    result = emitter.operate(op, [start, merged], total.type)
    emitter.vectorized = saved
    return result


def _slice(emitter: Emission, x: str, element: str, width: int, first: int, count: int) -> str:
    type_ = vector(element, width)
    if count == 1:
        return emitter.b.pure(f"extractelement {type_} {x}, i32 {first}", x)
    return emitter.b.shuffle(type_, x, "poison", range(first, first + count))


def identity(op: str, type_: str) -> object:
    """Return the neutral element of a reduction.

    >>> identity("min", "i8"), identity("mul", "f32")
    (127, 1)
    """
    if op == "add":
        return -0.0 if type_ in FLOATS else 0
    if op == "mul":
        return 1
    if op in ("or", "xor"):
        return 0
    if op == "and":
        return -1
    if type_ == "bool":
        return op == "min"
    if type_ in FLOATS:
        return float("inf") if op == "min" else float("-inf")
    return INTEGER_RANGE[type_][1 if op == "min" else 0]


def _row(like: EmittedValue, names: tuple[str, ...]) -> EmittedValue:
    """Return a value with one vector register per leaf, shaped like `like`."""
    if isinstance(like, ComplexPair):
        return ComplexPair(
            like.type, Varying(like.real.type, names[:1]), Varying(like.imag.type, names[1:])
        )
    return Varying(like.type, names)


def _scalars(like: EmittedValue, names: tuple[str, ...]) -> EmittedValue:
    if isinstance(like, ComplexPair):
        return ComplexPair(
            like.type, Uniform(like.real.type, names[0]), Uniform(like.imag.type, names[1])
        )
    return Uniform(like.type, names[0])
