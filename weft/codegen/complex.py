"""Complex operations, as pairs of real values.

Everything here is written in terms of real operations of `Expressions.operate`, so it serves scalars and vectors alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.codegen.values import PAIR, Value, pair
from weft.ir.loops import COMPLEX, REAL_OF

if TYPE_CHECKING:
    from weft.codegen.expressions import Expressions


def operate(e: Expressions, op: str, args: list[Value], type_: str) -> Value:
    """Apply `op` where an argument or the result is complex."""
    rule = _RULES.get(op)
    if rule is None:
        raise NotImplementedError(f"codegen: operation {op!r} on complex values")
    return rule(_Real(e, type_), args, type_)


class _Real:
    """Shorthands for real operations of one type."""

    def __init__(self, e: Expressions, type_: str):
        self.e = e
        self.type = REAL_OF.get(type_, type_)

    def __call__(self, op: str, *args: Value) -> Value:
        return self.e.operate(op, list(args), args[0].type)

    def test(self, op: str, x: Value, y: Value) -> Value:
        return self.e.operate(op, [x, y], "bool")

    def select(self, cond: Value, x: Value, y: Value) -> Value:
        return self.e.operate("select", [cond, x, y], x.type)

    def const(self, value: float, like: Value) -> Value:
        return self.e.constant(value, like.type)


def _parts(r: _Real, x: Value) -> tuple[Value, Value]:
    return (x.real, x.imag) if x.kind == PAIR else (x, r.const(0.0, x))


def _componentwise(op: str) -> Callable:
    def rule(r: _Real, args: list[Value], type_: str) -> Value:
        return pair(type_, r(op, *[arg.real for arg in args]), r(op, *[arg.imag for arg in args]))
    return rule


def _mul(r: _Real, args: list[Value], type_: str) -> Value:
    (a, b), (c, d) = (_parts(r, arg) for arg in args)
    return pair(type_, r("sub", r("mul", a, c), r("mul", b, d)), r("add", r("mul", a, d), r("mul", b, c)))


def _div(r: _Real, args: list[Value], type_: str) -> Value:
    # Smith's method: scale by the larger part of the divisor
    (a, b), (c, d) = (_parts(r, arg) for arg in args)
    wide = r.test("ge", r("abs", c), r("abs", d))
    big, small = r.select(wide, c, d), r.select(wide, d, c)
    ratio = r("div", small, big)
    zero = r.test("eq", big, r.const(0.0, big))
    ratio = r.select(zero, r.const(0.0, ratio), ratio)
    below = r("add", big, r("mul", small, ratio))
    p, q = r.select(wide, a, b), r.select(wide, b, a)
    real = r("div", r("add", p, r("mul", q, ratio)), below)
    turned = r.select(wide, r("sub", b, r("mul", a, ratio)), r("sub", r("mul", b, ratio), a))
    return pair(type_, real, r("div", turned, below))


def _abs(r: _Real, args: list[Value], type_: str) -> Value:
    x, y = r("abs", args[0].real), r("abs", args[0].imag)
    big, small = r("max", x, y), r("min", x, y)
    inf = r.const(float("inf"), x)
    infinite = r.e.operate("or", [r.test("eq", x, inf), r.test("eq", y, inf)], "bool")
    ratio = r("div", small, big)
    size = r("mul", big, r("sqrt", r("add", r.const(1.0, x), r("mul", ratio, ratio))))
    return r.select(infinite, inf, r.select(r.test("eq", big, r.const(0.0, x)), big, size))


def _sign(r: _Real, args: list[Value], type_: str) -> Value:
    size = _abs(r, args, type_)
    zero = r.test("eq", size, r.const(0.0, size))
    safe = r.select(zero, r.const(1.0, size), size)
    return pair(type_, r("div", args[0].real, safe), r("div", args[0].imag, safe))


def _equal(op: str, joined: str) -> Callable:
    def rule(r: _Real, args: list[Value], type_: str) -> Value:
        x, y = args
        return r.e.operate(joined, [r.test(op, x.real, y.real), r.test(op, x.imag, y.imag)], "bool")
    return rule


def _select(r: _Real, args: list[Value], type_: str) -> Value:
    cond, x, y = args
    return pair(type_, r.select(cond, x.real, y.real), r.select(cond, x.imag, y.imag))


def _cast(r: _Real, args: list[Value], type_: str) -> Value:
    x = args[0]
    if type_ not in COMPLEX:
        if type_ == "bool":
            hits = [r.test("ne", part, r.const(0.0, part)) for part in (x.real, x.imag)]
            return r.e.operate("or", hits, "bool")
        return r.e.operate("cast", [x.real], type_)
    part = REAL_OF[type_]
    if x.kind == PAIR:
        return pair(type_, r.e.operate("cast", [x.real], part), r.e.operate("cast", [x.imag], part))
    return pair(type_, r.e.operate("cast", [x], part), r.e.constant(0.0, part))


def _exp(r: _Real, args: list[Value], type_: str) -> Value:
    x, y = args[0].real, args[0].imag
    size, zero = r("exp", x), r.const(0.0, x)
    # a zero angle keeps the imaginary part exactly zero, also where the modulus is infinite
    imag = r.select(r.test("eq", y, zero), y, r("mul", size, r("sin", y)))
    return pair(type_, r("mul", size, r("cos", y)), imag)


def _log(r: _Real, args: list[Value], type_: str) -> Value:
    x, y = args[0].real, args[0].imag
    return pair(type_, r("log", _abs(r, args, type_)), r("atan2", y, x))


def _sqrt(r: _Real, args: list[Value], type_: str) -> Value:
    x, y = args[0].real, args[0].imag
    half, zero = r.const(0.5, x), r.const(0.0, x)
    root = r("sqrt", r("mul", half, r("add", r("abs", x), _abs(r, args, type_))))
    nothing = r.test("eq", root, zero)
    other = r("div", r("mul", half, r("abs", y)), r.select(nothing, r.const(1.0, x), root))
    right = r.test("ge", x, zero)
    return pair(type_, r.select(right, root, other), r("copysign", r.select(right, other, root), y))


def _reciprocal(r: _Real, x: Value, type_: str) -> Value:
    return _div(r, [pair(type_, r.const(1.0, x.real), r.const(0.0, x.real)), x], type_)


def _rsqrt(r: _Real, args: list[Value], type_: str) -> Value:
    return _reciprocal(r, _sqrt(r, args, type_), type_)


def _sin(r: _Real, args: list[Value], type_: str) -> Value:
    x, y = args[0].real, args[0].imag
    return pair(type_, r("mul", r("sin", x), r("cosh", y)), r("mul", r("cos", x), r("sinh", y)))


def _cos(r: _Real, args: list[Value], type_: str) -> Value:
    x, y = args[0].real, args[0].imag
    return pair(type_, r("mul", r("cos", x), r("cosh", y)), r("neg", r("mul", r("sin", x), r("sinh", y))))


def _sinh(r: _Real, args: list[Value], type_: str) -> Value:
    x, y = args[0].real, args[0].imag
    return pair(type_, r("mul", r("sinh", x), r("cos", y)), r("mul", r("cosh", x), r("sin", y)))


def _cosh(r: _Real, args: list[Value], type_: str) -> Value:
    x, y = args[0].real, args[0].imag
    return pair(type_, r("mul", r("cosh", x), r("cos", y)), r("mul", r("sinh", x), r("sin", y)))


def _tanh(r: _Real, args: list[Value], type_: str) -> Value:
    # (t (1 + s^2) + i s (1 - t^2)) / (1 + (t s)^2) with t = tanh x, s = tan y: never overflows
    t, s, one = r("tanh", args[0].real), r("tan", args[0].imag), r.const(1.0, args[0].real)
    t2, s2 = r("mul", t, t), r("mul", s, s)
    below = r("add", one, r("mul", t2, s2))
    return pair(type_, r("div", r("mul", t, r("add", one, s2)), below), r("div", r("mul", s, r("sub", one, t2)), below))


def _tan(r: _Real, args: list[Value], type_: str) -> Value:
    turned = _tanh(r, [pair(type_, r("neg", args[0].imag), args[0].real)], type_)
    return pair(type_, turned.imag, r("neg", turned.real))


def _log1p(r: _Real, args: list[Value], type_: str) -> Value:
    x, y = args[0].real, args[0].imag
    half, moved = r.const(0.5, x), r("add", r.const(1.0, x), x)
    # log|1+z| = log1p(x (2 + x) + y^2) / 2, which cancels where 1 + z is small; there 1 + x is exact
    grown = r("add", r("mul", x, r("add", r.const(2.0, x), x)), r("mul", y, y))
    small = r.test("lt", grown, r("neg", half))
    near = r("log", _abs(r, [pair(type_, moved, y)], type_))
    return pair(type_, r.select(small, near, r("mul", half, r("log1p", grown))), r("atan2", y, moved))


def _expm1(r: _Real, args: list[Value], type_: str) -> Value:
    # e^x cos y - 1 = expm1(x) cos y - 2 sin^2(y/2)
    x, y = args[0].real, args[0].imag
    s = r("sin", r("mul", r.const(0.5, y), y))
    real = r("sub", r("mul", r("expm1", x), r("cos", y)), r("mul", r.const(2.0, x), r("mul", s, s)))
    return pair(type_, real, r("mul", r("exp", x), r("sin", y)))


def _pow(r: _Real, args: list[Value], type_: str) -> Value:
    base, exponent = args
    result = _exp(r, [_mul(r, [_log(r, [base], type_), exponent], type_)], type_)
    zero = _both_zero(r, base)
    exponent_zero = _both_zero(r, exponent)
    one, nought = r.const(1.0, base.real), r.const(0.0, base.real)
    at_zero = r.select(exponent_zero, one, nought)
    return pair(type_, r.select(zero, at_zero, result.real), r.select(zero, nought, result.imag))


def _both_zero(r: _Real, x: Value) -> Value:
    nought = r.const(0.0, x.real)
    return r.e.operate("and", [r.test("eq", x.real, nought), r.test("eq", x.imag, nought)], "bool")


def _logistic(r: _Real, args: list[Value], type_: str) -> Value:
    half = r.const(0.5, args[0].real)
    t = _tanh(r, [pair(type_, r("mul", half, args[0].real), r("mul", half, args[0].imag))], type_)
    return pair(type_, r("add", half, r("mul", half, t.real)), r("mul", half, t.imag))


def _is_finite(r: _Real, args: list[Value], type_: str) -> Value:
    flags = [r.e.operate("is_finite", [part], "bool") for part in (args[0].real, args[0].imag)]
    return r.e.operate("and", flags, "bool")


_RULES = {
    "add": _componentwise("add"), "sub": _componentwise("sub"), "neg": _componentwise("neg"), "mul": _mul, "div": _div,
    "abs": _abs, "sign": _sign, "eq": _equal("eq", "and"), "ne": _equal("ne", "or"), "select": _select, "cast": _cast,
    "exp": _exp, "log": _log, "sqrt": _sqrt, "rsqrt": _rsqrt, "sin": _sin, "cos": _cos, "tan": _tan, "sinh": _sinh,
    "cosh": _cosh, "tanh": _tanh, "log1p": _log1p, "expm1": _expm1, "pow": _pow, "logistic": _logistic,
    "is_finite": _is_finite,
    "complex": lambda r, args, type_: pair(type_, args[0], args[1]),
    "real": lambda r, args, type_: args[0].real,
    "imag": lambda r, args, type_: args[0].imag,
    "conj": lambda r, args, type_: pair(type_, args[0].real, r("neg", args[0].imag)),
}
