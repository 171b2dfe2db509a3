"""Elementwise StableHLO operations under the names of MLIR's Python bindings, for lowering rules written with them.

In:   operands of a lowering rule (see `interpreters.mlir`), or operations on them.
Out:  `AddOp(x, y).result`, or the result itself of `add(x, y)`, computed by the corresponding operation of `weft.lax`. Other
      names of the bindings raise an error: write rules with regions, types or attributes with `lower_fun`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: class, builder function and operation of weft.lax, in this order
_OPERATIONS = """
    AbsOp abs abs                       AddOp add add                       AndOp and_ bitwise_and
    Atan2Op atan2 atan2                 CbrtOp cbrt cbrt                    CeilOp ceil ceil
    ClampOp clamp clamp                 ClzOp count_leading_zeros clz       ComplexOp complex complex
    CosineOp cosine cos                 DivOp divide div                    ExpOp exponential exp
    Expm1Op exponential_minus_one expm1 FloorOp floor floor                 ImagOp imag imag
    IsFiniteOp is_finite is_finite      Log1pOp log_plus_one log1p          LogOp log log
    LogisticOp logistic logistic        MaxOp maximum max                   MinOp minimum min
    MulOp multiply mul                  NegOp negate neg                    NotOp not_ bitwise_not
    OrOp or_ bitwise_or                 PopulationCountOp popcnt population_count
    PowOp power pow                     RealOp real real                    RemOp remainder rem
    RsqrtOp rsqrt rsqrt                 SelectOp select select              ShiftLeftOp shift_left shift_left
    ShiftRightArithmeticOp shift_right_arithmetic shift_right_arithmetic
    ShiftRightLogicalOp shift_right_logical shift_right_logical
    SignOp sign sign                    SineOp sine sin                     SqrtOp sqrt sqrt
    SubtractOp subtract sub             TanOp tan tan                       TanhOp tanh tanh
    XorOp xor bitwise_xor
""".split()
_LAX = dict(zip(_OPERATIONS[::3], _OPERATIONS[2::3]))
_BUILDERS = dict(zip(_OPERATIONS[1::3], _OPERATIONS[2::3]))
NAMES = (*_LAX, *_BUILDERS)


class StablehloOperation:
    """An operation applied by a lowering rule, with one result.

    >>> AddOp(1.0, MulOp(2.0, 3.0)).result.item()
    7.0
    """

    def __init__(self, result: Any) -> None:
        self.result = result
        self.results = [result]


def _apply(name: str, operands: tuple) -> Any:
    from weft import lax

    return getattr(lax, name)(
        *[x.result if isinstance(x, StablehloOperation) else x for x in operands]
    )


def _operation(name: str) -> Callable[..., StablehloOperation]:
    return lambda *operands: StablehloOperation(_apply(name, operands))


def _builder(name: str) -> Callable:
    return lambda *operands: _apply(name, operands)


def __getattr__(name: str) -> Callable:
    operation = (
        _operation(_LAX[name])
        if name in _LAX
        else _builder(_BUILDERS[name])
        if name in _BUILDERS
        else None
    )
    if operation is None:
        raise AttributeError(
            f"weft makes no MLIR, and has of StableHLO the elementwise operations only: there is no {name}. "
            "Write the lowering rule with weft.interpreters.mlir.lower_fun, as a function of arrays."
        )
    operation.__name__ = name
    globals()[name] = operation
    return operation


def __dir__() -> list[str]:
    return sorted({*NAMES, "NAMES", "Operation"})
