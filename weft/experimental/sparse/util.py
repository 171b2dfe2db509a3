"""Errors and warnings of sparse arrays, and the static information on one."""

from __future__ import annotations

from typing import NamedTuple


class SparseEfficiencyError(ValueError):
    """The error of an operation that would need as much memory as the dense array, or more."""


class SparseEfficiencyWarning(UserWarning):
    """The warning of an operation that needs as much memory as the dense array, or more."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """A warning that weft never issues, because it does not use cuSPARSE."""


class SparseInfo(NamedTuple):
    """The shape of a sparse array, and whether its indices are sorted and unique."""

    shape: tuple[int, ...]
    indices_sorted: bool = False
    unique_indices: bool = False
