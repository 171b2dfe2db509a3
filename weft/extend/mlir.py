"""Names of `jax.extend.mlir` for StableHLO portable artifacts; weft does not use MLIR, and each name raises an error."""

from weft._engine.util.refusals import refused_function

deserialize_portable_artifact = refused_function(__name__, "deserialize_portable_artifact")
hlo_to_stablehlo = refused_function(__name__, "hlo_to_stablehlo")
lower_with_sharding_in_types = refused_function(__name__, "lower_with_sharding_in_types")
refine_polymorphic_shapes = refused_function(__name__, "refine_polymorphic_shapes")
serialize_portable_artifact = refused_function(__name__, "serialize_portable_artifact")
