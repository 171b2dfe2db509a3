"""Variance rewrite: sums of squared deviations are computed in the same pass over memory as the mean.

In, out: jaxprs. A sum of (x - c)^2 over dims along which c is constant, where c is computed from the sum of x over the same
dims, waits for that sum, so that x is read from memory twice. Split into parts that stay in the caches it need not wait: the
deviations of a part from its own mean m are summed right after the part, and

    sum (x - c)^2  =  sum over parts of sum (x - m)^2 + (m - c) * (count * (m - c) + 2 * sum (x - m)),

where the last sum is the rounding error of m.

Laws: nothing much larger than the result is subtracted, so precision is kept where the deviations are small relative to the mean.
      What one kernel computes row by row, or strip by strip, is left alone. Parts do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft._engine.compiler.fusion.classify import computes, is_sum, moves, view_of
from weft._engine.compiler.fusion.reduction_domain import (
    REDUCTION_ROWS_PARALLEL,
    is_trailing,
    reduced_dims,
    stays_in_strips,
)
from weft._engine.core.primitive import ElementwiseOp, registry
from weft._engine.core.stage import stage
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import dce, substitute
from weft._engine.util.dtypes import is_native_float
from weft._engine.util.record import record

# thresholds, measured on several machines
#: number of elements that fits into the second-level cache
_VARIANCE_PART = 1 << 16
#: minimal number of elements of a rewritten sum; they exceed the caches
_VARIANCE_FROM = 1 << 20
#: minimal number of parts, so that all threads are busy
_VARIANCE_FEWEST_PARTS = 32


FARTHEST = 8  # maximal number of equations between the sum and the center


@record
class Deviations:
    """The equations `squares`, the sum of (x - center)^2 with `center` broadcast, and `total`, the sum of x."""

    squares: Eqn
    total: Eqn
    x: Var
    center: Var
    dims: tuple[int, ...]  # the dim of x of each dim of `center`
    # the shape of x with the reduced dims replaced by two: parts, elements of a part
    folded: tuple[int, ...]
    at: int  # the position of the first of these two dims


def split_deviations(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with large sums of squared deviations computed from parts."""
    maker = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    sums = [d for eqn in jaxpr.eqns if (d := _deviations(eqn, maker)) is not None]
    sums = [d for i, d in enumerate(sums) if all(d.total is not e.total for e in sums[:i])]
    if not sums:
        return jaxpr
    totals, squares = {id(d.total): d for d in sums}, {id(d.squares): d for d in sums}
    part_values: dict[int, tuple[Atom, ...]] = {}
    env: dict[Var, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        (renamed,) = substitute([eqn], env) if env else (eqn,)
        if id(eqn) in totals:
            total, *parts = _splice(_parts(totals[id(eqn)]), renamed.invars, eqns)
            env[eqn.outvars[0]], part_values[id(eqn)] = total, tuple(parts)
        elif id(eqn) in squares:
            mine = squares[id(eqn)]
            center = env.get(mine.center, mine.center)
            (env[eqn.outvars[0]],) = _splice(
                _combine_parts(mine), [*part_values[id(mine.total)], center], eqns
            )
        else:
            eqns.append(renamed)
    outvars = [a if type(a) is Literal else env.get(a, a) for a in jaxpr.outvars]
    return dce(jaxpr.replace(eqns=eqns, outvars=outvars))


def _splice(function: Callable, args: list[Atom], eqns: list[Eqn]) -> list[Atom]:
    """Append the equations of `function` to `eqns`; return its results."""
    staged = stage(function, [a.aval for a in args])
    env: dict[Var, Atom] = dict(zip(staged.invars, args))
    eqns += substitute(staged.eqns, env)
    return [a if type(a) is Literal else env.get(a, a) for a in staged.outvars]


def _deviations(eqn: Eqn, maker: dict[Var, Eqn]) -> Deviations | None:
    """Return the description of a large sum of squared deviations from a value computed from the sum; None for other equations."""
    if (
        not is_sum(eqn)
        or eqn.invars[0].aval.size < _VARIANCE_FROM
        or not is_native_float(eqn.invars[0].aval.dtype)
    ):
        return None
    base = _base_of_square(_maker_of(eqn.invars[0], maker))
    off = maker.get(base) if base is not None else None
    if off is None or computes(off) != "sub":
        return None
    x, spread = off.invars
    source = _find_broadcast_source(spread, maker)
    if source is None:
        return None
    (center, dims), axes = source, reduced_dims(eqn)
    if (
        type(x) is Literal
        or type(center) is Literal
        or x.aval.shape != eqn.invars[0].aval.shape
        or x.aval.dtype.itemsize < 4
        or any(d in axes and n > 1 for d, n in zip(dims, center.aval.shape))
    ):
        return None
    total = _sum_behind(center, x, axes, maker)
    folded = None if total is None else _split_reduced_dims(x.aval.shape, axes)
    if total is None or folded is None:
        return None
    return Deviations(eqn, total, x, center, dims, *folded)


def _maker_of(atom: Atom, maker: dict[Var, Eqn]) -> Eqn | None:
    return None if type(atom) is Literal else maker.get(atom)


def _find_broadcast_source(
    spread: Atom, maker: dict[Var, Eqn]
) -> tuple[Atom, tuple[int, ...]] | None:
    """Return the operand of a broadcast and its broadcast dims; a scalar is its own operand. Return None for other values."""
    if not spread.aval.shape:
        return spread, ()
    eqn = _maker_of(spread, maker)
    if eqn is None or moves(eqn) != "repeat":
        return None
    return eqn.invars[0], tuple(eqn.params["broadcast_dimensions"])


def _base_of_square(eqn: Eqn | None) -> Var | None:
    """Return the variable that an equation squares; None if it does not."""
    if eqn is None or computes(eqn) not in ("square", "mul"):
        return None
    base = eqn.invars[0]
    is_square = all(x is base for x in eqn.invars)
    return base if is_square and type(base) is Var else None


def _sum_behind(center: Var, x: Var, axes: tuple[int, ...], maker: dict[Var, Eqn]) -> Eqn | None:
    """Return the sum of `x` over `axes` from which `center` is computed; None if there is none."""
    atom: Atom = center
    for _ in range(FARTHEST):
        eqn = _maker_of(atom, maker)
        if eqn is None:
            return None
        if is_sum(eqn):
            return eqn if eqn.invars[0] is x and reduced_dims(eqn) == axes else None
        if not isinstance(eqn.primitive, ElementwiseOp) and view_of(eqn) is None:
            return None
        atom = eqn.invars[0]
    return None


def _split_reduced_dims(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[tuple[int, ...], int] | None:
    """Return a shape with its reduced dims replaced by two dims (parts, elements of a part), and the position of the first.

    Return None if the sum needs no parts, or cannot be divided."""
    first, last = axes[0], axes[-1]
    if len(axes) != last - first + 1 or stays_in_strips(shape, axes):
        return None
    before, count, after = (
        math.prod(shape[:first]),
        math.prod(shape[first : last + 1]),
        math.prod(shape[last + 1 :]),
    )
    if is_trailing(shape, axes) and before >= REDUCTION_ROWS_PARALLEL:
        return None
    num_parts = max(count * after // _VARIANCE_PART, _VARIANCE_FEWEST_PARTS // before)
    parts = (
        next((n for n in range(num_parts, min(4 * num_parts, count) + 1) if count % n == 0), 0)
        if num_parts > 1
        else 0
    )
    folded = (*shape[:first], parts, count // parts, *shape[last + 1 :]) if parts else ()
    inner = (first + 1,)
    if not parts or not (
        stays_in_strips(folded, inner)
        or (is_trailing(folded, inner) and before * parts >= _VARIANCE_FEWEST_PARTS)
    ):
        return None
    return folded, first


def _broadcast_over(x, shape: tuple[int, ...], dims: tuple[int, ...]):
    return registry["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=dims)


def _parts(d: Deviations) -> Callable:
    """Return a function of x: its sum, and per part the mean, the sum of deviations from it, and the sum of their squares."""
    folded, at = d.folded, d.at
    add, count = registry["reduce_sum"].bind, np.asarray(folded[at + 1], d.x.aval.dtype)
    part_dims = tuple([k for k in range(len(folded)) if k != at + 1])

    def parts(x):
        x = registry["reshape"].bind(x, new_sizes=folded)
        sums = add(x, axes=(at + 1,))
        means = registry["div"].bind(sums, count)
        off = registry["sub"].bind(x, _broadcast_over(means, folded, part_dims))
        return [
            add(sums, axes=(at,)),
            means,
            add(off, axes=(at + 1,)),
            add(registry["mul"].bind(off, off), axes=(at + 1,)),
        ]

    return parts


def _combine_parts(d: Deviations) -> Callable:
    """Return a function of the results of `_parts` after the first, and of the center: the sum of all squared deviations."""
    folded, position = d.folded, d.at
    axes, count = reduced_dims(d.squares), np.asarray(folded[position + 1], d.x.aval.dtype)
    unreduced_dims = [(k, n) for k, n in zip(d.dims, d.center.aval.shape) if k not in axes]
    add, plus, sub, mul = [registry[name].bind for name in ("reduce_sum", "add", "sub", "mul")]
    where = tuple([k if k < position else k - len(axes) + 1 for k, _ in unreduced_dims])

    def joined(means, other_sums, squares, center):
        center = registry["reshape"].bind(center, new_sizes=tuple([n for _, n in unreduced_dims]))
        off = sub(
            means,
            _broadcast_over(center, (*folded[: position + 1], *folded[position + 2 :]), where),
        )
        moved = mul(off, plus(mul(off, count), plus(other_sums, other_sums)))
        return [plus(add(squares, axes=(position,)), add(moved, axes=(position,)))]

    return joined
