"""`checkpoint`: recompute instead of remember.

`remat` calls its program like `jit` does; the difference is in partial evaluation, where only what the policy allows is
saved for the backward pass and the rest is computed again, behind a barrier so that simplification does not undo it.
"""

from __future__ import annotations

from weft.control.call import call_effects, call_reference, call_type, make_call_rules, plain_call
from weft.core.interpret import evaluate
from weft.core.primitive import Primitive
from weft.core.trace import Zero, is_undef
from weft.ir.jaxpr import Eqn
from weft.transforms.linearize import partial_eval_jaxpr
from weft.transforms.transpose import transpose_jaxpr

#: params: jaxpr, prevent_cse, policy (None, or a predicate on (primitive, *avals, **params)), name
remat_p = Primitive("checkpoint", "region", multiple_results=True, call_like=True)
make_call_rules(remat_p)
remat_p.define(type=call_type, reference=call_reference)
remat_p.ref_effects = call_effects


def saveable_by(policy):
    """The predicate on equations that a checkpoint policy means."""
    if policy is None:
        return lambda eqn: False
    return lambda eqn: bool(policy(eqn.primitive, *[a.aval for a in eqn.invars], **eqn.params))


def split(jaxpr, unknown, policy):
    """Partial evaluation under the policy, known results computed once and not saved."""
    return partial_eval_jaxpr(jaxpr, unknown, saveable=saveable_by(policy))


@remat_p.def_partial_eval
def _partial_eval(trace, args, params):
    from weft.core.stage import StageTrace
    from weft.core.trace import set_trace
    jaxpr, policy = params["jaxpr"], params["policy"]
    unknown = [trace.is_unknown(x) for x in args]
    partial = split(jaxpr, unknown, policy)
    known_args = [x for x, u in zip(args, unknown) if not u]
    with set_trace(trace.parent):
        known_outs = plain_call(partial.known, known_args, params.get("name", "checkpoint"))
    n_known = sum(not u for u in partial.out_unknown)
    computed = iter(known_outs[n_known:])
    residuals = [known_args[i] if i is not None else next(computed) for i in partial.forwarded]
    operands = [*residuals, *(x for x, u in zip(args, unknown) if u)]
    staged = iter(StageTrace.process(trace, remat_p, operands, dict(params, jaxpr=partial.unknown)))
    results = iter(known_outs[:n_known])
    return [next(staged) if u else next(results) for u in partial.out_unknown]


def _partial_eval_eqn(eqn: Eqn, mask):
    from weft.ir.jaxpr import Var
    partial = split(eqn.params["jaxpr"], mask, eqn.params["policy"])
    known_ins = [a for a, u in zip(eqn.invars, mask) if not u]
    computed = [Var(a.aval) for a in partial.known.outvars[sum(not u for u in partial.out_unknown):]]
    fresh = iter(computed)
    residuals = [known_ins[i] if i is not None else next(fresh) for i in partial.forwarded]
    known_outs = [v for v, u in zip(eqn.outvars, partial.out_unknown) if not u]
    unknown_outs = [v for v, u in zip(eqn.outvars, partial.out_unknown) if u]
    known = eqn.replace(params=dict(eqn.params, jaxpr=partial.known), invars=known_ins, outvars=[*known_outs, *computed])
    unknown = eqn.replace(params=dict(eqn.params, jaxpr=partial.unknown), outvars=unknown_outs,
                          invars=[*residuals, *(a for a, u in zip(eqn.invars, mask) if u)])
    return known, unknown, unknown_outs


remat_p.rules["partial_eval_eqn"] = _partial_eval_eqn


@remat_p.def_transpose
def _transpose(cts, *args, jaxpr, prevent_cse, **params):
    from weft.ops.placement import optimization_barrier
    linear = tuple(map(is_undef, args))
    ct_nonzero = tuple(type(ct) is not Zero for ct in cts)
    backward, nonzero = transpose_jaxpr(jaxpr, linear, ct_nonzero)
    fixed = [x for x in args if not is_undef(x)]
    given = [ct for ct, nz in zip(cts, ct_nonzero) if nz]
    operands = [*fixed, *given]
    if prevent_cse:
        operands = optimization_barrier(operands)
    outs = iter(evaluate(backward, *operands))
    flags = iter(nonzero)
    return [(next(outs) if next(flags) else None) if lin else None for lin in linear]
