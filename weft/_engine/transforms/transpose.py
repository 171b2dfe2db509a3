"""Transposition: the adjoint of a linear program. It turns forward-mode into reverse-mode differentiation.

Law: dot(f(u), v) == dot(u, f_T(v)) for all u and v, with fixed values of the nonlinear inputs of f.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from weft._engine.core.annotations import cast
from weft._engine.core.interpret import literal_value
from weft._engine.core.primitive import ConstraintOp
from weft._engine.core.stage import ClosedOverRefsError, stage
from weft._engine.core.trace import (
    UndefPrimal,
    Zero,
    allow_open_shardings,
    is_undef,
    with_source,
)
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ops.elementwise import add_any
from weft._engine.ops.placement import reshard_like


def backward_pass(
    jaxpr: Jaxpr, args: Sequence[Any], cts: Sequence[Any], ignored_inputs: Sequence[int] = ()
) -> list[Any]:
    """Return the cotangents of the linear inputs of `jaxpr`, `UndefPrimal` in `args`, and None for the other inputs.

    `cts` are the cotangents of the results. Equations that do not depend on a linear input are evaluated under the current trace.
    The cotangents of the inputs at positions `ignored_inputs` are `Zero`; operations that only they need are not computed.
    """
    with allow_open_shardings():
        return _BackwardPass(jaxpr, args, ignored_inputs).run(cts)


class _BackwardPass:
    """The evaluation of a linear program from its results to its inputs."""

    def __init__(self, jaxpr: Jaxpr, args: Sequence[Any], ignored_inputs: Sequence[int]):
        self.jaxpr, self.args = jaxpr, args
        inputs = list(zip(jaxpr.invars, args))
        self.linear: set[Var] = {v for v, x in inputs if is_undef(x)}
        #: linear values whose cotangents are not computed
        self.ignored: set[Var] = {jaxpr.invars[i] for i in ignored_inputs}
        self.env: dict[Var, object] = dict(zip(jaxpr.constvars, jaxpr.consts))
        self.env.update((v, x) for v, x in inputs if not is_undef(x))
        self.cts: dict[Var, object] = {}

    def run(self, cts: Sequence[Any]) -> list[Any]:
        """Return the cotangents of the inputs, given the cotangents `cts` of the results."""
        pending = self.evaluate()
        for atom, ct in zip(self.jaxpr.outvars, cts):
            self.accumulate(atom, ct)
        for eqn in reversed(pending):
            self.transpose(eqn)
        return [
            self.cotangent(v) if is_undef(x) else None for v, x in zip(self.jaxpr.invars, self.args)
        ]

    def evaluate(self) -> list[Eqn]:
        """Evaluate the equations that do not depend on a linear input. Return the other equations whose cotangents are needed."""
        pending: list[Eqn] = []
        for eqn in self.jaxpr.eqns:
            linear_ins = [a for a in eqn.invars if self.is_linear(a)]
            if not linear_ins:
                with with_source(eqn.source):
                    outs = eqn.primitive.bind(*map(self.value, eqn.invars), **eqn.params)
                self.env.update(
                    zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs])
                )
                continue
            self.linear.update(eqn.outvars)
            if self.ignored.issuperset(linear_ins):
                self.ignored.update(eqn.outvars)
            else:
                pending.append(eqn)
        return pending

    def transpose(self, eqn: Eqn) -> None:
        """Compute the cotangents of the operands of an equation and accumulate them."""
        primitive = eqn.primitive
        # a partial sum may pass through a constraint unreduced: the operand's cotangent is reduced instead
        pop_cotangent = (
            self.pop_cotangent if isinstance(primitive, ConstraintOp) else self.pop_typed_cotangent
        )
        out_cts = [pop_cotangent(v) for v in eqn.outvars]
        if all(ct is None for ct in out_cts):
            return
        ins = [UndefPrimal(a.aval) if self.is_linear(a) else self.value(a) for a in eqn.invars]
        ct = out_cts[0]
        if primitive.multiple_results:
            ct = [
                Zero(v.aval.to_tangent_aval()) if ct is None else ct
                for v, ct in zip(eqn.outvars, out_cts)
            ]
        with with_source(eqn.source and eqn.source.mark_transposed()):
            in_cts = primitive.transpose(ct, *ins, **eqn.params)
        for atom, ct in zip(eqn.invars, in_cts):
            self.accumulate(atom, ct)

    def value(self, atom: Atom) -> Any:
        return literal_value(atom) if type(atom) is Literal else self.env[atom]

    def is_linear(self, atom: Atom) -> TypeGuard[Var]:
        return type(atom) is not Literal and atom in self.linear

    def accumulate(self, atom: Atom, ct: Any) -> None:
        """Add `ct` to the cotangent of a value."""
        if ct is None or type(ct) is Zero or not self.is_linear(atom) or atom in self.ignored:
            return
        if atom.aval.vma:
            ct = cast(ct, atom.aval.vma)
        old = self.cts.get(atom)
        self.cts[atom] = ct if old is None else add_any(old, ct)

    def pop_cotangent(self, var: Var) -> Any:
        """Remove and return the sum of the cotangents of a variable, or None."""
        return self.cts.pop(var, None)

    def pop_typed_cotangent(self, var: Var) -> Any:
        """Remove and return the sum of the cotangents of a variable with the variable's sharding, or None."""
        ct = self.pop_cotangent(var)
        if ct is None or var.aval.explicit is None:
            return ct
        return reshard_like(ct, var.aval, cotangent=True)

    def cotangent(self, var: Var) -> Any:
        """Return the cotangent of a linear input."""
        ct = self.pop_typed_cotangent(var)
        return Zero(var.aval.to_ct_aval()) if ct is None else ct


def transpose_jaxpr(
    jaxpr: Jaxpr, linear: tuple[bool, ...], ct_nonzero: tuple[bool, ...]
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """Return the transposed program, and for each linear input whether its cotangent is a result of the program.

    The inputs of the transposed program are the non-linear inputs of `jaxpr`, then the cotangents of the results marked in
    `ct_nonzero`. Its results are the nonzero cotangents of the inputs marked in `linear`. Raise UsesRefs if derivative rules
    inside of `jaxpr` use mutable arrays.
    """
    backward, nonzero, refs = transpose_with_refs(jaxpr, linear, ct_nonzero)
    if refs:
        raise ClosedOverRefsError(refs, jaxpr.name, backward)
    return backward, nonzero


def transpose_with_refs(
    jaxpr: Jaxpr, linear: tuple[bool, ...], ct_nonzero: tuple[bool, ...]
) -> tuple[Jaxpr, tuple[bool, ...], list[Any]]:
    """Return the results of `transpose_jaxpr`, and the references to mutable arrays that derivative rules in `jaxpr` use.

    The first inputs of the transposed program are then the values of the references; its last results are their final values.
    """

    def make() -> tuple[Jaxpr, tuple[bool, ...], list[Any]]:
        nonzero: list[bool] = []

        def run(*args: Any) -> list[Any]:
            n = len(linear) - sum(linear)
            fixed = iter(args[:n])
            nonzero_cts = iter(args[n:])
            ins = [
                UndefPrimal(v.aval) if lin else next(fixed) for v, lin in zip(jaxpr.invars, linear)
            ]
            cts = [
                next(nonzero_cts) if nz else Zero(a.aval.to_tangent_aval())
                for a, nz in zip(jaxpr.outvars, ct_nonzero)
            ]
            out = [ct for ct, lin in zip(backward_pass(jaxpr, ins, cts), linear) if lin]
            nonzero.extend(type(ct) is not Zero for ct in out)
            return [ct for ct in out if type(ct) is not Zero]

        avals = [v.aval for v, lin in zip(jaxpr.invars, linear) if not lin]
        avals += [a.aval.to_tangent_aval() for a, nz in zip(jaxpr.outvars, ct_nonzero) if nz]
        try:
            return stage(run, avals, jaxpr.name), tuple(nonzero), []
        except ClosedOverRefsError as used:
            return used.program, tuple(nonzero), used.refs

    return jaxpr.memo(("transpose", linear, ct_nonzero), make)
