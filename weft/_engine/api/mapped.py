"""The mapped axes of vmap and pmap: the mapped dims of arguments and results, and their common size.

In:   trees of ints and None that are prefixes of the trees of arguments and results.
Out:  one dim (or None, or the spec of a type registered by `register_vmappable`) per leaf. Errors begin with `where`, the transformation
      and the function, and name the argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.api.flat import FlatFunction
from weft._engine.core.trace import typeof
from weft._engine.transforms.vmappable import is_spec, is_vmappable
from weft._engine.util import tree


def resolve_mapped_dims(
    in_axes: Any, args: tuple, kwargs: dict, flat: Sequence, where: str
) -> list[int | None]:
    """Return the mapped dim of each leaf of the arguments; keyword arguments are mapped over dim 0."""
    prefix = (
        in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args),
        dict.fromkeys(kwargs, 0),
    )
    return [
        _in_range(d, x, where)
        for d, x in zip(_leaf_dims(prefix, (args, kwargs), where, "in_axes", "arguments"), flat)
    ]


def result_dims(out_axes: Any, flat: FlatFunction, count: int, where: str) -> list[int | None]:
    """Return the dim along which each of `count` leaves of the result is stacked; None if it is returned once."""
    if out_axes is None or type(out_axes) is int:
        return [out_axes] * count
    return _leaf_dims(
        tuple(out_axes) if isinstance(out_axes, list) else out_axes,
        result_shape(flat, count),
        where,
        "out_axes",
        "results",
    )


def result_shape(flat: FlatFunction, count: int) -> Any:
    """Return the tree of the results with plain objects as leaves: user-defined classes may check the shapes of arrays."""
    return flat.unflatten([object() for _ in range(count)])


def _leaf_dims(prefix: Any, whole: Any, where: str, what: str, of: str) -> list:
    try:
        return tree.broadcast_prefix(prefix, whole, is_leaf=lambda x: x is None or is_spec(x))
    except ValueError as error:
        raise ValueError(
            f"{where.partition('(')[0]} {what} specification must be a tree prefix of the corresponding value; the {of} of "
            f"{where} are another tree: {error}"
        ) from None


def _in_range(dim: int | None, x: Any, where: str) -> int | None:
    if dim is None or is_vmappable(x):
        # unmapped arguments may be any objects, and registered types have their own specs
        return dim
    aval = typeof(x)
    if aval.is_high or (type(dim) is not int and is_spec(dim)):
        if aval.is_high and is_spec(dim):
            return dim
        raise ValueError(
            f"{where.partition('(')[0]} in_axes: an argument of type {aval.str_short()} was given the spec {dim!r} in "
            f"{where}: a non-array type (a HiType) is mapped by an instance of MappingSpec, an array along a dim."
        )
    if not -aval.ndim <= dim < aval.ndim:
        raise ValueError(
            f"{where.partition('(')[0]} was requested to map its argument along axis {dim}, which implies that its rank "
            "should be "
            f"at least {dim + 1 if dim >= 0 else -dim}, but is only {aval.ndim} (its shape is {aval.shape}): in {where}."
        )
    return dim % aval.ndim


def check_mapped_size(where: str, flat: FlatFunction, dims: Sequence, axis_size: int | None) -> int:
    """Return the size of all mapped dims; it must equal `axis_size` if that is not None."""
    sizes: dict[int, list[int]] = {}
    for i, (x, d) in enumerate(zip(flat.leaves, dims)):
        if d is not None and not is_spec(d):
            sizes.setdefault(typeof(x).shape[d], []).append(i)
    if axis_size is not None:
        sizes.setdefault(axis_size, [])
    if not sizes:
        raise _nothing_is_mapped(where, flat, dims)
    if len(sizes) > 1:
        raise _sizes_differ(where, flat, dims, sizes, axis_size)
    return next(iter(sizes))


def _nothing_is_mapped(where: str, flat: FlatFunction, dims: Sequence) -> ValueError:
    api = where.partition("(")[0]
    if not flat.leaves:
        args, kwargs = tree.tree_unflatten(flat.in_tree, ())
        return ValueError(
            f"{api} wrapped function must be passed at least one argument containing an array or axis_size must be specified, "
            f"got empty *args={args} and **kwargs={kwargs} for {where}."
        )
    if any(d is not None for d in dims):
        return ValueError(
            f"{api} needs axis_size where all that is mapped is of non-array types (HiType): in {where}."
        )
    return ValueError(
        f"{api} must have at least one non-None value in in_axes: nothing is mapped in {where}. Give axis_size, or map an "
        "argument."
    )


def _sizes_differ(
    where: str,
    flat: FlatFunction,
    dims: Sequence,
    sizes: dict[int, list[int]],
    axis_size: int | None,
) -> ValueError:
    """Return the error for mapped dims of several `sizes`, which list the argument numbers; the most frequent size comes first."""
    names, most = flat.names(), max(map(len, sizes.values()))
    is_unique = sum(len(numbers) == most for numbers in sizes.values()) == 1
    facts = [] if axis_size is None else [f"the `axis_size` argument was {axis_size}"]
    for size, numbers in sorted(sizes.items(), key=lambda entry: -len(entry[1])):
        if not numbers:
            continue
        first = numbers[0]
        share = "most" if is_unique and len(numbers) == most else "some"
        count = "one axis" if len(numbers) == 1 else f"{share} axes ({len(numbers)} of them)"
        example = ":" if len(numbers) == 1 else ", e.g."
        facts.append(
            f"{count} had size {size}{example} axis {dims[first]} of argument {names[first]} of "
            f"type {typeof(flat.leaves[first]).str_short()}"
        )
    return ValueError(
        f"{where.partition('(')[0]} got inconsistent sizes for array axes to be mapped:\n"
        + ";\n".join([f"  * {fact}" for fact in facts])
        + f"\n  All mapped axes of {where} must have one size."
    )
