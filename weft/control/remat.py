"""`checkpoint`: recompute values instead of keeping them.

`remat` calls its program like `jit` does; the difference is in partial evaluation, where only what the policy allows is
saved for the backward pass and the rest is computed again, after a barrier so that simplification does not undo it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.control.call import jit_p
from weft.control.call_rules import make_call_rules
from weft.control.ref import call_on_values
from weft.core.interpret import evaluate
from weft.core.primitive import Primitive
from weft.core.trace import Zero, is_undef
from weft.ir.jaxpr import Eqn, Jaxpr
from weft.ir.rewrite import dce, inline_calls, is_transparent, map_jaxprs
from weft.ops.placement import optimization_barrier
from weft.transforms.linearize import Partial, partial_eval_jaxpr
from weft.transforms.transpose import transpose_with_refs
from weft.util.config import config

#: params: jaxpr, prevent_cse, policy (None, or a predicate on (primitive, *avals, **params)), name
remat_p = Primitive("checkpoint", "region", multiple_results=True, call_like=True, only_derivatives=("policy",))


def saveable_by(policy: Callable | None) -> Callable:
    """The predicate on equations that a checkpoint policy means."""
    if policy is None:
        return lambda eqn: False
    return lambda eqn: bool(policy(eqn.primitive, *[a.aval for a in eqn.invars], **eqn.params))


def _split(jaxpr: Jaxpr, unknown: Sequence[bool], params: dict) -> Partial:
    """Partial evaluation under the policy: what it does not save is computed again by the unknown part."""
    policy = params["policy"]
    program = jaxpr if policy is None else inline_calls(jaxpr, _seen_through)
    partial = partial_eval_jaxpr(program, unknown, saveable=saveable_by(policy))
    partial.known = dce(partial.known)         # a rule gives way to its function where no residual is read
    partial.unknown = dce(partial.unknown)     # what an operation computes again is what is not saved
    if config.debug_key_reuse:
        partial.unknown = _reading_keys(partial.unknown)
    return partial


def _reading_keys(jaxpr: Jaxpr) -> Jaxpr:
    """The program as one that only reads the keys from which it draws: those were used up when it ran for the first time."""
    eqns = []
    for eqn in jaxpr.eqns:
        params = map_jaxprs(eqn.params, _reading_keys)
        if params.get("uses"):
            params = {name: value for name, value in params.items() if name != "uses"}
        eqns.append(eqn if params is eqn.params else eqn.replace(params=params))
    return jaxpr.replace(eqns=eqns) if any(a is not b for a, b in zip(eqns, jaxpr.eqns)) else jaxpr


def _seen_through(eqn: Eqn) -> bool:
    """Whether a policy is asked about the equations of a call: not if it has a rule, which derivatives of higher order need."""
    return is_transparent(eqn) or eqn.primitive is remat_p


make_call_rules(remat_p, jit_p, _split)


@remat_p.def_transpose
def _transpose(cts, *args, jaxpr, prevent_cse, **params):
    linear = tuple(map(is_undef, args))
    ct_nonzero = tuple(type(ct) is not Zero for ct in cts)
    backward, nonzero, refs = transpose_with_refs(jaxpr, linear, ct_nonzero)
    fixed = [x for x in args if not is_undef(x)]
    given = [ct for ct, nz in zip(cts, ct_nonzero) if nz]
    operands = [*fixed, *given]
    if prevent_cse:
        operands = optimization_barrier(operands)
    outs = iter(call_on_values(refs, lambda *xs: evaluate(backward, *xs), operands))
    flags = iter(nonzero)
    return [(next(outs) if next(flags) else None) if lin else None for lin in linear]
