"""Arrays with unreduced axes as arguments and results. They are stored as the terms of a sum, along an extra first dim.

In:   a program on values, and the shardings of its arguments and results.
Out:  the program on stored arrays. It sums the terms of unreduced arguments (the partitioner delays these sums where it can) and
      returns the terms of unreduced results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from weft._engine.core.interpret import evaluate
from weft._engine.core.stage import stage
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.placement import sum_of_terms, terms


def lower_unreduced(
    jaxpr: Jaxpr,
    stored: Sequence[ShapedArray],
    ins: Sequence[Sharding | None],
    outs: Sequence[Sharding | None],
) -> Jaxpr:
    """Return `jaxpr` as a program on stored arrays of types `stored`; `ins` and `outs` are the shardings of arguments and results."""

    def run(*args: Any) -> list[Any]:
        values = [
            sum_of_terms(x, s.term_axes) if _is_unreduced(s) else x for x, s in zip(args, ins)
        ]
        return [
            terms(x, s.mesh, s.term_axes) if _is_unreduced(s) else x
            for x, s in zip(evaluate(jaxpr, *values), outs)
        ]

    return stage(run, stored, jaxpr.name)


def _is_unreduced(sharding: Sharding | None) -> TypeGuard[NamedSharding]:
    return isinstance(sharding, NamedSharding) and bool(sharding.unreduced)
