"""Operations under their names for TPUs."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__, {"weft.experimental.pallas.ops.tpu": "flash_attention megablox splash_attention"}
)
