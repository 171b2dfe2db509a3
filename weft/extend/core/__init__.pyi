"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.core.trace import Trace, Tracer
from weft._engine.ir.jaxpr import DebugInfo, DropVar, Literal, Var
from weft._engine.ir.symbolic.sizes import max_dim, min_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.util.errors import (
    InconclusiveDimensionOperation, ProgramTypeError as JaxprTypeError,
)
from weft.extend.core import primitives
from weft.extend.core.programs import (
    Atom, CallPrimitive, ClosedJaxpr, Jaxpr, JaxprEqn, ParamDict, Primitive, call_impl,
    check_jaxpr, gensym, jaxpr_as_fun, jaxprs_in_params, new_jaxpr_eqn, subjaxprs,
)
from weft.extend.core.traces import (
    TraceTag, eval_context, find_top_trace, get_opaque_trace_state, nonempty_axis_env_DO_NOT_USE,
    set_current_trace, take_current_trace, trace_state_clean, unsafe_am_i_under_a_jit_DO_NOT_USE,
    unsafe_am_i_under_a_vmap_DO_NOT_USE, unsafe_get_axis_names_DO_NOT_USE,
)
from weft.extend.core.types import (
    AbstractToken, AbstractValue, Effect, Effects, Token, Value, array_types, concrete_or_error,
    is_concrete, mapped_aval, no_effects, primal_dtype_to_tangent_dtype, unmapped_aval,
    valid_jaxtype,
)

__all__ = [
    "AbstractToken", "AbstractValue", "Atom", "CallPrimitive", "ClosedJaxpr", "DebugInfo",
    "DropVar", "Effect", "Effects", "InconclusiveDimensionOperation", "Jaxpr", "JaxprEqn",
    "JaxprTypeError", "Literal", "ParamDict", "Primitive", "ShapedArray", "Token", "Trace",
    "TraceTag", "Tracer", "Value", "Var", "array_types", "call_impl", "check_jaxpr",
    "concrete_or_error", "eval_context", "find_top_trace", "gensym", "get_opaque_trace_state",
    "is_concrete", "jaxpr_as_fun", "jaxprs_in_params", "mapped_aval", "max_dim", "min_dim",
    "new_jaxpr_eqn", "no_effects", "nonempty_axis_env_DO_NOT_USE", "primal_dtype_to_tangent_dtype",
    "primitives", "set_current_trace", "subjaxprs", "take_current_trace", "trace_state_clean",
    "unmapped_aval", "unsafe_am_i_under_a_jit_DO_NOT_USE", "unsafe_am_i_under_a_vmap_DO_NOT_USE",
    "unsafe_get_axis_names_DO_NOT_USE", "valid_jaxtype",
]
