"""Custom primitives, and programs as data.

`Primitive(name)` creates an operation; `weft.interpreters` has the tables of its rules. `ClosedJaxpr`, `Jaxpr`, `JaxprEqn`,
`Var` and `Literal` are the classes of the result of `weft.make_jaxpr`, and can be constructed. `primitives` has weft's own
operations.
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        __name__: "primitives",
        "weft.extend.core.types": """
        AbstractToken AbstractValue Effect Effects Token Value array_types concrete_or_error is_concrete mapped_aval no_effects
        primal_dtype_to_tangent_dtype unmapped_aval valid_jaxtype
    """,
        "weft.extend.core.programs": """
        Atom CallPrimitive ClosedJaxpr Jaxpr JaxprEqn ParamDict Primitive call_impl check_jaxpr gensym jaxpr_as_fun jaxprs_in_params
        new_jaxpr_eqn subjaxprs
    """,
        "weft.extend.core.traces": """
        TraceTag eval_context find_top_trace get_opaque_trace_state nonempty_axis_env_DO_NOT_USE set_current_trace
        take_current_trace trace_state_clean unsafe_am_i_under_a_jit_DO_NOT_USE unsafe_am_i_under_a_vmap_DO_NOT_USE
        unsafe_get_axis_names_DO_NOT_USE
    """,
        "weft._engine.core.trace": "Trace Tracer",
        "weft._engine.ir.jaxpr": "DebugInfo DropVar Literal Var",
        "weft._engine.ir.symbolic.sizes": "max_dim min_dim",
        "weft._engine.ir.types": "ShapedArray",
        "weft._engine.util.errors": "InconclusiveDimensionOperation JaxprTypeError=ProgramTypeError",
    },
)
