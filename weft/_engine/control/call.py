"""`jit` as an operation: a call of a program inside a program.

The call is kept while transformations run over it (`call_rules`) and inlined before partitioning. Evaluated at the bottom it
is compiled and run.
"""

from __future__ import annotations

from typing import Any

from weft._engine.core.primitive import CallLike, Primitive


def call_effects(params) -> frozenset:
    return params["jaxpr"].effects


def _rules(primitive: Primitive) -> dict[str, Any]:
    # it imports all transformations, which a first result does not need
    from weft._engine.control.call_rules import Call

    class JitWithRules(Call):
        """The class of `jit_p` from then on."""

        abstract = Jit.abstract

    primitive.__class__ = JitWithRules
    return {}


class Jit(CallLike):
    """Tracing asks for types only, which need no rule."""

    def abstract(self, avals, params):
        return params["jaxpr"].out_avals


#: params: jaxpr, name, in_shardings, out_shardings (tuples with one entry per flat value, None where unspecified),
#: donated (tuple of bool), inline, keep_unused
jit_p = Jit("jit", multiple_results=True, fill=_rules)
jit_p.ref_effects = call_effects
