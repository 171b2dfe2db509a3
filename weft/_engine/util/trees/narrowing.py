"""Class tests that declare the elements of containers as `Any` for type checkers.

For a value of unknown type, `isinstance(x, tuple)` makes the elements unknown in strict mode, and `type(x)` the class. These
functions declare both as `Any`.

>>> is_tuple((1, 2)), is_tuple([1]), class_of(1)
(True, False, <class 'int'>)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

#: `type(x)`
class_of: Callable[[Any], type[Any]] = type


def is_tuple(x: object) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(x, tuple)


def is_list(x: object) -> TypeGuard[list[Any]]:
    return isinstance(x, list)


def is_tuple_or_list(x: object) -> TypeGuard[tuple[Any, ...] | list[Any]]:
    return isinstance(x, (tuple, list))


def is_integer(x: object) -> TypeGuard[int | np.integer[Any]]:
    return isinstance(x, (int, np.integer))


def is_numpy_scalar(x: object) -> TypeGuard[np.generic[Any]]:
    return isinstance(x, np.generic)


def is_numpy_value(x: object) -> TypeGuard[np.ndarray[Any, np.dtype[Any]] | np.generic[Any]]:
    return isinstance(x, (np.ndarray, np.generic))
