"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.extend.core import (
    AbstractToken, AbstractValue, Atom, CallPrimitive, ClosedJaxpr, DebugInfo, DropVar, Effect,
    Effects, InconclusiveDimensionOperation, Jaxpr, JaxprEqn, JaxprTypeError, Literal, ParamDict,
    Primitive, ShapedArray, Token, Trace, TraceTag, Tracer, Value, Var, array_types, call_impl,
    check_jaxpr, concrete_or_error, eval_context, find_top_trace, gensym, get_opaque_trace_state,
    is_concrete, jaxpr_as_fun, jaxprs_in_params, mapped_aval, max_dim, min_dim, new_jaxpr_eqn,
    no_effects, nonempty_axis_env_DO_NOT_USE, primal_dtype_to_tangent_dtype, set_current_trace,
    subjaxprs, take_current_trace, trace_state_clean, unmapped_aval,
    unsafe_am_i_under_a_jit_DO_NOT_USE, unsafe_am_i_under_a_vmap_DO_NOT_USE,
    unsafe_get_axis_names_DO_NOT_USE, valid_jaxtype,
)

__all__ = [
    "AbstractToken", "AbstractValue", "Atom", "CallPrimitive", "ClosedJaxpr", "DebugInfo",
    "DropVar", "Effect", "Effects", "InconclusiveDimensionOperation", "Jaxpr", "JaxprEqn",
    "JaxprTypeError", "Literal", "ParamDict", "Primitive", "ShapedArray", "Token", "Trace",
    "TraceTag", "Tracer", "Value", "Var", "array_types", "call_impl", "check_jaxpr",
    "concrete_or_error", "eval_context", "find_top_trace", "gensym", "get_opaque_trace_state",
    "is_concrete", "jaxpr_as_fun", "jaxprs_in_params", "mapped_aval", "max_dim", "min_dim",
    "new_jaxpr_eqn", "no_effects", "nonempty_axis_env_DO_NOT_USE", "primal_dtype_to_tangent_dtype",
    "set_current_trace", "subjaxprs", "take_current_trace", "trace_state_clean", "unmapped_aval",
    "unsafe_am_i_under_a_jit_DO_NOT_USE", "unsafe_am_i_under_a_vmap_DO_NOT_USE",
    "unsafe_get_axis_names_DO_NOT_USE", "valid_jaxtype",
]
