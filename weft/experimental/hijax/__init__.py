"""User-defined operations with a rule for each transformation: `VJPHiPrimitive`, and `HiPrimitive`, on values of hijax types.

In:   a class with the types of its arguments and results, an implementation `expand`, and rules as methods.
Out:  objects that are called like functions. A call is one equation in a program; compilation expands it.
Laws: a transformation calls its rule when it reaches the operation; without a rule it raises NotImplementedError, which
      names the method to write. Rules receive zeros as arrays. Types are array types, trees of them, or hijax types.
      A program holds the arrays of values of hijax types, so rules on such values apply only to values, as when a
      transformation runs the function itself, and not to a traced program.
Next: `vjp_primitive`, the class and its ops; `control.hijax_types`, the types of user-defined values.
"""

from weft._engine.control.hijax_types import (
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

#: public classes and functions, whose `__module__` is set to this package
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
