"""Modified Bessel functions of floats.

Each derivative is expressed by the other function, so that nothing cancels.
"""

from __future__ import annotations

from weft._engine.control.custom_rules import custom_jvp
from weft._engine.ops import elementwise as ew, functions


@custom_jvp
def bessel_i0(x):
    """Return the modified Bessel function of order 0 of floats."""
    return ew.mul(ew.exp(ew.abs(x)), ew.bessel_i0e(x))


@custom_jvp
def bessel_i1(x):
    """Return the modified Bessel function of order 1 of floats."""
    return ew.mul(ew.exp(ew.abs(x)), ew.bessel_i1e(x))


bessel_i0.defjvps(lambda t, out, x: ew.mul(t, bessel_i1(x)))
bessel_i1.defjvps(lambda t, out, x: ew.mul(t, ew.sub(bessel_i0(x), functions.bessel_ratio(x, out))))
