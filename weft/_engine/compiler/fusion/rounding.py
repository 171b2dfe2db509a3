"""Rounding of 16-bit values: the values that are rounded where they are computed, and not only where they are stored.

In:   a jaxpr.
Out:  `find_rounded_values`: its shared 16-bit values whose rounding a reader can observe.
Laws: all readers of such a value read the same bits. Kernels compute 16-bit values in 32 bits, so a kernel that loads a stored
      value and a kernel that recomputes it would read different bits. A comparison observes the difference (`y == max(y)`), and
      so does the user of a result. A sum or product differs by rounding only.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from weft._engine.compiler.fusion.classify import LoweringKind, computes, is_sum, lowering_kind
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.util import dtypes
from weft._engine.util.dtypes import is_half

#: operations of Loops on floats that are discontinuous or return one of their operands
_STEPS = frozenset({"max", "min", "floor", "ceil", "nextafter"})


def find_rounded_values(jaxpr: Jaxpr) -> frozenset[Var]:
    """Return the 16-bit values with several readers that are results, or whose rounding an op observes directly or through other ops."""
    halves = [var for eqn in jaxpr.eqns for var in eqn.outvars if is_half(var.aval.dtype)]
    if not halves:
        return frozenset()
    results = [atom for atom in jaxpr.outvars if type(atom) is not Literal]
    readers = Counter(results)
    observed: set[Var] = set()
    for eqn in reversed(jaxpr.eqns):
        operands = [atom for atom in dict.fromkeys(eqn.invars) if type(atom) is not Literal]
        readers.update(operands)
        if _observes(eqn) or (
            lowering_kind(eqn) is LoweringKind.PULL and not observed.isdisjoint(eqn.outvars)
        ):
            observed.update(operands)
    observed.update(results)
    return frozenset([var for var in halves if readers[var] > 1 and var in observed])


def _observes(eqn: Eqn) -> bool:
    """Return whether close operands may have results that are not close, or the op reads its operands, rounded, from memory."""
    kind = lowering_kind(eqn)
    if kind is LoweringKind.PULL:
        gives_floats = dtypes.issubdtype(eqn.outvars[0].aval.dtype, np.inexact)
        return (
            not gives_floats
            or computes(eqn) in _STEPS
            or getattr(eqn.primitive, "is_discontinuous", False)
        )
    return kind is not LoweringKind.CONTRACT and not is_sum(eqn)
