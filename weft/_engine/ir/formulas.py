"""The building blocks of the formulas of scalar functions (`ops.functions`), defined by a few operations that each code generator has.

In:   values of a code generator with Python's operators, and its `fma`, `select`, `to_bits`, `from_bits`, `to_float`, `c` and `table`.
Out:  polynomials, powers of two, exponents and mantissas of numbers, results at special arguments, and every function by its formula.
Next: `codegen.vector.math_real` for registers, `hlo.rules.formulas` for arrays.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.ir.registry import functions

#: the number of iterations after which a loop ends even if elements have not converged
_MOST_STEPS = 10_000.0


class Formulas:
    """Formulas in one floating-point type. The values of a code generator are floats, integers of the same size, or masks."""

    fma: Callable[..., Any]
    select: Callable[..., Any]
    to_bits: Callable[..., Any]
    from_bits: Callable[..., Any]
    to_float: Callable[..., Any]
    c: Callable[..., Any]
    table: Callable[[str], Sequence[float]]
    #: whether results are rounded to a half type, so that shorter formulas suffice
    short: bool
    #: whether powers, for results that are rounded to a half type, take few instructions and accept any argument
    brief: bool
    has_fma: bool

    def __init__(self, type_: str, demand: str = ""):
        """Create the formulas of a type; `demand` is the type to which results will be rounded."""
        self.type, self.demand, self.wide = type_, demand or type_, type_ == "f64"
        self.bits, self.mantissa, self.bias = (64, 52, 1023) if self.wide else (32, 23, 127)
        #: adding this number rounds to an integer, whose value is in the low bits of the sum
        self.magic = 1.5 * 2.0**self.mantissa
        self.magic_bits = (self.bias + self.mantissa << self.mantissa) | (1 << self.mantissa - 1)
        self.tiny = 2.0 ** (1 - self.bias)
        #: the bits of 3/4
        self.three_quarters = (self.bias << self.mantissa) - (1 << self.mantissa - 1)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function of `weft._engine.ops.functions`, by its formula: `f.exp(x)`."""
        function = functions[name]
        if function is None:
            raise AttributeError(f"formulas: there is no function {name!r}")
        return functools.partial(function.formula, self)

    def clamp(self, x: Any, low: float, high: float) -> Any:
        """Return x limited to the range from `low` to `high`; NaN stays NaN."""
        x = self.select(x > high, high, x)
        return self.select(x < low, low, x)

    def poly(self, x: Any, name: str) -> Any:
        """Return the value of the tabulated polynomial `name` at x."""
        return self.horner(x, self.table(name))

    def horner(self, x: Any, coefficients: Sequence[Any]) -> Any:
        """Return the value of a polynomial at x, by Horner's rule. The coefficient of the highest power comes first."""
        y = coefficients[0] if len(coefficients) > 1 else self.c(coefficients[0])
        for coefficient in coefficients[1:]:
            y = self.fma(y, x, coefficient)
        return y

    def power_of_two(self, k: Any) -> Any:
        """Return 2^k for integers k in the range of exponents of normal numbers."""
        return self.from_bits((k + self.bias) << self.mantissa)

    def ldexp(self, x: Any, shifted: Any) -> Any:
        """Return x * 2^k, where `shifted` is k + magic, with overflow and gradual underflow."""
        k = self.to_bits(shifted) - self.magic_bits
        half = k >> 1
        return (x * self.power_of_two(half)) * self.power_of_two(k - half)

    def scale(self, x: Any, k: Any) -> Any:
        """Return x * 2^k for integers k, with overflow and gradual underflow."""
        return self.ldexp(x, k + self.magic)

    def split(self, x: Any) -> tuple[Any, Any]:
        """Return (k, m) with x = 2^k m and 3/4 <= m < 3/2 for positive x. Results for zero and infinity are arbitrary;
        use `at_special_arguments`."""
        tiny, scale = x < self.tiny, self.mantissa + 2
        k, m = self.split_normal(self.select(tiny, x * 2.0**scale, x))
        return self.select(tiny, k - float(scale), k), m

    def split_normal(self, x: Any) -> tuple[Any, Any]:
        """Return (k, m) with x = 2^k m and 3/4 <= m < 3/2, for positive normal x only."""
        bits = self.to_bits(x)
        k = (bits - self.three_quarters) >> self.mantissa
        return self.small_to_float(k), self.from_bits(bits - (k << self.mantissa))

    def exponent(self, x: Any) -> Any:
        """Return k with 2^k <= x < 2^(k+1), for positive normal numbers."""
        return self.small_to_float((self.to_bits(x) >> self.mantissa) - self.bias)

    def leading_power(self, x: Any) -> Any:
        """Return 2^k with 2^k <= x < 2^(k+1), for positive normal numbers."""
        return self.from_bits(self.to_bits(x) & -(1 << self.mantissa))

    def small_to_float(self, k: Any) -> Any:
        """Return a small integer as a float."""
        return self.to_float(k)

    def at_special_arguments(self, y: Any, x: Any, **known: float) -> Any:
        """Return `y`, replaced by the given values where x is `zero`, `infinite` (positive) or `negative`, and by NaN where x is NaN."""
        if "infinite" in known:
            y = self.select(x.same(math.inf), known["infinite"], y)
        if "zero" in known:
            y = self.select(x.same(0.0), known["zero"], y)
        return (
            self.select(x >= 0.0, y, known["negative"])
            if "negative" in known
            else self.select(x.is_nan(), x, y)
        )

    def advance_iteration(
        self,
        step: Callable[..., tuple[Any, Sequence[Any]]],
        number: Any,
        values: Sequence[Any],
        going: Any,
    ) -> list[Any]:
        """Return the number, the values and the mask of active elements after one step of `repeat`.

        The values of inactive elements stay, so that the result of an element does not depend on other elements.
        """
        more, new_values = step(number, *values)
        selected = [self.select(going, new, old) for new, old in zip(new_values, values)]
        return [number + 1.0, *selected, going & more & (number < _MOST_STEPS)]
