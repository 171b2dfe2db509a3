"""Control flow and collectives, whose types depend on functions and trees that a program passes."""

import builtins as _builtins
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from weft._engine.runtime.array import Array
from weft.typing import ArrayLike

_R = TypeVar("_R")
_T = TypeVar("_T")
_Y = TypeVar("_Y")

def cond(
    pred: Any,
    true_fun: Callable[..., _R],
    false_fun: Callable[..., _R],
    *operands: Any,
    operand: Any = ...,
    linear: Any = None,
) -> _R: ...
def switch(
    index: Any, branches: Sequence[Callable[..., _R]], *operands: Any, operand: Any = ...
) -> _R: ...
def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], _T], init_val: Any
) -> _T: ...
def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], _T],
    init_val: Any,
    *,
    unroll: int | _builtins.bool | None = None,
) -> _T: ...
def scan(
    f: Callable[[Any, Any], tuple[_T, _Y]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: _builtins.bool = False,
    unroll: int | _builtins.bool = 1,
    _split_transpose: _builtins.bool = False,
) -> tuple[_T, _Y]: ...
def map(f: Callable[[Any], _R], xs: Any, *, batch_size: int | None = None) -> _R: ...
def associative_scan(
    fn: Callable[[Any, Any], Any], elems: _T, reverse: _builtins.bool = False, axis: int = 0
) -> _T: ...
def psum(x: _T, axis_name: Any, *, axis_index_groups: Any = None) -> _T: ...
def pmean(x: _T, axis_name: Any, *, axis_index_groups: Any = None) -> _T: ...
def pmax(x: _T, axis_name: Any, *, axis_index_groups: Any = None) -> _T: ...
def pmin(x: _T, axis_name: Any, *, axis_index_groups: Any = None) -> _T: ...
def ppermute(x: _T, axis_name: Any, perm: Any) -> _T: ...
def pshuffle(x: _T, axis_name: Any, perm: Sequence[int]) -> _T: ...
def pvary(x: _T, axis_name: Any) -> _T: ...
def pcast(x: _T, axis_name: Any, *, to: str) -> _T: ...
def all_gather(
    x: _T,
    axis_name: Any,
    *,
    axis_index_groups: Any = None,
    axis: int = 0,
    tiled: _builtins.bool = False,
    to: str = "varying",
) -> _T: ...
def all_to_all(
    x: _T,
    axis_name: Any,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Any = None,
    tiled: _builtins.bool = False,
) -> _T: ...
def psum_scatter(
    x: _T,
    axis_name: Any,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Any = None,
    tiled: _builtins.bool = False,
) -> _T: ...
def axis_index(axis_name: Any) -> Array: ...
def stop_gradient(x: _T) -> _T: ...
def with_sharding_constraint(x: _T, shardings: Any) -> _T: ...
def optimization_barrier(operand: _T) -> _T: ...
@overload
def sort(
    operand: ArrayLike, dimension: int = -1, is_stable: _builtins.bool = True, num_keys: int = 1
) -> Array: ...
@overload
def sort(
    operand: Sequence[ArrayLike],
    dimension: int = -1,
    is_stable: _builtins.bool = True,
    num_keys: int = 1,
) -> tuple[Array, ...]: ...
def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: _builtins.bool = True
) -> tuple[Array, Array]: ...
def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> list[Array]: ...
def full_like(
    x: Any,
    fill_value: ArrayLike,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    *,
    sharding: Any = None,
) -> Array: ...
def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array: ...
def cummax(operand: ArrayLike, axis: int = 0, reverse: _builtins.bool = False) -> Array: ...
def cummin(operand: ArrayLike, axis: int = 0, reverse: _builtins.bool = False) -> Array: ...
