"""Rules of a `VJPHiPrimitive` derived from other rules: `lin` from `jvp`, `vjp_fwd` from both."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft._engine.core.interpret import evaluate
from weft._engine.core.stage import stage
from weft._engine.core.trace import UndefPrimal, set_trace, trace_state
from weft._engine.transforms.jvp import instantiate
from weft._engine.transforms.linearize import LinearTrace
from weft._engine.transforms.transpose import backward_pass
from weft._engine.util import tree
from weft.experimental.hijax.values import lower_values, raise_values
from weft.experimental.hijax.vjp_primitive import VJPHiPrimitive, flat_tangents


def _linear_program(prim: VJPHiPrimitive, primals: tuple) -> tuple[Any, Any]:
    """Return the result of `jvp` at a point, and the program of its tangents with the residuals as constants."""
    linear = LinearTrace(trace_state.trace)
    name, types, out_types = (
        type(prim).__name__,
        *[
            [a.to_tangent_aval() for a in avals]
            for avals in (prim.in_avals_flat, prim.out_avals_flat)
        ],
    )
    lo_tangents = [linear.new_arg(lo) for a in types for lo in a.lo_ty()]
    try:
        with set_trace(linear):
            out, out_tangents = prim.jvp(
                primals, tree.tree_unflatten(prim.in_tree, raise_values(types, lo_tangents))
            )
            flat = lower_values(
                name, out_types, flat_tangents(prim, out_tangents, "the tangent of jvp")
            )
        program = linear.to_jaxpr(lo_tangents, flat)
    finally:
        linear.finished = True
    return out, program


def _lin_from_jvp(self, nzs_in, *primals):
    out, program = _linear_program(self, primals)

    def run(consts, *tangents):
        ins, outs = [
            [a.to_tangent_aval() for a in avals]
            for avals in (self.in_avals_flat, self.out_avals_flat)
        ]
        results = evaluate(
            program.replace(consts=consts),
            *lower_values(type(self).__name__, ins, tree.tree_leaves(tangents)),
        )
        return tree.tree_unflatten(self.out_tree, raise_values(outs, results))

    return out, tree.Partial(run, program.consts)


def _linearized_from_jvp(self, residuals, *tangents):
    return residuals(*tangents)


def _transpose(prim: VJPHiPrimitive, linear: Callable, ct: Any) -> tuple:
    """Return the cotangents of the arguments of a linear function of tangents."""
    name = type(prim).__name__
    types, out_types = [
        [a.to_tangent_aval() for a in avals] for avals in (prim.in_avals_flat, prim.out_avals_flat)
    ]
    flat = lambda *ts: lower_values(
        name,
        out_types,
        flat_tangents(
            prim, linear(*tree.tree_unflatten(prim.in_tree, raise_values(types, ts))), "a tangent"
        ),
    )
    arrays = [lo for a in types for lo in a.lo_ty()]
    program = stage(flat, arrays, name)
    cotangents = backward_pass(
        program,
        [UndefPrimal(a) for a in arrays],
        lower_values(name, out_types, tree.tree_leaves(ct)),
    )
    return tree.tree_unflatten(
        prim.in_tree, raise_values(types, list(map(instantiate, cotangents)))
    )


def _vjp_fwd_from_jvp(self, nzs_in, *primals):
    return self(*primals), primals


def _vjp_bwd_from_jvp(self, primals, ct):
    return _transpose(self, lambda *tangents: self.jvp(primals, tangents)[1], ct)


def _vjp_fwd_from_lin(self, nzs_in, *primals):
    return self.lin(nzs_in, *primals)[:2]


def _vjp_bwd_from_lin(self, residuals, ct):
    return _transpose(self, functools.partial(self.linearized, residuals), ct)


def jvp_from_lin(self, primals, tangents):
    """Return `(result, tangent)` by `lin` and `linearized`, as the method `jvp`; TypeError if these are derived from `jvp`.

    >>> from weft.experimental.hijax import VJPHiPrimitive, jvp_from_lin
    >>> class Double(VJPHiPrimitive):
    ...     jvp = jvp_from_lin
    """
    if type(self).lin is _lin_from_jvp:
        raise TypeError(
            f"{type(self).__name__} sets both jvp = jvp_from_lin and lin, linearized = linearize_from_jvp, each of "
            "which needs the other. Write one of them."
        )
    out, residuals = self.lin(tree.tree_map(lambda _: True, tuple(primals)), *primals)[:2]
    return out, self.linearized(residuals, *tangents)


#: the methods (lin, linearized) derived from `jvp`
linearize_from_jvp = (_lin_from_jvp, _linearized_from_jvp)
#: the methods (vjp_fwd, vjp_bwd_retval) derived from `jvp`, which the backward pass evaluates again
vjp_from_jvp = (_vjp_fwd_from_jvp, _vjp_bwd_from_jvp)
#: the methods (vjp_fwd, vjp_bwd_retval) derived from `lin` and `linearized`
vjp_from_lin = (_vjp_fwd_from_lin, _vjp_bwd_from_lin)
