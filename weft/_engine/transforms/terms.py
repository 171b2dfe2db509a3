"""Arrays with unreduced axes as arguments and results: their memory has the terms of a sum, along a first dim of its own.

In:   a program on values, and the layouts of its arguments and results.
Out:  the program on memory: it adds up the terms of arguments, which partitioning leaves unadded where it can, and gives those of results.
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


def on_memory(
    jaxpr: Jaxpr,
    stored: Sequence[ShapedArray],
    ins: Sequence[Sharding | None],
    outs: Sequence[Sharding | None],
) -> Jaxpr:
    """`jaxpr` on memory of the types `stored`; `ins` and `outs` are the shardings of arguments and results."""

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
