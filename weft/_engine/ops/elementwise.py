"""All elementwise operations, collected from the modules that define them.

`comparison` (with select_n and clamp), `casting` (with complex parts), `arithmetic`, `bitwise` and `functions`. Operands
have one shape, or rank 0; nothing is promoted, but Python numbers take the dtype of the other operands.
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.ops.arithmetic": """
        abs add add_any div integer_pow is_complex max min mul neg reciprocal rem sign square stop_gradient sub
    """,
        "weft._engine.ops.bitwise": """
        bitwise_and bitwise_not bitwise_or bitwise_xor clz population_count shift_left shift_right_arithmetic shift_right_logical
    """,
        "weft._engine.ops.casting": "bitcast_convert_type complex conj convert_element_type imag real",
        "weft._engine.ops.comparison": "clamp eq ge gt le lt ne select select_n",
        "weft._engine.ops.layout": "copy",
    },
    others="weft._engine.ops.functions",
)
