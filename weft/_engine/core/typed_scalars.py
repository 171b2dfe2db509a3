"""Python numbers with the attributes of arrays, for operands passed to the rules of libraries.

In:   `2.0`.
Out:  a `TypedFloat`, which is a weakly typed float with the attributes of an array of rank 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ir.registry import registry
from weft._engine.ir.types import ShapedArray
from weft._engine.util.config import enable_x64
from weft._engine.util.trees.narrowing import class_of


class TypedScalar:
    """The attributes of an array of rank 0, for numbers. `plain` is the number itself."""

    __slots__ = ()
    plain: Any
    shape = ()
    ndim = 0
    size = 1
    weak_type = True

    @property
    def aval(self) -> ShapedArray:
        return typeof(self.plain)

    @property
    def dtype(self) -> np.dtype:
        return self.aval.dtype


class TypedInt(TypedScalar, int):
    plain = property(int.__int__)


class TypedFloat(TypedScalar, float):
    plain = property(float.__float__)


class TypedComplex(TypedScalar, complex):
    plain = property(complex.__complex__)


_TYPED: dict[type, Callable[[Any], Any]] = {
    int: TypedInt,
    float: TypedFloat,
    complex: TypedComplex,
    bool: np.bool_,
}


def with_array_attributes(x: Any) -> Any:
    """Return a Python number as a number with the attributes of an array. Return other values unchanged.

    >>> y = with_array_attributes(2.0)
    >>> y + 1, y.shape, y.dtype, with_array_attributes("text")
    (3.0, (), dtype('float32'), 'text')
    """
    make = _TYPED.get(class_of(x))
    return x if make is None else make(x)


def scalar_of_dtype(value: Any, dtype: np.dtype, weak_type: bool = False) -> Any:
    """Return a number as a value of exactly `dtype`.

    The value is a scalar, or an array if the current `enable_x64` setting would give a scalar another dtype.

    >>> scalar_of_dtype(2, np.dtype("float64")), scalar_of_dtype(2, np.dtype("float32"))
    (Array(2., dtype=float64), np.float32(2.0))
    """
    scalar = value if weak_type else np.asarray(value, dtype)[()]
    if dtype.itemsize < 4 or typeof(scalar).dtype == dtype:
        return scalar
    with enable_x64(True):
        return registry["convert_element_type"].bind(
            np.asarray(scalar)[()], new_dtype=dtype, weak_type=weak_type, sharding=None
        )
