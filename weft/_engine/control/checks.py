"""Run-time checks of values, and the transformation that makes a program return failed checks as a
value (`experimental.checkify`).

In:   a program, and the categories of errors to detect: checks of the user, NaNs, divisions by
      zero, indices out of bounds.
Out:  a program that carries a *state* through all its equations, calls, branches, loops and
      devices, and returns it: the code of the first error (0: none) and the values for its message.
How:  every equation that can fail, a *site*, is numbered before the program runs; its code is its
      number. Values for
      messages are kept in *slots*, one per list of types. An error is recorded only while the code
      is 0.
Laws: the results are those of the program without checks. A site costs a comparison and a
      reduction; a program without sites is unchanged. Inside a `shard_map` each device has its own
      state; afterwards all take the first error.

`check_p` takes `(code, *values)`, each with one leading dim per enclosing vmap. Code k means that
`sites[k - 1]` failed; its values are in the slot of that site. The op can be evaluated,
differentiated and batched, but not compiled: `functionalize_checks` removes it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.control.call_rules import call_params
from weft._engine.control.cond import cond_p
from weft._engine.control.custom_rules import custom_jvp_call_p, custom_vjp_call_p
from weft._engine.control.custom_values import VjpRules
from weft._engine.control.scan import scan_p
from weft._engine.control.shard_map import manual_scope, shard_map_p
from weft._engine.control.while_loop import while_p
from weft._engine.core.annotations import cast
from weft._engine.core.interpret import evaluate, evaluate_with
from weft._engine.core.pass_rules import PassRules
from weft._engine.core.primitive import (
    BarrierOp,
    CallLike,
    CollectiveOp,
    ElementwiseOp,
    IndexOp,
    LibraryOp,
    ProductOp,
    ReduceOp,
    ScanOp,
    ScatterOp,
    declare_unsupported,
)
from weft._engine.core.stage import stage
from weft._engine.core.trace import (
    Zero,
    any_tracers,
    eval_trace,
    find_tracked_axes,
    trace_state,
    typeof,
)
from weft._engine.ir.jaxpr import Eqn, Jaxpr, subjaxprs
from weft._engine.ir.rewrite import map_jaxprs
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.arithmetic import div_p
from weft._engine.ops.bitwise import bitwise_and, bitwise_or
from weft._engine.ops.casting import convert_element_type
from weft._engine.ops.collective_rules import psum_p
from weft._engine.ops.collectives import axis_index, pmin, psum
from weft._engine.ops.comparison import eq, gt, lt, ne, select_n
from weft._engine.ops.dynamic_slicing import dynamic_slice
from weft._engine.ops.families import zeros
from weft._engine.ops.layout import broadcast_in_dim, reshape
from weft._engine.ops.reduce import argmax, reduce_or
from weft._engine.ops.slicing import concatenate
from weft._engine.transforms.batch import move_dim
from weft._engine.util import dtypes, tree
from weft._engine.util.record import record

# --- errors -----------------------------------------------------------------------------------------------------------


class JaxRuntimeError(ValueError):
    """A check failed, or an error that `checkify` looks for occurred."""


class JaxException(Exception):
    """A description of an error, as a value. The base class of all error categories."""


class FailedCheckError(JaxException):
    """The condition of a `check` was false."""


class NaNError(JaxException):
    """An operation gave a NaN."""


class DivisionByZeroError(JaxException):
    """The divisor of a division was zero."""


class OOBError(JaxException):
    """An index was outside its array."""


class BatchedError(JaxException):
    """Errors of several examples of a batch."""


@record
class CheckSite:
    """An equation that can fail: its category, the message and the user's line.

    If `structure` is set, the message is a format, and `structure` is the tree of its positional
    and keyword arguments, whose leaves are the values of slot `slot`.
    """

    category: type
    message: str
    slot: int
    structure: Any
    line: str

    def text(self, values: Sequence[Any]) -> str:
        """Return the message for these values."""
        if self.category is OOBError:
            index, axis, size = (int(x) for x in values[0])
            return (
                f"{self.message}: index {index} is out of bounds for axis {axis} with size {size}. "
            )
        if self.structure is None:
            return self.message
        args, kwargs = tree.tree_unflatten(
            self.structure, [np.asarray(x)[()] if isinstance(x, np.ndarray) else x for x in values]
        )
        return f"{self.message.format(*args, **kwargs)} (`check` failed)"


#: the types of the values in one slot: (shape, dtype) of each
Slot = tuple[tuple[tuple[int, ...], Any], ...]


def slot_of(values: Sequence[Any]) -> Slot:
    return tuple((typeof(x).shape, typeof(x).dtype) for x in values)


# --- the operation ----------------------------------------------------------------------------------------------------


class _Check(BarrierOp):
    """An operation that raises an error when it is evaluated and is recorded when it is traced."""

    def bind(self, *args: Any, **params: Any) -> Any:
        if trace_state.trace is eval_trace and not any_tracers(args):
            return _run(*args, **params)
        return super().bind(*args, **params)


#: params: sites (a tuple of Site), slots (the types of the values after the code, slot by slot),
#: debug
check_p = _Check("check", multiple_results=True)
check_p.ref_effects = lambda params: frozenset(["debug_check" if params["debug"] else "check"])


def _run(code, *values, sites, slots, debug):
    codes = np.asarray(code)
    if debug or not codes.any():
        return []
    where = tuple(np.argwhere(codes)[0])
    raise failure(sites, slots, int(codes[where]), [np.asarray(x)[where] for x in values])


def failure(
    sites: Sequence[CheckSite], slots: Sequence[Slot], code: int, values: Sequence[Any]
) -> JaxRuntimeError:
    """Return the exception for the error `code`."""
    site = sites[code - 1]
    error = JaxRuntimeError(site.text(values_of(site, slots, values)))
    if site.line:
        error.add_note(f"at {site.line}")
    return error


def values_of(site: CheckSite, slots: Sequence[Slot], values: Sequence[Any]) -> list:
    """Return the values in the slot of a site."""
    start = sum(len(slot) for slot in slots[: site.slot])
    return list(values[start : start + len(slots[site.slot])])


@check_p.def_type
def _type(*_avals, **_params):
    return ()


@check_p.def_batch
def _batch(axis, args, dims, **params):
    """Map with the new dim leading in the code and in each value.

    Each example then has its own.
    """
    args = [
        broadcast_in_dim(x, (axis.size, *typeof(x).shape), range(1, typeof(x).ndim + 1))
        if d is None
        else move_dim(x, d, 0)
        for x, d in zip(args, dims)
    ]
    check_p.bind(*args, **params)
    return [], []


def _guard(on, operands, params):
    code, *values = operands
    return check_p.bind(select_n(on, zeros(typeof(code)), code), *values, **params)


_NOT_COMPILED = "a check is taken out of a program by checkify before the program is compiled"
check_p.define(
    reference=lambda *args, **params: _run(*args, **params),
    jvp=lambda primals, tangents, **params: (check_p.bind(*primals, **params), []),
    transpose=declare_unsupported("a check has no results to have cotangents"),
    factors=declare_unsupported(_NOT_COMPILED),
    lower=declare_unsupported(_NOT_COMPILED),
    guard=_guard,
)


def without_checks(jaxpr: Jaxpr, effects: frozenset = frozenset(["check", "debug_check"])) -> Jaxpr:
    """Return `jaxpr` without the checks that have one of `effects`.

    "debug_check" marks checks that act only under `checkify`.
    """
    if not effects & jaxpr.effects:
        return jaxpr
    eqns = []
    for eqn in jaxpr.eqns:
        if effects & eqn.effects:
            if eqn.primitive is check_p:
                continue
            eqn = eqn.replace(
                params=map_jaxprs(eqn.params, lambda inner: without_checks(inner, effects)),
                effects=eqn.effects - effects,
            )
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns)


# --- sites ------------------------------------------------------------------------------------------------------------

_CAN_MAKE_NANS = (ElementwiseOp, ReduceOp, ProductOp, ScanOp, LibraryOp)
_MOVES = frozenset(["select", "cast", "bitcast", "copy"])


def _can_make_nans(eqn: Eqn) -> bool:
    primitive = eqn.primitive
    if not any(_inexact(v.aval) for v in eqn.outvars):
        return False
    if isinstance(primitive, ScatterOp):
        return primitive.lower.combine in ("add", "mul")
    if isinstance(primitive, CollectiveOp):
        return primitive is psum_p
    return (
        isinstance(primitive, _CAN_MAKE_NANS)
        and not primitive.passes_nans
        and primitive.computes not in _MOVES
    )


def _inexact(aval: ShapedArray) -> bool:
    return not dtypes.is_extended(aval.dtype) and dtypes.issubdtype(aval.dtype, np.inexact)


_OOB_SLOT: Slot = (((3,), np.dtype(np.int32)),)  # index, axis, size


class Sites:
    """The numbered sites of a program, and the programs with a state that were derived from it."""

    def __init__(self, jaxpr: Jaxpr, errors: frozenset):
        self.errors = errors
        self.sites: list[CheckSite] = []
        self.slots: list[Slot] = []
        # (id of an equation, category) -> code of its first site
        self._codes: dict[tuple[int, type], int] = {}
        self._seen: dict[int, bool] = {}  # id of a program -> True if it has sites
        self._made: dict[Any, Jaxpr] = {}
        self._keep = jaxpr  # keeps the ids valid
        self.visit(jaxpr)

    def visit(self, jaxpr: Jaxpr) -> bool:
        """Number the sites of a program and its nested programs. Return True if it has any."""
        cached = self._seen.get(id(jaxpr))
        if cached is None:
            marks = [self._visit_eqn(eqn) for eqn in jaxpr.eqns]  # no short-circuit
            self._seen[id(jaxpr)] = cached = any(marks)
        return cached

    def _visit_eqn(self, eqn: Eqn) -> bool:
        if eqn.primitive is check_p:
            return self._add_checks(eqn)
        inside = [self.visit(inner) for _, inner in subjaxprs(eqn.params)]
        has_sites = any(inside)
        if OOBError in self.errors and isinstance(eqn.primitive, IndexOp | ScatterOp):
            shape = eqn.invars[0].aval.shape
            has_sites = self._add(
                eqn, OOBError, f"out-of-bounds indexing for array of shape {shape}", _OOB_SLOT
            )
        if DivisionByZeroError in self.errors and eqn.primitive is div_p:
            has_sites = self._add(eqn, DivisionByZeroError, "division by zero", ())
        if NaNError in self.errors and _can_make_nans(eqn):
            has_sites = self._add(
                eqn, NaNError, f"nan generated by primitive: {eqn.primitive.name}.", ()
            )
        return has_sites

    def _add(self, eqn: Eqn, category: type, message: str, slot: Slot) -> bool:
        line = "" if eqn.source is None else str(eqn.source)
        self.sites.append(CheckSite(category, message, self._slot(slot), None, line))
        self._codes[id(eqn), category] = len(self.sites)
        return True

    def _add_checks(self, eqn: Eqn) -> bool:
        selected = [site.category in self.errors for site in eqn.params["sites"]]
        if not any(selected):
            return False
        self._codes[id(eqn), JaxException] = len(self.sites) + 1
        slots = [self._slot(slot) for slot in eqn.params["slots"]]
        for site in eqn.params["sites"]:
            self.sites.append(
                CheckSite(site.category, site.message, slots[site.slot], site.structure, site.line)
            )
        return True

    def _slot(self, slot: Slot) -> int:
        if slot not in self.slots:
            self.slots.append(slot)
        return self.slots.index(slot)

    def code(self, eqn: Eqn, category: type) -> int | None:
        return self._codes.get((id(eqn), category))

    def get_or_make(self, key: Any, make: Callable[[], Jaxpr]) -> Jaxpr:
        """Return the program cached under `key`, or make and cache it.

        `key` begins with the program that it is derived from.
        """
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    @property
    def avals(self) -> list[ShapedArray]:
        """Return the types of the state."""
        return [
            ShapedArray((), np.dtype(np.int32)),
            *[ShapedArray(shape, dtype) for slot in self.slots for shape, dtype in slot],
        ]

    def initial(self) -> list:
        """Return the state without an error; inside a shard_map, one per device."""
        axes = find_tracked_axes()
        state = [zeros(aval) for aval in self.avals]
        return [cast(x, axes) for x in state] if axes else state


def functionalize_checks(
    jaxpr: Jaxpr, errors: frozenset
) -> tuple[Sites, Callable[..., tuple[list, list]]]:
    """Return the sites of a program, and a function without check effects.

    The function maps its operands to the final state and the results.
    """
    sites = Sites(jaxpr, errors)

    def run(*args: Any) -> tuple[list, list]:
        return _evaluate(sites, jaxpr, sites.initial(), args)

    return sites, run


# --- equations --------------------------------------------------------------------------------------------------------


def _evaluate(sites: Sites, jaxpr: Jaxpr, state: list, args: Sequence) -> tuple[list, list]:
    """Evaluate a program under the current trace. Return the new state and the results."""
    current = list(state)

    def bind(eqn: Eqn, operands: list) -> Sequence:
        current[:], outs = _step(sites, eqn, current, operands)
        return outs

    outs = evaluate_with(bind, jaxpr, args)
    return current, outs


def _step(sites: Sites, eqn: Eqn, state: list, operands: list) -> tuple[list, Sequence]:
    """Return the state after an equation, and its results."""
    primitive, params = eqn.primitive, eqn.params
    if primitive is check_p:
        return _after_check(sites, eqn, state, operands), []
    if any(sites.visit(inner) for _, inner in subjaxprs(params)):
        rule = _RULES.find(primitive)
        if rule is not None:
            return rule(sites, eqn, state, operands)
    outs = _evaluate_without_checks(eqn, operands)
    code = sites.code(eqn, OOBError)
    if code is not None:
        state = _after_indexing(sites, eqn, code, state, operands)
    code = sites.code(eqn, DivisionByZeroError)
    if code is not None:
        divisor = operands[1]
        state = _record(sites, state, code, _any(eq(divisor, zeros(typeof(divisor)))))
    code = sites.code(eqn, NaNError)
    if code is not None:
        nans = [_any(ne(x, x)) for x in outs if _inexact(typeof(x))]
        state = _record(sites, state, code, functools.reduce(bitwise_or, nans))
    return state, outs


def _any(flags: Any) -> Any:
    n = typeof(flags).ndim
    return reduce_or(flags, tuple(range(n))) if n else flags


def _record(
    sites: Sites,
    state: list,
    code: Any,
    failed: Any,
    slot: int | None = None,
    values: Sequence = (),
) -> list:
    """Return the state after a site.

    If `failed` holds and there was no earlier error, it has this code and these values.
    """
    varying = typeof(state[0]).vma
    spread = lambda x: cast(x, varying) if varying else x
    new = spread(bitwise_and(failed, eq(state[0], np.int32(0))))
    choose = lambda old, value: select_n(new, old, spread(value))
    after = [choose(state[0], convert_element_type(code, np.int32))]
    start = -1 if slot is None else 1 + sum(len(s) for s in sites.slots[:slot])
    for i, old in enumerate(state[1:], 1):
        mine = 0 < start <= i < start + len(values)
        after.append(
            choose(old, convert_element_type(values[i - start], typeof(old).dtype)) if mine else old
        )
    return after


def _after_check(sites: Sites, eqn: Eqn, state: list, operands: list) -> list:
    first = sites.code(eqn, JaxException)
    if first is None:
        return state
    own, slots = eqn.params["sites"], eqn.params["slots"]
    code, *values = operands
    code, values = _first_of_batch(code, values, typeof(code).ndim)
    error_codes = np.array(
        [0, *[first + i if site.category in sites.errors else 0 for i, site in enumerate(own)]],
        np.int32,
    )
    if len(own) == 1:
        code = select_n(ne(code, np.int32(0)), np.int32(0), error_codes[1])
    else:
        code = reshape(dynamic_slice(error_codes, (code,), (1,)), ())
    failed = ne(code, np.int32(0))
    before, start = state, 0
    for slot in slots:
        mine = values[start : start + len(slot)]
        start += len(slot)
        after = _record(sites, before, code, failed, sites.slots.index(slot), mine)
        state = [new if new is not old else now for new, old, now in zip(after, before, state)]
    return state if slots else _record(sites, state, code, failed)


def _first_of_batch(code: Any, values: Sequence, n: int) -> tuple[Any, list]:
    """Return the code and values of the first example with an error.

    The `n` leading dims are batch dims.
    """
    if n == 0:
        return code, list(values)
    size = math.prod(typeof(code).shape)
    flat = reshape(code, (size,))
    where = argmax(convert_element_type(ne(flat, zeros(typeof(flat))), np.int32), 0, np.int32)

    def pick(x: Any) -> Any:
        item_shape = typeof(x).shape[n:]
        x = reshape(x, (size, *item_shape))
        return reshape(
            dynamic_slice(x, (where, *[np.int32(0)] * len(item_shape)), (1, *item_shape)),
            item_shape,
        )

    return pick(code), [pick(x) for x in values]


def _after_indexing(sites: Sites, eqn: Eqn, code: int, state: list, operands: list) -> list:
    indices, axes, limits, sizes = _indices(eqn, operands)
    n = math.prod(typeof(indices).shape)
    if n == 0:
        return state
    flat = reshape(indices, (n // len(axes), len(axes)))
    dtype = typeof(flat).dtype
    most = np.minimum(np.array(limits, np.int64), np.iinfo(dtype).max).astype(dtype)
    bad = gt(flat, broadcast_in_dim(most, typeof(flat).shape, (1,)))
    if dtype.kind == "i":
        bad = bitwise_or(bad, lt(flat, zeros(typeof(flat))))
    bad, flat = reshape(bad, (n,)), reshape(flat, (n,))
    where = argmax(convert_element_type(bad, np.int32), 0, np.int32)
    one = lambda x: convert_element_type(dynamic_slice(x, (where,), (1,)), np.int32)
    table = lambda numbers: one(np.tile(np.array(numbers, np.int32), n // len(axes)))
    values = concatenate([one(flat), table(axes), table(sizes)], 0)
    return _record(sites, state, code, _any(bad), sites.slots.index(_OOB_SLOT), [values])


def _indices(eqn: Eqn, operands: list) -> tuple[Any, list[int], list[int], list[int]]:
    """Return the indices of an operation, [..., axes], and the indexed dims.

    Also return the largest valid index and the size of each dim.
    """
    shape = typeof(operands[0]).shape
    name = eqn.primitive.name
    if name in ("dynamic_slice", "dynamic_update_slice"):
        starts = operands[1:] if name == "dynamic_slice" else operands[2:]
        window = eqn.params["slice_sizes"] if name == "dynamic_slice" else typeof(operands[1]).shape
        axes = list(range(len(shape)))
        kind = np.result_type(*[typeof(s).dtype for s in starts]) if starts else np.dtype(np.int32)
        indices = (
            concatenate([reshape(convert_element_type(s, kind), (1,)) for s in starts], 0)
            if starts
            else np.zeros((0,), np.int32)
        )
    elif name == "gather":
        numbers, window = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
        indices, axes = operands[1], list(numbers.start_index_map)
    else:
        numbers = eqn.params["dimension_numbers"]
        indices, axes = operands[1], list(numbers.scatter_dims_to_operand_dims)
        sizes = iter([typeof(operands[2]).shape[d] for d in numbers.update_window_dims])
        dropped_dims = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        window = [1 if d in dropped_dims else next(sizes) for d in range(len(shape))]
    return indices, axes, [shape[d] - window[d] for d in axes], [shape[d] for d in axes]


# --- operations that hold programs ------------------------------------------------------------------------------------


def _with_state(sites: Sites, jaxpr: Jaxpr, position: int = 0) -> Jaxpr:
    """Return a program that takes the state before input `position`.

    It returns the state before its results.
    """

    def make() -> Jaxpr:
        avals = [a.update(vma=a.vma | find_tracked_axes()) for a in sites.avals]
        n = len(avals)

        def run(*args: Any) -> list:
            state, outs = _evaluate(
                sites,
                jaxpr,
                list(args[position : position + n]),
                [*args[:position], *args[position + n :]],
            )
            return [*state, *outs]

        return stage(
            run, [*jaxpr.in_avals[:position], *avals, *jaxpr.in_avals[position:]], jaxpr.name
        )

    return sites.get_or_make((jaxpr, position, find_tracked_axes()), make)


def _split_state(sites: Sites, outs: Sequence) -> tuple[list, list]:
    n = len(sites.avals)
    return list(outs[:n]), list(outs[n:])


def _call(sites: Sites, eqn: Eqn, state: list, operands: list) -> tuple[list, list]:
    params = eqn.params
    program = _with_state(sites, params["jaxpr"])
    free = (None,) * len(state)
    shardings = [
        None if params.get(key) is None else (*free, *params[key])
        for key in ("in_shardings", "out_shardings")
    ]
    return _split_state(
        sites, eqn.primitive.bind(*state, *operands, **call_params(program, params, *shardings))
    )


def _custom_jvp(sites: Sites, eqn: Eqn, state: list, operands: list) -> tuple[list, list]:
    """Keep the derivative rule; a function that its rule replaces runs for its errors only."""
    params, n = eqn.params, len(state)
    rule = params["jvp"]
    program, after, consts, args = _custom(sites, params, n, operands)

    def jvp(primals: Sequence, tangents: Sequence) -> tuple[list, list]:
        outs, tangent_outs = _run_rule_without_checks(lambda: rule(primals[n:], tangents[n:]))
        state = after(primals)
        return [*state, *outs], [*[Zero(typeof(x).to_tangent_aval()) for x in state], *tangent_outs]

    outs = custom_jvp_call_p.bind(
        *consts, *state, *args, **{**params, "jaxpr": program, "jvp": jvp}
    )
    return _split_state(sites, outs)


def _custom_vjp(sites: Sites, eqn: Eqn, state: list, operands: list) -> tuple[list, list]:
    params, n = eqn.params, len(state)
    rules = params["rules"]
    program, after, consts, args = _custom(sites, params, n, operands)

    def fwd(args: Sequence, perturbed: Sequence) -> tuple[list, list]:
        outs, residuals = _run_rule_without_checks(lambda: rules.fwd(args[n:], perturbed[n:]))
        return [*after(args), *outs], residuals

    def bwd(residuals: Sequence, cts: Sequence) -> list:
        return [*[None] * n, *rules.bwd(residuals, cts[n:])]

    outs = custom_vjp_call_p.bind(
        *consts, *state, *args, **{**params, "jaxpr": program, "rules": VjpRules(fwd, bwd)}
    )
    return _split_state(sites, outs)


def _run_rule_without_checks(rule: Callable[[], tuple[Sequence, Sequence]]) -> tuple[list, list]:
    """Return the results of a rule without its checks."""
    zeros_of: list[list] = []  # for each half, its symbolic zeros; None for other values

    def flat() -> list:
        halves = rule()
        zeros_of[:] = [[x if type(x) is Zero else None for x in half] for half in halves]
        return [x for half in halves for x in half if type(x) is not Zero]

    values = iter(evaluate_with(_evaluate_without_checks, stage(flat, ()), ()))
    first, second = [[next(values) if zero is None else zero for zero in half] for half in zeros_of]
    return first, second


def _custom(sites: Sites, params: dict, n: int, operands: list) -> tuple:
    """Return the parts of a call of a function with a derivative rule.

    They are its program, which takes the state after the constants; a function from the state and other arguments to the new state; the
    constants; and the other arguments.
    """
    k = params["num_consts"]
    program = _with_state(sites, params["jaxpr"], k)
    consts, args = operands[:k], operands[k:]
    return program, lambda values: evaluate(program, *consts, *values)[:n], consts, args


def _cond(sites: Sites, eqn: Eqn, state: list, operands: list) -> tuple[list, list]:
    branches = tuple(_with_state(sites, branch) for branch in eqn.params["branches"])
    return _split_state(sites, cond_p.bind(operands[0], *state, *operands[1:], branches=branches))


def _scan(sites: Sites, eqn: Eqn, state: list, operands: list) -> tuple[list, list]:
    params, n, k = eqn.params, len(state), eqn.params["num_consts"]
    program = _with_state(sites, params["jaxpr"], k)
    linear = (*params["linear"][:k], *[False] * n, *params["linear"][k:])
    changed = {**params, "jaxpr": program, "num_carry": params["num_carry"] + n, "linear": linear}
    return _split_state(sites, scan_p.bind(*operands[:k], *state, *operands[k:], **changed))


def _while(sites: Sites, eqn: Eqn, state: list, operands: list) -> tuple[list, list]:
    """Check the condition before the loop and at the end of each step.

    The loop itself evaluates the plain condition.
    """
    params = eqn.params
    cond, body, n_cond, n_body = (
        params["cond_jaxpr"],
        params["body_jaxpr"],
        params["cond_nconsts"],
        params["body_nconsts"],
    )
    of_cond, of_body, carry = (
        operands[:n_cond],
        operands[n_cond : n_cond + n_body],
        operands[n_cond + n_body :],
    )
    n, checks_cond = len(state), sites.visit(cond)

    def ask(*args: Any) -> list:
        return evaluate_with(_evaluate_without_checks, cond, [*args[:n_cond], *args[n_cond + n :]])

    def step(*args: Any) -> list:
        for_cond, for_body, error_state, xs = (
            args[:n_cond],
            args[n_cond : n_cond + n_body],
            list(args[n_cond + n_body : n_cond + n_body + n]),
            args[n_cond + n_body + n :],
        )
        error_state, outs = _evaluate(sites, body, error_state, [*for_body, *xs])
        if checks_cond:
            error_state, _ = _evaluate(sites, cond, error_state, [*for_cond, *outs])
        return [*error_state, *outs]

    axes = find_tracked_axes()
    avals = [a.update(vma=a.vma | axes) for a in sites.avals]
    c_in, b_in = cond.in_avals, body.in_avals
    test = sites.get_or_make(
        (cond, "while", n_body, axes),
        lambda: stage(ask, [*c_in[:n_cond], *avals, *c_in[n_cond:]], cond.name),
    )
    run = sites.get_or_make(
        (body, cond, "while", axes),
        lambda: stage(step, [*c_in[:n_cond], *b_in[:n_body], *avals, *b_in[n_body:]], body.name),
    )
    if checks_cond:
        state, _ = _evaluate(sites, cond, state, [*of_cond, *carry])
    outs = while_p.bind(
        *of_cond,
        *of_cond,
        *of_body,
        *state,
        *carry,
        cond_jaxpr=test,
        body_jaxpr=run,
        cond_nconsts=n_cond,
        body_nconsts=n_cond + n_body,
    )
    return _split_state(sites, outs)


def _evaluate_without_checks(eqn: Eqn, operands: list) -> Sequence:
    """Return the results of an equation without its checks."""
    if eqn.primitive is check_p:
        return []
    params = map_jaxprs(eqn.params, without_checks) if eqn.effects else eqn.params
    outs = eqn.primitive.bind(*operands, **params)
    return outs if eqn.primitive.multiple_results else [outs]


def _shard_map(sites: Sites, eqn: Eqn, state: list, operands: list) -> tuple[list, list]:
    """Give every device its own state.

    Afterwards all devices take the state of the first one with an error.
    """
    params = eqn.params
    body, axes = params["jaxpr"], params["manual_axes"]

    def run(*args: Any) -> list:
        error_state, outs = _evaluate(sites, body, sites.initial(), args)
        here = axis_index(axes)
        none = np.int32(np.iinfo(np.int32).max)
        first = pmin(select_n(ne(error_state[0], np.int32(0)), none, here), axes)
        mine = eq(here, first)
        shared = [
            _broadcast_nonzero(select_n(mine, zeros(typeof(x)), x), axes) for x in error_state
        ]
        return [*shared, *outs]

    def make() -> Jaxpr:
        with manual_scope(params):
            return stage(run, body.in_avals, body.name)

    program = sites.get_or_make((body, "shard_map", tuple(axes)), make)
    outs = shard_map_p.bind(
        *operands,
        **{
            **params,
            "jaxpr": program,
            "out_specs": (*[PartitionSpec()] * len(state), *params["out_specs"]),
        },
    )
    inside, outs = _split_state(sites, outs)
    first = eq(state[0], np.int32(0))
    return [select_n(first, old, new) for old, new in zip(state, inside)], outs


def _broadcast_nonzero(x: Any, axes: Sequence) -> Any:
    """Return the value of the only device whose value is not zero."""
    if typeof(x).dtype == np.bool_:
        return ne(psum(convert_element_type(x, np.int32), axes), np.int32(0))
    return psum(x, axes)


_RULES = PassRules(
    "checks",
    {
        CallLike: _call,
        cond_p: _cond,
        scan_p: _scan,
        while_p: _while,
        shard_map_p: _shard_map,
        custom_jvp_call_p: _custom_jvp,
        custom_vjp_call_p: _custom_vjp,
    },
)
