"""Cost estimates of functions, for `pallas_call(cost_estimate=...)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._engine.api.arrays import make_jaxpr
from weft._engine.pallas.specs import CostEstimate
from weft._engine.util.source import api_boundary


@api_boundary
def estimate_cost(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> CostEstimate:
    """Return the cost of the operations of `fun` on arguments of these types.

    It counts floating-point operations and transcendental functions, each once per computed
    element, including sums and loops, and the bytes of arguments and results.

    Arguments are arrays or `ShapeDtypeStruct`s; nothing runs. For the cost of the program that
    `jit` compiles, with fusion, use its `cost_analysis()`.

    >>> from weft.experimental import pallas as pl
    >>> pl.estimate_cost(lambda x, y: wnp.exp(x + y), wnp.ones(10), wnp.ones(10))
    CostEstimate(flops=10, transcendentals=10, bytes_accessed=120, remote_bytes_transferred=0)
    """
    from weft._engine.hlo.cost import module_cost
    from weft._engine.hlo.text.hlo_text import lower_global

    program = make_jaxpr(fun)(*args, **kwargs)
    cost = module_cost(lower_global(program, "estimated"))
    nbytes = sum(
        aval.size * aval.dtype.itemsize for aval in (*program.in_avals, *program.out_avals)
    )
    return CostEstimate(int(cost["flops"]), int(cost["transcendentals"]), nbytes)
