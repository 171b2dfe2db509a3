"""Functions by their formulas (`weft._engine.ops.functions`), on whole arrays: what XLA and CHLO have no operation for.

In:   the name of a function, and arrays of floats.
Out:  the operations of its formula, which is computed in doubles; functions in it that are operations stay so.
Laws: as those of `codegen.vector.math_real`, but that products are not exact: there is no operation that multiplies and adds at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.codegen.vector.math_tables import TABLE
from weft._engine.hlo.ops import Block, Value, array_type, dtype_kind
from weft._engine.ir.formulas import Formulas
from weft._engine.ir.registry import functions
from weft._engine.ops.functions import gammas

#: functions that are an operation
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


def apply(b: Block, name: str, args: Sequence[Value], type_: str) -> Value:
    """The function `name` of arrays; it will be rounded to `type_`."""
    if dtype_kind(args[0].dtype) == "c":
        raise NotImplementedError(
            f"as_text: {name} of complex numbers has no form as operations of XLA."
        )
    own = name == "nextafter"  # which is about the bits of its type
    type_inside = "f32" if own and args[0].dtype != np.float64 else "f64"
    return apply_formula(b, functions[name].formula, args, type_, type_inside)


def apply_formula(
    b: Block, formula: Callable, args: Sequence[Value], type_: str, type_inside: str = "f64"
) -> Value:
    """The values of a formula for arrays, computed in `type_inside`; they will be rounded to `type_`."""
    f = Tensors(b, args[0].shape, type_inside, type_)
    return formula(f, *[V(f, b.convert(x, f.dtype)) for x in args]).value


def _operator(op: str, swap: bool = False) -> Callable[[V, Any], V]:
    """Return an operator of arrays."""

    def apply(x: V, other: V | float) -> V:
        a, b = x.value, x.f.raw(other, x.value)
        return V(x.f, x.f.b.op(op, *((b, a) if swap else (a, b))))

    return apply


def _comparison(direction: str) -> Callable[[V, Any], V]:
    """Return a comparison of arrays."""
    return lambda x, other: V(x.f, x.f.b.compare(direction, x.value, x.f.raw(other, x.value)))


class V:
    """An array of floats, of integers of the same size, or of bools, with Python's operators."""

    __slots__ = ("f", "value")

    def __init__(self, f: Tensors, value: Value):
        self.f, self.value = f, value

    __add__, __radd__ = _operator("add"), _operator("add", swap=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", swap=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", swap=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", swap=True)
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__, __rshift__ = _operator("shift_left"), _operator("shift_right_arithmetic")
    __lt__, __le__, __gt__, __ge__, same = map(_comparison, ("LT", "LE", "GT", "GE", "EQ"))

    def __neg__(self) -> V:
        return V(self.f, self.f.b.op("negate", self.value))

    def __invert__(self) -> V:
        return V(self.f, self.f.b.op("not", self.value))

    def is_nan(self) -> V:
        """Where it is not a number."""
        return V(self.f, self.f.b.compare("NE", self.value, self.value))


class Tensors(Formulas):
    """What formulas ask of a backend, on arrays of one shape in one floating type."""

    def __init__(self, b: Block, shape: Sequence[int], type_: str, demand: str):
        super().__init__(type_, demand)
        self.b, self.shape, self.short, self.brief, self.has_fma = (
            b,
            tuple(shape),
            False,
            False,
            True,
        )
        self.dtype, self.int_dtype = np.dtype(f"f{self.bits // 8}"), np.dtype(f"i{self.bits // 8}")

    def __getattr__(self, name: str) -> Callable[..., V]:
        op = NAMED.get(name)
        if op and self.b.context.has(op):
            return lambda *args: V(self, self.b.op(op, *[self.raw(a) for a in args]))
        return super().__getattr__(name)

    def raw(self, x: V | float, like: Value | None = None) -> Value:
        """An array, of a number in the type of another."""
        if isinstance(x, V):
            return x.value
        made = self.b.full(self.shape, x, self.dtype if like is None else like.dtype)
        # adding it rounds, and taking it away again must not be simplified to nothing
        return (
            self.b.emit("optimization_barrier", [made], [made.type])[0]
            if abs(x) == self.magic
            else made
        )

    def c(self, value: float) -> V:
        """A constant."""
        return V(self, self.raw(value))

    def op(self, name: str, *args: V | float) -> V:
        """An operation on floats."""
        return V(self, self.b.op(name, *[self.raw(a) for a in args]))

    def fma(self, x: V | float, y: V | float, z: V | float) -> V:
        """x * y + z."""
        return self.op("add", self.op("multiply", x, y), z)

    exact_fma = fma

    def select(self, cond: V, x: V | float, y: V | float) -> V:
        """`x` where `cond` holds, else `y`."""
        like = next((a.value for a in (x, y) if isinstance(a, V)), None)
        a, b = self.raw(x, like), self.raw(y, like)
        return V(self, self.b.op("select", cond.value, a, b, type=a.type))

    def intrinsic(self, name: str, *args: V) -> V:
        """What is an operation."""
        return self.op(name, *args)

    def abs(self, x: V) -> V:
        return self.op("abs", x)

    def max(self, x: V, y: V) -> V:
        return self.op("maximum", x, y)

    def copysign(self, x: V | float, y: V) -> V:
        """The size of x with the sign of y."""
        sign = self.to_bits(y) & -(1 << self.bits - 1)
        return self.from_bits((self.to_bits(self.abs(V(self, self.raw(x))))) | sign)

    def trunc(self, x: V) -> V:
        """The integer part."""
        return self.select(x < 0.0, self.op("ceil", x), self.op("floor", x))

    def to_bits(self, x: V) -> V:
        """The bits of a float."""
        return V(
            self, self.b.op("bitcast_convert", x.value, type=array_type(self.shape, self.int_dtype))
        )

    def from_bits(self, x: V) -> V:
        """The float of some bits."""
        return V(
            self, self.b.op("bitcast_convert", x.value, type=array_type(self.shape, self.dtype))
        )

    def to_float(self, x: V) -> V:
        """An integer as a float."""
        return V(self, self.b.convert(x.value, self.dtype))

    def table(self, name: str) -> tuple[float, ...]:
        """The coefficients of the tabulated polynomial `name`."""
        return TABLE[name, self.type]

    def in_double(self) -> Tensors:
        """The formulas in doubles."""
        return self if self.wide else Tensors(self.b, self.shape, "f64", self.demand)

    def widen(self, x: V) -> V:
        """A value in doubles."""
        wide = self.in_double()
        return V(wide, self.b.convert(x.value, wide.dtype))

    def narrow(self, x: V) -> V:
        """A double back in this precision."""
        return V(self, self.b.convert(x.value, self.dtype))

    def cold(self, y: V, where: V, function: Any, *args: V) -> V:
        """`function` of the elements where it is asked for, else `y`."""
        found = (
            self.library(function, *args) if isinstance(function, str) else function(self, *args)
        )
        return self.select(where, found, y)

    def library(self, name: str, *args: V) -> V:
        """What is a function of the C library elsewhere."""
        return (
            gammas.lgamma_in_double(self, *args) if name == "lgamma" else getattr(self, name)(*args)
        )

    def repeat(self, step: Callable[..., tuple[V, list[V]]], *start: V | float) -> list[V]:
        """What `step(n, *values)`, which gives (more, values), makes of values, n = 1, 2, ..., in each element until it needs no more."""
        b = self.b
        begin = [self.raw(x) for x in (1.0, *start)]
        begin.append(b.full(self.shape, True, np.bool_))
        types = [x.type for x in begin]

        def go(block: Block, *values: Value) -> Value:
            init = block.constant(np.False_)
            axes = range(len(self.shape))
            return block.reduce(
                [values[-1]], [init], axes, lambda inner, x, y: inner.op("or", x, y)
            )[0]

        def body(block: Block, *values: Value) -> list[Value]:
            outer, self.b = self.b, block
            number, *old = [V(self, x) for x in values[:-1]]
            kept = self.advanced(step, number, old, V(self, values[-1]))
            self.b = outer
            return [v.value for v in kept]

        outs = b.emit("while", begin, types, [b.region(types, go), b.region(types, body)])
        return [V(self, x) for x in outs[1:-1]]
