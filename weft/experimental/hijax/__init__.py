"""Operations of users with a rule for each transformation, as classes: `VJPHiPrimitive`, and `HiPrimitive`, on values of hi types.

In:   a class with the types of its arguments and results, an implementation `expand`, and rules as methods.
Out:  objects that are called like functions. Programs hold one equation for a call; it is expanded when they are compiled.
Laws: a transformation asks for its rule when it meets the operation, and raises NotImplementedError, with the method to write, where
      there is none. Zeros are given to rules as arrays. Types are those of arrays, in trees, or hi types. A program holds the arrays of
      values of hi types, so that rules for these are asked for where values are: under a transformation, not of a traced program.
Next: `vjp_primitive`, the class and its ops; `control.hitypes`, the types whose values are objects of users.
"""

from weft._engine.control.hitypes import (
    AbstractValue,
    AvalMutableQDD,
    AvalQDD,
    HiPspec,
    HiType,
    MutableHiType,
    aval_method,
    aval_property,
    control_flow_allowed_effects,
    register_hitype,
)
from weft._engine.control.ref import AbstractRef, TransformedRef
from weft._engine.core.trace import Zero
from weft._engine.ir.types import ShapedArray
from weft._engine.transforms.vmappable import MappingSpec
from weft.experimental.hijax.accumulators import (
    GradAccum,
    NullAccum,
    RefAccum,
    ValAccum,
    instantiate_zeros,
    is_undefined_primal,
)
from weft.experimental.hijax.derived_rules import (
    jvp_from_lin,
    linearize_from_jvp,
    vjp_from_jvp,
    vjp_from_lin,
)
from weft.experimental.hijax.hi_primitive import HiPrimitive
from weft.experimental.hijax.vjp_primitive import VJPHiPrimitive

__all__ = [
    "AbstractRef",
    "AbstractValue",
    "AvalMutableQDD",
    "AvalQDD",
    "GradAccum",
    "HiPrimitive",
    "HiPspec",
    "HiType",
    "MappingSpec",
    "MutableHiType",
    "NullAccum",
    "RefAccum",
    "ShapedArray",
    "TransformedRef",
    "VJPHiPrimitive",
    "ValAccum",
    "Zero",
    "aval_method",
    "aval_property",
    "control_flow_allowed_effects",
    "instantiate_zeros",
    "is_undefined_primal",
    "jvp_from_lin",
    "linearize_from_jvp",
    "register_hitype",
    "vjp_from_jvp",
    "vjp_from_lin",
]

#: classes and functions of this package, which report the module where users import them
for _public in (
    GradAccum,
    HiPrimitive,
    NullAccum,
    RefAccum,
    VJPHiPrimitive,
    ValAccum,
    instantiate_zeros,
    is_undefined_primal,
    jvp_from_lin,
):
    _public.__module__ = __name__
