"""Portable artifacts of StableHLO, under the names of `jax.extend.mlir`: weft makes no MLIR, and each name refuses."""

from weft._engine.util.refusals import refused_function


def _refusal(name: str):
    return refused_function(
        __name__,
        name,
        f"{__name__}.{name}: weft makes no MLIR. The text of a program as StableHLO is "
        "weft.jit(fun).lower(...).as_text(); weft.export keeps programs.",
    )


deserialize_portable_artifact = _refusal("deserialize_portable_artifact")
hlo_to_stablehlo = _refusal("hlo_to_stablehlo")
lower_with_sharding_in_types = _refusal("lower_with_sharding_in_types")
refine_polymorphic_shapes = _refusal("refine_polymorphic_shapes")
serialize_portable_artifact = _refusal("serialize_portable_artifact")
