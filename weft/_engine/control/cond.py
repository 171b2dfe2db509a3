"""`cond` and `switch`: run one of several programs, selected by an index.

The primitive takes `(index, *operands)`. The index is an int32 scalar, clamped to the number of
branches; each branch takes all operands and returns results of the same types. Outside a trace it
is one compiled program that runs only the selected branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.control.divergent_programs import cast_program_to_vary, check_no_collective
from weft._engine.control.effect_guards import add_guard_input
from weft._engine.control.hijax_types import flatten
from weft._engine.control.ref import Ref, call_on_values, lift_refs, thread_refs
from weft._engine.control.staged_body import (
    StagedBody,
    cast_results_to_vary,
    check_same_tree,
    deduplicate_program,
    define_partial_eval,
    describe_type_mismatch,
    layout_mismatch,
    leaf_names,
    pick,
    runs_in_python,
    stage_body,
)
from weft._engine.core.interpret import evaluate, lockstep_rule
from weft._engine.core.primitive import BranchLike, declare_unsupported
from weft._engine.core.stage import ClosedOverRefsError, stage
from weft._engine.core.trace import Tracer, Zero, is_undef, typeof
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.rewrite import dce as dce_jaxpr, inline_calls, is_transparent, used_vars
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.arithmetic import stop_gradient
from weft._engine.ops.casting import convert_element_type
from weft._engine.ops.comparison import clamp, eq, ne, select_n
from weft._engine.ops.families import zeros
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.transforms.batch import batch_jaxpr, move_dim
from weft._engine.transforms.jvp import jvp_jaxpr
from weft._engine.transforms.linearize import partial_eval_jaxpr
from weft._engine.transforms.transpose import transpose_with_refs
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import describe
from weft._engine.util.source import api_boundary, function_name, user_frame

#: params: branches (tuple of Jaxpr)
cond_p = BranchLike("cond", multiple_results=True)

Branches = tuple[Jaxpr, ...]


def _any(masks: Sequence[Sequence[bool]]) -> tuple[bool, ...]:
    return tuple(map(any, zip(*masks)))


def _memo(branches: Branches, key: tuple, make: Callable):
    """Return the result of a transformation of all branches, memoized on the first branch."""
    return branches[0].memo((*key, branches[1:]), make)


def zeros_of_type(aval: ShapedArray) -> Any:
    """Return a value of type `aval` that is never read: zeros, for keys too."""
    impl = getattr(aval.dtype, "impl", None)  # of key dtypes
    if impl is not None:
        from weft._engine.ops.keys import random_wrap

        return random_wrap(zeros(ShapedArray(aval.shape + impl.key_shape, "uint32")), impl)
    return zeros(aval)


# --- rules ------------------------------------------------------------------------------------------------------------


@cond_p.def_type
def _type(index, *avals, branches):
    if index.shape or index.dtype != np.int32:
        raise TypeError(f"cond: the index must be an int32 scalar, got {index.str_short()}.")
    first = branches[0].in_avals
    if len(first) != len(avals) or any(describe_type_mismatch(a, b) for a, b in zip(first, avals)):
        raise TypeError(
            f"cond: the branches take {[a.str_short() for a in first]}, got {[a.str_short() for a in avals]}."
        )
    outs = [_common_type(same) for same in zip(*[b.out_avals for b in branches])]
    return [a.update(vma=a.vma | index.vma) for a in outs] if index.vma else outs


def _common_type(avals) -> ShapedArray:
    """Return the type of a result from its types in all branches.

    It is the first one, with a sharding only if all branches agree.
    """
    shardings = {a.explicit for a in avals} - {None}
    return avals[0].update(sharding=shardings.pop() if len(shardings) == 1 else None)


cond_p.in_avals = lambda params: (None, *params["branches"][0].in_avals)


@lockstep_rule(cond_p)
def _lockstep(devices, operands, *, branches):
    index, *args = operands
    results = [[None] * len(devices) for _ in branches[0].outvars]
    for k, branch in enumerate(branches):
        chosen = [
            i for i, number in enumerate(index) if min(max(int(number), 0), len(branches) - 1) == k
        ]
        for y, new in zip(results, devices.run_on(chosen, branch, args) if chosen else ()):
            for i, value in zip(chosen, new):
                y[i] = value
    return results


@cond_p.def_jvp
def _jvp(primals, tangents, *, branches):
    nonzero = tuple(type(t) is not Zero for t in tangents[1:])

    def make():
        out_nonzero = _any([jvp_jaxpr(b, nonzero)[1] for b in branches])
        return tuple(jvp_jaxpr(b, nonzero, out_nonzero)[0] for b in branches), out_nonzero

    jvp_branches, out_nonzero = _memo(branches, ("cond jvp", nonzero), make)
    results = cond_p.bind(*primals, *pick(tangents[1:], nonzero), branches=jvp_branches)
    n = len(out_nonzero)
    tangents_out = iter(results[n:])
    return results[:n], [
        next(tangents_out) if nz else Zero(a.to_tangent_aval())
        for a, nz in zip(branches[0].out_avals, out_nonzero)
    ]


@cond_p.def_batch
def _batch(axis, args, dims, *, branches):
    batched = tuple(d is not None for d in dims[1:])
    operands = [x if d is None else move_dim(x, d, 0) for x, d in zip(args[1:], dims[1:])]
    if dims[0] is not None:
        return _batch_select(axis, args[0], operands, batched, branches)

    def make():
        out_batched = _any([batch_jaxpr(b, axis, batched)[1] for b in branches])
        return tuple(batch_jaxpr(b, axis, batched, out_batched)[0] for b in branches), out_batched

    mapped, out_batched = _memo(branches, ("cond batch", axis, batched), make)
    outs = cond_p.bind(args[0], *operands, branches=mapped)
    return outs, [0 if b else None for b in out_batched]


def _batch_select(axis, index, operands, batched, branches):
    """Run every branch on the whole batch and select the results of each example.

    Effects are guarded.
    """

    index = clamp(np.int32(0), index, np.int32(len(branches) - 1))
    cases = []
    for number, branch in enumerate(branches):
        chosen = eq(index, np.int32(number))
        used = {v for eqn in branch.eqns for v in eqn.invars}
        masked = [
            _mask_cotangent(chosen, x) if b and v in used else x
            for x, b, v in zip(operands, batched, branch.invars)
        ]
        if branch.effects:
            cases.append(
                evaluate(
                    batch_jaxpr(add_guard_input(branch), axis, (True, *batched), True)[0],
                    chosen,
                    *masked,
                )
            )
        else:
            cases.append(evaluate(batch_jaxpr(branch, axis, batched, True)[0], *masked))
    which = index if len(branches) != 2 else _is_nonzero(index)
    outs, dims = [], []
    for same, operand in zip(zip(*cases), _forwarded_operands(branches)):
        if operand is not None:
            outs.append(operands[operand])
            dims.append(0 if batched[operand] else None)
            continue
        shape = typeof(same[0]).shape
        outs.append(select_n(broadcast_in_dim(which, shape, (0,)), *same))
        dims.append(0)
    return outs, dims


def _mask_cotangent(chosen, x):
    """Return `x` with a zero cotangent for the examples that do not take the branch.

    Its derivative there may be inf or nan.
    """
    aval = typeof(x)
    if not isinstance(x, Tracer) or aval.to_tangent_aval().dtype == dtypes.float0:
        return x

    return select_n(broadcast_in_dim(chosen, aval.shape, (0,)), stop_gradient(x), x)


def _forwarded_operands(branches) -> list[int | None]:
    """Return, for each result, the number of the operand that every branch forwards, or None."""
    operands = [{v: i for i, v in enumerate(b.invars)} for b in branches]
    forwarded = []
    for outs in zip(*[b.outvars for b in branches]):
        sources = {known.get(v) if isinstance(v, Var) else None for known, v in zip(operands, outs)}
        forwarded.append(sources.pop() if len(sources) == 1 else None)
    return forwarded


def _is_nonzero(x):

    return ne(x, np.zeros((), typeof(x).dtype)[()])


def _split(args, unknown, params, known, staged, saveable=None):
    branches = params["branches"]
    if unknown[0]:
        outs = staged(cond_p, args, params)
        return outs, [True] * len(outs)
    plan = (
        _split_branches(
            tuple(inline_calls(b, is_transparent) for b in branches), tuple(unknown[1:]), saveable
        )
        if saveable
        else (
            _memo(
                branches,
                ("cond partial", tuple(unknown[1:])),
                lambda: _split_branches(branches, tuple(unknown[1:])),
            )
        )
    )
    known_ops = [x for x, u in zip(args[1:], unknown[1:]) if not u]
    n_known = sum(not u for u in plan.out_unknown)
    known_outs = []
    if n_known or plan.n_slots or any(b.effects for b in plan.known):
        known_outs = known(cond_p, [args[0], *known_ops], {"branches": plan.known})
    late = []
    if any(plan.out_unknown) or any(b.effects for b in plan.unknown):
        operands = [
            args[0],
            *known_outs[n_known:],
            *(known_ops[i] for i in plan.shared),
            *pick(args[1:], unknown[1:]),
        ]
        late = staged(cond_p, operands, {"branches": plan.unknown})
    early, late = iter(known_outs), iter(late)
    return [next(late) if u else next(early) for u in plan.out_unknown], list(plan.out_unknown)


define_partial_eval(cond_p, _split, sees_policy=True)


class _BranchSplit:
    """Branches split for partial evaluation.

    Residuals that branches compute use `n_slots` slots, which equal types of different branches share; residuals that are known operands
    (numbers in `deduplicate_program`) are passed on directly.
    """

    __slots__ = ("known", "unknown", "out_unknown", "n_slots", "shared")


def _split_branches(
    branches: Branches, unknown: tuple[bool, ...], saveable: Callable[[Eqn], bool] | None = None
) -> _BranchSplit:
    plan = _BranchSplit()
    plan.out_unknown = _any([partial_eval_jaxpr(b, unknown).out_unknown for b in branches])
    parts = [partial_eval_jaxpr(b, unknown, plan.out_unknown, saveable) for b in branches]
    plan.shared = sorted({i for p in parts for i in p.forwarded if i is not None})
    n_known = sum(not u for u in plan.out_unknown)
    slots: list[ShapedArray] = []
    slots_of = [_find_slots([a.aval for a in p.known.outvars[n_known:]], slots) for p in parts]
    known_avals = [a for a, u in zip(branches[0].in_avals, unknown) if not u]
    plan.n_slots = len(slots)
    plan.known = tuple(
        _fill_slots(p.known, n_known, own_slots, slots) for p, own_slots in zip(parts, slots_of)
    )
    plan.unknown = tuple(
        _read_slots(p, own_slots, slots, plan.shared, known_avals)
        for p, own_slots in zip(parts, slots_of)
    )
    return plan


def _find_slots(avals: Sequence[ShapedArray], slots: list[ShapedArray]) -> list[int]:
    """Return a slot for each value of one branch, and append new slots to `slots`."""
    free, positions = list(range(len(slots))), []
    for aval in avals:
        slot = next((s for s in free if not describe_type_mismatch(slots[s], aval)), None)
        if slot is None:
            slot = len(slots)
            slots.append(aval)
        else:
            free.remove(slot)
        positions.append(slot)
    return positions


def _fill_slots(
    known: Jaxpr, n_known: int, own_slots: list[int], slots: list[ShapedArray]
) -> Jaxpr:
    def run(*xs):
        outs = evaluate(known, *xs)
        values = dict(zip(own_slots, outs[n_known:]))
        return [
            *outs[:n_known],
            *(values[s] if s in values else zeros_of_type(aval) for s, aval in enumerate(slots)),
        ]

    return stage(run, known.in_avals, known.name)


def _read_slots(part, own_slots, slots, shared_ops, known_avals) -> Jaxpr:
    slot_vars = [Var(a) for a in slots]
    shared_vars = {i: Var(known_avals[i]) for i in shared_ops}
    numbers = iter(own_slots)
    n_residuals = len(part.forwarded)
    for var, i in zip(part.unknown.invars, part.forwarded):
        if i is None:
            slot_vars[next(numbers)] = var
        else:
            shared_vars[i] = var
    return part.unknown.replace(
        invars=[*slot_vars, *shared_vars.values(), *part.unknown.invars[n_residuals:]]
    )


@cond_p.def_transpose
def _transpose(cts, index, *args, branches):
    linear = tuple(map(is_undef, args))
    ct_nonzero = tuple(type(ct) is not Zero for ct in cts)

    def make():
        parts = [transpose_with_refs(b, linear, ct_nonzero) for b in branches]
        is_nonzero = _any([flags for _, flags, _ in parts])
        avals = [v.aval.to_tangent_aval() for v in pick(branches[0].invars, linear)]
        refs = list({id(r): r for *_, refs in parts for r in refs}.values())
        return (
            tuple(
                _add_zero_results(part, flags, is_nonzero, avals, mine, refs)
                for part, flags, mine in parts
            ),
            is_nonzero,
            refs,
        )

    backward, nonzero, refs = _memo(branches, ("cond transpose", linear, ct_nonzero), make)
    outs = iter(())
    if any(nonzero) or refs:
        fixed = [x for x in args if not is_undef(x)]
        outs = iter(
            call_on_values(
                refs,
                lambda *xs: cond_p.bind(index, *xs, branches=backward),
                [*fixed, *pick(cts, ct_nonzero)],
            )
        )
    flags = iter(nonzero)
    return [None, *((next(outs) if next(flags) else None) if lin else None for lin in linear)]


def _add_zero_results(
    jaxpr: Jaxpr,
    have: Sequence[bool],
    needed: Sequence[bool],
    avals: Sequence[ShapedArray],
    mine: Sequence[Ref],
    refs: Sequence[Ref],
) -> Jaxpr:
    """Return `jaxpr` with zeros for the needed results that it lacks.

    `have` masks the results that it has. The new program takes and returns the values of all
    `refs`; those not in `mine` pass through unchanged.
    """
    if tuple(have) == tuple(needed) and [*map(id, mine)] == [*map(id, refs)]:
        return jaxpr

    def run(*xs):
        states = {id(r): x for r, x in zip(refs, xs)}
        outs = evaluate(jaxpr, *[states[id(r)] for r in mine], *xs[len(refs) :])
        n = len(outs) - len(mine)
        states.update(zip(map(id, mine), outs[n:]))
        outs_iter = iter(outs[:n])
        values = [next(outs_iter) if h else None for h in have]
        return [
            *[zeros(a) if v is None else v for v, w, a in zip(values, needed, avals) if w],
            *states.values(),
        ]

    return stage(
        run, [*(r.type.inner_aval for r in refs), *jaxpr.in_avals[len(mine) :]], jaxpr.name
    )


@cond_p.def_dce
def _dce(eqn: Eqn, used: list[bool]) -> Eqn:
    """Return the equation without unused results and without operands that no branch needs."""
    branches = tuple(dce_jaxpr(b, used) for b in eqn.params["branches"])
    keep = _any(
        [[v in needed for v in b.invars] for b, needed in ((b, used_vars(b)) for b in branches)]
    )
    if all(used) and all(keep) and all(a is b for a, b in zip(branches, eqn.params["branches"])):
        return eqn
    branches = tuple(b.replace(invars=pick(b.invars, keep)) for b in branches)
    return eqn.replace(
        invars=[eqn.invars[0], *pick(eqn.invars[1:], keep)],
        outvars=pick(eqn.outvars, used),
        params={"branches": branches},
    )


def _links(eqn: Eqn) -> list:
    branches = eqn.params["branches"]
    groups = [
        [(atom, 0), *((b.invars[i], 0) for b in branches)] for i, atom in enumerate(eqn.invars[1:])
    ]
    return groups + [
        [(v, 0), *((b.outvars[i], 0) for b in branches)] for i, v in enumerate(eqn.outvars)
    ]


_REGION = "its branches are partitioned and lowered, one by one, by the passes themselves"
cond_p.define(
    factors=declare_unsupported(_REGION),
    lower=declare_unsupported("control flow is lowered by its class"),
    links=_links,
)
cond_p.guard = lambda on, operands, params: cond_p.bind(
    operands[0], on, *operands[1:], branches=tuple(add_guard_input(b) for b in params["branches"])
)
cond_p.ref_effects = lambda params: frozenset().union(*(b.effects for b in params["branches"]))


# --- user functions ---------------------------------------------------------------------------------------------------

_absent = object()


def _cond_with_refs(
    plain: Callable,
    first: ClosedOverRefsError | None,
    pred: Any,
    true_fun: Callable,
    false_fun: Callable,
    *operands: Any,
    operand: Any = _absent,
    linear: Any = None,
) -> Any:
    """Apply `cond` with references in its functions or operands.

    Every branch also returns their values.
    """
    if operand is not _absent:
        operands = (operand,)
    if (
        len(operands) == 2
        and callable(false_fun)
        and callable(operands[1])
        and not callable(true_fun)
    ):
        return _cond_of_pairs(pred, true_fun, false_fun, *operands)
    return lift_refs(
        first,
        "cond",
        operands,
        [true_fun, false_fun],
        lambda funs, values, args: plain(pred, *[f.call for f in funs], values, args),
    )


@api_boundary
@thread_refs(_cond_with_refs)
def cond(
    pred: Any,
    true_fun: Callable,
    false_fun: Callable,
    *operands: Any,
    operand: Any = _absent,
    linear: Any = None,
) -> Any:
    """Return `true_fun(*operands)` if `pred` holds, else `false_fun(*operands)`.

    Only the selected function runs.

    Both functions are traced and must return equal structures, shapes and dtypes; otherwise
    TypeError is raised. `pred` is a scalar boolean or number. The form `cond(pred, true_operand,
    true_fun, false_operand, false_fun)` is accepted too.

    >>> [int(lax.cond(x > 2, lambda x: x * 10, lambda x: -x, x)) for x in (1, 3)]
    [-1, 30]
    """
    if operand is not _absent:
        if operands:
            raise TypeError(
                "cond: give operands by position or by the keyword `operand`, not both."
            )
        operands = (operand,)
    if (
        len(operands) == 2
        and callable(false_fun)
        and callable(operands[1])
        and not callable(true_fun)
    ):
        return _cond_of_pairs(pred, true_fun, false_fun, *operands)
    if not callable(true_fun) or not callable(false_fun):
        raise TypeError(
            f"cond: true_fun and false_fun must be callable, got {true_fun!r} and {false_fun!r}."
        )
    index = _predicate(pred)
    if runs_in_python():
        return (true_fun if index else false_fun)(*operands)
    return _choose(
        "cond", _as_int32(index), (false_fun, true_fun), ("false_fun", "true_fun"), operands
    )


def _cond_of_pairs(pred, true_operand, true_fun, false_operand, false_fun):
    def on_true(pair):
        return true_fun(pair[0])

    def on_false(pair):
        return false_fun(pair[1])

    return cond(pred, on_true, on_false, (true_operand, false_operand))


def _predicate(pred):
    """Return `pred` as a boolean scalar."""
    try:
        aval = typeof(pred)
    except TypeError:
        if pred is None:
            raise TypeError(
                "cond: the cond predicate is None, not a boolean or a number."
            ) from None
        if callable(pred):
            raise TypeError(
                f"cond: Pred type must be either boolean or number, got {pred!r}."
            ) from None
        raise TypeError(
            f"cond: Pred must be a scalar, got {pred!r} of type {type(pred)}: not a boolean or a number."
        ) from None
    if aval.shape:
        raise TypeError(
            describe(
                "cond",
                f"the predicate must be a scalar, got {aval.str_short()}.",
                (),
                user_frame(),
                "One branch runs for the whole call.",
                "Reduce it with .any() or .all(), choose elementwise with weft.numpy.where, or map with vmap.",
            )
        )
    if dtypes.is_extended(aval.dtype):
        raise TypeError(
            f"cond: the predicate must be a boolean or a number, got {aval.str_short()}."
        )
    if not isinstance(pred, Tracer) and isinstance(pred, (bool, int, float, complex, np.generic)):
        return bool(pred)
    return pred if aval.dtype == np.bool_ else _is_nonzero(pred)


def _as_int32(x):
    """Return a scalar index as int32."""
    if isinstance(x, (bool, int, np.generic)):
        return np.int32(x)

    return convert_element_type(x, np.int32)


def _switch_with_refs(
    plain: Callable,
    first: ClosedOverRefsError | None,
    index: Any,
    branches: Sequence[Callable],
    *operands: Any,
    operand: Any = _absent,
) -> Any:
    """Apply `switch` with references in its functions or operands.

    Every branch also returns their values.
    """
    if operand is not _absent:
        operands = (operand,)
    return lift_refs(
        first,
        "switch",
        operands,
        branches,
        lambda funs, values, args: plain(index, [f.call for f in funs], values, args),
    )


@api_boundary
@thread_refs(_switch_with_refs)
def switch(index: Any, branches: Sequence[Callable], *operands: Any, operand: Any = _absent) -> Any:
    """Return `branches[index](*operands)` with `index` clamped to the valid range.

    Only the selected branch runs.

    `index` is a scalar integer. The branches must return equal structures, shapes and dtypes.
    Raises TypeError if they do not or if the index is not an integer, and ValueError without
    branches.

    >>> [int(lax.switch(i, [lambda x: x, lambda x: x * x], 7)) for i in (-1, 0, 1, 5)]
    [7, 7, 49, 49]
    """
    if operand is not _absent:
        if operands:
            raise TypeError(
                "switch: give operands by position or by the keyword `operand`, not both."
            )
        operands = (operand,)
    branches = tuple(branches)
    for i, branch in enumerate(branches):
        if not callable(branch):
            raise TypeError(f"switch: branches must be callable, branch {i} is {branch!r}.")
    try:
        aval = typeof(index)
    except TypeError:
        raise TypeError(f"switch: Index type must be an integer, got {index!s}.") from None
    if aval.shape:
        raise TypeError(f"switch: Branch index must be scalar, got {aval.str_short()}.")
    if dtypes.is_extended(aval.dtype) or aval.dtype.kind not in "iu":
        raise TypeError(
            f"switch: Index type must be an integer, got {aval.str_short()}. Use cond for a boolean."
        )
    if not branches:
        raise ValueError("switch: Empty branch sequence, so that there is nothing to choose from.")
    if len(branches) == 1:
        return branches[0](*operands)
    if runs_in_python():
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)
    return _choose(
        "switch",
        _clamp_index(index, len(branches)),
        branches,
        [f"branch {i}" for i in range(len(branches))],
        operands,
    )


def _clamp_index(index, n: int):
    """Return the index as int32 between 0 and n - 1.

    It is clamped first, since a wider integer may not fit.
    """
    if isinstance(index, (int, np.integer)):
        return np.int32(min(max(int(index), 0), n - 1))
    dtype = typeof(index).dtype
    if dtype.itemsize > 4 or dtype == np.uint32:
        index = clamp(np.zeros((), dtype)[()], index, np.asarray(n - 1, dtype)[()])
    return _as_int32(index)


def _choose(
    api: str, index: Any, functions: Sequence[Callable], titles: Sequence[str], operands: Sequence
) -> Any:
    """Stage every function and bind `cond_p`."""
    flat, in_tree = flatten(tuple(operands), api)
    avals = [typeof(x) for x in flat]
    bodies = [stage_body(f, in_tree, avals, function_name(f), api) for f in functions]
    _check_branches(api, functions, titles, bodies)
    branches, consts = common_consts(bodies)
    axes = typeof(index).vma
    if axes:
        check_no_collective(api, branches, axes)
        branches = tuple(
            cast_results_to_vary(cast_program_to_vary(b, axes), [a.vma | axes for a in b.out_avals])
            for b in branches
        )
    outs = cond_p.bind(index, *consts, *flat, branches=branches)
    return tree.tree_unflatten(bodies[0].out_tree, outs)


def common_consts(bodies: Sequence[StagedBody]) -> tuple[Branches, list]:
    """Return programs that take the constants of all `bodies`, then the arguments.

    Also return the constants without duplicates.
    """
    numbers: dict[int, int] = {}
    consts: list = []
    for body in bodies:
        for c in body.consts:
            if id(c) not in numbers:
                numbers[id(c)] = len(consts)
                consts.append(c)
    if not consts:
        return tuple(b.jaxpr for b in bodies), consts
    avals = [typeof(c) for c in consts]

    def widened(body: StagedBody) -> Jaxpr:
        n = len(body.consts)
        leading = [Var(a) for a in avals]
        for var, c in zip(body.jaxpr.invars, body.consts):
            leading[numbers[id(c)]] = var
        return deduplicate_program(body.jaxpr.replace(invars=[*leading, *body.jaxpr.invars[n:]]))

    places = tuple(tuple(numbers[id(c)] for c in b.consts) for b in bodies)
    return tuple(
        b.jaxpr.memo(("widened", place, tuple(avals)), lambda b=b: widened(b))
        for b, place in zip(bodies, places)
    ), consts


def _check_branches(api: str, functions, titles, bodies: Sequence[StagedBody]) -> None:
    """Raise TypeError unless all branches return the same structure and types.

    Weak types may differ.
    """
    first = bodies[-1] if api == "cond" else bodies[0]
    title = titles[-1] if api == "cond" else titles[0]
    for name, fun, body in zip(titles, functions, bodies):
        fact = f"{api} branch outputs must have the same pytree structure; those of {title} and {name} ({function_name(fun)}) differ."
        check_same_tree(
            "",
            fact,
            (title, first.out_tree),
            (name, body.out_tree),
            "All branches return results of one structure.",
        )
        rows, fix = [], ""
        for path, a, b in zip(
            leaf_names("result", first.out_tree), first.out_avals, body.out_avals
        ):
            why = describe_type_mismatch(a, b) or layout_mismatch(a, b)
            if why:
                rows.append(
                    (
                        path,
                        f"{title} returns {a.str_short()}",
                        f"{name} returns {b.str_short()}",
                        why,
                    )
                )
                fix = fix or (
                    f"Cast one: {path}.astype({a.dtype.name!r}) in {name}."
                    if why.startswith("dtype")
                    else f"Reshard one: weft.sharding.reshard({path}, {a.sharding.spec!r}) in {name}."
                    if why.startswith("layout")
                    else "This might be fixed by "
                    + " and ".join(
                        f"applying `weft.lax.pcast(..., {tuple(sorted(missing, key=str))}, to='varying')` to the output of {which}"
                        for which, missing in ((title, b.vma - a.vma), (name, a.vma - b.vma))
                        if missing
                    )
                    + f", so that {path} varies over the same axes."
                    if why.startswith("the varying")
                    else f"Make {path} one shape, {list(a.shape)} or {list(b.shape)}, in both."
                )
        if rows:
            raise TypeError(
                describe(
                    api,
                    f"{title} and {name} ({function_name(fun)}) return different types.",
                    rows,
                    user_frame(),
                    "All branches return the same types, whichever runs.",
                    fix,
                )
            )
