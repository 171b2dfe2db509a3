"""The rules of an operation that merely calls a program: each transformation maps the inner program, memoised on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.control.guarded import guarded
from weft._engine.control.ref import call_on_values
from weft._engine.core.interpret import evaluate, run_reference
from weft._engine.core.primitive import Primitive, unsupported
from weft._engine.core.stage import StageTrace
from weft._engine.core.trace import EvalTrace, Zero, is_undef
from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import dce as dce_jaxpr, used_vars
from weft._engine.transforms.batch import batch_jaxpr, to_dim
from weft._engine.transforms.jvp import jvp_jaxpr
from weft._engine.transforms.linearize import Partial, partial_eval_jaxpr, run_partial
from weft._engine.transforms.transpose import transpose_with_refs


def plain_params(jaxpr: Jaxpr, name: str) -> dict:
    """Parameters of a `jit` call without shardings or donation of its own."""
    n_in, n_out = len(jaxpr.invars), len(jaxpr.outvars)
    return {
        "jaxpr": jaxpr,
        "name": name,
        "in_shardings": (None,) * n_in,
        "out_shardings": (None,) * n_out,
        "donated": (False,) * n_in,
        "inline": False,
        "keep_unused": False,
    }


def bind_call(
    primitive: Primitive,
    jaxpr: Jaxpr,
    args: Sequence,
    params: dict,
    in_shardings=None,
    out_shardings=None,
) -> list:
    """Bind a call-like primitive on a transformed program; shardings default to unspecified."""
    return primitive.bind(*args, **call_params(jaxpr, params, in_shardings, out_shardings))


def call_params(jaxpr: Jaxpr, params: dict, in_shardings=None, out_shardings=None) -> dict:
    """Parameters of a call of a transformed program."""
    changes = dict(params, jaxpr=jaxpr)
    if "in_shardings" in params:
        n_in, n_out = len(jaxpr.invars), len(jaxpr.outvars)
        changes.update(
            in_shardings=tuple(in_shardings) if in_shardings is not None else (None,) * n_in,
            out_shardings=tuple(out_shardings) if out_shardings is not None else (None,) * n_out,
            donated=(False,) * n_in,
        )
    return changes


def call_type(*avals, jaxpr, **_):
    return jaxpr.out_avals


def call_reference(*args, jaxpr, **_):
    return run_reference(jaxpr, *args)


def _pick(values, mask):
    return [v for v, m in zip(values, mask) if m]


def split_call(jaxpr: Jaxpr, unknown: Sequence[bool], params: dict) -> Partial:
    """Partial evaluation of a called program: what is known is computed once and kept."""
    return partial_eval_jaxpr(jaxpr, unknown)


def make_call_rules(
    primitive: Primitive,
    plain: Primitive,
    split: Callable[[Jaxpr, Sequence[bool], dict], Partial] = split_call,
    rest: Callable[[Partial, Sequence[bool], dict], dict] | None = None,
) -> None:
    """Give an operation that merely calls `params['jaxpr']` its rules. `split` says how partial evaluation divides the program;
    `plain`, the operation of plain calls, computes the part that is known. The rest is a plain call, too, or one of `primitive` with the
    parameters that `rest` gives."""
    primitive.ref_effects = plain.ref_effects
    fill_call_rules(primitive, primitive, plain, split, rest)


def fill_call_rules(
    primitive: Primitive,
    to: Primitive,
    plain: Primitive,
    split: Callable[[Jaxpr, Sequence[bool], dict], Partial] = split_call,
    rest: Callable[[Partial, Sequence[bool], dict], dict] | None = None,
) -> None:
    """Fill the slots of `to` with the rules of `primitive`. A derivative rule that it has is one of the whole program: parts of that, and
    its transpose, become plain calls."""
    ruled = bool(primitive.only_derivatives)

    @to.def_jvp
    def jvp(primals, tangents, *, jaxpr, **params):
        nonzero = tuple(type(t) is not Zero for t in tangents)
        both, out_nonzero = jvp_jaxpr(jaxpr, nonzero)
        params["jaxpr"] = jaxpr
        ins, outs = params.get("in_shardings"), params.get("out_shardings")
        if ins is not None:
            ins = [*ins, *_pick(ins, nonzero)]
            outs = [*outs, *_pick(outs, out_nonzero)]
        barred = params.get("prevent_cse")  # of a checkpoint, for each input
        if isinstance(barred, tuple):
            params["prevent_cse"] = (*barred, *_pick(barred, nonzero))
        results = bind_call(
            primitive, both, [*primals, *_pick(tangents, nonzero)], params, ins, outs
        )
        n = len(jaxpr.outvars)
        given = iter(results[n:])
        return results[:n], [
            next(given) if nz else Zero(a.to_tangent_aval())
            for a, nz in zip(jaxpr.out_avals, out_nonzero)
        ]

    @to.def_batch
    def batch(axis, args, dims, *, jaxpr, **params):
        batched = tuple(d is not None for d in dims)
        args = [to_dim(x, d, axis, 0) if b else x for x, d, b in zip(args, dims, batched)]
        mapped, out_batched = batch_jaxpr(jaxpr, axis, batched)
        params["jaxpr"] = jaxpr
        outs = bind_call(primitive, mapped, args, params)
        return outs, [0 if b else None for b in out_batched]

    @to.def_partial_eval
    def partial_eval(trace, args, params):
        unknown = [trace.is_unknown(x) for x in args]
        partial = split(params["jaxpr"], unknown, params)
        shardings = params.get("in_shardings")

        def bind_known(program, operands):
            nothing = not program.eqns and not program.constvars  # but forwarding
            if nothing or (rest is not None and type(trace.parent) is not EvalTrace):
                return evaluate(program, *operands)
            if (
                ruled
            ):  # the other parameters describe the whole program, not a part of it: a plain call
                return plain.bind(*operands, **plain_params(program, params.get("name", "")))
            if shardings is None:
                return bind_call(primitive, program, operands, params)
            known_out = [s for s, u in zip(params["out_shardings"], partial.out_unknown) if not u]
            known_out += [None] * (len(program.outvars) - len(known_out))
            known_in = [s for s, u in zip(shardings, unknown) if not u]
            return bind_call(primitive, program, operands, params, known_in, known_out)

        def bind_unknown(program, operands):
            if rest is not None and not all(unknown):
                return StageTrace.process(
                    trace, primitive, operands, call_params(program, rest(partial, unknown, params))
                )
            if ruled and not all(unknown):
                return StageTrace.process(
                    trace, plain, operands, plain_params(program, params.get("name", ""))
                )
            return StageTrace.process(trace, primitive, operands, call_params(program, params))

        return run_partial(
            trace,
            partial,
            [x for x, u in zip(args, unknown) if not u],
            _pick(args, unknown),
            bind_known,
            bind_unknown,
        )

    def partial_eval_eqn(eqn, mask):
        """Split a call equation inside a program; gives (known eqn, unknown eqn, unknown variables)."""
        partial = split(eqn.params["jaxpr"], mask, eqn.params)
        known_ins = [a for a, u in zip(eqn.invars, mask) if not u]
        computed = [
            Var(a.aval) for a in partial.known.outvars[sum(not u for u in partial.out_unknown) :]
        ]
        fresh = iter(computed)
        residuals = [known_ins[i] if i is not None else next(fresh) for i in partial.forwarded]
        known_outs = [v for v, u in zip(eqn.outvars, partial.out_unknown) if not u]
        unknown_outs = _pick(eqn.outvars, partial.out_unknown)
        known = unknown = None
        called = (
            _plain_eqn if ruled and not all(mask) else lambda eqn, _, *parts: _call_eqn(eqn, *parts)
        )
        if known_outs or computed or partial.known.effects:
            known = called(eqn, plain, partial.known, known_ins, [*known_outs, *computed])
            if rest is not None:
                known = _written_out(known)
        if unknown_outs or partial.unknown.effects:
            operands = [*residuals, *_pick(eqn.invars, mask)]
            if rest is not None and not all(mask):
                again = eqn.replace(params=rest(partial, mask, eqn.params))
                unknown = _call_eqn(again, partial.unknown, operands, unknown_outs)
            else:
                unknown = called(eqn, plain, partial.unknown, operands, unknown_outs)
        return known, unknown, unknown_outs

    to.rules["partial_eval_eqn"] = partial_eval_eqn

    @to.def_transpose
    def transpose(cts, *args, jaxpr, **params):
        linear = tuple(map(is_undef, args))
        ct_nonzero = tuple(type(ct) is not Zero for ct in cts)
        backward, nonzero, refs = transpose_with_refs(jaxpr, linear, ct_nonzero)
        params["jaxpr"] = jaxpr
        called = (
            (lambda *xs: plain.bind(*xs, **plain_params(backward, params.get("name", ""))))
            if ruled
            else lambda *xs: bind_call(primitive, backward, xs, params)
        )
        outs = iter(
            call_on_values(
                refs, called, [*(x for x in args if not is_undef(x)), *_pick(cts, ct_nonzero)]
            )
        )
        flags = iter(nonzero)
        return [(next(outs) if next(flags) else None) if lin else None for lin in linear]

    @to.def_dce
    def dce(eqn, used):
        """The equation with unused results and the operands that only they needed dropped."""
        jaxpr = eqn.params["jaxpr"]
        inner, keep = jaxpr.memo(("called", *used), lambda: _without_unused(jaxpr, used))
        if inner is jaxpr:
            return eqn
        made = _call_eqn(eqn, inner, _pick(eqn.invars, keep), _pick(eqn.outvars, used))
        if isinstance(barred := eqn.params.get("prevent_cse"), tuple):
            made.params["prevent_cse"] = tuple(_pick(barred, keep))
        if "in_shardings" in made.params:
            made.params.update(
                in_shardings=tuple(_pick(eqn.params["in_shardings"], keep)),
                out_shardings=tuple(_pick(eqn.params["out_shardings"], used)),
            )
        return made

    to.define(
        type=call_type,
        reference=call_reference,
        factors=unsupported("calls are inlined before partitioning"),
        lower=unsupported("calls are inlined before fusion"),
    )

    def guard(on, operands, params):
        counts: dict[str, Any] = (
            {"num_consts": params["num_consts"] + 1} if "num_consts" in params else {}
        )
        if isinstance(barred := params.get("prevent_cse"), tuple):
            counts["prevent_cse"] = (False, *barred)
        return bind_call(primitive, guarded(params["jaxpr"]), [on, *operands], {**params, **counts})

    to.rules["guard"] = guard


def _without_unused(jaxpr: Jaxpr, used: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """The program without results that are not used and inputs that nothing reads then, and which inputs stay."""
    inner = dce_jaxpr(jaxpr, used)
    needed = used_vars(inner)
    keep = [v in needed for v in inner.invars]
    return inner if all(keep) else inner.replace(invars=_pick(inner.invars, keep)), keep


def keep_whole(eqn: Eqn, used: Sequence[bool]) -> Eqn:
    """The `dce` rule of operations whose other rules need all operands and results."""
    return eqn.replace(
        outvars=[
            v if u or type(v) is DropVar else DropVar(v.aval) for v, u in zip(eqn.outvars, used)
        ]
    )


def _written_out(call: Eqn) -> list[Eqn]:
    """The equations of a called program in the place of its call where each result is that of one of them, elsewhere the call."""
    program = call.params["jaxpr"]
    made = {v for eqn in program.eqns for v in eqn.outvars}
    names: dict[Var, Atom] = dict(zip(program.invars, call.invars))
    for atom, var in zip(program.outvars, call.outvars):
        if type(var) is not DropVar:
            if type(atom) is Literal or atom not in made or atom in names or program.constvars:
                return [call]
            names[atom] = var
    eqns = []
    for eqn in program.eqns:
        names.update(
            (v, DropVar(v.aval) if type(v) is DropVar else Var(v.aval))
            for v in eqn.outvars
            if v not in names
        )
        source = (
            call.source
            if eqn.source is None
            else eqn.source.within(call.source.scope)
            if call.source is not None
            else eqn.source
        )
        invars = [a if type(a) is Literal else names[a] for a in eqn.invars]
        eqns.append(
            eqn.replace(invars=invars, outvars=[names[v] for v in eqn.outvars], source=source)
        )
    return eqns


def _plain_eqn(eqn: Eqn, plain: Primitive, jaxpr: Jaxpr, invars, outvars) -> Eqn:
    params = plain_params(jaxpr, eqn.params.get("name", ""))
    return eqn.replace(
        primitive=plain, invars=invars, outvars=outvars, params=params, effects=jaxpr.effects
    )


def _call_eqn(eqn: Eqn, jaxpr: Jaxpr, invars, outvars) -> Eqn:
    params = dict(eqn.params, jaxpr=jaxpr)
    if "in_shardings" in params:
        params.update(
            in_shardings=(None,) * len(invars),
            out_shardings=(None,) * len(outvars),
            donated=(False,) * len(invars),
        )
    return eqn.replace(invars=invars, outvars=outvars, params=params, effects=jaxpr.effects)
