"""Reductions of 16-bit floats that a program writes in 32 bits are reductions of 16-bit floats.

In, out: jaxprs. `convert(reduce(convert(x, float32)), float16)` is what the reduction of `x` itself means: kernels accumulate in 32 bits
and round what they store. Said so, kernels that read the result where it is made do not round it in between, as they do not round any
other 16-bit value that is never stored.
"""

from __future__ import annotations

import numpy as np

from weft._engine.compiler.fusion.classify import LoweringKind, computes, lowering_kind, moves
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import dce, use_counts
from weft._engine.util.dtypes import is_half


def narrow_reductions(jaxpr: Jaxpr) -> Jaxpr:
    """The program with reductions in 32 bits of 16-bit floats, read in 16 bits alone, as reductions of what they are of."""
    maker: dict[Var, Eqn] = {}
    uses: dict[Var, int] = {}
    eqns: list[Eqn] = []
    changed = False
    for eqn in jaxpr.eqns:
        now = [eqn]
        if (
            computes(eqn) == "cast"
            and eqn.invars[0].aval.dtype == np.float32
            and is_half(eqn.outvars[0].aval.dtype)
        ):
            uses = uses or use_counts(jaxpr)
            now = _narrowed(eqn, maker, uses) or now
            changed = changed or now[0] is not eqn
        eqns += now
        maker.update({v: made for made in now for v in made.outvars})
    return dce(jaxpr.replace(eqns=eqns)) if changed else jaxpr


def _narrowed(cast: Eqn, maker: dict[Var, Eqn], uses: dict[Var, int]) -> list[Eqn] | None:
    """The equations that give the result of `cast` from a reduction in its dtype; None if it is no such reduction."""
    dtype = cast.outvars[0].aval.dtype
    path = _reduction(cast.invars[0], maker, uses)
    made: list[Eqn] = []
    atom = _narrow(path[-1].invars[0], dtype, maker, made) if path else None
    if path is None or atom is None:
        return None
    for step in reversed(path):
        out = cast.outvars[0] if step is path[0] else Var(step.outvars[0].aval.update(dtype=dtype))
        made.append(step.replace(invars=[atom], outvars=[out]))
        atom = out
    return made


def _reduction(atom: Atom, maker: dict[Var, Eqn], uses: dict[Var, int]) -> list[Eqn] | None:
    """From what moves the elements of a reduction's result, last first, to the reduction, if nothing else reads any of it."""
    path: list[Eqn] = []
    while type(atom) is Var and uses[atom] == 1 and (made := maker.get(atom)) is not None:
        path.append(made)
        if lowering_kind(made) is LoweringKind.REDUCE:
            return path if made.outvars[0].aval.dtype == made.invars[0].aval.dtype else None
        if moves(made) not in ("repeat", "reshape", "permute"):
            return None
        atom = made.invars[0]
    return None


def _narrow(atom: Atom, dtype: np.dtype, maker: dict[Var, Eqn], made: list[Eqn]) -> Atom | None:
    """`atom` in 16 bits, exactly, by equations added to `made`; None if it is not made from such."""
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
    cases = [case for a in eqn.invars[1:] if (case := _narrow(a, dtype, maker, made)) is not None]
    if len(cases) < len(eqn.invars) - 1:
        return None
    out = Var(atom.aval.update(dtype=dtype))
    made.append(eqn.replace(invars=[eqn.invars[0], *cases], outvars=[out]))
    return out
