"""Narrowing of reductions that convert 16-bit floats to 32 bits, reduce, and convert back.

In, out: jaxprs. `convert(reduce(convert(x, float32)), float16)` becomes the reduction of `x` itself, for which kernels accumulate in
32 bits anyway and round stored results. If a kernel also contains the readers of the result, the result is then not rounded in
between, as any other 16-bit value that is never stored.
"""

from __future__ import annotations

import numpy as np

from weft._engine.compiler.fusion.classify import LoweringKind, computes, lowering_kind, moves
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import dce, use_counts
from weft._engine.util.dtypes import is_half


def narrow_reductions(jaxpr: Jaxpr) -> Jaxpr:
    """Replace 32-bit reductions of 16-bit floats whose results are only read in 16 bits by reductions in 16 bits."""
    maker: dict[Var, Eqn] = {}
    uses: dict[Var, int] = {}
    eqns: list[Eqn] = []
    changed = False
    for eqn in jaxpr.eqns:
        new_eqns = [eqn]
        if (
            computes(eqn) == "cast"
            and eqn.invars[0].aval.dtype == np.float32
            and is_half(eqn.outvars[0].aval.dtype)
        ):
            uses = uses or use_counts(jaxpr)
            new_eqns = _narrow_reduction(eqn, maker, uses) or new_eqns
            changed = changed or new_eqns[0] is not eqn
        eqns += new_eqns
        maker.update({v: new for new in new_eqns for v in new.outvars})
    return dce(jaxpr.replace(eqns=eqns)) if changed else jaxpr


def _narrow_reduction(cast: Eqn, maker: dict[Var, Eqn], uses: dict[Var, int]) -> list[Eqn] | None:
    """Return equations that compute the result of `cast` by a reduction in its dtype; None if it is no such reduction."""
    dtype = cast.outvars[0].aval.dtype
    path = _reduction(cast.invars[0], maker, uses)
    narrowed: list[Eqn] = []
    atom = _narrow(path[-1].invars[0], dtype, maker, narrowed) if path else None
    if path is None or atom is None:
        return None
    for step in reversed(path):
        out = cast.outvars[0] if step is path[0] else Var(step.outvars[0].aval.update(dtype=dtype))
        narrowed.append(step.replace(invars=[atom], outvars=[out]))
        atom = out
    return narrowed


def _reduction(atom: Atom, maker: dict[Var, Eqn], uses: dict[Var, int]) -> list[Eqn] | None:
    """Return the path from a value back to a reduction, through equations that move elements, last first; None if there is no such
    path or a value on it has other readers."""
    path: list[Eqn] = []
    while type(atom) is Var and uses[atom] == 1 and (producer := maker.get(atom)) is not None:
        path.append(producer)
        if lowering_kind(producer) is LoweringKind.REDUCE:
            return path if producer.outvars[0].aval.dtype == producer.invars[0].aval.dtype else None
        if moves(producer) not in ("repeat", "reshape", "permute"):
            return None
        atom = producer.invars[0]
    return None


def _narrow(atom: Atom, dtype: np.dtype, maker: dict[Var, Eqn], new_eqns: list[Eqn]) -> Atom | None:
    """Return `atom` in 16 bits, without rounding, by equations appended to `new_eqns`; None if it is not computed from 16-bit values."""
    if type(atom) is Literal:
        value = np.asarray(atom.val).astype(dtype)
        return (
            Literal(value[()], atom.aval.update(dtype=dtype))
            if value.astype(np.float32) == atom.val
            else None
        )
    eqn = maker.get(atom)
    if eqn is None:
        return None
    if computes(eqn) == "cast":
        return eqn.invars[0] if eqn.invars[0].aval.dtype == dtype else None
    if computes(eqn) != "select":
        return None
    cases = [
        case for a in eqn.invars[1:] if (case := _narrow(a, dtype, maker, new_eqns)) is not None
    ]
    if len(cases) < len(eqn.invars) - 1:
        return None
    out = Var(atom.aval.update(dtype=dtype))
    new_eqns.append(eqn.replace(invars=[eqn.invars[0], *cases], outvars=[out]))
    return out
