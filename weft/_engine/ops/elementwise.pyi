"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.ops.arithmetic import (
    abs, add, add_any, div, integer_pow, is_complex, max, min, mul, neg, reciprocal, rem, sign,
    square, stop_gradient, sub,
)
from weft._engine.ops.bitwise import (
    bitwise_and, bitwise_not, bitwise_or, bitwise_xor, clz, population_count, shift_left,
    shift_right_arithmetic, shift_right_logical,
)
from weft._engine.ops.casting import (
    bitcast_convert_type, complex, conj, convert_element_type, imag, real,
)
from weft._engine.ops.comparison import clamp, eq, ge, gt, le, lt, ne, select, select_n
from weft._engine.ops.layout import copy

__all__ = [
    "abs", "add", "add_any", "bitcast_convert_type", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "clamp", "clz", "complex", "conj", "convert_element_type", "copy", "div", "eq",
    "ge", "gt", "imag", "integer_pow", "is_complex", "le", "lt", "max", "min", "mul", "ne", "neg",
    "population_count", "real", "reciprocal", "rem", "select", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "square", "stop_gradient", "sub",
]

from typing import Any

def __getattr__(name: str) -> Any: ...  # pyright: ignore[reportIncompleteStub]  # on purpose
