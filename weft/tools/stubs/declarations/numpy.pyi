"""Functions of `weft.numpy` whose results depend on their arguments, and the classes of its objects."""

import builtins as _builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np

from weft._engine.numpy.ufunc_type import ufunc as _ufunc
from weft._engine.runtime.array import Array
from weft.typing import ArrayLike, DTypeLike

class _ScalarType:
    """A dtype; called with a value, it returns an array of this dtype."""

    dtype: np.dtype[Any]
    __name__: str

    def __call__(self, x: Any = 0) -> Array: ...

class _BinaryUfunc(_ufunc):
    def __call__(
        self, x: ArrayLike, y: ArrayLike, /, *, out: None = None, where: None = None
    ) -> Array: ...

class _UnaryUfunc(_ufunc):
    def __call__(self, x: ArrayLike, /, *, out: None = None, where: None = None) -> Array: ...

@overload
def where(
    condition: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Array: ...
@overload
def where(
    condition: ArrayLike,
    x: None = None,
    y: None = None,
    /,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> tuple[Array, ...]: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: _builtins.bool = True,
    retstep: Literal[False] = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Array: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: _builtins.bool = True,
    *,
    retstep: Literal[True],
    dtype: DTypeLike | None = None,
    axis: int = 0,
    device: Any = None,
) -> tuple[Array, Array]: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: _builtins.bool = True,
    retstep: _builtins.bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any: ...
@overload
def average(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    returned: Literal[False] = False,
    keepdims: _builtins.bool = False,
) -> Array: ...
@overload
def average(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    *,
    returned: Literal[True],
    keepdims: _builtins.bool = False,
) -> tuple[Array, Array]: ...
@overload
def average(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    returned: _builtins.bool = False,
    keepdims: _builtins.bool = False,
) -> Any: ...
@overload
def unique(
    ar: ArrayLike | Sequence[Any],
    return_index: Literal[False] = False,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    axis: int | None = None,
    *,
    equal_nan: _builtins.bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: _builtins.bool = True,
) -> Array: ...
@overload
def unique(
    ar: ArrayLike | Sequence[Any],
    return_index: _builtins.bool = False,
    return_inverse: _builtins.bool = False,
    return_counts: _builtins.bool = False,
    axis: int | None = None,
    *,
    equal_nan: _builtins.bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: _builtins.bool = True,
) -> Any: ...
@overload
def frompyfunc(
    func: Callable[[Any, Any], Any], /, nin: Literal[2], nout: Literal[1], *, identity: Any = None
) -> _BinaryUfunc: ...
@overload
def frompyfunc(
    func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None
) -> _ufunc: ...
def clip(
    arr: ArrayLike | None = None,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    a: ArrayLike | None = None,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
) -> Array: ...
@overload
def result_type(*args: Any, return_weak_type_flag: Literal[False] = False) -> np.dtype[Any]: ...
@overload
def result_type(
    *args: Any, return_weak_type_flag: Literal[True]
) -> tuple[np.dtype[Any], _builtins.bool]: ...
@overload
def result_type(*args: Any, return_weak_type_flag: _builtins.bool) -> Any: ...
