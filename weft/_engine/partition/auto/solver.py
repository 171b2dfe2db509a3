"""The solver of integer programs and of their relaxations: HiGHS, through SciPy.

In:   costs of variables between 0 and 1, rows that bound sums of them, and which variables are whole numbers.
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


@record
class Effort:
    """Limits of a search: seconds, relative gap, and nodes of the search tree.

    Unlike seconds, nodes are the same on all machines.
    """

    seconds: float
    gap: float
    nodes: int | None = None


def minimize_integer(
    costs: Sequence[float], rows: SparseRows, whole: Sequence[int], effort: Effort
) -> Optimum | None:
    """Return the cheapest values, with 0 or 1 for the variables `whole`; None if there are none, or none were found.

    >>> one_of_two = SparseRows([0, 0], [0, 1], [1.0, 1.0], [1.0], [1.0])
    >>> minimize_integer([2.0, 1.0], one_of_two, [0, 1], Effort(10.0, 0.0)).value
    1.0
    """
    optimize: Any = importlib.import_module("scipy.optimize")  # few programs need it
    scaled = np.array(costs, np.float64)
    scale = max(float(np.max(np.abs(scaled), initial=0.0)), 1.0) / LARGEST_COST
    matrix = _matrix(rows, len(costs))
    integrality = np.zeros(len(costs))
    integrality[list(whole)] = 1
    options: dict[str, float] = {
        "time_limit": max(effort.seconds, 0.1),
        "mip_rel_gap": effort.gap,
    }
    if effort.nodes is not None:
        options["node_limit"] = effort.nodes
    result = optimize.milp(
        scaled / scale,
        constraints=optimize.LinearConstraint(matrix, np.array(rows.lower), np.array(rows.upper)),
        integrality=integrality,
        bounds=optimize.Bounds(0, 1),
        options=options,
    )
    if result.x is None:
        return None
    bound = result.fun if result.mip_dual_bound is None else result.mip_dual_bound
    return Optimum(result.x, float(result.fun) * scale, float(bound) * scale)


def _matrix(rows: SparseRows, columns: int) -> Any:
    sparse: Any = importlib.import_module("scipy.sparse")
    return sparse.csr_matrix(
        (rows.values, (rows.rows, rows.columns)), shape=(len(rows.lower), columns)
    )
