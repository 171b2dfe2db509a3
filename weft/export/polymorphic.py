"""Instantiation of programs with symbolic sizes.

In:   a program traced with symbolic sizes, and the size of each variable.
Out:  the program for these sizes: every expression in types, parameters and subprograms is evaluated, and `dim_as_value`
      becomes a number.
Laws: the given sizes may be symbolic, namely if a program with symbolic sizes calls an exported program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ir.symbolic import SymbolicDim, evaluate
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import dim_as_value_p
from weft._engine.util.record import replace


class InstantiatedJaxpr(Jaxpr):
    """A program for all sizes, or for several platforms, instantiated for given ones."""

    __slots__ = ()


def is_polymorphic(jaxpr: Jaxpr) -> bool:
    """Return True if a program has symbolic sizes or several platforms, or calls an exported program with either."""
    return (
        isinstance(jaxpr, InstantiatedJaxpr)
        or any(isinstance(n, SymbolicDim) for aval in jaxpr.in_avals for n in aval.shape)
        or any(is_polymorphic(inner) for eqn in jaxpr.eqns for _, inner in subjaxprs(eqn.params))
    )


def instantiate(jaxpr: Jaxpr, sizes: Mapping[str, Any]) -> Jaxpr:
    """Return the program for these sizes, which must satisfy its constraints."""
    return _Instance(sizes).program(jaxpr)


@dataclass
class _Instance:
    sizes: Mapping[str, Any]
    programs: dict[int, Jaxpr] = field(default_factory=dict)

    def value(self, v: Any) -> Any:
        """Return a parameter or type with its sizes evaluated; the same object if it has none."""
        if isinstance(v, SymbolicDim):
            return evaluate(v.expression, self.sizes)
        if isinstance(v, Jaxpr):
            return self.program(v)
        if isinstance(v, ShapedArray):
            shape = self.items(v.shape)
            return v if shape is v.shape else v.update(shape=shape)
        if type(v) is dict:
            return {key: self.value(part) for key, part in v.items()}
        if isinstance(v, (tuple, list)):
            return self.items(v)
        if isinstance(v, type):
            return v
        if dataclasses.is_dataclass(v):
            return self.fields(
                v, [f.name for f in dataclasses.fields(v) if f.init], dataclasses.replace
            )
        return self.fields(v, v.__match_args__, replace) if hasattr(v, "__record__") else v

    def items(self, v: Any) -> Any:
        """Return a tuple or list with its sizes evaluated; the same object if it has none."""
        parts = [self.value(part) for part in v]
        if all(new is old for new, old in zip(parts, v)):
            return v
        return type(v)(*parts) if hasattr(v, "_fields") else type(v)(parts)

    def fields(self, v: Any, names: Sequence[str], replaced: Callable[..., Any]) -> Any:
        """Return a dataclass or record with its sizes evaluated."""
        changed = {
            name: new
            for name in names
            if (new := self.value(getattr(v, name))) is not getattr(v, name)
        }
        return replaced(v, **changed) if changed else v

    def program(self, jaxpr: Jaxpr) -> Jaxpr:
        known = self.programs.get(id(jaxpr))
        if known is not None:
            return known
        atoms: dict[Atom, Atom] = {}

        def define(v: Var) -> Var:
            new = atoms[v] = type(v)(self.value(v.aval))
            return new

        def atom(a: Atom) -> Atom:
            return atoms[a] if isinstance(a, Var) else a

        constvars, invars = [define(v) for v in jaxpr.constvars], [define(v) for v in jaxpr.invars]
        eqns = []
        for eqn in jaxpr.eqns:
            params = self.value(eqn.params)
            if eqn.primitive is dim_as_value_p and not isinstance(params["size"], SymbolicDim):
                size, dtype = params["size"], params["dtype"]
                atoms[eqn.outvars[0]] = Literal(
                    size if dtype is None else np.asarray(size, dtype)[()], eqn.outvars[0].aval
                )
                continue
            operands = [atom(a) for a in eqn.invars]
            eqns.append(
                Eqn(
                    eqn.primitive,
                    operands,
                    [define(v) for v in eqn.outvars],
                    params,
                    eqn.source,
                    eqn.effects,
                )
            )
        outvars = [atom(a) for a in jaxpr.outvars]
        instance = self.programs[id(jaxpr)] = InstantiatedJaxpr(
            constvars, jaxpr.consts, invars, outvars, eqns, jaxpr.effects, jaxpr.name
        )
        return instance
