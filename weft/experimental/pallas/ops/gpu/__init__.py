"""Operations under their names for GPUs."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(__name__, {"weft.experimental.pallas.ops.gpu": "attention"})
