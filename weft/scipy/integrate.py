"""Integration with SciPy's names."""

from __future__ import annotations

from weft._engine.util.source import guard_all
from weft.numpy import trapezoid

__all__ = ["trapezoid"]


guard_all(globals())
