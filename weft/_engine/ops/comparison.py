"""Comparisons, selection and clamping: eq ne lt le gt ge select_n clamp.

Comparisons return booleans and follow IEEE: every comparison with NaN is false, except `ne`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import Primitive, registry
from weft._engine.core.trace import UndefPrimal, Zero, typeof
from weft._engine.core.typed_scalars import scalar_of_dtype
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import families
from weft._engine.ops.families import (
    ANY,
    ORDERED,
    binary,
    elementwise,
    match,
    match_dtypes,
    unbroadcast,
    with_matching_kinds,
    zero_tangent,
)
from weft._engine.util import dtypes

if TYPE_CHECKING:
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ir.loops import Expr
    from weft._engine.ops.rule_types import Array, ArrayLike, NumPyArray, Value, Values

_BOOL = np.dtype(np.bool_)


def _comparison(
    name: str, reference: Callable[..., Any], groups: tuple[families.Group, ...] = ORDERED
):
    return elementwise(name, groups, reference, jvp="zero", result=lambda dtype: _BOOL)


eq_p = _comparison("eq", np.equal, ANY)
ne_p = _comparison("ne", np.not_equal, ANY)
lt_p = _comparison("lt", np.less)
le_p = _comparison("le", np.less_equal)
gt_p = _comparison("gt", np.greater)
ge_p = _comparison("ge", np.greater_equal)


@with_matching_kinds
def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """Return whether `x == y`, elementwise; random keys are equal if all of their data is equal.

    >>> np.asarray(eq(np.array([1, 2]), np.array([1, 3]))).tolist()
    [True, False]
    """
    x, y = match(x, y)
    return _by_row(eq_p, "reduce_and", x, y) if _are_keys(x, y) else eq_p.bind(x, y)


@with_matching_kinds
def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """Return whether `x != y`, elementwise; random keys differ if some of their data differs.

    >>> np.asarray(ne(np.array([1, 2]), np.array([1, 3]))).tolist()
    [False, True]
    """
    x, y = match(x, y)
    return _by_row(ne_p, "reduce_or", x, y) if _are_keys(x, y) else ne_p.bind(x, y)


def _are_keys(x: Value, y: Value) -> bool:
    dtype = typeof(x).dtype
    return dtypes.is_extended(dtype) and typeof(y).dtype == dtype


def _by_row(primitive: Primitive, join: str, x: NumPyArray, y: NumPyArray):
    """Compare random keys by their rows of raw data."""
    shape = families.broadcast_shapes(primitive.name, (typeof(x), typeof(y)))
    keys = [
        k
        if typeof(k).shape
        else registry["broadcast_in_dim"].bind(k, shape=shape, broadcast_dimensions=())
        for k in (x, y)
    ]
    rows = primitive.bind(*[registry["random_unwrap"].bind(k) for k in keys])
    return registry[join].bind(rows, axes=tuple(range(len(shape), typeof(rows).ndim)))


lt = binary(lt_p, "Return whether `x < y`, elementwise.")
le = binary(le_p, "Return whether `x <= y`, elementwise.")
gt = binary(gt_p, "Return whether `x > y`, elementwise.")
ge = binary(ge_p, "Return whether `x >= y`, elementwise.")


# --- select_n ---------------------------------------------------------------------------------------------------------


def _select_type(which: ShapedArray, *cases: ShapedArray) -> ShapedArray:
    if not cases:
        raise TypeError("select_n: needs at least one case.")
    if which.dtype not in (_BOOL, np.dtype(np.int32)):
        raise TypeError(f"select_n: `which` must be bool or int32, got {which.str_short()}.")
    count = len(cases)
    if which.dtype == _BOOL and count > 2:
        raise TypeError(
            f"select_n: a boolean `which` chooses among at most two cases, got {count}."
        )
    families.same_dtypes("select_n", cases)
    shape = families.broadcast_shapes("select_n", (which, *cases))
    weak = all(c.weak_type for c in cases)
    return ShapedArray(shape, cases[0].dtype, weak, None, families.joined_vma((which, *cases)))


def _select_reference(which: NumPyArray, *cases: NumPyArray):
    if len(cases) == 1:
        return np.broadcast_to(cases[0], np.broadcast_shapes(which.shape, cases[0].shape)).copy()
    if which.dtype == _BOOL:
        return np.where(which, cases[1], cases[0])
    position = np.clip(which, 0, len(cases) - 1)
    return np.select([position == i for i in range(len(cases))], cases)


def _select_emit(b: LoopsBuilder, which: Expr, *cases: Expr):
    if which.type == "bool":
        return b.select(which, cases[-1], cases[0])
    out = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        out = b.select(b.op("le", which, b.const(i, which.type)), cases[i], out)
    return out


select_n_p = elementwise(
    "select_n",
    ANY,
    _select_reference,
    jvp=(),
    type_rule=_select_type,
    emit=_select_emit,
    widen=False,
    additive=True,
    computes="select",
    linear_ins=lambda in_avals, out_avals: tuple(range(1, len(in_avals))),
    is_exact=True,
)


@select_n_p.def_jvp
def _select_jvp(primals: Values, tangents: Values):
    which, *cases = primals
    out = select_n_p.bind(which, *cases)
    if all(type(t) is Zero for t in tangents[1:]):
        return out, zero_tangent(out)
    zero = scalar_of_dtype(0, typeof(out).dtype)
    ts = [zero if type(t) is Zero else t for t in tangents[1:]]
    return out, families.broadcast_like(select_n_p.bind(which, *ts), out)


@select_n_p.def_transpose
def _select_transpose(ct: Value, which: Value, *cases: Value) -> list[Value]:
    if type(ct) is Zero:
        return [None, *(Zero(c.aval) if type(c) is UndefPrimal else None for c in cases)]
    zero = scalar_of_dtype(0, typeof(ct).dtype)
    cts: list[Value] = []
    for i, case in enumerate(cases):
        if type(case) is not UndefPrimal:
            cts.append(None)
            continue
        picked = select_n_p.bind(which, *[ct if i == j else zero for j in range(len(cases))])
        cts.append(unbroadcast(picked, case.aval))
    return [None, *cts]


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Return `cases[which]`, elementwise: `which` is bool (False selects the first case) or int32.

    >>> np.asarray(select_n(np.array([True, False]), np.array([1, 2]), np.array([3, 4]))).tolist()
    [3, 2]
    """
    return select_n_p.bind(which, *(match_dtypes(*cases) if cases else ()))


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Return `on_true` where `pred` holds, else `on_false`."""
    return select_n(pred, on_false, on_true)


# --- clamp ------------------------------------------------------------------------------------------------------------


def _clamp_emit(b: LoopsBuilder, low: Expr, x: Expr, high: Expr):
    return b.op("min", b.op("max", x, low), high)


clamp_p = elementwise(
    "clamp",
    ORDERED,
    lambda low, x, high: np.minimum(np.maximum(x, low), high),
    emit=_clamp_emit,
    is_discontinuous=True,
    jvp=[
        lambda t, out, low, x, high: select(gt(low, x), t, 0.0),
        lambda t, out, low, x, high: select(_inside(low, x, high), t, 0.0),
        lambda t, out, low, x, high: select(lt(high, x), t, 0.0),
    ],
    is_exact=True,
    passes_nans=True,
)


def _inside(low: NumPyArray, x: NumPyArray, high: NumPyArray):
    return select(gt(x, low), lt(x, high), False)


def clamp(min: Value, x: Value, max: Value):
    """Limit `x` to the range from `min` to `max`; NaN stays NaN.

    >>> np.asarray(clamp(0, np.array([-1, 2, 9]), 5)).tolist()
    [0, 2, 5]
    """
    return clamp_p.bind(*match_dtypes(min, x, max))
