"""`reduce_precision`: floats rounded to the values of a smaller format, in their own dtype.

Mantissas round to nearest, ties to even; values that are too large become infinite, and values
below the smallest normal number of the smaller format become zero. Floats of at most 16 bits are
computed in float32, which represents them exactly.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops.families import FLOATING, check_dtype, elementwise
from weft._engine.util import dtypes
from weft._engine.util.trees.narrowing import class_of

if TYPE_CHECKING:
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ir.loops import Expr
    from weft._engine.ops.rule_types import Array, ArrayLike, NumPyArray


def _parts(bits: int, exponent_bits: int, mantissa_bits: int) -> tuple[int, float | None, float]:
    """Return the mantissa bits to drop, the largest finite number, the smallest normal one.

    The largest is None unless exponents are cut, too.
    """
    exponent, mantissa = {32: (8, 23), 64: (11, 52)}[bits]
    drop = max(mantissa - mantissa_bits, 0)
    if exponent_bits >= exponent:
        return drop, None, 0.0
    top = 2 ** (exponent_bits - 1) - 1
    return drop, (2 - 2.0**-mantissa_bits) * 2.0**top, 2.0 ** (1 - top)


def _reference(x: NumPyArray, *, exponent_bits: int, mantissa_bits: int):
    bits = 8 * x.dtype.itemsize
    drop, largest, smallest = _parts(bits, exponent_bits, mantissa_bits)
    unsigned = np.dtype(f"u{x.dtype.itemsize}").type
    out = x
    if drop:
        word = x.view(unsigned)
        odd = (word >> unsigned(drop)) & unsigned(1)
        word = (word + odd + unsigned((1 << (drop - 1)) - 1)) & unsigned((1 << bits) - (1 << drop))
        out = np.where(np.isnan(x), x, word.view(x.dtype))
    if largest is None:
        return out
    size = np.abs(out)
    out = np.where(size > largest, np.copysign(np.asarray(np.inf, x.dtype), out), out)
    return np.where(size < smallest, np.copysign(np.zeros((), x.dtype), out), out).astype(x.dtype)


def _emit(b: LoopsBuilder, x: Expr, *, exponent_bits: int, mantissa_bits: int):
    if x.type not in ("f32", "f64"):
        rounded = _emit(
            b, b.cast(x, "f32"), exponent_bits=exponent_bits, mantissa_bits=mantissa_bits
        )
        return b.cast(rounded, x.type)
    bits = int(x.type[1:])
    word = f"u{bits}"
    drop, largest, smallest = _parts(bits, exponent_bits, mantissa_bits)
    out = x
    if drop:
        raw = b.bitcast(x, word)
        odd = b.op("and", b.op("shr_logical", raw, b.const(drop, word)), b.const(1, word))
        raw = b.op("add", b.op("add", raw, odd), b.const((1 << (drop - 1)) - 1, word))
        raw = b.op("and", raw, b.const((1 << bits) - (1 << drop), word))
        out = b.select(b.op("ne", x, x), x, b.bitcast(raw, x.type))
    if largest is None:
        return out
    size = b.op("abs", out)
    infinite = b.op("copysign", b.const(float("inf"), x.type), out)
    out = b.select(b.op("gt", size, b.const(largest, x.type)), infinite, out)
    return b.select(
        b.op("lt", size, b.const(smallest, x.type)),
        b.op("copysign", b.const(0.0, x.type), out),
        out,
    )


#: params: exponent_bits, mantissa_bits; its derivative is itself
reduce_precision_p = elementwise(
    "reduce_precision",
    FLOATING,
    _reference,
    emit=_emit,
    jvp=[lambda t, out, x, **params: reduce_precision_p.bind(t, **params)],
    transpose=[lambda ct, x, **params: reduce_precision_p.bind(ct, **params)],
)


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round `operand` to floats with the given bits of exponent and mantissa, in its own dtype.

    Raise TypeError for operands that are not floating and for widths that are not integers,
    ValueError for fewer than 1 bit of exponent or 0 of mantissa.

    >>> float(reduce_precision(np.float32(1.2345678), 5, 10))
    1.234375
    """
    exponent_bits, mantissa_bits = operator.index(exponent_bits), operator.index(mantissa_bits)
    if exponent_bits < 1 or mantissa_bits < 0:
        raise ValueError(
            f"reduce_precision: exponent_bits must be at least 1 and mantissa_bits at least 0, got {exponent_bits} and "
            f"{mantissa_bits}."
        )
    check_dtype("reduce_precision", typeof(operand), FLOATING)
    info = dtypes.finfo(typeof(operand).dtype)
    if (
        exponent_bits >= int(info.nexp)
        and mantissa_bits >= int(info.nmant)
        and hasattr(class_of(operand), "aval")
    ):
        return operand
    return reduce_precision_p.bind(
        operand, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits
    )
