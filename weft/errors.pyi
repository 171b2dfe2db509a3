"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from builtins import (
    IndexError as JAXIndexError, TypeError as JAXTypeError,
)
from weft._engine.util.errors import (
    CallbackError, CheckpointError, CheckpointSupersededError, ConcretizationTypeError,
    CustomVJPException, DeviceRuntimeError, InconclusiveDimensionOperation,
    DeviceRuntimeError as JaxRuntimeError, ProgramTypeError as JaxprTypeError, KeyPromotionError,
    KeyReuseError, MissingMeshError, MissingRuleError, NonConcreteBooleanIndexError,
    OutOfMemoryError, ProcessFailureError, ProgramTypeError, ShapeError, ShardingAssertionError,
    ShardingError, ShardingTypeError, TracerArrayConversionError, TracerBoolConversionError,
    TracerError, TracerIntegerConversionError, TypePromotionError, UnboundAxisError,
    UnexpectedTracerError, UnknownBackendError, VerificationError,
)

__all__ = [
    "CallbackError", "CheckpointError", "CheckpointSupersededError", "ConcretizationTypeError",
    "CustomVJPException", "DeviceRuntimeError", "InconclusiveDimensionOperation", "JAXIndexError",
    "JAXTypeError", "JaxRuntimeError", "JaxprTypeError", "KeyPromotionError", "KeyReuseError",
    "MissingMeshError", "MissingRuleError", "NonConcreteBooleanIndexError", "OutOfMemoryError",
    "ProcessFailureError", "ProgramTypeError", "ShapeError", "ShardingAssertionError",
    "ShardingError", "ShardingTypeError", "TracerArrayConversionError",
    "TracerBoolConversionError", "TracerError", "TracerIntegerConversionError",
    "TypePromotionError", "UnboundAxisError", "UnexpectedTracerError", "UnknownBackendError",
    "VerificationError",
]
