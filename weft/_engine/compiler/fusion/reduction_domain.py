"""Reduction domains: the rows of a kernel with reductions, and the values that may follow a reduction in the same kernel.

A domain is (shape S, reduced dims). The heuristics here decide whether rows, or strips of rows, give enough parallelism and stay
in the caches between passes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from weft._engine.compiler.fusion.column_reduction import ColumnReduction
from weft._engine.ir.jaxpr import Eqn
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: minimal number of rows that occupy several threads
REDUCTION_ROWS_PARALLEL = 16
#: minimal row length at which the order of rows does not matter
_REDUCTION_SHORT_ROW = 64
#: maximal number of adjacent accumulators, the width of a strip
REDUCTION_STRIP = 1024
#: minimal width of a strip; widths are multiples of it
REDUCTION_NARROWEST_STRIP = 64
#: maximal number of elements in a strip that is read more than once
_REDUCTION_STRIP_ELEMENTS = 1 << 20
#: minimal number of strips that occupy several threads
_REDUCTION_FEWEST_STRIPS = 4
#: minimal number of rows for accumulators in memory
REDUCTION_FEWEST_STRIP_ROWS = 16


Domain = tuple[tuple[int, ...], tuple[int, ...]]


def reduced_dims(eqn: Eqn) -> tuple[int, ...]:
    """Return the dims that a reduction removes, in ascending order."""
    return tuple(sorted(eqn.params["axes"]))


def is_trailing(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Return whether the reduced dims are the innermost dims, ignoring dims of size 1."""
    rows = [d for d, n in enumerate(shape) if d not in axes and n > 1]
    return not rows or all(a > rows[-1] or shape[a] == 1 for a in axes)


def keeps_order(dims: Sequence[int | None], domain: Domain) -> bool:
    """Return whether a kernel may iterate over the rows in the order of `dims`.

    Short rows are the lanes of a vector; in another order than in memory, each lane would read another cache line."""
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
    """Return whether a value of the domain's shape may follow a reduction in its kernel.

    The rows must give enough parallelism, the shape must be small, or strips of rows must stay in the caches.
    """
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
    """Return whether a kernel over the rows of `domain` can compute the column reduction."""
    shape, axes = domain
    columns = rows = 1
    for d, n in enumerate(shape):
        columns, rows = (columns * n, rows) if d in axes else (columns, rows * n)
    return is_trailing(shape, axes) and (columns, rows) == (
        reduction.columns,
        reduction.parts * reduction.rows,
    )


def strip_width(rows: int, lanes: int, others: int = 1) -> int:
    """Return the width of strips of `lanes` elements whose `rows` rows stay in the caches between passes.

    The width is 0 if strips would be too narrow or too few. Threads are divided among `others` such sets of strips.
    """
    fewest_columns = -(-lanes * others // _REDUCTION_FEWEST_STRIPS)
    width = min(REDUCTION_STRIP, _REDUCTION_STRIP_ELEMENTS // max(rows, 1), fewest_columns)
    width -= width % REDUCTION_NARROWEST_STRIP
    return width if rows >= REDUCTION_FEWEST_STRIP_ROWS else 0


def stays_in_strips(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Return whether a reduction over outer dims and the values that follow it row by row are one kernel that reads memory once."""
    if not axes or any(b - a != 1 for a, b in itertools.pairwise(axes)):
        return False
    lanes, rows = math.prod(shape[axes[-1] + 1 :]), math.prod([shape[a] for a in axes])
    return (
        lanes >= REDUCTION_NARROWEST_STRIP
        and strip_width(rows, lanes, math.prod(shape[: axes[0]])) > 0
    )
