"""Portable artifacts of StableHLO, under the names of `jax.extend.mlir`: weft makes no MLIR, and each of them says so."""

from __future__ import annotations

from typing import Any

_NAMES = (
    "deserialize_portable_artifact",
    "hlo_to_stablehlo",
    "lower_with_sharding_in_types",
    "refine_polymorphic_shapes",
    "serialize_portable_artifact",
)


def _refusal(name: str) -> Any:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError(
            f"weft.extend.mlir.{name}: weft makes no MLIR. The text of a program as StableHLO is "
            "weft.jit(fun).lower(...).as_text(); weft.export keeps programs."
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


(
    deserialize_portable_artifact,
    hlo_to_stablehlo,
    lower_with_sharding_in_types,
    refine_polymorphic_shapes,
    serialize_portable_artifact,
) = map(_refusal, _NAMES)
