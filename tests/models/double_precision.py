"""Evaluation of a program's jaxpr in float64.

In:   a jaxpr with float32 values.
Out:  the same program with float64 in place of float32 and complex128 in place of complex64, at
      every depth. Values of other dtypes keep their bits, random bits among them.
How:  inputs and constants are widened float32 numbers. A cast between a number and its bits
      happens in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.ir.check import check_jaxpr
from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.casting import bitcast_convert_type_p, convert_element_type_p
from weft._engine.verification.evaluation import op_by_op

WIDER = {
    np.dtype("float32"): np.dtype("float64"),
    np.dtype("complex64"): np.dtype("complex128"),
}


def evaluate_in_float64(jaxpr: Jaxpr, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of a float32 program computed in float64 on NumPy."""
    widened = check_jaxpr(widen(jaxpr), "widening")
    return op_by_op(widened, [_wide_array(np.asarray(x)) for x in args])


def widen(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with wider floats."""
    return _Widener(jaxpr).run()


class _Widener:
    """The widening of one jaxpr; inner ones have their own."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.known: dict[Var, Var] = {}
        self.eqns: list[Eqn] = []

    def run(self) -> Jaxpr:
        jaxpr = self.jaxpr
        constvars = [self.bind(v) for v in jaxpr.constvars]
        invars = [self.bind(v) for v in jaxpr.invars]
        for eqn in jaxpr.eqns:
            if eqn.primitive is bitcast_convert_type_p:
                self.widen_bitcast(eqn)
            else:
                self.widen_eqn(eqn)
        consts = [_wide_constant(c) for c in jaxpr.consts]
        outvars = [self.read(a) for a in jaxpr.outvars]
        return Jaxpr(constvars, consts, invars, outvars, self.eqns, jaxpr.effects, jaxpr.name)

    def bind(self, var: Var) -> Var:
        wide = self.known[var] = type(var)(_wide_type(var.aval))
        return wide

    def read(self, atom: Atom) -> Atom:
        if type(atom) is not Literal:
            return self.known[atom]
        aval = _wide_type(atom.aval)
        return atom if aval is atom.aval else Literal(aval.dtype.type(atom.val), aval)

    def widen_eqn(self, eqn: Eqn) -> None:
        ins = [self.read(a) for a in eqn.invars]
        params = {name: _wide_value(value) for name, value in eqn.params.items()}
        outs = [self.bind(v) for v in eqn.outvars]
        self.eqns.append(eqn.replace(invars=ins, outvars=outs, params=params))

    def widen_bitcast(self, eqn: Eqn) -> None:
        """Cast to and from float32 around a cast of bits."""
        (atom,), (var,) = eqn.invars, eqn.outvars
        operand = self.read(atom)
        if operand.aval.dtype != atom.aval.dtype:
            operand = self.convert(operand, Var(atom.aval))
        bits = Var(var.aval)
        self.eqns.append(eqn.replace(invars=[operand], outvars=[bits]))
        if type(var) is not DropVar:
            self.convert(bits, self.bind(var))

    def convert(self, operand: Atom, result: Var) -> Var:
        params = {"new_dtype": result.aval.dtype, "weak_type": False, "sharding": None}
        self.eqns.append(Eqn(convert_element_type_p, [operand], [result], params))
        return result


def _wide_type(aval: ShapedArray) -> ShapedArray:
    wide = _wide_dtype(aval.dtype)
    return aval if wide is aval.dtype else aval.update(dtype=wide)


def _wide_dtype(dtype: Any) -> Any:
    return WIDER.get(dtype, dtype) if isinstance(dtype, np.dtype) else dtype


def _wide_array(x: np.ndarray) -> np.ndarray:
    return x.astype(_wide_dtype(x.dtype), copy=False)


def _wide_constant(constant: Any) -> Any:
    dtype = getattr(constant, "dtype", None)
    return _wide_array(np.asarray(constant)) if _wide_dtype(dtype) is not dtype else constant


def _wide_value(value: Any) -> Any:
    """Return a param with the dtypes, types and programs in it widened."""
    if isinstance(value, Jaxpr):
        return widen(value)
    if isinstance(value, ShapedArray):
        return _wide_type(value)
    if isinstance(value, np.dtype):
        return _wide_dtype(value)
    if isinstance(value, type) and issubclass(value, np.generic):
        return _wide_dtype(np.dtype(value)).type
    if type(value) in (tuple, list):
        return type(value)(_wide_value(v) for v in value)
    return value
