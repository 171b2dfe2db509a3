"""Reduction domains: the rows of a kernel with reductions, and what may follow a reduction in the same kernel.

A domain is (shape S, reduced dims). The heuristics here decide when rows, or strips of rows, give enough parallelism and stay in
the caches between passes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from weft._engine.compiler.fusion.column_reduction import ColumnReduction
from weft._engine.ir.jaxpr import Eqn
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: rows that keep several threads busy
REDUCTION_ROWS_PARALLEL = 16
#: elements of a row from which the order of rows does not matter
_REDUCTION_SHORT_ROW = 64
#: adjacent accumulators, at most
REDUCTION_STRIP = 1024
#: at least, where there would be too few strips
REDUCTION_NARROWEST_STRIP = 64
#: elements of a strip of rows that is read more than once
_REDUCTION_STRIP_ELEMENTS = 1 << 20
#: strips that keep several threads busy
_REDUCTION_FEWEST_STRIPS = 4
#: rows that are worth accumulators in memory
REDUCTION_FEWEST_STRIP_ROWS = 16


Domain = tuple[tuple[int, ...], tuple[int, ...]]


def reduced_dims(eqn: Eqn) -> tuple[int, ...]:
    """The dims that a reduction removes, in order."""
    return tuple(sorted(eqn.params["axes"]))


def is_trailing(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether the reduced dims are the innermost ones (dims of size 1 do not count)."""
    kept = [d for d, n in enumerate(shape) if d not in axes and n > 1]
    return not kept or all(a > kept[-1] or shape[a] == 1 for a in axes)


def keeps_order(dims: Sequence[int | None], domain: Domain) -> bool:
    """Whether a kernel may go over the rows in the order of these dims: short rows are side by side in vectors, and in
    another order than that of memory each element of a vector would come from another line of the caches."""
    shape, axes = domain
    order = [dim for dim in dims if dim is not None]
    columns = math.prod([shape[d] for d in axes])
    return (
        order == sorted(order)
        or columns >= _REDUCTION_SHORT_ROW
        or math.prod(shape) <= MODEL.serial_elements
        or not is_trailing(shape, axes)
    )


def may_follow(domain: Domain) -> bool:
    """Whether a whole-shape value may follow a reduction in one kernel: rows give parallelism, all is small, or
    strips of rows stay in the caches."""
    shape, axes = domain
    size = rows = 1
    for d, n in enumerate(shape):
        size *= n
        rows *= 1 if d in axes else n
    return (
        size <= MODEL.serial_elements
        or (rows >= REDUCTION_ROWS_PARALLEL and is_trailing(shape, axes))
        or stays_in_strips(shape, axes)
    )


def fits_domain(reduction: ColumnReduction, domain: Domain) -> bool:
    """Whether a kernel over the rows of `domain` can make the sum."""
    shape, axes = domain
    columns = rows = 1
    for d, n in enumerate(shape):
        columns, rows = (columns * n, rows) if d in axes else (columns, rows * n)
    return is_trailing(shape, axes) and (columns, rows) == (
        reduction.columns,
        reduction.parts * reduction.rows,
    )


def strip_width(rows: int, lanes: int, others: int = 1) -> int:
    """The width of strips of `lanes` elements that stay in the caches while their `rows` are passed over again; `others` more
    such sets of strips keep threads busy, too. 0 if strips would be too narrow or too few."""
    enough = -(-lanes * others // _REDUCTION_FEWEST_STRIPS)
    width = min(REDUCTION_STRIP, _REDUCTION_STRIP_ELEMENTS // max(rows, 1), enough)
    width -= width % REDUCTION_NARROWEST_STRIP
    return width if rows >= REDUCTION_FEWEST_STRIP_ROWS else 0


def stays_in_strips(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether a reduction over outer dims and what follows it row by row are one kernel that reads memory once."""
    if not axes or any(b - a != 1 for a, b in itertools.pairwise(axes)):
        return False
    lanes, rows = math.prod(shape[axes[-1] + 1 :]), math.prod([shape[a] for a in axes])
    return (
        lanes >= REDUCTION_NARROWEST_STRIP
        and strip_width(rows, lanes, math.prod(shape[: axes[0]])) > 0
    )
