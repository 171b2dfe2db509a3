"""Whole numbers: powers, common divisors and multiples."""

from __future__ import annotations

from weft.core.trace import typeof
from weft.numpy.promote import broadcast, broadcast_to_shape, concrete, promote
from weft.numpy.ufuncs import _abs, _is_int, _is_unsigned
from weft.ops import elementwise as ew
from weft.ops.comparison import select
from weft.ops.reduce import reduce_or

_USUAL_BITS = 4             # of an exponent of 32 bits or more; its squarings are one kernel, as all of shorter ones


def int_power(x, y):
    """Repeated squaring over the bits of y, as many as its elements have; negative powers of all but 1 and -1 give 0, as integer
    division would."""
    x, y = [broadcast_to_shape(concrete(v), typeof(x).shape or typeof(y).shape) for v in (x, y)]
    below = None if _is_unsigned(y) else ew.lt(y, 0)

    def again(state):
        result, base, left = state
        base, left = ew.mul(base, base), ew.shift_right_logical(left, 1)
        return select(_is_odd(left), ew.mul(result, base), result), base, left

    # a negative exponent has all bits and no result: it shall not keep the others waiting
    left = y if below is None else select(below, 0, y)
    state = select(_is_odd(y), x, 1), x, left
    bits = 8 * x.dtype.itemsize
    for _ in range(_USUAL_BITS - 1 if bits >= 32 else bits - 1):
        state = again(state)
    result = (_while_any(lambda state: ew.gt(state[2], 1), again, state) if bits >= 32 else state)[0]
    if below is None:
        return result
    unit = select(ew.eq(_abs(x), 1), select(_is_odd(y), x, 1), 0)
    return select(below, unit, result)


def _is_odd(x):
    return ew.ne(ew.bitwise_and(x, 1), 0)


def _while_any(going, body, state):
    """Repeat `body` while any element is `going`."""
    from weft.control.while_loop import while_loop
    some = lambda state: (lambda x: reduce_or(x, tuple(range(typeof(x).ndim))))(going(state))
    return while_loop(some, body, state)


def _integers(api: str, x, y) -> list:
    x, y = [concrete(v) for v in promote(api, x, y)]
    if not _is_int(x):
        raise ValueError(f"{api} takes integers, got {x.dtype.name}.")
    return broadcast(api, _abs(x), _abs(y))


def gcd(x, y, /):
    """Greatest common divisor of integers, by Euclid's algorithm.

    >>> import weft.numpy as wnp
    >>> int(wnp.gcd(12, 18))
    6
    """
    x, y = _integers("gcd", x, y)
    shape = x.shape or y.shape
    x, y = [broadcast_to_shape(v, shape) for v in (x, y)]

    def again(state):
        x, y = state
        going = ew.ne(y, 0)
        return select(going, y, x), ew.rem(select(going, x, 0), select(going, y, 1))

    # either of the first pair depends on both operands, as of all that follow
    return _abs(_while_any(lambda state: ew.ne(state[1], 0), again, (ew.max(x, y), ew.min(x, y)))[0])


def lcm(x, y, /):
    """Least common multiple of integers; 0 if either is 0."""
    x, y = _integers("lcm", x, y)
    divisor = gcd(x, y)
    x, y = [broadcast_to_shape(v, divisor.shape) for v in (x, y)]
    safe = select(ew.eq(divisor, 0), 1, divisor)
    return ew.mul(ew.div(x, safe), y)
