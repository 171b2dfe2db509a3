"""`jit` as an operation: a call of a program inside a program.

Transformations keep the call (`call_rules`); it is inlined before partitioning. Outside a trace it
is compiled and run.
"""

from __future__ import annotations

from typing import Any

from weft._engine.core.primitive import CallLike, Primitive


def call_effects(params) -> frozenset:
    return params["jaxpr"].effects


def _rules(primitive: Primitive) -> dict[str, Any]:
    # call_rules imports all transformations, which the first result does not need
    from weft._engine.control.call_rules import ProgramCallOp

    class JitWithRules(ProgramCallOp):
        """The class of `jit_p` after the rules are loaded."""

        abstract = Jit.abstract

    primitive.__class__ = JitWithRules
    return {}


class Jit(CallLike):
    """`jit` before its rules are loaded. Tracing needs its types only."""

    def abstract(self, avals, params):
        return params["jaxpr"].out_avals


#: params: jaxpr, name, in_shardings, out_shardings (tuples with one entry per flat value, None where unspecified),
#: donated (tuple of bool), inline, keep_unused
jit_p = Jit("jit", multiple_results=True, make_rules=_rules)
jit_p.ref_effects = call_effects
