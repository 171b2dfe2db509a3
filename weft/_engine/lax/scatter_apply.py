"""`scatter_apply`: a function applied to the elements at the indices of a scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.control.loops import fori_loop
from weft._engine.core.trace import typeof
from weft._engine.ops import comparison, elementwise as ew, indexing, layout, reduce, windows
from weft._engine.util.source import guard_all


def scatter_apply(
    operand,
    scatter_indices,
    func: Callable,
    dimension_numbers: indexing.ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
):
    """Return `operand` with elementwise `func` applied to the windows at `scatter_indices`.

    It is applied once per occurrence.

    `update_shape` is the shape of the updates of a corresponding scatter. `func` is differentiated.

    >>> rows = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> double = lambda x: 2 * x
    >>> lax.scatter_apply(wnp.ones(3), wnp.array([[0], [2], [2]]), double, rows, update_shape=(3,)).tolist()
    [2.0, 1.0, 4.0]
    """
    operand = ew.copy(operand) if not hasattr(type(operand), "aval") else operand
    numbers, sizes = windows.window_of_scatter(
        dimension_numbers, typeof(operand).ndim, update_shape
    )
    gather = lambda x: indexing.gather(x, scatter_indices, numbers, sizes, mode=mode, fill_value=0)
    applied = func(gather(operand))
    if not unique_indices:
        ones = layout.full(update_shape, 1, np.int32)
        times = indexing.scatter_add(
            layout.full(typeof(operand).shape, 0, np.int32),
            scatter_indices,
            ones,
            dimension_numbers,
            mode=mode,
        )
        here, most = gather(times), reduce.reduce_max(times, tuple(range(typeof(times).ndim)))
        again = lambda k, x: comparison.select(ew.gt(here, k), func(x), x)
        applied = fori_loop(1, most, again, applied)
    return indexing.scatter(
        operand,
        scatter_indices,
        applied,
        dimension_numbers,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        mode=mode,
    )


guard_all(globals())
