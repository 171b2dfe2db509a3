"""Exchanges between processes: the collectives that remain in the program of one process.

In:   collectives of a local program whose mesh axes span processes (`partition.exchanges` binds
      these).
Out:  equations on dense arrays: `exchange` sends and receives, `process_position` returns the
      position of this process.
Laws: exchanged values have the layout of a `processes.collective_plan.CollectivePlan`: whole, or with a
      leading dim of one entry per rank of the group. The equation is the same in every process, so
      that one compilation serves all of them; the rank of a process is supplied when the program is
      loaded.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft._engine.core.primitive import ExchangeOp, Primitive, declare_unsupported
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.lowering_specs import ExchangeSpec

_ALONE = "It is defined only in a program that several processes run."


def _primitive(name: str, role: Any) -> Primitive:
    p = ExchangeOp(name, register=False)
    rules = dict.fromkeys(
        ("jvp", "transpose", "batch", "factors", "reference"), declare_unsupported(_ALONE)
    )
    return p.define(lower=ExchangeSpec(role), **rules)


#: params: kind, op, groups, pairs as in `CollectivePlan`; `source`: the user's line
exchange_p = _primitive("exchange", "exchange")
#: params: table: pairs of a rank and its position
process_position_p = _primitive("process_position", "position")
#: marks where the result of an exchange is needed: takes its operand and its result, returns
#: nothing; the schedule adds it
exchange_done_p = _primitive("exchange_done", "done")
exchange_done_p.multiple_results = True


def role_of(eqn: Eqn) -> str | None:
    """Return the role of an equation in an exchange (see `families.ExchangeSpec`), or None."""
    return eqn.primitive.lower.role if isinstance(eqn.primitive, ExchangeOp) else None


@exchange_p.def_type
def _exchange_type(
    aval: ShapedArray,
    *,
    kind: str,
    op: str | None,
    groups: tuple[Any, ...],
    pairs: tuple[Any, ...],
    source: Any,
) -> ShapedArray:
    shape = aval.shape
    if kind == "all_gather":
        shape = (len(groups[0]), *shape)
    elif kind == "reduce_scatter":
        shape = shape[1:]
    return aval.update(shape=shape, sharding=None, weak_type=False)


@process_position_p.def_type
def _position_type(*, table: tuple[Any, ...]) -> ShapedArray:
    return ShapedArray((), np.dtype(np.int32))


@exchange_done_p.def_type
def _done_type(*avals: ShapedArray) -> tuple[Any, ...]:
    return ()


def bytes_sent(kind: str, nbytes: int, size: int) -> int:
    """Return the bytes that each process of a group of `size` sends for an operand of `nbytes`.

    Collectives use ring algorithms.

    >>> bytes_sent("all_reduce", 1024, 4), bytes_sent("all_gather", 1024, 4), bytes_sent("permute", 1024, 4)
    (1536, 3072, 1024)
    """
    if kind == "all_reduce":
        return 2 * nbytes * (size - 1) // size
    if kind == "all_gather":
        return nbytes * (size - 1)
    return nbytes * (size - 1) // size if kind in ("reduce_scatter", "all_to_all") else nbytes


def count_of(kind: str, aval: ShapedArray, size: int) -> int:
    """Return the `count` of a plan for an operand."""
    n = math.prod(aval.shape)
    return n // size if kind == "reduce_scatter" else n
