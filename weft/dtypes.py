"""Functions and classes of dtypes: promotion, families, limits, and the dtypes that NumPy lacks."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "ml_dtypes": "bfloat16",
        "weft._engine.util.dtypes": """
        canonicalize_dtype extended finfo float0 iinfo issubdtype itemsize_bits prng_key result_type scalar_type_of
    """,
        "weft._engine.util.errors": "TypePromotionError",
    },
    guards=True,
)
