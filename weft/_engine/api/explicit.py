"""Explicit sharding for users: `reshard`, and functions inside which mesh axes change their type.

An axis is automatic inside `auto_axes` (the compiler decides, and types do not mention it) and explicit inside
`explicit_axes`. Crossing the boundary moves no data: the value keeps its sharding and gets another type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.api.placement.device_put import device_put
from weft._engine.core.trace import Tracer, current_trace, eval_trace, typeof
from weft._engine.ir.explicit import with_axis_types
from weft._engine.ir.mesh import (
    AbstractMesh,
    AxisType,
    current_mesh,
    meshes_without_axis_types,
    use_mesh,
)
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ops.placement import mesh_cast, named_sharding, reshard as reshard_one
from weft._engine.util import tree
from weft._engine.util.source import api_boundary, function_name


def _is_layout(x: Any) -> bool:
    return x is None or isinstance(x, (NamedSharding, PartitionSpec))


def _layouts(layouts: Any, values: Any, what: str) -> list:
    """Return one layout per leaf of `values` from a prefix tree of layouts."""
    try:
        return tree.broadcast_prefix(layouts, values, is_leaf=_is_layout)
    except ValueError as error:
        raise ValueError(f"{what} must be a prefix of the tree of values: {error}") from None


@api_boundary
def reshard(xs: Any, out_shardings: Any) -> Any:
    """Return the tree `xs` with the shardings `out_shardings`, which become part of the types of its arrays.

    `out_shardings` is a PartitionSpec (over the context mesh), a NamedSharding, or a prefix tree of them. Raises ShardingError if a dim
    is not divisible, and for axes that are not explicit (see the page on explicit sharding); TypeError for an invalid sharding; ValueError
    for None and without a mesh. Shapes and dtypes stay.

    >>> mesh = weft.make_mesh((1,), ('x',), axis_types=(weft.sharding.AxisType.Explicit,))
    >>> weft.typeof(reshard(wnp.ones((4, 2)), weft.NamedSharding(mesh, weft.P('x'))))
    ShapedArray(float32[4@x,2])
    """
    leaves, structure = tree.tree_flatten(xs)
    shardings = _layouts(out_shardings, xs, "reshard: out_shardings")
    if any(s is None for s in shardings):
        raise ValueError(
            f"reshard: out_shardings must be non-None for every value, got {out_shardings!r:.80}.\n"
            "  Pass P() for a value that is the same on all devices, or leave the value out."
        )
    return tree.tree_unflatten(
        structure, [_reshard(x, named_sharding(s, "reshard")) for x, s in zip(leaves, shardings)]
    )


def _reshard(x: Any, sharding: NamedSharding) -> Any:
    """Return one resharded array; a concrete array may come from other devices."""
    if (
        isinstance(x, Tracer)
        or current_trace() is not eval_trace
        or isinstance(sharding.mesh, AbstractMesh)
    ):
        return reshard_one(x, sharding)
    if not sharding.mesh.explicit_axes and sharding.mesh not in meshes_without_axis_types:
        typed = typeof(x).explicit
        if typed is None:
            return reshard_one(x, sharding)
        if typed.mesh.shape == sharding.mesh.shape:  # only the type changes
            sharding = NamedSharding(sharding.mesh, x.sharding.spec)
    ndim = typeof(x).ndim
    sharding.check_shape(typeof(x).shape, "the value given to reshard")
    # types do not name a memory kind
    return device_put(x, NamedSharding(sharding.mesh, sharding.spec.of_rank(ndim)))


def _mesh_of(values: Sequence, layouts: Any, what: str, kind: AxisType) -> Any:
    """Return the mesh of the context, of the layouts or of the values: the first with axes of `kind`, else the first."""
    named = [
        s for s in tree.tree_leaves(layouts, is_leaf=_is_layout) if isinstance(s, NamedSharding)
    ]
    placed = [getattr(x, "sharding", None) for x in values]
    named += [
        s
        for s in (*placed, *(getattr(typeof(x), "explicit", None) for x in values))
        if isinstance(s, NamedSharding)
    ]
    meshes = [m for m in (current_mesh(), *(s.mesh for s in named)) if m is not None]
    if not meshes and what == "auto_axes":
        return None
    if not meshes:
        raise ValueError(
            f"{what}: no mesh is known.\n  Make one current with weft.set_mesh(mesh), or pass arrays that are on one."
        )
    return next((m for m in meshes if m.axes_of_type(kind)), meshes[0])


def _axis_names(axes: Any, default: Sequence) -> tuple:
    return tuple(default) if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)


def _axes_of_other_type(mesh: Any, axes: Any, kind: AxisType) -> list:
    """Return the `axes` (default: all axes) that are not of the type `kind`."""
    return [a for a in _axis_names(axes, mesh.axis_names) if a not in mesh.axes_of_type(kind)]


def _cast(x: Any, mesh: Any) -> Any:
    """Return `x` typed over `mesh`, some of whose axes have changed type: its type keeps the axes that are still explicit."""
    sharding = typeof(x).explicit
    if sharding is None:
        return x
    explicit = mesh.explicit_axes
    entries = [
        tuple(a for a in axes if a in explicit) or None
        for axes in sharding.spec_dims(typeof(x).ndim)
    ]
    return mesh_cast(
        x, NamedSharding(mesh.abstract_mesh, PartitionSpec(*entries)) if explicit else None
    )


class _MeshContextFunction:
    """A function inside which some mesh axes have another type."""

    def __init__(self, fun: Callable, kind: AxisType, axes: Any, enter: Callable, leave: Callable):
        if not callable(fun):
            raise TypeError(
                f"{'auto' if kind is AxisType.Auto else 'explicit'}_axes: `f` must be a function, got {fun!r:.80}."
            )
        self.fun, self.kind, self.axes, self.enter, self.leave = fun, kind, axes, enter, leave

    def __call__(self, args: tuple, kwargs: dict, mesh: Any, layouts: Any) -> Any:
        other = AxisType.Explicit if self.kind is AxisType.Auto else AxisType.Auto
        names = _axis_names(self.axes, mesh.axes_of_type(other))
        manual = [a for a in names if a in mesh.manual_axes]
        if manual:
            raise NotImplementedError(
                f"{'auto' if self.kind is AxisType.Auto else 'explicit'}_axes: Going from `Manual` axes, "
                f"{manual}, to "
                "`Auto` or `Explicit` ones is not supported: inside shard_map a value is one device's block."
            )
        inner = with_axis_types(mesh, names, self.kind)
        with use_mesh(inner):
            args, kwargs = self.enter((args, kwargs), inner, layouts)
            out = self.fun(*args, **kwargs)
        return self.leave(out, mesh, layouts)


def _resolve_axes(*choices: Any) -> Any:
    return next((c for c in choices if c is not None), None)


def auto_axes(
    f: Callable | None = None,
    /,
    *,
    axes: Any = None,
    out_sharding: Any = None,
    out_shardings: Any = None,
) -> Any:
    """Return `f` with the mesh axes `axes` (by default all explicit ones) automatic inside: the compiler shards values over them.

    Results have the shardings `out_sharding`, a prefix tree of PartitionSpecs or NamedShardings, passed here or at the call.
    Raises TypeError if it is passed at neither. Also a decorator.

    >>> mesh = weft.make_mesh((1,), ('x',), axis_types=(weft.sharding.AxisType.Explicit,))
    >>> x = reshard(wnp.ones((2, 2)), weft.NamedSharding(mesh, weft.P('x')))
    >>> weft.typeof(auto_axes(lambda a: a @ a)(x, out_sharding=weft.NamedSharding(mesh, weft.P(None, 'x'))))
    ShapedArray(float32[2,2@x])
    """
    if f is None:
        return functools.partial(
            auto_axes, axes=axes, out_sharding=out_sharding, out_shardings=out_shardings
        )
    default = _resolve_axes(out_sharding, out_shardings)
    enter = lambda values, inner, layouts: tree.tree_map(lambda x: _cast(x, inner), values)

    def leave(out: Any, mesh: Any, layouts: Any) -> Any:
        with use_mesh(mesh):
            return reshard(out, layouts)

    call = _MeshContextFunction(f, AxisType.Auto, axes, enter, leave)

    @functools.wraps(f)
    @functools.partial(api_boundary, name="auto_axes")
    def automatic(*args, out_sharding: Any = None, out_shardings: Any = None, **kwargs):
        layouts = _resolve_axes(out_sharding, out_shardings, default)
        if layouts is None:
            raise TypeError(
                f"auto_axes({function_name(f)}): the keyword out_sharding is missing.\n"
                "  Automatic axes are not in the types of results. Pass out_sharding=P(...) here or to auto_axes."
            )
        mesh = _mesh_of(tree.tree_leaves((args, kwargs)), layouts, "auto_axes", AxisType.Explicit)
        if mesh is None or not _axes_of_other_type(mesh, axes, AxisType.Auto):
            return f(*args, **kwargs)  # all axes are automatic already
        return call(args, kwargs, mesh, layouts)

    return automatic


def explicit_axes(
    f: Callable | None = None,
    /,
    *,
    axes: Any = None,
    in_sharding: Any = None,
    in_shardings: Any = None,
) -> Any:
    """Return `f` with the mesh axes `axes` (by default all automatic ones) explicit inside: types include how they split values.

    Arguments get the shardings `in_sharding`, a prefix tree (for the tuple of arguments) of PartitionSpecs or NamedShardings,
    passed here or at the call. Raises TypeError if it is passed at neither. Also a decorator.

    >>> mesh = weft.make_mesh((1,), ('x',))
    >>> def f(a):
    ...     print(weft.typeof(a).str_short())
    ...     return a * 2
    >>> with weft.sharding.use_mesh(mesh):
    ...     explicit_axes(f)(wnp.ones(2), in_sharding=weft.P('x'))
    float32[2@x]
    Array([2., 2.], dtype=float32)
    """
    if f is None:
        return functools.partial(
            explicit_axes, axes=axes, in_sharding=in_sharding, in_shardings=in_shardings
        )
    default = _resolve_axes(in_sharding, in_shardings)

    def enter(values: Any, inner: Any, layouts: Any) -> Any:
        args, kwargs = values
        on_inner = lambda s: NamedSharding(inner, s.spec) if isinstance(s, NamedSharding) else s
        shardings = tree.tree_map(on_inner, layouts, is_leaf=_is_layout)
        return reshard(args, shardings), kwargs

    call = _MeshContextFunction(
        f,
        AxisType.Explicit,
        axes,
        enter,
        lambda out, mesh, layouts: tree.tree_map(lambda x: _cast(x, mesh), out),
    )

    @functools.wraps(f)
    @functools.partial(api_boundary, name="explicit_axes")
    def explicit(*args, in_sharding: Any = None, in_shardings: Any = None, **kwargs):
        layouts = _resolve_axes(in_sharding, in_shardings, default)
        if layouts is None:
            raise TypeError(
                f"explicit_axes({function_name(f)}): the keyword in_sharding is missing.\n"
                "  Automatic axes are not in the types of arguments. Pass in_sharding=P(...) here or to explicit_axes."
            )
        return call(
            args,
            kwargs,
            _mesh_of(tree.tree_leaves((args, kwargs)), layouts, "explicit_axes", AxisType.Auto),
            layouts,
        )

    return explicit
