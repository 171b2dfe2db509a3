"""Runtime checks inside compiled programs, whose errors are values: `checkify`."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.checkify": """
        Error ErrorCategory JaxRuntimeError all_checks automatic_checks check check_error checkify debug_check div_checks
        float_checks index_checks init_error nan_checks user_checks
    """,
    },
)
