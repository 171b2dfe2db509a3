"""What collectives mean: their primitives, types, derivatives and batch rules.

In:   equations that the functions of `ops.collectives`, shard_map or the partitioner bind.
Out:  as stated there.
Laws: several axes count as one, the first being the major one. A collective has no meaning on arrays alone; its
      *batch* rule over one of its axes is its meaning: it becomes ordinary operations on the dim that stands for the
      axis, and the other axes stay bound. A result that is the same for all positions has no such dim.
      Groups of positions along an axis are a finer axis: the rule splits the dim into groups and members, and the
      collective works over the members.
      Where types tell over which axes a value varies, operands of a collective vary over all of its axes; each type
      rule says over which its result does. Transposes follow these types. Where types do not tell, every position has
      its own copy of a result, and cotangents of copies add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.primitive import BatchAxis, Primitive, unsupported
from weft.core.trace import Zero, axis_env_size, tracked_axes, typeof
from weft.ir.factors import RuleBuilder, elementwise_rule
from weft.ir.types import ShapedArray
from weft.ops.elementwise import add, convert_element_type, div, eq, mul, select_n
from weft.ops.families import NUMBER, ORDERED, check_dtype, move_dim, shape_error, zero_tangent, zeros
from weft.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p
from weft.ops.layout import iota, reshape, squeeze, transpose
from weft.ops.reduce import reduce_max, reduce_min, reduce_sum
from weft.ops.rules import at_front, jointly_linear
from weft.ops.slicing import concatenate, dynamic_slice_in_dim, dynamic_update_slice_in_dim, slice_in_dim
from weft.util import dtypes

Axes = tuple[Any, ...]
Perm = Sequence[tuple[int, int]]

_NO_REFERENCE = "A collective means nothing on one array alone; stack the mesh axes first."
_NO_KERNEL = "Collectives become ordinary operations when the mesh axes are stacked."


def collective(name: str, factors: Callable | None = None) -> Primitive:
    """A new collective; `factors` says how it may be split over axes that are not its own (none: elementwise)."""
    p = Primitive(name, "collective")
    p.define(reference=unsupported(_NO_REFERENCE), factors=factors or _elementwise_factors, lower=unsupported(_NO_KERNEL))
    return p


def _elementwise_factors(in_avals, out_avals, **params):
    return elementwise_rule(in_avals, out_avals)


def _linear_factors(in_avals, out_avals, **params):
    return elementwise_rule(in_avals, out_avals, linear_ins=(0,))


def _moved_dims(*names: str) -> Callable:
    """Factors of a linear collective that changes the dims told by the params `names`: these stay whole, and so does a
    dim that is new or gone."""

    def factors(in_avals, out_avals, **params):
        (x,), (out,) = in_avals, out_avals
        b = RuleBuilder()
        touched = {params[n] for n in names}
        ins, outs, special = b.news(x.shape), [], {}
        kept = [d for d in range(x.ndim) if d not in touched or out.ndim > x.ndim]
        shared = iter(kept)
        for d in range(out.ndim):
            whole = d in touched and out.ndim >= x.ndim
            outs.append(b.new(out.shape[d]) if whole else ins[next(shared)])
            if whole:
                special[outs[-1]] = "replicate"
        special.update({ins[d]: "replicate" for d in range(x.ndim) if d not in kept})
        return b.rule([ins], [outs], special=special, linear_ins=(0,))

    return factors


psum_p = collective("psum", _linear_factors)
pmax_p = collective("pmax")
pmin_p = collective("pmin")
pvary_p = collective("pvary", _linear_factors)
pbroadcast_p = collective("pbroadcast", _linear_factors)
ppermute_p = collective("ppermute", _linear_factors)
all_gather_p = collective("all_gather", _moved_dims("all_gather_dimension"))
all_gather_invariant_p = collective("all_gather_invariant", _moved_dims("all_gather_dimension"))
reduce_scatter_p = collective("reduce_scatter", _moved_dims("scatter_dimension"))
all_to_all_p = collective("all_to_all", _moved_dims("split_axis", "concat_axis"))
own_slice_p = collective("own_slice", _moved_dims("dim"))
axis_index_p = collective("axis_index")


# --- helpers


def named(params: dict) -> Axes:
    """The axes over which an equation with `params` works."""
    axes = params["axes"] if "axes" in params else params["axis_name"]
    return axes if isinstance(axes, tuple) else (axes,)


def bind_over(primitive: Primitive, *args: Any, **params: Any) -> Any:
    """Bind a collective; one that over several axes is made of others (its rule `several`) is made so."""
    several = primitive.rules.get("several") if len(named(params)) > 1 else None
    return primitive.bind(*args, **params) if several is None else several(*args, **params)


def axes_size(axes: Axes) -> int:
    """The number of positions along `axes`."""
    return math.prod(axis_env_size(a) for a in axes)


def position(axes: Axes) -> Any:
    """This position's number along `axes`, the first being the major one."""
    index: Any = None
    for name in axes:
        here = axis_index_p.bind(axis_name=name)
        index = here if index is None else add(mul(index, np.int32(axis_env_size(name))), here)
    return np.int32(0) if index is None else index


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


def _meaning(primitive: Primitive, *shifted: str) -> Callable:
    """Decorator: the batch rule of `primitive` from its meaning over one of its axes, `fn(axis, x, dim, **params)` that
    gives a result and its batch dim. The params named in `shifted` number dims of the operand."""

    def define(over: Callable) -> Callable:
        @primitive.def_batch
        def batch(axis, args, dims, **params):
            (x,), (dim,) = args, dims
            if axis.name is None or axis.name not in named(params):
                if not shifted:
                    return primitive.bind(x, **params), dim
                return primitive.bind(at_front(x, dim, axis.size), **_bumped(params, shifted)), 0
            if params.get("axis_index_groups") is None:
                return over(axis, x, dim, **params)
            return _in_groups(over, axis, at_front(x, dim, axis.size), _bumped(params, shifted)), 0

        return over

    return define


def _bumped(params: dict, shifted: Sequence[str]) -> dict:
    """`params` of an operand that has a new dim in front."""
    return params | {name: params[name] + 1 for name in shifted}


def _in_groups(over: Callable, axis: BatchAxis, x: Any, params: dict) -> Any:
    """A collective on the rows of `x` within each of the groups; `params` know of a dim in front, which the groups
    become."""
    assert len(named(params)) == 1, "groups along several axes are exchanged by `several`"
    groups = params["axis_index_groups"]
    order = [i for members in groups for i in members]
    count, size = len(groups), len(groups[0])
    y = _permuted(x, [(s, d) for d, s in enumerate(order)])
    y = move_dim(reshape(y, (count, size, *typeof(y).shape[1:])), 1, 0)
    y, dim = over(BatchAxis(size, axis.name), y, 0, **params | {"axis_index_groups": None})
    y = move_dim(at_front(y, dim, size), 1, 0)
    return _permuted(reshape(y, (count * size, *typeof(y).shape[2:])), list(enumerate(order)))


# --- psum, pmax, pmin


def _reduction(primitive: Primitive, over_dim: Callable, unbatched: Callable) -> None:
    @_meaning(primitive)
    def over(axis, x, dim, *, axes, axis_index_groups):
        x = over_dim(x, (dim,)) if dim is not None else unbatched(x, axis.size)
        rest = tuple(a for a in axes if a != axis.name)
        return (primitive.bind(x, axes=rest, axis_index_groups=axis_index_groups) if rest else x), None

    def type_rule(aval, *, axes, axis_index_groups):
        check_dtype(primitive.name, aval, NUMBER if primitive is psum_p else ORDERED)
        if not aval.vma or axis_index_groups is not None:
            return aval
        return aval.update(vma=aval.vma - frozenset(axes))

    primitive.define(type=type_rule)


def _times(x: Any, size: int) -> Any:
    return mul(x, np.asarray(size).astype(typeof(x).dtype)[()])


_reduction(psum_p, reduce_sum, _times)
_reduction(pmax_p, reduce_max, lambda x, size: x)
_reduction(pmin_p, reduce_min, lambda x, size: x)


for _p in (psum_p, all_gather_p, all_gather_invariant_p, reduce_scatter_p, all_to_all_p, ppermute_p, pbroadcast_p,
           pvary_p, own_slice_p):  # fmt: skip
    jointly_linear(_p)
del _p


@psum_p.def_transpose
def _psum_transpose(ct, x, *, axes, axis_index_groups):
    if axis_index_groups is not None:
        return [psum_p.bind(ct, axes=axes, axis_index_groups=axis_index_groups)]
    # where types say over which axes a value varies, the result's cotangent is one value for all; elsewhere each
    # position has its own copy of the result, and their cotangents add up
    told = tuple(a for a in axes if a in x.aval.vma)
    untold = tuple(a for a in axes if a not in x.aval.vma)
    if told:
        ct = pvary_p.bind(ct, axes=told)
    return [psum_p.bind(ct, axes=untold, axis_index_groups=None) if untold else ct]


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


# --- pvary, pbroadcast


@pvary_p.def_type
def _pvary_type(aval, *, axes):
    return aval.update(vma=aval.vma | frozenset(axes))


@pvary_p.def_batch
def _pvary_batch(axis, args, dims, *, axes):
    rest = tuple(a for a in axes if a != axis.name)
    return (pvary_p.bind(args[0], axes=rest) if rest else args[0]), dims[0]


@pvary_p.def_transpose
def _pvary_transpose(ct, x, *, axes):
    return [psum_p.bind(ct, axes=axes, axis_index_groups=None)]


@pbroadcast_p.def_type
def _pbroadcast_type(aval, *, axis_name, source):
    return aval


@_meaning(pbroadcast_p)
def _pbroadcast(axis, x, dim, *, axis_name, source):
    rest, _, minor = _rest(axis_name, axis.name)
    if dim is not None:
        own = source // minor % axis.size
        x = squeeze(slice_in_dim(x, own, own + 1, axis=dim), (dim,))
    others = source // (minor * axis.size) * minor + source % minor
    return (pbroadcast_p.bind(x, axis_name=rest, source=others) if rest else x), None


@pbroadcast_p.def_transpose
def _pbroadcast_transpose(ct, x, *, axis_name, source):
    total = psum_p.bind(ct, axes=axis_name, axis_index_groups=None)
    return [select_n(eq(position(axis_name), np.int32(source)), zeros(typeof(total)), total)]


# --- all_gather


def _gathered_type(aval, *, all_gather_dimension, axis_name, axis_size, tiled, axis_index_groups=None):
    shape = list(aval.shape)
    if tiled:
        shape[all_gather_dimension] *= axis_size
    else:
        shape.insert(all_gather_dimension, axis_size)
    return aval.update(shape=tuple(shape), sharding=None)


all_gather_p.define(type=_gathered_type)


@all_gather_invariant_p.def_type
def _all_gather_invariant_type(aval, *, axis_name, **params):
    return _gathered_type(aval, axis_name=axis_name, **params).update(vma=aval.vma - frozenset(axis_name))


def _gather(primitive: Primitive) -> None:
    @_meaning(primitive, "all_gather_dimension")
    def over(axis, x, dim, *, all_gather_dimension, axis_name, axis_size, tiled, **groups):
        x = at_front(x, dim, axis.size)
        rest, major, minor = _rest(axis_name, axis.name)
        shape = typeof(x).shape[1:]
        if rest:
            x = primitive.bind(
                x, all_gather_dimension=0, axis_name=rest, axis_size=major * minor, tiled=False, **groups
            )
        labels = ["major", "minor", "own", *range(len(shape))]
        gathered = ["major", "own", "minor"]
        parts: list[list[Any]] = [[d] for d in range(len(shape))]
        if tiled:
            parts[all_gather_dimension] = [*gathered, all_gather_dimension]
        else:
            parts.insert(all_gather_dimension, gathered)
        return _regroup(x, labels, [major, minor, axis.size, *shape], parts), None


_gather(all_gather_p)
_gather(all_gather_invariant_p)


@all_gather_p.def_transpose
def _all_gather_transpose(ct, x, *, all_gather_dimension, **params):
    return [reduce_scatter_p.bind(ct, scatter_dimension=all_gather_dimension, **params)]


@all_gather_invariant_p.def_transpose
def _all_gather_invariant_transpose(ct, x, *, all_gather_dimension, axis_name, axis_size, tiled):
    # the cotangent is one value for all, of which each position takes what it gave
    own = own_slice_p.bind(ct, axis_name=axis_name, axis_size=axis_size, dim=all_gather_dimension)
    return [own if tiled else squeeze(own, (all_gather_dimension,))]


# --- reduce_scatter, own_slice


def check_blocks(api: str, aval: ShapedArray, dim: int, size: int, tiled: bool) -> None:
    """ShapeError unless dim `dim` has a block (one entry if not `tiled`) for each of `size` positions."""
    extent = aval.shape[dim]
    facts = [("operand", aval.str_short()), ("axis size", size)]
    if tiled and extent % size:
        raise shape_error(api, f"dim {dim} of size {extent} cannot be cut into {size} equal blocks.", facts, "",
                          f"Pad the dim to a multiple of {size}.")  # fmt: skip
    if not tiled and extent != size:
        raise shape_error(api, f"dim {dim} must have one entry per position along the axis.", facts, "",
                          "Use tiled=True to send blocks of several entries.")  # fmt: skip


@reduce_scatter_p.def_type
def _reduce_scatter_type(aval, *, scatter_dimension, axis_name, axis_size, tiled, axis_index_groups):
    shape = list(aval.shape)
    check_blocks("reduce_scatter", aval, scatter_dimension, axis_size, tiled)
    if tiled:
        shape[scatter_dimension] //= axis_size
    else:
        del shape[scatter_dimension]
    return aval.update(shape=tuple(shape), sharding=None)


@_meaning(reduce_scatter_p, "scatter_dimension")
def _reduce_scatter(axis, x, dim, *, scatter_dimension, axis_name, axis_size, tiled, axis_index_groups):
    total = reduce_sum(x, (dim,)) if dim is not None else _times(x, axis.size)
    on_rest = lambda y, rest, n: reduce_scatter_p.bind(
        y, scatter_dimension=1, axis_name=rest, axis_size=n, tiled=False, axis_index_groups=axis_index_groups
    )
    return _own_part(total, axis, axis_name, scatter_dimension, tiled, on_rest), 0


@reduce_scatter_p.def_transpose
def _reduce_scatter_transpose(ct, x, *, scatter_dimension, **params):
    return [all_gather_p.bind(ct, all_gather_dimension=scatter_dimension, **params)]


@own_slice_p.def_type
def _own_slice_type(aval, *, axis_name, axis_size, dim):
    check_blocks("own_slice", aval, dim, axis_size, True)
    shape = list(aval.shape)
    shape[dim] //= axis_size
    return aval.update(shape=tuple(shape), sharding=None, vma=aval.vma | tracked_axes().intersection(axis_name))


@_meaning(own_slice_p, "dim")
def _own_slice(axis, x, batch_dim, *, axis_name, axis_size, dim):
    on_rest = lambda y, rest, n: squeeze(own_slice_p.bind(y, axis_name=rest, axis_size=n, dim=1), (1,))
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
    # axes over which types tell that the operand is one value: the cotangents of its blocks come together
    shared = tuple(a for a in axis_name if a in tracked_axes() and a not in aval.vma)
    if shared == axis_name:
        return [
            all_gather_invariant_p.bind(
                ct, all_gather_dimension=dim, axis_name=axis_name, axis_size=axis_size, tiled=True
            )
        ]
    start = mul(position(axis_name), np.int32(aval.shape[dim] // axis_size))
    placed = dynamic_update_slice_in_dim(zeros(aval.update(vma=frozenset())), ct, start, dim)
    return [psum_p.bind(placed, axes=shared, axis_index_groups=None) if shared else placed]


# --- all_to_all


@all_to_all_p.def_type
def _all_to_all_type(aval, *, split_axis, concat_axis, axis_name, axis_size, tiled, axis_index_groups):
    check_blocks("all_to_all", aval, split_axis, axis_size, True)
    shape = list(aval.shape)
    shape[split_axis] //= axis_size
    shape[concat_axis] *= axis_size
    return aval.update(shape=tuple(shape), sharding=None)


@_meaning(all_to_all_p, "split_axis", "concat_axis")
def _all_to_all(axis, x, dim, *, split_axis, concat_axis, axis_name, axis_size, tiled, axis_index_groups):
    x = at_front(x, dim, axis.size)
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
        x = all_to_all_p.bind(
            x,
            split_axis=2,
            concat_axis=2,
            axis_name=rest,
            axis_size=major * minor,
            tiled=True,
            axis_index_groups=axis_index_groups,
        )
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


@_meaning(ppermute_p)
def _ppermute(axis, x, dim, *, axis_name, perm):
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
    # who sends where along this axis depends on the other axes
    if len({d for _, d in moves}) < len(moves):
        return _picked(x, rest, major * minor, moves), 0
    rows = [zeros(typeof(slice_in_dim(x, 0, 1)))] * axis.size
    for (s, d), pairs in moves.items():
        rows[d] = ppermute_p.bind(slice_in_dim(x, s, s + 1), axis_name=rest, perm=tuple(pairs))
    return concatenate(rows, 0), 0


def _picked(x: Any, rest: Axes, count: int, moves: dict[tuple[int, int], list[tuple[int, int]]]) -> Any:
    """The rows of `x`, and of the `count` positions along the other axes, that arrive here: picked out of all rows of all, which costs
    nothing where devices share their memory."""
    size, *shape = typeof(x).shape
    table = np.full((count, size), count * size, np.int32)          # by default the number of no row
    for (s, d), pairs in moves.items():
        for there, here in pairs:
            table[here, d] = there * size + s
    everything = all_gather_p.bind(x, all_gather_dimension=0, axis_name=rest, axis_size=count, tiled=False)
    numbers = reshape(dynamic_slice_in_dim(table, position(rest), 1), (size,))
    return take_rows(reshape(everything, (count * size, *shape)), numbers)


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
        return take_rows(x, np.asarray([n if s is None else s for s in source.values()], np.int32))
    shape = typeof(x).shape
    blank = lambda length: zeros(typeof(x).update(shape=(length, *shape[1:]), weak_type=False))
    return concatenate([blank(k) if s is None else slice_in_dim(x, s, s + k) for s, k in runs], 0)


def take_rows(x: Any, rows: Any) -> Any:
    """The rows of `x` with the numbers `rows`; zeros for those that it does not have."""
    shape = typeof(x).shape
    numbers = GatherDimensionNumbers(tuple(range(1, len(shape))), (0,), (0,))
    return gather_p.bind(
        x,
        reshape(rows, (*typeof(rows).shape, 1)),
        dimension_numbers=numbers,
        slice_sizes=(1, *shape[1:]),
        indices_are_sorted=False,
        unique_indices=False,
        mode=GatherScatterMode.FILL_OR_DROP,
        fill_value=0,
    )


# --- axis_index


@axis_index_p.def_type
def _axis_index_type(*, axis_name):
    return ShapedArray((), np.dtype(np.int32), vma=tracked_axes().intersection((axis_name,)))


@axis_index_p.def_factors
def _axis_index_factors(in_avals, out_avals, **params):
    return RuleBuilder().rule([], [[]])


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
