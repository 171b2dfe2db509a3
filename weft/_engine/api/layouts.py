"""User-specified layouts: shardings, specs and devices, in prefix trees of arguments and results.

In:   the user's in_shardings, out_shardings or target of device_put.
Out:  one `Sharding` (or None) per flat value, and its layout in memory; errors name the value that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import Device
from weft._engine.backends.formats import Format, Layout, is_layout, order_of
from weft._engine.ir.mesh import AUTO, Mesh, check_automatic_axes, current_mesh, spec_mesh
from weft._engine.ir.program_mesh import is_abstract
from weft._engine.ir.shardings import NamedSharding, Sharding, SingleDeviceSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.util import tree
from weft._engine.util.errors import MissingMeshError


class _Replicated:
    """A placeholder for replication over the context mesh of the call; without a mesh, for the propagated sharding."""

    def __repr__(self) -> str:
        return "None"


REPLICATED = _Replicated()


def replace_none_by_replication(layouts):
    """Replace None in a prefix tree of shardings by replication over the context mesh."""
    return tree.tree_map(
        lambda s: REPLICATED if s is None else s, layouts, is_leaf=_is_sharding_leaf
    )


def check_no_unconstrained_dims(layouts, what: str) -> None:
    """Raise ValueError if a tree of layouts has unconstrained dims, which propagation cannot fill at the boundary of a program."""
    for s in tree.tree_leaves(layouts, is_leaf=_is_sharding_leaf):
        s = s.sharding if isinstance(s, Format) else s
        spec = s.spec if isinstance(s, NamedSharding) else s
        if isinstance(spec, PartitionSpec) and spec.unconstrained_dims():
            raise ValueError(
                f"{what}: Unconstrained dims are not allowed here, got {spec}: arguments and results have one layout.\n"
                "  Pass None for the whole sharding to leave it open, or use lax.with_sharding_constraint inside."
            )


def _is_sharding_leaf(x) -> bool:
    return (
        x is None
        or x is REPLICATED
        or isinstance(x, (Sharding, PartitionSpec, Device, Format, AUTO))
    )


def flat_shardings(
    layouts,
    structure,
    avals: Sequence,
    what: str,
    arg_names: Sequence[str] | None = None,
    padded: Sequence[bool] = (),
    mesh_of: Callable = spec_mesh,
) -> tuple[Sharding | None, ...]:
    """Return one sharding (or None) per flat value from a prefix tree.

    The tree has shardings, specs or devices. Dims must be divisible, except for values that are `padded`. `arg_names` names the values if
    they are arguments; otherwise they are results. Specs are over the mesh that `mesh_of` returns.
    """
    if layouts is None:
        return (None,) * structure.num_leaves
    result = []
    for i, (s, aval) in enumerate(zip(_per_value(layouts, structure, what, arg_names), avals)):
        if isinstance(s, Format):
            order_of(s.layout, aval.ndim, what)
            s = s.sharding
        s = None if isinstance(s, AUTO) else as_sharding(s, what, mesh_of)
        if s is not None and padded and padded[i]:
            s.check_compatible_aval(aval.shape)
        elif s is not None:
            s.check_value(aval.shape, _describe_value(what, i, structure, arg_names))
        result.append(s)
    return tuple(result)


def flat_automatic(
    layouts: Any, structure: Any, what: str, arg_names: Sequence[str] | None = None
) -> tuple[AUTO | None, ...]:
    """Return the AUTO of each flat value in a prefix tree of shardings, None for other values; () if there is no AUTO."""
    if layouts is None or not any(
        isinstance(s, AUTO) for s in tree.tree_leaves(layouts, is_leaf=_is_sharding_leaf)
    ):
        return ()
    values = _per_value(layouts, structure, what, arg_names)
    return tuple([s if isinstance(s, AUTO) else None for s in values])


def find_common_auto(autos: Sequence[AUTO | None], what: str) -> AUTO | None:
    """Return the one AUTO of a function, or None; ValueError if there are several or the context mesh has explicit axes."""
    different = list(dict.fromkeys(s for s in autos if s is not None))
    if len(different) > 1:
        meshes = ", ".join(str(s.mesh) for s in different)
        raise ValueError(
            f"{what}: AUTO is given for different meshes: {meshes}. All values of a program are laid out over one "
            "mesh. Give each AUTO the same mesh."
        )
    context = current_mesh()
    if different and context is not None and context.explicit_axes:
        check_automatic_axes(context, f"{what}: AUTO in the context of a mesh")
    return different[0] if different else None


def flat_layouts(layouts, structure, what: str, arg_names: Sequence[str] | None = None) -> tuple:
    """Return the memory layout of each flat value from the formats among `layouts`.

    It is a Layout, Layout.AUTO or None; the result is () if no format has a layout.
    """
    if layouts is None or not any(
        isinstance(s, Format) and s.layout is not None
        for s in tree.tree_leaves(layouts, is_leaf=_is_sharding_leaf)
    ):
        return ()
    return tuple(
        [
            s.layout if isinstance(s, Format) else None
            for s in _per_value(layouts, structure, what, arg_names)
        ]
    )


def _per_value(layouts, structure, what: str, arg_names: Sequence[str] | None) -> list:
    """Return the entry of a prefix tree for each flat value."""
    if _is_sharding_leaf(layouts):
        return [layouts] * structure.num_leaves
    full = tree.tree_unflatten(structure, list(range(structure.num_leaves)))
    if arg_names is not None:
        full = full[0]
        if isinstance(layouts, list):
            layouts = tuple(layouts)
    try:
        return tree.broadcast_prefix(layouts, full, is_leaf=_is_sharding_leaf)
    except ValueError as error:
        raise ValueError(f"{what} must be a prefix of the tree of values: {error}") from None


def argument_order(
    name: str, label: str, spec: ArraySpec, layout, is_given: bool
) -> tuple[int, ...] | None:
    """Return the dim order for an argument with the layout `layout` in jit; raise ValueError if it `is_given` in another order."""
    order = order_of(layout, spec.aval.ndim, name)
    if is_given and (layout is Layout.AUTO or order != spec.order):
        have = spec.order or tuple(range(spec.aval.ndim))
        if layout is Layout.AUTO:
            rule = (
                "AUTO leaves the layout of an argument to the compiler, before there is one. Lower the function for a "
                "ShapeDtypeStruct, put arrays in the formats of compile().input_formats, or leave AUTO out."
            )
        else:
            rule = "A committed argument is not copied silently. Use weft.device_put(x, format) first, or leave its layout out."
        raise ValueError(
            f"{name}: Layout passed to jit does not match the layout on the respective arg. Argument {label} of type "
            f"{spec.aval.str_short()} is stored with major_to_minor={have}, but in_shardings has {layout}.\n  {rule}"
        )
    return order


def check_donated_layouts(traced, are_specified: Sequence[bool]) -> None:
    """Raise ValueError if the layout of a donated argument is AUTO but the layout of the result in its memory is not, or vice versa.
    `are_specified` is true for each argument of the traced program that has a layout."""
    ins, outs = traced.in_layouts, traced.out_layouts
    if Layout.AUTO not in ins and Layout.AUTO not in outs:
        return
    results = [
        (a.shape, a.dtype, layout)
        for a, layout in zip(traced.jaxpr.out_avals, outs or [None] * len(traced.jaxpr.outvars))
    ]
    for aval, is_given, is_donated, layout in zip(
        traced.in_avals, are_specified, traced.donated, ins or [None] * len(are_specified)
    ):
        result = (
            next((r for r in results if r[:2] == (aval.shape, aval.dtype)), None)
            if is_donated
            else None
        )
        if result is None:
            continue
        results.remove(result)
        if (layout is Layout.AUTO) != (result[2] is Layout.AUTO) and not (
            layout is None and is_given
        ):
            side, other = (
                ("output layout", result[2]) if layout is Layout.AUTO else ("input layout", layout)
            )
            raise ValueError(
                f"jit({traced.name}): a donated argument of type {aval.str_short()} and the result that takes its memory "
                f"have one layout, but only one of them is AUTO. Did you mean to set the {side}, which is {other}, "
                "to Layout.AUTO?"
            )


def _describe_value(what: str, i: int, structure, arg_names: Sequence[str] | None) -> str:
    """Return a description of value number `i`: an argument by its name, a result by its path in the tree."""
    function = what.partition(":")[0]
    if arg_names is not None:
        return (
            f"argument {arg_names[i]} of {function}"
            if i < len(arg_names)
            else f"an argument of {function}"
        )
    path = tree.tree_flatten_with_path(
        tree.tree_unflatten(structure, list(range(structure.num_leaves)))
    )[0][i][0]
    return f"the result{tree.keystr(path) and ' ' + tree.keystr(path)} of {function}"


@overload
def as_sharding(
    s: Sharding | PartitionSpec | Device, what: str, mesh_of: Callable = spec_mesh
) -> Sharding: ...
@overload
def as_sharding(s: Any, what: str, mesh_of: Callable = spec_mesh) -> Sharding | None: ...
def as_sharding(s: Any, what: str, mesh_of: Callable = spec_mesh) -> Sharding | None:
    """Return a sharding from a Sharding, a Device, or a PartitionSpec over the context mesh that `mesh_of` returns."""
    if isinstance(s, Sharding) and is_abstract(s):
        mesh = current_mesh()
        if isinstance(mesh, Mesh) and mesh.abstract_mesh == s.mesh:
            return NamedSharding(mesh, s.spec, memory_kind=s.memory_kind)
    if s is None or isinstance(s, Sharding):
        return s
    if s is REPLICATED:
        mesh = current_mesh()
        return None if mesh is None else NamedSharding(mesh, PartitionSpec())
    if isinstance(s, Device):
        return SingleDeviceSharding(s)
    if isinstance(s, PartitionSpec):
        mesh = mesh_of()
        if mesh is None:
            entered = (
                ", or use it inside `with mesh:`,"
                if current_mesh() is None
                else ", which `with mesh:` does not,"
            )
            raise MissingMeshError(
                f"{what} requires a non-empty mesh in context: a PartitionSpec needs a mesh: {s}. Please set a mesh via "
                f"`weft.set_mesh` if a PartitionSpec is passed to {what}{entered} or pass NamedSharding(mesh, spec)."
            )
        return NamedSharding(mesh, s)
    if is_layout(s) and what.startswith("jit("):
        raise ValueError(
            f"{what}: `weft.jit` does not accept device-local layouts directly, got {s}. Write Format(layout, sharding); "
            "Format(Layout.AUTO) needs no sharding."
        )
    raise TypeError(
        f"{what}: {s!r} is not a sharding. Pass a Sharding, a PartitionSpec (with a mesh in context) or a device."
    )
