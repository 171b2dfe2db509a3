"""What formulas of functions of floats are written in (`ops.functions`), in terms of a few operations that each backend has.

In:   values of a backend, with Python's operators; its `fma`, `select`, `to_bits`, `from_bits`, `to_float`, `c` and `table`.
Out:  polynomials, exponents and powers of two, the parts of a number, answers at special arguments, and every function by its formula.
Next: `codegen.vector.math_real` for registers, `hlo.rules.formulas` for arrays.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.ir.registry import functions

#: after which a loop ends even if elements are not done
_MOST_STEPS = 10_000.0


class Formulas:
    """Formulas in one floating type; the values `V` of a backend are floats, integers of the same size, or masks."""

    fma: Callable[..., Any]
    select: Callable[..., Any]
    to_bits: Callable[..., Any]
    from_bits: Callable[..., Any]
    to_float: Callable[..., Any]
    c: Callable[..., Any]
    table: Callable[[str], Sequence[float]]
    #: results are rounded to a half type, and then, whether powers take few instructions and any argument
    short: bool
    brief: bool
    has_fma: bool

    def __init__(self, type_: str, demand: str = ""):
        """`demand` is the type that results will be rounded to."""
        self.type, self.demand, self.wide = type_, demand or type_, type_ == "f64"
        self.bits, self.mantissa, self.bias = (64, 52, 1023) if self.wide else (32, 23, 127)
        #: adding it rounds to an integer and leaves that integer in the low bits
        self.magic = 1.5 * 2.0**self.mantissa
        self.magic_bits = (self.bias + self.mantissa << self.mantissa) | (1 << self.mantissa - 1)
        self.tiny = 2.0 ** (1 - self.bias)
        #: the bits of 3/4
        self.three_quarters = (self.bias << self.mantissa) - (1 << self.mantissa - 1)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Every function of `weft._engine.ops.functions`, by its formula: `f.exp(x)`."""
        function = functions[name]
        if function is None:
            raise AttributeError(f"formulas: there is no function {name!r}")
        return functools.partial(function.formula, self)

    def clamp(self, x: Any, low: float, high: float) -> Any:
        """x between two bounds; NaN stays."""
        x = self.select(x > high, high, x)
        return self.select(x < low, low, x)

    def poly(self, x: Any, name: str) -> Any:
        """The tabulated polynomial `name` at x."""
        return self.horner(x, self.table(name))

    def horner(self, x: Any, coefficients: Sequence[Any]) -> Any:
        """A polynomial, highest coefficient first."""
        y = coefficients[0] if len(coefficients) > 1 else self.c(coefficients[0])
        for coefficient in coefficients[1:]:
            y = self.fma(y, x, coefficient)
        return y

    def power_of_two(self, k: Any) -> Any:
        """2^k for integers k in the range of normal numbers."""
        return self.from_bits((k + self.bias) << self.mantissa)

    def ldexp(self, x: Any, shifted: Any) -> Any:
        """x * 2^k where `shifted` is k + magic; overflow and gradual underflow included."""
        k = self.to_bits(shifted) - self.magic_bits
        half = k >> 1
        return (x * self.power_of_two(half)) * self.power_of_two(k - half)

    def scale(self, x: Any, k: Any) -> Any:
        """x * 2^k for integers k; overflow and gradual underflow included."""
        return self.ldexp(x, k + self.magic)

    def split(self, x: Any) -> tuple[Any, Any]:
        """(k, m) with x = 2^k m and 3/4 <= m < 3/2 of positive x; of zero and infinity nothing but what `at` may mend."""
        tiny, scale = x < self.tiny, self.mantissa + 2
        k, m = self.split_normal(self.select(tiny, x * 2.0**scale, x))
        return self.select(tiny, k - float(scale), k), m

    def split_normal(self, x: Any) -> tuple[Any, Any]:
        """The same of positive normal numbers."""
        bits = self.to_bits(x)
        k = (bits - self.three_quarters) >> self.mantissa
        return self.small_to_float(k), self.from_bits(bits - (k << self.mantissa))

    def exponent(self, x: Any) -> Any:
        """k of 2^k <= x < 2^(k+1), of positive normal numbers."""
        return self.small_to_float((self.to_bits(x) >> self.mantissa) - self.bias)

    def leading_power(self, x: Any) -> Any:
        """2^k of the same."""
        return self.from_bits(self.to_bits(x) & -(1 << self.mantissa))

    def small_to_float(self, k: Any) -> Any:
        """A small integer as a float."""
        return self.to_float(k)

    def at(self, y: Any, x: Any, **known: float) -> Any:
        """`y`, but the values that are known where x is `zero`, `infinite` (positive) or `negative`; a NaN where x is one."""
        if "infinite" in known:
            y = self.select(x.same(math.inf), known["infinite"], y)
        if "zero" in known:
            y = self.select(x.same(0.0), known["zero"], y)
        return (
            self.select(x >= 0.0, y, known["negative"])
            if "negative" in known
            else self.select(x.is_nan(), x, y)
        )

    def advanced(
        self,
        step: Callable[..., tuple[Any, Sequence[Any]]],
        number: Any,
        values: Sequence[Any],
        going: Any,
    ) -> list[Any]:
        """The number, the values and where to go on after one step of `repeat`. Elements that are done stay as they are, so that a
        result does not depend on its neighbours."""
        more, made = step(number, *values)
        kept = [self.select(going, new, old) for new, old in zip(made, values)]
        return [number + 1.0, *kept, going & more & (number < _MOST_STEPS)]
