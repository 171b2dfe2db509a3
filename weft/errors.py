"""Error classes that programs may catch."""

from __future__ import annotations

from weft.util.errors import (
    CallbackError,
    CommError,
    CompileError,
    ConcretizationTypeError,
    DeviceRuntimeError,
    InconclusiveDimensionOperation,
    KeyReuseError,
    MissingRuleError,
    NonConcreteBooleanIndexError,
    ProgramTypeError,
    ShapeError,
    ShardingError,
    ShardingTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerError,
    TracerIntegerConversionError,
    TypePromotionError,
    UnexpectedTracerError,
)

# The names of the same ideas in programs written for the peer.
JAXTypeError = TypeError
JAXIndexError = IndexError
JaxRuntimeError = DeviceRuntimeError
JaxprTypeError = ProgramTypeError

__all__ = [
    "CallbackError", "CommError", "CompileError", "ConcretizationTypeError", "DeviceRuntimeError", "InconclusiveDimensionOperation",
    "JAXIndexError", "JAXTypeError", "JaxRuntimeError", "JaxprTypeError", "KeyReuseError", "MissingRuleError",
    "NonConcreteBooleanIndexError", "ProgramTypeError", "ShapeError", "ShardingError", "ShardingTypeError",
    "TracerArrayConversionError",
    "TracerBoolConversionError", "TracerError", "TracerIntegerConversionError", "TypePromotionError",
    "UnexpectedTracerError",
]  # fmt: skip
