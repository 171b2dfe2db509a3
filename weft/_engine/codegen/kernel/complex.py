"""Complex operations on pairs of real values.

All of them are built from the real operations of `Emission.operate`, for scalars and vectors alike.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._engine.codegen.ir.values import ComplexPair, EmittedValue
from weft._engine.codegen.kernel.emission import Emission
from weft._engine.ir.loops import COMPLEX, REAL_OF


def operate(e: Emission, op: str, args: list[EmittedValue], type_: str) -> EmittedValue:
    """Apply `op` to complex operands, or to real operands for a complex result."""
    if op in _UNARY:
        r = _RealOps(e, type_)
        return _UNARY[op](r, *_parts(r, args[0]), type_)
    if op not in _RULES:
        raise NotImplementedError(f"codegen: operation {op!r} on complex values is not implemented")
    return _RULES[op](_RealOps(e, type_), args, type_)


class _RealOps:
    """Shorthands for real operations of one type."""

    def __init__(self, e: Emission, type_: str):
        self.e = e
        self.type = REAL_OF.get(type_, type_)

    def __call__(self, op: str, *args: EmittedValue) -> EmittedValue:
        return self.e.operate(op, list(args), args[0].type)

    def test(self, op: str, x: EmittedValue, y: EmittedValue) -> EmittedValue:
        return self.e.operate(op, [x, y], "bool")

    def select(self, cond: EmittedValue, x: EmittedValue, y: EmittedValue) -> EmittedValue:
        return self.e.operate("select", [cond, x, y], x.type)

    def infinite(self, x: EmittedValue) -> EmittedValue:
        """Return the condition that x is plus or minus infinity."""
        return self.test("eq", self("abs", x), self.const(float("inf"), x))

    def wild(self, x: EmittedValue) -> EmittedValue:
        """Return the mask of infinite and NaN elements of x."""
        return self.test("ne", self("sub", x, x), self.const(0.0, x))

    def const(self, value: float, like: EmittedValue) -> EmittedValue:
        return self.e.constant(value, like.type)


def _parts(r: _RealOps, x: EmittedValue) -> tuple[EmittedValue, EmittedValue]:
    return (x.real, x.imag) if isinstance(x, ComplexPair) else (x, r.const(0.0, x))


def _componentwise(op: str) -> Callable:
    def rule(r: _RealOps, args: list[EmittedValue], type_: str) -> EmittedValue:
        reals, imags = zip(*[_parts(r, arg) for arg in args])
        return ComplexPair(type_, r(op, *reals), r(op, *imags))

    return rule


def _mul(r: _RealOps, args: list[EmittedValue], type_: str) -> ComplexPair:
    (a, b), (c, d) = (_parts(r, arg) for arg in args)
    return ComplexPair(
        type_, r("sub", r("mul", a, c), r("mul", b, d)), r("add", r("mul", a, d), r("mul", b, c))
    )


def _div(r: _RealOps, args: list[EmittedValue], type_: str) -> ComplexPair:
    # Smith's method: scale by the larger part of the divisor.
    (a, b), (c, d) = (_parts(r, arg) for arg in args)
    is_c_larger = r.test("ge", r("abs", c), r("abs", d))
    big, small = r.select(is_c_larger, c, d), r.select(is_c_larger, d, c)
    ratio = r("div", small, big)
    zero = r.test("eq", big, r.const(0.0, big))
    ratio = r.select(zero, r.const(0.0, ratio), ratio)
    below = r("add", big, r("mul", small, ratio))
    p, q = r.select(is_c_larger, a, b), r.select(is_c_larger, b, a)
    real = r("div", r("add", p, r("mul", q, ratio)), below)
    rotated = r.select(
        is_c_larger, r("sub", b, r("mul", a, ratio)), r("sub", r("mul", b, ratio), a)
    )
    return ComplexPair(type_, real, r("div", rotated, below))


def _abs(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> EmittedValue:
    x, y = r("abs", x), r("abs", y)
    big, small = r("max", x, y), r("min", x, y)
    inf = r.const(float("inf"), x)
    infinite = r.e.operate("or", [r.test("eq", x, inf), r.test("eq", y, inf)], "bool")
    ratio = r("div", small, big)
    size = r("mul", big, r("sqrt", r("add", r.const(1.0, x), r("mul", ratio, ratio))))
    return r.select(infinite, inf, r.select(r.test("eq", big, r.const(0.0, x)), big, size))


def _sign(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
    size = _abs(r, x, y, type_)
    zero = r.test("eq", size, r.const(0.0, size))
    safe = r.select(zero, r.const(1.0, size), size)
    infinite = r.infinite(x), r.infinite(y)
    parts = []
    for part, own, other in ((x, *infinite), (y, *infinite[::-1])):
        # One infinite part outweighs the other; two infinite parts have no direction.
        near = r.select(other, r.const(0.0, x), r("div", part, safe))
        parts.append(
            r.select(
                own,
                r.select(other, r.const(float("nan"), x), r("copysign", r.const(1.0, x), part)),
                near,
            )
        )
    return ComplexPair(type_, *parts)


def _equal(op: str, joined: str) -> Callable:
    def rule(r: _RealOps, args: list[EmittedValue], type_: str) -> EmittedValue:
        (a, b), (c, d) = (_parts(r, arg) for arg in args)
        return r.e.operate(joined, [r.test(op, a, c), r.test(op, b, d)], "bool")

    return rule


def _extremum(op: str) -> Callable:
    """Return a rule: the larger or smaller number by real, then imaginary part; the second operand
    if a NaN makes both incomparable."""

    def rule(r: _RealOps, args: list[EmittedValue], type_: str) -> EmittedValue:
        x, y = args
        (a, b), (c, d) = _parts(r, x), _parts(r, y)
        tie = r.e.operate("and", [r.test("eq", a, c), r.test(op, b, d)], "bool")
        return _select(r, [r.e.operate("or", [r.test(op, a, c), tie], "bool"), x, y], type_)

    return rule


def _select(r: _RealOps, args: list[EmittedValue], type_: str) -> ComplexPair:
    cond, x, y = args
    (a, b), (c, d) = _parts(r, x), _parts(r, y)
    return ComplexPair(type_, r.select(cond, a, c), r.select(cond, b, d))


def _cast(r: _RealOps, args: list[EmittedValue], type_: str) -> EmittedValue:
    x = args[0]
    if type_ not in COMPLEX:
        parts = _parts(r, x)
        if type_ == "bool":
            hits = [r.test("ne", part, r.const(0.0, part)) for part in parts]
            return r.e.operate("or", hits, "bool")
        return r.e.operate("cast", [parts[0]], type_)
    part = REAL_OF[type_]
    if isinstance(x, ComplexPair):
        return ComplexPair(
            type_, r.e.operate("cast", [x.real], part), r.e.operate("cast", [x.imag], part)
        )
    return ComplexPair(type_, r.e.operate("cast", [x], part), r.e.constant(0.0, part))


def _exp(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
    first, second = _split_exp(r, x)
    cos, sin = _cos_sin(r, x, y)
    is_zero = r.e.operate("and", [r.infinite(x), r.test("lt", x, r.const(0.0, x))], "bool")
    sin = r.select(
        r.e.operate("and", [is_zero, r.wild(y)], "bool"), r("copysign", r.const(0.0, y), y), sin
    )
    # A zero angle keeps the imaginary part exactly zero, even if the modulus is infinite.
    imag = r.select(r.test("eq", y, r.const(0.0, y)), y, r("mul", r("mul", first, sin), second))
    return ComplexPair(type_, r("mul", r("mul", first, cos), second), imag)


def _split_exp(r: _RealOps, x: EmittedValue) -> tuple[EmittedValue, EmittedValue]:
    """Return two factors of e^x. Multiplied one after the other by a small number, they overflow
    only if the product does."""
    half = r("mul", r.const(0.5, x), x)
    large = r.test("gt", x, r.const(_LARGE[r.type], x))
    first = r("exp", r.select(large, half, x))
    return first, r.select(large, first, r.const(1.0, x))


#: e^x is far from overflow below this bound, and e^-x is negligible against 1 above it
_LARGE = {"f32": 80.0, "f64": 700.0}


def _cos_sin(r: _RealOps, x: EmittedValue, y: EmittedValue) -> tuple[EmittedValue, EmittedValue]:
    """Return cos y and sin y; the cosine is 1 if y is not finite and |x| is infinite, so that the
    modulus stays infinite."""
    cos, sin, one = r("cos", y), r("sin", y), r.const(1.0, x)
    return r.select(r.e.operate("and", [r.infinite(x), r.wild(y)], "bool"), one, cos), sin


def _multiply_with_zero(
    r: _RealOps, x: EmittedValue, y: EmittedValue, *more: EmittedValue
) -> EmittedValue:
    """Return x * y * more; zero if x or y is zero, even if the other factor is infinite or NaN."""
    zero, one = r.const(0.0, x), r.const(1.0, x)
    full = r("mul", x, y)
    for z in more:
        full = r("mul", full, z)
    full = r.select(r.test("eq", y, zero), r("mul", r("copysign", one, x), y), full)
    return r.select(r.test("eq", x, zero), r("mul", r("copysign", one, y), x), full)


def _log(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
    a, b = r("abs", x), r("abs", y)
    big = r("max", a, b)
    size = _log_of_modulus(
        r, big, r("min", a, b), r("sub", big, r.const(1.0, x)), _abs(r, x, y, type_)
    )
    return ComplexPair(type_, size, r("atan2", y, x))


def _log_of_modulus(
    r: _RealOps, big: EmittedValue, small: EmittedValue, excess: EmittedValue, size: EmittedValue
) -> EmittedValue:
    """Return the log of a modulus, accurate near 1, from the larger part, the smaller part, the
    larger part less 1, and the modulus."""
    two = r.const(2.0, big)
    grown = r("add", r("mul", excess, r("add", excess, two)), r("mul", small, small))
    near = r.e.operate(
        "and", [r.test("gt", big, r.const(0.5, big)), r.test("lt", big, two)], "bool"
    )
    near_log = r("mul", r.const(0.5, big), r("log1p", r.select(near, grown, r.const(0.0, big))))
    return r.select(near, near_log, r("log", size))


def _sqrt(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
    zero, one = r.const(0.0, x), r.const(1.0, x)
    # Scale by powers of four away from overflow and from subnormal numbers.
    big = r("max", r("abs", x), r("abs", y))
    huge, tiny = (
        r.test("gt", big, r.const(_HUGE[r.type], x)),
        r.test("lt", big, r.const(1 / _HUGE[r.type], x)),
    )
    power = 2.0**24 if r.type == "f32" else 2.0**54
    scale = r.select(huge, r.const(0.25, x), r.select(tiny, r.const(power, x), one))
    back = r.select(huge, r.const(2.0, x), r.select(tiny, r.const(power**-0.5, x), one))
    a, b = r("mul", r("abs", x), scale), r("mul", r("abs", y), scale)
    half = r.const(0.5, x)
    root = r("sqrt", r("mul", half, r("add", a, _abs(r, a, b, type_))))
    other = r("div", r("mul", half, b), r.select(r.test("eq", root, zero), one, root))
    root, other = r("mul", root, back), r("mul", other, back)
    right = r.test("ge", x, zero)
    real, imag = r.select(right, root, other), r.select(right, other, root)
    far, inf = r.infinite(y), r.const(float("inf"), x)
    return ComplexPair(type_, r.select(far, inf, real), r("copysign", r.select(far, inf, imag), y))


_HUGE = {"f32": 2.0**120, "f64": 2.0**1000}


def _rsqrt(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> EmittedValue:
    root = _sqrt(r, x, y, type_)
    return _div(r, [ComplexPair(type_, r.const(1.0, x), r.const(0.0, x)), root], type_)


def _sinh(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
    sinh, cosh, tail, cos, sin = _hyperbolic(r, x, y)
    return ComplexPair(
        type_, _multiply_with_zero(r, sinh, cos, tail), _multiply_with_zero(r, sin, cosh, tail)
    )


def _cosh(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
    sinh, cosh, tail, cos, sin = _hyperbolic(r, x, y)
    return ComplexPair(
        type_, r("mul", r("mul", cosh, cos), tail), _multiply_with_zero(r, sinh, sin, tail)
    )


def _hyperbolic(r: _RealOps, x: EmittedValue, y: EmittedValue) -> tuple[EmittedValue, ...]:
    """Return sinh x and cosh x, a factor to multiply both by at the end, cos y and sin y."""
    first, tail = _split_exp(r, r("abs", x))
    large = r.test("gt", r("abs", x), r.const(_LARGE[r.type], x))
    half = r("mul", r.const(0.5, x), first)
    near = r.select(large, r.const(0.0, x), x)
    return (
        r.select(large, r("copysign", half, x), r("sinh", near)),
        r.select(large, half, r("cosh", near)),
        tail,
        *_cos_sin(r, x, y),
    )


def _apply_to_swapped_parts(hyperbolic: Callable[..., ComplexPair]) -> Callable[..., ComplexPair]:
    """Return sin or tan as a rule: exchange the parts of the argument, apply sinh or tanh, exchange
    the parts of the result."""

    def rule(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
        rotated = hyperbolic(r, y, x, type_)
        return ComplexPair(type_, rotated.imag, rotated.real)

    return rule


def _cos(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
    rotated = _cosh(r, y, x, type_)
    return ComplexPair(type_, rotated.real, r("neg", rotated.imag))


def _tanh(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
    # Kahan: with t = tan y, s = sinh x, b = 1 + t^2: tanh z = (b s sqrt(1 + s^2) + i t) / (1 + b
    # s^2).
    zero, one = r.const(0.0, x), r.const(1.0, x)
    t = r("tan", y)
    bound = r.const(12.0 if r.type == "f32" else 22.0, x)
    far = r.test("gt", r("abs", x), bound)
    s = r("sinh", r.select(far, one, x))
    s2, b = r("mul", s, s), r("add", one, r("mul", t, t))
    below = r("add", one, r("mul", b, s2))
    real = r("div", r("mul", r("mul", b, s), r("sqrt", r("add", one, s2))), below)
    # For large |x| the real part is 1 and the imaginary part 4 sin y cos y e^-2|x|.
    e = r("exp", r("neg", r("abs", x)))
    tail = r("mul", r("mul", r("mul", r.const(4.0, x), r("div", t, b)), e), e)
    tail = r.select(
        r.e.operate("and", [r.infinite(x), r.wild(y)], "bool"), r("copysign", zero, y), tail
    )
    outer = r("copysign", r("add", one, r("mul", zero, tail)), x)  # NaN if the angle is not finite
    real = r.select(far, outer, r.select(r.test("eq", x, zero), x, real))
    imag = r.select(r.test("eq", y, zero), y, r.select(far, tail, r("div", t, below)))
    return ComplexPair(type_, real, imag)


def _log1p(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
    one = r.const(1.0, x)
    shifted = r("add", one, x)
    a, b = r("abs", shifted), r("abs", y)
    # If the real part of 1 + z is the larger part, its excess over 1 is computed before rounding.
    exact = r.e.operate("and", [r.test("ge", a, b), r.test("ge", shifted, r.const(0.0, x))], "bool")
    big = r("max", a, b)
    excess = r.select(exact, x, r("sub", big, one))
    size = _log_of_modulus(r, big, r("min", a, b), excess, _abs(r, shifted, y, type_))
    return ComplexPair(type_, size, r("atan2", y, shifted))


def _expm1(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> ComplexPair:
    # e^x cos y - 1 = expm1(x) cos y - 2 sin^2(y/2).
    s = r("sin", r("mul", r.const(0.5, y), y))
    near = r("sub", r("mul", r("expm1", x), r("cos", y)), r("mul", r.const(2.0, x), r("mul", s, s)))
    whole = _exp(r, x, y, type_)
    return ComplexPair(
        type_, r.select(r.test("gt", x, r.const(_LARGE[r.type], x)), whole.real, near), whole.imag
    )


def _pow(r: _RealOps, args: list[EmittedValue], type_: str) -> ComplexPair:
    base, exponent = (_parts(r, arg) for arg in args)
    power = _mul(r, [_log(r, *base, type_), ComplexPair(type_, *exponent)], type_)
    result = _exp(r, power.real, power.imag, type_)
    zero = _both_zero(r, *base)
    exponent_zero = _both_zero(r, *exponent)
    one, nought = r.const(1.0, base[0]), r.const(0.0, base[0])
    at_zero = r.select(exponent_zero, one, nought)
    return ComplexPair(
        type_, r.select(zero, at_zero, result.real), r.select(zero, nought, result.imag)
    )


def _both_zero(r: _RealOps, x: EmittedValue, y: EmittedValue) -> EmittedValue:
    nought = r.const(0.0, x)
    return r.e.operate("and", [r.test("eq", x, nought), r.test("eq", y, nought)], "bool")


def _logistic(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> EmittedValue:
    # n / (1 + E) with E = e^-|x| (cos y + i sin y), rotated to the left half plane, and n = 1 or E.
    # With c = cos(y/2): 1 + E = 2 e^-|x| c^2 - expm1(-|x|) + i e^-|x| sin y, whose real part has
    # positive terms only.
    zero, one, two = r.const(0.0, x), r.const(1.0, x), r.const(2.0, x)
    is_negative = r.test("lt", x, zero)
    y = r.select(is_negative, y, r("neg", y))
    size = r("neg", r("abs", x))
    e, half = r("exp", size), r("mul", r.const(0.5, y), y)
    c, s = r("cos", half), r("sin", half)
    e_imag = r("mul", e, r("mul", two, r("mul", s, c)))
    is_zero = r.e.operate("and", [r.infinite(x), r.wild(y)], "bool")
    e_real = r.select(is_zero, zero, r("mul", e, r("cos", y)))
    e_imag = r.select(is_zero, zero, e_imag)
    below = r.select(
        is_zero, one, r("sub", r("mul", two, r("mul", e, r("mul", c, c))), r("expm1", size))
    )
    top = ComplexPair(
        type_, r.select(is_negative, e_real, one), r.select(is_negative, e_imag, zero)
    )
    return _div(r, [top, ComplexPair(type_, below, e_imag)], type_)


def _is_finite(r: _RealOps, x: EmittedValue, y: EmittedValue, type_: str) -> EmittedValue:
    flags = [r.e.operate("is_finite", [part], "bool") for part in (x, y)]
    return r.e.operate("and", flags, "bool")


#: rules of unary operations
_UNARY = {
    "abs": _abs,
    "sign": _sign,
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "sin": _apply_to_swapped_parts(_sinh),
    "cos": _cos,
    "tan": _apply_to_swapped_parts(_tanh),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "log1p": _log1p,
    "expm1": _expm1,
    "logistic": _logistic,
    "is_finite": _is_finite,
    "real": lambda r, x, y, type_: x,
    "imag": lambda r, x, y, type_: y,
    "conj": lambda r, x, y, type_: ComplexPair(type_, x, r("neg", y)),
}
_RULES = {
    "add": _componentwise("add"),
    "sub": _componentwise("sub"),
    "neg": _componentwise("neg"),
    "mul": _mul,
    "div": _div,
    "eq": _equal("eq", "and"),
    "ne": _equal("ne", "or"),
    "select": _select,
    "cast": _cast,
    "pow": _pow,
    "max": _extremum("gt"),
    "min": _extremum("lt"),
    "complex": lambda r, args, type_: ComplexPair(type_, args[0], args[1]),
}
