"""Functions of older JAX generations whose calling convention changed since."""

from collections.abc import Callable, Iterable
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


def shard_map(
    f: Callable[..., Any],
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    check_rep: bool = True,
    auto: Iterable[Any] = frozenset(),
) -> Callable[..., Any]:
    """`weft.shard_map` as called in 2023: `check_rep` is today's `check_vma`, `auto` names the axes left automatic."""
    manual = frozenset(mesh.axis_names) - frozenset(auto)
    return weft.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=manual, check_vma=check_rep)
