"""Operators and methods of arrays whose types differ from those of the functions in `weft.numpy`."""

from collections.abc import Iterator, Sequence
from types import EllipsisType, ModuleType
from typing import Any, Generic, Protocol, Self, SupportsIndex, TypeAlias, TypeVar

import numpy as np

_A = TypeVar("_A", bound="ArrayMethods")
_Operand: TypeAlias = ArrayMethods | np.ndarray | np.bool_ | np.number | complex
_DType: TypeAlias = str | type[Any] | np.dtype[Any] | _HasDType
_IndexItem: TypeAlias = (
    SupportsIndex | slice | EllipsisType | ArrayMethods | np.ndarray | np.bool_ | None
)
_Index: TypeAlias = _IndexItem | tuple[_IndexItem, ...]

class _HasDType(Protocol):
    @property
    def dtype(self) -> np.dtype[Any]: ...

class IndexedUpdate(Generic[_A]):
    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        fill_value: _Operand | None = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> _A: ...
    def set(
        self,
        values: _Operand | Sequence[Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> _A: ...
    def add(
        self,
        values: _Operand | Sequence[Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> _A: ...
    def subtract(self, values: _Operand | Sequence[Any], **kwargs: Any) -> _A: ...
    def sub(self, values: _Operand | Sequence[Any], **kwargs: Any) -> _A: ...
    def multiply(
        self,
        values: _Operand | Sequence[Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> _A: ...
    def mul(
        self,
        values: _Operand | Sequence[Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> _A: ...
    def divide(self, values: _Operand | Sequence[Any], **kwargs: Any) -> _A: ...
    def power(self, values: _Operand | Sequence[Any], **kwargs: Any) -> _A: ...
    def min(
        self,
        values: _Operand | Sequence[Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> _A: ...
    def max(
        self,
        values: _Operand | Sequence[Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> _A: ...
    def apply(self, func: Any, **kwargs: Any) -> _A: ...

class AtHelper(Generic[_A]):
    def __getitem__(self, index: _Index, /) -> IndexedUpdate[_A]: ...

class ArrayMethods:
    def __getitem__(self, index: _Index, /) -> Self: ...
    def __contains__(self, element: _Operand, /) -> bool: ...
    def __iter__(self) -> Iterator[Self]: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> Self: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
    def __ne__(self, other: object, /) -> Self: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
    def __divmod__(self, other: _Operand, /) -> tuple[Self, Self]: ...
    def __rdivmod__(self, other: _Operand, /) -> tuple[Self, Self]: ...
    def __round__(self, ndigits: int | None = None, /) -> Self: ...
    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType: ...
    def astype(self, dtype: _DType, copy: bool = False, device: Any = None) -> Self: ...
    def byteswap(self) -> Self: ...
    def compress(
        self,
        condition: _Operand,
        axis: int | None = None,
        *,
        out: None = None,
        size: int | None = None,
        fill_value: _Operand = 0,
    ) -> Self: ...
    def nonzero(self, *, size: int | None = None, fill_value: Any = None) -> tuple[Self, ...]: ...
    def reshape(
        self, *shape: Any, order: str = "C", copy: bool | None = None, out_sharding: Any = None
    ) -> Self: ...
    def transpose(self, *axes: Any) -> Self: ...
    def view(self, dtype: _DType | None = None, type: None = None) -> Self: ...
    def to_device(self, device: Any, *, stream: None = None) -> Self: ...
    @property
    def at(self) -> AtHelper[Self]: ...
    @property
    def flat(self) -> Iterator[Self]: ...
