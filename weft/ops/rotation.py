"""Rotation along a dim: what `roll` traces to, found again in a program so that shards exchange only their edges.

A concatenation of the tail and the head of one value is its rotation. Written as two slices, each of a size that no
mesh axis divides, it would gather the value; as one operation it keeps the layout and sends the rows that cross a
border.
The operation exists only between `recognized` and the local program: bound on values, it is the concatenation again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core.primitive import Primitive
from weft.core.trace import typeof
from weft.ir.factors import FactorRule, RuleBuilder
from weft.ir.jaxpr import Eqn, Jaxpr, Var
from weft.ops import slicing
from weft.ops.halo import Need, Window, behind, rows
from weft.ops.local import splits


class _Rotate(Primitive):
    """Element i along `dim` of the result is element (i + start) modulo the size of the operand."""
    __slots__ = ()

    def bind(self, *args: Any, dim: int, start: int) -> Any:
        (x,) = args
        size = typeof(x).shape[dim]
        parts = [slicing.slice_in_dim(x, start, size, 1, dim), slicing.slice_in_dim(x, 0, start, 1, dim)]
        return slicing.concatenate(parts, dim)


rotate_p = _Rotate("rotate", "layout", register=False)
rotate_p.def_type(lambda aval, *, dim, start: aval)


@rotate_p.def_factors
def _rotate_factors(in_avals: Sequence, out_avals: Sequence, *, dim: int, start: int) -> FactorRule:
    b = RuleBuilder()
    factors = b.news(in_avals[0].shape)
    return b.rule([factors], [factors], special={factors[dim]: "halo"}, linear_ins=(0,))


def _rotate_windows(ctx: Any, dim: int, start: int) -> list[Need]:
    """The rows from `start` on; where the last block is padded, those before the first one are asked for apart."""
    axes, size = ctx.of_dim(0, dim), ctx.extent(0, dim)
    own = ctx.block(size, axes)
    if size % own == 0:
        return [ctx.need(0, dim, axes, Window(start, own, own, ring=True))]
    return [ctx.need(0, dim, axes, Window(first, own, own)) for first in (start, start - size)]


@splits(rotate_p, lambda f, rule, eqn: f == rule.ins[0][eqn.params["dim"]][0], windows=_rotate_windows)
def _rotate_split(ctx: Any, args: list, *, dim: int, start: int) -> Any:
    (x,) = args
    found = [rows(ctx, x, need) for need in ctx.needs()]
    return found[0] if len(found) == 1 else behind(ctx, ctx.needs()[1], found[1], found[0])


def recognized(jaxpr: Jaxpr) -> Jaxpr:
    """`jaxpr` with each concatenation of a value's tail and head written as a rotation of the value."""
    slices = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if eqn.primitive is slicing.slice_p}
    eqns = [_as_rotation(eqn, slices) or _inside(eqn) for eqn in jaxpr.eqns]
    return jaxpr if all(new is old for new, old in zip(eqns, jaxpr.eqns)) else jaxpr.replace(eqns=eqns)


def _inside(eqn: Eqn) -> Eqn:
    """`eqn` with the programs that it holds recognized too."""
    if eqn.primitive.kind != "region":
        return eqn
    params = {key: _of_param(value) for key, value in eqn.params.items()}
    return eqn if all(params[k] is eqn.params[k] for k in params) else eqn.replace(params=params)


def _of_param(value: Any) -> Any:
    if isinstance(value, Jaxpr):
        return recognized(value)
    if type(value) is tuple and any(isinstance(v, Jaxpr) for v in value):
        new = tuple(_of_param(v) for v in value)
        return value if all(a is b for a, b in zip(new, value)) else new
    return value


def _as_rotation(eqn: Eqn, slices: dict[Var, Eqn]) -> Eqn | None:
    if eqn.primitive is not slicing.concatenate_p or len(eqn.invars) != 2:
        return None
    tail, head = (slices.get(a) for a in eqn.invars)
    if tail is None or head is None or tail.invars[0] is not head.invars[0]:
        return None
    (x,), dim = tail.invars, eqn.params["dimension"]
    shape, start = x.aval.shape, tail.params["start_indices"][dim]
    origin = tuple(start if d == dim else 0 for d in range(len(shape)))
    until = tuple(start if d == dim else n for d, n in enumerate(shape))
    if (_bounds(tail) != (origin, shape) or _bounds(head) != ((0,) * len(shape), until)):
        return None
    return eqn.replace(primitive=rotate_p, invars=(x,), params={"dim": dim, "start": start})


def _bounds(eqn: Eqn) -> tuple | None:
    """Where a slice without strides starts and ends."""
    strides = eqn.params["strides"]
    if strides is not None and any(s != 1 for s in strides):
        return None
    return tuple(eqn.params["start_indices"]), tuple(eqn.params["limit_indices"])
