"""`while_loop`: repeat a program while another returns true.

The primitive takes `(*cond_consts, *body_consts, *carry)`. The condition's program takes its
constants and the carry and returns a boolean scalar; the body's takes its constants and the carry
and returns the next carry. It is compiled to one native loop.

The number of iterations is known only at run time, so residuals of a backward pass cannot be
stored: forward-mode derivatives and batching work, reverse mode is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.control import staged_body as bodies
from weft._engine.control.call import jit_p
from weft._engine.control.call_rules import plain_params
from weft._engine.control.divergent_programs import check_no_collective
from weft._engine.control.effect_guards import add_guard_input
from weft._engine.control.hijax_types import flatten
from weft._engine.control.ref import lift_refs, thread_refs
from weft._engine.core.annotations import cast
from weft._engine.core.interpret import evaluate, lockstep_rule
from weft._engine.core.primitive import LoopLike, declare_unsupported
from weft._engine.core.stage import ClosedOverRefsError, stage
from weft._engine.core.trace import Zero, trace_state, typeof
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.rewrite import dce as dce_jaxpr, map_jaxprs, used_vars
from weft._engine.ops.comparison import select_n
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.ops.reduce import reduce_or
from weft._engine.transforms.batch import add_batch_dim, batch_flat, batch_jaxpr, move_dim
from weft._engine.transforms.jvp import instantiate, jvp_jaxpr
from weft._engine.transforms.linearize import partial_eval_jaxpr
from weft._engine.util import tree
from weft._engine.util.errors import describe
from weft._engine.util.source import api_boundary, function_name, user_frame

#: params: cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts
while_p = LoopLike(
    "while",
    multiple_results=True,
    body="body_jaxpr",
    constants="body_nconsts",
    cond_constants="cond_nconsts",
)


def _unpack(params: dict) -> tuple[Jaxpr, Jaxpr, int, int]:
    return (
        params["cond_jaxpr"],
        params["body_jaxpr"],
        params["cond_nconsts"],
        params["body_nconsts"],
    )


def _params(cond: Jaxpr, body: Jaxpr, cond_nconsts: int, body_nconsts: int) -> dict:
    return {
        "cond_jaxpr": cond,
        "body_jaxpr": body,
        "cond_nconsts": cond_nconsts,
        "body_nconsts": body_nconsts,
    }


@while_p.def_type
def _type(*avals, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
    (flag,) = cond_jaxpr.out_avals
    if flag.shape or flag.dtype != np.bool_:
        raise TypeError(f"while: the condition must give a boolean scalar, got {flag.str_short()}.")
    return body_jaxpr.out_avals


while_p.in_avals = lambda params: (
    *params["cond_jaxpr"].in_avals[: params["cond_nconsts"]],
    *params["body_jaxpr"].in_avals,
)


@lockstep_rule(while_p)
def _lockstep(devices, operands, *, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
    of_cond, of_body, carry = bodies.split_list(operands, cond_nconsts, body_nconsts)
    carry, going = [list(x) for x in carry], list(range(len(devices)))
    while going:
        (more,) = devices.run_on(going, cond_jaxpr, [*of_cond, *carry])
        going = [i for i, go in zip(going, more) if go]
        for x, new in zip(
            carry, devices.run_on(going, body_jaxpr, [*of_body, *carry]) if going else ()
        ):
            for i, value in zip(going, new):
                x[i] = value
    return carry


# --- jvp --------------------------------------------------------------------------------------------------------------


@while_p.def_jvp
def _jvp(primals, tangents, **params):
    cond, body, n_cond, n_body = _unpack(params)
    of_cond, of_body, carry = bodies.split_list(primals, n_cond, n_body)
    _, t_body, t_carry = bodies.split_list(tangents, n_cond, n_body)
    nonzero = tuple(type(t) is not Zero for t in (*t_body, *t_carry))
    jvp_body, carry_nz = body.memo(
        ("while jvp", nonzero, n_body), lambda: _jvp_body(body, nonzero, n_body)
    )
    extended = cond.memo(
        ("while jvp", carry_nz),
        lambda: _ignore_tangents(cond, bodies.pick(body.out_avals, carry_nz)),
    )
    t_body = [t for t in t_body if type(t) is not Zero]
    t_carry = [instantiate(t) for t in bodies.pick(t_carry, carry_nz)]
    outs = while_p.bind(
        *of_cond,
        *of_body,
        *t_body,
        *carry,
        *t_carry,
        **_params(extended, jvp_body, n_cond, n_body + len(t_body)),
    )
    tangents_out = iter(outs[len(carry) :])
    return outs[: len(carry)], [
        next(tangents_out) if nz else Zero(a.to_tangent_aval())
        for nz, a in zip(carry_nz, body.out_avals)
    ]


def _jvp_body(body: Jaxpr, nonzero: tuple, n_body: int) -> tuple:
    """Return the body on values and tangents, and which carries have tangents."""
    n, const_nz, carry_nz = len(body.invars), nonzero[:n_body], nonzero[n_body:]
    while True:
        jvp_body, out_nz = jvp_jaxpr(body, const_nz + carry_nz, carry_nz)
        wider = tuple(a or b for a, b in zip(carry_nz, out_nz))
        if wider == carry_nz:
            break
        carry_nz = wider
    t_consts, t_carry = bodies.split_list(jvp_body.invars[n:], sum(const_nz))
    return jvp_body.replace(
        invars=[*jvp_body.invars[:n_body], *t_consts, *jvp_body.invars[n_body:n], *t_carry]
    ), carry_nz


def _ignore_tangents(cond: Jaxpr, avals: Sequence) -> Jaxpr:
    """Return the condition of a loop that also carries tangents of these values."""
    return cond.replace(invars=[*cond.invars, *(Var(a.to_tangent_aval()) for a in avals)])


# --- batch ------------------------------------------------------------------------------------------------------------


@while_p.def_batch
def _batch(axis, args, dims, **params):
    cond, body, n_cond, n_body = _unpack(params)
    batched = tuple(d is not None for d in dims)
    mapped, carry_batched = body.memo(
        ("while batch", axis, cond, batched, n_cond, n_body),
        lambda: _batch_programs(axis, cond, body, batched, n_cond, n_body),
    )
    args = [x if d is None else move_dim(x, d, 0) for x, d in zip(args, dims)]
    of_cond, of_body, carry = bodies.split_list(args, n_cond, n_body)
    carry_dims = dims[n_cond + n_body :]
    if mapped is None:
        of_consts, of_carry = bodies.split_list(
            [0 if b else None for b in batched], n_cond + n_body
        )
        (going,), (dim,) = batch_flat(
            lambda *xs: evaluate(cond, *xs),
            axis,
            [*of_cond, *carry],
            [*of_consts[:n_cond], *of_carry],
        )
        outs, dims = _batch(
            axis,
            [*of_cond, *of_body, going, *carry],
            [*of_consts, dim, *of_carry],
            **_carry_condition(cond, body, n_cond, n_body),
        )
        return outs[1:], dims[1:]
    carry = [
        add_batch_dim(x, axis.size, 0) if b and d is None else x
        for x, b, d in zip(carry, carry_batched, carry_dims)
    ]
    of_body = [*of_cond, *of_body] if mapped["body_nconsts"] > n_body else of_body
    outs = while_p.bind(*of_cond, *of_body, *carry, **mapped)
    return outs, [0 if b else None for b in carry_batched]


def _batch_programs(
    axis, cond: Jaxpr, body: Jaxpr, batched: tuple, n_cond: int, n_body: int
) -> tuple[dict | None, tuple]:
    """Return the parameters of the mapped loop, and which carries are batched.

    If the condition is batched, the loop runs while any example continues, and finished examples
    keep their values. A carry that no step changes stays unbatched. If such a condition has
    effects, the parameters are None: see `_carry_condition`.
    """
    changed = [
        not index
        for index in bodies.unchanged_carries(body, n_body, len(batched) - n_cond - n_body)
    ]
    cond_b, body_b, carry_b = (tuple(part) for part in bodies.split_list(batched, n_cond, n_body))
    while True:
        flag, (flag_b,) = batch_jaxpr(cond, axis, cond_b + carry_b)
        step, out_b = batch_jaxpr(body, axis, body_b + carry_b, carry_b)
        wider = tuple(a or b or (flag_b and c) for a, b, c in zip(carry_b, out_b, changed))
        if wider == carry_b:
            break
        carry_b = wider
    if not flag_b:
        return _params(flag, step, n_cond, n_body), carry_b
    programs = without_shared_draws(cond), without_shared_draws(body)
    if programs[0] is not cond or programs[1] is not body:
        return _batch_programs(axis, *programs, batched, n_cond, n_body)
    if cond.effects - {"debug"}:
        # prints may be repeated: the whole batch prints at both evaluations of the flags
        return None, carry_b
    if body.effects:
        step, _ = batch_jaxpr(add_guard_input(body), axis, (True, *body_b, *carry_b), carry_b)
    return _params(
        *_mask_finished_examples(flag, step, n_cond, n_body, carry_b), n_cond, n_cond + n_body
    ), carry_b


def without_shared_draws(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program without the rules that draw from the first key of a batch of keys.

    The key of a finished example would not change, and the other examples would draw the same numbers in every step.
    """

    def make():
        eqns = []
        for eqn in jaxpr.eqns:
            params = map_jaxprs(eqn.params, without_shared_draws)
            if getattr(params.get("rule"), "draws_together", False):
                eqns.append(
                    Eqn(
                        jit_p,
                        eqn.invars,
                        eqn.outvars,
                        plain_params(params["jaxpr"], params["name"]),
                        eqn.source,
                    )
                )
            else:
                eqns.append(eqn if params is eqn.params else eqn.replace(params=params))
        return (
            jaxpr.replace(eqns=eqns) if any(a is not b for a, b in zip(eqns, jaxpr.eqns)) else jaxpr
        )

    return jaxpr.memo("drawing apart", make)


def _carry_condition(cond: Jaxpr, body: Jaxpr, n_cond: int, n_body: int) -> dict:
    """Return the parameters of the same loop with its flag as the first carry.

    Each step evaluates the condition at its end, so that the effects of both programs happen under the guard of the step.
    """

    def make():
        def step(*args):
            of_cond, of_body, (_, *carry) = bodies.split_list(args, n_cond, n_body)
            carry = evaluate(body, *of_body, *carry)
            return [*evaluate(cond, *of_cond, *carry), *carry]

        flag = cond.out_avals[0]
        return _params(
            stage(lambda going, *_: [going], [flag, *cond.in_avals[n_cond:]], cond.name),
            stage(
                step,
                [*cond.in_avals[:n_cond], *body.in_avals[:n_body], flag, *cond.in_avals[n_cond:]],
                body.name,
            ),
            0,
            n_cond + n_body,
        )

    return body.memo(("flagged", cond, n_cond, n_body), make)


def _mask_finished_examples(
    flag: Jaxpr, step: Jaxpr, n_cond: int, n_body: int, batched: tuple
) -> tuple[Jaxpr, Jaxpr]:
    """Return condition and body of a loop over a batch where each example stops by itself.

    A step with effects is guarded.
    """

    carry_avals = flag.in_avals[n_cond:]

    def go_on(*args):
        return [reduce_or(evaluate(flag, *args)[0], (0,))]

    def masked(*args):
        of_cond, of_body, carry = bodies.split_list(args, n_cond, n_body)
        (active,) = evaluate(flag, *of_cond, *carry)
        guard = [active] if step.effects else []
        new_carry = evaluate(step, *guard, *of_body, *carry)
        return [
            select_n(broadcast_in_dim(active, typeof(old).shape, (0,)), old, new) if b else old
            for old, new, b in zip(carry, new_carry, batched)
        ]

    first = int(bool(step.effects))
    consts = [*flag.in_avals[:n_cond], *step.in_avals[first : first + n_body]]
    return stage(go_on, flag.in_avals, flag.name), stage(masked, [*consts, *carry_avals], step.name)


# --- partial evaluation, transpose, dce -------------------------------------------------------------------------------


def _split(args, unknown, params, known, staged):
    cond, body, n_cond, n_body = _unpack(params)
    cond_u, body_u, carry_u = bodies.split_list(unknown, n_cond, n_body)
    carry_u = body.memo(
        ("while partial", cond, tuple(unknown), n_cond, n_body),
        lambda: _unknown_carries(cond, body, cond_u, body_u, carry_u),
    )
    known_carries = [not u for u in carry_u]
    known_params, keep = body.memo(
        ("while known", cond, tuple(known_carries), n_cond, n_body),
        lambda: _without(params, known_carries),
    )
    if all(carry_u) or any(k and u for k, u in zip(keep, (*cond_u, *body_u, *carry_u))):
        outs = staged(while_p, args, params)
        return outs, [True] * len(outs)
    # the loop runs once for the known values, and again, whole, for the others
    early = known(while_p, bodies.pick(args, keep), known_params)
    recomputed = (
        {**params, "cond_jaxpr": _without_effects(cond), "body_jaxpr": _without_effects(body)}
        if any(carry_u)
        else params
    )
    late = staged(while_p, args, recomputed) if any(carry_u) else [None] * len(carry_u)
    early = iter(early)
    return [y if u else next(early) for y, u in zip(late, carry_u)], list(carry_u)


def _without_effects(jaxpr: Jaxpr) -> Jaxpr:
    """Return `jaxpr` for a second run, without the read-only effects that the first run had."""
    return jaxpr.replace(eqns=[e for e in jaxpr.eqns if e.outvars or not e.effects])


def _unknown_carries(
    cond: Jaxpr, body: Jaxpr, cond_u: list, body_u: list, carry_u: list
) -> list[bool]:
    """Return which carries depend on unknown values; all do if the condition does."""
    while True:
        if partial_eval_jaxpr(cond, (*cond_u, *carry_u)).out_unknown[0]:
            return [True] * len(carry_u)
        out = partial_eval_jaxpr(body, (*body_u, *carry_u), tuple(carry_u)).out_unknown
        wider = [a or b for a, b in zip(carry_u, out)]
        if wider == carry_u:
            return carry_u
        carry_u = wider


bodies.define_partial_eval(while_p, _split)


@while_p.def_transpose
def _transpose(cts, *args, **params):
    raise ValueError(
        describe(
            "grad",
            "Reverse-mode differentiation does not work for lax.while_loop, nor for lax.fori_loop with a traced number "
            "of steps.",
            (),
            trace_state.source or user_frame(),
            "A backward pass needs the values of every iteration, and how many there are is not known while tracing.",
            "Use weft.lax.scan, or fori_loop with Python integers as bounds; forward mode (weft.jvp, weft.jacfwd) works as it is.",
        )
    )


def _without(params: dict, used: Sequence[bool]) -> tuple[dict, list[bool]]:
    """Return the parameters of a loop that carries only values for its `used` results.

    Also return the mask of its operands.
    """
    cond, body, n_cond, n_body = _unpack(params)
    cond = dce_jaxpr(cond)
    in_cond = used_vars(cond)
    carry = [u or v in in_cond for u, v in zip(used, cond.invars[n_cond:])]
    while True:
        inner = dce_jaxpr(body, carry)
        needed = used_vars(inner)
        wider = [u or v in needed for u, v in zip(carry, inner.invars[n_body:])]
        if wider == carry:
            break
        carry = wider
    cond_keep = [v in in_cond for v in cond.invars[:n_cond]]
    body_keep = [v in needed for v in inner.invars[:n_body]]
    changed = _params(
        cond.replace(invars=bodies.pick(cond.invars, [*cond_keep, *carry])),
        inner.replace(invars=bodies.pick(inner.invars, [*body_keep, *carry])),
        sum(cond_keep),
        sum(body_keep),
    )
    return changed, [*cond_keep, *body_keep, *carry]


@while_p.def_dce
def _dce(eqn: Eqn, used: list[bool]) -> Eqn:
    """Return the equation without carries that neither its used results nor its condition need."""
    params, keep = _without(eqn.params, used)
    if all(keep) and params["body_jaxpr"].eqns == eqn.params["body_jaxpr"].eqns:
        return eqn
    carry = keep[eqn.params["cond_nconsts"] + eqn.params["body_nconsts"] :]
    return eqn.replace(
        params=params, invars=bodies.pick(eqn.invars, keep), outvars=bodies.pick(eqn.outvars, carry)
    )


def _links(eqn: Eqn) -> list:
    p = eqn.params
    cond, body, n_cond, n_body = (
        p["cond_jaxpr"],
        p["body_jaxpr"],
        p["cond_nconsts"],
        p["body_nconsts"],
    )
    groups = [
        [(a, 0), (v, 0)] for a, v in zip(eqn.invars, (*cond.invars[:n_cond], *body.invars[:n_body]))
    ]
    for i, outer in enumerate(eqn.invars[n_cond + n_body :]):
        inside = (cond.invars[n_cond + i], body.invars[n_body + i], body.outvars[i], eqn.outvars[i])
        groups.append([(outer, 0), *((v, 0) for v in inside)])
    return groups


_REGION = "its programs are partitioned and lowered by the passes themselves"
while_p.define(
    factors=declare_unsupported(_REGION),
    lower=declare_unsupported("control flow is lowered by its class"),
    links=_links,
)


def _guard(on, operands, params):
    cond, body, n_cond, n_body = _unpack(params)
    of_cond, body_operands = operands[:n_cond], operands[n_cond:]
    return while_p.bind(
        on,
        *of_cond,
        on,
        *body_operands,
        **_params(add_guard_input(cond), add_guard_input(body), n_cond + 1, n_body + 1),
    )


while_p.guard = _guard
while_p.ref_effects = lambda params: params["cond_jaxpr"].effects | params["body_jaxpr"].effects


# --- user function ----------------------------------------------------------------------------------------------------


def _while_with_refs(
    plain: Callable,
    first: ClosedOverRefsError | None,
    cond_fun: Callable,
    body_fun: Callable,
    init_val: Any,
) -> Any:
    """Apply `while_loop` with references in its functions: their values are carried."""

    def run(funs, values, args):
        def condition(state):
            going, after, _ = funs[0].call(state[1], (state[0],))
            if any(x is not y for x, y in zip(after, state[1])):
                raise NotImplementedError(
                    f"while_loop: {function_name(cond_fun)}, the condition, writes to a reference. Write in "
                    "the body."
                )
            return going

        def step(state):
            return funs[1].call(state[1], (state[0],))[:2]

        last, state = plain(condition, step, (args[0], values))
        return last, state, []

    return lift_refs(first, "while_loop", (init_val,), [cond_fun, body_fun], run)


@api_boundary
@thread_refs(_while_with_refs)
def while_loop(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
    """Repeat `val = body_fun(val)` while `cond_fun(val)` holds, and return the last value.

    Both functions are traced once. Raises TypeError if the carried value changes its structure,
    shapes or dtypes, or if the condition is not a boolean scalar. There is no reverse-mode
    derivative: use `scan`, or `fori_loop` with static bounds, if you need one.

    >>> int(lax.while_loop(lambda x: x < 100, lambda x: x * 2, 3))
    192
    """
    if not callable(cond_fun) or not callable(body_fun):
        raise TypeError(
            f"while_loop: cond_fun and body_fun must be callable, got {cond_fun!r} and {body_fun!r}."
        )
    if bodies.runs_in_python():
        init_val = bodies.freeze_numpy_arrays(init_val)
        while cond_fun(init_val):
            init_val = body_fun(init_val)
        return init_val
    return bind_while("while_loop", cond_fun, body_fun, init_val)


def bind_while(api: str, cond_fun: Callable, body_fun: Callable, init: Any) -> Any:
    """Stage both functions and bind `while_p`; `api` is the function that errors name."""
    flat, structure = flatten(init, api)
    in_tree = tree.treedef_tuple([structure])
    attempts_left = len(flat)
    while True:
        avals = [typeof(x) for x in flat]
        body = bodies.stage_body(body_fun, in_tree, avals, function_name(body_fun), api)
        promoted = (
            bodies.promote_weak(flat, avals, body.out_avals) if body.out_tree == structure else None
        )
        if promoted is None or not attempts_left:
            break
        flat, attempts_left = promoted, attempts_left - 1
    body = bodies.keep_axes(body, avals) if body.out_tree == structure else body
    bodies.check_carry(api, body_fun, structure, avals, body.out_tree, body.out_avals)
    cond = bodies.stage_body(cond_fun, in_tree, avals, function_name(cond_fun), api)
    _check_condition(api, cond_fun, cond)
    axes = cond.out_avals[0].vma
    if any(axes - a.vma for a in avals):  # the number of iterations varies, so all carries vary
        return bind_while(
            api, cond_fun, body_fun, tree.tree_unflatten(structure, [cast(x, axes) for x in flat])
        )
    if axes:
        check_no_collective(api, (cond.jaxpr, body.jaxpr), axes)
    outs = while_p.bind(
        *cond.consts,
        *body.consts,
        *flat,
        **_params(cond.jaxpr, body.jaxpr, len(cond.consts), len(body.consts)),
    )
    return tree.tree_unflatten(
        structure, bodies.restore_unchanged_carries(body.jaxpr, len(body.consts), flat, outs)
    )


def _check_condition(api: str, cond_fun: Callable, cond) -> None:
    avals = cond.out_avals
    if not cond.out_tree.is_leaf or avals[0].shape or avals[0].dtype != np.bool_:
        got = (
            f"output type {avals[0].str_short()}"
            if cond.out_tree.is_leaf
            else f"pytree {cond.out_tree}"
        )
        raise TypeError(
            describe(
                api,
                f"cond_fun must return a boolean scalar, but got {got}. It is {function_name(cond_fun)}.",
                (),
                user_frame(),
                "The condition decides for the whole carried value.",
                "Compare (x > 0) or reduce with .any() or .all().",
            )
        )
