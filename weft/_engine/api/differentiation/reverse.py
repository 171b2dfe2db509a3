"""Reverse mode: the value of a function, and its pullback.

In:   a function, its arguments, and whether it returns aux values.
Out:  the value and a `Pullback`. Cotangents of references are added to the references bound by `with_refs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.api.differentiation.values import (
    as_cotangent,
    as_derivative,
    aux_of,
    check_cotangent,
    convert_python_scalar,
    flat_with_aux,
)
from weft._engine.control.custom_values import SymbolicZero
from weft._engine.control.hijax_types import flatten_linear, of_tangents
from weft._engine.control.ref import Ref, any_refs, check_aliases, check_returned, is_ref, names_of
from weft._engine.core.trace import UndefPrimal, Zero, typeof
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.symbolic import SymbolicDim
from weft._engine.transforms.linearize import linearize_flat
from weft._engine.transforms.pullback import NotSaveable, Pullback, saveable_leaves
from weft._engine.transforms.transpose import backward_pass
from weft._engine.util import dtypes, tree
from weft._engine.util.record import record
from weft._engine.util.source import function_name, transformed_scope


@record
class GradValue:
    """An argument of `with_refs`: return this cotangent."""


@tree.register_static
@record
class GradRef:
    """A placeholder for a cotangent that was added to a reference."""


@record
class DontWant:
    """An argument of `with_refs`: do not compute this cotangent."""


@tree.register_static
@record
class DidntWant:
    """A placeholder for a cotangent that was not computed."""


def vjp_with_aux(
    fun: Callable, primals: Sequence, has_aux: bool, api: str, saveable_args: Any = True
) -> tuple:
    """Return the value of `fun`, its pullback, and its aux values if `has_aux`."""
    flat, in_tree = flatten_linear(tuple(primals))
    refs = _references(fun, primals, flat, api)
    flat = [x[...] if i in refs else x for i, x in enumerate(flat)]
    flat = [convert_python_scalar(x, typeof(x)) for x in flat]
    flat_fun, trees = flat_with_aux(fun, in_tree, has_aux, api)
    if refs:
        flat_fun = _make_function_of_values(fun, flat_fun, refs)
    rule = _PullbackRule(fun, in_tree, [typeof(x) for x in flat], refs)
    with transformed_scope("jvp"):
        outs, program, out_nonzero = linearize_flat(flat_fun, flat, rule.is_differentiable)
    for ref, value in zip(reversed(refs.values()), reversed(outs)):
        ref[...] = value
    outs, count = outs[: len(outs) - len(refs)], trees[0].num_leaves
    outs, aux_leaves = outs[:count], outs[count:]
    rule.set_program(program, trees[0], [typeof(o) for o in outs], out_nonzero)
    positions = dict(zip(map(id, flat), range(len(flat))))
    origins = [positions.get(id(c)) for c in program.consts]  # residuals that are arguments
    residuals = program.consts
    if saveable_args is not True:
        keeps = saveable_leaves(saveable_args, in_tree)
        residuals = [
            x if k is None or keeps[k] else NotSaveable() for k, x in zip(origins, residuals)
        ]
    pullback = Pullback(rule, in_tree, origins, residuals)
    out = tree.tree_unflatten(trees[0], outs)
    return (out, pullback, aux_of(trees, aux_leaves)) if has_aux else (out, pullback)


def _references(fun: Callable, primals: Sequence, flat: list, api: str) -> dict[int, Ref]:
    """Return the references among the leaves of arguments, by position; raise if two refer to one array."""
    refs = {i: x for i, x in enumerate(flat) if is_ref(x)} if any_refs(flat) else {}
    if refs:
        names = names_of(fun, primals)
        check_aliases(fun, api, list(refs.values()), [names[i] for i in refs])
    return refs


class _PullbackRule:
    """The pullback of one function, as a function of residuals; it holds no values.

    cotangents   the types of the expected cotangents, as a tree
    """

    def __init__(self, fun: Callable, in_tree: Any, in_avals: Sequence, refs: dict[int, Ref]):
        self.fun, self.in_tree, self.in_avals, self.refs = fun, in_tree, in_avals, refs
        self.__name__ = function_name(fun)
        self.is_differentiable = [a.to_tangent_aval().dtype != dtypes.float0 for a in in_avals]

    def set_program(
        self, program: Jaxpr, out_tree: Any, out_avals: Sequence, out_nonzero: Sequence[bool]
    ) -> None:
        """Set the linear program of the tangents of results; aux values have none."""
        self.out_tree, self.out_avals = out_tree, out_avals
        nonzero = [i for i, is_nonzero in enumerate(out_nonzero) if is_nonzero]
        self.nonzero_outs = [i for i in nonzero if i < len(out_avals)]
        outvars = program.outvars[: len(self.nonzero_outs)]  # variables of aux values come last
        self.variables = program.constvars
        self.program = program.replace(constvars=[], consts=[], outvars=outvars)
        self.cotangents = tree.tree_unflatten(out_tree, out_avals)

    def __call__(self, residuals: Sequence, ct: Any, accumulators: tuple | None = None) -> Any:
        accumulators_of = _accumulators(
            self.fun, accumulators, self.in_tree, self.in_avals, self.refs
        )
        cts, ct_tree = flatten_linear(ct)
        if ct_tree != self.out_tree and ct_tree != of_tangents(self.out_tree):
            raise ValueError(
                f"vjp: unexpected tree structure of the cotangent: {ct_tree}. It must be that of the output of "
                f"{function_name(self.fun)}, {self.out_tree}."
                f"{tree.describe_difference(self.out_tree, ct_tree, 'output', 'cotangent')}"
            )
        for c, aval in zip(cts, self.out_avals):
            check_cotangent(c, aval)
        cts = [as_cotangent(cts[i], self.out_avals[i]) for i in self.nonzero_outs]
        differentiated = [w for w, d in zip(accumulators_of, self.is_differentiable) if d]
        unwanted = [n for n, w in enumerate(differentiated) if isinstance(w, DontWant)]
        linear = [UndefPrimal(v.aval) for v in self.program.invars]
        at_point = self.program.replace(constvars=self.variables, consts=residuals)
        in_cts = iter(backward_pass(at_point, linear, cts, unwanted))
        result = [next(in_cts) if d else None for d in self.is_differentiable]
        return tree.tree_unflatten(
            of_tangents(self.in_tree),
            list(map(_deliver_cotangent, accumulators_of, result, self.in_avals)),
        )


def _make_function_of_values(fun: Callable, flat_fun: Callable, refs: dict[int, Ref]) -> Callable:
    """Return flat `flat_fun` on the values of the references among its arguments; their final values follow its results."""

    def on_values(*xs):
        inner_refs = {i: Ref.make(xs[i], argument_name=f"number {i}") for i in refs}
        outs = flat_fun(*[inner_refs.get(i, x) for i, x in enumerate(xs)])
        check_returned(fun, "vjp", outs)
        return [*outs, *(r[...] for r in inner_refs.values())]

    return on_values


def _accumulators(
    fun: Callable, accumulators: tuple | None, in_tree, in_avals: Sequence, refs: dict[int, Ref]
) -> list:
    """Return what to do with the cotangent of each argument: GradValue, DontWant, or the reference that accumulates it."""
    names = lambda: [
        f"args{tree.keystr(path)} of {function_name(fun)}"
        for path, _ in tree.tree_flatten_with_path(
            tree.tree_unflatten(in_tree, range(in_tree.num_leaves))
        )[0]
    ]
    if accumulators is None:
        if refs:
            raise ValueError(
                f"vjp: {names()[next(iter(refs))]} is a reference, so that its gradient must be accumulated into a ref. Bind "
                "one by with_refs, as in f_vjp.with_refs(grad_ref)(ct), or ad.DontWant()."
            )
        return [GradValue()] * in_tree.num_leaves
    leaves, structure = tree.tree_flatten(accumulators)
    if structure != in_tree:
        raise ValueError(
            f"with_refs: there must be one entry for each leaf of the arguments of {function_name(fun)}, {in_tree}: a "
            f"reference, ad.GradValue() or ad.DontWant(). Got {structure}."
        )
    for i, (x, aval) in enumerate(zip(leaves, in_avals)):
        ct_aval = aval.to_tangent_aval()
        if is_ref(x) and (x.shape, x.dtype) != (ct_aval.shape, ct_aval.dtype):
            raise ValueError(
                f"with_refs: the gradient of {names()[i]} needs a reference of type Ref{{{ct_aval.str_short()}}}, got {x.type}."
            )
        if i in refs and not is_ref(x) and not isinstance(x, DontWant):
            raise ValueError(
                f"with_refs: {names()[i]} is a reference, so that its gradient must be accumulated into a ref. Pass one, or "
                "ad.DontWant()."
            )
    return leaves


def _deliver_cotangent(accumulator: Any, ct: Any, aval) -> Any:
    """Return the pullback's result for an argument, after accumulating its cotangent if a reference is bound."""
    if isinstance(accumulator, DontWant):
        return DidntWant()
    if is_ref(accumulator):
        if ct is not None and type(ct) is not Zero:
            accumulator.addupdate(as_derivative(ct, aval))
        return GradRef()
    # NumPy has no array with symbolic dims
    if ct is None and any(isinstance(n, SymbolicDim) for n in aval.shape):
        return SymbolicZero(aval.to_tangent_aval())
    return np.zeros(aval.shape, dtypes.float0) if ct is None else as_derivative(ct, aval)
