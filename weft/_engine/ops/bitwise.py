"""Bitwise operations on booleans and integers: and or xor not, shifts, population_count, clz.

Shifts by the width or more (or by a negative amount) give 0, or copies of the sign bit for shift_right_arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops.arithmetic import add, mul
from weft._engine.ops.families import BOOL_OR_INTEGER, INTEGER, binary, elementwise, match, unary

if TYPE_CHECKING:
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ir.loops import Expr
    from weft._engine.ops.rule_types import Array, ArrayLike, NumPyArray, Value

and_p = elementwise("and", BOOL_OR_INTEGER, np.bitwise_and, jvp="zero")
or_p = elementwise("or", BOOL_OR_INTEGER, np.bitwise_or, jvp="zero")
xor_p = elementwise("xor", BOOL_OR_INTEGER, np.bitwise_xor, jvp="zero")
not_p = elementwise("not", BOOL_OR_INTEGER, np.bitwise_not, jvp="zero", is_involution=True)


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """Return `x & y`, elementwise.

    >>> np.asarray(bitwise_and(np.array([6, 5]), 3)).tolist()
    [2, 1]
    """
    return and_p.bind(*match(x, y))


bitwise_or = binary(or_p, "Return `x | y`, elementwise.", "bitwise_or")
bitwise_xor = binary(xor_p, "Return `x ^ y`, elementwise.", "bitwise_xor")
bitwise_not = unary(not_p, "Return `~x`, elementwise; the negation for booleans.", "bitwise_not")


# --- shifts -----------------------------------------------------------------------------------------------------------


def _width(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize * 8


def _amount(x: NumPyArray, y: NumPyArray):
    """Return the shift amount, replaced where it is out of range, and a mask.

    The mask marks the amounts in range.
    """
    fits = (y >= 0) & (y < _width(x.dtype))
    return np.where(fits, y, 0).astype(x.dtype), fits


def _left(x: NumPyArray, y: NumPyArray):
    by, fits = _amount(x, y)
    return np.where(fits, np.left_shift(x, by), 0).astype(x.dtype)


def _right_logical(x: NumPyArray, y: NumPyArray):
    by, fits = _amount(x, y)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.where(fits, x.view(unsigned) >> by.view(unsigned), 0).astype(unsigned).view(x.dtype)


def _right_arithmetic(x: NumPyArray, y: NumPyArray):
    by, fits = _amount(x, y)
    last = np.array(_width(x.dtype) - 1, x.dtype)
    signed = np.dtype(f"i{x.dtype.itemsize}")
    return (x.view(signed) >> np.where(fits, by, last).view(signed)).view(x.dtype)


def _shift(name: str, reference: Callable[..., Any], op: str):
    def emit(b: LoopsBuilder, x: Expr, y: Expr):
        bits = int(x.type[1:])
        fits = b.op("lt", y, b.const(bits, y.type))
        if y.type[0] == "i":
            fits = b.logical_and(fits, b.op("ge", y, b.const(0, y.type)))
        if op != "shr_arithmetic":
            return b.select(
                fits, b.op(op, x, b.select(fits, y, b.const(0, y.type))), b.const(0, x.type)
            )
        by = b.select(fits, y, b.const(bits - 1, y.type))
        if x.type[0] == "i":
            return b.op(op, x, by)
        signed = f"i{bits}"
        return b.bitcast(b.op(op, b.bitcast(x, signed), b.bitcast(by, signed)), x.type)

    return elementwise(name, INTEGER, reference, emit=emit, jvp="zero")


shift_left_p = _shift("shift_left", _left, "shl")
shift_right_logical_p = _shift("shift_right_logical", _right_logical, "shr_logical")
shift_right_arithmetic_p = _shift("shift_right_arithmetic", _right_arithmetic, "shr_arithmetic")
shift_left = binary(shift_left_p, "Return `x << y`, elementwise.")
shift_right_logical = binary(
    shift_right_logical_p, "Return `x >> y`, filled with zeros, elementwise."
)
shift_right_arithmetic = binary(
    shift_right_arithmetic_p, "Return `x >> y`, filled with copies of the sign bit, elementwise."
)


# --- counting ---------------------------------------------------------------------------------------------------------


def _popcount(x: NumPyArray):
    unsigned = x.view(f"u{x.dtype.itemsize}")
    count = np.zeros(x.shape, np.uint8)
    for i in range(_width(x.dtype)):
        count = count + ((unsigned >> unsigned.dtype.type(i)) & unsigned.dtype.type(1)).astype(
            np.uint8
        )
    return count.astype(x.dtype)


def _clz(x: NumPyArray):
    unsigned = x.view(f"u{x.dtype.itemsize}")
    count = np.zeros(x.shape, np.uint8)
    for i in range(_width(x.dtype)):
        count = count + (unsigned < unsigned.dtype.type(1 << i)).astype(np.uint8)
    return count.astype(x.dtype)


population_count_p = elementwise(
    "population_count", INTEGER, _popcount, emit="popcount", jvp="zero"
)
clz_p = elementwise("clz", INTEGER, _clz, jvp="zero")
population_count = unary(population_count_p, "Return the number of one bits of `x`.")


def clz(x: ArrayLike) -> Array:
    """Return the number of zeros before the highest one bit of `x`.

    >>> np.asarray(clz(np.array([1, 0], np.uint8))).tolist()
    [7, 8]
    """
    return clz_p.bind(x)


def mulhi(x: ArrayLike, y: ArrayLike) -> Array:
    """Return the upper half of the double-width products of integers.

    Raise TypeError unless both operands are integers of one dtype.

    >>> np.asarray(mulhi(np.array([2**31], np.uint32), np.array([6], np.uint32))).tolist()
    [3]
    """
    dtype = typeof(x).dtype
    if dtype != typeof(y).dtype or dtype.kind not in "iu":
        raise TypeError(f"mulhi: takes integers of one dtype, got {dtype} and {typeof(y).dtype}.")
    half = dtype.type(dtype.itemsize * 4)
    # products of half words; an arithmetic shift keeps the sign of the upper halves
    shift = shift_right_arithmetic if dtype.kind == "i" else shift_right_logical
    low: Callable[[Value], Value] = lambda v: bitwise_and(v, dtype.type((1 << int(half)) - 1))
    high: Callable[[Value], Value] = lambda v: shift(v, half)
    carried = add(mul(high(x), low(y)), shift_right_logical(mul(low(x), low(y)), half))
    other = add(mul(low(x), high(y)), low(carried))
    return add(add(mul(high(x), high(y)), high(carried)), high(other))
