"""`scan`: run a program once per slice of its inputs, carrying values along.

The primitive takes `(*consts, *carry, *xs)`. Its program takes the constants, the carry and one
slice of each of `xs`, and returns the next carry and one slice of each of `ys`. Results are the
last carry and the stacked ys. `reverse` starts at the end; ys keep the order of xs. A scan is
compiled to one native loop.

Transformations map the program once: the loop of a derivative carries tangents along, and the loop
of an adjoint runs backwards and sums the cotangents of constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.control import staged_body as bodies
from weft._engine.control.call import jit_p
from weft._engine.control.call_rules import plain_params
from weft._engine.control.effect_guards import add_guard_input
from weft._engine.control.hijax_types import check_slices, flatten
from weft._engine.control.ref import lift_refs, thread_refs
from weft._engine.core.interpret import evaluate, lockstep_rule
from weft._engine.core.primitive import LoopLike, declare_unsupported
from weft._engine.core.stage import ClosedOverRefsError, stage
from weft._engine.core.trace import Tracer, Zero, is_undef, typeof
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import dce as dce_jaxpr, inline_calls, is_transparent, used_vars
from weft._engine.ir.symbolic import as_size
from weft._engine.ops.families import add_tangents, zeros
from weft._engine.ops.layout import expand_dims
from weft._engine.transforms.batch import add_batch_dim, batch_jaxpr, move_dim
from weft._engine.transforms.jvp import instantiate, jvp_jaxpr
from weft._engine.transforms.linearize import PartialEvalResult, partial_eval_jaxpr
from weft._engine.transforms.transpose import transpose_with_refs
from weft._engine.util import tree
from weft._engine.util.errors import ConcretizationTypeError, ShardingTypeError, describe
from weft._engine.util.source import api_boundary, function_name, user_frame

#: params: jaxpr, length, reverse, num_consts, num_carry, linear (tuple of bool), unroll (a hint: a number or True)
scan_p = LoopLike("scan", multiple_results=True, carried="num_carry", counted=True)


def _params(
    jaxpr: Jaxpr, old: dict, num_consts: int, num_carry: int, reverse: bool | None = None
) -> dict:
    """Return the parameters of a scan of another program, otherwise like `old`."""
    return {
        **old,
        "jaxpr": jaxpr,
        "reverse": old["reverse"] if reverse is None else reverse,
        "num_consts": num_consts,
        "num_carry": num_carry,
        "linear": (False,) * len(jaxpr.invars),
    }


@scan_p.def_type
def _type(*avals, jaxpr, length, num_consts, num_carry, **_):
    outs = jaxpr.out_avals
    for x, inner in zip(avals[num_consts + num_carry :], jaxpr.in_avals[num_consts + num_carry :]):
        if x.shape != (length, *inner.shape):
            raise TypeError(
                f"scan: of length {length} slices {x.str_short()} as {inner.str_short()}."
            )
    return [*outs[:num_carry], *(a.with_dim(0, length) for a in outs[num_carry:])]


scan_p.in_avals = lambda params: [
    a
    if i < params["num_consts"] + params["num_carry"]
    else a.update(shape=(params["length"], *a.shape), sharding=None)
    for i, a in enumerate(params["jaxpr"].in_avals)
]


@lockstep_rule(scan_p)
def _lockstep(devices, operands, *, jaxpr, length, reverse, num_consts, num_carry, **_):
    consts, carry, xs = bodies.split_list(operands, num_consts, num_carry)
    rows: list = [None] * length
    for i in reversed(range(length)) if reverse else range(length):
        at = [devices.each(lambda x, i=i: [x[i]], [x])[0] for x in xs]
        carry, rows[i] = bodies.split_list(devices.run(jaxpr, [*consts, *carry, *at]), num_carry)
    shapes = [((length, *a.shape), a.dtype) for a in jaxpr.out_avals[num_carry:]]
    stacked = lambda shape, dtype: (
        lambda *parts: [np.stack(parts) if parts else np.empty(shape, dtype)]
    )
    return [
        *carry,
        *[
            devices.each(stacked(*shape), [row[k] for row in rows])[0]
            for k, shape in enumerate(shapes)
        ],
    ]


# --- jvp, batch -------------------------------------------------------------------------------------------------------


@scan_p.def_jvp
def _jvp(primals, tangents, **params):
    body, nc, nk = params["jaxpr"], params["num_consts"], params["num_carry"]
    nonzero = tuple(type(t) is not Zero for t in tangents)
    jvp_body, carry_nz, ys_nz = body.memo(
        ("scan jvp", nonzero, nc, nk), lambda: _jvp_body(body, nonzero, nc, nk)
    )
    consts, carry, xs = bodies.split_list(primals, nc, nk)
    t_consts, t_carry, t_xs = bodies.split_list(tangents, nc, nk)
    t_consts, t_xs = ([t for t in ts if type(t) is not Zero] for ts in (t_consts, t_xs))
    t_carry = [instantiate(t) for t in bodies.pick(t_carry, carry_nz)]
    outs = scan_p.bind(
        *consts,
        *t_consts,
        *carry,
        *t_carry,
        *xs,
        *t_xs,
        **_params(jvp_body, params, nc + len(t_consts), nk + len(t_carry)),
    )
    carry, t_carry, ys, t_ys = bodies.split_list(outs, nk, len(t_carry), len(body.outvars) - nk)
    tangents_out = iter([*t_carry, *t_ys])
    avals = scan_p.abstract([typeof(x) for x in primals], params)
    return [*carry, *ys], [
        next(tangents_out) if nz else Zero(a.to_tangent_aval())
        for nz, a in zip((*carry_nz, *ys_nz), avals)
    ]


def _jvp_body(body: Jaxpr, nonzero: tuple, nc: int, nk: int) -> tuple:
    """Return the body on values and tangents, and which carries and ys have tangents."""
    n, ny = len(body.invars), len(body.outvars) - nk
    const_nz, carry_nz, xs_nz = (tuple(part) for part in bodies.split_list(nonzero, nc, nk))
    while True:
        jvp_body, out_nz = jvp_jaxpr(body, const_nz + carry_nz + xs_nz, carry_nz + (False,) * ny)
        wider = tuple(a or b for a, b in zip(carry_nz, out_nz))
        if wider == carry_nz:
            break
        carry_nz = wider
    consts, carry, xs = bodies.split_list(jvp_body.invars[:n], nc, nk)
    t_consts, t_carry, t_xs = bodies.split_list(jvp_body.invars[n:], sum(const_nz), sum(carry_nz))
    carry_out, ys, t_carry_out, t_ys = bodies.split_list(jvp_body.outvars, nk, ny, sum(carry_nz))
    jvp_body = jvp_body.replace(
        invars=[*consts, *t_consts, *carry, *t_carry, *xs, *t_xs],
        outvars=[*carry_out, *t_carry_out, *ys, *t_ys],
    )
    return jvp_body, carry_nz, out_nz[nk:]


@scan_p.def_batch
def _batch(axis, args, dims, **params):
    body, nc, nk = params["jaxpr"], params["num_consts"], params["num_carry"]
    batched = [d is not None for d in dims]
    mapped, carry_batched, out_batched = body.memo(
        ("scan batch", axis, tuple(batched), nc, nk),
        lambda: _batch_body(body, axis, batched, nc, nk),
    )
    operands = []
    for i, (x, d) in enumerate(zip(args, dims)):
        if d is not None:
            x = move_dim(x, d, int(i >= nc + nk))
        elif nc <= i < nc + nk and carry_batched[i - nc]:
            x = add_batch_dim(x, axis.size, 0)
        operands.append(x)
    outs = scan_p.bind(*operands, **_params(mapped, params, nc, nk))
    return outs, [int(i >= nk) if b else None for i, b in enumerate(out_batched)]


def _batch_body(body: Jaxpr, axis, batched: Sequence[bool], nc: int, nk: int) -> tuple:
    """Return the body mapped over dim 0 of batched operands and of carries that they reach."""
    consts, carry, xs = bodies.split_list(batched, nc, nk)
    ny = len(body.outvars) - nk
    while True:
        mapped, out_batched = batch_jaxpr(
            body, axis, (*consts, *carry, *xs), (*carry, *[False] * ny)
        )
        wider = [a or b for a, b in zip(carry, out_batched)]
        if wider == carry:
            return mapped, carry, out_batched
        carry = wider


# --- partial evaluation -----------------------------------------------------------------------------------------------


class _ScanBodySplit:
    """A body split for partial evaluation. Each residual is passed to the unknown loop in one of
    these ways: as a loop constant (`from_consts`: numbers of known constants; `invariant`: computed
    once, before the loop); as slices of a known input (`from_xs`); as a carry that is recomputed
    under a checkpoint policy (`again`: numbers of known carries); or stacked by the known loop
    (`stacked`: numbers of its results)."""

    __slots__ = (
        "again",
        "carry_unknown",
        "from_consts",
        "from_xs",
        "invariant",
        "known",
        "out_unknown",
        "stacked",
        "unknown",
    )


def _plan(
    body: Jaxpr,
    unknown: Sequence[bool],
    nc: int,
    nk: int,
    saveable: Callable[[Eqn], bool] | None = None,
) -> _ScanBodySplit:
    const_u, carry_u, xs_u = bodies.split_list(unknown, nc, nk)
    ny = len(body.outvars) - nk
    while True:
        part = partial_eval_jaxpr(body, (*const_u, *carry_u, *xs_u), (*carry_u, *[False] * ny))
        wider = [a or b for a, b in zip(carry_u, part.out_unknown)]
        if wider == carry_u:
            break
        carry_u = wider
    plan = _ScanBodySplit()
    plan.again, plan.carry_unknown, plan.out_unknown = [], carry_u, part.out_unknown
    n_consts, n_carry = const_u.count(False), carry_u.count(False)
    if saveable is not None:
        part = _split_by_policy(
            plan,
            inline_calls(body, is_transparent),
            (*const_u, *carry_u, *xs_u),
            n_consts,
            saveable,
        )
    _route_residuals(plan, part, n_consts, n_carry, const_u.count(True), carry_u.count(True))
    return plan


def _split_by_policy(
    plan: _ScanBodySplit,
    body: Jaxpr,
    unknown: Sequence[bool],
    n_consts: int,
    saveable: Callable[[Eqn], bool],
) -> PartialEvalResult:
    """Return the body split by a policy. `plan.again` are the known carries that the unknown side
    recomputes; it returns their next values first."""
    carries = [i for i, u in enumerate(plan.carry_unknown) if not u]
    forced = [*plan.carry_unknown, *[False] * (len(body.outvars) - len(plan.carry_unknown))]
    while True:
        copies = [body.outvars[carries[i]] for i in plan.again]
        part = partial_eval_jaxpr(
            body.replace(outvars=[*copies, *body.outvars]),
            unknown,
            [*[True] * len(copies), *forced],
            saveable,
        )
        read = sorted(
            i - n_consts
            for i in part.forwarded
            if i is not None and n_consts <= i < n_consts + len(carries)
        )
        if read == plan.again:
            return part
        plan.again = read


def _route_residuals(
    plan: _ScanBodySplit,
    part: PartialEvalResult,
    n_consts: int,
    n_carry: int,
    u_consts: int,
    u_carry: int,
) -> None:
    """Complete `plan` with the two sides of `part` and the source of each residual."""
    known = part.known
    n_out = part.out_unknown.count(False)
    computed = iter(known.outvars[n_out:])
    varying = _find_varying_variables(known, n_consts)
    plan.from_consts, plan.from_xs, plan.stacked = [], [], []
    # variables of the unknown side, grouped by source
    fixed, sliced, invariant, stacked = list[Var](), list[Var](), list[Var](), list[Var]()
    again: dict[int, Var] = {}
    invariant_outs, outs = [], list(known.outvars[:n_out])
    for var, i in zip(part.unknown.invars, part.forwarded):
        source = next(computed) if i is None else known.invars[i]
        if i is not None and i < n_consts:
            plan.from_consts.append(i)
            fixed.append(var)
        elif i is not None and i >= n_consts + n_carry:
            plan.from_xs.append(i - n_consts - n_carry)
            sliced.append(var)
        elif i is not None and i - n_consts in plan.again:
            again[i - n_consts] = var
        elif source not in varying:
            invariant_outs.append(source)
            invariant.append(var)
        else:
            if source not in outs[n_carry:]:
                outs.append(source)
            plan.stacked.append(outs.index(source, n_carry))
            stacked.append(var)
    plan.known = known.replace(outvars=outs)
    plan.invariant = (
        _invariant_part(known, n_consts, invariant_outs, varying) if invariant else None
    )
    consts, carry, xs = bodies.split_list(
        part.unknown.invars[len(part.forwarded) :], u_consts, u_carry
    )
    carry = [*(again[i] for i in plan.again), *carry]
    plan.unknown = part.unknown.replace(
        invars=[*fixed, *invariant, *consts, *carry, *stacked, *sliced, *xs]
    )


def _invariant_part(known: Jaxpr, n_consts: int, outs: Sequence[Var], varying: set) -> Jaxpr:
    """Return the program of the values `outs` that are equal in all iterations."""
    eqns = [e for e in known.eqns if not e.effects and not varying.intersection(e.outvars)]
    invars = known.invars[:n_consts]
    return dce_jaxpr(Jaxpr(known.constvars, known.consts, invars, outs, eqns, name=known.name))


def _find_varying_variables(jaxpr: Jaxpr, n_consts: int) -> set:
    """Variables that depend on more than the first `n_consts` inputs, or come from equations with effects."""
    varying = set(jaxpr.invars[n_consts:])
    for eqn in jaxpr.eqns:
        if eqn.effects or any(type(a) is not Literal and a in varying for a in eqn.invars):
            varying.update(eqn.outvars)
    return varying


def _memoized_plan(body: Jaxpr, unknown, n_consts: int, n_carry: int, saveable) -> _ScanBodySplit:
    if saveable is not None:
        return _plan(body, unknown, n_consts, n_carry, saveable)
    key = "scan partial", tuple(unknown), n_consts, n_carry
    return body.memo(key, lambda: _plan(body, unknown, n_consts, n_carry))


def _split(args, unknown, params, known, staged, saveable=None):
    body, nc, nk = params["jaxpr"], params["num_consts"], params["num_carry"]
    plan = _memoized_plan(body, unknown, nc, nk, saveable)
    consts, carry, xs = bodies.split_list(args, nc, nk)
    const_u, _, xs_u = bodies.split_list(unknown, nc, nk)
    known_consts, known_xs = (
        [x for x, u in zip(values, mask) if not u]
        for values, mask in ((consts, const_u), (xs, xs_u))
    )
    known_carry = [x for x, u in zip(carry, plan.carry_unknown) if not u]
    invariant = (
        []
        if plan.invariant is None
        else known(jit_p, known_consts, plain_params(plan.invariant, plan.invariant.name))
    )
    early, late = [], []
    if plan.known.outvars or plan.known.effects:
        early = known(
            scan_p,
            [*known_consts, *known_carry, *known_xs],
            _params(plan.known, params, len(known_consts), len(known_carry)),
        )
    if any(plan.out_unknown) or plan.unknown.effects:
        fixed = [
            *(known_consts[i] for i in plan.from_consts),
            *invariant,
            *bodies.pick(consts, const_u),
        ]
        moving = [*(known_carry[i] for i in plan.again), *bodies.pick(carry, plan.carry_unknown)]
        sliced = [
            *(early[i] for i in plan.stacked),
            *(known_xs[i] for i in plan.from_xs),
            *bodies.pick(xs, xs_u),
        ]
        late = staged(
            scan_p,
            [*fixed, *moving, *sliced],
            _params(plan.unknown, params, len(fixed), len(moving)),
        )[len(plan.again) :]
    early, late = iter(early), iter(late)
    return [next(late) if u else next(early) for u in plan.out_unknown], list(plan.out_unknown)


bodies.define_partial_eval(scan_p, _split, sees_policy=True)


# --- transpose, dce ---------------------------------------------------------------------------------------------------


@scan_p.def_transpose
def _transpose(cts, *args, **params):
    body, nc, nk = params["jaxpr"], params["num_consts"], params["num_carry"]
    linear = [is_undef(x) for x in args]
    plan = body.memo(("scan partial", tuple(linear), nc, nk), lambda: _plan(body, linear, nc, nk))
    if all(plan.carry_unknown):
        return _transpose_linear(cts, args, linear, params)
    # a part of the carry may not depend on the linear inputs (a counter, say): it runs forward
    # first
    staged: list = []

    def stage_unknown(primitive, operands, changed):
        staged[:] = [operands, changed]
        return [None] * sum(plan.out_unknown)

    _split(
        list(args),
        linear,
        params,
        lambda p, operands, changed: p.bind(*operands, **changed),
        stage_unknown,
    )
    if not staged:
        return [None] * len(args)
    operands, changed = staged
    in_cts = _transpose_linear(
        bodies.pick(cts, plan.out_unknown), operands, [is_undef(x) for x in operands], changed
    )
    cotangents = {id(x): ct for x, ct in zip(operands, in_cts) if is_undef(x)}
    return [cotangents.get(id(x)) for x in args]


def _transpose_linear(cts, args, linear, params):
    """Return the adjoint of a scan whose whole carry is linear, known initial values included."""
    body, nc, nk = params["jaxpr"], params["num_consts"], params["num_carry"]
    ct_carry, ct_ys = bodies.split_list(cts, nk)
    ys_nz = tuple(type(ct) is not Zero for ct in ct_ys)
    const_lin, _, xs_lin = (tuple(part) for part in bodies.split_list(linear, nc, nk))
    backward, const_nz, xs_nz, refs = body.memo(
        ("scan transpose", const_lin, xs_lin, ys_nz, nc, nk),
        lambda: _backward_body(body, const_lin, nk, xs_lin, ys_nz),
    )
    consts, carry, xs = bodies.split_list(args, nc, nk)
    fixed = [x for x, lin in zip(consts, const_lin) if not lin]
    sums = [
        zeros(x.aval.to_tangent_aval())
        for x, nz in zip(bodies.pick(consts, const_lin), const_nz)
        if nz
    ]
    scanned = [*bodies.pick(ct_ys, ys_nz), *(x for x, lin in zip(xs, xs_lin) if not lin)]
    carried = [*(r[...] for r in refs), *sums, *map(instantiate, ct_carry)]
    outs = scan_p.bind(
        *fixed,
        *carried,
        *scanned,
        **_params(backward, params, len(fixed), len(carried), not params["reverse"]),
    )
    states, ct_consts, ct_carry, ct_xs = bodies.split_list(outs, len(refs), len(sums), nk)
    for r, value in zip(refs, states):
        r._write(value)
    return [
        *_spread_cotangents(ct_consts, const_nz, const_lin),
        *(ct if is_undef(x) else None for x, ct in zip(carry, ct_carry)),
        *_spread_cotangents(ct_xs, xs_nz, xs_lin),
    ]


def _spread_cotangents(values: Sequence, nonzero: Sequence[bool], linear: Sequence[bool]) -> list:
    """Return one entry per operand: its cotangent if it is linear and nonzero, else None."""
    values_iter, flags = iter(values), iter(nonzero)
    return [(next(values_iter) if next(flags) else None) if lin else None for lin in linear]


def _backward_body(body: Jaxpr, const_lin: tuple, nk: int, xs_lin: tuple, ys_nz: tuple) -> tuple:
    """Return the body of the backward loop; which linear constants and xs have cotangents; and the
    references of derivative rules.

    The body maps (fixed consts, values of references, sums, carried cotangents, cotangents of ys,
    fixed slices) to (values of references, sums, carried cotangents, cotangents of xs).
    """
    backward, nonzero, refs = transpose_with_refs(
        body, (*const_lin, *[True] * nk, *xs_lin), (*[True] * nk, *ys_nz)
    )
    const_nz, carry_nz, xs_nz = (
        tuple(part) for part in bodies.split_list(nonzero, sum(const_lin), nk)
    )
    n_fixed, n_sums, n_ys = const_lin.count(False), sum(const_nz), sum(ys_nz)
    carry_avals = [a.to_tangent_aval() for a in body.out_avals[:nk]]

    def run(*args):
        fixed, states, sums, ct_carry, ct_ys, slices = bodies.split_list(
            args, n_fixed, len(refs), n_sums, nk, n_ys
        )
        outs = evaluate(backward, *states, *fixed, *slices, *ct_carry, *ct_ys)
        ct_consts, outs_iter, states = (
            outs[:n_sums],
            iter(outs[n_sums : len(outs) - len(refs)]),
            outs[len(outs) - len(refs) :],
        )
        ct_carry = [next(outs_iter) if nz else zeros(a) for nz, a in zip(carry_nz, carry_avals)]
        return [*states, *map(add_tangents, sums, ct_consts), *ct_carry, *outs_iter]

    linear_consts = [v for v, lin in zip(body.invars, const_lin) if lin]
    slices = [v.aval for v, lin in zip(body.invars[len(const_lin) + nk :], xs_lin) if not lin]
    avals = [
        *(v.aval for v, lin in zip(body.invars, const_lin) if not lin),
        *backward.in_avals[: len(refs)],
        *(v.aval.to_tangent_aval() for v in bodies.pick(linear_consts, const_nz)),
        *carry_avals,
        *(a.to_tangent_aval() for a in bodies.pick(body.out_avals[nk:], ys_nz)),
        *slices,
    ]
    return stage(run, avals, body.name), const_nz, xs_nz, refs


@scan_p.def_dce
def _dce(eqn: Eqn, used: list[bool]) -> Eqn:
    """Return the equation without unused ys, unneeded carries, and operands then not read."""
    params = eqn.params
    body, nc, nk = params["jaxpr"], params["num_consts"], params["num_carry"]
    carry, ys = bodies.split_list(used, nk)
    while True:
        inner = dce_jaxpr(body, [*carry, *ys])
        needed = used_vars(inner)
        wider = [u or v in needed for u, v in zip(carry, inner.invars[nc : nc + nk])]
        if wider == carry:
            break
        carry = wider
    read = [v in needed for v in inner.invars]
    keep = [*read[:nc], *carry, *read[nc + nk :]]
    if all(keep) and all(ys) and inner is body:
        return eqn
    inner = inner.replace(invars=bodies.pick(inner.invars, keep))
    return eqn.replace(
        invars=bodies.pick(eqn.invars, keep),
        outvars=bodies.pick(eqn.outvars, [*carry, *ys]),
        params=_params(inner, params, sum(keep[:nc]), sum(carry)),
    )


def _links(eqn: Eqn) -> list:
    p = eqn.params
    body, n_consts, n_carry = p["jaxpr"], p["num_consts"], p["num_carry"]
    groups = []
    for i, (outer, inner) in enumerate(zip(eqn.invars, body.invars)):
        group = [(outer, int(i >= n_consts + n_carry)), (inner, 0)]
        if n_consts <= i < n_consts + n_carry:
            group += [(body.outvars[i - n_consts], 0), (eqn.outvars[i - n_consts], 0)]
        groups.append(group)
    return groups + [
        [(inner, 0), (outer, 1)]
        for inner, outer in zip(body.outvars[n_carry:], eqn.outvars[n_carry:])
    ]


_REGION = "its program is partitioned and lowered by the passes themselves"
scan_p.define(
    factors=declare_unsupported(_REGION),
    links=_links,
    lower=declare_unsupported("control flow is lowered by its class"),
)
scan_p.guard = lambda on, operands, params: scan_p.bind(
    on,
    *operands,
    **_params(
        add_guard_input(params["jaxpr"]), params, params["num_consts"] + 1, params["num_carry"]
    ),
)
scan_p.ref_effects = lambda params: params["jaxpr"].effects


# --- user function ----------------------------------------------------------------------------------------------------


def _scan_with_refs(
    plain: Callable,
    first: ClosedOverRefsError | None,
    f: Callable,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Apply `scan` with references in its function or arguments: they are carried, or stacked if
    `xs` holds them."""

    def run(funs, values, args):
        def step(carry, x):
            out, state, passed_values = funs[0].call(carry[1], (carry[0], x))
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(
                    f"scan: {function_name(f)} must return a pair (carry, y), got {type(out)}."
                )
            return (out[0], state), (out[1], passed_values)

        results = plain(step, (args[0], values), args[1], length, reverse, unroll)
        (last, state), (ys, passed_values) = results
        return (last, ys), state, passed_values

    return lift_refs(first, "scan", (init, xs), [f], run)


@api_boundary
@thread_refs(_scan_with_refs)
def scan(
    f: Callable,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Run `carry, y = f(carry, x)` over slices of `xs`; return the last carry and the stacked ys.

    `xs` is a tree of arrays of equal size along dim 0, or None with `length`. `f` is traced once;
    the carry keeps its structure, shapes and dtypes. `reverse` runs from the last slice to the
    first. `unroll` is accepted for compatibility; the native loop has no per-iteration overhead to
    save. Raises TypeError if `f` changes the type of the carry, ValueError if sizes differ.

    >>> last, sums = lax.scan(lambda c, x: (c + x, c + x), 0, wnp.arange(5))
    >>> int(last), sums.tolist()
    (10, [0, 1, 3, 6, 10])
    """
    if not callable(f):
        raise TypeError(f"scan: f should be a callable. It is {f!r}.")
    xs_flat, xs_tree = flatten(xs, "scan")
    n = _length(xs_flat, xs_tree, length)
    check_slices(xs, n)
    check_unroll("scan", unroll)
    if bodies.runs_in_python() and n:
        return _in_python(f, bodies.freeze_numpy_arrays(init), xs_flat, xs_tree, n, reverse)
    return bind_scan("scan", f, init, xs_flat, xs_tree, n, bool(reverse), unroll)


def bind_scan(
    api: str,
    f: Callable,
    init: Any,
    xs_flat: Sequence,
    xs_tree: Any,
    length: int,
    reverse: bool,
    unroll: int | bool,
) -> tuple[Any, Any]:
    """Stage `f` and bind `scan_p`; `api` is the function that errors name."""
    init_flat, init_tree = flatten(init, api)
    in_tree = tree.treedef_tuple([init_tree, xs_tree])
    _check_whole(api, xs_flat, xs_tree)
    slices = [typeof(x).without_dim(0) for x in xs_flat]
    nk = attempts_left = len(init_flat)
    while True:
        carry_avals = [typeof(x) for x in init_flat]
        body = bodies.stage_body(f, in_tree, [*carry_avals, *slices], function_name(f), api)
        carry_tree, ys_tree = _pair(api, f, body)
        promoted = None
        if carry_tree == init_tree:
            promoted = bodies.promote_weak(init_flat, carry_avals, body.out_avals)
        if promoted is None or not attempts_left:
            break
        init_flat, attempts_left = promoted, attempts_left - 1
    body = bodies.keep_axes(body, carry_avals) if carry_tree == init_tree else body
    bodies.check_carry(
        api, f, init_tree, carry_avals, carry_tree, body.out_avals[: carry_tree.num_leaves]
    )
    first = len(body.consts) + nk
    slices_of = {v: x for v, x in zip(body.jaxpr.invars[first:], xs_flat) if isinstance(x, Tracer)}
    # ys that are slices of xs, unchanged
    ys = [None if type(v) is Literal else slices_of.get(v) for v in body.jaxpr.outvars[nk:]]
    stacked = [v for v, x in zip(body.jaxpr.outvars[nk:], ys) if x is None]
    jaxpr = (
        body.jaxpr
        if len(stacked) == len(ys)
        else body.jaxpr.replace(outvars=[*body.jaxpr.outvars[:nk], *stacked])
    )
    outs = scan_p.bind(
        *body.consts,
        *init_flat,
        *xs_flat,
        jaxpr=jaxpr,
        length=length,
        reverse=reverse,
        num_consts=len(body.consts),
        num_carry=nk,
        linear=(False,) * len(jaxpr.invars),
        unroll=unroll,
    )
    carried, stacked_outs = (
        bodies.restore_unchanged_carries(jaxpr, len(body.consts), init_flat, outs[:nk]),
        iter(outs[nk:]),
    )
    return tree.tree_unflatten(init_tree, carried), tree.tree_unflatten(
        ys_tree, [next(stacked_outs) if x is None else x for x in ys]
    )


def _check_whole(api: str, xs_flat: Sequence, xs_tree: Any) -> None:
    """Raise ShardingTypeError if explicit sharding splits the dim over which the loop iterates."""
    for path, x in zip(bodies.leaf_names("xs", xs_tree), xs_flat):
        aval = typeof(x)
        if aval.explicit is not None and aval.explicit.spec_dims(aval.ndim)[0]:
            whole = (None, *aval.explicit.spec[1:])
            raise ShardingTypeError(
                describe(
                    api,
                    f"{path} is split along dim 0, which the loop slices: the 0th dimension of all xs should be "
                    "replicated.",
                    [(path, aval.str_short())],
                    user_frame(),
                    "Every device takes every step, so that each needs all slices.",
                    f"Reshard it first: weft.sharding.reshard({path}, P({', '.join(map(repr, whole))})).",
                )
            )


def _pair(api: str, f: Callable, body: bodies.StagedBody) -> list:
    """Return the structures of carry and ys."""
    node = body.out_tree.node_data()
    if node is None or node[0] not in (tuple, list) or len(body.out_tree.children()) != 2:
        got = body.out_avals[0].str_short() if body.out_tree.is_leaf else body.out_tree
        raise TypeError(
            describe(
                api,
                f"scan body output must be a pair, got {got}. The body is {function_name(f)}.",
                (),
                user_frame(),
                "A scan body gives the next carry and what is to be stacked.",
                "Return (carry, None) if nothing is.",
            )
        )
    return body.out_tree.children()


def _length(xs_flat: Sequence, xs_tree: Any, length: int | None) -> int:
    """Return the number of slices, on which all of `xs` and `length` must agree."""
    names = [
        f"xs{tree.keystr(p)}"
        for p, _ in tree.tree_flatten_with_path(tree.tree_unflatten(xs_tree, range(len(xs_flat))))[
            0
        ]
    ]
    sizes = {}
    for name, x in zip(names, xs_flat):
        aval = typeof(x)
        if not aval.ndim:
            raise ValueError(
                f"scan got value with no leading axis to scan over: {name} is {aval.str_short()}."
            )
        sizes.setdefault(aval.shape[0], f"{name} is {aval.str_short()}")
    if isinstance(length, Tracer):
        raise ConcretizationTypeError(
            describe(
                "scan",
                "The `length` argument to `scan` expects a concrete `int` value, and is a traced one.",
                (),
                user_frame(),
                "A scan has a length known while tracing.",
                "Make it static, or use while_loop.",
            )
        )
    if length is not None:
        try:
            known = as_size(length)
        except TypeError:
            raise TypeError(f"scan: length must be an integer, got {length!r}.") from None
        if known < 0:
            raise ValueError(f"scan: length must not be negative, got {known}.")
        if any(n != known for n in sizes):
            raise ValueError(
                f"scan: length={known} disagrees with the leading axis sizes: {'; '.join(sizes.values())}."
            )
        return known
    if len(sizes) > 1:
        raise ValueError(
            f"scan: xs have different leading axis sizes: {'; '.join(sizes.values())}."
        )
    if not sizes:
        raise ValueError(
            "scan: there are no arrays in xs whose leading axis tells the length: the call must provide `length`."
        )
    return next(iter(sizes))


def check_unroll(api: str, unroll: Any) -> None:
    """Raise ValueError unless `unroll` is a bool or a number of steps."""
    if not isinstance(unroll, (bool, int, np.integer)) or (
        not isinstance(unroll, bool) and unroll < 0
    ):
        raise ValueError(
            f"{api}: `unroll` must be a nonnegative integer (0: the whole loop) or a bool, got {unroll!r}."
        )


def _in_python(
    f: Callable, carry: Any, xs_flat: Sequence, xs_tree: Any, length: int, reverse: bool
) -> tuple[Any, Any]:
    """Run the loop in Python, for debugging."""
    from weft._engine.ops.slicing import concatenate, index_in_dim

    rows: list = []
    for i in reversed(range(length)) if reverse else range(length):
        carry, y = f(
            carry,
            tree.tree_unflatten(xs_tree, [index_in_dim(x, i, 0, keepdims=False) for x in xs_flat]),
        )
        rows.append(y)
    if reverse:
        rows.reverse()
    return carry, tree.tree_map(
        lambda *ys: concatenate([expand_dims(y, (0,)) for y in ys], 0), *rows
    )
