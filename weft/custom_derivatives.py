"""Functions with custom derivative rules, and the special values that these rules receive."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.api.arrays": "closure_convert",
        "weft._engine.api.autodiff": "custom_gradient",
        "weft._engine.control.custom_rules": "custom_jvp custom_jvp_call_p custom_vjp custom_vjp_call_p remat_opt_p",
        "weft._engine.control.custom_values": "CustomVJPPrimal SymbolicZero custom_vjp_primal_tree_values zero_from_primal",
        "weft._engine.control.linear_call": "linear_call",
    },
    guards=True,
)
