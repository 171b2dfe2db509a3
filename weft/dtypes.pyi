"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from ml_dtypes import bfloat16
from weft._engine.util.dtypes import (
    canonicalize_dtype, extended, finfo, float0, iinfo, issubdtype, itemsize_bits, prng_key,
    result_type, scalar_type_of,
)
from weft._engine.util.errors import TypePromotionError

__all__ = [
    "TypePromotionError", "bfloat16", "canonicalize_dtype", "extended", "finfo", "float0", "iinfo",
    "issubdtype", "itemsize_bits", "prng_key", "result_type", "scalar_type_of",
]
