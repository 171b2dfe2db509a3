"""Types for annotations of array programs: array-like and dtype-like arguments.

>>> from weft.typing import ArrayLike
>>> [isinstance(x, ArrayLike) for x in (np.ones(3), 2.5, [1, 2])]
[True, True, False]
"""

from typing import Any, Protocol, Union

import numpy as np

from weft._engine.runtime.array import Array

__all__ = ["ArrayLike", "DTypeLike"]


class _HasDType(Protocol):
    @property
    def dtype(self) -> np.dtype: ...


# `typing.Union` can be joined with the name of a type, `ArrayLike | "Other"`, and reports `typing.Union` as its origin.
ArrayLike = Union[Array, np.ndarray, np.bool_, np.number, bool, int, float, complex]  # noqa: UP007
DTypeLike = Union[str, type[Any], np.dtype, _HasDType]  # noqa: UP007
