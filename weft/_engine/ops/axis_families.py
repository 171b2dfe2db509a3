"""Families of ops along dims: reductions, running reductions, and layout ops.

In:   the facts that make an op itself, as for `families`.
Out:  a `Primitive` with every slot filled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import (
    LayoutOp,
    Primitive,
    ReduceOp,
    ScanOp,
    declare_unsupported,
)
from weft._engine.core.trace import Zero
from weft._engine.ir.factors import FactorRule, RuleBuilder
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.families import (
    NOT_LINEAR,
    Group,
    check_dtype,
    in_float32,
    jvp_of,
    linear_jvp,
    shape_error,
    zero_tangent,
)
from weft._engine.ops.lowering_specs import ReduceSpec
from weft._engine.util import dtypes

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.core.trace import UndefPrimal
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ops.rule_types import (
        Avals,
        BatchDims,
        ElementIndex,
        ElementReader,
        Ints,
        NumPyArray,
        Value,
        Values,
    )


def reduction(
    name: str,
    dtypes: tuple[Group, ...],
    reference: Callable[[NumPyArray, Ints], Any],
    *,
    combine: str,
    identity: Callable[..., Any],
    jvp: Callable[..., Any] | str,
    transpose: Callable[..., Value] | None = None,
    linear: bool = False,
) -> Primitive:
    """Make a reduction over params['axes'].

    reference  `fn(x, axes)`
    jvp        `fn(t, out, x, axes)` -> tangent of the result; "linear"; "zero"
    transpose  `fn(ct, x, axes)` -> cotangent of x
    combine, identity   see `ReduceSpec`
    """
    selects = combine in ("max", "min")
    p = ReduceOp(name, is_exact=selects, passes_nans=selects)
    reduce = in_float32(reference)

    @p.def_type
    def type_rule(aval: ShapedArray, *, axes: Ints):
        check_dtype(name, aval, dtypes)
        check_axes(name, aval, axes)
        shape = tuple(s for d, s in enumerate(aval.shape) if d not in axes)
        return aval.update(shape=shape)

    @p.def_batch
    def batch(axis: BatchAxis, args: Values, dims: Sequence[int], *, axes: Ints):
        (x,), (dim,) = args, dims
        shifted = tuple(a + (a >= dim) for a in axes)
        return p.bind(x, axes=shifted), dim - sum(a < dim for a in shifted)

    @p.def_factors
    def factors(in_avals: Avals, out_avals: Avals, *, axes: Ints):
        b = RuleBuilder()
        fs = b.add_factors(in_avals[0].shape)
        return b.rule(
            [fs],
            [[f for d, f in enumerate(fs) if d not in axes]],
            reduced={fs[a]: combine for a in axes},
            linear_ins=(0,) if linear else (),
        )

    @p.def_reference
    def run(x: NumPyArray, *, axes: Ints) -> NumPyArray:
        return reduce(x, axes=axes)

    return p.define(
        lower=ReduceSpec(combine, identity),
        jvp=jvp_of(p, jvp, _reduction_jvp),
        transpose=declare_unsupported(NOT_LINEAR)
        if transpose is None
        else unary_transpose(transpose),
    )


def check_axes(name: str, aval: ShapedArray, axes: Ints) -> None:
    """Raise ShapeError unless `axes` are distinct dims of the operand."""
    if len(set(axes)) != len(axes):
        raise shape_error(
            name, f"duplicate value in 'axes' {axes}.", [("operand", aval.str_short())]
        )
    if any(not 0 <= a < aval.ndim for a in axes):
        raise shape_error(
            name,
            f"axes {axes} are out of bounds for an operand of rank {aval.ndim}.",
            [("operand", aval.str_short())],
        )


def _reduction_jvp(primitive: Primitive, rule: Callable[..., Any]) -> Callable[..., Any]:
    def jvp(primals: Values, tangents: Values, **params: Any):
        out = primitive.bind(*primals, **params)
        if type(tangents[0]) is Zero or zero_tangent(out).aval.dtype == dtypes.float0:
            return out, zero_tangent(out)
        return out, rule(tangents[0], out, primals[0], **params)

    return jvp


def unary_transpose(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the transpose slot of a one-operand linear op from `rule(ct, x, **params)`.

    `x.aval` is the operand's type.
    """

    def transpose(ct: Value, x: UndefPrimal, **params: Any):
        return [Zero(x.aval.to_tangent_aval()) if type(ct) is Zero else rule(ct, x, **params)]

    return transpose


def cumulative(
    name: str,
    dtypes: tuple[Group, ...],
    reference: Callable[[NumPyArray, int], Any],
    *,
    lower: Any,
    jvp: Callable[..., Any] | str,
    transpose: Callable[..., Value] | None = None,
    linear: bool = False,
    selects: bool = False,
) -> Primitive:
    """Make a running reduction along params['axis'], from the end if params['reverse'].

    reference  `fn(x, axis)`, forward
    jvp        `fn(t, out, x, axis, reverse)` -> tangent of the result; "linear"
    transpose  `fn(ct, x, axis, reverse)` -> cotangent of x
    selects    whether results are elements of the operand
    """
    p = ScanOp(name, is_exact=selects, passes_nans=selects)

    @p.def_type
    def type_rule(aval: ShapedArray, *, axis: int, reverse: bool):
        check_dtype(name, aval, dtypes)
        if not 0 <= axis < aval.ndim:
            raise shape_error(
                name,
                f"axis {axis} is out of bounds for an operand of rank {aval.ndim}.",
                [("operand", aval.str_short())],
            )
        return aval

    @p.def_reference
    @in_float32
    def run(x: NumPyArray, *, axis: int, reverse: bool):
        if not reverse:
            return reference(x, axis)
        return np.flip(reference(np.flip(x, axis), axis), axis)

    @p.def_batch
    def batch(mapped: BatchAxis, args: Values, dims: Sequence[int], *, axis: int, reverse: bool):
        return p.bind(args[0], axis=axis + (axis >= dims[0]), reverse=reverse), dims[0]

    @p.def_factors
    def factors(in_avals: Avals, out_avals: Avals, *, axis: int, reverse: bool):
        b = RuleBuilder()
        fs = b.add_factors(in_avals[0].shape)
        return b.rule([fs], [fs], special={fs[axis]: "scan"}, linear_ins=(0,) if linear else ())

    return p.define(
        lower=lower,
        jvp=jvp_of(p, jvp, _reduction_jvp),
        transpose=declare_unsupported(NOT_LINEAR)
        if transpose is None
        else unary_transpose(transpose),
    )


def layout(
    name: str,
    *,
    type: Callable[..., Any],
    reference: Callable[..., Any],
    transpose: Callable[..., Any],
    batch: Callable[..., Any],
    factors: Callable[..., Any],
    lower: Callable[..., Any],
    **attrs: Any,
) -> Primitive:
    """Make a one-operand op that moves elements and computes nothing, hence linear in its operand.

    transpose `fn(ct, x, **params)` -> ct of x; batch `fn(axis, x, dim, **params)` -> (out, dim); factors
    `fn(builder, in_aval, out_aval, **params)` -> FactorRule or (in dims, out dims);
    lower `fn(b, index, x, in_aval, out_aval, **params)` -> Expr
    """
    p = LayoutOp(name, **attrs)

    def all_factors(in_avals: Avals, out_avals: Avals, **params: Any):
        b = RuleBuilder()
        all_dims = factors(b, in_avals[0], out_avals[0], **params)
        return (
            all_dims
            if isinstance(all_dims, FactorRule)
            else b.rule([all_dims[0]], [all_dims[1]], linear_ins=(0,))
        )

    def pull(
        b: LoopsBuilder,
        index: ElementIndex,
        x: ElementReader,
        *,
        in_avals: Avals,
        out_avals: Avals,
        **params: Any,
    ):
        return lower(b, index, x, in_avals[0], out_avals[0], **params)

    def batch_one(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
        return batch(axis, args[0], dims[0], **params)

    p.define(
        type=type,
        reference=reference,
        jvp=linear_jvp(p),
        transpose=unary_transpose(transpose),
        factors=all_factors,
        batch=batch_one,
        lower=pull,
    )
    return p
