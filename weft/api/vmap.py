"""`vmap`: map a function over dims of its arguments, as one batched program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.api.flat import FlatFunction
from weft.api.jit import function_name
from weft.core.primitive import BatchAxis
from weft.core.trace import typeof
from weft.transforms.batch import batch_flat, to_dim
from weft.util import tree
from weft.util.errors import ShardingTypeError
from weft.util.source import api_boundary


def vmap(fun: Callable, in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None, axis_size: int | None = None,
         spmd_axis_name: Any = None, sum_match: bool = False) -> Callable:
    """`fun` mapped over the dims `in_axes` of its arguments; results are stacked along `out_axes`.

    `in_axes` and `out_axes` are integers, None (not mapped), or trees of them that match arguments and results as prefixes.
    Keyword arguments are mapped over dim 0. `axis_name` lets collectives inside name the mapped axis. `spmd_axis_name` and
    `sum_match` are accepted and change nothing: propagation finds the layout of the new dim. ValueError if mapped dims differ
    in size.

    >>> import weft, weft.numpy as wnp
    >>> weft.vmap(lambda x, y: x @ y, in_axes=(0, None))(wnp.ones((5, 3)), wnp.ones(3)).shape
    (5,)
    """
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (in_axes is None or isinstance(in_axes, (int, tuple, dict)) or _is_tree(in_axes)):
        raise TypeError(f"vmap: in_axes must be an int, None, or a (nested) container of them, got {in_axes!r}.")

    @functools.wraps(fun, updated=())
    @api_boundary
    def mapped(*args, **kwargs):
        return _call(fun, in_axes, out_axes, axis_name, axis_size, args, kwargs)
    return mapped


def _is_tree(x) -> bool:
    return all(isinstance(leaf, int) for leaf in tree.tree_leaves(x))


def _is_axis(x) -> bool:
    return x is None


def _call(fun, in_axes, out_axes, axis_name, axis_size, args, kwargs):
    name = function_name(fun)
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ValueError(f"vmap({name}): in_axes must be an int, None, or a tuple with one entry per positional argument: got "
                         f"{len(in_axes)} entries for {len(args)} arguments.")
    flat_fun = FlatFunction(fun, args, kwargs)
    flat, in_tree = flat_fun.leaves, flat_fun.in_tree
    prefix = (in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args), dict.fromkeys(kwargs, 0))
    try:
        dims = tree.broadcast_prefix(prefix, (args, kwargs), is_leaf=_is_axis)
    except ValueError as error:
        raise ValueError(f"vmap({name}): in_axes must be a prefix of the tree of arguments: {error}") from None
    dims = [_normal(d, x, name) for d, x in zip(dims, flat)]
    size = _axis_size(name, flat, dims, in_tree, axis_size)
    axis = BatchAxis(size, axis_name, _splits(name, flat, dims))
    outs, out_dims = batch_flat(flat_fun, axis, flat, dims)
    for out in outs:
        typeof(out)
    result = flat_fun.unflatten(outs)
    try:
        wanted = tree.broadcast_prefix(tuple(out_axes) if isinstance(out_axes, list) else out_axes, result, is_leaf=_is_axis)
    except ValueError as error:
        raise ValueError(f"vmap({name}): out_axes must be a prefix of the tree of results: {error}") from None
    placed = [_place(o, d, want, axis, name) for o, d, want in zip(outs, out_dims, wanted)]
    return flat_fun.unflatten(placed)


def _normal(dim, x, name: str):
    if dim is None:
        typeof(x)
        return None
    aval = typeof(x)
    if not -aval.ndim <= dim < aval.ndim:
        raise ValueError(f"vmap({name}) was requested to map its argument along axis {dim}, which implies that its rank should be "
                         f"at least {dim + 1 if dim >= 0 else -dim}, but it is only {aval.ndim} (its shape is {aval.shape}).")
    return dim % aval.ndim


def _axis_size(name: str, flat, dims, in_tree, given: int | None) -> int:
    sizes = {}
    for i, (x, d) in enumerate(zip(flat, dims)):
        if d is not None:
            sizes.setdefault(typeof(x).shape[d], []).append(i)
    if given is not None:
        sizes.setdefault(given, [])
    if not sizes:
        raise ValueError(f"vmap({name}) must have at least one mapped argument: every entry of in_axes is None. "
                         "Give axis_size, or map an argument.")
    if len(sizes) > 1:
        paths = [tree.keystr(p) for p, _ in tree.tree_flatten_with_path(tree.tree_unflatten(in_tree, range(len(flat))))[0]]
        facts = "\n".join(f"    size {n}: " + (", ".join(f"argument {paths[i].replace('[0]', '', 1)} of type "
                                                        f"{typeof(flat[i]).str_short()}, axis {dims[i]}" for i in who)
                                              or "axis_size") for n, who in sizes.items())
        raise ValueError(f"vmap({name}) got inconsistent sizes for array axes to be mapped:\n{facts}\n"
                         "  All mapped axes must have one size.")
    return next(iter(sizes))


def _splits(name: str, flat, dims) -> tuple:
    """The explicit mesh axes that split the mapped dims."""
    said = {typeof(x).sharding.spec_dims(typeof(x).ndim)[d] for x, d in zip(flat, dims)
            if d is not None and typeof(x).sharding is not None} - {()}
    if len(said) > 1:
        raise ShardingTypeError(f"vmap({name}): the mapped dims are split over different mesh axes: {sorted(map(str, said))}.\n"
                                "  They become one dim. Lay the arguments out alike with weft.sharding.reshard.")
    return said.pop() if said else ()


def _place(out, dim, want, axis: BatchAxis, name: str):
    if want is None:
        if dim is not None:
            raise ValueError(f"vmap({name}) has mapped output of type {typeof(out).str_short()} but out_axes is None for it. "
                             "Only results that do not depend on the mapped axis can be unmapped.")
        return out
    ndim = typeof(out).ndim + (dim is None)
    if not -ndim <= want < ndim:
        raise ValueError(f"vmap({name}): out_axes={want} is out of range for a result of rank {ndim} with the mapped axis.")
    return to_dim(out, dim, axis, want % ndim)
