"""Rounding to integers, and functions of the bits of floats."""

from __future__ import annotations

import enum
from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.core.primitive import registry
from weft._engine.core.trace import typeof
from weft._engine.ops.arithmetic import add, sub
from weft._engine.ops.casting import bitcast_convert_type
from weft._engine.ops.comparison import eq, gt, lt, ne, select
from weft._engine.ops.families import FLOATING, elementwise, function, match

if TYPE_CHECKING:
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ir.loops import Expr
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        ElementIndex,
        ElementReader,
        FormulaValue,
        NumPyArray,
        Value,
    )

_HALVES = (0.5, 1.5, 2.5, 2.0**23, 2.0**52)
_BOOL = np.dtype(np.bool_)


@function(FLOATING, np.isfinite, jvp="zero", result=lambda dtype: _BOOL, cost=1, passes_nans=True)
def is_finite(f: Formulas, x: FormulaValue):
    """Return whether `x` is neither infinite nor NaN, elementwise."""
    return f.abs(x) < inf


@function(FLOATING, np.floor, jvp="zero", is_exact=True, cost=1, ranges=((-5, 5),))
def floor(f: Formulas, x: FormulaValue):
    """Return the largest integer not above `x`, as a float."""
    return f.intrinsic("floor", x)


@function(FLOATING, np.ceil, jvp="zero", is_exact=True, cost=1, ranges=((-5, 5),))
def ceil(f: Formulas, x: FormulaValue):
    """Return the smallest integer not below `x`, as a float."""
    return f.intrinsic("ceil", x)


@function(None, np.trunc, cost=1, ranges=((-5, 5),))
def trunc(f: Formulas, x: FormulaValue):
    """Return the integer part of `x`."""
    return f.trunc(x)


@function(None, np.rint, cost=1, ranges=((-5, 5),), points=_HALVES)
def round_even(f: Formulas, x: FormulaValue):
    """Return the integer nearest to `x`, halves to the even one."""
    return f.round_even(x)


def _away_from_zero(x: Value):
    whole = np.trunc(x)
    return np.copysign(np.abs(whole) + (np.abs(x - whole) >= 0.5).astype(x.dtype), x)


@function(None, _away_from_zero, cost=1, ranges=((-5, 5),), points=_HALVES)
def round_away(f: Formulas, x: FormulaValue):
    """Return the integer nearest to `x`, halves away from zero."""
    whole = f.trunc(x)
    return f.copysign(f.select(f.abs(x - whole) >= 0.5, whole + f.copysign(1.0, x), whole), x)


class RoundingMethod(enum.IntEnum):
    """The treatment of halves by `round`."""

    __module__ = "weft.lax"

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def _round_reference(x: NumPyArray, *, rounding_method: RoundingMethod):
    return np.round(x) if rounding_method == RoundingMethod.TO_NEAREST_EVEN else _away_from_zero(x)


def _round_emit(b: LoopsBuilder, x: Expr, *, rounding_method: RoundingMethod):
    return b.op(
        "round_even" if rounding_method == RoundingMethod.TO_NEAREST_EVEN else "round_away", x
    )


round_p = elementwise(
    "round",
    FLOATING,
    _round_reference,
    emit=_round_emit,
    is_discontinuous=True,
    jvp="zero",
    is_exact=True,
)


def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """Return the integer nearest to `x`, as a float; halves are rounded away from zero, or to even.

    >>> np.asarray(round(np.array([0.5, -2.5]))).tolist()
    [1.0, -3.0]
    """
    return round_p.bind(x, rounding_method=RoundingMethod(rounding_method))


@function(None, np.copysign, cost=1, ranges=((-10, 10),))
def copysign(f: Formulas, x: FormulaValue, y: FormulaValue):
    """Return the magnitude of `x` with the sign of `y`."""
    return f.copysign(x, y)


@function(
    FLOATING,
    np.nextafter,
    jvp="zero",
    is_exact=True,
    passes_nans=True,
    widen=False,
    ranges=((-10, 10),),
)
def _nextafter(f: Formulas, x: FormulaValue, y: FormulaValue):
    """Return the next float after `x` in the direction of `y`; values of a half type are in f32."""
    bits, away = f.to_bits(x), (y > x) ^ (x < 0.0)
    step = {"bf16": 1 << 16, "f16": 1 << 13}.get(f.demand, 1)
    stepped = f.from_bits(f.select(away, bits + step, bits - step))
    if f.demand == "f16":  # subnormal numbers and the largest number of f16 are ordinary in f32
        size, least = f.abs(x), f.c(2.0**-24)
        even = (size < 2.0**-14) | (size.same(2.0**-14) & ~away)
        stepped = f.select(even, f.copysign(size + f.select(away, least, -least), x), stepped)
        stepped = f.select(size.same(inf), f.copysign(65504.0, x), stepped)
        least = f.copysign(least, y)
    else:
        least = f.from_bits(f.to_bits(f.copysign(0.0, y)) | step)
    result = f.select(x.same(0.0), least, stepped)
    result = f.select(x.same(y), y, result)
    return f.select(x.is_nan() | y.is_nan(), nan, result)


@registry["nextafter"].def_lower
def _nextafter_lower(
    b: LoopsBuilder, index: ElementIndex, *inputs: ElementReader, in_avals: Avals, out_avals: Avals
):
    xs = [x(index if a.ndim else ()) for x, a in zip(inputs, in_avals)]
    return b.op_of_type("nextafter", *xs, type=b.type_of(out_avals[0]))


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the next float after `x1` in the direction of `x2`."""
    x, y = match(x1, x2)
    return _nextafter_half(x, y) if typeof(x).dtype.itemsize == 2 else _nextafter(x, y)


def _nextafter_half(x: Value, y: Value):
    """Return `nextafter` of 16-bit floats by their bits.

    Kernels compute these floats in 32 bits, whose neighbors are much closer.
    """
    dtype, word = typeof(x).dtype, np.dtype(np.int16)
    bits = bitcast_convert_type(x, word)
    away = ne(gt(y, x), lt(x, 0))
    stepped = select(away, add(bits, word.type(1)), sub(bits, word.type(1)))
    least = select(lt(y, 0), np.int16(-0x7FFF), np.int16(1))
    result = bitcast_convert_type(select(eq(x, 0), least, stepped), dtype)
    return select(eq(x, y), y, select(ne(x, x), x, select(ne(y, y), y, result)))
