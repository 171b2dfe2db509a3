"""The specs of a shard_map: matched with the trees of arguments and results, and checked against the mesh.

In:   user-written specs (trees, prefixes, None), the mesh, its manual axes, the types of values.
Out:  one PartitionSpec per flat value; errors name the wrong entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.control.hijax_types import HiPspec, lower_value
from weft._engine.core.trace import typeof
from weft._engine.hooks import hi_types
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.specs import UNCONSTRAINED, PartitionSpec, UnreducedKind
from weft._engine.ir.types import ShapedArray
from weft._engine.util import tree
from weft._engine.util.errors import ShardingError, describe
from weft._engine.util.jax_versions import jax_behavior
from weft._engine.util.record import record
from weft._engine.util.source import user_frame


@record
class ShardMapSite:
    """The facts about one shard_map for messages: the function's name, the mesh, its manual axes."""

    name: str
    mesh: Mesh
    manual: frozenset

    def error(
        self, kind: type, fact: str, rows: Sequence, rule: str, remedy: str = ""
    ) -> Exception:
        """Return the error about one wrong spec."""
        sizes = ", ".join(f"{n!r}: {s}" for n, s in self.mesh.shape_tuple)
        return kind(
            describe(
                f"shard_map({self.name})",
                fact,
                [*rows, ("mesh", sizes)],
                user_frame(),
                rule,
                remedy,
            )
        )


def is_spec(x: Any) -> bool:
    """Return whether `x` is a leaf of a tree of specs."""
    return x is None or isinstance(x, (PartitionSpec, HiPspec))


def check_entries(site: ShardMapSite, specs: Any, what: str) -> None:
    """Check that every leaf is a PartitionSpec that names each manual axis at most once."""
    for path, spec in tree.tree_flatten_with_path(specs, is_leaf=is_spec)[0]:
        where = what + tree.keystr(path)
        if spec is None:
            continue
        if isinstance(spec, HiPspec):
            check_entries(site, tuple(spec.to_lo()), f"{where}.to_lo()")
            continue
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"shard_map({site.name}): {where} must be a PartitionSpec or None, got {spec!r} of type "
                f"{type(spec).__name__}.\n  Write PartitionSpec('axis', ...) with names of mesh axes."
            )
        if UNCONSTRAINED in spec.partitions:
            raise site.error(
                ValueError,
                f"{where} leaves a dim unconstrained.",
                [(where, spec)],
                "Blocks have a definite shape, so every dim is split or whole.",
                "Write None or an axis.",
            )
        for axis in (*spec.axes, *sorted(spec.unreduced | spec.reduced, key=str)):
            if axis not in site.mesh.axis_names:
                raise site.error(
                    ValueError,
                    f"{where} names an axis that the mesh does not have.",
                    [(where, spec), ("unknown", repr(axis))],
                    "Specs name axes of the mesh.",
                    _nearest(axis, site.mesh),
                )
            if axis not in site.manual:
                raise site.error(
                    ValueError,
                    f"{where} names axis {axis!r}, which is not manual here.",
                    [(where, spec), ("manual axes", _names(site.manual, site.mesh))],
                    "Specs name manual axes; the compiler splits values over the others.",
                    f"Add {axis!r} to axis_names, or leave it out of the spec.",
                )
        if spec.unreduced_kind not in (None, UnreducedKind.sum):
            raise NotImplementedError(
                f"shard_map({site.name}): {where} is {spec}: only sums can be unreduced, not a "
                f"{spec.unreduced_kind.name}. Use lax.pmax or lax.pmin."
            )
        repeated = [a for a in spec.axes if spec.axes.count(a) > 1]
        if repeated:
            raise site.error(
                ShardingError,
                f"{where} names axis {repeated[0]!r} more than once.",
                [(where, spec)],
                "An axis splits at most one dim of a value.",
                "Keep one of them.",
            )


def _names(axes: Any, mesh: Mesh) -> str:
    return ", ".join(repr(a) for a in mesh.axis_names if a in axes) or "none"


def _set(axes: Any, mesh: Mesh) -> str:
    return "{" + ",".join(str(a) for a in mesh.axis_names if a in axes) + "}"


def _nearest(axis: Any, mesh: Mesh) -> str:
    import difflib

    close = difflib.get_close_matches(str(axis), [str(n) for n in mesh.axis_names], 1)
    return f"Did you mean {close[0]!r}?" if close else f"It has {_names(mesh.axis_names, mesh)}."


def flat_specs(
    site: ShardMapSite, specs: Any, values: Any, what: str, values_name: str
) -> list[PartitionSpec]:
    """Return one spec per leaf of `values`, from a tree of specs that is a prefix of it."""
    try:
        leaves = tree.broadcast_prefix(specs, values, is_leaf=is_spec)
    except ValueError as error:
        where = tree.prefix_errors(
            specs, values, is_spec, prefix_name=f"shard_map {what}", full_name=values_name
        ) or str(error)
        raise ValueError(
            f"shard_map({site.name}): {what} does not fit {values_name}:\n{where}\n"
            f"  {what} must be a tree of PartitionSpecs that is a prefix of {values_name}: one spec for all of them, or a tuple "
            f"with one spec for each."
        ) from None
    return [PartitionSpec() if s is None else s for s in leaves]


def check_operand(site: ShardMapSite, aval: ShapedArray, spec: PartitionSpec, label: str) -> None:
    """Check that an operand has a dim for every entry of its spec, and blocks of equal size."""
    _check_rank(site, aval, spec, label, "in_specs")
    for d, axes in enumerate(spec.dims(aval.ndim)):
        n = math.prod(site.mesh.shape[a] for a in axes)
        if aval.shape[d] % n:
            along = f"{axes[0]!r} of size {n}" if len(axes) == 1 else f"{axes} of size {n} together"
            padded = -(-aval.shape[d] // n) * n
            raise site.error(
                ValueError,
                f"dim {d} of {label} is not evenly divisible by the mesh axes that split it.",
                [
                    (label, aval.str_short()),
                    ("in_spec", spec),
                    (f"dim {d}", f"of size {aval.shape[d]}, over {along}"),
                ],
                "Every device gets a block of the same size.",
                f"Pad the dim to {padded}, choose another mesh, or leave the dim whole in in_specs.",
            )


def check_devices(site: ShardMapSite, x: Any, label: str) -> None:
    """Check that a committed array is on the devices of the mesh, in the same order."""
    if not getattr(x, "committed", False) or x.sharding.device_assignment == site.mesh.flat_devices:
        return
    ids = lambda devices: [d.id for d in devices]
    raise site.error(
        ValueError,
        f"received incompatible devices: {label} is not on the devices of the mesh in their order.",
        [
            (label, f"{x.aval.str_short()} on device ids {ids(x.sharding.device_assignment)}"),
            ("mesh devices", f"ids {ids(site.mesh.flat_devices)}"),
        ],
        "Committed arrays are not moved silently.",
        "Use weft.device_put(x, NamedSharding(mesh, spec)) first.",
    )


def _check_rank(
    site: ShardMapSite, aval: ShapedArray, spec: PartitionSpec, label: str, what: str
) -> None:
    counts_all = what == "in_specs" or jax_behavior().long_out_specs_refused
    named = len(spec) if counts_all else len(spec._key)
    if named > aval.ndim:
        remedy = f"Shorten the spec to length {aval.ndim}."
        if aval.ndim == 0:
            remedy = (
                f"For scalars, consider using an {what} entry of `P()`, or give the value a dim (x[None]) along which blocks "
                "can be put together."
            )
        raise site.error(
            ValueError,
            f"the {what} entry for {label} is too long for its rank.",
            [
                (label, f"{aval.str_short()}, which has rank {aval.ndim}"),
                ("spec", f"{spec}, which has length {named}"),
            ],
            "A spec has at most one entry per dim.",
            remedy,
        )


def check_result(
    site: ShardMapSite, aval: ShapedArray, spec: PartitionSpec, label: str, tracked: bool
) -> None:
    """Check that a result has a dim for every entry of its spec, and is equal along the manual axes that the spec omits."""
    _check_rank(site, aval, spec, label, "out_specs")
    extra = (aval.vma & site.manual) - set(spec.axes) if tracked else frozenset()
    if not extra:
        return
    names = _names(extra, site.mesh)
    axes = tuple(a for a in site.mesh.axis_names if a in extra)
    one = repr(axes[0]) if len(axes) == 1 else repr(axes)
    raise site.error(
        ValueError,
        f"out_specs require replication of {label} over {names}, which can't be statically inferred: its entry of out_specs is "
        f"{spec} which implies that the corresponding output value is only varying across mesh axes {_set(spec.axes, site.mesh)} and not "
        f"{_set(extra, site.mesh)}, but it was inferred to be possibly varying over {_set(aval.vma, site.mesh)}.",
        [
            (label, f"{aval.str_short()}, varies over {_names(aval.vma, site.mesh)}"),
            ("out_spec", f"{spec}, implies that {label} is replicated across mesh axis {names}"),
        ],
        "Of a result, axes that its out_spec does not name keep one copy, so it must be the same on all their devices.",
        f"Name {names} in the out_spec to put the blocks together, reduce the value with lax.psum(x, {one}) or gather it with "
        f"lax.all_gather_invariant, or pass check_vma=False (check_rep=False) if you know that it is equal.",
    )


def leaf_labels(values: Any, label: Callable[[Any], str]) -> list[str]:
    """Return the label in messages of each leaf of `values`."""
    return [label(path) for path, _ in tree.tree_flatten_with_path(values)[0]]


# --- values of hijax types -----------------------------------------------------------------------------------------------


def has_hi_types(specs: Any, args: Any) -> bool:
    """Return whether specs or arguments are of hijax types."""
    return any(isinstance(s, HiPspec) for s in tree.tree_leaves(specs, is_leaf=is_spec)) or (
        bool(hi_types) and any(type(x) in hi_types for x in tree.tree_leaves(args))
    )


def _check_fits(site: ShardMapSite, x: Any, spec: Any, label: str) -> bool:
    """Return whether `x` is a value of a hijax type; raise TypeError unless its spec is of the same kind."""
    is_value = type(x) in hi_types
    if is_value != isinstance(spec, HiPspec):
        need = "a HiPspec" if is_value else "a PartitionSpec"
        raise TypeError(
            f"shard_map({site.name}): {label}, of type {typeof(x)}, needs {need} as its spec, got {spec!r}."
        )
    return is_value


def _low_specs(specs: Sequence) -> list:
    """Return specs, where a spec of a hijax type is replaced by the list of specs of its arrays."""
    return [list(s.to_lo()) if isinstance(s, HiPspec) else s for s in specs]


def _parts_of(spec: Any, part: Any) -> tuple[Any, tuple | None]:
    """Return the arrays of a part of the results; and the tree and types of its values for a hijax type, else None."""
    if not isinstance(spec, HiPspec):
        return part, None
    values, inner = tree.tree_flatten(part)
    arrays = [*map(list, zip(*[lower_value(x, "shard_map") for x in values]))]
    return arrays, (inner, list(map(typeof, values)))


def call_on_arrays(
    call: Callable, f: Callable, site: ShardMapSite, options: Any, args: tuple
) -> Any:
    """Return `f(*args)` by `call(function, in_specs, out_specs, args)`, where values of hijax types are replaced by lists of their arrays."""
    leaves, structure = tree.tree_flatten(args)
    specs: list[Any] = flat_specs(
        site, options.prefix(len(args)), args, "in_specs", "the arguments"
    )
    labels = leaf_labels(args, lambda path: f"argument args{tree.keystr(path)}")
    is_value = [_check_fits(site, *each) for each in zip(leaves, specs, labels)]
    manual = frozenset(site.manual)
    avals = [
        typeof(x).shard(site.mesh, manual, options.check, s) if hi else None
        for x, s, hi in zip(leaves, specs, is_value)
    ]
    entries, out_structure = tree.tree_flatten(options.out_specs, is_leaf=is_spec)
    # per entry of out_specs: the tree and types of its values if of a hijax type, else None
    types: list[Any] = []

    def on_blocks(*blocks):
        operands = [x if aval is None else aval.raise_val(*x) for x, aval in zip(blocks, avals)]
        out = f(*tree.tree_unflatten(structure, operands))
        out_specs = flat_specs(site, options.out_specs, out, "out_specs", "the results")
        titles = leaf_labels(out, lambda path: f"result{tree.keystr(path)}")
        for each in zip(tree.tree_leaves(out), out_specs, titles):
            _check_fits(site, *each)
        pairs = [*map(_parts_of, entries, out_structure.flatten_up_to(out))]
        types[:] = [known for _, known in pairs]
        return [part for part, _ in pairs]

    on_blocks.__name__ = site.name
    operands = [lower_value(x, "shard_map") if hi else x for x, hi in zip(leaves, is_value)]
    parts = call(on_blocks, tuple(_low_specs(specs)), _low_specs(entries), tuple(operands))
    for i, (spec, known) in enumerate(zip(entries, types)):
        if known is not None:
            inner, avals = known
            whole = [aval.unshard(site.mesh, options.check, spec) for aval in avals]
            values = [aval.raise_val(*arrays) for aval, arrays in zip(whole, zip(*parts[i]))]
            parts[i] = tree.tree_unflatten(inner, values)
    return tree.tree_unflatten(out_structure, parts)
