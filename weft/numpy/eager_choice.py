"""Public functions whose compiled form depends on the arguments."""

from __future__ import annotations

import functools

from weft.api.jit import face
from weft.numpy import choosing, ufuncs

_power_by_constant = face(ufuncs.power, (0,))
_power = face(ufuncs.power, (0, 1))
_where = face(choosing.where, (0, 1, 2))


def power(x, y, /):
    """x to the y. An integer constant y is computed by repeated squaring.

    >>> wnp.power(wnp.arange(4.), 2)
    Array([0., 1., 4., 9.], dtype=float32)
    """
    return (_power if ufuncs.constant_int(y) is None else _power_by_constant)(x, y)


def pow(x, y, /):  # noqa: A001
    """See `power`."""
    return power(x, y)


@functools.wraps(choosing.where, updated=())
def where(condition, x=None, y=None, /, *, size=None, fill_value=None):
    if x is None or y is None:
        return choosing.where(condition, x, y, size=size, fill_value=fill_value)
    return _where(condition, x, y)
