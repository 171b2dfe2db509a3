"""Arithmetic: add sub mul div rem neg sign abs max min square integer_pow, and identities.

Integer laws (as XLA's): results wrap; `div` truncates toward zero; x / 0 is all ones, x rem 0 is x; MIN / -1 is MIN.
Float laws: `max` and `min` propagate NaN; `sign` keeps the sign of zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import registry
from weft._engine.core.trace import typeof
from weft._engine.ops import families
from weft._engine.ops.casting import complex as make_complex, conj, imag, real
from weft._engine.ops.comparison import eq, ge, gt, lt, ne, select
from weft._engine.ops.families import (
    ANY,
    COMPLEX,
    INEXACT,
    INTEGER,
    NUMBER,
    binary,
    dtype_in,
    elementwise,
    match,
    unary,
    with_matching_kinds,
)
from weft._engine.util import dtypes

if TYPE_CHECKING:
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ir.loops import Expr
    from weft._engine.ir.types import ShapedArray
    from weft._engine.ops.rule_types import Array, ArrayLike, Emit, NumPyArray, Value


def is_complex(x: Value) -> bool:
    """Return whether the elements of `x` are complex."""
    return dtype_in(typeof(x).dtype, COMPLEX)


def _is_signed_int(scalar_type: str) -> bool:
    return scalar_type in ("i8", "i16", "i32", "i64")


def _is_int(scalar_type: str) -> bool:
    return scalar_type[0] in "iu"


# --- sums and products ------------------------------------------------------------------------------------------------


def _give(ct: Value, *args: Value) -> Value:
    return ct


def _give_neg(ct: Value, *args: Value) -> Value:
    return neg(ct)


neg_p = elementwise(
    "neg",
    NUMBER,
    np.negative,
    jvp="linear",
    transpose=[_give_neg],
    linear_ins=(0,),
    is_involution=True,
    is_exact=True,
    passes_nans=True,
)
add_p = elementwise(
    "add",
    NUMBER,
    np.add,
    jvp=[lambda t, out, x, y: t, ...],
    transpose=[_give, _give],
    linear_ins=(0, 1),
    additive=True,
    neutral=-0.0,
    commutes=True,
)
#: addition of tangents and cotangents, where every operand is linear
add_any_p = elementwise(
    "add_any",
    ANY,
    np.add,
    jvp=[lambda t, out, x, y: t, ...],
    transpose=[_give, _give],
    emit="add",
    linear_ins=(0, 1),
    additive=True,
    neutral=-0.0,
    commutes=True,
)
sub_p = elementwise(
    "sub",
    NUMBER,
    np.subtract,
    jvp=[lambda t, out, x, y: t, lambda t, out, x, y: neg(t)],
    transpose=[_give, _give_neg],
    linear_ins=(0, 1),
    additive=True,
    neutral=0.0,
)
mul_p = elementwise(
    "mul",
    NUMBER,
    np.multiply,
    jvp=[lambda t, out, x, y: mul(t, y), lambda t, out, x, y: mul(x, t)],
    transpose=[lambda ct, x, y: mul(ct, y), lambda ct, x, y: mul(x, ct)],
    linear_ins=(0, 1),
    neutral=1,
    commutes=True,
)


def neg(x: ArrayLike) -> Array:
    """Return `-x`, elementwise.

    >>> np.asarray(neg(np.array([1, -2]))).tolist()
    [-1, 2]
    """
    return neg_p.bind(x)


@with_matching_kinds
def add(x: ArrayLike, y: ArrayLike) -> Array:
    """Return `x + y`, elementwise, for numbers of one dtype.

    A Python number takes the dtype of the other operand.

    Shapes are equal, or one operand has no dims. Raises ShapeError for other shapes, TypeError for different dtypes.

    >>> np.asarray(add(np.array([1, 2]), 1)).tolist()
    [2, 3]
    """
    return add_p.bind(*match(x, y))


def add_any(x: Value, y: Value):
    """Return the sum of two tangents or cotangents."""
    return add_any_p.bind(x, y)


sub = binary(sub_p, "Return `x - y`, elementwise.")


@with_matching_kinds
def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: dtypes.DTypeLike | None = None) -> Array:
    """Return `x * y`, elementwise, for numbers of one dtype.

    A Python number takes the dtype of the other operand.

    With `out_dtype` the product is computed in that dtype. Shapes are equal, or one operand has no dims. Raises ShapeError for other
    shapes, TypeError for different dtypes.

    >>> np.asarray(mul(np.array([1, 2]), 3)).tolist()
    [3, 6]
    """
    x, y = match(x, y)
    if out_dtype is not None:
        families.same_dtypes("mul", (typeof(x), typeof(y)))
        convert = registry["convert_element_type"].bind
        result_dtype = dtypes.check_dtype(out_dtype, "mul")
        if dtypes.is_extended(result_dtype):
            raise TypeError(f"mul: `out_dtype` must be a dtype of numbers, got {result_dtype}.")
        x, y = [
            v
            if typeof(v).dtype == result_dtype
            else convert(v, new_dtype=result_dtype, weak_type=False, sharding=None)
            for v in (x, y)
        ]
    return mul_p.bind(x, y)


# --- division ---------------------------------------------------------------------------------------------------------


def _int_div(x: NumPyArray, y: NumPyArray):
    """Return quotient of integers, truncated toward zero."""
    x, y = np.broadcast_arrays(x, y)
    ones = np.array(-1 if np.iinfo(x.dtype).min < 0 else np.iinfo(x.dtype).max, x.dtype)
    safe = np.where(y == 0, np.array(1, y.dtype), y)
    if np.iinfo(x.dtype).min == 0:
        return np.where(y == 0, ones, x // safe)
    minus_one = safe == -1  # apart, since MIN // -1 overflows
    safe = np.where(minus_one, np.array(1, y.dtype), safe)
    floor = x // safe
    quotient = floor + ((floor < 0) & (floor * safe != x)).astype(x.dtype)
    return np.where(y == 0, ones, np.where(minus_one, np.negative(x), quotient)).astype(x.dtype)


def _div_reference(x: NumPyArray, y: NumPyArray):
    return _int_div(x, y) if np.issubdtype(x.dtype, np.integer) else np.true_divide(x, y)


def _rem_reference(x: NumPyArray, y: NumPyArray):
    if np.issubdtype(x.dtype, np.integer):
        return np.where(y == 0, x, x - _int_div(x, y) * y).astype(x.dtype)
    return np.fmod(x, y)


def _safe_divisor(b: LoopsBuilder, y: Expr):
    """Return an integer divisor that cannot trap: 1 in place of 0 and -1, and the tests for both."""
    is_zero = b.op("eq", y, b.const(0, y.type))
    if not _is_signed_int(y.type):
        return b.select(is_zero, b.const(1, y.type), y), is_zero, None
    is_minus = b.op("eq", y, b.const(-1, y.type))
    return b.select(b.logical_or(is_zero, is_minus), b.const(1, y.type), y), is_zero, is_minus


def _div_emit(b: LoopsBuilder, x: Expr, y: Expr):
    if not _is_int(x.type):
        return b.op("div", x, y)
    safe, is_zero, is_minus = _safe_divisor(b, y)
    out = b.op("div", x, safe)
    if is_minus is not None:
        out = b.select(is_minus, b.op("neg", x), out)
    return b.select(is_zero, b.op("not", b.const(0, x.type)), out)


def _rem_emit(b: LoopsBuilder, x: Expr, y: Expr):
    if not _is_int(x.type):
        return b.op("rem", x, y)
    safe, is_zero, _ = _safe_divisor(b, y)
    return b.select(is_zero, x, b.op("rem", x, safe))


div_p = elementwise(
    "div",
    NUMBER,
    _div_reference,
    emit=_div_emit,
    neutral=1,
    cost=4,
    linear_ins=lambda ins, outs: (0,) if dtype_in(outs[0].dtype, INEXACT) else (),
    transpose=[lambda ct, x, y: div(ct, y), None],
    jvp=[lambda t, out, x, y: div(t, y), lambda t, out, x, y: mul(neg(t), div(out, y))],
)
rem_p = elementwise(
    "rem",
    ("integer", "floating"),
    _rem_reference,
    emit=_rem_emit,
    cost=12,
    is_discontinuous=True,
    jvp=[lambda t, out, x, y: t, lambda t, out, x, y: mul(neg(t), _truncate(div(x, y)))],
    is_exact=True,
)


def _truncate(x: NumPyArray):
    return mul(sign(x), registry["floor"].bind(abs(x)))


@with_matching_kinds
def div(x: ArrayLike, y: ArrayLike) -> Array:
    """Return `x / y`, elementwise; integers truncate toward zero.

    >>> np.asarray(div(np.array([7, -7]), 2)).tolist()
    [3, -3]
    """
    return div_p.bind(*match(x, y))


rem = binary(rem_p, "Return the remainder of `x / y` with the sign of `x`, elementwise.")


# --- sign and size ----------------------------------------------------------------------------------------------------


def _sign_reference(x: NumPyArray):
    if np.iscomplexobj(x):
        size = np.abs(x)
        return np.where(size == 0, 0, x / np.where(size == 0, 1, size)).astype(x.dtype)
    return np.where(x == 0, x, np.sign(x))  # keeps the zero's sign


def _sign_emit(b: LoopsBuilder, x: Expr):
    if x.type in ("c64", "c128"):
        part = {"c64": "f32", "c128": "f64"}[x.type]
        re, im, size = (
            b.op("real", x, type=part),
            b.op("imag", x, type=part),
            b.op("abs", x, type=part),
        )
        empty = b.op("eq", size, b.const(0.0, part))
        size = b.select(empty, b.const(1.0, part), size)
        return b.op("complex", b.op("div", re, size), b.op("div", im, size), type=x.type)
    return b.op("sign", x)


def _sign_jvp(t: Value, out: Value, x: Value):
    if not is_complex(x):
        return families.zero_tangent(out)
    # d(x/|x|) = i out Im(conj(out) t) / |x|
    angle = imag(mul(conj(out), t))
    return mul(out, make_complex(0.0, div(angle, abs(x))))


sign_p = elementwise(
    "sign",
    NUMBER,
    _sign_reference,
    emit=_sign_emit,
    is_discontinuous=True,
    jvp=[_sign_jvp],
    is_exact=True,
    passes_nans=True,
)


def _real_of(dtype: dtypes.DType):
    return dtypes.to_real_dtype(dtype) if dtype_in(dtype, COMPLEX) else dtype


def _abs_emit(b: LoopsBuilder, x: Expr):
    if x.type in ("c64", "c128"):
        return b.op("abs", x, type={"c64": "f32", "c128": "f64"}[x.type])
    return x if x.type[0] == "u" else b.op("abs", x)


def _abs_jvp(t: Value, out: Value, x: Value):
    if not is_complex(x):
        return select(ge(x, 0), t, neg(t))
    size = select(eq(out, 0), 1, out)
    return div(real(mul(t, conj(x))), size)


abs_p = elementwise(
    "abs",
    NUMBER,
    np.abs,
    emit=_abs_emit,
    result=_real_of,
    jvp=[_abs_jvp],
    is_exact=True,
    passes_nans=True,
)
sign = unary(
    sign_p,
    "Return -1, 0 or 1 as `x` is negative, zero or positive; x / |x| for complex `x`. Zeros and NaN are unchanged.",
)
abs = unary(abs_p, "Return the absolute value of `x`; it is real for complex `x`.")


# --- order ------------------------------------------------------------------------------------------------------------


def _extremum(
    name: str,
    reference: Callable[..., Any],
    of_bools: str,
    wins: Callable[..., Any],
    wins_in_numpy: Callable[..., Any],
    neutral: float,
):
    """Make max or min; complex numbers are compared by real parts first.

    The selected operand has the tangent; operands that are equal have half of it each.
    """

    def share(t: Value, out: Value, mine: Value, other: Value):
        won = ne(out, other) if is_complex(out) else wins(mine, other)
        return select(won, t, select(eq(mine, other), mul(t, 0.5), 0))

    def of_all(x: NumPyArray, y: NumPyArray) -> NumPyArray:
        if not np.iscomplexobj(x):
            return reference(x, y)
        by_real = wins_in_numpy(np.real(x), np.real(y)) | (
            (np.real(x) == np.real(y)) & wins_in_numpy(np.imag(x), np.imag(y))
        )
        return np.where(by_real, x, y)

    emit: Emit = lambda b, x, y: b.op(of_bools if x.type == "bool" else name, x, y)
    return elementwise(
        name,
        ANY,
        of_all,
        emit=emit,
        computes=name,
        neutral=neutral,
        is_exact=True,
        passes_nans=True,
        commutes=True,
        jvp=[lambda t, out, x, y: share(t, out, x, y), lambda t, out, x, y: share(t, out, y, x)],
    )


max_p = _extremum("max", np.maximum, "or", gt, np.greater, -np.inf)
min_p = _extremum("min", np.minimum, "and", lt, np.less, np.inf)


@with_matching_kinds
def max(x: ArrayLike, y: ArrayLike) -> Array:
    """Return the larger of `x` and `y`, elementwise; NaN if either is.

    >>> np.asarray(max(np.array([1.0, np.nan]), 2.0)).tolist()
    [2.0, nan]
    """
    return max_p.bind(*match(x, y))


min = binary(min_p, "Return the smaller of `x` and `y`, elementwise; NaN if either is.")


# --- powers that are products -----------------------------------------------------------------------------------------

square_p = elementwise(
    "square",
    NUMBER,
    np.square,
    emit=lambda b, x: b.op("mul", x, x),
    computes="square",
    jvp=[lambda t, out, x: mul(t, mul(2, x))],
)


def _integer_pow_type(aval: ShapedArray, *, y: int):
    families.check_dtype("integer_pow", aval, NUMBER)
    if y < 0 and dtype_in(aval.dtype, INTEGER):
        raise TypeError(
            "integer_pow: integers cannot be raised to negative powers, got "
            f"{aval.str_short()} to the {y}. Cast to a floating dtype first."
        )
    return aval


def _power(x: Value, y: int, mul: Callable[[Any, Any], Any], reciprocal: Callable[[Any], Any]):
    """Return x to the power y by repeated squaring with `mul`; negative y by a final reciprocal."""
    result, factor, n = None, x, y if y >= 0 else -y
    while n:
        if n & 1:
            result = factor if result is None else mul(result, factor)
        n >>= 1
        factor = mul(factor, factor) if n else factor
    return result if y >= 0 else reciprocal(result)


def _integer_pow_reference(x: NumPyArray, *, y: int):
    if y == 0:
        return np.ones_like(x)
    return np.asarray(_power(x, y, np.multiply, lambda v: np.divide(np.ones((), x.dtype), v)))


def _one(b: LoopsBuilder, scalar_type: str):
    if scalar_type in ("c64", "c128"):
        return b.const(1 + 0j, scalar_type)
    return b.const(1 if _is_int(scalar_type) else 1.0, scalar_type)


def _integer_pow_emit(b: LoopsBuilder, x: Expr, *, y: int):
    one = _one(b, x.type)
    return (
        one
        if y == 0
        else _power(x, y, lambda u, v: b.op("mul", u, v), lambda v: b.op("div", one, v))
    )


def _integer_pow_jvp(t: Value, out: Value, x: Value, *, y: int):
    return families.zero_tangent(out) if y == 0 else mul(t, mul(y, integer_pow(x, y - 1)))


def _integer_pow_same_as(*, y: int) -> tuple[str, dict[str, Any]] | None:
    return ("square", {}) if y == 2 else None


integer_pow_p = elementwise(
    "integer_pow",
    NUMBER,
    _integer_pow_reference,
    type_rule=_integer_pow_type,
    emit=_integer_pow_emit,
    jvp=[_integer_pow_jvp],
    cost=2,
    same_as=_integer_pow_same_as,
)
square = unary(square_p, "Return `x * x`, elementwise.")


def integer_pow(x: ArrayLike, y: int) -> Array:
    """Return `x` to the power of the Python int `y`, by repeated multiplication.

    TypeError for a power that is no integer.

    >>> np.asarray(integer_pow(np.array([1, 2, 3]), 3)).tolist()
    [1, 8, 27]
    """
    y = operator.index(y)
    return x if y == 1 and hasattr(x, "aval") else integer_pow_p.bind(x, y=y)


def reciprocal(x: ArrayLike) -> Array:
    """Return `1 / x`, elementwise."""
    return integer_pow(x, -1)


# --- identity ---------------------------------------------------------------------------------------------------------


def _operand(x: NumPyArray) -> NumPyArray:
    return x


stop_gradient_p = elementwise(
    "stop_gradient",
    ANY,
    _operand,
    emit=lambda b, x: x,
    jvp="zero",
    widen=False,
    computes="copy",
    is_exact=True,
    passes_nans=True,
)
stop_gradient = unary(stop_gradient_p, "Return `x`, with a derivative of zero.")
