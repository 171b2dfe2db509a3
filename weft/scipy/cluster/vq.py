"""Vector quantization with SciPy's names."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.numpy.promote import all_inexact
from weft._engine.util.source import guard_all

__all__ = ["vq"]


def vq(obs, code_book, check_finite: bool = True):
    """Return for each observation the number of the nearest code and the distance to it.

    >>> [v.tolist() for v in vq(wnp.array([[0.0, 1.0], [5.0, 5.0]]), wnp.array([[0.0, 0.0], [5.0, 5.0]]))]
    [[0, 1], [1.0, 0.0]]
    """
    x, codes = (wnp.asarray(v) for v in all_inexact("vq", obs, code_book))
    if x.ndim != codes.ndim or x.ndim not in (1, 2):
        raise ValueError(
            f"vq: observations and codes must both have one or two dims, got {x.ndim} and {codes.ndim}."
        )
    x, codes = (v[:, None] if v.ndim == 1 else v for v in (x, codes))
    distance = wnp.linalg.norm(x[:, None, :] - codes[None], axis=-1)
    return wnp.argmin(distance, -1), wnp.min(distance, -1)


guard_all(globals())
