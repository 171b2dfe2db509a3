"""Memory of a local program, before code is generated: the most bytes that are live at once.

In:   the program of one device, and the arguments whose memory results take.
Out:  bytes. Arguments that are not donated live to the end; a value lives from its equation to its last reader.
Laws: results of elementwise operations and moves that only one elementwise operation or reduction reads are never stored, since
      kernels fuse them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from weft._engine.core.primitive import ElementwiseOp, LayoutOp, MovementOp, ReduceOp
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var, subjaxprs


def peak_bytes(jaxpr: Jaxpr, donated: Collection[int] = ()) -> int:
    """Return the most bytes that are live at once while `jaxpr` runs."""
    fused = _fused(jaxpr)
    last = _last_readers(jaxpr, donated)
    dying: dict[int, list[Var]] = {}
    for var, i in last.items():
        dying.setdefault(i, []).append(var)
    alive = sum(v.aval.nbytes for v in (*jaxpr.constvars, *jaxpr.invars))
    peak = alive
    for i, eqn in enumerate(jaxpr.eqns):
        inside = max((_inner_bytes(inner) for _, inner in subjaxprs(eqn.params)), default=0)
        alive += sum(v.aval.nbytes for v in eqn.outvars if v in last and v not in fused)
        peak = max(peak, alive + inside)
        alive -= sum(v.aval.nbytes for v in dying.get(i, ()) if v not in fused)
    return peak


def _inner_bytes(jaxpr: Jaxpr) -> int:
    """Return the bytes that a program in an equation holds besides its arguments, which the equation's operands hold."""
    return peak_bytes(jaxpr) - sum(v.aval.nbytes for v in jaxpr.invars)


def _last_readers(jaxpr: Jaxpr, donated: Collection[int]) -> dict[Var, int]:
    """Return the number of the last equation that reads each variable that is read; the number of equations for results."""
    last: dict[Var, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        last.update({a: i for a in eqn.invars if isinstance(a, Var)})
    end = len(jaxpr.eqns)
    last.update({a: end for a in jaxpr.outvars if isinstance(a, Var)})
    for i, var in enumerate(jaxpr.invars):
        if i not in donated:
            last[var] = end
    return last


def _fused(jaxpr: Jaxpr) -> set[Var]:
    """Return the values that are never stored: their only reader computes them."""
    reads: Counter[Var] = Counter()
    reader: dict[Var, Eqn] = {}
    for eqn in jaxpr.eqns:
        for a in {a for a in eqn.invars if isinstance(a, Var)}:
            reads[a] += 1
            reader[a] = eqn
    results = set(jaxpr.outvars)
    return {
        v
        for eqn in jaxpr.eqns
        if isinstance(eqn.primitive, (ElementwiseOp, LayoutOp, MovementOp))
        for v in eqn.outvars
        if reads[v] == 1
        and v not in results
        and isinstance(reader[v].primitive, (ElementwiseOp, ReduceOp, LayoutOp, MovementOp))
    }
