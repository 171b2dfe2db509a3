"""Formulas (`weft._engine.ops.functions`) on whole arrays, for functions that XLA and CHLO lack.

In:   the name of a function, and arrays of floats.
Out:  the operations of the formula, computed in doubles; functions in it that are XLA operations
      are written as such.
Laws: as in `codegen.vector.math_real`, but products are not exact, because XLA has no fused
      multiply-add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.codegen.vector.math_tables import TABLE
from weft._engine.hlo.ops import HloBlock, HloValue, array_type, dtype_kind
from weft._engine.ir.formulas import Formulas
from weft._engine.ir.registry import functions
from weft._engine.ops.functions import gammas

#: functions that are one XLA operation
NAMED = {
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "log": "log",
    "log1p": "log_plus_one",
    "logistic": "logistic",
    "tanh": "tanh",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tan",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "cbrt": "cbrt",
    "pow": "power",
    "floor": "floor",
    "ceil": "ceil",
    "round_even": "round_nearest_even",
    "round_away": "round_nearest_afz",
    "is_finite": "is_finite",
    "atan2": "atan2",
    "fmod": "remainder",
    "sinh": "chlo.sinh",
    "cosh": "chlo.cosh",
    "asin": "chlo.asin",
    "acos": "chlo.acos",
    "atan": "chlo.atan",
    "asinh": "chlo.asinh",
    "acosh": "chlo.acosh",
    "atanh": "chlo.atanh",
    "erf": "chlo.erf",
    "erfc": "chlo.erfc",
    "erf_inv": "chlo.erf_inv",
    "digamma": "chlo.digamma",
    "lgamma": "chlo.lgamma",
    "bessel_i1e": "chlo.bessel_i1e",
    "nextafter": "chlo.next_after",
    "polygamma": "chlo.polygamma",
    "zeta": "chlo.zeta",
}


def apply(b: HloBlock, name: str, args: Sequence[HloValue], type_: str) -> HloValue:
    """Return the function `name` of arrays, accurate enough to be rounded to `type_`."""
    if dtype_kind(args[0].dtype) == "c":
        raise NotImplementedError(
            f"as_text: {name} of complex numbers cannot be written as XLA operations."
        )
    depends_on_bits = name == "nextafter"  # nextafter depends on the bits of its dtype
    type_inside = "f32" if depends_on_bits and args[0].dtype != np.float64 else "f64"
    return apply_formula(b, functions[name].formula, args, type_, type_inside)


def apply_formula(
    b: HloBlock, formula: Callable, args: Sequence[HloValue], type_: str, type_inside: str = "f64"
) -> HloValue:
    """Evaluate a formula on arrays in `type_inside`, accurately enough to be rounded to `type_`."""
    f = ArrayFormulas(b, args[0].shape, type_inside, type_)
    return formula(f, *[FormulaArray(f, b.convert(x, f.dtype)) for x in args]).value


def _operator(op: str, swap: bool = False) -> Callable[[FormulaArray, Any], FormulaArray]:
    """Return an operator of arrays."""

    def apply(x: FormulaArray, other: FormulaArray | float) -> FormulaArray:
        a, b = x.value, x.f.raw(other, x.value)
        return FormulaArray(x.f, x.f.b.op(op, *((b, a) if swap else (a, b))))

    return apply


def _comparison(direction: str) -> Callable[[FormulaArray, Any], FormulaArray]:
    """Return a comparison of arrays."""
    return lambda x, other: FormulaArray(
        x.f, x.f.b.compare(direction, x.value, x.f.raw(other, x.value))
    )


class FormulaArray:
    """An array of floats, of integers of the same size, or of bools, with Python's operators."""

    __slots__ = ("f", "value")

    def __init__(self, f: ArrayFormulas, value: HloValue):
        self.f, self.value = f, value

    __add__, __radd__ = _operator("add"), _operator("add", swap=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", swap=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", swap=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", swap=True)
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__, __rshift__ = _operator("shift_left"), _operator("shift_right_arithmetic")
    __lt__, __le__, __gt__, __ge__, same = map(_comparison, ("LT", "LE", "GT", "GE", "EQ"))

    def __neg__(self) -> FormulaArray:
        return FormulaArray(self.f, self.f.b.op("negate", self.value))

    def __invert__(self) -> FormulaArray:
        return FormulaArray(self.f, self.f.b.op("not", self.value))

    def is_nan(self) -> FormulaArray:
        """Return a mask of the NaNs."""
        return FormulaArray(self.f, self.f.b.compare("NE", self.value, self.value))


class ArrayFormulas(Formulas):
    """The backend interface of formulas, on arrays of one shape in one floating type."""

    def __init__(self, b: HloBlock, shape: Sequence[int], type_: str, demand: str):
        super().__init__(type_, demand)
        self.b, self.shape, self.short, self.brief, self.has_fma = (
            b,
            tuple(shape),
            False,
            False,
            True,
        )
        self.dtype, self.int_dtype = np.dtype(f"f{self.bits // 8}"), np.dtype(f"i{self.bits // 8}")

    def __getattr__(self, name: str) -> Callable[..., FormulaArray]:
        op = NAMED.get(name)
        if op and self.b.context.has(op):
            return lambda *args: FormulaArray(self, self.b.op(op, *[self.raw(a) for a in args]))
        return super().__getattr__(name)

    def raw(self, x: FormulaArray | float, like: HloValue | None = None) -> HloValue:
        """Return an array; a number is broadcast, by default in the dtype of the formulas."""
        if isinstance(x, FormulaArray):
            return x.value
        array = self.b.full(self.shape, x, self.dtype if like is None else like.dtype)
        # adding this constant rounds; a barrier keeps its subtraction from being simplified away
        return (
            self.b.emit("optimization_barrier", [array], [array.type])[0]
            if abs(x) == self.magic
            else array
        )

    def c(self, value: float) -> FormulaArray:
        """Return a constant."""
        return FormulaArray(self, self.raw(value))

    def op(self, name: str, *args: FormulaArray | float) -> FormulaArray:
        """Write an operation on floats."""
        return FormulaArray(self, self.b.op(name, *[self.raw(a) for a in args]))

    def fma(
        self, x: FormulaArray | float, y: FormulaArray | float, z: FormulaArray | float
    ) -> FormulaArray:
        """Return x * y + z."""
        return self.op("add", self.op("multiply", x, y), z)

    exact_fma = fma

    def select(
        self, cond: FormulaArray, x: FormulaArray | float, y: FormulaArray | float
    ) -> FormulaArray:
        """Return `x` where `cond` holds, else `y`."""
        like = next((a.value for a in (x, y) if isinstance(a, FormulaArray)), None)
        a, b = self.raw(x, like), self.raw(y, like)
        return FormulaArray(self, self.b.op("select", cond.value, a, b, type=a.type))

    def intrinsic(self, name: str, *args: FormulaArray) -> FormulaArray:
        """Write a function that is an XLA operation."""
        return self.op(name, *args)

    def abs(self, x: FormulaArray) -> FormulaArray:
        return self.op("abs", x)

    def max(self, x: FormulaArray, y: FormulaArray) -> FormulaArray:
        return self.op("maximum", x, y)

    def copysign(self, x: FormulaArray | float, y: FormulaArray) -> FormulaArray:
        """Return the magnitude of x with the sign of y."""
        sign = self.to_bits(y) & -(1 << self.bits - 1)
        return self.from_bits((self.to_bits(self.abs(FormulaArray(self, self.raw(x))))) | sign)

    def trunc(self, x: FormulaArray) -> FormulaArray:
        """Return the integer part."""
        return self.select(x < 0.0, self.op("ceil", x), self.op("floor", x))

    def to_bits(self, x: FormulaArray) -> FormulaArray:
        """Return the bits of floats as integers."""
        return FormulaArray(
            self, self.b.op("bitcast_convert", x.value, type=array_type(self.shape, self.int_dtype))
        )

    def from_bits(self, x: FormulaArray) -> FormulaArray:
        """Return the floats with the given bits."""
        return FormulaArray(
            self, self.b.op("bitcast_convert", x.value, type=array_type(self.shape, self.dtype))
        )

    def to_float(self, x: FormulaArray) -> FormulaArray:
        """Convert integers to floats."""
        return FormulaArray(self, self.b.convert(x.value, self.dtype))

    def table(self, name: str) -> tuple[float, ...]:
        """Return the coefficients of the tabulated polynomial `name`."""
        return TABLE[name, self.type]

    def in_double(self) -> ArrayFormulas:
        """Return the formulas in doubles."""
        return self if self.wide else ArrayFormulas(self.b, self.shape, "f64", self.demand)

    def widen(self, x: FormulaArray) -> FormulaArray:
        """Return a value in doubles."""
        wide = self.in_double()
        return FormulaArray(wide, self.b.convert(x.value, wide.dtype))

    def narrow(self, x: FormulaArray) -> FormulaArray:
        """Return a double in this precision."""
        return FormulaArray(self, self.b.convert(x.value, self.dtype))

    def with_rare_case(
        self, y: FormulaArray, where: FormulaArray, function: Any, *args: FormulaArray
    ) -> FormulaArray:
        """Return `function` of the elements where `where` holds, else `y`."""
        values = (
            self.library(function, *args) if isinstance(function, str) else function(self, *args)
        )
        return self.select(where, values, y)

    def library(self, name: str, *args: FormulaArray) -> FormulaArray:
        """Evaluate a function that other backends take from the C library."""
        return (
            gammas.lgamma_in_double(self, *args) if name == "lgamma" else getattr(self, name)(*args)
        )

    def repeat(
        self,
        step: Callable[..., tuple[FormulaArray, list[FormulaArray]]],
        *start: FormulaArray | float,
    ) -> list[FormulaArray]:
        """Iterate `more, values = step(n, *values)` for n = 1, 2, ... while `more`, in each element."""
        b = self.b
        begin = [self.raw(x) for x in (1.0, *start)]
        begin.append(b.full(self.shape, True, np.bool_))
        types = [x.type for x in begin]

        def go(block: HloBlock, *values: HloValue) -> HloValue:
            init = block.constant(np.False_)
            axes = range(len(self.shape))
            return block.reduce(
                [values[-1]], [init], axes, lambda inner, x, y: inner.op("or", x, y)
            )[0]

        def body(block: HloBlock, *values: HloValue) -> list[HloValue]:
            outer, self.b = self.b, block
            number, *old = [FormulaArray(self, x) for x in values[:-1]]
            advanced = self.advance_iteration(step, number, old, FormulaArray(self, values[-1]))
            self.b = outer
            return [v.value for v in advanced]

        outs = b.emit("while", begin, types, [b.region(types, go), b.region(types, body)])
        return [FormulaArray(self, x) for x in outs[1:-1]]
