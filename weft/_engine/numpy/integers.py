"""Integer functions: powers, common divisors and multiples."""

from __future__ import annotations

from weft._engine.control.cond import cond
from weft._engine.control.while_loop import while_loop
from weft._engine.core.trace import typeof
from weft._engine.numpy.dtype_kinds import is_int, is_unsigned, magnitude
from weft._engine.numpy.promote import broadcast, broadcast_to_shape, concrete, promote
from weft._engine.ops import elementwise as ew
from weft._engine.ops.comparison import select
from weft._engine.ops.reduce import reduce_and, reduce_or

_COMMON_BITS = 4  # the number of exponent bits


def int_power(x, y):
    """Return x to the power y by repeated squaring.

    Negative powers of all numbers but 1 and -1 give 0, as integer division would.
    """
    x, y = [broadcast_to_shape(concrete(v), typeof(x).shape or typeof(y).shape) for v in (x, y)]
    bits = 8 * x.dtype.itemsize
    if bits <= 16 or not y.ndim:
        return _any_power(x, y, bits)
    small = ew.eq(ew.shift_right_logical(y, _COMMON_BITS), 0)
    return cond(
        reduce_and(small, tuple(range(y.ndim))),
        lambda x, y: _square(x, y, _COMMON_BITS),
        lambda x, y: _any_power(x, y, bits),
        x,
        y,
    )


def _any_power(x, y, bits: int):
    result = _square(x, y, bits)
    if is_unsigned(y):
        return result
    unit = select(ew.eq(magnitude(x), 1), select(_is_odd(y), x, 1), 0)
    return select(ew.lt(y, 0), unit, result)


def _square(x, y, bits: int):
    """Return x to the power of the last `bits` of y."""
    result = select(_is_odd(y), x, 1)
    for i in range(1, bits):
        x = ew.mul(x, x)
        result = select(_is_odd(ew.shift_right_logical(y, i)), ew.mul(result, x), result)
    return result


def _is_odd(x):
    return ew.ne(ew.bitwise_and(x, 1), 0)


def _integers(api: str, x, y) -> list:
    x, y = [concrete(v) for v in promote(api, x, y)]
    if not is_int(x):
        raise ValueError(f"{api} takes integers, got {x.dtype.name}.")
    return broadcast(api, magnitude(x), magnitude(y))


def gcd(x1, x2):
    """Return greatest common divisor of integers, by Euclid's algorithm.

    >>> int(wnp.gcd(12, 18))
    6
    """
    x, y = _integers("gcd", x1, x2)
    shape = x.shape or y.shape
    x, y = [broadcast_to_shape(v, shape) for v in (x, y)]

    def iterate(state):
        x, y = state
        going = ew.ne(y, 0)
        return select(going, y, x), ew.rem(select(going, x, 0), select(going, y, 1))

    # each of the first pair depends on both operands, as all later pairs do
    first = ew.max(x, y), ew.min(x, y)
    return magnitude(
        while_loop(
            lambda state: reduce_or(ew.ne(state[1], 0), tuple(range(x.ndim))), iterate, first
        )[0]
    )


def lcm(x1, x2):
    """Return least common multiple of integers; 0 if either is 0."""
    x, y = _integers("lcm", x1, x2)
    divisor = gcd(x, y)
    x, y = [broadcast_to_shape(v, divisor.shape) for v in (x, y)]
    safe = select(ew.eq(divisor, 0), 1, divisor)
    return ew.mul(ew.div(x, safe), y)
