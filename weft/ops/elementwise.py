"""All elementwise operations, gathered from the modules that state them.

`comparison` (with select_n and clamp), `casting` (with complex parts), `arithmetic`, `bitwise` and `functions`. Operands
have one shape, or rank 0; nothing is promoted, but Python numbers take the dtype of the other operands.
"""

# ruff: noqa: F401
from weft.ops import functions
from weft.ops.arithmetic import (
    abs,
    abs_p,
    add,
    add_any,
    add_any_p,
    add_p,
    div,
    div_p,
    integer_pow,
    integer_pow_p,
    is_complex,
    max,
    max_p,
    min,
    min_p,
    mul,
    mul_p,
    neg,
    neg_p,
    reciprocal,
    rem,
    rem_p,
    sign,
    sign_p,
    square,
    square_p,
    stop_gradient,
    stop_gradient_p,
    sub,
    sub_p,
)
from weft.ops.bitwise import (
    and_p,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    clz,
    clz_p,
    not_p,
    or_p,
    population_count,
    population_count_p,
    shift_left,
    shift_left_p,
    shift_right_arithmetic,
    shift_right_arithmetic_p,
    shift_right_logical,
    shift_right_logical_p,
    xor_p,
)
from weft.ops.casting import (
    bitcast_convert_type,
    bitcast_convert_type_p,
    complex,
    complex_p,
    conj,
    conj_p,
    convert_element_type,
    convert_element_type_p,
    imag,
    imag_p,
    real,
    real_p,
)
from weft.ops.comparison import (
    clamp,
    clamp_p,
    eq,
    eq_p,
    ge,
    ge_p,
    gt,
    gt_p,
    le,
    le_p,
    lt,
    lt_p,
    ne,
    ne_p,
    select,
    select_n,
    select_n_p,
)
from weft.ops.layout import copy, copy_p


def __getattr__(name: str):
    """The functions with native math, loaded when one is first asked for."""
    value = globals()[name] = getattr(functions, name)
    return value
