"""Layouts as users give them: shardings, specs and devices, in trees that are prefixes of arguments and results.

In:   what a user gave as in_shardings, out_shardings or the target of device_put.
Out:  one `Sharding` (or None) per flat value; errors name the value that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.backends.base import Device
from weft.backends.formats import Format, check_row_major
from weft.ir.mesh import current_mesh
from weft.ir.shardings import NamedSharding, Sharding, SingleDeviceSharding
from weft.ir.specs import PartitionSpec
from weft.util import tree
from weft.util.errors import MissingMeshError


class _Replicated:
    """Stands for: the same on all devices of the mesh in context at the call; without one, as propagation finds."""
    def __repr__(self) -> str:
        return "None"


REPLICATED = _Replicated()


def replicated_where_none(given):
    """A prefix tree of shardings in which None asks for replication over the mesh in context."""
    return tree.tree_map(lambda s: REPLICATED if s is None else s, given, is_leaf=_is_sharding_leaf)


def _is_sharding_leaf(x) -> bool:
    return x is None or x is REPLICATED or isinstance(x, (Sharding, PartitionSpec, Device, Format))


def flat_shardings(given, structure, avals: Sequence, what: str, arg_names: Sequence[str] | None = None,
                   padded: Sequence[bool] = ()) -> tuple[Sharding | None, ...]:
    """One sharding (or None) per flat value from a prefix tree of shardings, specs or devices; checks that dims divide,
    but for values that are `padded` where they do not. `arg_names` names the values if they are arguments; else they are
    results."""
    n = structure.num_leaves
    if given is None:
        return (None,) * n
    if _is_sharding_leaf(given):
        flat = [given] * n
    else:
        full = tree.tree_unflatten(structure, list(range(n)))
        if arg_names is not None:
            full, kwargs = full
            if isinstance(given, list):
                given = tuple(given)
            if kwargs:
                raise ValueError(f"{what} cannot be given for keyword arguments; pass these positionally: {sorted(kwargs)}.")
        try:
            flat = tree.broadcast_prefix(given, full, is_leaf=_is_sharding_leaf)
        except ValueError as error:
            raise ValueError(f"{what} must be a prefix of the tree of values: {error}") from None
    result = []
    for i, (s, aval) in enumerate(zip(flat, avals)):
        s = as_sharding(s, what, aval.ndim)
        if s is not None and padded and padded[i]:
            s.splits(aval.shape)
        elif s is not None:
            s.check_shape(aval.shape, _what_is_split(what, i, structure, arg_names))
        result.append(s)
    return tuple(result)


def _what_is_split(what: str, i: int, structure, arg_names: Sequence[str] | None) -> str:
    """Value number `i` in words: an argument by its name, a result by its place in the tree."""
    function = what.partition(":")[0]
    if arg_names is not None:
        return f"argument {arg_names[i]} of {function}" if i < len(arg_names) else f"an argument of {function}"
    path = tree.tree_flatten_with_path(tree.tree_unflatten(structure, list(range(structure.num_leaves))))[0][i][0]
    return f"the result{tree.keystr(path) and ' ' + tree.keystr(path)} of {function}"


def as_sharding(s, what: str, ndim: int | None = None) -> Sharding | None:
    """A sharding from a Sharding, a Device, a PartitionSpec under the mesh of the context, or the Format of an array of `ndim` dims."""
    if isinstance(s, Format):
        check_row_major(s, ndim, what)
        s = s.sharding
    if s is None or isinstance(s, Sharding):
        return s
    if s is REPLICATED:
        mesh = current_mesh()
        return None if mesh is None else NamedSharding(mesh, PartitionSpec())
    if isinstance(s, Device):
        return SingleDeviceSharding(s)
    if isinstance(s, PartitionSpec):
        mesh = current_mesh()
        if mesh is None:
            raise MissingMeshError(f"{what}: a PartitionSpec needs a mesh: {s}. Please set a mesh via `jax.set_mesh` if a "
                                   "PartitionSpec is "
                                   f"passed to {what}, or use it inside `with mesh:`, or pass NamedSharding(mesh, spec).")
        return NamedSharding(mesh, s)
    raise TypeError(f"{what}: {s!r} is not a sharding. Give a Sharding, a PartitionSpec (with a mesh in context) or a device.")
