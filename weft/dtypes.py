"""Questions about dtypes: promotion, families, limits, and the dtypes NumPy does not have."""

from weft.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "ml_dtypes": "bfloat16",
        "weft.util.dtypes": "canonicalize_dtype extended finfo float0 iinfo issubdtype itemsize_bits prng_key result_type scalar_type_of",
        "weft.util.errors": "TypePromotionError",
    },
    guards=True,
)
