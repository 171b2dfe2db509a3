"""The solver of integer programs: HiGHS, through SciPy.

In:   costs of variables between 0 and 1, rows that bound sums of them, and how many of the first variables are whole numbers.
Out:  the values of the variables, the cost, and a lower bound of any cost.
Laws: equal programs have equal solutions, unless a time limit stops the search.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from weft._engine.util.record import record

#: costs are scaled so that the largest has this value: the tolerances of the solver are absolute
LARGEST_COST = 1e6


@record
class SparseRows:
    """Rows of a sparse matrix as triples, and the bounds of each row's product with the variables."""

    rows: list[int]
    columns: list[int]
    values: list[float]
    lower: list[float]
    upper: list[float]

    def copy(self) -> SparseRows:
        """Return rows to which others can be added."""
        return SparseRows(
            [*self.rows], [*self.columns], [*self.values], [*self.lower], [*self.upper]
        )

    def append(self, terms: Sequence[tuple[int, float]], lower: float, upper: float) -> None:
        """Add a row."""
        self.rows.extend([len(self.lower)] * len(terms))
        self.columns.extend(column for column, _ in terms)
        self.values.extend(value for _, value in terms)
        self.lower.append(lower)
        self.upper.append(upper)


@record
class Optimum:
    """Values of the variables, their cost, and a lower bound of the cost of any solution."""

    x: npt.NDArray[np.float64]
    value: float
    bound: float


def minimize_integer(
    costs: Sequence[float], rows: SparseRows, binaries: int, seconds: float, gap: float
) -> Optimum | None:
    """Return the cheapest values; None if there are none, or none were found in `seconds`.

    The search stops when the cost is within the relative `gap` of the bound.

    >>> one_of_two = SparseRows([0, 0], [0, 1], [1.0, 1.0], [1.0], [1.0])
    >>> minimize_integer([2.0, 1.0], one_of_two, 2, 10.0, 0.0).value
    1.0
    """
    optimize: Any = importlib.import_module("scipy.optimize")  # few programs need it
    sparse: Any = importlib.import_module("scipy.sparse")
    scaled = np.array(costs, np.float64)
    scale = max(float(np.max(np.abs(scaled), initial=0.0)), 1.0) / LARGEST_COST
    matrix = sparse.csr_matrix(
        (rows.values, (rows.rows, rows.columns)), shape=(len(rows.lower), len(costs))
    )
    integrality = np.zeros(len(costs))
    integrality[:binaries] = 1
    result = optimize.milp(
        scaled / scale,
        constraints=optimize.LinearConstraint(matrix, np.array(rows.lower), np.array(rows.upper)),
        integrality=integrality,
        bounds=optimize.Bounds(0, 1),
        options={"time_limit": max(seconds, 0.1), "mip_rel_gap": gap},
    )
    if result.x is None:
        return None
    bound = result.fun if result.mip_dual_bound is None else result.mip_dual_bound
    return Optimum(result.x, float(result.fun) * scale, float(bound) * scale)
