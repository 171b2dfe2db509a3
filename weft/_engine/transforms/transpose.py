"""Transposition: the adjoint of a linear program, which turns forward into reverse mode.

Law: for all u, v:  dot(f(u), v) == dot(u, f_T(v)), inputs that f is not linear in held fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.core.annotations import cast
from weft._engine.core.interpret import _literal
from weft._engine.core.stage import UsesRefs, stage
from weft._engine.core.trace import UndefPrimal, Zero, is_undef, lenient, with_source
from weft._engine.ir.jaxpr import Jaxpr, Literal, Var
from weft._engine.ops.elementwise import add_any
from weft._engine.ops.placement import laid_out_as


def backward_pass(
    jaxpr: Jaxpr, args: Sequence, cts: Sequence, unwanted: Sequence[int] = ()
) -> list:
    """Cotangents of the inputs of `jaxpr` given as `UndefPrimal` in `args` (None for the others), from those of its outputs.

    Equations that do not depend on a linear input are evaluated as they are, under the current trace. What only the cotangents of
    inputs `unwanted` need is not computed; these are zeros.
    """
    with lenient():
        return _backward(jaxpr, args, cts, unwanted)


def _backward(jaxpr: Jaxpr, args: Sequence, cts: Sequence, unwanted: Sequence[int] = ()) -> list:
    env: dict[Var, object] = dict(zip(jaxpr.constvars, jaxpr.consts))
    linear: set[Var] = set()
    ignored: set[Var] = {jaxpr.invars[i] for i in unwanted}
    for var, arg in zip(jaxpr.invars, args):
        if is_undef(arg):
            linear.add(var)
        else:
            env[var] = arg

    def value(atom):
        return _literal(atom) if type(atom) is Literal else env[atom]

    def is_linear(atom) -> bool:
        return type(atom) is not Literal and atom in linear

    pending = []
    for eqn in jaxpr.eqns:
        if any(map(is_linear, eqn.invars)):
            linear.update(eqn.outvars)
            if ignored and all(a in ignored for a in eqn.invars if is_linear(a)):
                ignored.update(eqn.outvars)
            else:
                pending.append(eqn)
            continue
        with with_source(eqn.source):
            outs = eqn.primitive.bind(*map(value, eqn.invars), **eqn.params)
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))

    ct_env: dict[Var, object] = {}

    def accumulate(atom, ct) -> None:
        if ct is None or type(ct) is Zero or not is_linear(atom) or atom in ignored:
            return
        if atom.aval.vma:
            ct = cast(ct, atom.aval.vma)
        old = ct_env.get(atom)
        ct_env[atom] = ct if old is None else add_any(old, ct)

    def finished(atom):
        """The sum of the cotangents of a variable, of its type."""
        ct = ct_env.pop(atom, None)
        return (
            ct
            if ct is None or atom.aval.explicit is None
            else laid_out_as(ct, atom.aval, cotangent=True)
        )

    for atom, ct in zip(jaxpr.outvars, cts):
        accumulate(atom, ct)
    for eqn in reversed(pending):
        passes = (
            eqn.primitive.kind == "constraint"
        )  # a partial sum may pass it, to be completed where the operand is
        out_cts = [ct_env.pop(v, None) if passes else finished(v) for v in eqn.outvars]
        if all(ct is None for ct in out_cts):
            continue
        ins = [UndefPrimal(a.aval) if is_linear(a) else value(a) for a in eqn.invars]
        rule = eqn.primitive.rule("transpose")
        with with_source(eqn.source and eqn.source.transposed()):
            if eqn.primitive.multiple_results:
                out_cts = [
                    Zero(v.aval.to_tangent_aval()) if ct is None else ct
                    for v, ct in zip(eqn.outvars, out_cts)
                ]
                in_cts = rule(out_cts, *ins, **eqn.params)
            else:
                in_cts = rule(out_cts[0], *ins, **eqn.params)
        for atom, ct in zip(eqn.invars, in_cts):
            accumulate(atom, ct)
    found = [finished(v) if is_undef(a) else None for v, a in zip(jaxpr.invars, args)]
    return [
        Zero(v.aval.to_ct_aval()) if ct is None and is_undef(a) else ct
        for v, a, ct in zip(jaxpr.invars, args, found)
    ]


def transpose_jaxpr(
    jaxpr: Jaxpr, linear: tuple[bool, ...], ct_nonzero: tuple[bool, ...]
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """The program that takes the non-linear inputs, then the nonzero output cotangents, and gives the nonzero cotangents of
    the `linear` inputs; with it, which of the linear inputs those belong to."""
    backward, nonzero, refs = transpose_with_refs(jaxpr, linear, ct_nonzero)
    if refs:
        raise UsesRefs(refs, jaxpr.name, backward)
    return backward, nonzero


def transpose_with_refs(
    jaxpr: Jaxpr, linear: tuple[bool, ...], ct_nonzero: tuple[bool, ...]
) -> tuple[Jaxpr, tuple[bool, ...], list]:
    """The same, and the references to mutable arrays that derivative rules inside of it use: then the program takes their values first, and
    gives their last values last."""

    def make():
        nonzero: list[bool] = []

        def run(*args):
            n = len(linear) - sum(linear)
            fixed = iter(args[:n])
            given = iter(args[n:])
            ins = [
                UndefPrimal(v.aval) if lin else next(fixed) for v, lin in zip(jaxpr.invars, linear)
            ]
            cts = [
                next(given) if nz else Zero(a.aval.to_tangent_aval())
                for a, nz in zip(jaxpr.outvars, ct_nonzero)
            ]
            out = [ct for ct, lin in zip(backward_pass(jaxpr, ins, cts), linear) if lin]
            nonzero.extend(type(ct) is not Zero for ct in out)
            return [ct for ct in out if type(ct) is not Zero]

        avals = [v.aval for v, lin in zip(jaxpr.invars, linear) if not lin]
        avals += [a.aval.to_tangent_aval() for a, nz in zip(jaxpr.outvars, ct_nonzero) if nz]
        try:
            return stage(run, avals, jaxpr.name), tuple(nonzero), []
        except UsesRefs as used:
            return used.program, tuple(nonzero), used.refs

    return jaxpr.memo(("transpose", linear, ct_nonzero), make)
