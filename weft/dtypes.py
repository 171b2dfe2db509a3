"""Questions about dtypes: promotion, families, limits, and the dtypes NumPy does not have."""

from __future__ import annotations

import ml_dtypes

from weft.util.dtypes import (
    canonicalize_dtype,
    extended,
    finfo,
    float0,
    iinfo,
    issubdtype,
    itemsize_bits,
    prng_key,
    result_type,
    scalar_type_of,
)
from weft.util.errors import TypePromotionError

bfloat16 = ml_dtypes.bfloat16

__all__ = [
    "TypePromotionError", "bfloat16", "canonicalize_dtype", "extended", "finfo", "float0", "iinfo", "issubdtype",
    "itemsize_bits", "prng_key", "result_type", "scalar_type_of",
]  # fmt: skip
