"""Errors and warnings of sparse arrays, and what is known of the indices of one."""

from __future__ import annotations

from typing import NamedTuple


class SparseEfficiencyError(ValueError):
    """An operation would need as much memory as the dense array, or more."""


class SparseEfficiencyWarning(UserWarning):
    """An operation needs as much memory as the dense array, or more."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """Never given here: cuSPARSE is not used."""


class SparseInfo(NamedTuple):
    """The shape of a sparse array, and whether its indices are known to be ordered and to differ from each other."""

    shape: tuple[int, ...]
    indices_sorted: bool = False
    unique_indices: bool = False
