"""Simplification: inlining, dead code and common subexpression elimination, algebra, loop-invariant code motion.

In, out: jaxprs with the same values, including rounding: only exact identities are used.
Every pass takes time linear in the size of the program.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np

from weft._engine.compiler.fusion.classify import (
    LoweringKind,
    computes,
    loop_of,
    lowering_kind,
    merge_adjacent_dims,
    moves,
)
from weft._engine.compiler.rewrite.batch_sums import merge_batch_sums
from weft._engine.core.primitive import (
    CollectiveOp,
    ContractOp,
    ElementwiseOp,
    LoopLike,
    Primitive,
    ReduceOp,
    RegionOp,
    has_rule,
    registry,
)
from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ir.rewrite import cse, dce, inline_calls, map_jaxprs, use_counts
from weft._engine.ir.types import ShapedArray
from weft._engine.util.dtypes import (
    bool_dtype,
    is_complex,
    is_half,
    is_native_float,
    is_native_integer,
)

# thresholds, measured on several machines
#: minimal number of adjacent elements in the longest part of a contracted dim that a matmul reads in parts
_GEMM_SPLIT_COLUMNS = 512

_T = TypeVar("_T")

MOST_JOINED = 16  # maximal number of padded values whose sum becomes a concatenation


def simplify(jaxpr: Jaxpr) -> Jaxpr:
    """Return the simplified program.

    >>> from weft._engine.core.stage import stage
    >>> from weft._engine.ops.elementwise import add, mul, neg
    >>> jaxpr = stage(lambda x: [neg(neg(mul(x, 1.0))), add(x, x)][:1], [ShapedArray((3,), np.dtype("float32"))])
    >>> len(simplify(jaxpr).eqns)
    0
    """
    jaxpr = dce(inline_calls(jaxpr))
    jaxpr = _Simplifier(jaxpr).run()
    return merge_batch_sums(dce(cse(jaxpr)))


class _Simplifier:
    """A walk over the equations of a program that rewrites each by the producers of its operands."""

    def __init__(self, jaxpr: Jaxpr):
        self.jaxpr = jaxpr
        self.env: dict[Var, Atom] = {}
        self.maker: dict[Var, Eqn] = {}
        self.views: dict[Var, _ElementOrder] = {}  # the results of reshapes and transposes
        self.eqns: list[Eqn] = []
        self.uses = use_counts(jaxpr)

    def run(self) -> Jaxpr:
        jaxpr = self.jaxpr
        for eqn in jaxpr.eqns:
            self._visit(eqn)
        outvars = [self.read(a) for a in jaxpr.outvars]
        return Jaxpr(
            jaxpr.constvars,
            jaxpr.consts,
            jaxpr.invars,
            outvars,
            self.eqns,
            jaxpr.effects,
            jaxpr.name,
        )

    def read(self, atom: Atom) -> Atom:
        return atom if type(atom) is Literal else self.env.get(atom, atom)

    def _visit(self, eqn: Eqn) -> None:
        if self.env and not self.env.keys().isdisjoint(eqn.invars):
            eqn = eqn.replace(invars=[self.read(a) for a in eqn.invars])
        if isinstance(eqn.primitive, RegionOp):
            eqn = self._region(eqn)
        elif len(eqn.outvars) == 1 and not eqn.effects:
            replacement, rule = self._fold(eqn), _rule(eqn.primitive)
            if replacement is None and rule is not None:
                replacement = rule(self, eqn)
            if isinstance(replacement, Eqn):
                eqn = replacement
            elif replacement is not None:
                self.env[eqn.outvars[0]] = replacement
                return
        self.emit(eqn)

    def maker_of(self, atom: Atom) -> Eqn | None:
        """Return the rewritten equation that produces a value; None for literals and inputs."""
        return None if type(atom) is Literal else self.maker.get(atom)

    def is_used_once(self, atom: Atom) -> bool:
        return type(atom) is not Literal and self.uses.get(atom) == 1

    def emit(self, eqn: Eqn) -> None:
        self.eqns.append(eqn)
        for var in eqn.outvars:
            self.maker[var] = eqn

    def _fold(self, eqn: Eqn) -> Literal | None:
        """Return the result of a scalar elementwise op on literals, computed by its reference; None for other equations."""
        if not isinstance(eqn.primitive, ElementwiseOp) or not eqn.invars:
            return None
        literals = [a for a in eqn.invars if type(a) is Literal]
        if len(literals) < len(eqn.invars):
            return None
        aval = eqn.outvars[0].aval
        if aval.ndim or not has_rule(eqn.primitive.reference):
            return None
        with np.errstate(all="ignore"):
            values = [np.asarray(a.val, a.aval.dtype) for a in literals]
            value = eqn.primitive.reference(*values, **eqn.params)
        return Literal(np.asarray(value, aval.dtype)[()], aval)

    def as_reshape(self, eqn: Eqn) -> Atom | Eqn:
        """Return an equation that keeps the order of elements as a reshape, or an existing value that equals its result."""
        reshape = eqn.replace(
            primitive=registry["reshape"], params={"new_sizes": eqn.outvars[0].aval.shape}
        )
        return self.fold_inverse_moves(reshape) or _reshape(self, reshape) or reshape

    def fold_inverse_moves(self, eqn: Eqn) -> Atom | Eqn | None:
        """Return the source, or a reshape of it, if a chain of reshapes and transposes ends with the original order of elements.

        Such chains arise when data moves between devices and back. Return None if the order differs."""
        x, out = eqn.invars[0], eqn.outvars[0]
        if type(x) is Literal or not x.aval.size:
            return None
        before = after = _order_of(self, x)
        if moves(eqn) == "permute":
            dims = _split_dims_into_runs(before.runs, x.aval.shape)
            if dims is None:
                return None
            after = _ElementOrder(
                before.source,
                tuple(
                    merge_adjacent_dims([run for d in eqn.params["permutation"] for run in dims[d]])
                ),
                True,
            )
        self.views[out] = after
        if not after.moved or len(after.runs) > 1 or out.aval.explicit is not None:
            return None
        source = after.source
        self.views[out] = _ElementOrder(source, after.runs, False)
        if source.aval.shape == out.aval.shape:
            return source
        return eqn.replace(
            primitive=registry["reshape"], invars=[source], params={"new_sizes": out.aval.shape}
        )

    def _region(self, eqn: Eqn) -> Eqn:
        params = map_jaxprs(
            eqn.params, lambda jaxpr: jaxpr.memo("simplified", lambda: simplify(jaxpr))
        )
        eqn = eqn.replace(params=params) if params is not eqn.params else eqn
        loop = loop_of(eqn)
        return eqn if loop is None else self._hoist(eqn, loop)

    def _hoist(self, eqn: Eqn, loop: LoopLike) -> Eqn:
        """Move equations of a loop body that depend on loop constants only before the loop; return the new loop."""
        body, count = eqn.params[loop.body], eqn.params[loop.constants]
        start = loop.first_constant(eqn.params)
        if count == 0 or (loop.counted and eqn.params["length"] <= 1):
            return eqn
        constants = body.invars[:count]
        outside: dict[Var, Atom] = dict(zip(constants, eqn.invars[start : start + count]))
        hoisted, remaining = _split_body(body, outside)
        if not hoisted:
            return eqn
        for e in hoisted:
            self.emit(e)
        read = [*(a for e in remaining for a in e.invars), *body.outvars]
        used = {a for a in read if type(a) is not Literal}.difference(constants)
        to_hoist = [v for v in outside if v in used]
        inner = Jaxpr(
            body.constvars,
            body.consts,
            [*constants, *to_hoist, *body.invars[count:]],
            body.outvars,
            remaining,
            body.effects,
            body.name,
        )
        params = {**eqn.params, loop.body: inner, loop.constants: count + len(to_hoist)}
        if isinstance(linear := params.get("linear"), tuple):
            params["linear"] = linear[:count] + (False,) * len(to_hoist) + linear[count:]
        at = start + count
        return eqn.replace(
            params=params,
            invars=[*eqn.invars[:at], *(outside[v] for v in to_hoist), *eqn.invars[at:]],
        )


def _split_body(body: Jaxpr, outside: dict[Var, Atom]) -> tuple[list[Eqn], list[Eqn]]:
    """Return the equations to run before a loop, and the remaining ones. Add the values before the loop to `outside`."""
    hoisted: list[Eqn] = []
    remaining: list[Eqn] = []
    for eqn in body.eqns:
        if not _is_movable(eqn, outside):
            remaining.append(eqn)
            continue
        outs = [DropVar(v.aval) if type(v) is DropVar else Var(v.aval) for v in eqn.outvars]
        invars = [a if type(a) is Literal else outside[a] for a in eqn.invars]
        hoisted.append(eqn.replace(invars=invars, outvars=outs))
        outside.update(zip(eqn.outvars, outs))
    return hoisted, remaining


def _is_movable(eqn: Eqn, outside: dict[Var, Atom]) -> bool:
    """Return whether an equation of a loop body may run before the loop: it is pure, its operands are in `outside`, not only literals,
    and its results are at most 4 times as large as its operands, unless it is a collective.
    """
    variables = [a for a in eqn.invars if type(a) is not Literal]
    if eqn.effects or not variables or not all(a in outside for a in variables):
        return False
    if any(True for _ in subjaxprs(eqn.params)):
        return False
    read = sum(a.aval.size for a in eqn.invars)
    small = sum(v.aval.size for v in eqn.outvars) <= 4 * read
    return small or isinstance(eqn.primitive, CollectiveOp)


class _ElementOrder(NamedTuple):
    """The order of elements of a value as a permutation of the elements of `source`.

    `runs` are (extent, distance in `source`), outermost first. `moved`: a transpose has changed the order."""

    source: Var
    runs: tuple[tuple[int, int], ...]
    moved: bool


def _split_dims_into_runs(
    runs: tuple[tuple[int, int], ...], shape: tuple[int, ...]
) -> list[list[tuple[int, int]]] | None:
    """Divide runs among the dims of a shape; return None if a boundary of a dim does not divide a run evenly."""
    remaining_runs, dims = list(reversed(runs)), []
    for n in shape:
        mine, size_left = [], n
        while size_left > 1:
            extent, step = remaining_runs.pop()
            part = math.gcd(extent, size_left)
            if part == 1 or part not in (extent, size_left):
                return None
            if part < extent:
                remaining_runs.append((extent // part, step))
                step *= extent // part
            mine.append((part, step))
            size_left //= part
        dims.append(mine)
    return dims


def _is_literal(atom: Atom, value: float) -> bool:
    """Return whether an atom is a literal equal to `value`; zeros must also have the same sign."""
    if type(atom) is not Literal or isinstance(atom.val, complex) or atom.val != value:
        return False
    dtype = atom.aval.dtype
    if value != 0 or is_native_integer(dtype):
        return True
    return is_native_float(dtype) and bool(np.signbit(atom.val) == np.signbit(value))


def _same_type(atom: Atom, aval: ShapedArray) -> bool:
    return atom.aval.shape == aval.shape and atom.aval.dtype == aval.dtype


def _arithmetic(walk: _Simplifier, eqn: Eqn):
    """Simplify x op e to x if e is neutral, and broadcast scalar operands to scalars."""
    eqn = _scalar_operands(walk, eqn)
    (x, y), primitive = eqn.invars, eqn.primitive
    for a, b in ((x, y), (y, x)) if primitive.commutes else ((x, y),):
        if _is_literal(b, primitive.neutral) and _same_type(a, eqn.outvars[0].aval):
            return a
    return (computes(eqn) == "add" and _join_padded_terms(walk, eqn)) or eqn


def _join_padded_terms(walk: _Simplifier, eqn: Eqn) -> Eqn | None:
    """Replace a sum of zero-padded values that do not overlap, such as the gradient of a split, by a concatenation.

    A zero is added to the concatenation because -0.0 + 0.0 is 0.0.
    """
    aval = eqn.outvars[0].aval
    if aval.explicit is not None or is_complex(aval.dtype):
        return None
    pads = _collect_summed_pads(walk, eqn)
    dim = None if pads is None else _find_padded_dim(pads)
    if pads is None or dim is None:
        return None
    parts = sorted(
        [(*pad.params["padding_config"][dim], pad.invars[0]) for pad in pads],
        key=lambda part: part[:3],
    )
    at = 0
    for low, high, inner, x in parts:
        if low != at or inner or high < 0:
            return None
        at += x.aval.shape[dim]
    if at != aval.shape[dim]:
        return None
    whole = eqn.replace(
        primitive=registry["concatenate"],
        invars=[x for *_, x in parts],
        outvars=[Var(aval)],
        params={"dimension": dim},
    )
    walk.emit(whole)
    return eqn.replace(invars=[whole.outvars[0], pads[0].invars[1]])


def _collect_summed_pads(walk: _Simplifier, eqn: Eqn) -> list[Eqn] | None:
    """Return the pads that are the terms of a tree of sums; None if there are other terms, or too many."""
    pads, stack = [], list(eqn.invars)
    while stack:
        atom = stack.pop()
        maker = walk.maker_of(atom) if walk.is_used_once(atom) else None
        if maker is None or len(pads) == MOST_JOINED:
            return None
        if computes(maker) == "add":
            stack += maker.invars
        elif moves(maker) == "pad" and type(maker.invars[1]) is Literal:
            pads.append(maker)
        else:
            return None
    return pads


def _find_padded_dim(pads: list[Eqn]) -> int | None:
    """Return the only dim along which values are padded; None if there are several, or values other than one zero."""
    dims = {
        d
        for pad in pads
        for d, config in enumerate(pad.params["padding_config"])
        if config != (0, 0, 0)
    }
    values = [x.val for pad in pads if type(x := pad.invars[1]) is Literal]
    signs = {bool(np.signbit(value)) for value in values}
    if len(dims) != 1 or len(signs) != 1 or any(value != 0 for value in values):
        return None
    return dims.pop()


def _involution(walk: _Simplifier, eqn: Eqn):
    """Simplify an op applied twice that is its own inverse."""
    before = walk.maker.get(eqn.invars[0]) if type(eqn.invars[0]) is not Literal else None
    return before.invars[0] if before is not None and before.primitive is eqn.primitive else None


def _convert(walk: _Simplifier, eqn: Eqn):
    (x,), aval = eqn.invars, eqn.outvars[0].aval
    if _same_type(x, aval):
        return x
    if type(x) is Literal:
        return None
    before = walk.maker.get(x)
    if before is not None and before.primitive is eqn.primitive:
        source = before.invars[0]
        if _lossless(source.aval.dtype, x.aval.dtype):
            return source if _same_type(source, aval) else eqn.replace(invars=[source])
    return None


def _lossless(small: np.dtype, big: np.dtype) -> bool:
    if is_half(small):
        return big in (np.float32, np.float64)
    is_plain = small == bool_dtype or _is_native(small)
    return is_plain and _is_native(big) and small != big and np.can_cast(small, big, "safe")


def _is_native(dtype: np.dtype) -> bool:
    return is_native_float(dtype) or is_native_integer(dtype)


def _transpose(walk: _Simplifier, eqn: Eqn):
    (x,), order = eqn.invars, tuple(eqn.params["permutation"])
    if order == tuple(range(len(order))):
        return x
    before = walk.maker_of(x)
    if before is None:
        return None
    if lowering_kind(before) is LoweringKind.CONTRACT and walk.is_used_once(x):
        return _swap_dot_operands(eqn, before, order)
    if before.primitive is eqn.primitive:
        inner = before.params["permutation"]
        joined = tuple(inner[d] for d in order)
        if joined == tuple(range(len(order))):
            return before.invars[0]
        return eqn.replace(invars=before.invars, params={**eqn.params, "permutation": joined})
    return None


def _swap_dot_operands(eqn: Eqn, dot: Eqn, order: tuple[int, ...]) -> Eqn | None:
    """Replace a transpose that swaps the free dims of the operands of a matmul by a matmul with swapped operands."""
    (contract, batch), (lhs, rhs) = dot.params["dimension_numbers"], dot.invars
    n = len(batch[0])
    rows = lhs.aval.ndim - n - len(contract[0])
    rank = dot.outvars[0].aval.ndim
    if order != (*range(n), *range(n + rows, rank), *range(n, n + rows)):
        return None
    numbers = ((contract[1], contract[0]), (batch[1], batch[0]))
    return dot.replace(
        invars=(rhs, lhs), outvars=eqn.outvars, params={**dot.params, "dimension_numbers": numbers}
    )


def _dot(walk: _Simplifier, eqn: Eqn):
    """Have a matmul read transposed operands in place if their free dims stay in order."""
    operands, (contract, batch) = list(eqn.invars), eqn.params["dimension_numbers"]
    contract, batch = list(contract), list(batch)
    for side, x in enumerate(eqn.invars):
        producer = walk.maker_of(x)
        if producer is None or moves(producer) != "permute":
            continue
        order = producer.params["permutation"]
        summed, along = ([order[d] for d in dims[side]] for dims in (contract, batch))
        free = [d for d in order if d not in summed and d not in along]
        if free == sorted(free):
            operands[side], contract[side], batch[side] = (
                producer.invars[0],
                tuple(summed),
                tuple(along),
            )
    if operands == list(eqn.invars):
        return _dot_by_parts(walk, eqn)
    return eqn.replace(
        invars=operands, params={**eqn.params, "dimension_numbers": (tuple(contract), tuple(batch))}
    )


def _dot_by_parts(walk: _Simplifier, eqn: Eqn) -> Eqn | None:
    """Have a matmul whose contracted dims are merged from parts, such as shards, contract the parts in place."""
    out = eqn.outvars[0]
    views = _views_by_parts(walk, eqn)
    if views is None:
        return None
    for view in views:
        sizes = {"new_sizes": view.var.aval.shape}
        walk.emit(Eqn(registry["reshape"], [view.source], [view.var], sizes, eqn.source))
    numbers = (tuple(view.summed for view in views), ((), ()))
    product = eqn.replace(
        invars=[view.var for view in views], params={**eqn.params, "dimension_numbers": numbers}
    )
    shape = tuple(extent for view in views for extent in view.free)
    if shape == out.aval.shape:
        return product
    unshaped = Var(out.aval.update(shape=shape))
    walk.emit(product.replace(outvars=[unshaped]))
    return eqn.replace(
        primitive=registry["reshape"], invars=[unshaped], params={"new_sizes": out.aval.shape}
    )


def _views_by_parts(walk: _Simplifier, eqn: Eqn) -> list[_OperandView] | None:
    """Return views of the operands of a matmul with a dim for each part of the contracted dims; None if there are no long parts."""
    contract, batch = eqn.params["dimension_numbers"]
    a, b = eqn.invars
    if type(a) is Literal or type(b) is Literal or eqn.outvars[0].aval.explicit is not None:
        return None
    if batch[0] or not a.aval.size * b.aval.size:
        return None
    orders = [_order_of(walk, a), _order_of(walk, b)]
    dims = _all_or_none(
        _split_dims_into_runs(order.runs, x.aval.shape) for order, x in zip(orders, (a, b))
    )
    if dims is None or not all(dims) or not any(map(_has_moved_parts, orders, dims, contract)):
        return None
    cut = _find_common_parts(dims, contract)
    if cut is None:
        return None
    views = []
    for side, (order, parts, own) in enumerate(zip(orders, dims, contract)):
        free = [run for i, runs in enumerate(parts) if i not in own for run in runs]
        views.append(_operand_view(order.source, free, [run for pair in cut for run in pair[side]]))
    return _all_or_none(views)


def _all_or_none(values: Iterable[_T | None]) -> list[_T] | None:
    """Return the values as a list; None if one of them is None."""
    present = []
    for value in values:
        if value is None:
            return None
        present.append(value)
    return present


def _find_common_parts(dims: list, contract: tuple) -> list | None:
    """Return the contracted dims of both operands in parts of equal extents; None if there are none, or only short ones."""
    cut = _all_or_none(_refine_runs(dims[0][i], dims[1][j]) for i, j in zip(*contract))
    if cut is None:
        return None
    longest = max([extent for pair in cut for extent, _ in pair[0]], default=0)
    return None if longest < _GEMM_SPLIT_COLUMNS else cut


def _has_moved_parts(order: _ElementOrder, parts: list[list], contract: tuple[int, ...]) -> bool:
    return order.moved and any(len(parts[i]) > 1 for i in contract)


class _OperandView(NamedTuple):
    """An operand of a matmul, reshaped to a dim per run: the variable, the contracted dims, and the sizes of the free dims."""

    source: Var
    var: Var
    summed: tuple[int, ...]
    free: list[int]


def _operand_view(
    source: Var, free: list[tuple[int, int]], summed: list[tuple[int, int]]
) -> _OperandView | None:
    """Return the view with dims in the order of memory; None if the free dims are in a different order."""
    runs = sorted([*summed, *free], key=lambda run: -run[1])
    if free != [run for run in runs if run in free]:
        return None
    var = Var(source.aval.update(shape=tuple(extent for extent, _ in runs)))
    places = tuple(runs.index(run) for run in summed)
    return _OperandView(source, var, places, [extent for extent, _ in free])


def _order_of(walk: _Simplifier, x: Var) -> _ElementOrder:
    return walk.views.get(x) or _ElementOrder(x, ((x.aval.size, 1),), False)


def _refine_runs(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]] | None:
    """Refine two splits of a dim into runs to the same extents; return None if that is impossible."""
    remaining, cut = (list(a), list(b)), ([], [])
    while all(remaining):
        extents = [runs[-1][0] for runs in remaining]
        n = min(extents)
        for runs, done in zip(remaining, cut):
            extent, step = runs.pop()
            if extent % n:
                return None
            done.insert(0, (n, step))
            if extent > n:
                runs.append((extent // n, step * n))
    return cut


def _reshape(walk: _Simplifier, eqn: Eqn):
    (x,), shape = eqn.invars, eqn.outvars[0].aval.shape
    before = walk.maker_of(x)
    source = before.invars[0] if before is not None and before.primitive is eqn.primitive else x
    if source.aval.shape == shape:
        return source
    return (
        None
        if source is x
        else eqn.replace(
            primitive=registry["reshape"], invars=[source], params={"new_sizes": shape}
        )
    )


def _sum_of_sums(walk: _Simplifier, eqn: Eqn):
    """Merge a reduction of a reduction of the same kind; replace a reduction over dims of size 1 by a reshape."""
    x = eqn.invars[0]
    if (
        list(eqn.params) == ["axes"]
        and x.aval.size
        and all(x.aval.shape[d] == 1 for d in eqn.params["axes"])
    ):
        return eqn.replace(
            primitive=registry["reshape"], params={"new_sizes": eqn.outvars[0].aval.shape}
        )
    before = walk.maker_of(x)
    if (
        before is None
        or before.primitive is not eqn.primitive
        or not walk.is_used_once(x)
        or list(eqn.params) != ["axes"]
    ):
        return None
    inner = sorted(before.params["axes"])
    outer_dims = [d for d in range(before.invars[0].aval.ndim) if d not in inner]
    axes = tuple(sorted([*inner, *(outer_dims[a] for a in eqn.params["axes"])]))
    return eqn.replace(invars=before.invars, params={"axes": axes})


def _broadcast(walk: _Simplifier, eqn: Eqn):
    x, dims = eqn.invars[0], eqn.params["broadcast_dimensions"]
    shape = eqn.outvars[0].aval.shape
    if type(x) is Literal:
        return None
    if x.aval.shape == shape and tuple(dims) == tuple(range(len(shape))):
        return x
    if (
        x.aval.size == eqn.outvars[0].aval.size
        and eqn.outvars[0].aval.explicit is None
        and list(dims) == sorted(dims)
    ):
        return walk.as_reshape(eqn)  # only dims of size 1 are added
    before, merged_broadcast = walk.maker.get(x), None
    if before is not None and moves(before) == "repeat":
        x, dims = before.invars[0], tuple([dims[d] for d in before.params["broadcast_dimensions"]])
        merged_broadcast = eqn.replace(
            invars=[x], params={**eqn.params, "broadcast_dimensions": dims}
        )
    unstretched = [d for d, at in enumerate(dims) if x.aval.shape[d] == shape[at]]
    if len(unstretched) == len(dims) or x.aval.explicit is not None:
        return merged_broadcast
    # a stretched dim of size 1 becomes a new dim
    flat = Var(x.aval.update(shape=tuple([x.aval.shape[d] for d in unstretched])))
    source = walk.as_reshape(Eqn(registry["reshape"], [x], [flat], {}, eqn.source))
    if isinstance(source, Eqn):
        walk.emit(source)
        source = flat
    return eqn.replace(
        invars=[source],
        params={**eqn.params, "broadcast_dimensions": tuple([dims[d] for d in unstretched])},
    )


def _other(walk: _Simplifier, eqn: Eqn):
    """Replace an op that equals another op for its parameters."""
    other = eqn.primitive.same_as(**eqn.params)
    return None if other is None else eqn.replace(primitive=registry[other[0]], params=other[1])


def _pad(walk: _Simplifier, eqn: Eqn):
    """Replace a pad that only removes elements by a slice, which is a view."""
    x, config = eqn.invars[0], eqn.params["padding_config"]
    if any(low > 0 or high > 0 or inner for low, high, inner in config):
        return None
    ends = tuple([n + high for n, (_, high, _) in zip(x.aval.shape, config)])
    params = {
        "start_indices": tuple([-low for low, _, _ in config]),
        "limit_indices": ends,
        "strides": None,
    }
    return eqn.replace(primitive=registry["slice"], invars=[x], params=params)


def _scalar_operands(walk: _Simplifier, eqn: Eqn):
    """Replace operands that are broadcast scalars by the scalars; at least one operand keeps the shape of the result."""
    shape = eqn.outvars[0].aval.shape
    ins = list(eqn.invars)
    for i, atom in enumerate(ins):
        producer = walk.maker_of(atom)
        if (
            producer is not None
            and moves(producer) == "repeat"
            and producer.invars[0].aval.ndim == 0
        ):
            ins[i] = producer.invars[0]
    if ins == list(eqn.invars) or not shape:
        return eqn
    if all(a.aval.ndim == 0 for a in ins):
        keep = next(i for i, a in enumerate(eqn.invars) if a.aval.ndim)
        ins[keep] = eqn.invars[keep]
    return eqn.replace(invars=ins)


def _select(walk: _Simplifier, eqn: Eqn) -> Atom | None:
    """Simplify a select whose cases are all the same value."""
    first, *rest = eqn.invars[1:]
    are_equal = type(first) is not Literal and all(x is first for x in rest)
    return first if are_equal and first.aval == eqn.outvars[0].aval else None


_BY_OPERATION = {"cast": _convert, "copy": lambda walk, eqn: eqn.invars[0], "select": _select}
_BY_MOVE = {
    "permute": lambda walk, eqn: walk.fold_inverse_moves(eqn) or _transpose(walk, eqn),
    "reshape": lambda walk, eqn: walk.fold_inverse_moves(eqn) or _reshape(walk, eqn),
    "repeat": _broadcast,
    "pad": _pad,
}
_BY_FAMILY = {ReduceOp: _sum_of_sums, ContractOp: _dot}


def _tag(walk: _Simplifier, eqn: Eqn) -> Atom:
    """Return the operand of a tag, after adding the attributes to the operand's producer."""
    x = eqn.invars[0]
    maker = walk.maker_of(x)
    source = None if maker is None else maker.source or eqn.source
    if maker is not None and source is not None:
        tagged = maker.replace(source=source.tag(eqn.params["xla_metadata_kvs"]))
        walk.eqns[walk.eqns.index(maker)] = tagged
        walk.maker.update(dict.fromkeys(tagged.outvars, tagged))
    return x


@functools.cache
def _rule(primitive: Primitive) -> Callable[[_Simplifier, Eqn], Atom | Eqn | None] | None:
    """Return the rewrite rule for equations of a primitive, by its family and declared properties; None if there is none."""
    if isinstance(primitive, ElementwiseOp):
        if primitive.neutral is not None:
            return _arithmetic
        if primitive.is_involution:
            return _involution
        if primitive.same_as is not None:
            return _other
        if primitive.tags:
            return _tag
    return (
        _BY_OPERATION.get(primitive.computes or "")
        or _BY_MOVE.get(primitive.moves or "")
        or _BY_FAMILY.get(type(primitive))
    )
