"""Integration with SciPy's names."""

from __future__ import annotations

from weft.numpy import trapezoid
from weft.util.source import guard_all

__all__ = ["trapezoid"]


guard_all(globals())
