"""Functions of older JAX generations whose calling convention changed since."""

from collections.abc import Callable
from typing import Any

import weft


def pjit(
    fun: Callable[..., Any],
    in_shardings: Any = None,
    out_shardings: Any = None,
    *,
    in_axis_resources: Any = None,
    out_axis_resources: Any = None,
    **keywords: Any,
) -> Callable[..., Any]:
    """`weft.jit` under its name of 2022; `*_axis_resources` are what `*_shardings` are called today."""
    if in_axis_resources is not None:
        in_shardings = in_axis_resources
    if out_axis_resources is not None:
        out_shardings = out_axis_resources
    if in_shardings is not None:
        keywords["in_shardings"] = in_shardings
    if out_shardings is not None:
        keywords["out_shardings"] = out_shardings
    return weft.jit(fun, **keywords)
