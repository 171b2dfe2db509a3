"""Collectives: operations between the devices (or examples) along named axes.

In:   a value per position along the named axes, which vmap(axis_name=...), shard_map or the partitioner bring in.
Out:  a value per position again.
Laws: several axes count as one, the first being the major one. A collective has no meaning on arrays alone; its
      *batch* rule over one of its axes is its meaning: it becomes ordinary operations on the dim that stands for the
      axis, and the other axes stay bound. A result that is the same for all positions has no such dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.primitive import BatchAxis, Primitive, unsupported
from weft.core.trace import Tracer, Zero, axis_env_size, typeof
from weft.ir.types import ShapedArray
from weft.ops.elementwise import add, bitwise_or, convert_element_type, div, eq, mul
from weft.ops.families import move_dim, shape_error, zero_tangent, zeros
from weft.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p
from weft.ops.layout import iota, reshape, squeeze, transpose
from weft.ops.reduce import reduce_max, reduce_min, reduce_sum
from weft.ops.rules import at_front, insert
from weft.ops.slicing import canonical_dim, concatenate, dynamic_update_slice_in_dim, slice_in_dim
from weft.util import dtypes
from weft.util.tree import tree_map

Axes = tuple[Any, ...]
AxisName = Any
Perm = Sequence[tuple[int, int]]

_NO_REFERENCE = "A collective means nothing on one array alone; stack the mesh axes first."
_NOT_SPLIT = "A collective stands in the program of one device; there is nothing left to split."
_NO_KERNEL = "Collectives become ordinary operations when the mesh axes are stacked."


def _collective(name: str) -> Primitive:
    p = Primitive(name, "collective")
    p.define(reference=unsupported(_NO_REFERENCE), factors=unsupported(_NOT_SPLIT), lower=unsupported(_NO_KERNEL))
    return p


psum_p = _collective("psum")
pmax_p = _collective("pmax")
pmin_p = _collective("pmin")
all_gather_p = _collective("all_gather")
reduce_scatter_p = _collective("reduce_scatter")
all_to_all_p = _collective("all_to_all")
ppermute_p = _collective("ppermute")
axis_index_p = _collective("axis_index")
pvary_p = _collective("pvary")
own_slice_p = _collective("own_slice")


# --- the functions


def axes_of(axis_name: AxisName) -> Axes:
    """Names as a tuple; NameError if one is not in scope."""
    axes = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    for name in axes:
        axis_env_size(name)
    return axes


def _no_groups(api: str, groups: Any) -> None:
    if groups is not None:
        raise NotImplementedError(
            f"{api}: axis_index_groups is not supported. Split the axis into two named axes instead."
        )


def axis_size(axis_name: AxisName) -> int:
    """The number of positions along the named axis, or axes together."""
    return math.prod(axis_env_size(a) for a in axes_of(axis_name))


def axis_index(axis_name: AxisName) -> Any:
    """This position's number along the named axis (along several: the first is the major one)."""
    index: Any = None
    for name in axes_of(axis_name):
        here = axis_index_p.bind(axis_name=name)
        index = here if index is None else add(mul(index, np.int32(axis_env_size(name))), here)
    return np.int32(0) if index is None else index


def psum(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The sum of `x` over all positions along the named axes. The sum of a Python number is known at once."""
    _no_groups("psum", axis_index_groups)
    axes = axes_of(axis_name)
    size = axis_size(axes)

    def one(leaf):
        if not isinstance(leaf, Tracer) and typeof(leaf).ndim == 0 and not hasattr(leaf, "aval"):
            return leaf * size
        if typeof(leaf).dtype == np.bool_:
            leaf = convert_element_type(leaf, np.int32)
        return psum_p.bind(leaf, axes=axes, axis_index_groups=None) if axes else leaf

    return tree_map(one, x)


def pmean(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The mean of `x` over all positions along the named axes."""
    size = axis_size(axis_name)

    def one(total):
        if not hasattr(total, "dtype"):
            return total / size
        dtype = dtypes.to_inexact_dtype(total.dtype)
        return div(convert_element_type(total, dtype), np.asarray(size, dtype)[()])

    return tree_map(one, psum(x, axis_name, axis_index_groups=axis_index_groups))


def pmax(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The greatest `x` of all positions along the named axes, elementwise."""
    _no_groups("pmax", axis_index_groups)
    axes = axes_of(axis_name)
    return tree_map(lambda leaf: pmax_p.bind(leaf, axes=axes, axis_index_groups=None), x)


def pmin(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The least `x` of all positions along the named axes, elementwise."""
    _no_groups("pmin", axis_index_groups)
    axes = axes_of(axis_name)
    return tree_map(lambda leaf: pmin_p.bind(leaf, axes=axes, axis_index_groups=None), x)


def all_gather(
    x: Any, axis_name: AxisName, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False
) -> Any:
    """The values of all positions along a new dim `axis`, or, if `tiled`, concatenated along dim `axis`."""
    _no_groups("all_gather", axis_index_groups)
    axes = axes_of(axis_name)
    size = axis_size(axes)

    def one(leaf):
        dim = canonical_dim(axis, typeof(leaf).ndim + (not tiled), "all_gather")
        return all_gather_p.bind(
            leaf, all_gather_dimension=dim, axis_name=axes, axis_size=size, tiled=tiled, axis_index_groups=None
        )

    return tree_map(one, x)


def psum_scatter(
    x: Any, axis_name: AxisName, *, scatter_dimension: int = 0, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """The sum over all positions, of which each keeps its part along `scatter_dimension` (gone unless `tiled`)."""
    _no_groups("psum_scatter", axis_index_groups)
    axes = axes_of(axis_name)
    size = axis_size(axes)

    def one(leaf):
        dim = canonical_dim(scatter_dimension, typeof(leaf).ndim, "psum_scatter")
        return reduce_scatter_p.bind(
            leaf, scatter_dimension=dim, axis_name=axes, axis_size=size, tiled=tiled, axis_index_groups=None
        )

    return tree_map(one, x)


def all_to_all(
    x: Any,
    axis_name: AxisName,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Cut `x` along dim `split_axis`, send part k to position k, and put what arrives together along `concat_axis`.

    If not `tiled`, dim `split_axis` must have one entry per position; it goes, and `concat_axis` is a new dim.
    """
    _no_groups("all_to_all", axis_index_groups)
    axes = axes_of(axis_name)
    size = axis_size(axes)

    def bind(leaf, split, concat):
        return all_to_all_p.bind(
            leaf,
            split_axis=split,
            concat_axis=concat,
            axis_name=axes,
            axis_size=size,
            tiled=True,
            axis_index_groups=None,
        )

    def one(leaf):
        shape = typeof(leaf).shape
        split = canonical_dim(split_axis, len(shape), "all_to_all")
        concat = canonical_dim(concat_axis, len(shape), "all_to_all")
        if tiled:
            return bind(leaf, split, concat)
        if shape[split] != size:
            raise shape_error(
                "all_to_all",
                f"dim {split} must have one entry per position along the axis.",
                [("operand", typeof(leaf).str_short()), ("axis size", size)],
                "",
                "Use tiled=True to send blocks of several entries.",
            )
        new = concat if concat <= split else concat + 1
        split = split + 1 if new <= split else split
        return squeeze(bind(reshape(leaf, insert(shape, new, 1)), split, new), (split,))

    return tree_map(one, x)


def ppermute(x: Any, axis_name: AxisName, perm: Perm) -> Any:
    """Send `x` from position s to position d for each (s, d) in `perm`; who receives nothing gets zeros."""
    axes = axes_of(axis_name)
    pairs = tuple((int(s), int(d)) for s, d in perm)
    size = axis_size(axes)
    sources, targets = [s for s, _ in pairs], [d for _, d in pairs]
    if len(set(sources)) != len(pairs) or len(set(targets)) != len(pairs):
        raise ValueError(f"ppermute: sources and destinations must be unique, got {pairs}.")
    if any(not 0 <= i < size for pair in pairs for i in pair):
        raise ValueError(f"ppermute: positions must lie in 0..{size - 1} along {axes}, got {pairs}.")
    return tree_map(lambda leaf: ppermute_p.bind(leaf, axis_name=axes, perm=pairs), x)


def pshuffle(x: Any, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """Position i gets the value of position `perm[i]`; `perm` names every position once."""
    if sorted(perm) != list(range(axis_size(axis_name))):
        raise ValueError(
            f"pshuffle: perm must be a permutation of all positions along {axis_name!r}, got {tuple(perm)}."
        )
    return ppermute(x, axis_name, [(s, d) for d, s in enumerate(perm)])


def pswapaxes(x: Any, axis_name: AxisName, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Exchange the named axis with dim `axis`, which must have its size."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pvary(x: Any, axis_name: AxisName) -> Any:
    """`x`, typed as varying over the named axes though its value is the same everywhere."""
    axes = axes_of(axis_name)
    return tree_map(lambda leaf: pvary_p.bind(leaf, axes=axes) if axes else leaf, x)


def pcast(x: Any, axis_name: AxisName, *, to: str) -> Any:
    """`x`, typed as varying over the named axes (`to="varying"`)."""
    if to != "varying":
        raise NotImplementedError(f"pcast: to={to!r} is not supported; 'varying' is.")
    return pvary(x, axis_name)


def own_slice(x: Any, axis_name: AxisName, dim: int) -> Any:
    """This position's block of dim `dim` of a value that all positions have."""
    axes = axes_of(axis_name)
    return own_slice_p.bind(x, axis_name=axes, axis_size=axis_size(axes), dim=int(dim))


# --- helpers of batch rules


def _rest(axes: Axes, name: Any) -> tuple[Axes, int, int]:
    """The axes but `name`, with the number of positions along those before and after it."""
    at = axes.index(name)
    sizes = [1 if a == name else axis_env_size(a) for a in axes]
    return axes[:at] + axes[at + 1 :], math.prod(sizes[:at]), math.prod(sizes[at:])


def _regroup(x: Any, labels: Sequence[Any], sizes: Sequence[int], groups: Sequence[Sequence[Any]]) -> Any:
    """`x`, whose elements run over dims `labels` of `sizes`, with these dims put together into `groups`."""
    x = reshape(x, tuple(sizes))
    order = tuple(labels.index(label) for group in groups for label in group)
    if order != tuple(range(len(order))):
        x = transpose(x, order)
    size_of = dict(zip(labels, sizes))
    return reshape(x, tuple(math.prod(size_of[label] for label in group) for group in groups))


def _blocks(shape: Sequence[int], dim: int, major: int, own: int, minor: int, tiled: bool) -> tuple[list, list]:
    """Labels and sizes of the dims of `shape`, dim `dim` taken apart into major, own and minor blocks and, if tiled,
    the inside of a block."""
    labels, sizes = [], []
    for d, n in enumerate(shape):
        if d != dim:
            labels.append(d)
            sizes.append(n)
            continue
        labels += ["major", "own", "minor"]
        sizes += [major, own, minor]
        if tiled:
            labels.append(d)
            sizes.append(n // (major * own * minor))
    return labels, sizes


def _own_part(x: Any, axis: BatchAxis, axes: Axes, dim: int, tiled: bool, on_rest: Callable) -> Any:
    """The blocks of dim `dim` of unbatched `x`, one for each position: the batch dim comes first.

    `on_rest(y, axes, size)` takes the part along the other axes from dim 1 of `y`, and removes that dim."""
    rest, major, minor = _rest(axes, axis.name)
    labels, sizes = _blocks(typeof(x).shape, dim, major, axis.size, minor, tiled)
    kept = [label for label in labels if isinstance(label, int)]
    y = _regroup(x, labels, sizes, [["own"], ["major", "minor"], *[[k] for k in kept]])
    return on_rest(y, rest, major * minor) if rest else squeeze(y, (1,))


# --- psum, pmax, pmin


def _reduction_type(aval: ShapedArray, *, axes, axis_index_groups) -> ShapedArray:
    return aval.update(vma=aval.vma - frozenset(axes)) if aval.vma else aval


def _batch_reduction(primitive: Primitive, over_dim: Callable, unbatched: Callable) -> None:
    @primitive.def_batch
    def batch(axis, args, dims, *, axes, axis_index_groups):
        (x,), (dim,) = args, dims
        if axis.name is None or axis.name not in axes:
            return primitive.bind(x, axes=axes, axis_index_groups=axis_index_groups), dim
        x = over_dim(x, (dim,)) if dim is not None else unbatched(x, axis.size)
        rest = tuple(a for a in axes if a != axis.name)
        return (primitive.bind(x, axes=rest, axis_index_groups=axis_index_groups) if rest else x), None

    primitive.define(type=_reduction_type)


def _times(x: Any, size: int) -> Any:
    return mul(x, np.asarray(size).astype(typeof(x).dtype)[()])


_batch_reduction(psum_p, reduce_sum, _times)
_batch_reduction(pmax_p, reduce_max, lambda x, size: x)
_batch_reduction(pmin_p, reduce_min, lambda x, size: x)


def _linear(primitive: Primitive) -> None:
    @primitive.def_jvp
    def jvp(primals, tangents, **params):
        out = primitive.bind(*primals, **params)
        if type(tangents[0]) is Zero:
            return out, zero_tangent(out)
        return out, primitive.bind(tangents[0], **params)


for _p in (psum_p, all_gather_p, reduce_scatter_p, all_to_all_p, ppermute_p, pvary_p, own_slice_p):
    _linear(_p)
del _p


@psum_p.def_transpose
def _psum_transpose(ct, x, *, axes, axis_index_groups):
    # where types say over which axes a value varies, the result's cotangent is one value for all; elsewhere each
    # position has its own copy of the result, and their cotangents add up
    told = tuple(a for a in axes if a in x.aval.vma)
    untold = tuple(a for a in axes if a not in x.aval.vma)
    if told:
        ct = pvary_p.bind(ct, axes=told)
    return [psum_p.bind(ct, axes=untold, axis_index_groups=axis_index_groups) if untold else ct]


def _extremum_jvp(primitive: Primitive) -> None:
    primitive.define(transpose=unsupported("is not linear in its operand"))

    @primitive.def_jvp
    def jvp(primals, tangents, **params):
        out = primitive.bind(*primals, **params)
        zero = zero_tangent(out)
        if type(tangents[0]) is Zero or zero.aval.dtype == dtypes.float0:
            return out, zero
        attained = convert_element_type(eq(primals[0], out), typeof(out).dtype)
        total = psum_p.bind(mul(tangents[0], attained), **params)
        return out, div(total, psum_p.bind(attained, **params))


_extremum_jvp(pmax_p)
_extremum_jvp(pmin_p)


# --- pvary


@pvary_p.def_type
def _pvary_type(aval, *, axes):
    return aval.update(vma=aval.vma | frozenset(axes))


@pvary_p.def_batch
def _pvary_batch(axis, args, dims, *, axes):
    rest = tuple(a for a in axes if a != axis.name)
    return (pvary_p.bind(args[0], axes=rest) if rest else args[0]), dims[0]


@pvary_p.def_transpose
def _pvary_transpose(ct, x, *, axes):
    told = tuple(a for a in axes if a in typeof(ct).vma)
    return [psum_p.bind(ct, axes=told, axis_index_groups=None) if told else ct]


# --- all_gather


@all_gather_p.def_type
def _all_gather_type(aval, *, all_gather_dimension, axis_name, axis_size, tiled, axis_index_groups):
    shape = list(aval.shape)
    if tiled:
        shape[all_gather_dimension] *= axis_size
    else:
        shape.insert(all_gather_dimension, axis_size)
    return aval.update(shape=tuple(shape), sharding=None)


@all_gather_p.def_batch
def _all_gather_batch(axis, args, dims, *, all_gather_dimension, axis_name, axis_size, tiled, axis_index_groups):
    (x,), (batch_dim,) = args, dims
    bind = lambda x, dim, axes, size, tiled: all_gather_p.bind(
        x, all_gather_dimension=dim, axis_name=axes, axis_size=size, tiled=tiled, axis_index_groups=axis_index_groups
    )
    dim = all_gather_dimension
    x = at_front(x, batch_dim, axis.size)
    if axis.name is None or axis.name not in axis_name:
        return bind(x, dim + 1, axis_name, axis_size, tiled), 0
    rest, major, minor = _rest(axis_name, axis.name)
    shape = typeof(x).shape[1:]
    if rest:
        x = bind(x, 0, rest, major * minor, False)
    labels = ["major", "minor", "own", *range(len(shape))]
    gathered = ["major", "own", "minor"]
    groups: list[list[Any]] = [[d] for d in range(len(shape))]
    if tiled:
        groups[dim] = [*gathered, dim]
    else:
        groups.insert(dim, gathered)
    return _regroup(x, labels, [major, minor, axis.size, *shape], groups), None


@all_gather_p.def_transpose
def _all_gather_transpose(ct, x, *, all_gather_dimension, axis_name, axis_size, tiled, axis_index_groups):
    return [
        reduce_scatter_p.bind(
            ct,
            scatter_dimension=all_gather_dimension,
            axis_name=axis_name,
            axis_size=axis_size,
            tiled=tiled,
            axis_index_groups=axis_index_groups,
        )
    ]


# --- reduce_scatter, own_slice


def _check_divides(name: str, aval: ShapedArray, dim: int, size: int, axes: Axes) -> None:
    if aval.shape[dim] % size:
        raise shape_error(
            name,
            f"dim {dim} of size {aval.shape[dim]} cannot be cut into {size} equal blocks.",
            [("operand", aval.str_short()), ("axes", axes)],
        )


@reduce_scatter_p.def_type
def _reduce_scatter_type(aval, *, scatter_dimension, axis_name, axis_size, tiled, axis_index_groups):
    shape = list(aval.shape)
    if tiled:
        _check_divides("reduce_scatter", aval, scatter_dimension, axis_size, axis_name)
        shape[scatter_dimension] //= axis_size
    else:
        if shape[scatter_dimension] != axis_size:
            raise shape_error(
                "reduce_scatter",
                f"dim {scatter_dimension} must have one entry per position along the axis.",
                [("operand", aval.str_short()), ("axis size", axis_size)],
                "",
                "Use tiled=True to scatter blocks of several entries.",
            )
        del shape[scatter_dimension]
    return aval.update(shape=tuple(shape), sharding=None)


@reduce_scatter_p.def_batch
def _reduce_scatter_batch(axis, args, dims, *, scatter_dimension, axis_name, axis_size, tiled, axis_index_groups):
    (x,), (batch_dim,) = args, dims
    bind = lambda x, dim, axes, size, tiled: reduce_scatter_p.bind(
        x, scatter_dimension=dim, axis_name=axes, axis_size=size, tiled=tiled, axis_index_groups=axis_index_groups
    )
    if axis.name is None or axis.name not in axis_name:
        return bind(at_front(x, batch_dim, axis.size), scatter_dimension + 1, axis_name, axis_size, tiled), 0
    total = reduce_sum(x, (batch_dim,)) if batch_dim is not None else _times(x, axis.size)
    return _own_part(total, axis, axis_name, scatter_dimension, tiled, lambda y, axes, n: bind(y, 1, axes, n, False)), 0


@reduce_scatter_p.def_transpose
def _reduce_scatter_transpose(ct, x, *, scatter_dimension, axis_name, axis_size, tiled, axis_index_groups):
    return [
        all_gather_p.bind(
            ct,
            all_gather_dimension=scatter_dimension,
            axis_name=axis_name,
            axis_size=axis_size,
            tiled=tiled,
            axis_index_groups=axis_index_groups,
        )
    ]


@own_slice_p.def_type
def _own_slice_type(aval, *, axis_name, axis_size, dim):
    _check_divides("own_slice", aval, dim, axis_size, axis_name)
    shape = list(aval.shape)
    shape[dim] //= axis_size
    return aval.update(shape=tuple(shape), sharding=None)


@own_slice_p.def_batch
def _own_slice_batch(axis, args, dims, *, axis_name, axis_size, dim):
    (x,), (batch_dim,) = args, dims
    bind = lambda x, axes, size, dim: own_slice_p.bind(x, axis_name=axes, axis_size=size, dim=dim)
    if axis.name is None or axis.name not in axis_name:
        return bind(at_front(x, batch_dim, axis.size), axis_name, axis_size, dim + 1), 0
    on_rest = lambda y, axes, n: squeeze(bind(y, axes, n, 1), (1,))
    if batch_dim is None:
        return _own_part(x, axis, axis_name, dim, True, on_rest), 0
    # every position takes its block from its own value: the diagonal of positions and blocks
    x = move_dim(x, batch_dim, 0)
    rest, major, minor = _rest(axis_name, axis.name)
    labels, sizes = _blocks(typeof(x).shape[1:], dim, major, axis.size, minor, True)
    kept = [label for label in labels if isinstance(label, int)]
    y = _regroup(x, ["all", *labels], [axis.size, *sizes], [["all"], ["own"], ["major", "minor"], *[[k] for k in kept]])
    y = _diagonal(y, axis.size)
    return (on_rest(y, rest, major * minor) if rest else squeeze(y, (1,))), 0


def _diagonal(x: Any, size: int) -> Any:
    """`x[i, i]` for all i, along dim 0."""
    shape = typeof(x).shape
    after = tuple(range(1, len(shape) - 1))
    numbers = GatherDimensionNumbers(after, (1,), (1,), (0,), (0,))
    return gather_p.bind(
        x,
        reshape(iota(np.int32, size), (size, 1)),
        dimension_numbers=numbers,
        slice_sizes=(1, 1, *shape[2:]),
        indices_are_sorted=True,
        unique_indices=True,
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
        fill_value=None,
    )


@own_slice_p.def_transpose
def _own_slice_transpose(ct, x, *, axis_name, axis_size, dim):
    aval = x.aval
    if not typeof(ct).vma - aval.vma:
        return [
            all_gather_p.bind(
                ct,
                all_gather_dimension=dim,
                axis_name=axis_name,
                axis_size=axis_size,
                tiled=True,
                axis_index_groups=None,
            )
        ]
    # the operand is typed as one value for all positions: blocks in their places, summed
    start = mul(axis_index(axis_name), np.int32(aval.shape[dim] // axis_size))
    placed = dynamic_update_slice_in_dim(zeros(aval.update(vma=frozenset())), ct, start, dim)
    return [psum_p.bind(placed, axes=axis_name, axis_index_groups=None)]


# --- all_to_all


@all_to_all_p.def_type
def _all_to_all_type(aval, *, split_axis, concat_axis, axis_name, axis_size, tiled, axis_index_groups):
    _check_divides("all_to_all", aval, split_axis, axis_size, axis_name)
    shape = list(aval.shape)
    shape[split_axis] //= axis_size
    shape[concat_axis] *= axis_size
    return aval.update(shape=tuple(shape), sharding=None)


@all_to_all_p.def_batch
def _all_to_all_batch(axis, args, dims, *, split_axis, concat_axis, axis_name, axis_size, tiled, axis_index_groups):
    bind = lambda x, split, concat, axes, size: all_to_all_p.bind(
        x,
        split_axis=split,
        concat_axis=concat,
        axis_name=axes,
        axis_size=size,
        tiled=True,
        axis_index_groups=axis_index_groups,
    )
    x = at_front(args[0], dims[0], axis.size)
    if axis.name is None or axis.name not in axis_name:
        return bind(x, split_axis + 1, concat_axis + 1, axis_name, axis_size), 0
    rest, major, minor = _rest(axis_name, axis.name)
    labels, sizes = _blocks(typeof(x).shape[1:], split_axis, major, axis.size, minor, True)
    inner = [label for label in labels if isinstance(label, int)]
    # the block's number becomes the position, the position the sender
    x = _regroup(
        x,
        ["sender", *labels],
        [axis.size, *sizes],
        [["own"], ["sender"], ["major", "minor"], *[[d] for d in inner]],
    )
    if rest:
        x = bind(x, 2, 2, rest, major * minor)
    size_of = dict(zip(labels, sizes))
    labels = ["own", "sender", "major", "minor", *inner]
    sizes = [axis.size, axis.size, major, minor, *[size_of[d] for d in inner]]
    groups = [["own"], *[["major", "sender", "minor", d] if d == concat_axis else [d] for d in inner]]
    return _regroup(x, labels, sizes, groups), 0


@all_to_all_p.def_transpose
def _all_to_all_transpose(ct, x, *, split_axis, concat_axis, **params):
    return [all_to_all_p.bind(ct, split_axis=concat_axis, concat_axis=split_axis, **params)]


# --- ppermute


@ppermute_p.def_type
def _ppermute_type(aval, *, axis_name, perm):
    return aval


@ppermute_p.def_transpose
def _ppermute_transpose(ct, x, *, axis_name, perm):
    return [ppermute_p.bind(ct, axis_name=axis_name, perm=tuple((d, s) for s, d in perm))]


@ppermute_p.def_batch
def _ppermute_batch(axis, args, dims, *, axis_name, perm):
    (x,), (dim,) = args, dims
    if axis.name is None or axis.name not in axis_name:
        return ppermute_p.bind(x, axis_name=axis_name, perm=perm), dim
    rest, major, minor = _rest(axis_name, axis.name)
    if dim is None and not rest and len(perm) == axis.size:
        return x, None  # all send the same value, all receive it
    x = at_front(x, dim, axis.size)
    if not rest:
        return _permuted(x, perm), 0
    own = lambda i: i // minor % axis.size
    others = lambda i: i // (minor * axis.size) * minor + i % minor
    moves: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for s, d in perm:
        moves.setdefault((own(s), own(d)), []).append((others(s), others(d)))
    plans = {tuple(sorted(pairs)) for pairs in moves.values()}
    if len(plans) == 1 and len({s for s, _ in moves}) == len({d for _, d in moves}) == len(moves):
        (plan,) = plans  # the same moves along the other axes for all
        y = _permuted(x, tuple(moves))
        return (
            y
            if all(s == d for s, d in plan) and len(plan) == major * minor
            else ppermute_p.bind(y, axis_name=rest, perm=plan)
        ), 0
    # who sends where along this axis depends on the other axes: one exchange per pair, of which at most one arrives
    join = bitwise_or if typeof(x).dtype == np.bool_ else add
    rows = []
    for d in range(axis.size):
        row: Any = None
        for s in range(axis.size):
            if (s, d) in moves:
                sent = slice_in_dim(x, s, s + 1)
                got = ppermute_p.bind(sent, axis_name=rest, perm=tuple(moves[s, d]))
                row = got if row is None else join(row, got)
        rows.append(zeros(typeof(slice_in_dim(x, 0, 1))) if row is None else row)
    return concatenate(rows, 0), 0


_MOST_RUNS = 8


def _permuted(x: Any, perm: Perm) -> Any:
    """The rows of `x` (along dim 0) moved as `perm` says, zeros where nothing goes."""
    n = typeof(x).shape[0]
    source: dict[int, int | None] = dict.fromkeys(range(n)) | {d: s for s, d in perm}
    if all(s == d for d, s in source.items()):
        return x
    runs: list[tuple[int | None, int]] = []  # first source row (None: zeros), length
    for d in range(n):
        s = source[d]
        if runs:
            first, length = runs[-1]
            if (s is None and first is None) or (s is not None and first is not None and s == first + length):
                runs[-1] = (first, length + 1)
                continue
        runs.append((s, 1))
    if len(runs) > _MOST_RUNS:
        return _gathered_rows(x, [n if s is None else s for s in source.values()])
    shape = typeof(x).shape
    blank = lambda length: zeros(typeof(x).update(shape=(length, *shape[1:]), weak_type=False))
    return concatenate([blank(k) if s is None else slice_in_dim(x, s, s + k) for s, k in runs], 0)


def _gathered_rows(x: Any, rows: Sequence[int]) -> Any:
    """The given rows of `x`; zeros for those past the end."""
    shape = typeof(x).shape
    numbers = GatherDimensionNumbers(tuple(range(1, len(shape))), (0,), (0,))
    return gather_p.bind(
        x,
        np.asarray(rows, np.int32)[:, None],
        dimension_numbers=numbers,
        slice_sizes=(1, *shape[1:]),
        indices_are_sorted=False,
        unique_indices=True,
        mode=GatherScatterMode.FILL_OR_DROP,
        fill_value=0,
    )


# --- axis_index


@axis_index_p.def_type
def _axis_index_type(*, axis_name):
    return ShapedArray((), np.dtype(np.int32))


@axis_index_p.def_batch
def _axis_index_batch(axis, args, dims, *, axis_name):
    if axis.name is None or axis.name != axis_name:
        return axis_index_p.bind(axis_name=axis_name), None
    return iota(np.int32, axis.size), 0


@axis_index_p.def_jvp
def _axis_index_jvp(primals, tangents, *, axis_name):
    out = axis_index_p.bind(axis_name=axis_name)
    return out, zero_tangent(out)


axis_index_p.define(transpose=unsupported("has no operand"))
