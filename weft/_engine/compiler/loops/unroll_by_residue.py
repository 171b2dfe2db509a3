"""Unrolling by residue: adjacent elements are computed in one iteration because they share work or their residues become constant.

In:   `LoweredGroup` code whose results have a short innermost dim, or dims whose index is tested modulo a small number, as by interior
      padding: gradients of strided slices, pools and strided windows.
Out:  the code of an unrolled iteration: one output per row, with the values of adjacent elements. The residues are constants, so
      the tests are decided at compile time and shared work runs once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from weft._engine.compiler.fusion.classify import (
    UNROLLED_ELEMENTS,
    UNROLLED_ROWS,
    VECTOR_OUTER_ITERATIONS,
    index_variables,
)
from weft._engine.compiler.loops.access_analysis import AccessAnalysis, LoopDim
from weft._engine.compiler.lowering.lower import LoweredGroup, Output, Remainder, reachable
from weft._engine.compiler.lowering.substitution import Substitution
from weft._engine.ir.build import LoopsBuilder
from weft._engine.ir.loops import Const, Expr, Index, ScalarOp
from weft._engine.util.dtypes import is_complex
from weft._engine.util.record import record, replace

# thresholds, measured on several machines
#: maximal cost of an unrolled iteration
_UNROLLED_COST = 2048
#: maximal number of elements of short innermost dims
_UNROLLED_SHORT = 16
#: maximal cost of all elements of short innermost dims
_UNROLLED_SHORT_COST = 64


@record
class Unrolled:
    """The code of an unrolled iteration, and the dim to vectorize; unless `is_required`, use it only if that dim has most memory traffic."""

    low: LoweredGroup
    along: int
    is_required: bool


def list_unrolled_versions(
    low: LoweredGroup, analysis: AccessAnalysis, dims: list[LoopDim], vector: LoopDim | None
) -> Iterator[Unrolled]:
    """Yield the unrolled versions of the code. `dims` are its present loops, `vector` the vectorized one."""
    if vector is None or low.reductions or low.columns or low.parts:
        return
    divided = _find_divisors(low)
    counts = {
        d: n for d, x in enumerate(low.vars) if 1 < (n := divided.get(id(x), 1)) <= low.shape[d]
    }
    last = max([d for d, x in enumerate(low.vars) if type(x) is Index])
    if last in counts and _may_follow(low, last, counts[last]):
        yield from _versions(low, counts, (last,), last, False)
    counts = {d: n for d, n in counts.items() if d not in vector.dims}
    short, along = _short_inner_dims(low, analysis, dims, vector)
    if short:
        yield from _versions(
            low, {**counts, **{d: low.shape[d] for d in short}}, short, along, True
        )
    yield from _versions(low, counts, (), vector.dims[-1], True)


def _versions(
    low: LoweredGroup,
    counts: dict[int, int],
    adjacent: tuple[int, ...],
    along: int,
    is_required: bool,
) -> Iterator[Unrolled]:
    """Yield the code unrolled by `counts` unless it is too long."""
    rows = [n for d, n in counts.items() if d not in adjacent or n < low.shape[d]]
    if counts and math.prod(rows) <= UNROLLED_ROWS:
        unrolled = _unroll(low, counts, adjacent)
        if AccessAnalysis(unrolled).cost <= _UNROLLED_COST:
            yield Unrolled(unrolled, along, is_required)


def _find_divisors(low: LoweredGroup) -> dict[int, int]:
    """Return the common multiple of the divisors of each index whose remainders are compared, by id of Index."""
    divisors: dict[int, int] = {}
    for x in reachable([x for out in low.outputs for x in out.exprs]):
        if type(x) is ScalarOp and x.op == "eq":
            division = next(
                (
                    (a.args[0], divisor.value)
                    for a in x.args
                    if type(a) is ScalarOp and a.op == "rem" and type(divisor := a.args[1]) is Const
                ),
                None,
            )
            if division is not None:
                form = low.builder.affine(division[0])
                for key in form[0] if form is not None else ():
                    divisors[key] = math.lcm(divisors.get(key, 1), division[1])
    return divisors


def _may_follow(low: LoweredGroup, d: int, count: int) -> bool:
    """Return whether elements along a dim are adjacent in all results and numerous enough."""
    forms = [low.builder.affine(out.index) for out in low.outputs]
    return (
        count <= UNROLLED_ELEMENTS
        and low.shape[d] >= 2 * count
        and all(form is not None and form[0].get(id(low.vars[d])) == 1 for form in forms)
    )


def _short_inner_dims(
    low: LoweredGroup, analysis: AccessAnalysis, dims: list[LoopDim], vector: LoopDim
) -> tuple[tuple[int, ...], int]:
    """Return the short innermost dims of all results and the dim just outside them, to be vectorized; no dims if they are too long."""
    outs = [i for i, access in enumerate(analysis.accesses) if access.buf.startswith("out ")]
    short: list[int] = []
    count = 1
    for dim in reversed(dims) if all(vector.steps[i] != 1 for i in outs) else []:
        if any(dim.steps[i] != count for i in outs):
            break
        if dim.extent >= VECTOR_OUTER_ITERATIONS:
            # Real and imaginary parts alternate in memory anyway.
            packed = not any(is_complex(out.var.aval.dtype) for out in low.outputs)
            suits = dim is vector or (packed and vector.extent < VECTOR_OUTER_ITERATIONS)
            return tuple(reversed(short)) if suits else (), dim.dims[-1]
        short += reversed(dim.dims)
        count *= dim.extent
        if count > _UNROLLED_SHORT or analysis.cost * count > _UNROLLED_SHORT_COST:
            break
    return (), 0


def _unroll(low: LoweredGroup, counts: dict[int, int], adjacent: tuple[int, ...]) -> LoweredGroup:
    """Return the code with `counts[d]` elements along dim d in one iteration; those along `adjacent` dims are stored together."""
    b = LoopsBuilder()
    shape = tuple([n // counts.get(d, 1) for d, n in enumerate(low.shape)])
    fresh = index_variables(b, shape)
    places = {
        d: [b.iadd(b.imul(fresh[d], count), k) for k in range(count)] for d, count in counts.items()
    }
    leftover: dict[int, list[Expr]] = {
        d: [b.const(k, "i64") for k in range(shape[d] * count, low.shape[d])]
        for d, count in counts.items()
    }
    columns = [
        dict(zip(adjacent, column)) for column in itertools.product(*[places[d] for d in adjacent])
    ]
    remainders = []
    for ends in _choices_of_ends([d for d in counts if d not in adjacent], leftover):
        choice = {d: leftover[d] if end else places[d] for d, end in ends.items()}
        when = b.logical_and(
            *[b.icmp("eq", fresh[d], shape[d] - 1) for d, end in ends.items() if end]
        )
        remainders.append(Remainder(_outputs(low, b, fresh, choice, columns), when, False))
        remainders += [
            Remainder(_outputs(low, b, fresh, choice, [{d: x}]), when, True)
            for d in adjacent
            for x in leftover[d]
        ]
    return replace(
        low,
        builder=b,
        shape=shape,
        vars=fresh,
        outputs=remainders[0].outputs,
        remainders=remainders[1:],
    )


def _choices_of_ends(rows: list[int], left: dict[int, list[Expr]]) -> Iterator[dict[int, bool]]:
    """Yield every subset of dims along which the elements `left` over by unrolling are computed, the empty set first."""
    for ends in itertools.product(*[(False, True) if left[d] else (False,) for d in rows]):
        yield dict(zip(rows, ends))


def _outputs(
    low: LoweredGroup,
    b: LoopsBuilder,
    fresh: list[Expr],
    rows: dict[int, list[Expr]],
    columns: list[dict[int, Expr]],
) -> list[Output]:
    """Return the results at each combination of one position per dim of `rows`; adjacent `columns` are stored together."""
    outputs = []
    for choice in itertools.product(*rows.values()):
        at = dict(zip(rows, choice))
        places = [{**at, **column} for column in columns]
        first, *rest = [
            Substitution(
                low.builder, b, {id(y): p.get(d, fresh[d]) for d, y in enumerate(low.vars)}
            )
            for p in places
        ]
        outputs += [
            replace(
                out,
                index=first(out.index),
                value=first(out.value),
                after=tuple([at_column(out.value) for at_column in rest]),
            )
            for out in low.outputs
        ]
    return outputs
