"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft import custom_gradient, custom_jvp, custom_vjp
from weft._engine.api.arrays import closure_convert
from weft._engine.control.custom_rules import custom_jvp_call_p, custom_vjp_call_p, remat_opt_p
from weft._engine.control.custom_values import (
    CustomVJPPrimal, SymbolicZero, custom_vjp_primal_tree_values, zero_from_primal,
)
from weft._engine.control.linear_call import linear_call

__all__ = [
    "CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp",
    "custom_jvp_call_p", "custom_vjp", "custom_vjp_call_p", "custom_vjp_primal_tree_values",
    "linear_call", "remat_opt_p", "zero_from_primal",
]
