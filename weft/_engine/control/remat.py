"""`checkpoint`: recompute values instead of saving them.

`remat` calls its program like `jit` does; only partial evaluation differs: it saves for the
backward pass what the policy allows and recomputes other values, behind a barrier so that
simplification does not undo it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.control.call_rules import ProgramCallOp
from weft._engine.control.ref import call_on_values
from weft._engine.core.trace import Zero, is_undef
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import dce, inline_calls, is_transparent, map_jaxprs
from weft._engine.ops.layout import name_p
from weft._engine.ops.placement import optimization_barrier_p
from weft._engine.transforms.linearize import PartialEvalResult, partial_eval_jaxpr
from weft._engine.transforms.transpose import transpose_with_refs
from weft._engine.util.config import config
from weft._engine.util.events import report
from weft._engine.util.record import record

#: params: jaxpr, prevent_cse (a bool, or one per input), policy (None, or a predicate on
#: (primitive, *avals, **params)), name,
#: differentiated (True for the recomputation in a derivative)


class _PolicyDecision:
    """A result of a policy other than a bool."""

    __slots__ = ("_name",)

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return self._name


Saveable, Recompute = _PolicyDecision("Saveable"), _PolicyDecision("Recompute")


@record
class Offloadable:
    """The decision of a policy to keep results in another memory space until the backward pass.

    >>> Offloadable("device", "pinned_host").dst
    'pinned_host'
    """

    src: str
    dst: str


def is_saved(answer: Any) -> bool:
    """Return True if the result of a policy allows to save results.

    Raise TypeError if it is invalid.
    """
    if isinstance(answer, (bool, np.bool_)):
        return bool(answer)
    if answer is Saveable or answer is Recompute or isinstance(answer, Offloadable):
        return answer is not Recompute
    raise TypeError(
        f"checkpoint: a policy answered {answer!r:.80} of type {type(answer).__name__}. Value returned by a remat policy "
        "should be a bool, or Recompute, Saveable or Offloadable(...) of ad_checkpoint."
    )


def saveable_by(policy: Callable | None) -> Callable:
    """Return a checkpoint policy as a predicate on equations."""
    if policy is None:
        return lambda eqn: False
    return lambda eqn: is_saved(policy(eqn.primitive, *[a.aval for a in eqn.invars], **eqn.params))


def origin(eqn: Eqn) -> str:
    """Return the origin of a residual: its name or its operation, and the source line."""
    what = (
        f"named {eqn.params['name']!r}"
        if eqn.primitive is name_p
        else f"output of {eqn.primitive.name}"
    )
    return what if eqn.source is None else f"{what} from {eqn.source.place}"


def _log_residuals(partial: PartialEvalResult, n_results: int) -> None:
    """Log the residuals: inputs by their types, and values with their origins."""
    makers = {v: eqn for eqn in partial.known.eqns for v in eqn.outvars}
    inputs = [partial.known.invars[i].aval for i in partial.forwarded if i is not None]
    lines = (
        ["saving inputs with shapes:", *[f"  {a.str_short()}" for a in inputs]] if inputs else []
    )
    computed = partial.known.outvars[n_results:]
    if computed:
        lines += [f"{'and ' * bool(inputs)}saving these intermediates:"]
        lines += [
            f"  {v.aval.str_short()} from {origin(makers[v]) if v in makers else 'an input'}"
            for v in computed
        ]
    report("checkpoint", True, "%s", "remat-decorated function " + "\n".join(lines))


def _each(prevent_cse: bool | tuple[bool, ...], n: int) -> tuple[bool, ...]:
    """Return, for each of `n` inputs, whether it goes behind a barrier.

    If the count differs from the flags, as in derivatives of higher order, all inputs do if one does.
    """
    if isinstance(prevent_cse, tuple) and len(prevent_cse) == n:
        return prevent_cse
    return (any(prevent_cse) if isinstance(prevent_cse, tuple) else bool(prevent_cse),) * n


def _program_behind_barrier(eqn: Eqn) -> Jaxpr:
    """Return the program that replaces a call when calls are inlined.

    A recomputation takes its barred inputs through a barrier if it computes any value from them
    alone; otherwise simplification would reuse the first computation of that value, and so keep it
    in memory.
    """
    jaxpr = eqn.params["jaxpr"]
    if not eqn.params["differentiated"]:
        return jaxpr
    barred = [
        v
        for v, has_barrier in zip(jaxpr.invars, _each(eqn.params["prevent_cse"], len(jaxpr.invars)))
        if has_barrier
    ]
    known = {*barred, *jaxpr.constvars}
    if not barred or not any(
        eqn.invars and all(type(a) is Literal or a in known for a in eqn.invars)
        for eqn in jaxpr.eqns
    ):
        return jaxpr
    guarded, source = {v: Var(v.aval) for v in barred}, jaxpr.eqns[0].source
    barrier = Eqn(
        optimization_barrier_p,
        guarded.values(),
        barred,
        {},
        None if source is None else source.unnamed(),
    )
    return jaxpr.replace(
        invars=[guarded.get(v, v) for v in jaxpr.invars], eqns=[barrier, *jaxpr.eqns]
    )


def _make_key_reading(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with read-only uses of its keys: the first run has consumed them."""
    eqns = []
    for eqn in jaxpr.eqns:
        params = map_jaxprs(eqn.params, _make_key_reading)
        if params.get("uses"):
            params = {name: value for name, value in params.items() if name != "uses"}
        eqns.append(eqn if params is eqn.params else eqn.replace(params=params))
    return jaxpr.replace(eqns=eqns) if any(a is not b for a, b in zip(eqns, jaxpr.eqns)) else jaxpr


def _is_policy_transparent(eqn: Eqn) -> bool:
    """Return True if a policy applies to the equations inside a call.

    It does not if the call has a rule, which higher derivatives need.
    """
    return is_transparent(eqn) or eqn.primitive is remat_p


class Remat(ProgramCallOp):
    """A call whose unknown part is recomputed."""

    only_derivatives = ("policy",)
    in_place = staticmethod(_program_behind_barrier)

    def divide(self, jaxpr: Jaxpr, unknown: Sequence[bool], params: dict) -> PartialEvalResult:
        """Evaluate partially under the policy.

        The unknown part recomputes the values that the policy does not save.
        """
        policy = params["policy"]
        program = jaxpr if policy is None else inline_calls(jaxpr, _is_policy_transparent)
        partial = partial_eval_jaxpr(program, unknown, saveable=saveable_by(policy))
        # A custom rule is replaced by its function if no residual is read.
        partial.known = dce(partial.known)
        # An operation that is not saved as a whole recomputes only the values that are read.
        partial.unknown = dce(partial.unknown)
        if config.log_checkpoint_residuals:
            _log_residuals(partial, sum(not u for u in partial.out_unknown))
        if config.debug_key_reuse:
            partial.unknown = _make_key_reading(partial.unknown)
        return partial

    def unknown_params(
        self, partial: PartialEvalResult, unknown: Sequence[bool], params: dict
    ) -> dict:
        """Return the parameters of the unknown part. Its known inputs go behind a barrier."""
        flags = _each(params["prevent_cse"], len(unknown))
        known = [flag for flag, u in zip(flags, unknown) if not u]
        prevent_cse = [any(known) if i is None else known[i] for i in partial.forwarded]
        return {
            **params,
            "prevent_cse": (*prevent_cse, *[False] * sum(unknown)),
            "differentiated": True,
        }


remat_p = Remat("checkpoint", multiple_results=True)


@remat_p.def_transpose
def _transpose(cts, *args, jaxpr, prevent_cse, **params):
    linear = tuple(map(is_undef, args))
    ct_nonzero = tuple(type(ct) is not Zero for ct in cts)
    backward, nonzero, refs = transpose_with_refs(jaxpr, linear, ct_nonzero)
    nonzero_cts = [ct for ct, nz in zip(cts, ct_nonzero) if nz]
    nonlinear_flags = [flag for flag, lin in zip(_each(prevent_cse, len(args)), linear) if not lin]
    params.update(
        jaxpr=backward,
        prevent_cse=(*nonlinear_flags, *[False] * len(nonzero_cts)),
        differentiated=True,
    )
    outs = iter(
        call_on_values(
            refs,
            lambda *xs: remat_p.bind(*xs, **params),
            [*(x for x in args if not is_undef(x)), *nonzero_cts],
        )
    )
    flags = iter(nonzero)
    return [(next(outs) if next(flags) else None) if lin else None for lin in linear]
