"""Error classes that programs may catch."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "builtins": "JAXIndexError=IndexError JAXTypeError=TypeError",
        "weft._engine.util.errors": """
        CallbackError CheckpointError CheckpointSupersededError ConcretizationTypeError CustomVJPException
        DeviceRuntimeError InconclusiveDimensionOperation JaxRuntimeError=DeviceRuntimeError JaxprTypeError=ProgramTypeError
        KeyPromotionError KeyReuseError MissingMeshError MissingRuleError NonConcreteBooleanIndexError OutOfMemoryError ProcessFailureError
        ProgramTypeError ShapeError ShardingAssertionError ShardingError ShardingTypeError TracerArrayConversionError
        TracerBoolConversionError TracerError TracerIntegerConversionError TypePromotionError UnboundAxisError UnexpectedTracerError
        UnknownBackendError VerificationError
    """,
    },
)
