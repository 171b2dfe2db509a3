"""The verifier of jaxprs: each variable is bound once and before its uses, and each result has the type that the type rule returns."""

from __future__ import annotations

from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.util.errors import ProgramTypeError


def check_jaxpr(jaxpr: Jaxpr, stage: str = "") -> Jaxpr:
    """Return `jaxpr`; raise ProgramTypeError if it or a jaxpr inside of it violates an invariant. `stage` is named in the message.

    A variable must have the shape and dtype of the type rule. Weak types and varying axes may differ.
    """
    bound: set[Var] = set()
    where = f" after {stage}" if stage else ""

    def bind(var: Var, what: str) -> None:
        if var in bound:
            raise ProgramTypeError(
                f"check: {var!r} is bound twice{where}, the second time by {what}."
            )
        bound.add(var)

    def read(atom: Atom, what: str) -> None:
        if type(atom) is Literal:
            if atom.aval.ndim:
                raise ProgramTypeError(f"check: literal {atom!r} in {what} is not a scalar{where}.")
        elif atom not in bound:
            raise ProgramTypeError(f"check: {what} reads {atom!r} before it is bound{where}.")

    for var in (*jaxpr.constvars, *jaxpr.invars):
        bind(var, "the inputs")
    for eqn in jaxpr.eqns:
        what = f"equation {eqn.primitive.name}"
        for atom in eqn.invars:
            read(atom, what)
        for _, inner in subjaxprs(eqn.params):
            check_jaxpr(inner, stage)
        _check_types(eqn, what, where)
        for var in eqn.outvars:
            bind(var, what)
    for atom in jaxpr.outvars:
        read(atom, "the result")
    return jaxpr


def _check_types(eqn: Eqn, what: str, where: str) -> None:
    out_avals = eqn.primitive.abstract([a.aval for a in eqn.invars], eqn.params)
    if len(out_avals) != len(eqn.outvars):
        raise ProgramTypeError(
            f"check: {what} has {len(eqn.outvars)} results, its type rule gives {len(out_avals)}{where}."
        )
    for aval, var in zip(out_avals, eqn.outvars):
        if aval.shape != var.aval.shape or aval.dtype != var.aval.dtype:
            raise ProgramTypeError(
                f"check: {what} binds {var.aval.str_short()}, "
                f"its type rule gives {aval.str_short()}{where}."
            )
