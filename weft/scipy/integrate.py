"""Integration with SciPy's names."""

from __future__ import annotations

from weft.numpy import trapezoid

__all__ = ["trapezoid"]
