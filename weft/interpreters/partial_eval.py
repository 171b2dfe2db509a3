"""Tracing of functions, and partial evaluation and pruning of programs: the names of `jax.interpreters.partial_eval`.

In:   wrapped functions (`weft.extend.linear_util`) or plain ones, types, programs.
Out:  open jaxprs with the values of their constants; programs without unused parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.primitive import Primitive
from weft._engine.core.stage import StageTrace, StageTracer, stage
from weft._engine.core.trace import current_trace, set_trace
from weft._engine.ir import rewrite
from weft._engine.ir.jaxpr import Eqn, Jaxpr, OpenJaxpr
from weft._engine.ir.types import ShapedArray
from weft._engine.transforms.linearize import LinearTrace
from weft._engine.util.dispatch_state import guard
from weft.extend.linear_util import WrappedFun
from weft.interpreters.rule_table import RuleTable

DynamicJaxprTrace = StageTrace
DynamicJaxprTracer = StageTracer
JaxprTracer = StageTracer


class PartialVal(tuple):
    """A known value, `(None, value)`, or an unknown value of known type, `(aval, None)`.

    >>> PartialVal.known(2.0).is_known(), PartialVal.unknown(weft.typeof(2.0)).get_aval()
    (True, ShapedArray(float32[], weak_type=True))
    """

    __slots__ = ()

    def __new__(cls, xs: tuple[ShapedArray | None, Any]) -> "PartialVal":
        return super().__new__(cls, xs)

    @classmethod
    def known(cls, const: Any) -> "PartialVal":
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: ShapedArray) -> "PartialVal":
        return cls((aval, None))

    def is_known(self) -> bool:
        return self[0] is None

    def get_known(self) -> Any:
        """Return the value, or None."""
        return self[1] if self[0] is None else None

    def get_aval(self) -> ShapedArray:
        from weft._engine.core.trace import typeof

        return typeof(self[1]) if self[0] is None else self[0]


def _callable(fun: Any) -> Callable:
    return fun.call_wrapped if isinstance(fun, WrappedFun) else fun


def trace_to_jaxpr_dynamic(
    fun: Any,
    in_avals: Sequence[ShapedArray],
    *,
    keep_inputs: Sequence[bool] | None = None,
    lower: bool = False,
    auto_dce: bool = False,
) -> tuple[OpenJaxpr, list[ShapedArray], list]:
    """Return the program of a function of flat values of types `in_avals`, the types of its results, and its constants.

    >>> jaxpr, avals, consts = trace_to_jaxpr_dynamic(lambda x: [wnp.sin(x)], [weft.typeof(1.0)])
    >>> jaxpr, len(avals), consts
    ({ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }, 1, [])
    """
    jaxpr = stage(lambda *xs: list(_callable(fun)(*xs)), in_avals)
    if keep_inputs is not None:
        read = rewrite.used_vars(jaxpr)
        jaxpr = jaxpr.replace(
            invars=[v for v, keep in zip(jaxpr.invars, keep_inputs) if keep or v in read]
        )
    if auto_dce:
        jaxpr = rewrite.dce(jaxpr)
    return jaxpr.jaxpr, list(jaxpr.out_avals), list(jaxpr.consts)


def trace_to_jaxpr_nounits(
    fun: Any, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[OpenJaxpr, list[PartialVal], list]:
    """Run a function on partly unknown values: compute the known part, and stage the rest as a program of the unknown values.

    Returns that program, the results, where unknown results are types, and the known values that the program reads. With
    `instantiate`, results count as unknown.

    >>> known, unknown = PartialVal.known(2.0), PartialVal.unknown(weft.typeof(1.0))
    >>> jaxpr, outs, consts = trace_to_jaxpr_nounits(lambda x, y: [x * x, x * y], [known, unknown])
    >>> len(jaxpr.eqns), outs[0].get_known(), outs[1].is_known()
    (1, 4.0, False)
    """
    trace = LinearTrace(current_trace())
    args = [p.get_known() if p.is_known() else trace.new_arg(p.get_aval()) for p in pvals]
    guard[0] += 1
    try:
        with set_trace(trace):
            outs = list(_callable(fun)(*args))
        force = [instantiate] * len(outs) if isinstance(instantiate, bool) else list(instantiate)
        unknown = [trace.is_unknown(x) or f for x, f in zip(outs, force)]
        ins = [x for x, p in zip(args, pvals) if not p.is_known()]
        program = trace.to_jaxpr(ins, [x for x, u in zip(outs, unknown) if u])
    finally:
        guard[0] -= 1
        trace.finished = True
    avals = iter(program.out_avals)
    results = [
        PartialVal.unknown(next(avals)) if u else PartialVal.known(x) for x, u in zip(outs, unknown)
    ]
    return program.jaxpr, results, list(program.consts)


# --- dead code ----------------------------------------------------------------------------------------------------------


def dce_jaxpr(
    jaxpr: Any, used_outputs: bool | Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Any, list[bool]]:
    """Return a program without unused results and their computation, and a list with True for each input that remains.

    `instantiate` selects inputs that remain even if unused.

    >>> program = weft.make_jaxpr(lambda x, y: (wnp.sin(x), wnp.cos(y)))(1.0, 2.0)
    >>> dce_jaxpr(program.jaxpr, [True, False])
    ({ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }, [True, False])
    """
    pruned, used, _ = _prune_jaxpr(jaxpr, used_outputs, instantiate)
    consts = dict(zip(jaxpr.constvars, jaxpr.consts)) if isinstance(jaxpr, Jaxpr) else {}
    if isinstance(jaxpr, Jaxpr):
        pruned = pruned.closed([consts[v] for v in pruned.constvars])
    else:
        pruned = pruned.replace(constvars=jaxpr.constvars)
    return pruned, used


def dce_jaxpr_consts(
    jaxpr: Any, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[OpenJaxpr, list[bool], list[bool]]:
    """Prune like `dce_jaxpr`, and also drop unread constants; return True for each remaining constant and for each remaining input."""
    pruned, used, used_consts = _prune_jaxpr(jaxpr, used_outputs, instantiate)
    return pruned, used_consts, used


def _prune_jaxpr(
    jaxpr: Any, used_outputs: Any, instantiate: Any
) -> tuple[OpenJaxpr, list[bool], list[bool]]:
    used_outs = (
        [used_outputs] * len(jaxpr.outvars)
        if isinstance(used_outputs, bool)
        else list(used_outputs)
    )
    stay = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else list(instantiate)
    closed = Jaxpr((), (), [*jaxpr.constvars, *jaxpr.invars], jaxpr.outvars, jaxpr.eqns)
    less = rewrite.dce(closed, used_outs)
    read = rewrite.used_vars(less)
    used_consts = [v in read for v in jaxpr.constvars]
    used = [v in read or keep for v, keep in zip(jaxpr.invars, stay)]
    pruned = OpenJaxpr(
        [v for v, u in zip(jaxpr.constvars, used_consts) if u],
        [v for v, u in zip(jaxpr.invars, used) if u],
        less.outvars,
        less.eqns,
        less.effects,
        jaxpr.debug_info,
    )
    return pruned, used, used_consts


def _prune_equation(primitive: Primitive, rule: Callable) -> Callable:
    return lambda eqn, used: rule(used, eqn)[1]


def _dce_rule_of(primitive: Primitive, shrink: Callable) -> Callable:
    def rule(used_outputs: Sequence[bool], eqn: Eqn) -> tuple[list[bool], Eqn | None]:
        less = shrink(eqn, list(used_outputs))
        if less is None:
            return [False] * len(eqn.invars), None
        read = {id(a) for a in less.invars}
        return [id(a) in read for a in eqn.invars], less

    return rule


#: `rule(used_outputs, eqn) -> (used_inputs, smaller equation or None)`
dce_rules = RuleTable("dce", _prune_equation, _dce_rule_of)


def dce_jaxpr_call_rule(used_outputs: list[bool], eqn: Eqn) -> tuple[list[bool], Eqn | None]:
    """Apply the `dce_rules` rule of an equation that only calls its program."""
    return dce_rules[eqn.primitive](used_outputs, eqn)


dce_jaxpr_closed_call_rule = dce_jaxpr_call_rule


class _ReadOnlyRuleTable(RuleTable):
    """A read-only rule table."""

    def __setitem__(self, primitive: Primitive, rule: Callable) -> None:
        raise NotImplementedError(
            f"a rule of partial evaluation for primitive {primitive!r} cannot be given: an operation is known or "
            "unknown as a whole. Give the primitive rules of differentiation and of lowering."
        )


#: partial evaluation rules of operations with subprograms during tracing
custom_partial_eval_rules = _ReadOnlyRuleTable("partial_eval")
#: partial evaluation rules of equations with subprograms inside a program
partial_eval_jaxpr_custom_rules = _ReadOnlyRuleTable("partial_eval_eqn")
