"""Types in the signatures of ops, of their rules and of formulas; imported for annotations only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from weft._engine.ir.build import LoopsBuilder
from weft._engine.ir.loops import Expr
from weft._engine.ir.types import ShapedArray

#: a value in a trace: an array, a tracer, a NumPy array, a Python number, an object of a registered
#: hijax type, or, in derivatives, a symbolic zero
Value: TypeAlias = Any
Values: TypeAlias = Sequence[Value]
#: operands and results in the signatures of public functions, under the names of `weft.typing.ArrayLike` and `weft.Array`; both may be
#: tracers
ArrayLike: TypeAlias = Any
Array: TypeAlias = Any
#: the mapped dim of each operand, or None
BatchDims: TypeAlias = Sequence[int | None]
Avals: TypeAlias = Sequence[ShapedArray]
#: sizes, dims or positions in the parameters of an op
Ints: TypeAlias = tuple[int, ...]
#: an operand or a result of a reference: an array or a scalar of any dtype
NumPyArray: TypeAlias = npt.NDArray[Any]
#: a position in an array, as Loops expressions
ElementIndex: TypeAlias = tuple[Expr, ...]


class ElementReader(Protocol):
    """A function that returns the element of an operand at a position.

    The element is not loaded where `guard` is false.
    """

    def __call__(self, index: ElementIndex, guard: Expr | None = None, /) -> Expr: ...


class _RuleOfParams(Protocol):
    def __call__(self, x: Value, y: Value, z: Value, /, **params: Any) -> Value: ...


class _RuleOfTwoAndParams(Protocol):
    def __call__(self, x: Value, y: Value, /, **params: Any) -> Value: ...


#: a derivative by one operand: a function of the tangent, the result and the operands, or of the
#: cotangent and the operands
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
#: the NumPy reference of an elementwise op
Reference: TypeAlias = (
    Callable[[NumPyArray], Any]
    | Callable[[NumPyArray, NumPyArray], Any]
    | Callable[[NumPyArray, NumPyArray, NumPyArray], Any]
    | Callable[..., Any]
)
#: the scalar code of an elementwise op
Emit: TypeAlias = (
    Callable[[LoopsBuilder, Expr], Expr]
    | Callable[[LoopsBuilder, Expr, Expr], Expr]
    | Callable[[LoopsBuilder, Expr, Expr, Expr], Expr]
    | Callable[..., Any]
)


class FormulaValue(Protocol):
    """A value in a formula: a backend's float, integer of the same size, or mask."""

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
