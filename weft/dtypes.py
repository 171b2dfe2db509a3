"""Questions about dtypes: promotion, families, limits, and the dtypes NumPy does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from ml_dtypes import bfloat16

__all__ = [
    "TypePromotionError", "bfloat16", "canonicalize_dtype", "extended", "finfo", "float0", "iinfo", "issubdtype",
    "itemsize_bits", "prng_key", "result_type", "scalar_type_of",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The scalar type of ml_dtypes, which is loaded when it is asked for."""
    if name != "bfloat16":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import ml_dtypes

    return ml_dtypes.bfloat16
