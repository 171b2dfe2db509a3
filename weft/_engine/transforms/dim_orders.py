"""Dim orders: programs on arrays that are not stored in row-major order, and the dim orders of results.

In:   a program on values, and the dim orders of its arguments and results: the slowest dim first, None for row-major.
Out:  the program on stored arrays, which are the transposed values; the dim orders of results that need no transpose.
Laws: a program on stored arrays begins and ends with transposes. Simplification composes them with the program's transposes, and
      fusion computes the remaining ones as a part of the operations that read or compute the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.core.primitive import ElementwiseOp
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import inline_calls, is_call
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import inverse_permutation, transpose_p
from weft._engine.ops.placement import layout_constraint_p

Order = tuple[int, ...]


def transposed_type(aval: ShapedArray, order: Sequence[int]) -> ShapedArray:
    """Return the type of the value with its dims in another order: dim i is dim `order[i]` of `aval`."""
    explicit = None if aval.explicit is None else aval.explicit.transpose_dims(order)
    return aval.update(shape=tuple([aval.shape[d] for d in order]), sharding=explicit)


def with_dim_orders(
    jaxpr: Jaxpr, ins: Sequence[Order | None], outs: Sequence[Order | None]
) -> Jaxpr:
    """Return `jaxpr` as a program on transposed arguments and results. Values whose order is None are not transposed."""
    invars, outvars = list(jaxpr.invars), list(jaxpr.outvars)
    before: list[Eqn] = []
    after: list[Eqn] = []
    for i, (v, order) in enumerate(zip(jaxpr.invars, ins)):
        if order is not None:
            invars[i] = Var(transposed_type(v.aval, order))
            before.append(
                Eqn(transpose_p, [invars[i]], [v], {"permutation": inverse_permutation(order)})
            )
    for i, (v, order) in enumerate(zip(jaxpr.outvars, outs)):
        if order is not None:
            outvars[i] = result = Var(transposed_type(v.aval, order))
            after.append(Eqn(transpose_p, [v], [result], {"permutation": order}))
    return Jaxpr(
        jaxpr.constvars,
        jaxpr.consts,
        invars,
        outvars,
        (*before, *jaxpr.eqns, *after),
        jaxpr.effects,
        jaxpr.name,
    )


def constrained_orders(jaxpr: Jaxpr) -> list[Order | None]:
    """Return per result the dim order of the layout constraint that computes it, or None."""
    results = {v for v in jaxpr.outvars if type(v) is not Literal}
    sources = {v: (eqn, i) for eqn in jaxpr.eqns for i, v in enumerate(eqn.outvars) if v in results}

    def order_of(v: Var) -> Order | None:
        if v not in sources:
            return None
        eqn, i = sources[v]
        if eqn.primitive is layout_constraint_p:
            return _non_row_major(eqn.params["order"])
        return constrained_orders(eqn.params["jaxpr"])[i] if is_call(eqn) else None

    return [None if type(v) is Literal else order_of(v) for v in jaxpr.outvars]


#: the order of values that can be computed in any dim order at the same cost
_ANY: Any = object()


def natural_orders(jaxpr: Jaxpr, ins: Sequence[Order | None]) -> list[Order | None]:
    """Return per result the dim order that needs no transpose, for arguments with the dim orders `ins`.

    Orders propagate through transposes and through elementwise operations whose operands have one common order. Layout constraints
    determine an order. The results of all other operations are row-major.
    """
    program = inline_calls(jaxpr)
    orders: dict[Var, Any] = dict(zip(program.invars, ins))
    for eqn in program.eqns:
        orders.update(zip(eqn.outvars, [_order_of_result(eqn, orders)] * len(eqn.outvars)))
    results = [None if type(v) is Literal else orders.get(v) for v in program.outvars]
    return [None if order is _ANY else order for order in results]


def _order_of_result(eqn: Eqn, orders: dict[Var, Any]) -> Any:
    primitive = eqn.primitive
    if primitive is layout_constraint_p:
        return _non_row_major(eqn.params["order"])
    if primitive.moves in ("repeat", "iota"):
        return _ANY

    def of(x: Atom) -> Any:
        return _ANY if type(x) is Literal or not x.aval.ndim else orders.get(x)

    if primitive is transpose_p:
        order, place = of(eqn.invars[0]), inverse_permutation(eqn.params["permutation"])
        return (
            order
            if order is _ANY
            else _non_row_major([place[d] for d in order or range(len(place))])
        )
    if isinstance(primitive, ElementwiseOp):
        of_operands = {of(x) for x in eqn.invars} - {_ANY}
        return of_operands.pop() if len(of_operands) == 1 else None if of_operands else _ANY
    return None


def _non_row_major(order: Sequence[int]) -> Order | None:
    return None if list(order) == sorted(order) else tuple(order)
