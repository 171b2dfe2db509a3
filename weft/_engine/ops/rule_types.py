"""Types in the signatures of ops, of their rules and of formulas. Imported for annotations only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from weft._engine.ir.build import Builder
from weft._engine.ir.loops import Expr
from weft._engine.ir.types import ShapedArray

#: a value under the current trace: an array, a tracer, a NumPy array, a Python number, an object of a type that users registered,
#: or, in derivatives, a symbolic zero
Value: TypeAlias = Any
Values: TypeAlias = Sequence[Value]
#: operands and results in the signatures of public functions, under the names of `weft.typing.ArrayLike` and `weft.Array`; both may be
#: tracers
ArrayLike: TypeAlias = Any
Array: TypeAlias = Any
#: per operand the dim that `vmap` maps over, or None
BatchDims: TypeAlias = Sequence[int | None]
Avals: TypeAlias = Sequence[ShapedArray]
#: sizes, dims or positions in the parameters of an op
Ints: TypeAlias = tuple[int, ...]
#: an operand or a result of a reference: an array or a scalar of any dtype
NumPyArray: TypeAlias = npt.NDArray[Any]
#: a position in an array of Loops
ElementIndex: TypeAlias = tuple[Expr, ...]


class ElementReader(Protocol):
    """Gives the element of an operand at a position; it is not loaded where `guard` is false."""

    def __call__(self, index: ElementIndex, guard: Expr | None = None, /) -> Expr: ...


class _RuleOfParams(Protocol):
    def __call__(self, x: Value, y: Value, z: Value, /, **params: Any) -> Value: ...


class _RuleOfTwoAndParams(Protocol):
    def __call__(self, x: Value, y: Value, /, **params: Any) -> Value: ...


#: a derivative by one operand: the tangent, the result and the operands give a tangent, or the cotangent and the operands a cotangent
OperandRule: TypeAlias = (
    Callable[[Value, Value], Value]
    | Callable[[Value, Value, Value], Value]
    | Callable[[Value, Value, Value, Value], Value]
    | Callable[[Value, Value, Value, Value, Value], Value]
    | Callable[[Value, Value, Value, Value, Value, Value], Value]
    | _RuleOfTwoAndParams
    | _RuleOfParams
    | Callable[..., Value]
)
#: the meaning of an elementwise op in NumPy
Reference: TypeAlias = (
    Callable[[NumPyArray], Any]
    | Callable[[NumPyArray, NumPyArray], Any]
    | Callable[[NumPyArray, NumPyArray, NumPyArray], Any]
    | Callable[..., Any]
)
#: the scalar code of an elementwise op
Emit: TypeAlias = (
    Callable[[Builder, Expr], Expr]
    | Callable[[Builder, Expr, Expr], Expr]
    | Callable[[Builder, Expr, Expr, Expr], Expr]
    | Callable[..., Any]
)


class FormulaValue(Protocol):
    """A value in a formula: a float, an integer of the same size, or a mask of a backend."""

    def __add__(self, other: FormulaValue | float, /) -> FormulaValue: ...
    def __radd__(self, other: float, /) -> FormulaValue: ...
    def __sub__(self, other: FormulaValue | float, /) -> FormulaValue: ...
    def __rsub__(self, other: float, /) -> FormulaValue: ...
    def __mul__(self, other: FormulaValue | float, /) -> FormulaValue: ...
    def __rmul__(self, other: float, /) -> FormulaValue: ...
    def __truediv__(self, other: FormulaValue | float, /) -> FormulaValue: ...
    def __rtruediv__(self, other: float, /) -> FormulaValue: ...
    def __neg__(self) -> FormulaValue: ...
    def __lt__(self, other: FormulaValue | float, /) -> FormulaValue: ...
    def __le__(self, other: FormulaValue | float, /) -> FormulaValue: ...
    def __gt__(self, other: FormulaValue | float, /) -> FormulaValue: ...
    def __ge__(self, other: FormulaValue | float, /) -> FormulaValue: ...
    def __and__(self, other: FormulaValue | int, /) -> FormulaValue: ...
    def __or__(self, other: FormulaValue | int, /) -> FormulaValue: ...
    def __xor__(self, other: FormulaValue | int, /) -> FormulaValue: ...
    def __invert__(self) -> FormulaValue: ...
    def __lshift__(self, other: int, /) -> FormulaValue: ...
    def __rshift__(self, other: int, /) -> FormulaValue: ...
    def same(self, other: FormulaValue | float, /) -> FormulaValue: ...
    def is_nan(self) -> FormulaValue: ...
