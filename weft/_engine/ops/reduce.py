"""Reductions: reduce_sum etc., argmax, argmin, and the running reductions cumsum etc.

Laws: floats of at most 16 bits accumulate in float32 and round once; max, min, argmax and argmin
      propagate NaN; argmax and argmin select the first of equal elements. Closed under
      transposition: reduce_sum <-> broadcast_in_dim, cumsum <-> cumsum from the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import Primitive, ReduceOp, declare_unsupported, registry
from weft._engine.core.trace import typeof
from weft._engine.core.typed_scalars import scalar_of_dtype
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.symbolic import is_at_most, min_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import families
from weft._engine.ops.arithmetic import add, div, max as larger, min as smaller, mul
from weft._engine.ops.axis_families import check_axes, cumulative, reduction
from weft._engine.ops.casting import complex as make_complex, convert_element_type, imag, real
from weft._engine.ops.comparison import eq, gt, lt, select, select_n
from weft._engine.ops.layout import broadcast_in_dim, reshape, rev, transpose
from weft._engine.ops.lowering_specs import ReduceSpec, ScanSpec
from weft._engine.ops.placement import takes_out_sharding
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import named
from weft._engine.util.trees.narrowing import is_integer

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.core.trace import UndefPrimal
    from weft._engine.ops.rule_types import Array, ArrayLike, Avals, Ints, NumPyArray, Value, Values

# --- neutral elements -------------------------------------------------------------------------------------------------


def _zero(dtype: np.dtype[Any]):
    return (
        dtype.type(0).item()
        if families.dtype_in(dtype, families.COMPLEX)
        else False
        if dtype == np.bool_
        else 0
    )


def _one(dtype: np.dtype[Any]):
    return 1


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return the value below all others of `dtype`: the neutral element of max."""
    if dtype == np.bool_:
        return False
    if families.dtype_in(dtype, families.INTEGER):
        return int(dtypes.iinfo(dtype).min)
    return -np.inf if _has_infinity(dtype) else float(dtypes.finfo(dtype).min)


def highest(dtype: np.dtype[Any]) -> Any:
    """Return the value above all others of `dtype`: the neutral element of min."""
    if dtype == np.bool_:
        return True
    if families.dtype_in(dtype, families.INTEGER):
        return int(dtypes.iinfo(dtype).max)
    return np.inf if _has_infinity(dtype) else float(dtypes.finfo(dtype).max)


def _has_infinity(dtype: np.dtype[Any]) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.isinf(np.asarray(np.inf).astype(dtype).astype(np.float32)))


def _all_ones(dtype: np.dtype[Any]):
    return (
        True
        if dtype == np.bool_
        else -1
        if dtypes.iinfo(dtype).min < 0
        else int(dtypes.iinfo(dtype).max)
    )


# --- reductions -------------------------------------------------------------------------------------------------------


def _others(ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(d for d in range(ndim) if d not in axes)


def broadcast_reduced(reduced: Value, shape: Sequence[int], axes: Sequence[int]):
    """Return a reduced value repeated over the `axes` of the reduction."""
    return broadcast_in_dim(reduced, shape, _others(len(shape), axes))


def _extremum_jvp(t: Value, out: Value, x: Value, *, axes: Ints):
    """Return the mean tangent of the elements that attain the extremum."""
    shape = typeof(x).shape
    winners = convert_element_type(eq(x, broadcast_reduced(out, shape, axes)), typeof(t).dtype)
    return div(reduce_sum(mul(t, winners), axes), reduce_sum(winners, axes))


def _prod_jvp(t: Value, out: Value, x: Value, *, axes: Ints):
    """Return the sum of each tangent times the product of all other elements.

    There is no division by zeros.
    """
    aval = typeof(x)
    kept_axes = _others(aval.ndim, axes)
    if not aval.size:
        return families.zero_tangent(out)
    line_shape = (*(aval.shape[d] for d in kept_axes), math.prod(aval.shape[a] for a in axes))
    xs, ts = (reshape(transpose(v, (*kept_axes, *axes)), line_shape) for v in (x, t))
    last = len(kept_axes)
    before = _shift(cumprod(xs, last), 1, last, 1)
    after = rev(_shift(cumprod(rev(xs, (last,)), last), 1, last, 1), (last,))
    return reduce_sum(mul(ts, mul(before, after)), (last,))


def _shift(x: Value, by: int, axis: int, fill: complex):
    """Return `x` shifted by `by` places along `axis`, filled with `fill`."""
    aval = typeof(x)
    by = min_dim(by, aval.shape[axis])
    config = tuple((by, -by, 0) if d == axis else (0, 0, 0) for d in range(aval.ndim))
    return registry["pad"].bind(x, scalar_of_dtype(fill, aval.dtype), padding_config=config)


def _reduce_min_max(
    fn: Callable[..., Any], neutral: Callable[[np.dtype[Any]], Any]
) -> Callable[[NumPyArray, Ints], NumPyArray]:
    return lambda x, axes: fn(
        x, axis=axes, initial=np.asarray(neutral(x.dtype)).astype(x.dtype)[()]
    )


def _sum_reference(x: NumPyArray, axes: Ints):
    if families.dtype_in(x.dtype, families.FLOATING) and x.dtype == np.float32:
        return np.sum(x, axis=axes, dtype=np.float64).astype(np.float32)
    return np.sum(x, axis=axes, dtype=x.dtype)


def _sum_transpose(ct: Value, x: UndefPrimal, *, axes: Ints) -> Value:
    return broadcast_reduced(ct, x.aval.shape, axes)


reduce_sum_p = reduction(
    "reduce_sum",
    families.NUMBER,
    _sum_reference,
    combine="add",
    identity=_zero,
    jvp="linear",
    linear=True,
    transpose=_sum_transpose,
)
reduce_prod_p = reduction(
    "reduce_prod",
    families.NUMBER,
    lambda x, axes: np.prod(x, axis=axes, dtype=x.dtype),
    combine="mul",
    identity=_one,
    jvp=_prod_jvp,
)
reduce_max_p = reduction(
    "reduce_max",
    families.ORDERED,
    _reduce_min_max(np.max, lowest),
    combine="max",
    identity=lowest,
    jvp=_extremum_jvp,
)
reduce_min_p = reduction(
    "reduce_min",
    families.ORDERED,
    _reduce_min_max(np.min, highest),
    combine="min",
    identity=highest,
    jvp=_extremum_jvp,
)
reduce_and_p = reduction(
    "reduce_and",
    families.BOOL_OR_INTEGER,
    lambda x, axes: np.bitwise_and.reduce(x, axis=axes),
    combine="and",
    identity=_all_ones,
    jvp="zero",
)
reduce_or_p = reduction(
    "reduce_or",
    families.BOOL_OR_INTEGER,
    lambda x, axes: np.bitwise_or.reduce(x, axis=axes),
    combine="or",
    identity=_zero,
    jvp="zero",
)
reduce_xor_p = reduction(
    "reduce_xor",
    families.BOOL_OR_INTEGER,
    lambda x, axes: np.bitwise_xor.reduce(x, axis=axes),
    combine="xor",
    identity=_zero,
    jvp="zero",
)


def _reduction(p: Primitive, text: str) -> Callable[..., Any]:
    def reduce(operand: ArrayLike, axes: Sequence[int]) -> Array:
        return p.bind(
            operand, axes=tuple(sorted(families.canonical_dims(p.name, axes, typeof(operand).ndim)))
        )

    return named(reduce, p.name, text)


reduce_sum = takes_out_sharding(
    _reduction(
        reduce_sum_p,
        """Return the sum of `operand` over the dims `axes`.

    >>> np.asarray(reduce_sum(np.ones((2, 3)), (1,))).tolist()
    [3.0, 3.0]
    """,
    )
)
reduce_prod = _reduction(reduce_prod_p, "Return the product of `operand` over the dims `axes`.")


def _ordered_reduction(p: Primitive, worst: float, text: str) -> Callable[..., Any]:
    """Return the public reduction.

    Complex numbers are ordered by real part, then by imaginary part.
    """
    of_reals = _reduction(p, text)

    def reduce(operand: ArrayLike, axes: Sequence[int]) -> Array:
        aval = typeof(operand)
        if not families.dtype_in(aval.dtype, families.COMPLEX):
            return of_reals(operand, axes)
        axes = tuple(sorted(families.canonical_dims(p.name, axes, aval.ndim)))
        re, im = real(operand), imag(operand)
        best = of_reals(re, axes)
        among = select_n(
            eq(re, broadcast_reduced(best, aval.shape, axes)),
            families.full(aval.shape, worst, re.dtype),
            im,
        )
        return make_complex(best, of_reals(among, axes))

    return named(reduce, p.name, text)


reduce_max = _ordered_reduction(
    reduce_max_p,
    -math.inf,
    "Return the largest element of `operand` over the dims `axes`; NaN if there is one; the lowest value if there are no elements.",
)
reduce_min = _ordered_reduction(
    reduce_min_p,
    math.inf,
    "Return the smallest element of `operand` over the dims `axes`; NaN if there is one.",
)
reduce_and = _reduction(reduce_and_p, "Return the bitwise (or logical) and over the dims `axes`.")
reduce_or = _reduction(reduce_or_p, "Return the bitwise (or logical) or over the dims `axes`.")
reduce_xor = _reduction(
    reduce_xor_p, "Return the bitwise (or logical) exclusive or over the dims `axes`."
)


# --- argmax and argmin ------------------------------------------------------------------------------------------------


def _arg_reduction(name: str, reference: Callable[..., Any]) -> Primitive:
    p = ReduceOp(name)

    @p.def_type
    def type_rule(aval: ShapedArray, *, axes: Ints, index_dtype: np.dtype[Any]):
        families.check_dtype(name, aval, families.ORDERED)
        check_axes(name, aval, axes)
        if len(axes) != 1:
            raise families.shape_error(
                name, f"takes exactly one axis, got {axes}.", [("operand", aval.str_short())]
            )
        if not aval.shape[axes[0]]:
            raise families.shape_error(
                name,
                f"dim {axes[0]} has no elements to choose from.",
                [("operand", aval.str_short())],
                "argmin and argmax require non-empty reduced dimensions.",
            )
        if not families.dtype_in(index_dtype, families.INTEGER):
            raise TypeError(f"{name}: index_dtype must be an integer type, got {index_dtype}.")
        shape = tuple(s for d, s in enumerate(aval.shape) if d != axes[0])
        return ShapedArray(shape, index_dtype, False, None, aval.vma)

    @p.def_batch
    def batch(
        axis: BatchAxis,
        args: Values,
        dims: Sequence[int],
        *,
        axes: Ints,
        index_dtype: np.dtype[Any],
    ):
        dim, at = dims[0], axes[0] + (axes[0] >= dims[0])
        return p.bind(args[0], axes=(at,), index_dtype=index_dtype), dim - (at < dim)

    @p.def_factors
    def factors(in_avals: Avals, out_avals: Avals, *, axes: Ints, index_dtype: np.dtype[Any]):
        # Shards would combine as pairs of value and position; `replicate` holds where this is
        # impossible.
        b = RuleBuilder()
        fs = b.add_factors(in_avals[0].shape)
        along = fs[axes[0]]
        return b.rule(
            [fs],
            [[f for f in fs if f != along]],
            reduced={along: name},
            special={along: "replicate"},
        )

    @p.def_reference
    def run(x: NumPyArray, *, axes: Ints, index_dtype: np.dtype[Any]) -> NumPyArray:
        return np.asarray(reference(x, axes[0])).astype(index_dtype)

    p.define(
        jvp=families.zero_jvp(p),
        transpose=declare_unsupported("is not linear in any operand"),
        lower=ReduceSpec(name, lowest if name == "argmax" else highest),
    )
    return p


def _first(find: Callable[..., Any]) -> Callable[[NumPyArray, int], Any]:
    """Return `find`, in float32 for narrow floats.

    NumPy also selects the first NaN as the extreme.
    """
    return lambda x, axis: find(x.astype(np.float32) if families.is_narrow(x.dtype) else x, axis)


argmax_p = _arg_reduction("argmax", _first(np.argmax))
argmin_p = _arg_reduction("argmin", _first(np.argmin))


def argmax(operand: ArrayLike, axis: int, index_dtype: dtypes.DTypeLike) -> Array:
    """Return the index of the largest element along dim `axis`.

    Of equal elements it is the first; the first NaN if there is one.

    >>> int(argmax(np.array([1.0, 5.0, 5.0]), 0, np.int32))
    1
    """
    return _arg_reduce(argmax_p, operand, axis, index_dtype)


def argmin(operand: ArrayLike, axis: int, index_dtype: dtypes.DTypeLike) -> Array:
    """Return the index of the smallest element along dim `axis`.

    Of equal elements it is the first; the first NaN if there is one.
    """
    return _arg_reduce(argmin_p, operand, axis, index_dtype)


def _arg_reduce(p: Primitive, operand: Value, axis: int, index_dtype: dtypes.DTypeLike):
    ndim = typeof(operand).ndim
    if is_integer(axis) and not 0 <= axis < ndim:
        raise ValueError(
            f"Invalid axis {axis} for operand of {p.name}, which has {quantity(ndim, 'dim')}."
        )
    axes = families.canonical_dims(p.name, (axis,), ndim)
    return p.bind(operand, axes=axes, index_dtype=dtypes.check_dtype(index_dtype, p.name))


# --- running reductions -----------------------------------------------------------------------------------------------


#: the last doubling step of a running reduction along a dim of symbolic size
_LARGEST_STEP = 1 << 30


def prefix_scan(
    combine: Callable[..., Any],
    elements: Sequence[Any],
    neutral: Sequence[Any],
    axis: int,
    reverse: bool,
) -> list[Any]:
    """Return the running combination of `elements` by the associative `combine`.

    `elements` is a tuple of arrays. The scan takes log2(n) doublings.

    `neutral` are the scalars beyond the edge; `combine(earlier, later)` takes and returns tuples. A
    symbolic size takes as many doublings as the largest possible size; doublings beyond the size
    change nothing.
    """
    elements = [rev(x, (axis,)) if reverse else x for x in elements]
    size, step = typeof(elements[0]).shape[axis], 1
    while not is_at_most(size, step) and step <= _LARGEST_STEP:
        earlier = [_shift(x, step, axis, fill) for x, fill in zip(elements, neutral)]
        elements = list(combine(earlier, elements))
        step *= 2
    return [rev(x, (axis,)) if reverse else x for x in elements]


def paired_jvp(
    combine: Callable[..., Any], neutral: Callable[[dtypes.DType], Any]
) -> Callable[..., Any]:
    """Return the jvp of a running reduction: the running combination of (value, tangent) pairs."""

    def jvp(t: Value, out: Value, x: Value, *, axis: int, reverse: bool):
        fills = (np.asarray(neutral(typeof(x).dtype)).astype(typeof(x).dtype)[()], 0)
        return prefix_scan(combine, (x, t), fills, axis, reverse)[1]

    return jvp


def _product_pair(earlier: Value, later: Value):
    (x, s), (y, t) = earlier, later
    return mul(x, y), add(mul(s, y), mul(x, t))


def _extremum_pair(wins: Callable[..., Any]):
    def combine(earlier: Values, later: Values):
        (x, s), (y, t) = earlier, later
        tie = mul(add(s, t), 0.5)
        first = wins(x, y)
        return select(first, x, y), select(first, s, select(wins(y, x), t, tie))

    return combine


def _cumsum_reference(x: NumPyArray, axis: int):
    if x.dtype == np.float32:
        return np.cumsum(x, axis=axis, dtype=np.float64).astype(np.float32)
    return np.cumsum(x, axis=axis, dtype=x.dtype)


def _cumsum_transpose(ct: Value, x: UndefPrimal, *, axis: int, reverse: bool) -> Value:
    return cumsum(ct, axis, not reverse)


cumsum_p = cumulative(
    "cumsum",
    families.NUMBER,
    _cumsum_reference,
    lower=ScanSpec("add", _zero),
    jvp="linear",
    linear=True,
    transpose=_cumsum_transpose,
)
cumprod_p = cumulative(
    "cumprod",
    families.NUMBER,
    lambda x, axis: np.cumprod(x, axis=axis, dtype=x.dtype),
    lower=ScanSpec("mul", _one),
    jvp=paired_jvp(_product_pair, _one),
)
cummax_p = cumulative(
    "cummax",
    families.ORDERED,
    lambda x, axis: np.maximum.accumulate(x, axis=axis),
    lower=ScanSpec("max", lowest),
    jvp=paired_jvp(_extremum_pair(gt), lowest),
)
cummin_p = cumulative(
    "cummin",
    families.ORDERED,
    lambda x, axis: np.minimum.accumulate(x, axis=axis),
    lower=ScanSpec("min", highest),
    jvp=paired_jvp(_extremum_pair(lt), highest),
)


def running(p: Primitive, operand: Value, axis: int, reverse: bool):
    """Return the running reduction `p` along dim `axis`."""
    (axis,) = families.canonical_dims(p.name, (axis,), typeof(operand).ndim)
    return p.bind(operand, axis=axis, reverse=bool(reverse))


def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return running sums along dim `axis`, from the end if `reverse`.

    >>> np.asarray(cumsum(np.array([1, 2, 3]))).tolist()
    [1, 3, 6]
    """
    return running(cumsum_p, operand, axis, reverse)


def _running(
    p: Primitive, what: str, of_two: Callable[..., Any] | None = None, fill: complex = 0
) -> Callable[..., Any]:
    def cumulate(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
        if of_two is not None and dtypes.is_complex(typeof(operand).dtype):
            return _by_doubling(of_two, fill, operand, axis, reverse)
        return running(p, operand, axis, reverse)

    return named(
        cumulate, p.name, f"Return running {what} along dim `axis`, from the end if `reverse`."
    )


def _by_doubling(
    of_two: Callable[..., Any], fill: complex, operand: Value, axis: int, reverse: bool
):
    """Return the running reduction by an idempotent function, by combining windows of 2, 4, 8, ... elements."""
    aval = typeof(operand)
    (axis,) = families.canonical_dims(of_two.__name__, (axis,), aval.ndim)
    by = 1
    while by < aval.shape[axis]:
        operand, by = of_two(operand, _shift(operand, -by if reverse else by, axis, fill)), 2 * by
    return operand


cumprod = _running(cumprod_p, "products")
cummax = _running(cummax_p, "maxima", larger, complex(-math.inf, -math.inf))
cummin = _running(cummin_p, "minima", smaller, complex(math.inf, math.inf))
