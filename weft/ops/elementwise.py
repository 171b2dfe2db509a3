"""All elementwise operations, gathered from the modules that state them.

`comparison` (with select_n and clamp), `casting` (with complex parts), `arithmetic`, `bitwise` and `functions`. Operands
have one shape, or rank 0; nothing is promoted, but Python numbers take the dtype of the other operands.
"""

# ruff: noqa: F401
from weft.ops import functions
from weft.ops.arithmetic import (
    abs,
    add,
    add_any,
    div,
    integer_pow,
    is_complex,
    max,
    min,
    mul,
    neg,
    reciprocal,
    rem,
    sign,
    square,
    stop_gradient,
    sub,
)
from weft.ops.bitwise import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    clz,
    population_count,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
)
from weft.ops.casting import (
    bitcast_convert_type,
    complex,
    conj,
    convert_element_type,
    imag,
    real,
)
from weft.ops.comparison import (
    clamp,
    eq,
    ge,
    gt,
    le,
    lt,
    ne,
    select,
    select_n,
)
from weft.ops.layout import copy


def __getattr__(name: str):
    """The functions with native math, loaded when one is first asked for."""
    value = globals()[name] = getattr(functions, name)
    return value
