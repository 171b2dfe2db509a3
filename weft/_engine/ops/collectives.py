"""Collectives: operations between the devices (or examples) along named axes.

In:   a value per position along the named axes, which vmap(axis_name=...), shard_map or the
      partitioner introduce.
Out:  a value per position.
Laws: several axes count as one, with the first one as the major one; `axis_index_groups` are lists
      of positions, and only positions of one group exchange values. If types track varying axes (in
      a shard_map with check_vma), an operand is first cast to vary over all axes of the collective.
Next: `ops.collective_rules` defines each collective.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.annotations import cast
from weft._engine.core.trace import (
    Tracer,
    allow_open_shardings,
    axis_env_size,
    find_tracked_axes,
    typeof,
)
from weft._engine.ir.explicit import typed_axes
from weft._engine.ir.mesh import current_mesh
from weft._engine.ops import collective_rules as rules
from weft._engine.ops.collective_blocks import axes_size
from weft._engine.ops.collective_groups import (
    Groups,
    bind_over,
    canonical_groups,
    is_uneven,
    sum_in_uneven,
)
from weft._engine.ops.comparison import eq, select
from weft._engine.ops.elementwise import convert_element_type, div
from weft._engine.ops.families import canonical_dims, zeros
from weft._engine.ops.layout import broadcast_in_dim, reshape, squeeze
from weft._engine.ops.reduce import reduce_max, reduce_min, reduce_sum
from weft._engine.ops.rule_helpers import insert
from weft._engine.ops.slicing import canonical_dim
from weft._engine.util import dtypes
from weft._engine.util.tree import tree_map
from weft._engine.util.trees.narrowing import class_of, is_tuple_or_list

if TYPE_CHECKING:
    from weft._engine.ops.rule_types import Value

AxisName = Any


# --- axes


def axes_of(axis_name: AxisName) -> rules.Axes:
    """Return axis names as a tuple;

    NameError if one is not in scope, ValueError if one is named twice.
    """
    axes: rules.Axes = tuple(axis_name) if is_tuple_or_list(axis_name) else (axis_name,)
    for name in axes:
        axis_env_size(name)
    if len(set(axes)) != len(axes):
        raise ValueError(
            f"axis names {axes} of a collective name an axis twice. Name each axis once."
        )
    return axes


def axis_size(axis_name: AxisName) -> int:
    """Return the number of positions along the named axis, or along several axes together."""
    return axes_size(axes_of(axis_name))


def axis_index(axis_name: AxisName) -> Any:
    """Return this position's index along the named axis, a scalar int32.

    Of several axes, the first is the major one.

    Raises NameError for an axis that is not in scope.

    >>> weft.vmap(lambda x: weft.lax.axis_index('i') * x, axis_name='i')(wnp.ones(3, "int32")).tolist()
    [0, 1, 2]
    """
    return rules.position(axes_of(axis_name))


def _operand(x: Any, axes: rules.Axes) -> Any:
    """Return `x`, cast to vary over the tracked axes among `axes`."""
    tracked = find_tracked_axes().intersection(axes)
    return cast(x, tracked) if tracked else x


# --- reductions


def psum(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Return the sum of `x`, a tree of arrays, over all positions along the named axes.

    Bools are counted.

    Shapes and dtypes do not change.

    The groups of `axis_index_groups` may differ in size. `axis_name` may also contain dims of `x`
    as integers; these are summed over and removed. A Python number counts once per position.
    Raises NameError for an axis that is not in scope, ValueError for one named twice and for groups that do not fit.

    >>> weft.vmap(lambda x: x / weft.lax.psum(x, 'i'), axis_name='i')(wnp.array([1.0, 3.0])).tolist()
    [0.25, 0.75]
    """
    axes, dims, groups = _reduction_arguments("psum", axis_name, axis_index_groups, uneven=True)
    size = len(groups[0]) if groups else axes_size(axes)
    uneven = groups if is_uneven(groups) else None

    def apply_to_leaf(leaf: Value):
        if (
            not dims
            and not uneven
            and not isinstance(leaf, Tracer)
            and typeof(leaf).ndim == 0
            and not hasattr(class_of(leaf), "aval")
        ):
            return leaf * size
        if typeof(leaf).dtype == np.bool_:
            leaf = convert_element_type(leaf, np.int32)
        if uneven is not None:
            return sum_in_uneven(_operand(leaf, axes), axes, uneven)
        return _reduce("psum", rules.psum_p, reduce_sum, axes, dims, groups, leaf)

    return tree_map(apply_to_leaf, x)


def pmean(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Return the mean of `x`, a tree of arrays, over all positions along the named axes.

    The mean of integers is a float.

    Raises NameError for an axis that is not in scope, ValueError for one named twice and for groups that do not fit.

    >>> weft.vmap(lambda x: x - weft.lax.pmean(x, 'i'), axis_name='i')(wnp.array([1.0, 3.0])).tolist()
    [-1.0, 1.0]
    """
    axes, dims, groups = _reduction_arguments("pmean", axis_name, axis_index_groups, uneven=True)
    members = psum(np.int32(1), axis_name, axis_index_groups=groups) if is_uneven(groups) else None
    size = len(groups[0]) if groups else axes_size(axes)

    def apply_to_leaf(leaf: Value, total: Value):
        count = size * int(np.prod([typeof(leaf).shape[d] for d in dims]))
        if not hasattr(total, "dtype"):
            return total / count
        dtype = dtypes.to_inexact_dtype(total.dtype)
        if members is not None:
            number = convert_element_type(members, dtype)
            return div(
                convert_element_type(total, dtype),
                broadcast_in_dim(number, typeof(total).shape, ()),
            )
        return div(convert_element_type(total, dtype), np.asarray(count, dtype)[()])

    return tree_map(apply_to_leaf, x, psum(x, axis_name, axis_index_groups=axis_index_groups))


def pmax(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Return the elementwise maximum of `x` over all positions along the named axes."""
    axes, dims, groups = _reduction_arguments("pmax", axis_name, axis_index_groups)
    reduce = functools.partial(_reduce, "pmax", rules.pmax_p, reduce_max, axes, dims, groups)
    return tree_map(reduce, x)


def pmin(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """Return the elementwise minimum of `x` over all positions along the named axes."""
    axes, dims, groups = _reduction_arguments("pmin", axis_name, axis_index_groups)
    reduce = functools.partial(_reduce, "pmin", rules.pmin_p, reduce_min, axes, dims, groups)
    return tree_map(reduce, x)


def _reduction_arguments(
    api: str, axis_name: AxisName, groups: Any, uneven: bool = False
) -> tuple[rules.Axes, tuple[int, ...], Groups | None]:
    """Return the named axes, the integer dims, and the groups of a reduction."""
    names = tuple(axis_name) if is_tuple_or_list(axis_name) else (axis_name,)
    dims = tuple(a for a in names if isinstance(a, int))
    axes = axes_of(tuple(a for a in names if not isinstance(a, int)))
    if dims and groups is not None:
        raise ValueError(
            f"{api}: axis_index_groups applies to named axes only, got axis_name={axis_name!r}."
        )
    return axes, dims, canonical_groups(api, axes, groups, uneven)


def _reduce(
    api: str,
    primitive: Any,
    over_dims: Callable[..., Any],
    axes: rules.Axes,
    dims: tuple[Any, ...],
    groups: Any,
    leaf: Any,
) -> Any:
    if dims:
        leaf = over_dims(leaf, canonical_dims(api, dims, typeof(leaf).ndim))
    if not axes:
        return leaf
    return bind_over(primitive, _operand(leaf, axes), axes=axes, axis_index_groups=groups)


# --- gathering and scattering


def all_gather(
    x: Any, axis_name: AxisName, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False,
    to: str = "varying"
) -> Any:  # fmt: skip
    """Return the values of all positions along a new dim `axis`.

    If `tiled`, they are concatenated along dim `axis`.

    Dtypes do not change.

    The result is typed as varying over the axes; with `to="invarying"`, as one value for all
    positions.
    Raises NameError for an axis that is not in scope, ValueError for one named twice and for another `to`.

    >>> weft.vmap(lambda x: weft.lax.all_gather(x, 'i'), axis_name='i')(wnp.array([1, 2])).tolist()
    [[1, 2], [1, 2]]
    """
    if to == "invarying":
        if axis_index_groups is not None:
            raise ValueError("all_gather: with axis_index_groups the result differs between groups; it cannot be "
                             "typed as one value for all (to='invarying').")  # fmt: skip
        return all_gather_invariant(x, axis_name, axis=axis, tiled=tiled)
    _check_to("all_gather", to, ("varying", "invarying", "reduced"))
    axes = axes_of(axis_name)
    groups = canonical_groups("all_gather", axes, axis_index_groups)
    size = len(groups[0]) if groups else axes_size(axes)

    def apply_to_leaf(leaf: Value):
        dim = canonical_dim(axis, typeof(leaf).ndim + (not tiled), "all_gather")
        return bind_over(
            rules.all_gather_p, _operand(leaf, axes), all_gather_dimension=dim, axis_name=axes, axis_size=size, tiled=tiled,
            axis_index_groups=groups,
        )  # fmt: skip

    gathered = tree_map(apply_to_leaf, x) if axes else x
    return (
        tree_map(functools.partial(rules.cast_varying, axes=axes, to=to), gathered)
        if to == "reduced"
        else gathered
    )


def all_gather_invariant(x: Any, axis_name: AxisName, *, axis: int = 0, tiled: bool = False) -> Any:
    """Return `all_gather`, typed as one value for all positions along the axes."""
    axes = axes_of(axis_name)
    tracked = find_tracked_axes()
    if not all(a in tracked for a in axes):
        # to types that do not track the axes it is the same
        return all_gather(x, axes, axis=axis, tiled=tiled)

    def apply_to_leaf(leaf: Value):
        dim = canonical_dim(axis, typeof(leaf).ndim + (not tiled), "all_gather_invariant")
        return rules.all_gather_invariant_p.bind(
            _operand(leaf, axes),
            all_gather_dimension=dim,
            axis_name=axes,
            axis_size=axes_size(axes),
            tiled=tiled,
        )

    return tree_map(apply_to_leaf, x) if axes else x


def psum_scatter(
    x: Any,
    axis_name: AxisName,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Return this position's part, along `scatter_dimension`, of the sum over all positions.

    The dim is removed unless `tiled`.

    That dim has one entry per position or, if `tiled`, a multiple of their number. Bools are
    counted.
    Raises ShapeError for another size, NameError for an axis that is not in scope.

    >>> weft.vmap(lambda x: weft.lax.psum_scatter(x, 'i'), axis_name='i')(wnp.array([[1, 2], [10, 20]])).tolist()
    [11, 22]
    """
    axes = axes_of(axis_name)
    groups = canonical_groups("psum_scatter", axes, axis_index_groups)
    size = len(groups[0]) if groups else axes_size(axes)

    def apply_to_leaf(leaf: Value):
        if typeof(leaf).dtype == np.bool_:
            leaf = convert_element_type(leaf, np.int32)
        dim = canonical_dim(scatter_dimension, typeof(leaf).ndim, "psum_scatter")
        rules.check_blocks("psum_scatter", typeof(leaf), dim, size, tiled)
        return bind_over(
            rules.reduce_scatter_p, _operand(leaf, axes), scatter_dimension=dim, axis_name=axes, axis_size=size, tiled=tiled,
            axis_index_groups=groups,
        )  # fmt: skip

    return tree_map(apply_to_leaf, x) if axes else x


def all_to_all(
    x: Any,
    axis_name: AxisName,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Split `x` along `split_axis`, send part k to position k, and join the received parts.

    They are joined along `concat_axis`.

    If not `tiled`, dim `split_axis` must have one entry per position; it is removed, and `concat_axis` is a new dim.
    """
    axes = axes_of(axis_name)
    groups = canonical_groups("all_to_all", axes, axis_index_groups)
    size = len(groups[0]) if groups else axes_size(axes)

    def exchange(leaf: Value, split: int, concat: int):
        return bind_over(
            rules.all_to_all_p,
            _operand(leaf, axes),
            split_axis=split,
            concat_axis=concat,
            axis_name=axes,
            axis_size=size,
            tiled=True,
            axis_index_groups=groups,
        )

    def apply_to_leaf(leaf: Value):
        shape = typeof(leaf).shape
        split = canonical_dim(split_axis, len(shape), "all_to_all")
        concat = canonical_dim(concat_axis, len(shape), "all_to_all")
        rules.check_blocks("all_to_all", typeof(leaf), split, size, tiled)
        if tiled:
            return exchange(leaf, split, concat)
        new = concat if concat <= split else concat + 1
        split = split + 1 if new <= split else split
        return squeeze(exchange(reshape(leaf, insert(shape, new, 1)), split, new), (split,))

    return tree_map(apply_to_leaf, x) if axes else x


# --- permutations


def ppermute(x: Any, axis_name: AxisName, perm: rules.Perm) -> Any:
    """Send `x`, a tree of arrays, from position s to position d for each (s, d) in `perm`; the others receive zeros.

    Raises ValueError for positions that are named twice or do not exist, NameError for an axis that is not in scope.

    >>> weft.vmap(lambda x: weft.lax.ppermute(x, 'i', [(0, 1), (1, 2)]), axis_name='i')(wnp.array([5, 6, 7])).tolist()
    [0, 5, 6]
    """
    axes = axes_of(axis_name)
    pairs = tuple((int(s), int(d)) for s, d in perm)
    size = axis_size(axes)
    sources, targets = [s for s, _ in pairs], [d for _, d in pairs]
    if len(set(sources)) != len(pairs) or len(set(targets)) != len(pairs):
        raise ValueError(f"ppermute: sources and destinations must be unique, got {pairs}.")
    if any(not 0 <= i < size for pair in pairs for i in pair):
        raise ValueError(f"ppermute: positions must be in 0..{size - 1} along {axes}, got {pairs}.")
    return tree_map(functools.partial(bind_ppermute, axes=axes, pairs=pairs), x) if axes else x


def bind_ppermute(x: Any, axes: rules.Axes, pairs: rules.Perm) -> Any:
    """Return `ppermute` of one array for pairs that are known to be valid."""
    return rules.ppermute_p.bind(_operand(x, axes), axis_name=axes, perm=pairs)


def pshuffle(x: Any, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """Return the value of position `perm[i]` at each position i;

    `perm` names every position once.
    """
    if sorted(perm) != list(range(axis_size(axis_name))):
        raise ValueError(
            f"pshuffle: perm must be a permutation of all positions along {axis_name!r}, got {tuple(perm)}."
        )
    return ppermute(x, axis_name, [(s, d) for d, s in enumerate(perm)])


def pswapaxes(x: Any, axis_name: AxisName, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Exchange the named axis with dim `axis`, which must have its size."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pbroadcast(x: Any, axis_name: AxisName, source: int) -> Any:
    """Return the value of position `source` along the named axes, at all positions."""
    axes = axes_of(axis_name)
    if not 0 <= source < axes_size(axes):
        raise ValueError(
            f"pbroadcast: source must be in 0..{axes_size(axes) - 1} along {axes}, got {source}."
        )

    def apply_to_leaf(leaf: Value):
        return rules.pbroadcast_p.bind(_operand(leaf, axes), axis_name=axes, source=int(source))

    return tree_map(apply_to_leaf, x)


# --- types


def pvary(x: Any, axis_name: AxisName) -> Any:
    """Return `x`, typed as varying over the named axes although its value is the same everywhere.

    Axes that types do not track (axes of vmap, or of a shard_map with check_vma=False) change
    nothing.
    """
    return _mark_varying(x, axis_name, "pvary")


def _tracked_by_mesh(axis_name: AxisName) -> AxisName:
    """Return the axes that types track."""
    mesh = current_mesh()
    if mesh is None:
        return axis_name
    axes = axis_name if is_tuple_or_list(axis_name) else (axis_name,)
    tracked = typed_axes(axes, mesh)
    return tuple(a for a in axes if a in tracked)


def _mark_varying(x: Any, axis_name: AxisName, api: str) -> Any:
    """Return `x` typed as varying over the tracked axes; all axes must be in scope."""
    axes = axes_of(_tracked_by_mesh(axis_name))
    axes_size(axes)
    axes = tuple(a for a in axes if a in find_tracked_axes())

    def apply_to_leaf(leaf: Value):
        already = [a for a in axes if a in typeof(leaf).vma]
        if already:
            raise ValueError(
                f"{api}: the value of type {typeof(leaf).str_short()} already varies over "
                f"{', '.join(map(repr, already))}. Leave these axes out: {api} marks values that are one for all."
            )
        return rules.pvary_p.bind(leaf, axes=axes)

    return tree_map(apply_to_leaf, x) if axes else x


def pcast(x: Any, axis_name: AxisName, *, to: str) -> Any:
    """Return `x`, a tree of arrays, typed as varying over the named axes (`to="varying"`).

    Shapes, dtypes and values do not change.

    `to="reduced"` is for a value that is one for all positions: the cotangents of the devices are
    terms of a sum, which is computed outside of the shard_map; such a value may be cast to varying
    later. `to="unreduced"` makes terms of a sum: a varying value is taken as the terms; of a value
    that is one for all positions, the first device keeps its copy and the others use zeros.

    Raises ValueError for another `to` and for values that vary already, NameError for an axis that is not in scope.

    >>> mesh = weft.make_mesh((2,), ('i',), devices=weft.devices()[:2])
    >>> varying = lambda x: weft.lax.psum(weft.lax.pcast(x, 'i', to='varying'), 'i')
    >>> weft.shard_map(varying, mesh=mesh, in_specs=weft.P(), out_specs=weft.P())(wnp.array(3)).item()
    6
    """
    _check_to("pcast", to, ("varying", "reduced", "unreduced"))
    if isinstance(axis_name, (set, frozenset)):
        raise TypeError(f"pcast: axis_name must be a tuple or a str, got the set {axis_name!r}.")
    axes = axes_of(_tracked_by_mesh(axis_name))
    axes_size(axes)

    def apply_to_leaf(leaf: Value):
        if to == "unreduced":
            return rules.cast_varying(
                first_only(
                    leaf,
                    [a for a in axes if a in find_tracked_axes() and a not in typeof(leaf).vma],
                ),
                axes,
                to,
            )
        copies = typeof(leaf).vma_reduced.intersection(axes) if to == "varying" else ()
        leaf = _mark_varying(leaf, tuple(a for a in axes if a not in copies), "pcast")
        return rules.cast_varying(leaf, axes, to)

    return tree_map(apply_to_leaf, x)


def first_only(x: Any, axes: Sequence[Any]) -> Any:
    """Return `x` on the device that is first along the axes, and zeros on the others."""
    kinds = typeof(x)
    for axis in axes:
        x = (
            rules.pvary_p.bind(x, axes=(axis,))
            if axis in find_tracked_axes() and axis not in typeof(x).vma
            else x
        )
        first = eq(axis_index(axis), np.int32(0))
        with allow_open_shardings():
            x = select(broadcast_in_dim(first, typeof(x).shape, ()), x, zeros(typeof(x)))
    x = rules.cast_varying(x, tuple(kinds.vma_unreduced), "unreduced")
    return rules.cast_varying(x, tuple(kinds.vma_reduced), "reduced")


def _check_to(api: str, to: str, known: tuple[str, ...]) -> None:
    """Raise ValueError for an unknown `to`."""
    if to not in known:
        raise ValueError(f"{api}: to={to!r} is none of {', '.join(map(repr, known))}.")


def own_slice(x: Any, axis_name: AxisName, dim: int) -> Any:
    """Return this position's block of dim `dim` of a value that all positions have."""
    axes = axes_of(axis_name)
    return rules.own_slice_p.bind(x, axis_name=axes, axis_size=axes_size(axes), dim=int(dim))
