"""Layout: broadcast_in_dim, reshape, transpose, rev, squeeze, expand_dims, iota, copy.

These ops move elements and compute nothing.

Closed under transposition: broadcast_in_dim <-> reduce_sum, reshape, transpose and rev <-> themselves,
squeeze -> broadcast_in_dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.annotations import cast
from weft._engine.core.primitive import LayoutOp, Primitive, declare_unsupported, registry
from weft._engine.core.trace import UndefPrimal, Zero, typeof
from weft._engine.core.typed_scalars import scalar_of_dtype
from weft._engine.ir.factors import FactorRule, RuleBuilder
from weft._engine.ir.program_mesh import is_abstract
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.symbolic import SymbolicDim, as_size
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import families
from weft._engine.ops.axis_families import check_axes, layout
from weft._engine.ops.families import ANY, canonical_dims, elementwise, shape_error, unary
from weft._engine.ops.matching_dims import match_dims, reindex
from weft._engine.ops.placement import OUT_SHARDING, takes_out_sharding, with_out_sharding
from weft._engine.util import dtypes
from weft._engine.util.errors import InconclusiveDimensionOperation
from weft._engine.util.trees.narrowing import class_of

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        ElementIndex,
        ElementReader,
        Ints,
        NumPyArray,
        Value,
        Values,
    )

# --- broadcast_in_dim -------------------------------------------------------------------------------------------------


def _broadcast_type(aval: ShapedArray, *, shape: Ints, broadcast_dimensions: Ints) -> ShapedArray:
    dims, what, remedy = broadcast_dimensions, "", ""
    if len(dims) != aval.ndim:
        what = "broadcast_dimensions must name one result dim per operand dim."
    elif [d for d in dims if not 0 <= d < len(shape)] or [a for a, b in pairwise(dims) if a >= b]:
        what = "broadcast_dimensions must be different dims of the result."
    elif [d for s, d in zip(aval.shape, dims) if s not in (1, shape[d])]:
        what, remedy = (
            "operand dims do not fit the result.",
            "An operand dim must be 1 or equal the result dim it goes to.",
        )
    elif [n for n in shape if n < 0]:
        what = "sizes must not be negative."
    if what:
        facts = [
            ("operand", aval.str_short()),
            ("shape", str(tuple(shape))),
            ("broadcast_dimensions", str(tuple(dims))),
        ]
        raise shape_error("broadcast_in_dim", what, facts, remedy)
    return aval.update(shape=shape)


def _place_sizes(shape: Sequence[int], ndim: int, dims: Sequence[int]) -> tuple[int, ...]:
    """Return operand sizes at their positions in the result, 1 elsewhere."""
    out = [1] * ndim
    for size, d in zip(shape, dims):
        out[d] = size
    return tuple(out)


def _broadcast_reference(x: NumPyArray, *, shape: Ints, broadcast_dimensions: Ints):
    return np.broadcast_to(
        x.reshape(_place_sizes(x.shape, len(shape), broadcast_dimensions)), shape
    ).copy()


def _broadcast_transpose(ct: Value, x: UndefPrimal, *, shape: Ints, broadcast_dimensions: Ints):
    repeated = [d for d in range(len(shape)) if d not in broadcast_dimensions]
    stretched = [d for s, d in zip(x.aval.shape, broadcast_dimensions) if s == 1 and shape[d] != 1]
    axes = tuple(sorted(repeated + stretched))
    summed = registry["reduce_sum"].bind(ct, axes=axes) if axes else ct
    return reshape(summed, x.aval.shape)


def _broadcast_batch(
    axis: BatchAxis, x: Value, dim: int, *, shape: Ints, broadcast_dimensions: Ints
):
    x = families.move_dim(x, dim, 0)
    dims = (0, *(d + 1 for d in broadcast_dimensions))
    return broadcast_in_dim_p.bind(x, shape=(axis.size, *shape), broadcast_dimensions=dims), 0


def _broadcast_factors(
    b: RuleBuilder,
    in_aval: ShapedArray,
    out_aval: ShapedArray,
    *,
    shape: Ints,
    broadcast_dimensions: Ints,
):
    outs = b.add_factors(shape)
    ins = [outs[d] if s == shape[d] else () for s, d in zip(in_aval.shape, broadcast_dimensions)]
    return ins, outs


def _broadcast_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    in_aval: ShapedArray,
    out_aval: ShapedArray,
    *,
    shape: Ints,
    broadcast_dimensions: Ints,
):
    zero = b.const(0, "i64")
    return x(
        tuple(
            index[d] if s == shape[d] else zero for s, d in zip(in_aval.shape, broadcast_dimensions)
        )
    )


broadcast_in_dim_p = layout(
    "broadcast_in_dim",
    moves="repeat",
    out_sharding=OUT_SHARDING,
    type=_broadcast_type,
    reference=_broadcast_reference,
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
    factors=_broadcast_factors,
    lower=_broadcast_lower,
)


@broadcast_in_dim_p.def_localize
def _localize_broadcast(params: dict[str, Any], ins: Avals, outs: Avals) -> dict[str, Any]:
    return dict(params, shape=outs[0].shape)


@takes_out_sharding
def broadcast_in_dim(
    operand: ArrayLike, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> Array:
    """Return `operand` repeated to `shape`; its dim i becomes dim `broadcast_dimensions[i]`.

    >>> np.asarray(broadcast_in_dim(np.array([1, 2]), (2, 3), (0,))).tolist()
    [[1, 1, 1], [2, 2, 2]]
    """
    shape, dims = (
        tuple([n if type(n) is int else as_size(n) for n in shape]),
        tuple(map(int, broadcast_dimensions)),
    )
    aval = typeof(operand)
    if (
        aval.shape == shape
        and dims == tuple(range(len(shape)))
        and hasattr(class_of(operand), "aval")
    ):
        return operand
    if len(dims) == aval.ndim and any(a > b for a, b in pairwise(dims)):
        order = sorted(range(len(dims)), key=dims.__getitem__)
        operand, dims = transpose(operand, order), tuple([dims[d] for d in order])
    return broadcast_in_dim_p.bind(operand, shape=shape, broadcast_dimensions=dims)


@takes_out_sharding
def broadcast(operand: ArrayLike, sizes: Sequence[int]) -> Array:
    """Return `operand` repeated along new leading dims of `sizes`."""
    shape = (*sizes, *typeof(operand).shape)
    return broadcast_in_dim(operand, shape, tuple(range(len(sizes), len(shape))))


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Return `array` with dims of size 1 inserted at `dimensions` of the result.

    >>> expand_dims(np.ones(3), (0,)).shape
    (1, 3)
    """
    if not dimensions and hasattr(class_of(array), "aval"):
        return array
    shape = typeof(array).shape
    ndim = len(shape) + len(dimensions)
    new = canonical_dims("expand_dims", dimensions, ndim)
    unchanged = tuple([d for d in range(ndim) if d not in new])
    return broadcast_in_dim_p.bind(
        array, shape=_place_sizes(shape, ndim, unchanged), broadcast_dimensions=unchanged
    )


# --- reshape ----------------------------------------------------------------------------------------------------------


def _reshape_type(aval: ShapedArray, *, new_sizes: Ints) -> ShapedArray:
    if any(s < 0 for s in new_sizes) or math.prod(new_sizes) != aval.size:
        raise shape_error(
            "reshape",
            "total size must not change.",
            [
                ("operand", aval.str_short(), f"size {aval.size}"),
                ("new_sizes", str(tuple(new_sizes)), f"size {math.prod(new_sizes)}"),
            ],
        )
    return aval.update(shape=new_sizes)


def _reshape_batch(axis: BatchAxis, x: Value, dim: int, *, new_sizes: Ints):
    return reshape_p.bind(families.move_dim(x, dim, 0), new_sizes=(axis.size, *new_sizes)), 0


def _reshape_factors(
    b: RuleBuilder, in_aval: ShapedArray, out_aval: ShapedArray, *, new_sizes: Ints
):
    ins, outs, special = match_dims(b, in_aval.shape, tuple(new_sizes))
    return b.rule([ins], [outs], special=special, linear_ins=(0,))


def _reshape_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    in_aval: ShapedArray,
    out_aval: ShapedArray,
    *,
    new_sizes: Ints,
):
    return x(reindex(b, index, tuple(new_sizes), in_aval.shape))


def _reshape_transpose(ct: Any, x: UndefPrimal, *, new_sizes: Ints) -> Any:
    return reshape(ct, x.aval.shape)


def _reshape_reference(x: NumPyArray, *, new_sizes: Ints) -> NumPyArray:
    return x.reshape(new_sizes)


reshape_p: Primitive = layout(
    "reshape",
    moves="reshape",
    out_sharding=OUT_SHARDING,
    type=_reshape_type,
    reference=_reshape_reference,
    batch=_reshape_batch,
    transpose=_reshape_transpose,
    factors=_reshape_factors,
    lower=_reshape_lower,
)


@reshape_p.def_localize
def _localize_reshape(params: dict[str, Any], ins: Avals, outs: Avals) -> dict[str, Any]:
    return dict(params, new_sizes=outs[0].shape)


@takes_out_sharding
def reshape(
    operand: ArrayLike, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None
) -> Array:
    """Return `operand` in shape `new_sizes`, in row-major order after permutation by `dimensions`.

    >>> reshape(np.arange(6), (2, 3)).shape
    (2, 3)
    """
    new_sizes = tuple([n if type(n) is int else as_size(n) for n in new_sizes])
    if dimensions is not None:
        operand = transpose(operand, dimensions)
    if typeof(operand).shape == new_sizes and hasattr(class_of(operand), "aval"):
        return operand
    return reshape_p.bind(operand, new_sizes=new_sizes)


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Return `operand` with dims from `start_dimension` up to `stop_dimension` merged into one.

    >>> collapse(np.ones((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    shape = typeof(operand).shape
    start, stop, _ = slice(start_dimension, stop_dimension).indices(len(shape))
    if stop < start:
        raise shape_error(
            "collapse", f"start {start_dimension} comes after stop {stop_dimension}.", ()
        )
    return reshape(operand, (*shape[:start], math.prod(shape[start:stop]), *shape[stop:]))


# --- transpose --------------------------------------------------------------------------------------------------------


def _transpose_type(aval: ShapedArray, *, permutation: Ints) -> ShapedArray:
    if sorted(permutation) != list(range(aval.ndim)):
        raise shape_error(
            "transpose",
            f"permutation {tuple(permutation)} isn't a permutation of the operand's dims.",
            [("operand", aval.str_short())],
        )
    return aval.update(shape=tuple(aval.shape[d] for d in permutation))


def inverse_permutation(permutation: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes `permutation`."""
    return tuple(int(i) for i in np.argsort(permutation))


def _transpose_batch(axis: BatchAxis, x: Value, dim: int, *, permutation: Ints):
    shifted = [d + (d >= dim) for d in permutation]
    return transpose_p.bind(x, permutation=(dim, *shifted)), 0


def _transpose_factors(
    b: RuleBuilder, in_aval: ShapedArray, out_aval: ShapedArray, *, permutation: Ints
):
    ins = b.add_factors(in_aval.shape)
    return ins, [ins[d] for d in permutation]


def _transpose_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    in_aval: ShapedArray,
    out_aval: ShapedArray,
    *,
    permutation: Ints,
):
    return x(tuple(index[i] for i in inverse_permutation(permutation)))


def _transpose_reference(x: NumPyArray, *, permutation: Ints) -> NumPyArray:
    return np.transpose(x, permutation)


def _transpose_transpose(ct: Value, x: UndefPrimal, *, permutation: Ints) -> Value:
    return transpose(ct, inverse_permutation(permutation))


transpose_p: Primitive = layout(
    "transpose",
    moves="permute",
    type=_transpose_type,
    reference=_transpose_reference,
    transpose=_transpose_transpose,
    batch=_transpose_batch,
    factors=_transpose_factors,
    lower=_transpose_lower,
)


def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Return `operand` with its dims in the order `permutation`.

    >>> transpose(np.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    permutation = tuple(map(int, permutation))
    if permutation == tuple(range(typeof(operand).ndim)) and hasattr(class_of(operand), "aval"):
        return operand
    return transpose_p.bind(operand, permutation=permutation)


# --- rev --------------------------------------------------------------------------------------------------------------


def _rev_type(aval: ShapedArray, *, dimensions: Ints) -> ShapedArray:
    check_axes("rev", aval, tuple(dimensions))
    return aval


def _rev_batch(axis: BatchAxis, x: Value, dim: int, *, dimensions: Ints):
    return rev_p.bind(x, dimensions=tuple(d + (d >= dim) for d in dimensions)), dim


def _rev_factors(b: RuleBuilder, in_aval: ShapedArray, out_aval: ShapedArray, *, dimensions: Ints):
    fs = b.add_factors(in_aval.shape)
    return b.rule([fs], [fs], special={fs[d]: "replicate" for d in dimensions}, linear_ins=(0,))


def _rev_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    in_aval: ShapedArray,
    out_aval: ShapedArray,
    *,
    dimensions: Ints,
):
    return x(
        tuple(
            b.isub(in_aval.shape[d] - 1, i) if d in dimensions else i for d, i in enumerate(index)
        )
    )


def _rev_reference(x: NumPyArray, *, dimensions: Ints) -> NumPyArray:
    return np.flip(x, dimensions)


def _rev_transpose(ct: Value, x: UndefPrimal, *, dimensions: Ints) -> Value:
    return rev(ct, dimensions)


rev_p: Primitive = layout(
    "rev",
    type=_rev_type,
    reference=_rev_reference,
    transpose=_rev_transpose,
    batch=_rev_batch,
    factors=_rev_factors,
    lower=_rev_lower,
)


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Return `operand` with the order along `dimensions` reversed.

    >>> np.asarray(rev(np.array([1, 2, 3]), (0,))).tolist()
    [3, 2, 1]
    """
    return rev_p.bind(operand, dimensions=canonical_dims("rev", dimensions, typeof(operand).ndim))


# --- squeeze ----------------------------------------------------------------------------------------------------------


def _squeeze_type(aval: ShapedArray, *, dimensions: Ints) -> ShapedArray:
    check_axes("squeeze", aval, tuple(dimensions))
    if any(aval.shape[d] != 1 for d in dimensions):
        raise shape_error(
            "squeeze",
            f"cannot select an axis to squeeze out that is not of size 1, in dims {tuple(dimensions)}.",
            [("operand", aval.str_short())],
        )
    return aval.update(shape=tuple(s for d, s in enumerate(aval.shape) if d not in dimensions))


def _squeeze_batch(axis: BatchAxis, x: Value, dim: int, *, dimensions: Ints):
    shifted = tuple(d + (d >= dim) for d in dimensions)
    return squeeze_p.bind(x, dimensions=shifted), dim - sum(d < dim for d in shifted)


def _squeeze_factors(
    b: RuleBuilder, in_aval: ShapedArray, out_aval: ShapedArray, *, dimensions: Ints
):
    ins = [() if d in dimensions else b.new(s) for d, s in enumerate(in_aval.shape)]
    return ins, [f for d, f in enumerate(ins) if d not in dimensions]


def _squeeze_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    in_aval: ShapedArray,
    out_aval: ShapedArray,
    *,
    dimensions: Ints,
):
    indices = iter(index)
    return x(
        tuple(b.const(0, "i64") if d in dimensions else next(indices) for d in range(in_aval.ndim))
    )


def _squeeze_reference(x: NumPyArray, *, dimensions: Ints) -> NumPyArray:
    return np.squeeze(x, tuple(dimensions))


def _squeeze_transpose(ct: Value, x: UndefPrimal, *, dimensions: Ints) -> Value:
    return expand_dims(ct, dimensions)


squeeze_p: Primitive = layout(
    "squeeze",
    moves="reshape",
    type=_squeeze_type,
    reference=_squeeze_reference,
    transpose=_squeeze_transpose,
    batch=_squeeze_batch,
    factors=_squeeze_factors,
    lower=_squeeze_lower,
)


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Return `array` without `dimensions`, which must have size 1.

    >>> squeeze(np.ones((1, 3)), (0,)).shape
    (3,)
    """
    dims = canonical_dims("squeeze", dimensions, typeof(array).ndim)
    return (
        squeeze_p.bind(array, dimensions=dims)
        if dims or not hasattr(class_of(array), "aval")
        else array
    )


# --- iota -------------------------------------------------------------------------------------------------------------

iota_p = LayoutOp("iota", moves="iota")


@iota_p.def_type
def _iota_type(*, dtype: np.dtype[Any], shape: Ints, dimension: int) -> ShapedArray:
    if not 0 <= dimension < len(shape):
        raise shape_error(
            "iota", f"dimension {dimension} is out of bounds for shape {tuple(shape)}.", ()
        )
    if [n for n in shape if n < 0]:
        raise shape_error("iota", f"sizes must not be negative, got {tuple(shape)}.", ())
    if not families.dtype_in(dtype, families.NUMBER):
        raise TypeError(f"iota: does not make elements of dtype {dtype}.")
    return ShapedArray(shape, dtype)


@iota_p.def_reference
def _iota_reference(*, dtype: dtypes.DTypeLike, shape: Ints, dimension: int):
    line = np.arange(shape[dimension]).astype(dtype)
    return np.broadcast_to(
        line.reshape(_place_sizes((shape[dimension],), len(shape), (dimension,))), shape
    ).copy()


@iota_p.def_jvp
def _iota_jvp(primals: Values, tangents: Values, **params: Any):
    out = iota_p.bind(**params)
    return out, Zero(typeof(out).to_tangent_aval())


@iota_p.def_factors
def _iota_factors(
    in_avals: Avals, out_avals: Avals, *, dtype: dtypes.DTypeLike, shape: Ints, dimension: int
) -> FactorRule:
    b = RuleBuilder()
    fs = b.add_factors(shape)
    return b.rule([], [fs], special={fs[dimension]: "offset"})


@iota_p.def_lower
def _iota_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    *,
    in_avals: Avals,
    out_avals: Avals,
    dtype: dtypes.DTypeLike,
    shape: Ints,
    dimension: int,
):
    target = b.type_of(out_avals[0])
    if target in ("c64", "c128"):
        part = {"c64": "f32", "c128": "f64"}[target]
        return b.op("complex", b.cast(index[dimension], part), b.const(0.0, part), type=target)
    return b.cast(index[dimension], target)


iota_p.define(
    transpose=declare_unsupported("has no operands"), batch=declare_unsupported("has no operands")
)


def iota(dtype: dtypes.DTypeLike, size: int | SymbolicDim) -> Array:
    """Return the integers from 0 to `size` - 1 as a vector.

    >>> np.asarray(iota("int32", 3)).tolist()
    [0, 1, 2]
    """
    return broadcasted_iota(dtype, (size,), 0)


@takes_out_sharding
def broadcasted_iota(
    dtype: dtypes.DTypeLike, shape: Sequence[int | SymbolicDim], dimension: int
) -> Array:
    """Return an array of `shape` whose elements are their own index along `dimension`."""
    dtype = dtypes.check_dtype(dtype, "broadcasted_iota")
    return iota_p.bind(
        dtype=dtype,
        shape=tuple([n if type(n) is int else as_size(n) for n in shape]),
        dimension=int(dimension),
    )


def index_range(n: int | SymbolicDim, dtype: dtypes.DTypeLike = np.int32) -> Any:
    """Return the integers below a size: a NumPy constant, or an `iota` if the size is symbolic."""
    return iota(dtype, n) if isinstance(n, SymbolicDim) else np.arange(n, dtype=dtype)


# --- symbolic sizes ---------------------------------------------------------------------------------------------------

#: params: size, symbolic; dtype, or None for the dtype of Python integers. The result is the size
#: as a number; `export` replaces it by a constant where the size is known
dim_as_value_p = LayoutOp("dim_as_value")


@dim_as_value_p.def_type
def _dim_as_value_type(*, size: int | SymbolicDim, dtype: dtypes.DTypeLike) -> ShapedArray:
    return typeof(size) if dtype is None else ShapedArray((), dtype)


def _without_value(size: int | SymbolicDim) -> InconclusiveDimensionOperation:
    return InconclusiveDimensionOperation(
        f"Symbolic dimension '{size}' used as a value outside of a traced program, where it has none.\n"
        "  Use it in a function that export or eval_shape traces."
    )


@dim_as_value_p.def_reference
def _dim_as_value_reference(*, size: int | SymbolicDim, dtype: dtypes.DTypeLike):
    raise _without_value(size)


@dim_as_value_p.def_lower
def _dim_as_value_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    *,
    in_avals: Avals,
    out_avals: Avals,
    size: int | SymbolicDim,
    dtype: dtypes.DTypeLike,
):
    raise _without_value(size)


@dim_as_value_p.def_jvp
def _dim_as_value_jvp(primals: Values, tangents: Values, **params: Any):
    out = dim_as_value_p.bind(**params)
    return out, Zero(typeof(out).to_tangent_aval())


@dim_as_value_p.def_factors
def _dim_as_value_factors(
    in_avals: Avals, out_avals: Avals, *, size: int | SymbolicDim, dtype: dtypes.DTypeLike
) -> FactorRule:
    return RuleBuilder().rule([], [[]])


dim_as_value_p.define(
    transpose=declare_unsupported("has no operands"), batch=declare_unsupported("has no operands")
)

# --- copies and constants ---------------------------------------------------------------------------------------------


def _copy_reference(x: NumPyArray) -> NumPyArray:
    return np.array(x)


copy_p = elementwise(
    "copy",
    ANY,
    _copy_reference,
    jvp="linear",
    transpose=[lambda ct, x: copy(ct)],
    emit=lambda b, x: x,
    linear_ins=(0,),
    widen=False,
    computes="copy",
    is_exact=True,
    passes_nans=True,
)
copy = unary(copy_p, "Return a copy of `x` in memory of its own.")


#: params: name. The value, under a name for checkpoint policies; its derivative has no name.
name_p = elementwise(
    "name",
    ANY,
    lambda x, name: x,
    jvp=[lambda t, out, x, name: t],
    transpose=[lambda ct, x, name: ct],
    emit=lambda b, x, name: x,
    linear_ins=(0,),
    widen=False,
    computes="copy",
    passes_nans=True,
)


def name(x: Value, name: str):
    """Return `x`, known to checkpoint policies as `name`."""
    return name_p.bind(x, name=name)


#: params: xla_metadata_kvs. The value, whose operation has these attributes; its derivative has
#: none.
xla_metadata_value_p = elementwise(
    "xla_metadata_value",
    ANY,
    lambda x, xla_metadata_kvs: x,
    jvp=[lambda t, out, x, xla_metadata_kvs: t],
    transpose=[lambda ct, x, xla_metadata_kvs: ct],
    emit=lambda b, x, xla_metadata_kvs: x,
    linear_ins=(0,),
    widen=False,
    computes="copy",
    tags=True,
)


def xla_metadata_value(x: Value, xla_metadata_kvs: tuple[Any, ...]):
    """Return `x`, with attributes on its operation: sorted pairs of key and value."""
    return xla_metadata_value_p.bind(x, xla_metadata_kvs=xla_metadata_kvs)


def full(
    shape: Sequence[int],
    fill_value: ArrayLike,
    dtype: dtypes.DTypeLike = None,
    *,
    sharding: Any = None,
) -> Array:
    """Return an array of `shape` filled with the scalar `fill_value`, with the given `sharding`.

    Without a `dtype` it is weakly typed if `fill_value` is.

    >>> np.asarray(full((2,), 7)).tolist()
    [7, 7]
    """
    aval = typeof(fill_value)
    if aval.ndim:
        raise shape_error(
            "full", "fill_value must be a scalar.", [("fill_value", aval.str_short())]
        )
    weak = aval.weak_type and dtype is None
    dtype = aval.dtype if dtype is None else dtypes.check_dtype(dtype, "full")
    if isinstance(dtype, dtypes.KeyDType):  # keys: fill each word of their raw data
        words = full((*shape, *dtype.impl.key_shape), fill_value, np.uint32, sharding=sharding)
        return registry["random_wrap"].bind(words, impl=dtype.impl)
    value = (
        registry["convert_element_type"].bind(
            fill_value, new_dtype=dtype, weak_type=weak, sharding=None
        )
        if weak or hasattr(class_of(fill_value), "aval")
        else scalar_of_dtype(fill_value, dtype)
    )
    sizes = tuple([n if type(n) is int else as_size(n) for n in shape])
    fill = lambda: broadcast_in_dim_p.bind(value, shape=sizes, broadcast_dimensions=())
    if (
        isinstance(sharding, Sharding)
        and not is_abstract(sharding)
        and not (isinstance(sharding, NamedSharding) and sharding.mesh.explicit_axes)
    ):
        # a placement, which types do not record
        return registry["sharding_constraint"].bind(fill(), sharding=sharding)
    return with_out_sharding(sharding, "full", fill)


def full_like(
    x: Value,
    fill_value: Value,
    dtype: dtypes.DTypeLike = None,
    shape: Sequence[int] | None = None,
    *,
    sharding: Any = None,
):
    """Return `full` with the shape, dtype, weak type and sharding of `x` where none are given.

    The result varies over the axes of `x`. With another shape it has the sharding of `x` if `x` is
    not split.
    """
    aval = typeof(x)
    if shape is None and sharding is None:
        sharding = aval.explicit
    out = full(
        aval.shape if shape is None else shape,
        fill_value,
        aval.dtype if dtype is None else dtype,
        sharding=sharding,
    )
    if dtype is None and aval.weak_type:
        out = registry["convert_element_type"].bind(
            out, new_dtype=aval.dtype, weak_type=True, sharding=None
        )
    if (
        sharding is None
        and getattr(x, "committed", False)
        and (shape is None or x.sharding.is_fully_replicated)
    ):
        # the placement of `x`
        return registry["sharding_constraint"].bind(out, sharding=x.sharding)
    return cast(out, aval.vma) if aval.vma else out
