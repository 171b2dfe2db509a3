"""`vmap`: map a function over dims of its arguments, as one batched program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.api.flat import FlatFunction
from weft._engine.api.jit import function_name
from weft._engine.api.mapped import (
    check_mapped_size,
    resolve_mapped_dims,
    result_dims,
    result_shape,
)
from weft._engine.control.ref import (
    Ref,
    TransformedRef,
    any_refs,
    check_aliases,
    check_returned,
    is_ref,
)
from weft._engine.core.primitive import BatchAxis
from weft._engine.core.trace import Zero, array_converter, typeof
from weft._engine.ir.explicit import typed_axes
from weft._engine.ir.mesh import current_mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec, spec_of_dims
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.placement import reshard
from weft._engine.transforms.batch import batch_flat, to_dim
from weft._engine.transforms.vmappable import (
    MappingSpec,
    assemble_result,
    batch_elements,
    is_spec,
    is_vmappable,
    length_of_axis,
    vmappable_types,
)
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import ShardingTypeError
from weft._engine.util.source import api_boundary, check_callable, transformed_scope, wraps


def vmap(
    fun: Callable,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable:
    """Map `fun` over the dims `in_axes` of its arguments; results are stacked along `out_axes`.

    `in_axes` and `out_axes` are integers, None (not mapped), or trees of them that match arguments and results as prefixes.
    Keyword arguments are mapped over dim 0. `axis_name` lets collectives inside name the mapped axis. `spmd_axis_name`
    names mesh axes that split the new dim, in constraints and in shard_map; elsewhere propagation determines its sharding.
    `sum_match` is accepted and has no effect. Raises ValueError if mapped dims differ in size or `in_axes` does not match.

    >>> weft.vmap(lambda x, y: x @ y, in_axes=(0, None))(wnp.ones((5, 3)), wnp.ones(3)).shape
    (5,)
    """
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, bool) or (
        not isinstance(in_axes, (int, tuple, type(None)))
        and not is_spec(in_axes)
        and not (_is_tree(in_axes) and tree.tree_structure(in_axes).is_leaf)
    ):
        raise TypeError(
            "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments passed to the "
            f"function, but got {in_axes!r}."
        )
    for what, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not _is_tree(axes):
            raise TypeError(
                f"vmap {what} must be an int, None, or a (nested) container of them, got {axes!r}."
            )

    spmd_axes = (
        ()
        if spmd_axis_name is None
        else spmd_axis_name
        if isinstance(spmd_axis_name, tuple)
        else (spmd_axis_name,)
    )

    check_callable("vmap", fun)

    @wraps(
        fun,
        "Vectorized version of {}: what `in_axes` names has one more dim in the arguments, and so have the results.",
    )
    @functools.partial(api_boundary, name="vmap")
    def mapped(*args, **kwargs):
        return _call(fun, in_axes, out_axes, axis_name, axis_size, spmd_axes, args, kwargs)

    return mapped


def _is_tree(x) -> bool:
    def is_axis(leaf):
        return is_spec(leaf) or (
            hasattr(leaf, "__index__") and not hasattr(leaf, "shape") and not isinstance(leaf, bool)
        )

    return all(map(is_axis, tree.tree_leaves(x, is_leaf=is_spec if vmappable_types else None)))


def _call(fun, in_axes, out_axes, axis_name, axis_size, spmd_axes, args, kwargs):
    name = function_name(fun)
    where = f"vmap({name})"
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ValueError(
            f"{where}: in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments, "
            f"but got len(in_axes)={len(in_axes)}, len(args)={len(args)}."
        )
    flat_fun = FlatFunction(fun, args, kwargs, is_leaf=is_vmappable if vmappable_types else None)
    flat = flat_fun.leaves
    if any_refs(flat):
        return _call_with_refs(
            flat_fun, in_axes, out_axes, axis_name, axis_size, spmd_axes, args, kwargs
        )
    if vmappable_types:
        return _call_with_types(flat_fun, in_axes, out_axes, axis_name, axis_size, spmd_axes)
    dims = resolve_mapped_dims(in_axes, args, kwargs, flat, where)
    size = check_mapped_size(where, flat_fun, dims, axis_size)
    flat = [x if d is None else _convert(x) for x, d in zip(flat, dims)]
    axis = _axis(name, flat, dims, size, axis_name, spmd_axes)
    with transformed_scope("vmap"):
        outs, out_dims = batch_flat(flat_fun, axis, flat, dims)
    for out in outs:
        _check_type(out, name)
    requested = result_dims(out_axes, flat_fun, len(outs), where)
    _check_unmapped(flat_fun, outs, out_dims, requested, name, axis_name)
    return flat_fun.unflatten(
        [_place(o, d, out_axis, axis, name) for o, d, out_axis in zip(outs, out_dims, requested)]
    )


def _convert(x):
    """Return a mapped argument as an array if it is an object with a conversion to an array."""
    make = None if hasattr(type(x), "aval") else array_converter(x)
    return x if make is None else make()


def _axis(name: str, flat, dims, size: int, axis_name, spmd_axes: tuple) -> BatchAxis:
    """Return the mapped axis; raise ShardingTypeError if arguments and `spmd_axis_name` split it differently."""
    splits = _splits(name, flat, dims)
    shardings = (typeof(x).explicit for x in flat if splits)
    mesh = next((sharding.mesh for sharding in shardings if sharding is not None), None)
    if spmd_axes and splits and typed_axes(spmd_axes, mesh) != set(splits):
        raise ShardingTypeError(
            f"vmap({name}): Only one of spmd_axis_name or arrays sharded on the mapped dim may split it: "
            f"spmd_axis_name={spmd_axes}, and arrays are split by {splits} there."
        )
    for x, d in zip(flat, dims):
        if isinstance(d, MappingSpec):
            typeof(x).dec_rank(size, d)  # raises NotImplementedError before anything runs
    return BatchAxis(size, axis_name, splits, spmd_axes=spmd_axes)


def _check_type(out, name: str) -> None:
    """Raise TypeError for a result that is not an array."""
    try:
        typeof(out)
    except TypeError as error:
        raise TypeError(
            f"vmap({name}): Output from batched function {name} is not a valid JAX type. {error}"
        ) from None


def _call_with_types(flat_fun: FlatFunction, in_axes, out_axes, axis_name, axis_size, spmd_axes):
    """Call with types that are mapped as wholes, registered by `register_vmappable`."""
    name = function_name(flat_fun.fun)
    where = f"vmap({name})"
    flat = flat_fun.leaves
    args, kwargs = tree.tree_unflatten(flat_fun.in_tree, [object() for _ in flat])
    dims = resolve_mapped_dims(in_axes, args, kwargs, flat, where)
    array_dims = [None if is_vmappable(x) else d for x, d in zip(flat, dims)]
    size = length_of_axis(axis_size) if axis_size is not None else None
    size = check_mapped_size(where, flat_fun, array_dims, size)
    axis = _axis(name, flat, array_dims, size, axis_name, spmd_axes)
    with transformed_scope("vmap"):
        outs, out_dims, trace = batch_elements(
            flat_fun, axis, size if axis_size is None else axis_size, flat, dims
        )
    for out in outs:
        if not is_vmappable(out):
            _check_type(out, name)
    requested = result_dims(out_axes, flat_fun, len(outs), where)
    _check_unmapped(flat_fun, outs, out_dims, requested, name, axis_name)

    def place(value, dim, spec):
        _check_type(value, name)
        if spec is None and dim is not None:
            raise ValueError(
                f"vmap({name}): a part of a result depends on the mapped axis, but from_elt of its type passed cont None for "
                "the axis. Only what does not depend on the mapped axis can be unmapped."
            )
        return _place(value, dim, spec, axis, name)

    return flat_fun.unflatten(
        [
            assemble_result(o, size if axis_size is None else axis_size, out_axis, place, trace)
            if is_vmappable(o)
            else _place(o, d, out_axis, axis, name)
            for o, d, out_axis in zip(outs, out_dims, requested)
        ]
    )


def _call_with_refs(
    flat_fun: FlatFunction, in_axes, out_axes, axis_name, axis_size, spmd_axes, args, kwargs
):
    """Call with references among the arguments: the final values of mapped ones are mapped results."""
    fun = flat_fun.fun
    where = f"vmap({function_name(fun)})"
    leaves = flat_fun.leaves
    _check_no_parts(where, (args, kwargs))
    values = [x[...] if is_ref(x) else x for x in leaves]
    names = flat_fun.names()
    check_aliases(fun, "vmap", *zip(*[(x, n) for x, n in zip(leaves, names) if is_ref(x)]))
    args, kwargs = tree.tree_unflatten(flat_fun.in_tree, values)
    dims = resolve_mapped_dims(in_axes, args, kwargs, values, where)
    batched_refs = [i for i, (x, d) in enumerate(zip(leaves, dims)) if is_ref(x) and d is not None]
    operands = [x if d is not None or not is_ref(x) else 0 for x, d in zip(values, dims)]

    def on_values(xs):
        inner = {i: Ref.make(xs[i], argument_name=names[i]) for i in batched_refs}
        operands_of_call = [
            inner.get(i, leaves[i] if is_ref(leaves[i]) else x) for i, x in enumerate(xs)
        ]
        outs = flat_fun(*operands_of_call)
        check_returned(fun, "vmap", outs)
        return flat_fun.unflatten(outs), [inner[i][...] for i in batched_refs]

    result, last = _call(
        functools.update_wrapper(on_values, fun),
        (dims,),
        (out_axes, [dims[i] for i in batched_refs]),
        axis_name,
        axis_size,
        spmd_axes,
        (operands,),
        {},
    )
    for i, value in zip(batched_refs, last):
        leaves[i][...] = value
    return result


def _check_no_parts(where: str, args: tuple) -> None:
    """Raise TypeError for parts of references among the arguments."""
    is_part = lambda x: isinstance(x, TransformedRef)
    for part in filter(is_part, tree.tree_leaves(args, is_leaf=is_part)):
        raise TypeError(
            f"{where}: {part!r} is a part of a reference, which has no dim of its own to map. Pass the reference, and take the "
            "part inside, or pass its value."
        )


def _splits(name: str, flat, dims) -> tuple:
    """Return the explicit mesh axes that split the mapped dims."""
    splits = {
        sharding.spec_dims(typeof(x).ndim)[d]
        for x, d in zip(flat, dims)
        if d is not None and not is_spec(d) and (sharding := typeof(x).explicit) is not None
    } - {()}
    if len(splits) > 1:
        raise ShardingTypeError(
            f"vmap({name}): Mapped away dimension of inputs passed to vmap should be sharded the same; the mapped dims "
            f"are split over different mesh axes: {sorted(map(str, splits))}.\n"
            "  They become one dim. Lay the arguments out alike with weft.sharding.reshard."
        )
    return splits.pop() if splits else ()


def _check_unmapped(
    flat_fun: FlatFunction, outs, dims, requested_dims, name: str, axis_name
) -> None:
    """Raise ValueError if a result depends on the mapped axis but `out_axes` has None for it."""
    named = "" if axis_name is None else f" (axis_name={axis_name})"
    for i, (out, dim, out_axis) in enumerate(zip(outs, dims, requested_dims)):
        if out_axis is None and dim is not None:
            path = tree.keystr(
                tree.tree_flatten_with_path(result_shape(flat_fun, len(outs)))[0][i][0]
            )
            raise ValueError(
                f"vmap has mapped output of type {typeof(out).str_short()}{named} but out_axes is None for it, in {name}: at "
                f"vmap out_axes{path} got axis spec None but output was batched on axis {dim}. Only results that do not "
                "depend "
                "on the mapped axis can be unmapped."
            )


def _place(out, dim, want, axis: BatchAxis, name: str):
    if typeof(out).is_high or is_spec(want):
        if want != dim:
            raise ValueError(
                f"vmap({name}): a result of type {typeof(out).str_short()} is mapped as {dim!r}, but out_axes has "
                f"{want!r}. A value of a non-array type (a HiType) keeps its spec, and an array is mapped along a dim."
            )
        return out
    if want is None:
        return out
    ndim = typeof(out).ndim + (dim is None)
    if not -ndim <= want < ndim:
        raise ValueError(
            f"vmap({name}): out_axes={want} is out of range for a result of rank {ndim} with the mapped axis."
        )
    want %= ndim
    aval = typeof(out)
    if type(out) is Zero or aval.dtype == dtypes.float0:  # no value, or a NumPy array
        shape = aval.shape
        if dim is None:
            shape = (*shape[:want], axis.size, *shape[want:])
        is_zero = type(out) is Zero
        return Zero(ShapedArray(shape, aval.dtype)) if is_zero else np.zeros(shape, aval.dtype)
    if dim is not None and axis.explicit_axes:
        _check_splits(aval, dim, axis, name)
    placed = to_dim(out, dim, axis, want)
    return (
        _split_like_mapped(placed, want, axis.explicit_axes)
        if dim is None and axis.explicit_axes
        else placed
    )


def _check_splits(aval: ShapedArray, dim: int, axis: BatchAxis, name: str) -> None:
    """Raise ShardingTypeError if an axis that splits the mapped dim also splits another dim of a result."""
    dims = () if aval.explicit is None else aval.explicit.spec_dims(aval.ndim)
    others = {a for d, axes in enumerate(dims) if d != dim for a in axes} & set(axis.explicit_axes)
    if others:
        raise ShardingTypeError(
            f"vmap({name}): a result of type {aval.str_short()} has another dim than the mapped one, {dim}, split by "
            f"{sorted(map(str, others))}, and mapped dims are split by {axis.explicit_axes}.\n  A mesh axis splits at most one dim: unmapped "
            "arguments cannot be sharded over the axes of the mapped dim. Shard them over others with weft.sharding.reshard."
        )


def _split_like_mapped(x: Any, dim: int, splits: tuple) -> Any:
    """Return `x`, which is equal for all examples, with its mapped dim split as in mapped values."""
    sharding, mesh = typeof(x).explicit, current_mesh()
    if sharding is None:
        if mesh is None:
            return x
        sharding = NamedSharding(mesh, PartitionSpec())
    entries = list(sharding.spec_dims(typeof(x).ndim))
    if any(set(axes) & set(splits) for axes in entries):
        return x
    entries[dim] = splits
    return reshard(x, sharding.with_spec(spec_of_dims(tuple(entries))))
