"""Prefix scans by any associative function: `associative_scan` of one or several arrays along a
dim.

In:   a function of two groups of arrays, earlier and later ones.
Out:  a `Combination`, if the function works elementwise: then all prefixes are one operation and
      one kernel. `prefixes` computes them from combinations of whole arrays, for any function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.interpret import evaluate, run_reference
from weft._engine.core.primitive import ElementwiseOp, ScanOp, declare_unsupported, has_rule
from weft._engine.core.stage import stage
from weft._engine.core.trace import Zero, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import inline_calls, is_transparent, params_key
from weft._engine.ir.symbolic import SymbolicDim, is_at_most, min_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import families, functions, layout, slicing
from weft._engine.ops.arithmetic import add, mul, sub
from weft._engine.ops.axis_families import check_axes, cumulative
from weft._engine.ops.casting import size_as
from weft._engine.ops.comparison import eq, ge, select, select_n
from weft._engine.ops.families import shape_error, zero_tangent
from weft._engine.ops.lowering_specs import ExpandSpec, ScanSpec
from weft._engine.ops.reduce import paired_jvp, running
from weft._engine.util.record import field, record

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ir.jaxpr import Atom
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        BatchDims,
        Ints,
        NumPyArray,
        Value,
        Values,
    )

LARGEST = 200  # the most operations of a combination; shared ones count at each use


@record
class Combination:
    """An associative function of scalars.

    `program` takes the earlier values, then the later ones. Equal `key`s mean equal functions.
    """

    key: tuple[Any, ...]
    program: Jaxpr = field(compare=False)

    def __call__(self, earlier: Sequence[Any], later: Sequence[Any]) -> list[Any]:
        """Return the combination of arrays of one shape."""
        return evaluate(self.program, *earlier, *later)

    def __repr__(self) -> str:
        return f"<{' '.join(str(self.program).split())}>"


def combination(fn: Callable[..., Any], avals: Avals) -> Combination | None:
    """Return `fn(earlier, later)` on single elements of arrays of these types.

    Return None if it is not elementwise.

    >>> from weft._engine.ops.arithmetic import mul
    >>> combination(lambda x, y: [mul(x[0], y[0])], [ShapedArray((4,), np.dtype("float32"))])
    <{ lambda ; a:f32[] b:f32[]. let c:f32[] = mul a b in (c,) }>
    """
    shape, count = avals[0].shape, len(avals)
    if any(a.shape != shape for a in avals):
        return None
    whole = inline_calls(
        stage(lambda *xs: fn(xs[:count], xs[count:]), [*avals, *avals]), is_transparent
    )
    if whole.constvars or [(a.shape, a.dtype) for a in whole.out_avals] != [
        (a.shape, a.dtype) for a in avals
    ]:
        return None
    sizes: dict[Var, int] = {}
    for eqn in whole.eqns:
        if not _is_of_elements(eqn, shape):
            return None
        out = eqn.outvars[0]
        sizes[out] = 1 + sum([sizes.get(a, 0) for a in eqn.invars if type(a) is not Literal])
        if sizes[out] > LARGEST:
            return None
    program = stage(
        lambda *xs: _on_scalars(whole, xs),
        [a.update(shape=(), sharding=None) for a in (*avals, *avals)],
    )
    key = _key(program)
    return None if key is None or program.constvars else Combination(key, program)


def _is_of_elements(eqn: Eqn, shape: Ints) -> bool:
    """Return whether an equation works elementwise on arrays of `shape`, or repeats a scalar."""
    primitive = eqn.primitive
    spreads = primitive is layout.broadcast_in_dim_p and not eqn.invars[0].aval.ndim
    pointwise = isinstance(primitive, ElementwiseOp) and has_rule(primitive.lower)
    if eqn.effects or len(eqn.outvars) > 1 or not (spreads or pointwise):
        return False
    return all(a.aval.shape in (shape, ()) for a in (*eqn.invars, eqn.outvars[0]))


def _on_scalars(whole: Jaxpr, xs: Sequence[Any]) -> list[Any]:
    """Evaluate the equations on single elements; broadcasts are dropped."""
    env: dict[Var, Any] = dict(zip(whole.invars, xs))
    read: Callable[[Atom], Any] = lambda atom: (
        np.asarray(atom.val, atom.aval.dtype)[()] if type(atom) is Literal else env[atom]
    )
    for eqn in whole.eqns:
        ins = [read(a) for a in eqn.invars]
        env[eqn.outvars[0]] = (
            ins[0] if eqn.primitive.moves == "repeat" else eqn.primitive.bind(*ins, **eqn.params)
        )
    return [read(a) for a in whole.outvars]


def _key(program: Jaxpr) -> tuple[Any, ...] | None:
    """Return a hashable key of a program of scalars; equal keys mean equal functions."""
    numbers: dict[Var, int] = {}
    name: Callable[[Atom], tuple[Any, str]] = lambda a: (
        (repr(a.val), a.aval.dtype.name)
        if type(a) is Literal
        else (numbers.setdefault(a, len(numbers)), a.aval.dtype.name)
    )
    parts: list[Any] = [tuple([name(v) for v in program.invars])]
    for eqn in program.eqns:
        params = params_key(eqn.params)
        if params is None:
            return None
        parts.append(
            (eqn.primitive.name, params, tuple([name(a) for a in (*eqn.invars, *eqn.outvars)]))
        )
    return (*parts, tuple([name(a) for a in program.outvars]))


# --- by combinations of whole arrays ----------------------------------------------------------------------------------


def prefixes(xs: list[Any], combine: Callable[..., Any], axis: int) -> list[Any]:
    """Return prefixes: pairs give the odd positions by recursion.

    One more step gives the even ones.
    """
    n = typeof(xs[0]).shape[axis]
    if isinstance(n, SymbolicDim):
        return _prefixes_by_doubling(xs, combine, axis, n)
    if n < 2:
        return xs
    firsts = _strided_slices(xs, 0, n - 1, 2, axis)
    pairs = combine(firsts, _strided_slices(xs, 1, n, 2, axis))
    for operand, combined in zip(firsts, pairs):
        if typeof(operand).shape != typeof(combined).shape:
            raise ValueError(
                f"associative_scan: `fn` must return what has the shape of its arguments: it made {typeof(combined).str_short()} "
                f"of two {typeof(operand).str_short()}."
            )
    odd = prefixes(pairs, combine, axis)
    first = _strided_slices(xs, 0, 1, 1, axis)
    if n == 2:
        return [slicing.concatenate([f, o], axis) for f, o in zip(first, odd)]
    before = odd if n % 2 else _strided_slices(odd, 0, n // 2 - 1, 1, axis)
    later = combine(before, _strided_slices(xs, 2, n, 2, axis))
    even = [slicing.concatenate([f, x], axis) for f, x in zip(first, later)]
    return [_interleave(e, o, axis) for e, o in zip(even, odd)]


def _prefixes_by_doubling(
    xs: list[Any], combine: Callable[..., Any], axis: int, n: SymbolicDim
) -> list[Any]:
    """Return prefixes along a dim of symbolic size.

    Runs of 1, 2, 4, ... elements are combined, up to the largest possible size.
    """
    for exponent in range(31):
        if is_at_most(n, 1 << exponent):
            break
        by = min_dim(1 << exponent, n)
        # the first elements are combined with the last ones, which are in the domain of `combine`;
        # these results are unused
        moved = [
            slicing.concatenate(
                [
                    slicing.slice_in_dim(x, n - by, n, axis=axis),
                    slicing.slice_in_dim(x, 0, n - by, axis=axis),
                ],
                axis,
            )
            for x in xs
        ]
        combined = combine(moved, xs)
        xs = [
            select_n(
                ge(layout.broadcasted_iota(np.int32, typeof(x).shape, axis), size_as(by, np.int32)),
                x,
                y,
            )
            for x, y in zip(xs, combined)
        ]
    return xs


def _strided_slices(xs: list[Any], start: int, stop: int, step: int, axis: int) -> list[Any]:
    return [slicing.slice_in_dim(x, start, stop, step, axis) for x in xs]


def _interleave(even: Any, odd: Any, axis: int) -> Any:
    """Interleave even[0], odd[0], even[1], odd[1], ...

    The last even element follows if there is one more.
    """
    half, size = typeof(odd).shape[axis], typeof(even).shape[axis]
    head = slicing.slice_in_dim(even, 0, half, axis=axis)
    pairs = slicing.concatenate([layout.expand_dims(x, (axis + 1,)) for x in (head, odd)], axis + 1)
    out = layout.collapse(pairs, axis, axis + 2)
    return (
        out
        if size == half
        else slicing.concatenate([out, slicing.slice_in_dim(even, half, half + 1, axis=axis)], axis)
    )


# --- as one operation -------------------------------------------------------------------------------------------------

associative_scan_p = ScanOp("associative_scan", multiple_results=True)
associative_scan_p.define(
    lower=ScanSpec(None, None), transpose=declare_unsupported("is not linear in its operands")
)


def associative_scan(
    combine: Combination, operands: Sequence[Any], axis: int, reverse: bool = False
) -> list[Any]:
    """Return all prefixes of `operands` along dim `axis`, from the end if `reverse`."""
    return associative_scan_p.bind(*operands, combine=combine, axis=axis, reverse=reverse)


@associative_scan_p.def_type
def _type(*avals: ShapedArray, combine: Combination, axis: int, reverse: bool):
    if any(a.shape != avals[0].shape for a in avals):
        raise shape_error(
            "associative_scan",
            "operands differ in shape.",
            families.operand_table(avals),
            "They are combined together.",
        )
    check_axes("associative_scan", avals[0], (axis,))
    return avals


@associative_scan_p.def_reference
def _reference(*xs: np.ndarray, combine: Combination, axis: int, reverse: bool) -> list[np.ndarray]:
    rows = [np.moveaxis(np.flip(x, axis) if reverse else x, axis, 0) for x in xs]
    results = [row.copy() for row in rows]
    program = stage(
        lambda *xs: combine(xs[: len(rows)], xs[len(rows) :]),
        [ShapedArray(row.shape[1:], row.dtype) for row in (*rows, *rows)],
    )
    for i in range(1, len(rows[0])):
        out = run_reference(program, *[m[i - 1] for m in results], *[row[i] for row in rows])
        for m, value in zip(results, out):
            m[i] = value
    outs = [np.moveaxis(m, 0, axis) for m in results]
    return [np.flip(y, axis) for y in outs] if reverse else outs


@associative_scan_p.def_jvp
def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    combine: Combination,
    axis: int,
    reverse: bool,
):
    """Return results and tangents by one scan over (value, tangent) pairs.

    The combination of two pairs is the jvp of `combine`, applied to whole arrays.
    """
    count = len(primals)
    if all(type(t) is Zero for t in tangents):
        outs = associative_scan(combine, primals, axis, reverse)
        return outs, [zero_tangent(o) for o in outs]
    live = [
        i for i, x in enumerate(primals) if families.dtype_in(typeof(x).dtype, families.INEXACT)
    ]
    pairs = [*primals, *[families.instantiate(tangents[i]) for i in live]]
    pairs = [layout.rev(x, (axis,)) for x in pairs] if reverse else pairs

    def combine_pairs(earlier: Sequence[Any], later: Sequence[Any]) -> list[Any]:
        xs = [*earlier[:count], *later[:count]]
        ts = [zero_tangent(x) for x in xs]
        for i, x, y in zip(live, earlier[count:], later[count:]):
            ts[i], ts[count + i] = x, y
        outs, tangents = _with_tangents(combine.program, xs, ts)
        return [*outs, *[families.instantiate(tangents[i]) for i in live]]

    out = prefixes(pairs, combine_pairs, axis)
    out = [layout.rev(x, (axis,)) for x in out] if reverse else out
    tangents_of = dict(zip(live, out[count:]))
    return out[:count], [tangents_of.get(i, zero_tangent(y)) for i, y in enumerate(out[:count])]


def _with_tangents(
    program: Jaxpr, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Return results and tangents of a program on arrays, by the jvp rules of its operations."""
    env: dict[Var, Any] = dict(zip(program.invars, zip(primals, tangents)))

    def read(atom: Atom):
        if type(atom) is not Literal:
            return env[atom]
        value = np.asarray(atom.val, atom.aval.dtype)[()]
        return value, zero_tangent(value)

    for eqn in program.eqns:
        ins = [read(a) for a in eqn.invars]
        xs, ts = [x for x, _ in ins], [t for _, t in ins]
        if all(type(t) is Zero for t in ts):
            out = eqn.primitive.bind(*xs, **eqn.params)
            env[eqn.outvars[0]] = out, zero_tangent(out)
        else:
            env[eqn.outvars[0]] = eqn.primitive.jvp(xs, ts, **eqn.params)
    outs = [read(a) for a in program.outvars]
    return [x for x, _ in outs], [t for _, t in outs]


@associative_scan_p.def_batch
def _batch(
    mapped: BatchAxis,
    args: Values,
    dims: BatchDims,
    *,
    combine: Combination,
    axis: int,
    reverse: bool,
):
    fronted = [
        families.move_dim(x, d, 0)
        if d is not None
        else layout.broadcast_in_dim(
            x, (mapped.size, *typeof(x).shape), tuple(range(1, typeof(x).ndim + 1))
        )
        for x, d in zip(args, dims)
    ]
    outs = associative_scan(combine, fronted, axis + 1, reverse)
    return outs, [0] * len(outs)


@associative_scan_p.def_factors
def _factors(in_avals: Avals, out_avals: Avals, *, combine: Combination, axis: int, reverse: bool):
    b = RuleBuilder()
    fs = b.add_factors(in_avals[0].shape)
    return b.rule([fs] * len(in_avals), [fs] * len(out_avals), special={fs[axis]: "scan"})


# --- running log-sum-exp ----------------------------------------------------------------------------------------------


def _logaddexp(x: Value, y: Value):
    if not families.dtype_in(typeof(x).dtype, families.COMPLEX):
        return functions.logaddexp(x, y)
    from weft._engine.ops.complex_functions import logaddexp

    return logaddexp(x, y)


def _logaddexp_reference(x: np.ndarray, axis: int) -> np.ndarray:
    if not np.iscomplexobj(x):
        return np.logaddexp.accumulate(x, axis=axis)
    rows = np.moveaxis(x, axis, 0).copy()
    for i in range(1, len(rows)):
        high = np.maximum(rows[i - 1].real, rows[i].real)
        rows[i] = high + np.log(np.exp(rows[i - 1] - high) + np.exp(rows[i] - high))
    return np.moveaxis(rows, 0, axis)


def _logsumexp_pair(earlier: Value, later: Value):
    (x, s), (y, t) = earlier, later
    total = _logaddexp(x, y)
    empty = eq(total, -np.inf)
    share: Callable[[Value], Value] = lambda v: select(
        empty, 0, functions.exp(sub(v, select(empty, 0, total)))
    )
    return total, add(mul(s, share(x)), mul(t, share(y)))


def _prefixes_of_logaddexp(x: NumPyArray, *, axis: int, reverse: bool):
    pair: Callable[[Values, Values], list[Value]] = lambda earlier, later: [
        _logaddexp(earlier[0], later[0])
    ]
    combine = combination(pair, [typeof(x)])
    if combine is not None:
        return associative_scan(combine, [x], axis, reverse)[0]
    turned: Callable[[Value], Value] = lambda x: layout.rev(x, (axis,)) if reverse else x
    return turned(prefixes([turned(x)], pair, axis)[0])


cumlogsumexp_p = cumulative(
    "cumlogsumexp",
    families.INEXACT,
    _logaddexp_reference,
    lower=ExpandSpec(_prefixes_of_logaddexp),
    jvp=paired_jvp(_logsumexp_pair, lambda dtype: -np.inf),
)


def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return running log(sum(exp)) along dim `axis`, from the end if `reverse`.

    Complex results have a phase in (-pi, pi].
    """
    if families.dtype_in(typeof(operand).dtype, families.COMPLEX):
        from weft._engine.ops.complex_functions import principal

        operand = principal(operand)
    return running(cumlogsumexp_p, operand, axis, reverse)
